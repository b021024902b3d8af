"""What persistence and midpoint share: nothing is learned, and a forecast is a row of the snapshots."""

import abc
from typing import Any

import numpy as np

from itofit.face import Face, seed_of
from itofit.forecast import resampled
from itofit.snapshots.clouds import Snapshot, Snapshots
from itofit.solve.outcome import Outcome


class TrivialRow(Face):
    """A method without parameters; `start` has no meaning for it."""

    def __init__(self, *, random_state: int | np.integer | None = 0):
        self.random_state = random_state

    @abc.abstractmethod
    def _row(self, time: float) -> Snapshot:
        """The cloud at one time."""

    def _learn(self, snapshots: Snapshots, **how: Any) -> None:
        del snapshots, how
        self.seed_, self.outcome_, self.seconds_ = seed_of(self.random_state), Outcome.converged, 0.0

    def _carry(self, times: np.ndarray, n_samples: int | None, start: str, first: Snapshot | None) -> Snapshots:
        del start, first
        clouds = [self._row(float(t)) for t in times]
        drawn = [resampled(c.points, c.weights, n_samples, self.seed_ + i) for i, c in enumerate(clouds)]
        return Snapshots.from_arrays([x for x, _ in drawn], times, [w for _, w in drawn], self.snapshots_.names)

    def _values(self) -> dict[str, Any]:
        return {"seed": self.seed_}

    def _arrays(self) -> dict[str, np.ndarray]:
        return {}

    def _restore(self, values: dict[str, Any], arrays: dict[str, np.ndarray]) -> None:
        del arrays
        self.seed_, self.outcome_, self.seconds_ = values["seed"], Outcome.converged, 0.0
