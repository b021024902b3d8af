"""The fit of a cell, and whether one that was kept is of these data and this budget."""

import time

import numpy as np

from experiments.grid import Fit, say
from experiments.rna.methods import METHODS, Settings
from experiments.rna.records import Cell
from experiments.rna.tasks import CLOCKS
from itofit import InputError, Snapshots
from itofit.devices import device_named

NOTES_FILE = "rna.json"


def fitted(cell: Cell, training: Snapshots, budget: int | None, device: str) -> Fit:
    """A new fit, with its seconds, its device and its budget noted."""
    began = time.perf_counter()
    settings = Settings(CLOCKS[cell.times].dt, cell.seed, device, budget)
    model = METHODS[cell.method](settings).fit(training)
    seconds = time.perf_counter() - began
    say(cell, f"fit {seconds:.1f} s, {model.outcome_.name}")
    where = device_named(device).device_kind
    return Fit(model, {"seconds": seconds, "device": where, "budget": budget})


def check_kept(cell: Cell, fit: Fit, training: Snapshots, budget: int | None) -> None:
    """Refuse a fit of another budget or of other data."""
    if fit.notes["budget"] != budget:
        raise InputError(
            expected=f"the fit of {cell} to have --n-iter {_shown(budget)}",
            found=_shown(fit.notes["budget"]),
            hint="the same --n-iter, or another --runs",
        )
    if not _alike(fit.model.snapshots_, training):
        raise InputError(
            expected=f"the fit of {cell} to be of this data",
            found="another",
            hint="the same --data, or another --runs",
        )


def _alike(a: Snapshots, b: Snapshots) -> bool:
    """Whether the clouds are equal up to what two machines' arithmetic may differ by; rows are in
    no order.
    """
    if a.counts != b.counts or not np.array_equal(a.times, b.times):
        return False
    return all(
        np.allclose(np.sort(x, axis=0), np.sort(y, axis=0), rtol=1e-4, atol=1e-4)
        for x, y in zip(a.clouds, b.clouds, strict=True)
    )


def _shown(budget: int | None) -> str:
    return "left to the method" if budget is None else str(budget)
