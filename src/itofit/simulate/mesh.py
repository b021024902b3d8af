"""A mesh of times: every observation, and each gap cut into steps no longer than dt (Remark 1)."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int


@dataclass(frozen=True, eq=False)
class Mesh:
    """Nodes s_0 < ... < s_K with the positions of the observation times among them.

    - `times`: the nodes.
    - `observed`: `times[observed[n]]` is the n-th observation time.
    """

    times: Float[np.ndarray, " n_nodes"]
    observed: tuple[int, ...]

    @classmethod
    def refine(cls, times: Sequence[float] | np.ndarray, dt: float) -> "Mesh":
        """Cut every gap between consecutive times into equal steps no longer than `dt`."""
        times = np.asarray(times, dtype=np.float64)
        return cls._with(times, steps_per_gap(np.diff(times), dt))

    @classmethod
    def cut(
        cls, times: Sequence[float] | np.ndarray, n_steps: int | Int[np.ndarray, " n_gaps"]
    ) -> "Mesh":
        """Cut every gap between consecutive times into equal steps, `n_steps` or so many each."""
        times = np.asarray(times, dtype=np.float64)
        return cls._with(times, np.broadcast_to(n_steps, len(times) - 1))

    @classmethod
    def _with(cls, times: np.ndarray, counts: np.ndarray) -> "Mesh":
        pieces = [
            np.linspace(a, b, n + 1)[:-1]
            for a, b, n in zip(times[:-1], times[1:], counts, strict=True)
        ]
        nodes = np.concatenate([*pieces, times[-1:]])
        observed = np.concatenate([[0], np.cumsum(counts)])
        return cls(nodes, tuple(int(i) for i in observed))

    @property
    def counts(self) -> Int[np.ndarray, " n_gaps"]:
        """How many steps every gap has."""
        return np.diff(self.observed)

    @property
    def steps(self) -> Float[np.ndarray, " n_steps"]:
        """Lengths of the steps."""
        return np.diff(self.times)

    def between(self, first: int, last: int) -> "Mesh":
        """The part from observation `first` to observation `last`."""
        a = self.observed[first]
        b = self.observed[last]
        observed = tuple(i - a for i in self.observed[first : last + 1])
        return Mesh(self.times[a : b + 1], observed)


def steps_per_gap(gaps: np.ndarray, dt: float) -> np.ndarray:
    """Number of steps no longer than `dt`, up to rounding by 1e-9 of it, in each gap."""
    return np.maximum(1, np.ceil(gaps / dt * (1.0 - 1e-9))).astype(int)
