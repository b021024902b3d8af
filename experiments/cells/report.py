"""The tables: W1 at half size by method and time left out, and where ours are among the best."""

from typing import NamedTuple

import numpy as np

from experiments.cells.data import DATA
from experiments.cells.methods import METHODS, OURS
from experiments.grid import Record

# As good as the best: within so many sds of the floor.
_NEAR = 2.0


class Row(NamedTuple):
    """A row of the table."""

    method: str
    start: str

    def __str__(self) -> str:
        return self.method if self.start == "-" else f"{self.method}, {self.start}"


class Floor(NamedTuple):
    """What two halves of the cells score against each other."""

    mean: float
    sd: float


def report(records: list[Record]) -> str:
    """One Markdown table a data set and the verdict under it."""
    names = [name for name in DATA if any(r["dataset"] == name for r in records)]
    return "\n\n".join(_table(name, [r for r in records if r["dataset"] == name]) for name in names)


def rows(records: list[Record]) -> dict[Row, dict[float, float | None]]:
    """By row and time, the mean W1 at half size over seeds; None where a forecast failed."""
    methods = list(METHODS)
    ordered = sorted(
        {_row(r) for r in records}, key=lambda row: (methods.index(row.method), row.start)
    )
    return {row: _means([r for r in records if _row(r) == row]) for row in ordered}


def _row(record: Record) -> Row:
    return Row(record["method"], record["start"])


def _means(records: list[Record]) -> dict[float, float | None]:
    times = sorted({r["time"] for r in records})
    by_time = {t: [r["half"] for r in records if r["time"] == t] for t in times}
    return {t: None if None in values else float(np.mean(values)) for t, values in by_time.items()}


def floors(records: list[Record]) -> dict[float, Floor]:
    """The floor by time: the same for all methods, who are held against the same halves."""
    return {r["time"]: Floor(r["floor"], r["floor_sd"]) for r in records if r["floor"] is not None}


def as_good(records: list[Record], names: tuple[str, ...] = OURS) -> dict[Row, list[float]]:
    """The times at which a row of ours is better than all that is not ours, or within two sds of
    the floor of it.
    """
    table = rows(records)
    others = [values for row, values in table.items() if row.method not in names]
    limit = {}
    for time, floor in floors(records).items():
        best = min((v for row in others if (v := row.get(time)) is not None), default=np.inf)
        limit[time] = best + _NEAR * floor.sd
    return {
        row: [t for t, value in values.items() if value is not None and value <= limit[t]]
        for row, values in table.items()
        if row.method in names
    }


def _table(name: str, records: list[Record]) -> str:
    floor = floors(records)
    table = rows(records)
    times = sorted(floor)
    shown_floors = [f"{floor[t].mean:.3f} ± {floor[t].sd:.3f}" for t in times]
    lines = [
        f"{name}: W1 at half size" + (f" ({DATA[name].remark})" if DATA[name].remark else ""),
        "| left out | " + " | ".join(f"{t:.3g}" for t in times) + " | seconds |",
        "| --- " * (len(times) + 2) + "|",
        "| floor | " + " | ".join(shown_floors) + " | |",
    ]
    for row, values in table.items():
        seconds = np.mean([r["seconds"] for r in records if _row(r) == row])
        shown = " | ".join(_shown(values.get(t)) for t in times)
        lines.append(f"| {row} | {shown} | {seconds:.0f} |")
    for row, good in as_good(records).items():
        n_times = sum(t in table[row] for t in times)
        verdict = "better than all that is not ours, or within 2 sd of the floor of it"
        lines.append(f"{row}: {verdict}, at {len(good)} of {n_times}")
    return "\n".join(lines)


def _shown(value: float | None) -> str:
    return "" if value is None else f"{value:.3f}"
