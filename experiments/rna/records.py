"""The file of results: a list of flat records, one a number, replaced as a whole after every cell.

`budget` is the `--n-iter` that was asked for, `n_iter` what the fit took; `seconds` are those of the fit.
"""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from experiments.rna.methods import starts_of
from experiments.rna.runs import Cell, Made
from experiments.rna.scores import GENES, UNITS, Score

FIELDS = (
    "data", "task", "times", "method", "seed", "budget", "start", "gene", "unit", "value", "floor", "floor_sd",
    "excess", "n_model", "n_test", "outcome", "n_iter", "seconds", "device",
)  # fmt: skip

Record = dict[str, Any]


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
    return wanted <= {(r["start"], r["gene"], r["unit"]) for r in records if _name(r)[:6] == name}


def merged(records: list[Record], fresh: list[Record]) -> list[Record]:
    """The old records without those that `fresh` repeats, and the fresh ones."""
    repeated = {_name(r) for r in fresh}
    return [r for r in records if _name(r) not in repeated] + fresh


def read_records(path: Path) -> list[Record]:
    """The records of a file; a ValueError says what is wrong with it."""
    try:
        records = json.loads(path.read_text())
    except json.JSONDecodeError as fault:
        raise ValueError(f"{path} is not JSON: {fault}") from None
    if not isinstance(records, list) or not all(isinstance(r, dict) and set(r) == set(FIELDS) for r in records):
        raise ValueError(f"{path} is not a list of records with the fields {', '.join(FIELDS)}")
    return records


def _name(r: Record) -> tuple:
    """Six fields that name the fit, three that name the number."""
    return tuple(r[field] for field in FIELDS[:9])
