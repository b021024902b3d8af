"""Six figures a method over the zoo: failures, part done well, ratio, worst ratio, spread, seconds.

    ratio = W1 of the row / W1 of the best trivial row,   both of the same task and seed

A task's ratio is the geometric mean over its seeds. A fit that failed has no ratio: it is left out
of means and counted beside them; its task is not among those that did well.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from benchmarks.zoo.jobs import Record
from benchmarks.zoo.registry import TASKS
from benchmarks.zoo.rows import ROWS, TRIVIAL

# As good as the best trivial row: at most so many times its score.
_AS_GOOD = 1.05
# Inside the floor: at most so many sds above it.
_WITHIN = 2.0
_SECOND = ", second start"


@dataclass(frozen=True)
class Case:
    """A method on a task: all seeds of it.

    - `ratios`, `scores`: of the seeds that did not fail, by seed.
    - `at_floor`: whether the mean score is within 2 sds of the mean floor.
    - `failures`: by seed, why there is no score.
    - `seconds`: of all fits that ran, failed ones too.
    """

    task: str
    ratios: dict[int, float]
    scores: dict[int, float]
    at_floor: bool
    failures: dict[int, str]
    seconds: tuple[float, ...]

    @property
    def ratio(self) -> float | None:
        """The geometric mean over seeds; None where all of them failed."""
        return geometric_mean(self.ratios.values())

    @property
    def spread(self) -> float | None:
        """Largest score over the smallest; None for fewer than two seeds."""
        values = list(self.scores.values())
        return max(values) / min(values) if len(values) > 1 else None

    @property
    def did_well(self) -> bool:
        """No failure, and at most 1.05 times the best trivial row or inside the floor."""
        if self.ratio is None or self.failures:
            return False
        return self.ratio <= _AS_GOOD or self.at_floor


@dataclass(frozen=True)
class Figures:
    """A line of the leaderboard; what cannot be said of these cases is None."""

    method: str
    n_tasks: int
    n_fits: int
    failures: int
    fraction_well: float
    ratio: float | None
    ratio_moving: float | None
    worst: float | None
    worst_task: str | None
    spread: float | None
    worst_spread: float | None
    seconds: float | None
    worst_seconds: float | None


@dataclass(frozen=True)
class Yardstick:
    """What scores of a task and seed are held against: the best trivial row, and the floor."""

    row: str
    W1: float
    floor: float
    floor_sd: float


class Results:
    """Records, read as methods on tasks.

    A method is a row with its first start; its second start stands beside it as one of its own.
    """

    def __init__(self, records: Sequence[Record]):
        self.records = [record for record in records if record["task"] in TASKS]

    @cached_property
    def yardsticks(self) -> dict[tuple[str, int], Yardstick]:
        """By task and seed; of those without a trivial row there is none."""
        best: dict[tuple[str, int], Yardstick] = {}
        for record in self.records:
            if record["row"] not in TRIVIAL or record["failure"] is not None:
                continue
            place = record["task"], record["seed"]
            if place not in best or record["W1"] < best[place].W1:
                best[place] = Yardstick(
                    record["row"], record["W1"], record["floor"], record["floor_sd"]
                )
        return best

    @cached_property
    def cases(self) -> dict[str, dict[str, Case]]:
        """By method and task, in the order of the table and of the registry."""
        grouped: dict[str, dict[str, list[Record]]] = {}
        for record in self.records:
            tasks = grouped.setdefault(method_of(record), {})
            tasks.setdefault(record["task"], []).append(record)
        return {
            method: {
                task: self._case(task, grouped[method][task]) for task in _ordered(grouped[method])
            }
            for method in sorted(grouped, key=_rank)
        }

    @property
    def tasks(self) -> list[str]:
        """The tasks that have records."""
        return _ordered({record["task"] for record in self.records})

    def _case(self, task: str, records: Sequence[Record]) -> Case:
        scored = {r["seed"]: r["W1"] for r in records if r["failure"] is None}
        sticks = {s: self.yardsticks[task, s] for s in scored if (task, s) in self.yardsticks}
        excess = [scored[seed] - stick.floor for seed, stick in sticks.items()]
        allowed = [_WITHIN * stick.floor_sd for stick in sticks.values()]
        return Case(
            task=task,
            ratios={seed: scored[seed] / stick.W1 for seed, stick in sticks.items()},
            scores=scored,
            at_floor=bool(sticks) and bool(np.mean(excess) <= np.mean(allowed)),
            failures={r["seed"]: r["failure"] for r in records if r["failure"] is not None},
            seconds=tuple(r["seconds"] for r in records if r["seconds"] is not None),
        )


def leaderboard(results: Results) -> list[Figures]:
    """The six figures of every method."""
    return [_figures(method, list(cases.values())) for method, cases in results.cases.items()]


def ratio_of_truth(results: Results) -> float | None:
    """What the geometric mean of ratios would be for a perfect model: floor over trivial row."""
    by_task: dict[str, list[float]] = {}
    for (task, _), stick in results.yardsticks.items():
        by_task.setdefault(task, []).append(stick.floor / stick.W1)
    means = [float(np.exp(np.mean(np.log(ratios)))) for ratios in by_task.values()]
    return geometric_mean(means)


def spread_of_truth(results: Results) -> float | None:
    """The median spread over seeds of the floors: simulated data differ from seed to seed."""
    by_task: dict[str, list[float]] = {}
    for (task, _), stick in results.yardsticks.items():
        by_task.setdefault(task, []).append(stick.floor)
    spreads = [max(floors) / min(floors) for floors in by_task.values() if len(floors) > 1]
    return float(np.median(spreads)) if spreads else None


def geometric_mean(values: Iterable[float]) -> float | None:
    """Of positive numbers; None of nothing."""
    logs = np.log(list(values))
    return float(np.exp(np.mean(logs))) if logs.size else None


def method_of(record: Record) -> str:
    """The row; of a forecast from the second start it says so."""
    return record["row"] if record["answer"] else f"{record['row']}{_SECOND}"


def is_second(method: str) -> bool:
    """Whether a method is a row with its second start."""
    return method.endswith(_SECOND)


def labelled(records: Sequence[Record], label: str) -> list[Record]:
    """The rows that learn under names of their own, so that two states of one can be seen."""
    return [
        record if record["row"] in TRIVIAL else record | {"row": f"{record['row']} ({label})"}
        for record in records
    ]


def _figures(method: str, cases: Sequence[Case]) -> Figures:
    ratios = {case.task: case.ratio for case in cases if case.ratio is not None}
    moving = [ratio for task, ratio in ratios.items() if not TASKS[task].still]
    single = {ratio: case.task for case in cases for ratio in case.ratios.values()}
    spreads = [case.spread for case in cases if case.spread is not None]
    seconds = [second for case in cases for second in case.seconds]
    return Figures(
        method=method,
        n_tasks=len(cases),
        n_fits=sum(len(case.scores) + len(case.failures) for case in cases),
        failures=sum(len(case.failures) for case in cases),
        fraction_well=float(np.mean([case.did_well for case in cases])),
        ratio=geometric_mean(ratios.values()),
        ratio_moving=geometric_mean(moving),
        worst=max(single, default=None),
        worst_task=single[max(single)] if single else None,
        spread=float(np.median(spreads)) if spreads else None,
        worst_spread=max(spreads, default=None),
        seconds=float(np.median(seconds)) if seconds else None,
        worst_seconds=max(seconds, default=None),
    )


def _ordered(tasks: Iterable[str]) -> list[str]:
    there = set(tasks)
    return [name for name in TASKS if name in there]


def _rank(method: str) -> tuple[int, str, bool]:
    """In the order of the table, the second start of a row beside its first."""
    row = method.removesuffix(_SECOND)
    name = row.partition(" (")[0]
    names = list(ROWS)
    return (names.index(name) if name in names else len(names)), row, is_second(method)
