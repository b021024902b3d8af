"""Leave one time out: fit without it, forecast it, and score the forecast beside its floor.

Whatever is fitted, scaling, principal components, process, sees the other times only.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.base import clone

from itofit.errors import InputError
from itofit.estimator import FokkerPlanckProcess
from itofit.face import Face
from itofit.forecast import BETWEEN
from itofit.metrics.scorecard import Scorecard
from itofit.snapshots.anndata_file import cell_times, cells_like, is_anndata, label_time
from itofit.snapshots.clouds import Snapshots, time_tolerance


@dataclass(frozen=True, eq=False)
class LeftOut:
    """A fit without one time: the `model`, the cells `held_out`, its `forecast` of them and the `scorecard`.

    `kind` says whether snapshots lie on both sides of the time (`interpolation`) or on one (`extrapolation`).
    """

    time: float
    kind: str
    model: Face
    held_out: Snapshots
    forecast: Snapshots
    scorecard: Scorecard

    def __str__(self) -> str:
        return f"{self.time:g} left out ({self.kind})\n{self.scorecard}"


def leave_out(
    data: Any,
    day: float | str,
    *,
    time_key: str = "day",
    rep: str | None = None,
    genes: Any = None,
    layer: str | None = None,
    n_pcs: int | None = None,
    model: Face | None = None,
    start: str = BETWEEN,
) -> LeftOut:
    """Fit a copy of `model` to everything but the time `day` of an AnnData or of `Snapshots`, and score that time.

    `time_key`, `rep`, `genes`, `layer` and `n_pcs` are those of `fit`; without any of the last four `obsm["X_pca"]` is
    taken. `model` is a `FokkerPlanckProcess` unless one is given. `start` is that of `forecast`: by default a time
    between snapshots is held to both its neighbours.
    """
    fresh: Any = FokkerPlanckProcess(random_state=0) if model is None else clone(model)
    if isinstance(data, Snapshots):
        i = _position(data.times, label_time(day))
        held_out = data.select([i])
        fresh.fit(data.select([k for k in range(len(data)) if k != i]))
        return _scored(fresh, held_out, start)
    if not is_anndata(data):
        raise InputError(
            expected="an AnnData, or Snapshots", found=type(data).__name__, hint="Snapshots.from_rows(X, t)"
        )
    t = cell_times(data, time_key)
    times = np.unique(t)
    left = times[_position(times, label_time(day))]
    rep = "X_pca" if (rep, genes, n_pcs) == (None, None, None) else rep
    fresh.fit(data[t != left], time_key=time_key, rep=rep, genes=genes, layer=layer, n_pcs=n_pcs)
    space = fresh.snapshots_.space
    assert space is not None
    return _scored(fresh, cells_like(data[t == left], space), start)


def _position(times: np.ndarray, time: float) -> int:
    """Where a time stands, which must be there with one before it and two others."""
    near = np.flatnonzero(np.abs(times - time) <= time_tolerance(times))
    if len(near) == 0 or near[0] == 0 or len(times) < 3:
        raise InputError(
            expected="a time after the first, of three or more",
            found=f"{time:g} of {', '.join(f'{t:g}' for t in times)}",
            hint="a process runs forwards from the first snapshot, and two others are needed to fit it",
        )
    return int(near[0])


def _scored(model: Face, held_out: Snapshots, start: str) -> LeftOut:
    time = float(held_out.times[0])
    kind = "interpolation" if time < model.snapshots_.times[-1] else "extrapolation"
    forecast, card = model.forecast([time], start=start), model.scorecard(held_out, start=start)
    return LeftOut(time, kind, model, held_out, forecast, card)
