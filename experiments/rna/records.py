"""The file of results: a list of flat records, one a number, replaced as a whole after every cell.

`budget` is the `--n-iter` that was asked for, `n_iter` what the fit took; `seconds` are those of the fit.
"""

from collections.abc import Iterable

from experiments.records import Record
from experiments.rna.methods import starts_of
from experiments.rna.runs import Cell, Made
from experiments.rna.scores import GENES, UNITS, Score

FIELDS = (
    "data", "task", "times", "method", "seed", "budget", "start", "gene", "unit", "value", "floor", "floor_sd",
    "excess", "n_model", "n_test", "outcome", "n_iter", "seconds", "device",
)  # fmt: skip


def record(label: str, cell: Cell, start: str, score: Score, made: Made, sizes: tuple[int | None, int]) -> Record:
    """One number and how it was made."""
    model, about = made.model, {"data": label, **cell._asdict(), "budget": made.budget, "start": start}
    how = {"n_model": sizes[0], "n_test": sizes[1], "outcome": model.outcome_.name}
    how |= {"n_iter": getattr(model, "n_iter_", None), "seconds": made.seconds, "device": made.device}
    return about | score._asdict() | how


def is_complete(records: Iterable[Record], label: str, cell: Cell, budget: int | None) -> bool:
    """Whether every number of the cell is there."""
    wanted = {(start, gene, unit) for start in starts_of(cell.method) for gene in GENES for unit in UNITS}
    name = (label, *cell, budget)
    return wanted <= {(r["start"], r["gene"], r["unit"]) for r in records if name_of(r)[:6] == name}


def name_of(r: Record) -> tuple:
    """Six fields that name the fit, three that name the number."""
    return tuple(r[field] for field in FIELDS[:9])
