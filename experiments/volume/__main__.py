"""The command: `python -m experiments.volume --help`."""

import argparse
import sys
from collections.abc import Iterator, Sequence
from itertools import product
from pathlib import Path
from typing import NamedTuple

from experiments import volume
from experiments.arguments import positive
from experiments.records import Record, read_or_refuse, write
from experiments.volume.data import GROUPS, TEST_BINS, Task, read_log, task_of
from experiments.volume.describe import description
from experiments.volume.forecasts import SCORES, scores
from experiments.volume.methods import DEFAULT, DRAWN, METHODS, Made, made
from experiments.volume.report import report
from itofit import InputError

STOCKS = ("JPM", "TSLA", "GOOG")


class Cell(NamedTuple):
    """One fit: a stock, a group, a method and a seed."""

    stock: str
    group: str
    method: str
    seed: int


ABOUT = ("sigma", "training_W1", "training_floor", "seconds", "outcome")
FIELDS = (*Cell._fields, "forecast", "bin", *SCORES, *ABOUT)


def cells_of(args: argparse.Namespace) -> Iterator[tuple[Task, list[Cell]]]:
    """Every fit that is asked for, by task."""
    panels = {stock: read_log(args.data, stock) for stock in args.stock}
    for stock, group, seed in product(args.stock, args.group, range(args.seeds)):
        methods = [name for name in METHODS if name in args.method]
        yield task_of(stock, group, seed, *panels[stock]), [Cell(stock, group, name, seed) for name in methods]


def records_of(cell: Cell, found: Made, task: Task) -> list[Record]:
    """The scores of one fit, a record a forecast and bin; one without scores where there is no forecast."""
    about = {name: getattr(found, name) for name in ABOUT}
    if not found.forecasts:
        none = dict.fromkeys(SCORES)
        return [{**cell._asdict(), "forecast": "-", "bin": b, **none, **about} for b in TEST_BINS]
    return [
        {**cell._asdict(), "forecast": kind, "bin": b, **values, **about}
        for kind, forecast in found.forecasts.items()
        for b, values in scores(forecast, task).items()
    ]


def run(args: argparse.Namespace, records: list[Record]) -> list[Record]:
    """Make the cells that `records` lack, writing them as they come; and the figures."""
    done = {Cell(*(r[field] for field in Cell._fields)) for r in records}
    for task, cells in cells_of(args):
        drawn = {}
        for cell in cells:
            to_draw = args.figures is not None and cell.seed == 0 and cell.method in DRAWN
            if cell in done and not to_draw:
                continue
            folder = None if args.runs is None else args.runs / "-".join(f"{part}" for part in cell)
            found = made(cell.method, task, args.device, folder)
            drawn[cell.method] = found
            if cell in done:
                continue
            records = [*records, *records_of(cell, found, task)]
            print(f"{' '.join(map(str, cell))}: {found.outcome}, {found.seconds:.0f} s", file=sys.stderr, flush=True)
            if args.json is not None:
                write(args.json, records)
        if args.figures is not None and task.seed == 0:
            _draw(args, task, drawn)
    return records


def _draw(args: argparse.Namespace, task: Task, drawn: dict[str, Made]) -> None:
    from experiments.figures.pictures import Settings, write  # a machine that only fits need not have matplotlib
    from experiments.volume.pictures import picture, shrink

    name = f"volume-{task.stock.lower()}-{task.group.lower()}"
    png, numbers = write(picture(task, drawn), name, Settings(0, args.device), args.figures)
    shrink(png)
    print(png, numbers, sep="\n", file=sys.stderr, flush=True)


def _describe(parser: argparse.ArgumentParser, args: argparse.Namespace) -> int:
    try:
        tasks = [task_of(stock, "A", 0, *read_log(args.data, stock)) for stock in args.stock]
    except InputError as fault:
        parser.error(str(fault))
    print("\n".join(map(description, tasks)))
    return 0


def main(argv: Sequence[str] | None = None) -> int:
    """Run what is asked and print the tables."""
    parser = argparse.ArgumentParser(
        prog="python -m experiments.volume",
        description=volume.__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("--data", type=Path, metavar="DIR", help="the folder of data sets")
    add("--stock", nargs="+", default=list(STOCKS), help="(default: %(default)s)")
    add("--group", nargs="+", choices=list(GROUPS), default=list(GROUPS))
    add("--method", nargs="+", choices=METHODS, default=list(DEFAULT), help="(default: %(default)s)")
    add("--seeds", type=positive, default=1, help="seeds 0, 1, ... of methods and of what group B drops (default 1)")
    add("--device", choices=("auto", "cpu", "gpu"), default="auto")
    add("--runs", type=Path, help="keep fits of ours in this folder; those in it are not made again")
    add("--json", type=Path, help="the file of records, continued where it exists")
    add("--figures", type=Path, help="draw the first seed into this folder; fits that --runs lacks are made for it")
    add("--describe", action="store_true", help="only say what the panels are like")
    add("--print", nargs="+", type=Path, metavar="JSON", help="only print the tables of finished files")
    args = parser.parse_args(argv)
    if args.print is not None:
        print(report([record for path in args.print for record in read_or_refuse(parser, path, FIELDS)]))
        return 0
    if args.data is None:
        parser.error("give --data, the folder of data sets, or --print")
    if args.json is not None and not args.json.parent.is_dir():
        parser.error(f"no folder {args.json.parent} to write {args.json.name} into")
    for folder in (args.figures, args.runs):
        if folder is not None and folder.exists() and not folder.is_dir():
            parser.error(f"{folder} is a file, not a folder")
    if args.describe:
        return _describe(parser, args)
    old = read_or_refuse(parser, args.json, FIELDS) if args.json is not None and args.json.exists() else []
    try:
        records = run(args, old)
    except InputError as fault:
        parser.error(str(fault))
    print(report(records))
    return 0


if __name__ == "__main__":
    sys.exit(main())
