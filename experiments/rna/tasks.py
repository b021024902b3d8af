"""The two tasks, the two clocks, and the clouds of a task in the units of its last training day.

The paper takes dt = 0.05 and 10, 10 and 15 steps between the days, which is 2 : 2 : 3: in days with
dt = 0.2 it is the same problem in another unit of time.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from experiments.rna.counts import DAYS, MARKERS, Counts
from experiments.rna.preprocess import imputed_markers
from itofit import InputError, Snapshots
from itofit.face import Face
from itofit.snapshots.clouds import Snapshot
from itofit.snapshots.scaling import Scaling


class Task(NamedTuple):
    """Days to learn from, and the one to forecast."""

    training: tuple[int, ...]
    held_out: int
    kind: str

    def __str__(self) -> str:
        return f"{', '.join(f'D{day}' for day in self.training)} -> D{self.held_out} ({self.kind})"


class Clock(NamedTuple):
    """The time of one day, and the step."""

    per_day: float
    dt: float

    def at(self, day: int) -> float:
        """The time of a day."""
        return day * self.per_day


TASKS = {
    1: Task((0, 4, 7), 2, "between snapshots"),
    2: Task((0, 2, 4), 7, "beyond the last snapshot"),
}
CLOCKS = {"paper": Clock(0.25, 0.05), "days": Clock(1.0, 0.2)}


@dataclass(frozen=True, eq=False)
class Clouds:
    """The markers in logs for one task, made when first asked for."""

    counts: Counts
    task: Task

    @cached_property
    def by_day(self) -> dict[int, np.ndarray]:
        """One row a cell, one column a marker."""
        return imputed_markers(self.counts, self.task.training[0], self.task.training[-1])

    @cached_property
    def unit(self) -> Scaling:
        """The unit in which methods are given the clouds: that of the last training day."""
        return _scaling(self.by_day[self.task.training[-1]])

    @cached_property
    def last_day(self) -> Scaling:
        """The published unit, that of D7: for reports only, since task 2 holds that day out."""
        return _scaling(self.by_day[DAYS[-1]])

    def observed(self, day: int) -> Snapshot:
        """The cells of a day in logs."""
        cloud = self.by_day[day]
        return Snapshot(float(day), cloud, np.full(len(cloud), 1.0 / len(cloud)))

    def training(self, clock: Clock) -> Snapshots:
        """What a method is given."""
        clouds = [self.unit.standardise(self.by_day[day]) for day in self.task.training]
        return Snapshots.from_arrays(
            clouds, [clock.at(day) for day in self.task.training], names=MARKERS
        )

    def predicted(
        self, model: Face, clock: Clock, day: int, start: str = "initial"
    ) -> Snapshot | None:
        """A forecast in logs; None where the model gives none."""
        try:
            forecast = model.forecast([clock.at(day)], start=start)
        except InputError:
            return None
        points = self.unit.restore(forecast.clouds[0])
        return Snapshot(float(day), points, forecast.weights[0])


def _scaling(cloud: np.ndarray) -> Scaling:
    return Scaling(cloud.mean(axis=0), cloud.std(axis=0))
