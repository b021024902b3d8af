"""The printed tables, in Markdown: one for each task, clock and unit, a row for each method, means over seeds."""

from collections.abc import Sequence

import numpy as np

from experiments.records import Record
from experiments.rna.methods import METHODS, REMARKS
from experiments.rna.paper import PRINTED, REMARK, printed_value
from experiments.rna.scores import GENES, UNITS
from experiments.rna.tasks import TASKS

FOOT = (
    "Distance of all cells; in brackets the excess over the floor, both with half the cells of the held-out day; "
    "a star where it is at most 2 sd of the floor. The data are fixed: seeds vary the method only. "
    '"Between" is grown from the training day before and, where there is one after, held to that as well.'
)

Place = tuple[str, int, str, str]
Row = tuple[str, str, int | None]


def tables(records: Sequence[Record]) -> str:
    """Every table the records can fill."""
    order = list(UNITS)
    places = sorted({_place(r) for r in records}, key=lambda place: (*place[:3], order.index(place[3])))
    found = [table([r for r in records if _place(r) == place]) for place in places]
    remarks = [f"{name}: {text}" for name, text in REMARKS.items() if any(r["method"] == name for r in records)]
    return "\n\n".join([*found, "\n".join([FOOT, *remarks])])


def table(records: Sequence[Record]) -> str:
    """One task, clock and unit."""
    data, task, times, unit = _place(records[0])
    day = TASKS[task].held_out
    rows = {row: [r for r in records if _row(r) == row] for row in dict.fromkeys(map(_row, records))}
    lines = [["", "seeds", *GENES], ["---"] * (len(GENES) + 2), _floor(records)]
    lines += [_line(row, rows[row]) for row in sorted(rows, key=lambda row: list(METHODS).index(row[0]))]
    lines += [_printed(name, day) for name in PRINTED]
    head = f"Task {task}: {TASKS[task]}, times: {times}. {UNITS[unit].title}; {data}."
    return "\n".join([head, "", *("| " + " | ".join(line) + " |" for line in lines)])


def _line(row: Row, records: Sequence[Record]) -> list[str]:
    method, start, budget = row
    name = method + (", between" if start == "between" else "")
    name += "" if budget is None else f" (n_iter {budget})"
    cells = [_cell([r for r in records if r["gene"] == gene]) for gene in GENES]
    return [name, str(len({r["seed"] for r in records})), *cells]


def _cell(records: Sequence[Record]) -> str:
    """Mean value, mean excess, and a star at the floor."""
    if any(r["value"] is None for r in records):
        return "none"
    value, excess, sd = (float(np.mean([r[name] for r in records])) for name in ("value", "excess", "floor_sd"))
    return f"{_number(value)} ({_number(excess, '+')}){'*' if excess <= 2.0 * sd else ''}"


def _floor(records: Sequence[Record]) -> list[str]:
    """The same for all methods, who meet the same halves."""
    found = {r["gene"]: f"{_number(r['floor'])} ± {_number(r['floor_sd'])}" for r in records}
    return ["floor", "", *(found[gene] for gene in GENES)]


def _printed(method: str, day: int) -> list[str]:
    values = [printed_value(method, gene, day) for gene in GENES]
    return [f"paper: {method} ({REMARK})", "", *("" if value is None else f"{value:.2f}" for value in values)]


def _number(value: float, sign: str = "") -> str:
    digits = 3 if abs(value) < 10.0 else 1 if abs(value) < 100.0 else 0
    return f"{value:{sign}.{digits}f}"


def _place(record: Record) -> Place:
    return record["data"], record["task"], record["times"], record["unit"]


def _row(record: Record) -> Row:
    return record["method"], record["start"], record["budget"]
