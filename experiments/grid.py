"""A grid of cells, each computed once and kept whole.

A cell names one fit: a NamedTuple of plain values, whose text is how it is called in messages. Its
fit is kept in the run folder `<value>-<value>-...`, its numbers are records in a file that is
replaced as a whole whenever some join. A second call goes on where the first one stopped, and one
machine can score what another one fitted.
"""

import json
import os
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from itofit import FitWarning, InputError, Outcome, load
from itofit.face import Face
from itofit.run_folder import MODEL_FILE
from itofit.whole_file import whole_file

Record = dict[str, Any]
CellType = TypeVar("CellType", bound=tuple)
Result = TypeVar("Result")

_CANNOT_FIT = (InputError, ImportError, NotImplementedError)


class Fit(NamedTuple):
    """A fitted model, and notes on how it was made: seconds, device and other plain values."""

    model: Face
    notes: dict[str, Any]


@dataclass(frozen=True)
class Runs:
    """Fits in run folders named after their cells; without a folder none is kept.

    - `notes_file`: of a fit's notes, if it has any. It is written last: without it a folder does
      not count as a fit.
    """

    folder: Path | None = None
    notes_file: str | None = None

    def read(self, cell: tuple) -> Fit | None:
        """The fit of a cell, where it is kept."""
        if self.folder is None:
            return None
        place = self._place(cell)
        if not (place / (self.notes_file or MODEL_FILE)).exists():
            return None
        notes = {} if self.notes_file is None else json.loads((place / self.notes_file).read_text())
        notes.pop("model", None)  # an empty entry of earlier versions
        return Fit(load(place), notes)

    def write(self, cell: tuple, fit: Fit) -> None:
        """Keep the fit of a cell."""
        if self.folder is None:
            return
        place = self._place(cell)
        fit.model.save(place, overwrite=True)
        if self.notes_file is not None:
            (place / self.notes_file).write_text(json.dumps(fit.notes))

    def _place(self, cell: tuple) -> Path:
        assert self.folder is not None
        return self.folder / "-".join(str(value) for value in cell)


@dataclass
class Grid:
    """The records of all cells so far, and where they and the fits are kept.

    - `key`: the fields that name one number; a new record takes the place of an old one.
    - `n_failed`: how many fits could not be made.
    """

    key: tuple[str, ...]
    records: list[Record]
    path: Path | None = None
    runs: Runs = Runs()
    n_failed: int = 0

    def matching(self, values: Mapping[str, Any]) -> list[Record]:
        """The records that have these values."""
        return [
            record
            for record in self.records
            if all(record[name] == value for name, value in values.items())
        ]

    def add(self, records: Sequence[Record]) -> None:
        """Take in new records and write the file."""
        replaced = {self._name(record) for record in records}
        others = [record for record in self.records if self._name(record) not in replaced]
        self.records = [*others, *records]
        if self.path is not None:
            write_records(self.path, self.records)

    def fits(
        self,
        cells: Sequence[CellType],
        make: Callable[[Sequence[CellType]], Sequence[Fit]],
        *,
        keep: bool = True,
    ) -> dict[CellType, Fit]:
        """The fits of these cells: those in the run folders, the others made by one call of `make`.

        Cells that cannot be fitted are missing, and counted. With `keep=False` run folders are
        neither read nor written.
        """
        runs = self.runs if keep else Runs()
        fits = {cell: fit for cell in cells if (fit := runs.read(cell)) is not None}
        missing = [cell for cell in cells if cell not in fits]
        if not missing:
            return fits
        try:
            with warnings.catch_warnings(action="ignore", category=FitWarning):
                fresh = make(missing)
        except _CANNOT_FIT as fault:
            self.n_failed += len(missing)
            say(missing[0], f"not fitted: {fault}")
            return fits
        if any(_interrupted(fit.model) for fit in fresh):
            raise KeyboardInterrupt  # a fit cut short is no record
        for cell, fit in zip(missing, fresh, strict=True):
            runs.write(cell, fit)
            fits[cell] = fit
        return {cell: fits[cell] for cell in cells}

    def _name(self, record: Record) -> tuple:
        return tuple(record[field] for field in self.key)


def _interrupted(model: Face) -> bool:
    return getattr(model, "outcome_", None) is Outcome.interrupted


def say(cell: tuple, text: str) -> None:
    """Tell on the error stream what became of a cell."""
    print(f"{cell}: {text}", file=sys.stderr, flush=True)


def read_records(path: Path, fields: Sequence[str]) -> list[Record]:
    """The records of a file; a ValueError says what is wrong with it."""
    try:
        records = json.loads(path.read_text())
    except json.JSONDecodeError as fault:
        raise ValueError(f"{path} is not JSON: {fault}") from None
    if not isinstance(records, list) or not all(_has_fields(record, fields) for record in records):
        raise ValueError(f"{path} is not a list of records with the fields {', '.join(fields)}")
    return records


def _has_fields(record: Any, fields: Sequence[str]) -> bool:
    return isinstance(record, dict) and set(record) == set(fields)


def write_records(path: Path, records: list[Record]) -> None:
    """Replace the file at once: a reader sees the old records or the new ones."""
    with whole_file(path) as partial:
        partial.write_text(json.dumps(records, indent=1, allow_nan=False))


def in_processes(calls: Sequence[Callable[[], Result]], n_jobs: int) -> Iterator[Result]:
    """The results of independent calls as they come, from processes of one core each.

    With one job they are made here, one after the other, on all cores.
    """
    if n_jobs == 1:
        yield from (call() for call in calls)
        return
    context = get_context("spawn")
    cores = context.Queue()
    for core in range(n_jobs):
        cores.put(core)
    with ProcessPoolExecutor(n_jobs, context, initializer=_take_core, initargs=(cores,)) as pool:
        for future in as_completed([pool.submit(call) for call in calls]):
            yield future.result()


def _take_core(cores) -> None:
    os.sched_setaffinity(0, {cores.get()})
