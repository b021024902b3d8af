"""Simulated laws: dX = g(X, t) dt + s(X, t) dW by Euler-Maruyama, in numpy.

    X_{k+1} = X_k + g(X_k, t_k) h + s(X_k, t_k) sqrt(h) xi

The chain with its own short step is the truth that scores refer to. A law draws particles at many
times; a task observes every particle at one of them only, so no identity is left to use.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

States = np.ndarray
"""Points in rows, `(n, n_dims)`."""

Field = Callable[[States, float], States]
Start = Callable[[np.random.Generator, int], States]


class Law(Protocol):
    """What draws particles: row i is one particle at all `times`, `(n_times, n, n_dims)`."""

    def sample(self, rng: np.random.Generator, n: int, times: Sequence[float]) -> np.ndarray:
        """`n` particles, each at all of the increasing `times`."""
        ...


@dataclass(frozen=True)
class Diffusion:
    """An Itô process with independent noise in every coordinate.

    - `drift(x, t)` and `noise(x, t)`: rows of states in, rows of g and of sigma out.
    - `start(rng, n)`: the law at time 0.
    - `step`: longest step of the chain, short against the system's own time.
    """

    drift: Field
    noise: Field
    start: Start
    step: float

    def sample(self, rng: np.random.Generator, n: int, times: Sequence[float]) -> np.ndarray:
        """`n` particles, each at all of the increasing `times`."""
        x = self.start(rng, n)
        now = 0.0
        clouds = []
        for time in times:
            x = self._carried(rng, x, now, time)
            now = time
            clouds.append(x)
        return np.stack(clouds)

    def _carried(self, rng: np.random.Generator, x: States, begin: float, end: float) -> States:
        n_steps = int(np.ceil((end - begin) / self.step - 1e-9))
        if n_steps <= 0:
            return x
        h = (end - begin) / n_steps
        for k in range(n_steps):
            t = begin + k * h
            shock = np.sqrt(h) * rng.standard_normal(x.shape)
            x = x + h * self.drift(x, t) + self.noise(x, t) * shock
        return x


def constant(sigma: float | Sequence[float]) -> Field:
    """The same noise everywhere, one number or one a coordinate."""
    value = np.asarray(sigma, dtype=np.float64)
    return lambda x, t: np.broadcast_to(value, x.shape)


def normal(mean: float | Sequence[float], sd: float | Sequence[float], n_dims: int) -> Start:
    """A normal law with independent coordinates."""
    centre = np.broadcast_to(np.asarray(mean, dtype=np.float64), n_dims)
    width = np.broadcast_to(np.asarray(sd, dtype=np.float64), n_dims)
    return lambda rng, n: centre + width * rng.standard_normal((n, n_dims))
