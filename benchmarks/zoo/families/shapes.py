"""Few coordinates matter: clouds near a curved surface, or signal among noise.

Y = phi(X) + e,   dX = g(X) dt + s dW,   phi a smooth map into more dimensions
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from benchmarks.zoo.sde import Diffusion, Law, States, constant, normal
from benchmarks.zoo.task import FORECAST, INTERPOLATE, KnownTask, interior


@dataclass(frozen=True)
class Embedded:
    """A law seen through a map, with an error of sd `sd` in every coordinate."""

    law: Law
    embed: Callable[[np.ndarray], np.ndarray]
    sd: float

    def sample(self, rng: np.random.Generator, n: int, times: Sequence[float]) -> np.ndarray:
        """`n` particles, each at all of the increasing `times`."""
        points = self.embed(self.law.sample(rng, n, times))
        return points + self.sd * rng.standard_normal(points.shape)


_RNG = np.random.default_rng(20)
_WAVES = _RNG.normal(0.0, 0.8, (2, 20))
_PHASES = _RNG.uniform(0.0, 2.0 * np.pi, 20)
_SIGNAL = (4, 11, 17)
_MIXING = np.array([[1.0, 0.0, 0.0], [0.9, 0.4, 0.0], [-0.5, 0.6, 0.6]])


def _curved(x: np.ndarray) -> np.ndarray:
    """Twenty waves over the plane."""
    return 2.0 * np.sin(x @ _WAVES + _PHASES)


def _mixed(x: np.ndarray) -> np.ndarray:
    return x @ _MIXING.T


def _orbit(x: States, t: float) -> States:
    """Turns, and is drawn to the circle of radius 1.5."""
    turned = np.stack([-x[:, 1], x[:, 0]], axis=1)
    return turned + 0.5 * x * (2.25 - np.sum(x**2, axis=1, keepdims=True))


def _cascade(x: States, t: float) -> States:
    """Three of the coordinates are a chain from source to product; all others are stationary."""
    source, carrier, product = (x[:, k] for k in _SIGNAL)
    drift = -x
    drift[:, _SIGNAL[0]] = -1.5 * source
    drift[:, _SIGNAL[1]] = 1.5 * source - carrier
    drift[:, _SIGNAL[2]] = carrier - 0.3 * product
    return drift


def _cascade_law() -> Diffusion:
    mean = np.zeros(20)
    mean[_SIGNAL[0]] = 5.0
    sigma = np.full(20, np.sqrt(2.0))
    sigma[list(_SIGNAL)] = 0.4
    sd = np.where(sigma > 1.0, 1.0, 0.4)
    return Diffusion(_cascade, constant(sigma), normal(mean, sd, 20), 0.04)


def _independent(x: States, t: float) -> States:
    return np.array([1.0, -0.5, 2.0]) - np.array([0.5, 1.0, 1.5]) * x


_TIMES = (0.0, 0.5, 1.0, 1.5, 2.0, 2.5)

TASKS: tuple[KnownTask, ...] = (
    KnownTask(
        name="curved_surface_20d",
        family="shapes",
        asks=INTERPOLATE,
        law=Embedded(
            Diffusion(_orbit, constant(0.25), normal((1.5, 0.0), 0.3, 2), 0.04), _curved, 0.1
        ),
        times=_TIMES,
        asked=interior(_TIMES, 3),
        counts=400,
    ),
    KnownTask(
        name="signal_3_of_20",
        family="shapes",
        asks=FORECAST,
        law=_cascade_law(),
        times=_TIMES,
        asked=_TIMES[-1:],
        counts=400,
    ),
    KnownTask(
        name="correlated_noise",
        family="shapes",
        asks=INTERPOLATE,
        law=Embedded(
            Diffusion(
                _independent, constant((1.2, 0.8, 0.6)), normal((-1.0, 2.0, 0.0), 0.3, 3), 0.05
            ),
            _mixed,
            0.0,
        ),
        times=_TIMES,
        asked=interior(_TIMES, 2),
        counts=300,
    ),
)
