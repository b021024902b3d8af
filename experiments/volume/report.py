"""The tables, in Markdown: one a stock and group, a row a method and forecast, means over bins and
seeds.
"""

from typing import NamedTuple

import numpy as np

from experiments.grid import Record
from experiments.volume.data import TEST_BINS
from experiments.volume.forecasts import SCORES
from experiments.volume.methods import METHODS, REMARKS
from experiments.volume.paper import REMARK, printed

_BINS = ", ".join(map(str, TEST_BINS))
HEAD = (
    "forecast",
    "MAPE",
    f"MAPE at bins {_BINS}",
    "MAPE of logs",
    "sorted MAPE",
    "sorted MAPE of logs",
    "pinball",
    "coverage of 80 %",
    "slope",
    "noise",
    "W1 of training bins (floor)",
    f"paper's MAPE at bins {_BINS} ({REMARK})",
)
FOOT = (
    f"Means over bins {_BINS} of the last 100 days. Pinball loss and coverage: quantiles of log "
    "volume. Slope: by how much the log forecast moves with the log volume of the day's bin 0. W1 "
    "of training bins: in logs, from bin 0 of the training days, at half size; floor: one half of "
    "a bin's days against the other."
)


class Row(NamedTuple):
    """What one line of a table is of."""

    method: str
    forecast: str


def report(records: list[Record]) -> str:
    """Every table the records can fill, and what must be known of their rows."""
    places = dict.fromkeys((r["stock"], r["group"]) for r in records)
    tables = [_table([r for r in records if (r["stock"], r["group"]) == place]) for place in places]
    methods = {r["method"] for r in records}
    remarks = [f"* {name}: {text}" for name, text in REMARKS.items() if name in methods]
    return "\n\n".join([*tables, "\n".join([FOOT, *remarks])])


def rows(records: list[Record]) -> dict[Row, dict[str, float | None]]:
    """By row every score's mean over bins and seeds; None where one is missing."""
    return {
        row: {name: _mean(group, name) for name in SCORES}
        for row, group in _grouped(records).items()
    }


def _grouped(records: list[Record]) -> dict[Row, list[Record]]:
    groups: dict[Row, list[Record]] = {}
    for record in records:
        groups.setdefault(Row(record["method"], record["forecast"]), []).append(record)
    # Stable: the forecasts of a method stay as they came.
    ordered = sorted(groups, key=lambda row: METHODS.index(row.method))
    return {row: groups[row] for row in ordered}


def _table(records: list[Record]) -> str:
    n_seeds = len({r["seed"] for r in records})
    lines = [list(HEAD), ["---"] * len(HEAD)]
    lines += [_line(row, group) for row, group in _grouped(records).items()]
    place = f"{records[0]['stock']}, group {records[0]['group']}"
    head = f"{place}, {n_seeds} seed{'s' if n_seeds > 1 else ''}"
    return "\n".join([head, "", *("| " + " | ".join(line) + " |" for line in lines)])


def _line(row: Row, records: list[Record]) -> list[str]:
    if all(r["mape"] is None for r in records):
        return [f"{row.method}: {records[0]['outcome']}", *[""] * (len(HEAD) - 1)]
    is_process = any(r["sigma"] is not None for r in records)
    at_bins = [_mean([r for r in records if r["bin"] == b], "mape") for b in TEST_BINS]
    mape, *others = (_shown(_mean(records, score)) for score in SCORES)
    paper = printed(records[0]["stock"], row.method)
    return [
        f"{row.method}, {row.forecast}" if is_process else row.method,
        mape,
        ", ".join(_shown(value) for value in at_bins),
        *others,
        *_of_process(records),
        "" if paper is None else ", ".join(f"{paper[b]:.2f}" for b in TEST_BINS),
    ]


def _of_process(records: list[Record]) -> list[str]:
    """The noise, and how well the training bins are met."""
    noise, distance, floor = (
        _shown(_mean(records, name)) for name in ("sigma", "training_W1", "training_floor")
    )
    return [noise, f"{distance} ({floor})"] if noise else ["", ""]


def _mean(records: list[Record], score: str) -> float | None:
    values = [r[score] for r in records]
    return None if None in values else float(np.mean(values))


def _shown(value: float | None) -> str:
    return "" if value is None else f"{round(value, 3) + 0.0:.3f}"  # no -0.000
