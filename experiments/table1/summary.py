"""One metric of all methods side by side, as a Markdown table: a row for each cell, a column for
each method.
"""

from collections.abc import Sequence

import numpy as np

from experiments.grid import Record
from experiments.table1.records import PRINTED, printed_values
from experiments.table1.report import Place, reaches_floor, standard_error
from itofit import Legend, PotentialRNN

REMARKS = {"potential-rnn": f"the paper's NN; {PotentialRNN.remark}", "legend": Legend.remark}


def summary(records: Sequence[Record], metric: str, against: str | None = None) -> str:
    """Means over seeds, with a star where the floor is reached; or differences to the method
    `against` by seed.
    """
    records = [r for r in records if r["metric"] == metric]
    places = sorted({_place(r) for r in records})
    columns = list(dict.fromkeys(_column(r) for r in records))
    if against is not None:
        columns = [name for name in columns if name != against]
    head = ["system", "D", "step", *(f"paper: {name}" for name in PRINTED), "floor", *columns]
    lines = [head, ["---"] * len(head)]
    for place in places:
        here = [r for r in records if _place(r) == place]
        by_column = {name: [r for r in here if _column(r) == name] for name in columns}
        if against is None:
            entries = [_mean(group) for group in by_column.values()]
        else:
            rival = {r["seed"]: r["value"] for r in here if _column(r) == against}
            entries = [_difference(group, rival) for group in by_column.values()]
        lines.append([*_first_columns(place), _floor(here), *entries])
    remarks = [f"{name}: {text}" for name, text in REMARKS.items() if name in columns]
    rows = ["| " + " | ".join(line) + " |" for line in lines]
    return "\n".join([*rows, "", *remarks] if remarks else rows)


def _first_columns(place: Place) -> list[str]:
    reading = " (A)" if place.reading == "A" else ""
    printed = printed_values(place.system, place.dim, place.step)
    shown = [""] * len(PRINTED) if printed is None else [f"{value:.2f}" for value in printed]
    return [place.system + reading, str(place.dim), f"x{place.step}", *shown]


def _floor(records: Sequence[Record]) -> str:
    """Mean over seeds of the floor, and the sd of one draw of the truth."""
    by_seed = {r["seed"]: r for r in records}.values()
    mean, sd = (np.mean([r[name] for r in by_seed]) for name in ("floor", "floor_sd"))
    return f"{mean:.3f} ± {sd:.3f}"


def _mean(records: Sequence[Record]) -> str:
    if not records:
        return ""
    if any(r["value"] is None for r in records):
        return "none"
    floor, spread = (float(np.mean([r[name] for r in records])) for name in ("floor", "floor_sd"))
    star = "*" if reaches_floor([r["excess"] for r in records], floor, spread) else ""
    return f"{np.mean([r['value'] for r in records]):.3f}{star}"


def _difference(records: Sequence[Record], rival: dict[int, float | None]) -> str:
    pairs = [(r["value"], rival.get(r["seed"])) for r in records]
    differences = [a - b for a, b in pairs if a is not None and b is not None]
    if not differences:
        return ""
    error = f" ± {standard_error(differences):.3f}" if len(differences) > 1 else ""
    return f"{np.mean(differences):+.3f}{error}"


def _place(record: Record) -> Place:
    return Place(*(record[field] for field in Place._fields))


def _column(record: Record) -> str:
    return record["method"] + (f"/{record['preset']}" if record["preset"] != "default" else "")
