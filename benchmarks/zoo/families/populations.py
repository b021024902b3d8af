"""Populations: what there is grows, and its noise grows with it.

    dX_i = X_i (r_i + sum_j A_ij X_j) dt + s_i X_i dW_i

Predator and prey, an epidemic in fractions susceptible and infected, prices; levels stay positive.
"""

import numpy as np
from benchmarks.zoo.sde import Diffusion, Field, Start, States
from benchmarks.zoo.task import FORECAST, INTERPOLATE, KnownTask, interior


def _per_head(growth: tuple[float, ...], coupling: tuple[tuple[float, ...], ...]) -> Field:
    rates = np.asarray(growth)
    matrix = np.asarray(coupling)
    return lambda x, t: x * (rates + x @ matrix.T)


def _proportional(*sigma: float) -> Field:
    return lambda x, t: np.asarray(sigma) * x


def _lognormal(median: tuple[float, ...], sd: float) -> Start:
    centre = np.asarray(median)
    return lambda rng, n: centre * np.exp(sd * rng.standard_normal((n, len(centre))))


def _outbreak(rng: np.random.Generator, n: int) -> States:
    """A few per cent are infected, all others can be."""
    infected = 0.03 * np.exp(0.4 * rng.standard_normal(n))
    return np.stack([1.0 - infected, infected], axis=1)


def _contacts(x: States, t: float) -> States:
    """The rate of contacts is uncertain as long as there are any; so is that of recovery."""
    return np.stack([0.3 * x[:, 0] * x[:, 1], 0.15 * x[:, 1]], axis=1)


_PREY_TIMES = tuple(0.7 * k for k in range(10))
_OUTBREAK_TIMES = (0.0, 1.0, 2.0, 3.0, 4.0, 6.0, 9.0)
_PRICE_TIMES = (0.0, 0.5, 1.0, 1.5, 2.0)

TASKS: tuple[KnownTask, ...] = (
    KnownTask(
        name="lotka_volterra",
        family="populations",
        asks=FORECAST,
        law=Diffusion(
            _per_head((1.2, -0.8), ((0.0, -0.6), (0.4, 0.0))),
            _proportional(0.1, 0.1),
            _lognormal((3.0, 1.0), 0.1),
            0.02,
        ),
        times=_PREY_TIMES,
        asked=_PREY_TIMES[-1:],
        counts=250,
    ),
    KnownTask(
        name="epidemic",
        family="populations",
        asks=INTERPOLATE,
        law=Diffusion(
            _per_head((0.0, -0.5), ((0.0, -1.8), (1.8, 0.0))), _contacts, _outbreak, 0.05
        ),
        times=_OUTBREAK_TIMES,
        asked=interior(_OUTBREAK_TIMES, 3),
        counts=300,
        remark="values between 0 and 1; noise vanishes with the infected",
    ),
    KnownTask(
        name="geometric_brownian",
        family="populations",
        asks=FORECAST,
        law=Diffusion(
            _per_head((0.8, -0.4), ((0.0, 0.0), (0.0, 0.0))),
            _proportional(0.3, 0.5),
            _lognormal((1.0, 4.0), 0.2),
            0.02,
        ),
        times=_PRICE_TIMES,
        asked=_PRICE_TIMES[-1:],
        counts=500,
    ),
    KnownTask(
        name="competition",
        family="populations",
        asks=INTERPOLATE,
        law=Diffusion(
            _per_head(
                (1.0, 1.0, 1.0), ((-1.0, -0.5, -1.6), (-1.6, -1.0, -0.5), (-0.5, -1.6, -1.0))
            ),
            _proportional(0.2, 0.2, 0.2),
            _lognormal((0.9, 0.2, 0.1), 0.25),
            0.05,
        ),
        times=(0.0, 1.0, 2.0, 4.0, 6.0, 8.0, 10.0),
        asked=(4.0,),
        counts=300,
        remark="each of three species is driven out by the next: gaps longer than a relaxation",
    ),
)
