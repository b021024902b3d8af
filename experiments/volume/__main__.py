"""The command: `python -m experiments.volume --help`."""

import argparse
import sys
from collections.abc import Iterator, Sequence
from itertools import product
from pathlib import Path
from typing import NamedTuple

from experiments import volume
from experiments.arguments import (
    DEVICES,
    add_places,
    add_print,
    check_places,
    opened_grid,
    positive,
    printed_records,
)
from experiments.grid import Fit, Grid, Record, say
from experiments.volume.data import GROUPS, TEST_BINS, Task, read_panel, task_of
from experiments.volume.describe import description
from experiments.volume.forecasts import SCORES, scores
from experiments.volume.methods import (
    CLASSICAL,
    DEFAULT,
    DRAWN,
    METHODS,
    NO_PAIRS,
    Result,
    classical_result,
    fitted,
    lacks_pairs,
    process_result,
)
from experiments.volume.report import report
from itofit import InputError

STOCKS = ("JPM", "TSLA", "GOOG")


class Cell(NamedTuple):
    """One fit: a stock, a group, a method and a seed."""

    stock: str
    group: str
    method: str
    seed: int

    def __str__(self) -> str:
        return f"{self.stock} {self.group} {self.method} {self.seed}"


KEY = (*Cell._fields, "forecast", "bin")
ABOUT = ("sigma", "training_W1", "training_floor", "seconds", "outcome")
FIELDS = (*KEY, *SCORES, *ABOUT)


def tasks_of(args: argparse.Namespace) -> Iterator[Task]:
    """Every task that is asked for."""
    panels = {stock: read_panel(args.data, stock) for stock in args.stock}
    for stock, group, seed in product(args.stock, args.group, range(args.seeds)):
        yield task_of(stock, group, seed, panels[stock])


def run(args: argparse.Namespace, grid: Grid) -> None:
    """Make the cells that the grid lacks, and the figures."""
    for task in tasks_of(args):
        results = {}
        for method in [name for name in METHODS if name in args.method]:
            cell = Cell(task.stock, task.group, method, task.seed)
            is_done = bool(grid.matching(cell._asdict()))
            to_draw = args.figures is not None and task.seed == 0 and method in DRAWN
            if is_done and not to_draw:
                continue
            result = result_of(grid, cell, task, args.device)
            if result is None:
                continue
            results[method] = result
            if not is_done:
                say(cell, f"{result.outcome}, {result.seconds:.0f} s")
                grid.add(records_of(cell, result, task))
        if args.figures is not None and task.seed == 0:
            _draw(args, task, results)


def result_of(grid: Grid, cell: Cell, task: Task, device: str) -> Result | None:
    """What a method gives for the test days; None where it cannot be fitted."""
    if cell.method in CLASSICAL:
        return classical_result(cell.method, task)
    if lacks_pairs(cell.method, task):
        return Result({}, NO_PAIRS, 0.0)
    fits = grid.fits([cell], lambda cells: [Fit(fitted(cells[0].method, task, device), {})])
    return process_result(fits[cell].model, task) if cell in fits else None


def records_of(cell: Cell, result: Result, task: Task) -> list[Record]:
    """The scores of one fit, a record a forecast and bin; one without scores where there is no
    forecast.
    """
    about = {name: getattr(result, name) for name in ABOUT}
    if not result.forecasts:
        none = dict.fromkeys(SCORES)
        return [{**cell._asdict(), "forecast": "-", "bin": b, **none, **about} for b in TEST_BINS]
    return [
        {**cell._asdict(), "forecast": kind, "bin": b, **values, **about}
        for kind, forecast in result.forecasts.items()
        for b, values in scores(forecast, task).items()
    ]


def _draw(args: argparse.Namespace, task: Task, results: dict[str, Result]) -> None:
    # A machine that only fits need not have matplotlib.
    from experiments.figures.pictures import Settings, write
    from experiments.volume.pictures import picture, shrink

    name = f"volume-{task.stock.lower()}-{task.group.lower()}"
    png, numbers = write(picture(task, results), name, Settings(0, args.device), args.figures)
    shrink(png)
    print(png, numbers, sep="\n", file=sys.stderr, flush=True)


def _describe(args: argparse.Namespace) -> None:
    for stock in args.stock:
        print(description(task_of(stock, "A", 0, read_panel(args.data, stock))))


def main(argv: Sequence[str] | None = None) -> int:
    """Run what is asked and print the tables; 1 where a fit could not be made."""
    parser = _parser()
    args = parser.parse_args(argv)
    if args.print is not None:
        print(report(printed_records(parser, args.print, FIELDS)))
        return 0
    if args.data is None:
        parser.error("give --data, the folder of data sets, or --print")
    check_places(parser, args.json, [args.figures, args.runs])
    try:
        if args.describe:
            _describe(args)
            return 0
        grid = opened_grid(parser, args, FIELDS, KEY)
        run(args, grid)
    except InputError as fault:
        parser.error(str(fault))
    print(report(grid.records))
    return 1 if grid.n_failed else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m experiments.volume",
        description=volume.__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    shown_default = "(default: %(default)s)"
    add = parser.add_argument
    add("--data", type=Path, metavar="DIR", help="the folder of data sets")
    add("--stock", nargs="+", default=list(STOCKS), help=shown_default)
    add("--group", nargs="+", choices=list(GROUPS), default=list(GROUPS))
    add("--method", nargs="+", choices=METHODS, default=list(DEFAULT), help=shown_default)
    add(
        "--seeds",
        type=positive,
        default=1,
        help="seeds 0, 1, ... of methods and of what group B drops (default 1)",
    )
    add("--device", choices=DEVICES, default="auto")
    add_places(parser, "fits of ours")
    add(
        "--figures",
        type=Path,
        help="draw the first seed into this folder; fits that --runs lacks are made for it",
    )
    add("--describe", action="store_true", help="only say what the panels are like")
    add_print(parser)
    return parser


if __name__ == "__main__":
    sys.exit(main())
