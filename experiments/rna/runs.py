"""Fits in run folders `<task>-<times>-<method>-<seed>`, so that one machine can make them and another score them."""

import json
from pathlib import Path
from typing import NamedTuple

import numpy as np

from itofit import InputError, Snapshots
from itofit.cli.main import load_run
from itofit.face import Face

_ABOUT = "rna.json"


class Cell(NamedTuple):
    """What names one fit."""

    task: int
    times: str
    method: str
    seed: int

    def __str__(self) -> str:
        return "-".join(map(str, self))


class Made(NamedTuple):
    """A fitted model, the seconds it took and where, and the budget of iterations that was asked for, if any."""

    model: Face
    seconds: float
    device: str
    budget: int | None


def keep(runs: Path, cell: Cell, made: Made) -> None:
    """Save a fit; what is said about it last, so that a folder cut short does not count as one."""
    folder = runs / str(cell)
    made.model.save(folder, overwrite=True)
    (folder / _ABOUT).write_text(json.dumps(made._asdict() | {"model": None}))


def kept(runs: Path, cell: Cell, budget: int | None, training: Snapshots) -> Made | None:
    """The fit of this name, if it is there; one of another budget or of other data is refused."""
    folder = runs / str(cell)
    if not (folder / _ABOUT).exists():
        return None
    made = Made(**json.loads((folder / _ABOUT).read_text()) | {"model": load_run(folder)})
    if made.budget != budget:
        raise InputError(
            expected=f"the fit in {folder} to have --n-iter {_shown(budget)}",
            found=_shown(made.budget),
            hint="the same --n-iter, or another --runs",
        )
    if not _same(made.model.snapshots_, training):
        raise InputError(
            expected=f"the fit in {folder} to be of this data",
            found="another",
            hint="the same --data, or another --runs",
        )
    return made


def _same(a: Snapshots, b: Snapshots) -> bool:
    """Whether the clouds are equal up to what two machines' arithmetic may differ by; rows are in no order."""
    if a.counts != b.counts or not np.array_equal(a.times, b.times):
        return False
    pairs = zip(a.clouds, b.clouds, strict=True)
    return all(np.allclose(np.sort(x, axis=0), np.sort(y, axis=0), rtol=1e-4, atol=1e-4) for x, y in pairs)


def _shown(budget: int | None) -> str:
    return "left to the method" if budget is None else str(budget)
