"""The command: `python -m experiments.cells --help`."""

import argparse
import sys
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from experiments import cells
from experiments.arguments import positive
from experiments.cells.data import DATA
from experiments.cells.methods import METHODS, starts_of
from experiments.cells.report import report
from experiments.records import Record, read_or_refuse, write
from itofit import FitWarning, InputError, Snapshots
from itofit.cli.main import load_run
from itofit.face import MODEL_FILE, Face
from itofit.metrics.floor import split_half_floor
from itofit.metrics.transport import W1
from itofit.snapshots.clouds import Snapshot

FIELDS = ("dataset", "time", "method", "seed", "start", "W1", "half", "floor", "floor_sd", "seconds", "outcome")


class Cell(NamedTuple):
    """One fit: a data set without one of its times, a method and a seed."""

    dataset: str
    time: float
    method: str
    seed: int


def cells_of(args: argparse.Namespace) -> Iterator[tuple[Cell, Snapshots]]:
    """Every fit that is asked for, with the whole data set."""
    for name in args.dataset:
        snapshots = DATA[name].read(args.data)
        times = snapshots.times[1:] if args.last else snapshots.times[1:-1]
        for t in times if args.time is None else [t for t in times if np.isclose(t, args.time).any()]:
            for method in args.method:
                yield from ((Cell(name, float(t), method, seed), snapshots) for seed in range(args.seeds))


def scored(cell: Cell, snapshots: Snapshots, args: argparse.Namespace) -> list[Record]:
    """Fit one cell and score it, with every start that its method and the time allow."""
    between = cell.time < snapshots.times[-1]
    if cell.method == "midpoint" and not between:
        return [_record(cell, "-", None, None, None, 0.0, None)]
    model = fitted(cell, snapshots, args)
    if args.fit_only:
        return []
    return [_score(cell, start, model, snapshots.at(cell.time)) for start in starts_of(cell.method, between)]


def fitted(cell: Cell, snapshots: Snapshots, args: argparse.Namespace) -> Face:
    """The fit of a cell: the one that is kept, or a fresh one."""
    folder = None if args.runs is None else args.runs / "-".join(f"{part}" for part in cell)
    if folder is not None and (folder / MODEL_FILE).exists():
        return load_run(folder)
    model = METHODS[cell.method](DATA[cell.dataset].dt, cell.seed, args.device)
    with warnings.catch_warnings(action="ignore", category=FitWarning):
        model.fit(snapshots.select([i for i, t in enumerate(snapshots.times) if t != cell.time]))
    if folder is not None:
        model.save(folder)
    return model


def _score(cell: Cell, start: str, model: Face, test: Snapshot) -> Record:
    seconds = model.seconds_
    try:
        found = model.forecast([cell.time], start="previous" if start == "-" else start)
    except InputError as fault:  # a process that runs to infinity has no score
        return _record(cell, start, None, None, None, seconds, f"{model.outcome_.name}: {fault}")
    cloud = Snapshot(cell.time, found.clouds[0], found.weights[0])
    floor = split_half_floor(W1, test, cloud)
    full = W1(cloud.points, test.points, cloud.weights, test.weights)
    return _record(cell, start, full, floor.mean + floor.excess, floor, seconds, model.outcome_.name)


def _record(cell: Cell, start: str, full, half, floor, seconds: float, outcome: str | None) -> Record:
    return {
        **cell._asdict(),
        "start": start,
        "W1": full,
        "half": half,
        "floor": None if floor is None else floor.mean,
        "floor_sd": None if floor is None else floor.sd,
        "seconds": seconds,
        "outcome": outcome,
    }


def run(args: argparse.Namespace, records: list[Record]) -> list[Record]:
    """Make the cells that `records` lack, writing them as they come."""
    done = {Cell(*(r[field] for field in Cell._fields)) for r in records}
    for cell, snapshots in cells_of(args):
        if cell in done:
            continue
        fresh = scored(cell, snapshots, args)
        if args.fit_only:
            continue
        records = [*records, *fresh]
        shown = ", ".join(f"{r['start']} {r['half']:.3f}" if r["half"] is not None else "none" for r in fresh)
        name = f"{cell.dataset} t={cell.time:.3g} {cell.method} seed {cell.seed}"
        print(f"{name}: {shown}, {fresh[0]['seconds']:.0f} s", file=sys.stderr, flush=True)
        if args.json is not None:
            write(args.json, records)
    return records


def main(argv: Sequence[str] | None = None) -> int:
    """Run what is asked and print the table."""
    parser = argparse.ArgumentParser(
        prog="python -m experiments.cells",
        description=cells.__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--data", type=Path, help="the folder of data sets")
    parser.add_argument("--dataset", nargs="+", choices=list(DATA), default=list(DATA))
    parser.add_argument("--method", nargs="+", choices=list(METHODS), default=list(METHODS))
    parser.add_argument("--time", nargs="+", type=float, help="leave out these times only")
    parser.add_argument("--last", action="store_true", help="leave out the last time as well: an extrapolation")
    parser.add_argument("--seeds", type=positive, default=1)
    parser.add_argument("--device", choices=("auto", "cpu", "gpu"), default="auto")
    parser.add_argument("--runs", type=Path, help="keep fits in this folder; those in it are not made again")
    parser.add_argument("--fit-only", action="store_true", help="fill --runs and score nothing")
    parser.add_argument("--json", type=Path, help="the file of records, continued where it exists")
    parser.add_argument("--print", nargs="+", type=Path, metavar="JSON", help="only print the tables of finished files")
    args = parser.parse_args(argv)
    if args.print is not None:
        print(report([record for path in args.print for record in read_or_refuse(parser, path, FIELDS)]))
        return 0
    if args.data is None:
        parser.error("give --data, the folder of data sets, or --print")
    if args.fit_only and args.runs is None:
        parser.error("--fit-only makes fits to score later: give --runs, the folder to keep them in")
    if args.json is not None and not args.json.parent.is_dir():
        parser.error(f"no folder {args.json.parent} to write {args.json.name} into")
    try:
        records = run(
            args, read_or_refuse(parser, args.json, FIELDS) if args.json is not None and args.json.exists() else []
        )
    except InputError as fault:
        parser.error(str(fault))
    if records:
        print(report(records))
    return 0


if __name__ == "__main__":
    sys.exit(main())
