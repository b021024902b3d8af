"""The command: `python -m experiments.rna --help`."""

import argparse
import sys
import time
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path

import jax

from experiments import rna
from experiments.arguments import positive
from experiments.records import Record, merged, read_or_refuse, write
from experiments.rna.counts import load_counts
from experiments.rna.methods import METHODS, WITHOUT_SEED, How, budget_of, starts_of
from experiments.rna.records import FIELDS, is_complete, name_of, record
from experiments.rna.report import tables
from experiments.rna.runs import Cell, Made, keep, kept
from experiments.rna.scores import scores
from experiments.rna.tasks import CLOCKS, TASKS, Clouds
from itofit import FitWarning, InputError
from itofit.face import device_named
from itofit.solve.outcome import Outcome


@dataclass(frozen=True)
class Plan:
    """Which cells to make, and what to do with them."""

    tasks: Sequence[int]
    times: Sequence[str]
    methods: Sequence[str]
    n_seeds: int
    data: Path
    device: str = "auto"
    n_iter: int | None = None
    json: Path | None = None
    runs: Path | None = None
    figures: Path | None = None
    fit_only: bool = False

    def cells(self, task: int, times: str) -> Iterator[Cell]:
        """The cells of one task and clock."""
        for method in self.methods:
            for seed in range(1 if method in WITHOUT_SEED else self.n_seeds):
                yield Cell(task, times, method, seed)


def run(plan: Plan, all_clouds: dict[int, Clouds], records: list[Record]) -> tuple[list[Record], int]:
    """Make what `records` lack; all records, and how many fits could not be made."""
    failures = 0
    for (task, clouds), times in product(all_clouds.items(), plan.times):
        drawn: dict[str, Made] = {}
        for cell in plan.cells(task, times):
            done = is_complete(records, clouds.counts.label, cell, budget_of(cell.method, plan.n_iter))
            to_draw = plan.figures is not None and cell.seed == 0
            if done and not to_draw:
                continue
            made = _made(plan, cell, clouds)
            if made is None:
                failures += 1
                continue
            if not done and not plan.fit_only:
                records = merged(records, _records(cell, made, clouds), name_of)
                if plan.json is not None:
                    write(plan.json, records)
            if to_draw:
                drawn[cell.method] = made
        if drawn:
            _draw(plan, f"task{task}-{times}", clouds, times, drawn)
    return records, failures


def _made(plan: Plan, cell: Cell, clouds: Clouds) -> Made | None:
    """The fit of a cell: the one that is kept, or a new one; None where it cannot be made."""
    training, budget = clouds.training(CLOCKS[cell.times]), budget_of(cell.method, plan.n_iter)
    old = None if plan.runs is None else kept(plan.runs, cell, budget, training)
    if old is not None:
        return old
    where, began = device_named(plan.device), time.perf_counter()
    model = METHODS[cell.method](How(CLOCKS[cell.times].dt, cell.seed, plan.device, budget))
    try:
        with warnings.catch_warnings(action="ignore", category=FitWarning):
            model.fit(training)
    except (InputError, NotImplementedError) as fault:
        _say(cell, f"not fitted: {fault}")
        return None
    if model.outcome_ is Outcome.interrupted:
        raise KeyboardInterrupt  # a fit cut short is no record
    made = Made(model, time.perf_counter() - began, where.device_kind, budget)
    _say(cell, f"fit {made.seconds:.1f} s, {model.outcome_.name}")
    if plan.runs is not None:
        keep(plan.runs, cell, made)
    return made


def _records(cell: Cell, made: Made, clouds: Clouds) -> list[Record]:
    """The scores of one fit."""
    day, found = clouds.task.held_out, []
    observed = clouds.observed(day)
    for start in starts_of(cell.method):
        predicted = clouds.predicted(made.model, CLOCKS[cell.times], day, start)
        sizes = (None if predicted is None else len(predicted.points), len(observed.points))
        for score in scores(predicted, observed, clouds.last_day):
            found.append(record(clouds.counts.label, cell, start, score, made, sizes))
    return found


def _draw(plan: Plan, name: str, clouds: Clouds, times: str, drawn: dict[str, Made]) -> None:
    from experiments.figures.pictures import Settings  # a machine that only fits need not have matplotlib
    from experiments.rna.pictures import Drawn, draw, read_reference

    assert plan.figures is not None
    models = {method: made.model for method, made in drawn.items()}
    what = Drawn(name, clouds, CLOCKS[times], models, read_reference(plan.data))
    for path in draw(what, Settings(0, plan.device, plan.n_iter), plan.figures):
        print(path, file=sys.stderr, flush=True)


def _say(cell: Cell, text: str) -> None:
    print(f"task {cell.task} {cell.times} {cell.method} seed {cell.seed}: {text}", file=sys.stderr, flush=True)


def main(argv: Sequence[str] | None = None) -> int:
    """Run what is asked and print the tables; 1 where a fit could not be made."""
    parser = _parser()
    args = parser.parse_args(argv)
    plan = _plan(parser, args)
    old = read_or_refuse(parser, plan.json, FIELDS) if plan.json is not None and plan.json.exists() else []
    try:
        counts = load_counts(args.data, args.full)
        clouds = {task: Clouds(counts, TASKS[task]) for task in plan.tasks}
        with jax.default_device(device_named(plan.device)):
            records, failures = run(plan, clouds, old)
    except InputError as fault:
        parser.error(str(fault))
    if records and not plan.fit_only:
        print(tables(records))
    return 1 if failures else 0


def _plan(parser: argparse.ArgumentParser, args: argparse.Namespace) -> Plan:
    if args.fit_only and args.runs is None:
        parser.error("--fit-only makes fits to score later: give --runs, the folder to keep them in")
    if args.fit_only and (args.json is not None or args.figures is not None):
        parser.error("--fit-only scores and draws nothing: leave out --json and --figures")
    if args.json is not None and not args.json.parent.is_dir():
        parser.error(f"no folder {args.json.parent} to write {args.json.name} into")
    for folder in (args.figures, args.runs):
        if folder is not None and folder.exists() and not folder.is_dir():
            parser.error(f"{folder} is a file, not a folder")
    return Plan(
        tasks=args.task,
        times=args.times,
        methods=[name for name in METHODS if name in args.method],
        n_seeds=args.seeds,
        data=args.data,
        device=args.device,
        n_iter=args.n_iter,
        json=args.json,
        runs=args.runs,
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
    add("--full", action="store_true", help="all cells and genes; DIR is where they are, or are fetched to")
    add("--method", nargs="+", choices=list(METHODS), default=list(METHODS))
    add("--task", nargs="+", type=int, choices=list(TASKS), default=list(TASKS))
    add("--times", nargs="+", choices=list(CLOCKS), default=["paper"], help="unit of time (default: paper)")
    add("--seeds", type=positive, default=3, help="seeds 0, 1, ... of a method that has any (default 3)")
    add("--n-iter", type=positive, help="budget of iterations of every method that has one")
    add("--device", choices=("auto", "cpu", "gpu"), default="auto")
    add("--runs", type=Path, help="keep fits in this folder; those in it are not made again")
    add("--fit-only", action="store_true", help="fill --runs and score nothing")
    add("--json", type=Path, help="the file of records, continued where it exists")
    add("--figures", type=Path, help="draw into this folder; fits that --runs does not hold are made for it")
    return parser


if __name__ == "__main__":
    sys.exit(main())
