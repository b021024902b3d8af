"""Laws that no diffusion with a smooth drift has: what a model meets when it is wrong.

dX = g(X) dt + dL,   L with heavy tails or with jumps;   Y = X + e;   mass that grows with c(X)
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from benchmarks.zoo.sde import Diffusion, Law, Start, States, constant, normal
from benchmarks.zoo.task import FORECAST, INTERPOLATE, KnownTask, interior

Shocks = Callable[[np.random.Generator, tuple[int, ...], float], np.ndarray]
"""(rng, shape, h) -> what a step of length h adds beside the drift."""


@dataclass(frozen=True)
class Driven:
    """X_{k+1} = X_k + g(X_k) h + shock, for shocks that need not be normal."""

    drift: Callable[[States], States]
    shocks: Shocks
    start: Start
    step: float

    def sample(self, rng: np.random.Generator, n: int, times: Sequence[float]) -> np.ndarray:
        """`n` particles, each at all of the increasing `times`."""
        x = self.start(rng, n)
        now = 0.0
        clouds = []
        for time in times:
            n_steps = int(np.ceil((time - now) / self.step - 1e-9))
            for _ in range(n_steps):
                h = (time - now) / n_steps
                x = x + h * self.drift(x) + self.shocks(rng, x.shape, h)
            now = time
            clouds.append(x)
        return np.stack(clouds)


@dataclass(frozen=True)
class Measured:
    """Every observation of a law has an error of its own."""

    law: Law
    sd: float

    def sample(self, rng: np.random.Generator, n: int, times: Sequence[float]) -> np.ndarray:
        """`n` particles, each at all of the increasing `times`."""
        paths = self.law.sample(rng, n, times)
        return paths + self.sd * rng.standard_normal(paths.shape)


@dataclass(frozen=True)
class Seen:
    """The first `n_dims` coordinates of a law; the others are hidden."""

    law: Law
    n_dims: int

    def sample(self, rng: np.random.Generator, n: int, times: Sequence[float]) -> np.ndarray:
        """`n` particles, each at all of the increasing `times`."""
        return self.law.sample(rng, n, times)[:, :, : self.n_dims]


@dataclass(frozen=True)
class Growing:
    """Particles of a diffusion that multiply at a rate of the place: exp(integral of c(X)) each.

    A row stands for `n_kin` particles. At every time one of them is drawn, by its mass.
    """

    law: Diffusion
    rate: Callable[[States], np.ndarray]
    n_kin: int = 12

    def sample(self, rng: np.random.Generator, n: int, times: Sequence[float]) -> np.ndarray:
        """`n` rows, each at all of the increasing `times`."""
        n_steps = int(np.ceil(times[-1] / self.law.step - 1e-9))
        mesh = np.union1d(times, np.linspace(0.0, times[-1], n_steps + 1))
        paths = self.law.sample(rng, n * self.n_kin, mesh)
        rates = np.stack([self.rate(x) for x in paths])
        log_mass = np.concatenate(
            [np.zeros((1, n * self.n_kin)), np.cumsum(rates[:-1] * np.diff(mesh)[:, None], axis=0)]
        )
        return np.stack([self._drawn(rng, paths[k], log_mass[k]) for k in mesh.searchsorted(times)])

    def _drawn(self, rng: np.random.Generator, x: States, log_mass: np.ndarray) -> States:
        """One of the kin of every row; the largest log mass + Gumbel noise is a draw by mass."""
        chosen = np.argmax((log_mass + rng.gumbel(size=len(x))).reshape(-1, self.n_kin), axis=1)
        return x.reshape(-1, self.n_kin, x.shape[1])[np.arange(len(chosen)), chosen]


def _heavy(rng: np.random.Generator, shape: tuple[int, ...], h: float) -> np.ndarray:
    """Student's t with 2.5 degrees of freedom: a variance, but no third moment."""
    return 0.25 * np.sqrt(h) * rng.standard_t(2.5, shape)


def _jumping(rng: np.random.Generator, shape: tuple[int, ...], h: float) -> np.ndarray:
    """Small normal shocks, and now and then a jump up by about 2."""
    jumps = rng.random(shape) < 0.6 * h
    size = rng.normal(2.0, 0.3, shape)
    return 0.3 * np.sqrt(h) * rng.standard_normal(shape) + jumps * size


def _spiral(x: States, t: float = 0.0) -> States:
    """Round the origin once in 4.2 units of time, slowly inwards."""
    return np.stack([-0.2 * x[:, 0] - 1.5 * x[:, 1], 1.5 * x[:, 0] - 0.2 * x[:, 1]], axis=1)


def _relaxing(x: States) -> States:
    return -0.7 * x


def _pendulum(x: States, t: float) -> States:
    """Angle and its velocity."""
    return np.stack([x[:, 1], -2.0 * np.sin(x[:, 0]) - 0.2 * x[:, 1]], axis=1)


def _uphill(x: States) -> np.ndarray:
    """Mass grows at rate 1.5 where x1 > 1 and hardly elsewhere."""
    return 1.5 / (1.0 + np.exp(-4.0 * (x[:, 0] - 1.0)))


def _current(x: States, t: float) -> States:
    return np.stack([0.5 - 0.2 * x[:, 0], -x[:, 1]], axis=1)


_TIMES = (0.0, 0.5, 1.0, 1.5, 2.0, 2.5)
_SWING_TIMES = (0.0, 0.3, 0.6, 0.9, 1.2, 1.5, 1.8)

TASKS: tuple[KnownTask, ...] = (
    KnownTask(
        name="heavy_tails",
        family="disturbed",
        asks=INTERPOLATE,
        law=Driven(_spiral, _heavy, normal((2.0, 0.0), 0.2, 2), 0.25),
        times=_TIMES,
        asked=interior(_TIMES, 3),
        counts=400,
        remark="shocks of Student's t, every 0.25 units of time: misspecified",
    ),
    KnownTask(
        name="jumps",
        family="disturbed",
        asks=FORECAST,
        law=Driven(_relaxing, _jumping, normal((2.0, -1.0), 0.2, 2), 0.05),
        times=(0.0, 0.3, 0.6, 1.0, 1.5),
        asked=(1.5,),
        counts=400,
        remark="compound Poisson jumps: misspecified",
    ),
    KnownTask(
        name="measurement_noise",
        family="disturbed",
        asks=INTERPOLATE,
        law=Measured(Diffusion(_spiral, constant(0.2), normal((2.0, 0.0), 0.2, 2), 0.05), 0.5),
        times=_TIMES,
        asked=interior(_TIMES, 2),
        counts=400,
        remark="every point, asked for too, has an error of sd 0.5: misspecified",
    ),
    KnownTask(
        name="growing_mass",
        family="disturbed",
        asks=FORECAST,
        law=Growing(Diffusion(_current, constant(0.6), normal(0.0, 0.4, 2), 0.05), _uphill),
        times=_TIMES,
        asked=_TIMES[-1:],
        counts=300,
        remark="mass grows in one place and clouds are normalised: misspecified",
    ),
    KnownTask(
        name="hidden_velocity",
        family="disturbed",
        asks=INTERPOLATE,
        law=Seen(Diffusion(_pendulum, constant((0.0, 0.3)), normal((1.2, 0.0), 0.3, 2), 0.03), 1),
        times=_SWING_TIMES,
        asked=interior(_SWING_TIMES, 3),
        counts=300,
        remark="a pendulum whose velocity is not observed: no Markov process, misspecified",
    ),
)
