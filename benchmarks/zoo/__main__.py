"""The command: `python -m benchmarks.zoo --help`."""

import argparse
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

from benchmarks import zoo
from benchmarks.rivals.run import check_installed, rival
from benchmarks.zoo.compare import comparison
from benchmarks.zoo.families.real import RealTask
from benchmarks.zoo.jobs import FIELDS, KEY, Job, Record
from benchmarks.zoo.leaderboard import Results, labelled
from benchmarks.zoo.picture import draw
from benchmarks.zoo.plan import REAL, Plan, chosen_rows, chosen_tasks, missing
from benchmarks.zoo.processes import finished
from benchmarks.zoo.registry import QUICK, TASKS
from benchmarks.zoo.rows import GROUPS, RIVALS, ROWS
from benchmarks.zoo.tables import listing, report
from experiments.arguments import check_places, positive, printed_records
from experiments.grid import Grid

from itofit import InputError

_SEEDS = 3
_QUICK_SEEDS = 1


def main(argv: Sequence[str] | None = None) -> int:
    """Run, print, draw or compare."""
    parser = _parser()
    args = parser.parse_args(argv)
    try:
        return _answer(parser, args)
    except InputError as refusal:
        print(refusal, file=sys.stderr)
        return 2


def _answer(parser: argparse.ArgumentParser, args: argparse.Namespace) -> int:
    if args.list:
        print(listing(_plan(args).tasks, args.data))
        return 0
    if args.compare is not None:
        old, new = (Results(printed_records(parser, [path], FIELDS)) for path in args.compare)
        print(comparison(old, new))
        return 0
    results = Results(_run(parser, args) if args.print is None else _printed(parser, args))
    print(report(results))
    if args.picture is not None:
        draw(results, args.picture)
    return 0


def _printed(parser: argparse.ArgumentParser, args: argparse.Namespace) -> list[Record]:
    """The chosen tasks of finished files; LABEL=FILE names the rows of a file that learn."""
    records = []
    for word in args.print:
        label, _, path = word.rpartition("=")
        of_file = printed_records(parser, [Path(path)], FIELDS)
        records += labelled(of_file, label) if label else of_file
    tasks = _tasks(args)
    return [record for record in records if record["task"] in tasks]


def _tasks(args: argparse.Namespace) -> tuple[str, ...]:
    return QUICK if args.quick else chosen_tasks(args.tasks)


def _run(parser: argparse.ArgumentParser, args: argparse.Namespace) -> list[Record]:
    """The records of all that was asked for, those in the file first."""
    check_places(parser, args.json, [])
    plan = _plan(args)
    there = [] if args.json is None or not args.json.exists() else [args.json]
    grid = Grid(KEY, printed_records(parser, there, FIELDS), args.json)
    jobs = missing(plan.jobs(), grid.records, again=args.again)
    _check_data(jobs)
    _check_rivals(jobs)
    # Ended from outside, the processes at work are ended, too.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    for k, (job, records) in enumerate(finished(jobs, args.jobs, args.budget), start=1):
        grid.add(records)
        print(f"[{k}/{len(jobs)}] {job}: {_told(records)}", file=sys.stderr, flush=True)
    return grid.records


def _plan(args: argparse.Namespace) -> Plan:
    tasks = _tasks(args)
    seeds = args.seeds or (_QUICK_SEEDS if args.quick else _SEEDS)
    real = [name for name in tasks if TASKS[name].family == REAL]
    if real and args.data is None and not args.list:
        print(f"{len(real)} tasks of real data are left out: no --data", file=sys.stderr)
        tasks = tuple(name for name in tasks if name not in real)
    rows = chosen_rows(["trivial", *args.rows])
    return Plan(tasks, rows, tuple(range(seeds)), args.data, args.full)


def _check_data(jobs: Sequence[Job]) -> None:
    """Refuse a folder without the files, before anything is fitted."""
    for job in jobs:
        task = TASKS[job.task]
        if isinstance(task, RealTask):
            task.path(job.data)


def _check_rivals(jobs: Sequence[Job]) -> None:
    """Refuse rivals that are not installed."""
    for name in dict.fromkeys(row for job in jobs for row in job.rows if row in RIVALS):
        check_installed(rival(name))


def _told(records: Sequence[Record]) -> str:
    """What became of a job, in a line: the answers of its rows."""
    answers = [record for record in records if record["answer"]]
    return "; ".join(f"{record['row']} {_outcome(record)}" for record in answers)


def _outcome(record: Record) -> str:
    if record["failure"] is not None:
        return f"FAILED, {record['failure']}"
    return f"W1 {record['W1']:.3g}, {record['seconds']:.1f} s"


def _seconds(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0.0 < value < float("inf"):
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of seconds")
    return value


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.zoo",
        description=zoo.__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    tasks = parser.add_mutually_exclusive_group()
    tasks.add_argument(
        "--tasks", nargs="+", default=["all"], metavar="NAME", help="names, families or all"
    )
    tasks.add_argument(
        "--quick", action="store_true", help=f"{len(QUICK)} small tasks unlike each other"
    )
    add(
        "--rows",
        nargs="+",
        default=["default"],
        metavar="NAME",
        help=f"groups ({', '.join(GROUPS)}) or names ({', '.join(ROWS)}); trivial ones always run",
    )
    add("--seeds", type=positive, help=f"how many; default {_SEEDS}, with --quick {_QUICK_SEEDS}")
    add("--jobs", type=positive, default=1, help="processes at a time; with several, a core each")
    add("--budget", type=_seconds, default=300.0, help="seconds a fit may take")
    add("--data", type=Path, metavar="DIR", help="folder of the real data sets")
    add("--full", action="store_true", help="W1 at full size as well: slow for large clouds")
    add("--json", type=Path, help="the file of records, continued where it exists")
    add("--again", action="store_true", help="run what failed once more")
    add("--picture", type=Path, metavar="PNG", help="draw tasks by methods")
    add("--list", action="store_true", help="only list the tasks, one a line")
    add("--print", nargs="+", metavar="[LABEL=]JSON", help="only print finished files")
    add("--compare", nargs=2, type=Path, metavar=("OLD", "NEW"), help="what got better or worse")
    return parser


if __name__ == "__main__":
    sys.exit(main())
