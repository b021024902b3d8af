"""Linear systems with sparse coupling.

    dX = A (X - c) dt + s dW,   A = -diag(d) + two couplings a row

A is drawn once, from a seed of its own that leaves all its modes stable.
"""

import numpy as np
from benchmarks.zoo.sde import Diffusion, constant, normal
from benchmarks.zoo.task import FORECAST, INTERPOLATE, KnownTask, interior

_COUPLINGS = 2


def _sparse_matrix(rng: np.random.Generator, n_dims: int) -> np.ndarray:
    matrix = np.diag(-rng.uniform(0.8, 1.6, n_dims))
    for row in range(n_dims):
        others = np.delete(np.arange(n_dims), row)
        drivers = rng.choice(others, _COUPLINGS, replace=False)
        matrix[row, drivers] = rng.choice([-0.7, 0.7], _COUPLINGS)
    return matrix


def _linear(n_dims: int) -> Diffusion:
    rng = np.random.default_rng(n_dims)
    matrix = _sparse_matrix(rng, n_dims)
    centre = rng.normal(size=n_dims)
    start = centre + rng.choice([-2.0, 2.0], n_dims)
    return Diffusion(
        lambda x, t: (x - centre) @ matrix.T, constant(0.5), normal(start, 0.5, n_dims), 0.05
    )


_TIMES = (0.0, 0.3, 0.6, 1.0, 1.5)

TASKS: tuple[KnownTask, ...] = (
    KnownTask(
        name="linear_5d",
        family="linear",
        asks=FORECAST,
        law=_linear(5),
        times=_TIMES,
        asked=_TIMES[-1:],
        counts=300,
    ),
    KnownTask(
        name="linear_20d",
        family="linear",
        asks=INTERPOLATE,
        law=_linear(20),
        times=_TIMES,
        asked=interior(_TIMES, 2),
        counts=400,
    ),
    KnownTask(
        name="linear_50d",
        family="linear",
        asks=INTERPOLATE,
        law=_linear(50),
        times=_TIMES,
        asked=interior(_TIMES, 3),
        counts=600,
    ),
)
