"""The printed table: one row a system, dimension, step and method, over seeds.

A cell reaches the floor when its mean excess over seeds is at most 2 standard errors + 3 % of the floor, and the
standard error is not above it. Where a
method gives no forecast (midpoint beyond the last snapshot, a process that ran to infinity) the row says so, and
ratios are taken over the seeds that both methods have.
"""

import math
from collections.abc import Sequence

import numpy as np

from experiments.records import Record

_HEADER = (
    "system", "D", "step", "method", "seeds", "coord. W1", "floor", "excess", "verdict", "population (range)", "floor",
    "/oracle", "/moments", "persist./", "paper", "seconds",
)  # fmt: skip
_LEGEND = (
    "/oracle, /moments: population over theirs; persist./: persistence's population over this one; seconds: fit only, "
    "of several seeds in one run where x3 follows; (A): t0 is the first snapshot after 0; paper: what it prints for "
    "its version of the method; potential-rnn: its NN; legend: a re-implementation from the published description"
)

Key = tuple[str, int, str, int, str, str]


def table(records: Sequence[Record]) -> str:
    """The table as text."""
    cells: dict[Key, list[Record]] = {}
    for r in records:
        key = (r["system"], r["dim"], r["reading"], r["step"], r["method"], r["preset"])
        cells.setdefault(key, []).append(r)
    # By place only: methods stay in the order in which they were run.
    keys = sorted(cells, key=lambda key: key[:4])
    devices = ", ".join(sorted({r["device"] for r in records}))
    rows = [_HEADER, *(_row(key, cells) for key in keys)]
    widths = [max(len(row[i]) for row in rows) for i in range(len(_HEADER))]
    lines = ["  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)).rstrip() for row in rows]
    return "\n".join([*lines, _LEGEND, f"device: {devices}"])


def reaches_floor(excesses: Sequence[float], floor: float, spread: float = 0.0) -> bool:
    """Whether the mean excess over seeds is at most 2 standard errors + 3 % of the floor.

    A standard error above the floor, and above the `spread` of one draw of the truth, is evidence of seeds that
    disagree and of nothing else: then it is not reached.
    """
    error = standard_error(excesses)
    return error <= max(floor, spread) and float(np.mean(excesses)) <= 2.0 * error + 0.03 * floor


def standard_error(values: Sequence[float]) -> float:
    """Of the mean; NaN for one value."""
    return float(np.std(values, ddof=1)) / math.sqrt(len(values)) if len(values) > 1 else math.nan


def _row(key: Key, cells: dict[Key, list[Record]]) -> tuple[str, ...]:
    system, dim, reading, step, method, preset = key
    records = cells[key]
    name = method + (f"/{preset}" if preset != "default" else "") + (" (A)" if reading == "A" else "")
    population = _population(records)
    return (
        system,
        str(dim),
        f"x{step}",
        name,
        str(len({r["seed"] for r in records})),
        *_distance_columns([r for r in records if r["metric"] == "coordinate_W1"]),
        _range([r for r in records if r["metric"] == "population"]),
        _number(_mean([r["floor"] for r in records if r["metric"] == "population"])),
        _ratio(population, _rival(cells, key, "oracle")),
        _ratio(population, _rival(cells, key, "moments")),
        _ratio(_rival(cells, key, "persistence"), population),
        "-" if records[0]["paper"] is None else f"{records[0]['paper']:.2f}",
        _seconds(records),
    )


def _seconds(records: list[Record]) -> str:
    together = max(r["together"] for r in records)
    return f"{np.mean([r['seconds'] for r in records]):.1f}" + (f" x{together}" if together > 1 else "")


def _distance_columns(records: list[Record]) -> tuple[str, str, str, str]:
    """Score, floor, excess and verdict of coordinate W1."""
    floor = _mean([r["floor"] for r in records])
    defined = [r for r in records if r["value"] is not None]
    if floor is None or not defined:
        return "-", _number(floor), "-", "no forecast" if records else "-"
    excesses = [r["excess"] for r in defined]
    excess = f"{np.mean(excesses):+.4f}" + (f" +- {standard_error(excesses):.4f}" if len(excesses) > 1 else "")
    return _number(_mean([r["value"] for r in defined])), _number(floor), excess, _verdict(records, excesses, floor)


def _verdict(records: list[Record], excesses: list[float], floor: float) -> str:
    if len(excesses) < len(records):
        return f"no forecast on {len(records) - len(excesses)} of {len(records)} seeds"
    if len(excesses) < 2:
        return "one seed"
    return "reaches the floor" if reaches_floor(excesses, floor, records[0]["floor_sd"]) else "above the floor"


def _range(records: list[Record]) -> str:
    """Mean, smallest and largest value over seeds."""
    values = [r["value"] for r in records if r["value"] is not None]
    if not values:
        return "-"
    part = f" on {len(values)} of {len(records)} seeds" if len(values) < len(records) else ""
    return f"{np.mean(values):.4f} ({min(values):.4f}-{max(values):.4f}){part}"


def _population(records: list[Record]) -> dict[int, float]:
    """Population by seed, where there is one."""
    return {r["seed"]: r["value"] for r in records if r["metric"] == "population" and r["value"] is not None}


def _rival(cells: dict[Key, list[Record]], key: Key, method: str) -> dict[int, float]:
    """Population of another method in the same place; with the same preset where it was run with several."""
    found = sorted((k for k in cells if k[:4] == key[:4] and k[4] == method), key=lambda k: k[5] != key[5])
    return _population(cells[found[0]]) if found else {}


def _mean(values: list[float]) -> float | None:
    return float(np.mean(values)) if values else None


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.4f}"


def _ratio(above: dict[int, float], below: dict[int, float]) -> str:
    seeds = above.keys() & below.keys()
    return f"{sum(above[s] for s in seeds) / sum(below[s] for s in seeds):.2f}" if seeds else "-"
