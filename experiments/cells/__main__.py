"""The command: `python -m experiments.cells --help`."""

import argparse
import sys
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np

from experiments import cells
from experiments.arguments import (
    DEVICES,
    add_fit_only,
    add_places,
    add_print,
    check_fit_only,
    check_places,
    opened_grid,
    positive,
    printed_records,
)
from experiments.cells.data import DATA
from experiments.cells.methods import METHODS, starts_of
from experiments.cells.report import report
from experiments.grid import Fit, Grid, Record, say
from itofit import InputError, Snapshots
from itofit.face import Face
from itofit.metrics.distances import W1
from itofit.metrics.floor import split_half_floor
from itofit.snapshots.clouds import Snapshot


class Cell(NamedTuple):
    """One fit: a data set without one of its times, a method and a seed."""

    dataset: str
    time: float
    method: str
    seed: int

    def __str__(self) -> str:
        return f"{self.dataset} t={self.time:.3g} {self.method} seed {self.seed}"


class Score(NamedTuple):
    """Distances of one forecast; None where there is no forecast."""

    W1: float | None = None
    half: float | None = None
    floor: float | None = None
    floor_sd: float | None = None


KEY = (*Cell._fields, "start")
FIELDS = (*KEY, *Score._fields, "seconds", "outcome")


def cells_of(dataset: str, snapshots: Snapshots, args: argparse.Namespace) -> Iterator[Cell]:
    """Every fit of a data set that is asked for."""
    times = snapshots.times[1:] if args.last else snapshots.times[1:-1]
    if args.time is not None:
        times = [t for t in times if np.isclose(t, args.time).any()]
    for time in times:
        for method in args.method:
            for seed in range(args.seeds):
                yield Cell(dataset, float(time), method, seed)


def run(args: argparse.Namespace, grid: Grid) -> None:
    """Make the cells that the grid lacks."""
    for dataset in args.dataset:
        snapshots = DATA[dataset].read(args.data)
        for cell in cells_of(dataset, snapshots, args):
            if grid.matching(cell._asdict()):
                continue
            records = computed(grid, cell, snapshots, args)
            if records and not args.fit_only:
                say(cell, _shown(records))
                grid.add(records)


def computed(
    grid: Grid, cell: Cell, snapshots: Snapshots, args: argparse.Namespace
) -> list[Record]:
    """The records of a cell, one a start; none where it is not fitted, or not to be scored."""
    has_later = cell.time < snapshots.times[-1]
    if cell.method == "midpoint" and not has_later:
        return [_record(cell, "-", Score(), 0.0, None)]
    fits = grid.fits([cell], partial(make, snapshots=snapshots, device=args.device))
    if cell not in fits or args.fit_only:
        return []
    test = snapshots.at(cell.time)
    starts = starts_of(cell.method, has_later)
    return [scored(cell, start, fits[cell].model, test) for start in starts]


def make(wanted: Sequence[Cell], snapshots: Snapshots, device: str) -> list[Fit]:
    """Fit a cell to all times but its own."""
    (cell,) = wanted
    model = METHODS[cell.method](DATA[cell.dataset].dt, cell.seed, device)
    others = [i for i, time in enumerate(snapshots.times) if time != cell.time]
    return [Fit(model.fit(snapshots.select(others)), {})]


def scored(cell: Cell, start: str, model: Face, test: Snapshot) -> Record:
    """The distances of the forecast that begins at `start`."""
    outcome = model.outcome_.name
    try:
        forecast = model.forecast([cell.time], start="previous" if start == "-" else start)
    except InputError as fault:  # a process that runs to infinity has no score
        return _record(cell, start, Score(), model.seconds_, f"{outcome}: {fault}")
    cloud = Snapshot(cell.time, forecast.clouds[0], forecast.weights[0])
    floor = split_half_floor(W1, test, cloud)
    score = Score(
        W1=W1(cloud.points, test.points, cloud.weights, test.weights),
        half=floor.mean + floor.excess,
        floor=floor.mean,
        floor_sd=floor.sd,
    )
    return _record(cell, start, score, model.seconds_, outcome)


def _record(cell: Cell, start: str, score: Score, seconds: float, outcome: str | None) -> Record:
    return {
        **cell._asdict(),
        "start": start,
        **score._asdict(),
        "seconds": seconds,
        "outcome": outcome,
    }


def _shown(records: list[Record]) -> str:
    halves = ", ".join(
        "none" if record["half"] is None else f"{record['start']} {record['half']:.3f}"
        for record in records
    )
    return f"{halves}, {records[0]['seconds']:.0f} s"


def main(argv: Sequence[str] | None = None) -> int:
    """Run what is asked and print the table; 1 where a fit could not be made."""
    parser = _parser()
    args = parser.parse_args(argv)
    if args.print is not None:
        print(report(printed_records(parser, args.print, FIELDS)))
        return 0
    if args.data is None:
        parser.error("give --data, the folder of data sets, or --print")
    check_fit_only(parser, args)
    check_places(parser, args.json, [args.runs])
    grid = opened_grid(parser, args, FIELDS, KEY)
    try:
        run(args, grid)
    except InputError as fault:
        parser.error(str(fault))
    if grid.records:
        print(report(grid.records))
    return 1 if grid.n_failed else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m experiments.cells",
        description=cells.__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("--data", type=Path, help="the folder of data sets")
    add("--dataset", nargs="+", choices=list(DATA), default=list(DATA))
    add("--method", nargs="+", choices=list(METHODS), default=list(METHODS))
    add("--time", nargs="+", type=float, help="leave out these times only")
    add("--last", action="store_true", help="leave out the last time as well: an extrapolation")
    add("--seeds", type=positive, default=1)
    add("--device", choices=DEVICES, default="auto")
    add_places(parser)
    add_fit_only(parser)
    add_print(parser)
    return parser


if __name__ == "__main__":
    sys.exit(main())
