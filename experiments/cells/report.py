"""The tables: W1 at half size by method and time left out, and where ours are the best or as good."""

import numpy as np

from experiments.cells.data import DATA
from experiments.cells.methods import METHODS, OURS
from experiments.records import Record

# As good as the best: within so many sds of the floor.
_NEAR = 2.0


def report(records: list[Record]) -> str:
    """One Markdown table a data set and the verdict under it."""
    names = [name for name in DATA if any(r["dataset"] == name for r in records)]
    return "\n\n".join(_table(name, [r for r in records if r["dataset"] == name]) for name in names)


def rows(records: list[Record]) -> dict[tuple[str, str], dict[float, float | None]]:
    """By (method, start) and time, the mean W1 at half size over seeds; None where a forecast failed."""
    found: dict[tuple[str, str], dict[float, float | None]] = {}
    keys = sorted({(r["method"], r["start"]) for r in records}, key=lambda key: (list(METHODS).index(key[0]), key[1]))
    for method, start in keys:
        some = [r for r in records if (r["method"], r["start"]) == (method, start)]
        of_time = {t: [r["half"] for r in some if r["time"] == t] for t in sorted({r["time"] for r in some})}
        found[method, start] = {t: None if None in v else float(np.mean(v)) for t, v in of_time.items()}
    return found


def floors(records: list[Record]) -> dict[float, tuple[float, float]]:
    """Floor and its sd by time: the same for all methods, who are held against the same halves."""
    return {r["time"]: (r["floor"], r["floor_sd"]) for r in records if r["floor"] is not None}


def as_good(records: list[Record], names: tuple[str, ...] = OURS) -> dict[tuple[str, str], list[float]]:
    """The times at which a row of ours is better than all that is not ours, or within two sds of the floor of it."""
    table, floor = rows(records), floors(records)
    others = [row for key, row in table.items() if key[0] not in names]
    best = {t: min((v for row in others if (v := row.get(t)) is not None), default=np.inf) for t in floor}
    return {
        key: [t for t, v in row.items() if v is not None and v <= best[t] + _NEAR * floor[t][1]]
        for key, row in table.items()
        if key[0] in names
    }


def _table(name: str, records: list[Record]) -> str:
    floor, table = floors(records), rows(records)
    times = sorted(floor)
    lines = [f"{name}: W1 at half size" + (f" ({DATA[name].remark})" if DATA[name].remark else "")]
    lines += [
        "| left out | " + " | ".join(f"{t:.3g}" for t in times) + " | seconds |",
        "| --- " * (len(times) + 2) + "|",
    ]
    lines.append("| floor | " + " | ".join(f"{floor[t][0]:.3f} ± {floor[t][1]:.3f}" for t in times) + " | |")
    for (method, start), row in table.items():
        label = method if start == "-" else f"{method}, {start}"
        seconds = [r["seconds"] for r in records if (r["method"], r["start"]) == (method, start)]
        shown = " | ".join(_shown(row.get(t, None)) for t in times)
        lines.append(f"| {label} | {shown} | {np.mean(seconds):.0f} |")
    for (method, start), good in as_good(records).items():
        inside = [t for t in times if t in table[method, start]]
        said = "better than all that is not ours, or within 2 sd of the floor of it"
        lines.append(f"{method}, {start}: {said}, at {len(good)} of {len(inside)}")
    return "\n".join(lines)


def _shown(value: float | None) -> str:
    return "" if value is None else f"{value:.3f}"
