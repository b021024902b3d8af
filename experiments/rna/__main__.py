"""The command: `python -m experiments.rna --help`."""

import argparse
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path

import jax

from experiments import rna
from experiments.arguments import (
    DEVICES,
    add_fit_only,
    add_places,
    check_fit_only,
    check_places,
    opened_grid,
    positive,
)
from experiments.grid import Fit, Grid, Record
from experiments.rna.counts import load_counts
from experiments.rna.fits import NOTES_FILE, check_kept, fitted
from experiments.rna.methods import METHODS, WITHOUT_SEED, budget_of, starts_of
from experiments.rna.records import FIELDS, KEY, Cell, Counted, is_complete, record
from experiments.rna.report import tables
from experiments.rna.scores import scores
from experiments.rna.tasks import CLOCKS, TASKS, Clouds
from itofit import InputError
from itofit.devices import device_named
from itofit.face import Face


@dataclass(frozen=True)
class Plan:
    """Which cells to make, and what to do with them."""

    times: Sequence[str]
    methods: Sequence[str]
    n_seeds: int
    data: Path
    device: str
    n_iter: int | None
    figures: Path | None
    fit_only: bool

    def cells(self, task: int, times: str) -> Iterator[Cell]:
        """The cells of one task and clock."""
        for method in self.methods:
            for seed in range(1 if method in WITHOUT_SEED else self.n_seeds):
                yield Cell(task, times, method, seed)


def run(plan: Plan, all_clouds: Mapping[int, Clouds], grid: Grid) -> None:
    """Make the cells that the grid lacks, and the figures."""
    for (task, clouds), times in product(all_clouds.items(), plan.times):
        models: dict[str, Face] = {}
        for cell in plan.cells(task, times):
            budget = budget_of(cell.method, plan.n_iter)
            is_done = is_complete(grid, clouds.counts.label, cell, budget)
            to_draw = plan.figures is not None and cell.seed == 0
            if is_done and not to_draw:
                continue
            fit = fit_of(grid, cell, clouds, budget, plan.device)
            if fit is None:
                continue
            if not is_done and not plan.fit_only:
                grid.add(records_of(cell, fit, clouds))
            if to_draw:
                models[cell.method] = fit.model
        if models:
            _draw(plan, task, times, clouds, models)


def fit_of(grid: Grid, cell: Cell, clouds: Clouds, budget: int | None, device: str) -> Fit | None:
    """The fit of a cell: the one that is kept, or a new one; None where it cannot be made."""
    training = clouds.training(CLOCKS[cell.times])
    fits = grid.fits([cell], lambda cells: [fitted(cells[0], training, budget, device)])
    if cell not in fits:
        return None
    check_kept(cell, fits[cell], training, budget)
    return fits[cell]


def records_of(cell: Cell, fit: Fit, clouds: Clouds) -> list[Record]:
    """The scores of one fit."""
    day = clouds.task.held_out
    observed = clouds.observed(day)
    records = []
    for start in starts_of(cell.method):
        predicted = clouds.predicted(fit.model, CLOCKS[cell.times], day, start)
        n_model = None if predicted is None else len(predicted.points)
        counted = Counted(n_model, len(observed.points))
        records += [
            record(clouds.counts.label, cell, start, score, fit, counted)
            for score in scores(predicted, observed, clouds.last_day)
        ]
    return records


def _draw(plan: Plan, task: int, times: str, clouds: Clouds, models: dict[str, Face]) -> None:
    # A machine that only fits need not have matplotlib.
    from experiments.figures.pictures import Settings
    from experiments.rna.pictures import Drawn, draw, read_reference

    assert plan.figures is not None
    name = f"task{task}-{times}"
    drawn = Drawn(name, clouds, CLOCKS[times], models, read_reference(plan.data))
    for path in draw(drawn, Settings(0, plan.device, plan.n_iter), plan.figures):
        print(path, file=sys.stderr, flush=True)


def main(argv: Sequence[str] | None = None) -> int:
    """Run what is asked and print the tables; 1 where a fit could not be made."""
    parser = _parser()
    args = parser.parse_args(argv)
    check_fit_only(parser, args)
    if args.fit_only and (args.json is not None or args.figures is not None):
        parser.error("--fit-only scores and draws nothing: leave out --json and --figures")
    check_places(parser, args.json, [args.figures, args.runs])
    grid = opened_grid(parser, args, FIELDS, KEY, NOTES_FILE)
    try:
        counts = load_counts(args.data, args.full)
        clouds = {task: Clouds(counts, TASKS[task]) for task in args.task}
        with jax.default_device(device_named(args.device)):
            run(_plan(args), clouds, grid)
    except InputError as fault:
        parser.error(str(fault))
    if grid.records and not args.fit_only:
        print(tables(grid.records))
    return 1 if grid.n_failed else 0


def _plan(args: argparse.Namespace) -> Plan:
    return Plan(
        times=args.times,
        methods=[name for name in METHODS if name in args.method],
        n_seeds=args.seeds,
        data=args.data,
        device=args.device,
        n_iter=args.n_iter,
        figures=args.figures,
        fit_only=args.fit_only,
    )


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m experiments.rna",
        description=rna.__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("--data", type=Path, required=True, metavar="DIR", help="the folder with klein_counts.npz")
    add(
        "--full",
        action="store_true",
        help="all cells and genes; DIR is where they are, or are fetched to",
    )
    add("--method", nargs="+", choices=list(METHODS), default=list(METHODS))
    add("--task", nargs="+", type=int, choices=list(TASKS), default=list(TASKS))
    add(
        "--times",
        nargs="+",
        choices=list(CLOCKS),
        default=["paper"],
        help="unit of time (default: paper)",
    )
    add(
        "--seeds",
        type=positive,
        default=3,
        help="seeds 0, 1, ... of a method that has any (default 3)",
    )
    add("--n-iter", type=positive, help="budget of iterations of every method that has one")
    add("--device", choices=DEVICES, default="auto")
    add_places(parser)
    add_fit_only(parser)
    add(
        "--figures",
        type=Path,
        help="draw into this folder; fits that --runs does not hold are made for it",
    )
    return parser


if __name__ == "__main__":
    sys.exit(main())
