"""What the command lines of the experiments share: whole numbers, and the places of a grid."""

import argparse
from collections.abc import Sequence
from pathlib import Path

from experiments.grid import Grid, Record, Runs, read_records

DEVICES = ("auto", "cpu", "gpu")


def whole(text: str) -> int:
    """A whole number from 0 on, or a refusal argparse shows."""
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from 0 on")
    return int(text)


def positive(text: str) -> int:
    """A whole number from 1 on."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from 1 on")
    return int(text)


def add_places(parser: argparse.ArgumentParser, fits: str = "fits") -> None:
    """`--runs` and `--json` of a grid; `fits` says which fits are kept."""
    parser.add_argument(
        "--runs", type=Path, help=f"keep {fits} in this folder; those in it are not made again"
    )
    parser.add_argument("--json", type=Path, help="the file of records, continued where it exists")


def add_fit_only(parser: argparse.ArgumentParser) -> None:
    """`--fit-only`, for a machine that leaves the scores to another one."""
    parser.add_argument("--fit-only", action="store_true", help="fill --runs and score nothing")


def add_print(parser: argparse.ArgumentParser) -> None:
    """`--print`, for files of records that are there."""
    parser.add_argument(
        "--print",
        nargs="+",
        type=Path,
        metavar="JSON",
        help="only print the tables of finished files",
    )


def check_fit_only(parser: argparse.ArgumentParser, args: argparse.Namespace) -> None:
    """Refuse fits that nobody would keep."""
    if args.fit_only and args.runs is None:
        parser.error(
            "--fit-only makes fits to score later: give --runs, the folder to keep them in"
        )


def check_places(
    parser: argparse.ArgumentParser, json: Path | None, folders: Sequence[Path | None]
) -> None:
    """Refuse places that cannot be written to, before anything is fitted."""
    if json is not None and not json.parent.is_dir():
        parser.error(f"no folder {json.parent} to write {json.name} into")
    for folder in folders:
        if folder is not None and folder.exists() and not folder.is_dir():
            parser.error(f"{folder} is a file, not a folder")


def printed_records(
    parser: argparse.ArgumentParser, paths: Sequence[Path], fields: Sequence[str]
) -> list[Record]:
    """The records of the files named on a command line, which ends where there are none to read."""
    try:
        return [record for path in paths for record in read_records(path, fields)]
    except (OSError, ValueError) as fault:
        parser.error(str(fault))


def opened_grid(
    parser: argparse.ArgumentParser,
    args: argparse.Namespace,
    fields: Sequence[str],
    key: tuple[str, ...],
    notes_file: str | None = None,
) -> Grid:
    """The grid at `--runs` and `--json`, with the records that are there."""
    there = [] if args.json is None or not args.json.exists() else [args.json]
    records = printed_records(parser, there, fields)
    return Grid(key, records, args.json, Runs(args.runs, notes_file))
