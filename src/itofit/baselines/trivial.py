"""What persistence, midpoint and continuation share: nothing is learned, and a forecast is worked
out from the snapshots when it is asked for.
"""

import abc
from typing import Any

import numpy as np

from itofit.face import Face
from itofit.forecast import resampled
from itofit.problem import Stream, Streams
from itofit.snapshots.clouds import Snapshot, Snapshots
from itofit.solution import Outcome
from itofit.solve.listeners import Watch


class TrivialRow(Face):
    """A method without parameters; `start` has no meaning for it."""

    def __init__(self, *, random_state: int | np.integer | None = 0):
        self.random_state = random_state

    @abc.abstractmethod
    def _row(self, time: float) -> Snapshot:
        """The cloud at one time."""

    def _learn(self, snapshots: Snapshots, watch: Watch) -> None:
        del snapshots
        watch.refuse_checkpoints(self.method)
        self.seed_ = Streams.of(self.random_state).seed
        self.outcome_ = Outcome.converged
        self.seconds_ = 0.0

    def _carry(
        self, times: np.ndarray, n_samples: int | None, start: str, first: Snapshot | None
    ) -> Snapshots:
        del start, first
        points = []
        weights = []
        for i, time in enumerate(times):
            rng = self._streams.rng(Stream.resampling, i)
            cloud = resampled(self._row(float(time)), n_samples, rng)
            points.append(cloud.points)
            weights.append(cloud.weights)
        return Snapshots.from_arrays(points, times, weights, self.snapshots_.names)

    def _notes(self) -> tuple[str, ...]:
        return self._remark()

    def _values(self) -> dict[str, Any]:
        return {"seed": self.seed_}

    def _arrays(self) -> dict[str, np.ndarray]:
        return {}

    def _restore(self, values: dict[str, Any], arrays: dict[str, np.ndarray]) -> None:
        del arrays
        self.seed_ = values["seed"]
        self.outcome_ = Outcome.converged
        self.seconds_ = 0.0
