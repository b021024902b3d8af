"""The printed tables, in Markdown: one for each task, clock and unit, a row for each method, means
over seeds.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from experiments.grid import Record
from experiments.rna.methods import METHODS, REMARKS
from experiments.rna.paper import PRINTED, REMARK, printed_value
from experiments.rna.scores import GENES, UNITS
from experiments.rna.tasks import TASKS

FOOT = (
    "Distance of all cells; in brackets the excess over the floor, both with half the cells of the "
    "held-out day; a star where it is at most 2 sd of the floor. The data are fixed: seeds vary "
    'the method only. "Bridge" is grown from the training day before and, where there is one '
    "after, held to that as well."
)


class Place(NamedTuple):
    """What one table is of."""

    data: str
    task: int
    times: str
    unit: str


class Row(NamedTuple):
    """What one line of a table is of."""

    method: str
    start: str
    budget: int | None

    def __str__(self) -> str:
        name = self.method if self.start == "initial" else f"{self.method}, {self.start}"
        return name if self.budget is None else f"{name} (n_iter {self.budget})"


def tables(records: Sequence[Record]) -> str:
    """Every table the records can fill."""
    units = list(UNITS)
    places = sorted(
        {_place(r) for r in records},
        key=lambda place: (place.data, place.task, place.times, units.index(place.unit)),
    )
    texts = [table([r for r in records if _place(r) == place]) for place in places]
    methods = {r["method"] for r in records}
    remarks = [f"{name}: {text}" for name, text in REMARKS.items() if name in methods]
    return "\n\n".join([*texts, "\n".join([FOOT, *remarks])])


def table(records: Sequence[Record]) -> str:
    """One task, clock and unit."""
    place = _place(records[0])
    task = TASKS[place.task]
    by_row: dict[Row, list[Record]] = {}
    for r in records:
        by_row.setdefault(Row(r["method"], r["start"], r["budget"]), []).append(r)
    ordered = sorted(by_row, key=lambda row: list(METHODS).index(row.method))
    lines = [
        ["", "seeds", *GENES],
        ["---"] * (len(GENES) + 2),
        _floor(records),
        *(_line(row, by_row[row]) for row in ordered),
        *(_printed(name, task.held_out) for name in PRINTED),
    ]
    title = UNITS[place.unit].title
    head = f"Task {place.task}: {task}, times: {place.times}. {title}; {place.data}."
    return "\n".join([head, "", *("| " + " | ".join(line) + " |" for line in lines)])


def _line(row: Row, records: Sequence[Record]) -> list[str]:
    n_seeds = len({r["seed"] for r in records})
    cells = [_cell([r for r in records if r["gene"] == gene]) for gene in GENES]
    return [str(row), str(n_seeds), *cells]


def _cell(records: Sequence[Record]) -> str:
    """Mean value, mean excess, and a star at the floor."""
    if any(r["value"] is None for r in records):
        return "none"
    value, excess, sd = (
        float(np.mean([r[name] for r in records])) for name in ("value", "excess", "floor_sd")
    )
    star = "*" if excess <= 2.0 * sd else ""
    return f"{_number(value)} ({_number(excess, '+')}){star}"


def _floor(records: Sequence[Record]) -> list[str]:
    """The same for all methods, who meet the same halves."""
    by_gene = {r["gene"]: f"{_number(r['floor'])} ± {_number(r['floor_sd'])}" for r in records}
    return ["floor", "", *(by_gene[gene] for gene in GENES)]


def _printed(method: str, day: int) -> list[str]:
    values = [printed_value(method, gene, day) for gene in GENES]
    shown = ["" if value is None else f"{value:.2f}" for value in values]
    return [f"paper: {method} ({REMARK})", "", *shown]


def _number(value: float, sign: str = "") -> str:
    digits = 3 if abs(value) < 10.0 else 1 if abs(value) < 100.0 else 0
    return f"{value:{sign}.{digits}f}"


def _place(record: Record) -> Place:
    return Place(record["data"], record["task"], record["times"], record["unit"])
