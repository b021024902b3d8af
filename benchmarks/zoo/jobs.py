"""One job: rows of one task and seed, fitted and scored, each with its records.

    work(pipe, Job("ring", ("itofit",), seed=0))        pipe: "fitting", "scoring", [record, record]

The process that does it says when it begins to fit and to score, so that another one can end it.
"""

import functools
import os
import resource
import subprocess
import time
import traceback
import warnings
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import jax
from benchmarks.zoo.registry import TASKS
from benchmarks.zoo.rows import ROWS, TRIVIAL, Fitted, Question
from benchmarks.zoo.scores import Floor, Score, floor, question, scored
from benchmarks.zoo.task import Trial

from itofit.version import VERSION

Record = dict[str, Any]

FITTING = "fitting"
SCORING = "scoring"

KEY = ("task", "row", "seed")
FIELDS = (
    *KEY,
    "start",
    "answer",
    *(field.name for field in fields(Score)),
    *(field.name for field in fields(Floor)),
    "seconds",
    "memory_mb",
    "outcome",
    "chi2",
    "warnings",
    "failure",
    "version",
    "commit",
    "device",
    "cores",
)
"""Of a record. A row has one for every start; `answer` marks the first. The floor is in those of
the trivial rows, `memory_mb` is the peak of the process up to the end of the fit, with imports.
"""

_LONGEST_WARNING = 300


@dataclass(frozen=True)
class Job:
    """Rows of one task and seed that share a process: all trivial ones, or one that learns."""

    task: str
    rows: tuple[str, ...]
    seed: int
    data: Path | None = None
    full: bool = False

    def __str__(self) -> str:
        return f"{self.task} {'+'.join(self.rows)} seed {self.seed}"

    def starts(self, row: str) -> tuple[str, ...]:
        """From where a row forecasts on the task."""
        return ROWS[row].starts[TASKS[self.task].asks]


def work(pipe: Connection, job: Job) -> None:
    """Fit and score the rows of a job, one after the other, and send what becomes of them."""
    os.setpgrp()  # what a rival starts can then be ended with it
    trial = TASKS[job.task].trial(job.seed, job.data)
    beside = asdict(floor(trial)) if set(job.rows) <= set(TRIVIAL) else {}
    for row in job.rows:
        records = _of_row(pipe, job, row, trial)
        pipe.send([record | beside for record in records])


def failed(
    job: Job, row: str, why: str, n_cores: int, seconds: float | None = None
) -> list[Record]:
    """The records of a row that has no score, from whatever start."""
    return [
        _record(job, row, start, n_cores) | {"failure": why, "seconds": seconds}
        for start in job.starts(row)
    ]


def _of_row(pipe: Connection, job: Job, row: str, trial: Trial) -> list[Record]:
    asked = question(trial, job.starts(row), full=job.full)
    n_cores = len(os.sched_getaffinity(0))
    pipe.send(FITTING)
    begin = time.perf_counter()
    try:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            fitted = ROWS[row].fit(trial.given, asked, job.seed)
            seconds = time.perf_counter() - begin
    except Exception as fault:  # noqa: BLE001 - whatever it is, it is the row's failure
        return failed(job, row, _why(fault), n_cores, time.perf_counter() - begin)
    about = {"seconds": seconds, "memory_mb": _peak_mb(), "warnings": _texts(caught)}
    pipe.send(SCORING)
    with warnings.catch_warnings(action="ignore"):
        return [
            _record(job, row, start, n_cores)
            | about
            | fitted.notes()
            | _score(trial, fitted, asked, start, job.full)
            for start in asked.starts
        ]


def _score(trial: Trial, fitted: Fitted, asked: Question, start: str, full: bool) -> Record:
    try:
        return asdict(scored(trial, fitted, asked, start, full=full))
    except Exception as fault:  # noqa: BLE001 - a forecast that cannot be made is a failure, too
        return {"failure": _why(fault)}


def _record(job: Job, row: str, start: str, n_cores: int) -> Record:
    """A record without its numbers."""
    return dict.fromkeys(FIELDS) | {
        "task": job.task,
        "row": row,
        "seed": job.seed,
        "start": start,
        "answer": start == job.starts(row)[0],
        "warnings": [],
        "version": VERSION,
        "commit": _commit(),
        "device": jax.devices()[0].device_kind,
        "cores": n_cores,
    }


def _why(fault: Exception) -> str:
    where = traceback.extract_tb(fault.__traceback__)[-1]
    return f"{type(fault).__name__}: {fault} ({Path(where.filename).name}:{where.lineno})"


def _texts(caught: Sequence[warnings.WarningMessage]) -> list[str]:
    """What was warned of, every sentence once."""
    return list(dict.fromkeys(str(warning.message)[:_LONGEST_WARNING] for warning in caught))


def _peak_mb() -> float:
    """The most memory this process had, or the largest program it waited for."""
    children = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024
    # Unlike ru_maxrss, this begins anew with the program: the parent's peak is not in it.
    status = Path("/proc/self/status").read_text().splitlines()
    peak = next(line for line in status if line.startswith("VmHWM"))
    return round(max(children, float(peak.split()[1]) / 1024), 1)


@functools.cache
def _commit() -> str | None:
    """The commit of this file's repository; a + says that tracked files differ from it."""
    try:
        name = _git("rev-parse", "--short", "HEAD")
        return f"{name}+" if _git("status", "--porcelain", "--untracked-files=no") else name
    except (OSError, subprocess.CalledProcessError):
        return None


def _git(*words: str) -> str:
    here = Path(__file__).parent
    done = subprocess.run(["git", *words], cwd=here, capture_output=True, text=True, check=True)
    return done.stdout.strip()
