"""dt="auto": a first step from the gaps and the speed of the flow, before anything is fitted.

The flow's rate in a gap is how fast means and sds move in units of the clouds' own sd,

    rate_n = max over coordinates of (|mean_{n+1} - mean_n| / sd_n + |log sd_{n+1} - log sd_n|) / (t_{n+1} - t_n)

and the step is a tenth of the shortest such time, at most a fifth of the shortest gap and at least 1/400 of
the span. Whether it is short enough is checked on the fitted process by step doubling.
"""

from typing import Any

import numpy as np

from itofit.errors import InputError
from itofit.snapshots.clouds import Snapshots

# A halved step may move no mean or sd by more than this share of the cloud's sd.
TOLERANCE = 0.05


def first_step(snapshots: Snapshots) -> float:
    """A step for the first fit."""
    gaps = np.diff(snapshots.times)
    means = np.stack([w @ x for _, x, w in snapshots])
    sds = np.stack([np.sqrt(w @ (x - m) ** 2) for (_, x, w), m in zip(snapshots, means, strict=True)])
    sds = np.maximum(sds, 0.05 * sds.max(axis=0))
    varies = sds.max(axis=0) > 0
    means, sds = means[:, varies], sds[:, varies]
    narrow = np.minimum(sds[1:], sds[:-1])
    moved = np.abs(np.diff(means, axis=0)) / narrow + np.abs(np.diff(np.log(sds), axis=0))
    rate = float(np.max(moved.max(axis=1, initial=0.0) / gaps))
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
            hint="dt='auto', or about a tenth of the time in which the cloud moves by its own width",
        )
    return value
