"""Leave one time out: fit without it, forecast it, and score the forecast beside its floor.

Whatever is fitted, scaling, principal components, process, sees the other times only.
"""

from dataclasses import dataclass, replace
from typing import Any, Unpack

import numpy as np
from sklearn.base import clone

from itofit.errors import InputError
from itofit.estimator import FokkerPlanckProcess
from itofit.face import Face
from itofit.forecast import BRIDGE
from itofit.metrics.scorecard import Scorecard
from itofit.snapshots.anndata_file import cell_times, cells_like, is_anndata, label_time
from itofit.snapshots.cells import CellKeywords, CellSelection
from itofit.snapshots.clouds import Snapshots, time_tolerance


@dataclass(frozen=True, eq=False)
class LeftOut:
    """A fit without one time.

    `time` is the one left out, `model` the fit, `held_out` the cells it did not meet, `forecast`
    what it says of them and `scorecard` how good that is.

    `kind` says whether snapshots lie on both sides of the time (`interpolation`) or on one
    (`extrapolation`).
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
    model: Face | None = None,
    start: str = BRIDGE,
    **cells: Unpack[CellKeywords],
) -> LeftOut:
    """Fit a copy of a model to everything but one time, and score its forecast of that time.

    Parameters
    ----------
    data : AnnData or Snapshots
        With the time that is left out, one before it and at least one other.
    day : float or str
        The time to leave out: 2, or a label such as "D2".
    model : estimator, optional
        A `FokkerPlanckProcess` unless one is given.
    start : {"initial", "previous", "bridge", "bridge_ot"}
        As of `forecast`: by default a time between snapshots is held to both its neighbours.
    **cells
        Of an AnnData the words of `CellSelection`; `time_key` is "day" and `rep` "X_pca" unless
        something else is named.

    Returns
    -------
    LeftOut
        The model, its forecast and the scorecard.

    Examples
    --------
    >>> import jax
    >>> from itofit import Midpoint, known_system, leave_out
    >>> snapshots = known_system("ou").observe(60, [0.0, 0.5, 1.0], key=jax.random.key(0))
    >>> leave_out(snapshots, 0.5, model=Midpoint()).kind
    'interpolation'
    """
    fresh: Any = FokkerPlanckProcess(random_state=0) if model is None else clone(model)
    selection = CellSelection.of(cells)
    if isinstance(data, Snapshots):
        i = _position(data.times, label_time(day))
        held_out = data.select([i])
        fresh.fit(data.select([k for k in range(len(data)) if k != i]))
        return _scored(fresh, held_out, start)
    if not is_anndata(data):
        raise InputError(
            expected="an AnnData, or Snapshots",
            found=type(data).__name__,
            hint="Snapshots.from_rows(X, t)",
        )
    selection = _with_usual(selection)
    t = cell_times(data, selection.time_key)
    times = np.unique(t)
    left = times[_position(times, label_time(day))]
    fresh.fit(data[t != left], **selection.named)
    space = fresh.snapshots_.space
    assert space is not None
    return _scored(fresh, cells_like(data[t == left], space), start)


def _with_usual(selection: CellSelection) -> CellSelection:
    """The column and the array that cells usually have, where nothing else was named."""
    nothing_named = (selection.rep, selection.genes, selection.n_pcs) == (None, None, None)
    return replace(
        selection,
        time_key=selection.time_key or "day",
        rep="X_pca" if nothing_named else selection.rep,
    )


def _position(times: np.ndarray, time: float) -> int:
    """Where a time stands, which must be there with one before it and two others."""
    near = np.flatnonzero(np.abs(times - time) <= time_tolerance(times))
    if len(near) == 0 or near[0] == 0 or len(times) < 3:
        raise InputError(
            expected="a time after the first, of three or more",
            found=f"{time:g} of {', '.join(f'{t:g}' for t in times)}",
            hint="a process runs forwards from the first snapshot, and two others are needed to "
            "fit it",
        )
    return int(near[0])


def _scored(model: Face, held_out: Snapshots, start: str) -> LeftOut:
    time = float(held_out.times[0])
    kind = "interpolation" if time < model.snapshots_.times[-1] else "extrapolation"
    forecast = model.forecast([time], start=start)
    card = model.scorecard(held_out, start=start)
    return LeftOut(time, kind, model, held_out, forecast, card)
