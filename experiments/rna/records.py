"""The file of results: a list of flat records, one a number, replaced as a whole after every cell.

`budget` is the `--n-iter` that was asked for, `n_iter` what the fit took; `seconds` are those of
the fit.
"""

from typing import NamedTuple

from experiments.grid import Fit, Grid, Record
from experiments.rna.methods import starts_of
from experiments.rna.scores import GENES, UNITS, Score


class Cell(NamedTuple):
    """What names one fit."""

    task: int
    times: str
    method: str
    seed: int

    def __str__(self) -> str:
        return f"task {self.task} {self.times} {self.method} seed {self.seed}"


class Counted(NamedTuple):
    """How many points were compared; `n_model` is None where there is no forecast."""

    n_model: int | None
    n_test: int


KEY = ("data", *Cell._fields, "budget", "start", "gene", "unit")
FIELDS = (
    *KEY,
    *("value", "floor", "floor_sd", "excess"),
    *Counted._fields,
    *("outcome", "n_iter", "seconds", "device"),
)


def record(label: str, cell: Cell, start: str, score: Score, fit: Fit, counted: Counted) -> Record:
    """One number and how it was made."""
    return {
        "data": label,
        **cell._asdict(),
        "budget": fit.notes["budget"],
        "start": start,
        **score._asdict(),
        **counted._asdict(),
        "outcome": fit.model.outcome_.name,
        "n_iter": getattr(fit.model, "n_iter_", None),
        "seconds": fit.notes["seconds"],
        "device": fit.notes["device"],
    }


def is_complete(grid: Grid, label: str, cell: Cell, budget: int | None) -> bool:
    """Whether every number of the cell is there."""
    records = grid.matching({"data": label, **cell._asdict(), "budget": budget})
    there = {(r["start"], r["gene"], r["unit"]) for r in records}
    return all(
        (start, gene, unit) in there
        for start in starts_of(cell.method)
        for gene in GENES
        for unit in UNITS
    )
