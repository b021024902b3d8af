"""Files of records: lists of plain dictionaries with the same fields, replaced at once, continued where they exist."""

import argparse
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from itofit.whole_file import whole_file

Record = dict[str, Any]


def read(path: Path, fields: Sequence[str]) -> list[Record]:
    """The records of a file; a ValueError says what is wrong with it."""
    try:
        records = json.loads(path.read_text())
    except json.JSONDecodeError as fault:
        raise ValueError(f"{path} is not JSON: {fault}") from None
    if not isinstance(records, list) or not all(isinstance(r, dict) and set(r) == set(fields) for r in records):
        raise ValueError(f"{path} is not a list of records with the fields {', '.join(fields)}")
    return records


def read_or_refuse(parser: argparse.ArgumentParser, path: Path, fields: Sequence[str]) -> list[Record]:
    """The records of a file that was named on a command line, which ends where there are none to read."""
    try:
        return read(path, fields)
    except (OSError, ValueError) as fault:
        parser.error(str(fault))


def write(path: Path, records: list[Record]) -> None:
    """Replace the file at once: a reader sees the old records or the new ones."""
    with whole_file(path) as partial:
        partial.write_text(json.dumps(records, indent=1, allow_nan=False))


def merged(records: list[Record], fresh: list[Record], name: Callable[[Record], tuple]) -> list[Record]:
    """The old records without those that `fresh` repeats, and the fresh ones; `name` says which number one is."""
    repeated = {name(r) for r in fresh}
    return [r for r in records if name(r) not in repeated] + fresh
