"""The printed table: one row a system, dimension, step and method, over seeds.

A cell reaches the floor when its mean excess over seeds is at most 2 standard errors + 3 % of the
floor, and the standard error is not above it. Where a method gives no forecast (midpoint beyond the
last snapshot, a process that ran to infinity) the row says so, and ratios are taken over the seeds
that both methods have.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from experiments.grid import Record

_HEADER = [
    *("system", "D", "step", "method", "seeds"),
    *("coord. W1", "floor", "excess", "verdict"),
    *("population (range)", "floor", "/oracle", "/moments", "persist./"),
    *("paper", "seconds"),
]
_LEGEND = (
    "/oracle, /moments: population over theirs; persist./: persistence's population over this "
    "one; seconds: fit only, of several seeds in one run where x3 follows; (A): t0 is the first "
    "snapshot after 0; paper: what it prints for its version of the method; potential-rnn: its NN; "
    "legend: a re-implementation from the published description"
)


class Place(NamedTuple):
    """What the methods of a few rows are compared on."""

    system: str
    dim: int
    reading: str
    step: int


class Key(NamedTuple):
    """What one row is of."""

    place: Place
    method: str
    preset: str

    @property
    def name(self) -> str:
        """What the row is called."""
        preset = "" if self.preset == "default" else f"/{self.preset}"
        return self.method + preset + (" (A)" if self.place.reading == "A" else "")


def _key(record: Record) -> Key:
    place = Place(*(record[field] for field in Place._fields))
    return Key(place, record["method"], record["preset"])


def table(records: Sequence[Record]) -> str:
    """The table as text."""
    cells: dict[Key, list[Record]] = {}
    for record in records:
        cells.setdefault(_key(record), []).append(record)
    # By place only: methods stay in the order in which they were run.
    keys = sorted(cells, key=lambda key: key.place)
    devices = ", ".join(sorted({r["device"] for r in records}))
    rows = [_HEADER, *(_row(key, cells) for key in keys)]
    widths = [max(len(row[i]) for row in rows) for i in range(len(_HEADER))]
    lines = [
        "  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    ]
    return "\n".join([*lines, _LEGEND, f"device: {devices}"])


def reaches_floor(excesses: Sequence[float], floor: float, spread: float = 0.0) -> bool:
    """Whether the mean excess over seeds is at most 2 standard errors + 3 % of the floor.

    A standard error above the floor, and above the `spread` of one draw of the truth, is evidence
    of seeds that disagree and of nothing else: then it is not reached.
    """
    error = standard_error(excesses)
    return error <= max(floor, spread) and float(np.mean(excesses)) <= 2.0 * error + 0.03 * floor


def standard_error(values: Sequence[float]) -> float:
    """Of the mean; NaN for one value."""
    return float(np.std(values, ddof=1)) / math.sqrt(len(values)) if len(values) > 1 else math.nan


def _row(key: Key, cells: dict[Key, list[Record]]) -> list[str]:
    records = cells[key]
    paper = records[0]["paper"]
    return [
        key.place.system,
        str(key.place.dim),
        f"x{key.place.step}",
        key.name,
        str(len({r["seed"] for r in records})),
        *_distance_columns([r for r in records if r["metric"] == "coordinate_W1"]),
        *_population_columns(key, cells),
        "-" if paper is None else f"{paper:.2f}",
        _seconds(records),
    ]


def _seconds(records: list[Record]) -> str:
    together = max(r["together"] for r in records)
    mean = np.mean([r["seconds"] for r in records])
    return f"{mean:.1f} x{together}" if together > 1 else f"{mean:.1f}"


def _distance_columns(records: list[Record]) -> list[str]:
    """Score, floor, excess and verdict of coordinate W1."""
    floor = _mean([r["floor"] for r in records])
    defined = [r for r in records if r["value"] is not None]
    if floor is None or not defined:
        return ["-", _number(floor), "-", "no forecast" if records else "-"]
    excesses = [r["excess"] for r in defined]
    error = f" +- {standard_error(excesses):.4f}" if len(excesses) > 1 else ""
    return [
        _number(_mean([r["value"] for r in defined])),
        _number(floor),
        f"{np.mean(excesses):+.4f}{error}",
        _verdict(records, excesses, floor),
    ]


def _population_columns(key: Key, cells: dict[Key, list[Record]]) -> list[str]:
    """Population error and its floor, and its ratios to that of other methods."""
    records = [r for r in cells[key] if r["metric"] == "population"]
    population = _population(records)
    return [
        _range(records),
        _number(_mean([r["floor"] for r in records])),
        _ratio(population, _rival(cells, key, "oracle")),
        _ratio(population, _rival(cells, key, "moments")),
        _ratio(_rival(cells, key, "persistence"), population),
    ]


def _verdict(records: list[Record], excesses: list[float], floor: float) -> str:
    if len(excesses) < len(records):
        return f"no forecast on {len(records) - len(excesses)} of {len(records)} seeds"
    if len(excesses) < 2:
        return "one seed"
    reached = reaches_floor(excesses, floor, records[0]["floor_sd"])
    return "reaches the floor" if reached else "above the floor"


def _range(records: list[Record]) -> str:
    """Mean, smallest and largest value over seeds."""
    values = [r["value"] for r in records if r["value"] is not None]
    if not values:
        return "-"
    part = f" on {len(values)} of {len(records)} seeds" if len(values) < len(records) else ""
    return f"{np.mean(values):.4f} ({min(values):.4f}-{max(values):.4f}){part}"


def _population(records: list[Record]) -> dict[int, float]:
    """Population by seed, where there is one."""
    return {
        r["seed"]: r["value"]
        for r in records
        if r["metric"] == "population" and r["value"] is not None
    }


def _rival(cells: dict[Key, list[Record]], key: Key, method: str) -> dict[int, float]:
    """Population of another method in the same place; with the same preset where it was run with
    several.
    """
    rivals = [other for other in cells if other.place == key.place and other.method == method]
    if not rivals:
        return {}
    return _population(cells[min(rivals, key=lambda other: other.preset != key.preset)])


def _mean(values: list[float]) -> float | None:
    return float(np.mean(values)) if values else None


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.4f}"


def _ratio(above: dict[int, float], below: dict[int, float]) -> str:
    seeds = above.keys() & below.keys()
    if not seeds:
        return "-"
    ratio = sum(above[seed] for seed in seeds) / sum(below[seed] for seed in seeds)
    return f"{ratio:.2f}"
