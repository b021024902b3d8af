"""dt="auto": a first step from the gaps and the speed of the flow, before anything is fitted.

The flow's rate in a gap is how fast means and sds move in units of the clouds' own sd,

    rate_n = max over coordinates of (|mean_{n+1} - mean_n| / sd_n + |log sd_{n+1} - log sd_n|)
             / (t_{n+1} - t_n)

and the step is a tenth of the shortest such time, at most a fifth of the shortest gap and at least
1/400 of the span. Whether it is short enough is checked on the fitted process by step doubling.
"""

from typing import Any

import numpy as np

from itofit.errors import InputError
from itofit.snapshots.clouds import Snapshots

# A halved step may move no mean or sd by more than this part of the cloud's sd.
TOLERANCE = 0.05
# The same of a step that is ours and costs nothing but forecasts.
CLOSE = 0.02


def first_step(snapshots: Snapshots) -> float:
    """A step for the first fit."""
    gaps = np.diff(snapshots.times)
    means = np.stack([w @ x for _, x, w in snapshots])
    variances = [w @ (x - m) ** 2 for (_, x, w), m in zip(snapshots, means, strict=True)]
    sds = np.sqrt(np.stack(variances))
    sds = np.maximum(sds, 0.05 * sds.max(axis=0))
    varies = sds.max(axis=0) > 0
    means = means[:, varies]
    sds = sds[:, varies]
    narrow = np.minimum(sds[1:], sds[:-1])
    shift = np.abs(np.diff(means, axis=0)) / narrow
    change = shift + np.abs(np.diff(np.log(sds), axis=0))
    rate = float(np.max(change.max(axis=1, initial=0.0) / gaps))
    span = float(snapshots.times[-1] - snapshots.times[0])
    return float(np.clip(0.1 / max(rate, 1e-12), span / 400.0, gaps.min() / 5.0))


def checked_step(dt: Any, snapshots: Snapshots) -> float:
    """A step given by the user: positive and no longer than the longest gap."""
    gaps = np.diff(snapshots.times)
    try:
        value = float(dt)
    except (TypeError, ValueError):
        value = float("nan")
    if not 0.0 < value <= gaps.max() * (1.0 + 1e-9):
        raise InputError(
            expected=f"dt above 0 and at most the longest gap between snapshots ({gaps.max():g})",
            found=f"{dt!r}",
            hint="dt='auto', or about a tenth of the time in which the cloud moves by its own "
            "width",
        )
    return value


def is_automatic(dt: Any) -> bool:
    """Whether the step is ours to choose."""
    return isinstance(dt, str) and dt == "auto"


def chosen_step(dt: Any, snapshots: Snapshots) -> float:
    """The user's step, checked, or one for the first fit."""
    return first_step(snapshots) if is_automatic(dt) else checked_step(dt, snapshots)
