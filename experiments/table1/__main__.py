"""The command: `python -m experiments.table1 --help`."""

import argparse
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import product

import jax

from experiments import table1
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
from experiments.grid import Fit, Grid, Record, say
from experiments.table1.methods import COMPARED, METHODS, PRESETS, TOGETHER, Setting
from experiments.table1.records import DIMS, FIELDS, KEY, Cell, is_complete, paper_value
from experiments.table1.report import table
from experiments.table1.scoring import METRICS, READINGS, Case, Sizes, test_times
from experiments.table1.summary import summary
from itofit import InputError, KnownSystem, known_system
from itofit.devices import device_named
from itofit.face import Face

SYSTEMS = ("syn1", "syn2", "syn3")
OTHERS = ("syn2-printed",)
NOTES_FILE = "table1.json"


@dataclass(frozen=True)
class Plan:
    """Which fits to make, and what to score."""

    systems: Sequence[str]
    dims: Sequence[int]
    methods: Sequence[str]
    seeds: Sequence[int]
    preset: str
    reading: str
    metrics: tuple[str, ...]
    device: str
    n_iter: int | None
    fit_only: bool
    sizes: Sizes

    def setting(self, system: KnownSystem) -> Setting:
        """What every method of a system is told."""
        return Setting(system, self.preset, self.device, self.n_iter)


def run(plan: Plan, grid: Grid) -> None:
    """Make the fits that the grid lacks."""
    for name, dim in product(plan.systems, plan.dims):
        system = known_system(name, dim)
        cases = {
            seed: Case(system, plan.reading, seed, plan.sizes, plan.metrics) for seed in plan.seeds
        }
        for batch in batches(plan, grid, name, system):
            compute(plan, grid, batch, cases)


def batches(plan: Plan, grid: Grid, name: str, system: KnownSystem) -> Iterator[list[Cell]]:
    """The cells of a system that are not complete, those that train together in one list."""
    steps = [step_of(t, system) for t in test_times(system, plan.reading)]
    for method in plan.methods:
        cells = [
            Cell(name, system.n_dims, method, plan.preset, plan.reading, seed)
            for seed in plan.seeds
        ]
        missing = [cell for cell in cells if not is_complete(grid, cell, steps, plan.metrics)]
        if method in TOGETHER and missing:
            yield missing
        else:
            yield from ([cell] for cell in missing)


def compute(plan: Plan, grid: Grid, batch: list[Cell], cases: Mapping[int, Case]) -> None:
    """Fit a batch and, unless that is all, score it."""
    setting = plan.setting(cases[batch[0].seed].system)
    make = partial(fitted, setting=setting, cases=cases)
    fits = grid.fits(batch, make, keep=batch[0].method in TOGETHER)
    if plan.fit_only:
        return
    for cell, fit in fits.items():
        with jax.default_device(device_named(plan.device)):
            records = records_of(cell, cases[cell.seed], fit)
        grid.add(records)


def fitted(cells: Sequence[Cell], setting: Setting, cases: Mapping[int, Case]) -> list[Fit]:
    """Fits made in one run: one, or the seeds of a method that trains them together."""
    method = cells[0].method
    seeds = [cell.seed for cell in cells]
    where = device_named(setting.device)
    with jax.default_device(where):
        data = [cases[seed].training for seed in seeds]
        began = time.perf_counter()
        if method in TOGETHER:
            models = TOGETHER[method](setting, data, seeds)
        else:
            models = [METHODS[method](setting, data[0], seeds[0])]
        seconds = time.perf_counter() - began
    for cell, model in zip(cells, models, strict=True):
        say(cell, _ending(model, seconds, len(cells)))
    notes = {"seconds": seconds, "together": len(cells), "device": where.device_kind}
    return [Fit(model, notes) for model in models]


def _ending(model: Face, seconds: float, together: int) -> str:
    batch = f" for {together}" if together > 1 else ""
    outcome = getattr(model, "outcome_", None)
    return f"fit {seconds:.1f} s{batch}" + (f", {outcome.name}" if outcome is not None else "")


def records_of(cell: Cell, case: Case, fit: Fit) -> list[Record]:
    """The scores of one fitted model."""
    began = time.perf_counter()
    scores = case.score(fit.model)
    say(cell, f"scores {time.perf_counter() - began:.1f} s")
    return [
        {
            "system": cell.system,
            "dim": cell.dim,
            "step": (step := step_of(score.time, case.system)),
            "time": score.time,
            "method": cell.method,
            "preset": cell.preset,
            "reading": cell.reading,
            "seed": cell.seed,
            "metric": score.metric,
            "value": score.value,
            "floor": score.floor.mean,
            "floor_sd": score.floor.sd,
            "excess": None if score.value is None else score.value - score.floor.mean,
            "paper": paper_value(cell.system, cell.dim, step, cell.method),
            "seconds": fit.notes["seconds"],
            "together": fit.notes["together"],
            "n_iter": getattr(fit.model, "n_iter_", None),
            "device": fit.notes["device"],
        }
        for score in scores
    ]


def step_of(time: float, system: KnownSystem) -> int:
    """The paper's index of a time: 50 for x50."""
    return round(time / system.dt)


def main(argv: Sequence[str] | None = None, sizes: Sizes | None = None) -> int:
    """Run what is asked and print the table; 1 where a fit could not be made."""
    parser = _parser()
    args = parser.parse_args(argv)
    if args.against is not None and args.metric is None:
        parser.error("--against compares methods in one metric: give --metric")
    if args.print is not None:
        records = printed_records(parser, args.print, FIELDS)
        print(
            table(records) if args.metric is None else summary(records, args.metric, args.against)
        )
        return 0
    plan = _plan(parser, args, sizes or Sizes())
    check_places(parser, args.json, [args.runs])
    grid = opened_grid(parser, args, FIELDS, KEY, NOTES_FILE)
    run(plan, grid)
    if grid.records:
        metrics = {record["metric"] for record in grid.records}
        last = [metric for metric in METRICS if metric in metrics][-1]
        print(table(grid.records))
        print(f"\n{last}, methods side by side\n{summary(grid.records, last)}")
    return 1 if grid.n_failed else 0


def _plan(parser: argparse.ArgumentParser, args: argparse.Namespace, sizes: Sizes) -> Plan:
    if args.metric is not None:
        parser.error(
            "--metric shows a finished file: give it with --print "
            "(--metrics chooses what is scored)"
        )
    if args.all and (args.system or args.dim):
        parser.error("--all takes every system and dimension: leave out --system and --dim")
    if not args.all and not args.system:
        parser.error("give --system, --all or --print")
    check_fit_only(parser, args)
    try:
        device_named(args.device)
    except InputError as fault:
        parser.error(str(fault))
    return Plan(
        systems=SYSTEMS if args.all else args.system,
        dims=DIMS if args.all else args.dim or [2],
        methods=args.method or COMPARED,
        seeds=range(args.seeds) if args.seed is None else args.seed,
        preset=args.preset,
        reading=args.reading,
        metrics=tuple(m for m in METRICS if m in args.metrics),
        device=args.device,
        n_iter=args.n_iter,
        fit_only=args.fit_only,
        sizes=sizes,
    )


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m experiments.table1",
        description=table1.__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    names = [*METHODS, *TOGETHER]
    add = parser.add_argument
    add("--system", nargs="+", choices=SYSTEMS + OTHERS)
    add("--dim", nargs="+", type=_even, help="even dimensions; the paper's are 2, 6 and 10")
    add("--all", action="store_true", help="every system at D = 2, 6, 10")
    add("--method", nargs="+", choices=names, help=f"default: {', '.join(COMPARED)}")
    add("--preset", choices=list(PRESETS), default="default")
    add(
        "--reading",
        choices=list(READINGS),
        default="B",
        help="B: t0 = 0; A: the first snapshot after",
    )
    add("--seeds", type=positive, default=5, help="seeds 0, 1, ... of data and method (default 5)")
    add("--seed", nargs="+", type=int, help="these seeds instead of the first few")
    add("--n-iter", type=positive, help="budget of iterations of the methods that train")
    add("--metrics", nargs="+", choices=METRICS, default=METRICS)
    add("--device", choices=DEVICES, default="auto")
    add_places(parser, "trained fits")
    add_fit_only(parser)
    add_print(parser)
    add(
        "--metric",
        choices=METRICS,
        help="with --print: this one, methods side by side, in Markdown",
    )
    add("--against", choices=names, help="with --metric: differences to this method")
    return parser


def _even(text: str) -> int:
    dim = positive(text)
    if dim % 2:
        raise argparse.ArgumentTypeError(
            f"the systems are made of two-dimensional blocks: {dim} is odd"
        )
    return dim


if __name__ == "__main__":
    sys.exit(main())
