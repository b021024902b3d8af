"""What is to be run: names into tasks and rows, tasks and rows into jobs that are not yet done."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.zoo.jobs import Job, Record
from benchmarks.zoo.registry import TASKS
from benchmarks.zoo.rows import GROUPS, ROWS, TRIVIAL

from itofit import InputError

REAL = "real"
"""The family whose tasks need a folder of data."""


@dataclass(frozen=True)
class Plan:
    """Tasks, rows and seeds; the trivial rows are always among the rows, scores refer to them."""

    tasks: tuple[str, ...]
    rows: tuple[str, ...]
    seeds: tuple[int, ...]
    data: Path | None = None
    full: bool = False

    def jobs(self) -> list[Job]:
        """All jobs, seed by seed: a run cut short has met many tasks."""
        return [
            Job(task, rows, seed, self.data, self.full)
            for seed in self.seeds
            for task in self.tasks
            for rows in _by_process(task, self.rows)
        ]


def _by_process(task: str, rows: Sequence[str]) -> list[tuple[str, ...]]:
    """The rows that are methods for a task: the trivial ones together, every other by itself."""
    able = [row for row in rows if TASKS[task].asks in ROWS[row].starts]
    trivial = tuple(row for row in TRIVIAL if TASKS[task].asks in ROWS[row].starts)
    return [trivial, *((row,) for row in able if row not in TRIVIAL)]


def missing(jobs: Iterable[Job], records: Sequence[Record], *, again: bool) -> list[Job]:
    """The jobs without records; `again`: and those with failures."""
    kept = {(r["task"], r["row"], r["seed"]) for r in records}
    if again:
        kept -= {(r["task"], r["row"], r["seed"]) for r in records if r["failure"] is not None}
    return [job for job in jobs if any((job.task, row, job.seed) not in kept for row in job.rows)]


def chosen_tasks(words: Sequence[str]) -> tuple[str, ...]:
    """The tasks that names, families and `all` mean, in the order of the registry."""
    families: dict[str, list[str]] = {"all": list(TASKS)}
    for task in TASKS.values():
        families.setdefault(task.family, []).append(task.name)
    return _chosen(words, list(TASKS), families, "--list")


def chosen_rows(words: Sequence[str]) -> tuple[str, ...]:
    """The rows that names and groups mean, in the order of the table."""
    return _chosen(words, list(ROWS), GROUPS, "--help")


def _chosen(
    words: Sequence[str], names: list[str], groups: Mapping[str, Sequence[str]], where: str
) -> tuple[str, ...]:
    wanted: set[str] = set()
    for word in words:
        if word not in groups and word not in names:
            raise InputError(
                expected=f"one of {', '.join(groups)}, or a name", found=word, hint=where
            )
        wanted.update(groups.get(word, (word,)))
    return tuple(name for name in names if name in wanted)
