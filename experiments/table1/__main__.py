"""The command: `python -m experiments.table1 --help`."""

import argparse
import sys
import time
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path

import jax

from experiments import table1
from experiments.arguments import positive
from experiments.records import Record, merged, read_or_refuse, write
from experiments.table1.methods import COMPARED, METHODS, TOGETHER
from experiments.table1.records import DIMS, FIELDS, Fit, cell_of, is_complete, paper_value
from experiments.table1.report import table
from experiments.table1.runs import Made, keep, kept
from experiments.table1.scoring import METRICS, READINGS, Case, Sizes, test_times
from experiments.table1.summary import summary
from itofit import FitWarning, InputError, KnownSystem, known_system
from itofit.face import Face, device_named
from itofit.solve.options import PRESETS
from itofit.solve.outcome import Outcome

SYSTEMS = ("syn1", "syn2", "syn3")
OTHERS = ("syn2-printed",)

_UNFINISHED = (InputError, ImportError, NotImplementedError)


@dataclass(frozen=True)
class Plan:
    """Which fits to make, and what to score."""

    systems: Sequence[str]
    dims: Sequence[int]
    methods: Sequence[str]
    seeds: Sequence[int]
    preset: str = "default"
    reading: str = "B"
    metrics: tuple[str, ...] = METRICS
    device: str = "auto"
    n_iter: int | None = None
    runs: Path | None = None
    fit_only: bool = False
    sizes: Sizes = Sizes()


def run(plan: Plan, records: list[Record], path: Path | None) -> tuple[list[Record], int]:
    """Make the fits that `records` lack, writing to `path`; all records, and how many fits could not be made."""
    failures = 0
    for name, dim in product(plan.systems, plan.dims):
        system = known_system(name, dim)
        steps = [step_of(t, system) for t in test_times(system, plan.reading)]
        cases = [Case(system, plan.reading, seed, plan.sizes, plan.metrics) for seed in plan.seeds]
        for method in plan.methods:
            fits = [(Fit(name, dim, method, plan.preset, plan.reading, case.seed), case) for case in cases]
            missing = [pair for pair in fits if not is_complete(records, pair[0], steps, plan.metrics)]
            for batch in [missing] if method in TOGETHER and missing else [[pair] for pair in missing]:
                try:
                    made = _made(batch, plan)
                except _UNFINISHED as fault:
                    failures += len(batch)
                    _say(batch[0][0], f"not fitted: {fault}")
                    continue
                if plan.fit_only:
                    continue
                with jax.default_device(device_named(plan.device)):
                    fresh = [_records(*pair, m) for pair, m in zip(batch, made, strict=True)]
                records = merged(records, [record for some in fresh for record in some], cell_of)
                if path is not None:
                    write(path, records)
    return records, failures


def _made(batch: Sequence[tuple[Fit, Case]], plan: Plan) -> list[Made]:
    """The fits of a batch: those that are kept, and the others made in one run and kept."""
    if plan.runs is None or batch[0][0].method not in TOGETHER:
        return _fitted(batch, plan)
    found = [kept(plan.runs, fit) for fit, _ in batch]
    lacking = [pair for pair, old in zip(batch, found, strict=True) if old is None]
    fresh = _fitted(lacking, plan) if lacking else []
    for (fit, _), made in zip(lacking, fresh, strict=True):
        keep(plan.runs, fit, made)
    rest = iter(fresh)
    return [next(rest) if old is None else old for old in found]


def _fitted(batch: Sequence[tuple[Fit, Case]], plan: Plan) -> list[Made]:
    """Fits made in one run: one, or the seeds of a method that trains them together."""
    where, (first, case) = device_named(plan.device), batch[0]
    with jax.default_device(where), warnings.catch_warnings(action="ignore", category=FitWarning):
        data = [case.training for _, case in batch]
        began = time.perf_counter()
        if first.method in TOGETHER:
            seeds = [fit.seed for fit, _ in batch]
            models = TOGETHER[first.method](case.system, data, seeds, first.preset, plan.device, plan.n_iter)
        else:
            models = [METHODS[first.method](case.system, data[0], first.seed, first.preset, plan.device)]
        seconds = time.perf_counter() - began
    if any(getattr(model, "outcome_", None) is Outcome.interrupted for model in models):
        raise KeyboardInterrupt  # a fit cut short is no record
    for (fit, _), model in zip(batch, models, strict=True):
        _say(fit, _how(model, seconds, len(batch)))
    return [Made(model, seconds, len(batch), where.device_kind) for model in models]


def _how(model: Face, seconds: float, together: int) -> str:
    shared, outcome = f" for {together}" if together > 1 else "", getattr(model, "outcome_", None)
    return f"fit {seconds:.1f} s{shared}" + (f", {outcome.name}" if outcome is not None else "")


def _records(fit: Fit, case: Case, made: Made) -> list[Record]:
    """The scores of one fitted model."""
    began = time.perf_counter()
    scores = case.score(made.model)
    _say(fit, f"scores {time.perf_counter() - began:.1f} s")
    return [
        {
            "system": fit.system,
            "dim": fit.dim,
            "step": (step := step_of(score.time, case.system)),
            "time": score.time,
            "method": fit.method,
            "preset": fit.preset,
            "reading": fit.reading,
            "seed": fit.seed,
            "metric": score.metric,
            "value": score.value,
            "floor": score.floor.mean,
            "floor_sd": score.floor.sd,
            "excess": None if score.value is None else score.value - score.floor.mean,
            "paper": paper_value(fit.system, fit.dim, step, fit.method),
            "seconds": made.seconds,
            "together": made.together,
            "n_iter": getattr(made.model, "n_iter_", None),
            "device": made.device,
        }
        for score in scores
    ]


def step_of(time: float, system: KnownSystem) -> int:
    """The paper's index of a time: 50 for x50."""
    return round(time / system.dt)


def _say(fit: Fit, text: str) -> None:
    print(
        f"{fit.system} D={fit.dim} {fit.method}/{fit.preset} reading {fit.reading} seed {fit.seed}: {text}",
        file=sys.stderr,
        flush=True,
    )


def main(argv: Sequence[str] | None = None, sizes: Sizes | None = None) -> int:
    """Run what is asked and print the table; 1 where a fit could not be made."""
    parser = _parser()
    args = parser.parse_args(argv)
    if args.against is not None and args.metric is None:
        parser.error("--against compares methods in one metric: give --metric")
    if args.print is not None:
        records = [record for path in args.print for record in read_or_refuse(parser, path, FIELDS)]
        print(table(records) if args.metric is None else summary(records, args.metric, args.against))
        return 0
    if args.metric is not None:
        parser.error("--metric shows a finished file: give it with --print (--metrics chooses what is scored)")
    plan = _plan(parser, args, sizes or Sizes())
    if args.json is not None and not args.json.parent.is_dir():
        parser.error(f"no folder {args.json.parent} to write {args.json.name} into")
    old = read_or_refuse(parser, args.json, FIELDS) if args.json is not None and args.json.exists() else []
    records, failures = run(plan, old, args.json)
    if records:
        print(table(records))
        side_by_side = [m for m in METRICS if any(r["metric"] == m for r in records)][-1]
        print(f"\n{side_by_side}, methods side by side\n{summary(records, side_by_side)}")
    return 1 if failures else 0


def _plan(parser: argparse.ArgumentParser, args: argparse.Namespace, sizes: Sizes) -> Plan:
    if args.all and (args.system or args.dim):
        parser.error("--all takes every system and dimension: leave out --system and --dim")
    if not args.all and not args.system:
        parser.error("give --system, --all or --print")
    if args.fit_only and args.runs is None:
        parser.error("--fit-only makes fits to score later: give --runs, the folder to keep them in")
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
        runs=args.runs,
        fit_only=args.fit_only,
        sizes=sizes,
    )


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m experiments.table1",
        description=table1.__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--system", nargs="+", choices=SYSTEMS + OTHERS)
    parser.add_argument("--dim", nargs="+", type=_even, help="even dimensions; the paper's are 2, 6 and 10")
    parser.add_argument("--all", action="store_true", help="every system at D = 2, 6, 10")
    parser.add_argument("--method", nargs="+", choices=[*METHODS, *TOGETHER], help=f"default: {', '.join(COMPARED)}")
    parser.add_argument("--preset", choices=list(PRESETS), default="default")
    parser.add_argument("--reading", choices=list(READINGS), default="B", help="B: t0 = 0; A: the first snapshot after")
    parser.add_argument("--seeds", type=positive, default=5, help="seeds 0, 1, ... of data and method (default 5)")
    parser.add_argument("--seed", nargs="+", type=int, help="these seeds instead of the first few")
    parser.add_argument("--n-iter", type=positive, help="budget of iterations of the methods that train")
    parser.add_argument("--metrics", nargs="+", choices=METRICS, default=METRICS)
    parser.add_argument("--device", choices=("auto", "cpu", "gpu"), default="auto")
    parser.add_argument("--runs", type=Path, help="keep trained fits in this folder; those in it are not refitted")
    parser.add_argument("--fit-only", action="store_true", help="fill --runs and score nothing")
    parser.add_argument("--json", type=Path, help="the file of records, continued where it exists")
    parser.add_argument("--print", nargs="+", type=Path, metavar="JSON", help="only print the table of finished files")
    parser.add_argument("--metric", choices=METRICS, help="with --print: this one, methods side by side, in Markdown")
    parser.add_argument("--against", choices=[*METHODS, *TOGETHER], help="with --metric: differences to this method")
    return parser


def _even(text: str) -> int:
    dim = positive(text)
    if dim % 2:
        raise argparse.ArgumentTypeError(f"the systems are made of two-dimensional blocks: {dim} is odd")
    return dim


if __name__ == "__main__":
    sys.exit(main())
