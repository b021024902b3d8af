"""One metric of all methods side by side, as a Markdown table: a row for each cell, a column for each method."""

from collections.abc import Sequence

import numpy as np

from experiments.records import Record
from experiments.table1.records import PRINTED, printed_values
from experiments.table1.report import reaches_floor, standard_error
from itofit import Legend, PotentialRNN

REMARKS = {"potential-rnn": f"the paper's NN; {PotentialRNN.remark}", "legend": Legend.remark}

Cell = tuple[str, int, str, int]


def summary(records: Sequence[Record], metric: str, against: str | None = None) -> str:
    """Means over seeds, with a star where the floor is reached; or differences to the method `against` by seed."""
    records = [r for r in records if r["metric"] == metric]
    cells = sorted({_cell(r) for r in records})
    columns = list(dict.fromkeys(_column(r) for r in records))
    if against is not None:
        columns = [name for name in columns if name != against]
    head = ["system", "D", "step", *(f"paper: {name}" for name in PRINTED), "floor", *columns]
    lines = [head, ["---"] * len(head)]
    for cell in cells:
        here = [r for r in records if _cell(r) == cell]
        of = {name: [r for r in here if _column(r) == name] for name in columns}
        rival = None if against is None else {r["seed"]: r["value"] for r in here if _column(r) == against}
        entries = [_mean(some) if rival is None else _difference(some, rival) for some in of.values()]
        lines.append([*_place(here[0]), _floor(here), *entries])
    said = ["", *(f"{name}: {text}" for name, text in REMARKS.items() if name in columns)]
    return "\n".join(["| " + " | ".join(line) + " |" for line in lines] + (said if len(said) > 1 else []))


def _place(record: Record) -> list[str]:
    reading = " (A)" if record["reading"] == "A" else ""
    printed = printed_values(record["system"], record["dim"], record["step"])
    shown = [""] * len(PRINTED) if printed is None else [f"{value:.2f}" for value in printed]
    return [record["system"] + reading, str(record["dim"]), f"x{record['step']}", *shown]


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
    found = [a - b for a, b in pairs if a is not None and b is not None]
    if not found:
        return ""
    return f"{np.mean(found):+.3f}" + (f" ± {standard_error(found):.3f}" if len(found) > 1 else "")


def _cell(record: Record) -> Cell:
    return record["system"], record["dim"], record["reading"], record["step"]


def _column(record: Record) -> str:
    return record["method"] + (f"/{record['preset']}" if record["preset"] != "default" else "")
