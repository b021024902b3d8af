"""The tables, in Markdown: one a stock and group, a row a method and forecast, means over bins and seeds."""

import numpy as np

from experiments.records import Record
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
    f"Means over bins {_BINS} of the last 100 days. Pinball loss and coverage: quantiles of log volume. Slope: by how "
    "much the log forecast moves with the log volume of the day's bin 0. W1 of training bins: in logs, from bin 0 "
    "of the training days, at half size; floor: one half of a bin's days against the other."
)
Row = tuple[str, str]


def report(records: list[Record]) -> str:
    """Every table the records can fill, and what must be known of their rows."""
    places = dict.fromkeys((r["stock"], r["group"]) for r in records)
    found = [_table(*place, [r for r in records if (r["stock"], r["group"]) == place]) for place in places]
    seen = {r["method"] for r in records}
    remarks = [f"* {name}: {text}" for name, text in REMARKS.items() if name in seen]
    return "\n\n".join([*found, "\n".join([FOOT, *remarks])])


def rows(records: list[Record]) -> dict[Row, dict[str, float | None]]:
    """By (method, forecast) every score's mean over bins and seeds; None where one is missing."""
    return {row: {name: _mean(some, name) for name in SCORES} for row, some in _grouped(records).items()}


def _grouped(records: list[Record]) -> dict[Row, list[Record]]:
    keys = dict.fromkeys((r["method"], r["forecast"]) for r in records)
    ordered = sorted(keys, key=lambda row: METHODS.index(row[0]))  # stable: forecasts stay as they came
    return {row: [r for r in records if (r["method"], r["forecast"]) == row] for row in ordered}


def _table(stock: str, group: str, records: list[Record]) -> str:
    n_seeds = len({r["seed"] for r in records})
    lines = [list(HEAD), ["---"] * len(HEAD)]
    lines += [_line(stock, row, some) for row, some in _grouped(records).items()]
    head = f"{stock}, group {group}, {n_seeds} seed{'s' if n_seeds > 1 else ''}"
    return "\n".join([head, "", *("| " + " | ".join(line) + " |" for line in lines)])


def _line(stock: str, row: Row, records: list[Record]) -> list[str]:
    method, forecast = row
    if all(r["mape"] is None for r in records):
        return [f"{method}: {records[0]['outcome']}", *[""] * (len(HEAD) - 1)]
    name = f"{method}, {forecast}" if any(r["sigma"] is not None for r in records) else method
    at_bins = [_mean([r for r in records if r["bin"] == b], "mape") for b in TEST_BINS]
    mape, *others = (_shown(_mean(records, score)) for score in SCORES)
    paper = printed(stock, method)
    said = "" if paper is None else ", ".join(f"{paper[b]:.2f}" for b in TEST_BINS)
    return [name, mape, ", ".join(_shown(value) for value in at_bins), *others, *_of_process(records), said]


def _of_process(records: list[Record]) -> list[str]:
    """The noise, and how well the training bins are met."""
    noise, distance, floor = (_shown(_mean(records, name)) for name in ("sigma", "training_W1", "training_floor"))
    return [noise, f"{distance} ({floor})"] if noise else ["", ""]


def _mean(records: list[Record], score: str) -> float | None:
    values = [r[score] for r in records]
    return None if None in values else float(np.mean(values))


def _shown(value: float | None) -> str:
    return "" if value is None else f"{round(value, 3) + 0.0:.3f}"  # no -0.000
