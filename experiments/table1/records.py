"""The file of results: a list of flat records, replaced as a whole after every fit.

`seconds` are those of the whole run, which `together` fits shared; `n_iter` is how many iterations
it took, if any.
"""

from collections.abc import Iterable
from typing import NamedTuple

from experiments.grid import Grid


class Cell(NamedTuple):
    """What names one fit."""

    system: str
    dim: int
    method: str
    preset: str
    reading: str
    seed: int

    def __str__(self) -> str:
        fit = f"{self.method}/{self.preset} reading {self.reading} seed {self.seed}"
        return f"{self.system} D={self.dim} {fit}"


KEY = (*Cell._fields, "step", "metric")
FIELDS = (
    *("system", "dim", "step", "time", "method", "preset", "reading", "seed", "metric"),
    *("value", "floor", "floor_sd", "excess", "paper", "seconds", "together", "n_iter", "device"),
)

# Table 1 of the paper, by system and step: NN, LEGEND and the paper's own, each at D = 2, 6, 10.
_PAPER = {
    ("syn1", 50): ((1.37, 4.79, 9.13), (0.44, 2.32, 2.89), (0.05, 0.06, 0.10)),
    ("syn1", 500): ((0.84, 3.28, 8.05), (0.18, 0.30, 1.79), (0.03, 0.03, 0.09)),
    ("syn2", 50): ((4.72, 6.47, 12.58), (2.84, 5.33, 7.21), (0.02, 0.14, 0.22)),
    ("syn2", 100): ((3.83, 8.83, 14.11), (2.98, 3.17, 5.65), (0.04, 0.19, 0.32)),
    ("syn3", 30): ((4.13, 6.40, 11.76), (1.29, 3.16, 8.53), (0.08, 0.17, 0.25)),
    ("syn3", 50): ((3.05, 6.72, 9.81), (0.87, 1.52, 3.55), (0.12, 0.16, 0.23)),
}
_PAPER |= {
    ("syn2-printed", step): values for (name, step), values in _PAPER.items() if name == "syn2"
}
DIMS = (2, 6, 10)
PRINTED = ("NN", "LEGEND", "FPP")


def printed_values(system: str, dim: int, step: int) -> tuple[float, ...] | None:
    """What the paper prints for this cell: NN, LEGEND and its own; None where it prints nothing."""
    printed = _PAPER.get((system, step))
    if printed is None or dim not in DIMS:
        return None
    return tuple(column[DIMS.index(dim)] for column in printed)


def paper_value(system: str, dim: int, step: int, method: str = "adversarial") -> float | None:
    """What the paper prints for its version of this method, its own where it is no rival."""
    printed = printed_values(system, dim, step)
    if printed is None:
        return None
    if method.startswith("potential-rnn"):
        return printed[PRINTED.index("NN")]
    if method.startswith("legend"):
        return printed[PRINTED.index("LEGEND")]
    return printed[PRINTED.index("FPP")]


def is_complete(grid: Grid, cell: Cell, steps: Iterable[int], metrics: Iterable[str]) -> bool:
    """Whether every number of the fit that is asked for is there."""
    there = {(r["step"], r["metric"]) for r in grid.matching(cell._asdict())}
    names = list(metrics)
    return all((step, metric) in there for step in steps for metric in names)
