"""Awkward samples of well-behaved systems: few points, uneven, spoilt.

    dX = (c - A (X - c)) dt + s dW,   then what happens between a law and a file

What is asked for is never spoilt.
"""

import numpy as np
from benchmarks.zoo.sde import Diffusion, States, constant, normal
from benchmarks.zoo.task import FORECAST, INTERPOLATE, Clouds, KnownTask, interior

_COPIES = 4


def _turning(x: States, t: float) -> States:
    """Round (1, 1), slowly inwards."""
    y = x - 1.0
    return np.stack([-0.3 * y[:, 0] - y[:, 1], y[:, 0] - 0.3 * y[:, 1]], axis=1)


def _drifting_wells(x: States, t: float) -> States:
    """On along x1, apart along x2."""
    return np.stack([np.full(len(x), 1.0), 1.5 * x[:, 1] - x[:, 1] ** 3], axis=1)


def _logistic(x: States, t: float) -> States:
    """Molecules that are made in proportion until there are 40 or 15 of them."""
    return x * np.array([1.2, 0.8]) * (1.0 - x / np.array([40.0, 15.0]))


def _counting_noise(x: States, t: float) -> States:
    return 0.7 * np.sqrt(np.maximum(x, 0.0))


def _chain(x: States, t: float) -> States:
    """Every coordinate is pulled to its neighbour's place, the first to 3."""
    goal = np.concatenate([np.full((len(x), 1), 3.0), x[:, :-1]], axis=1)
    return 1.5 * (goal - x)


def _to_rest(x: States, t: float) -> States:
    return -np.array([1.0, 0.5]) * x


def _outlier(rng: np.random.Generator, clouds: Clouds) -> Clouds:
    """One point of the third cloud is far off."""
    spoilt = [cloud.copy() for cloud in clouds]
    spoilt[2][0] = (60.0, -80.0)
    return spoilt


def _whole_numbers(rng: np.random.Generator, clouds: Clouds) -> Clouds:
    return [np.maximum(np.round(cloud), 0.0) for cloud in clouds]


def _batch_shift(rng: np.random.Generator, clouds: Clouds) -> Clouds:
    """The second cloud was measured by someone else."""
    n_dims = clouds[1].shape[1]
    shift = 0.8 * np.cos(2.0 * np.arange(n_dims))
    return [clouds[0], clouds[1] + shift, *clouds[2:]]


def _near_duplicates(rng: np.random.Generator, clouds: Clouds) -> Clouds:
    """A quarter of the points, each four times, 1e-6 apart."""
    repeated = [np.repeat(cloud[: len(cloud) // _COPIES], _COPIES, axis=0) for cloud in clouds]
    return [cloud + 1e-6 * rng.standard_normal(cloud.shape) for cloud in repeated]


_TURNING = Diffusion(_turning, constant(0.3), normal((3.0, 1.0), 0.3, 2), 0.05)
_WELLS = Diffusion(_drifting_wells, constant(0.4), normal(0.0, 0.25, 2), 0.05)
_MOLECULES = Diffusion(_logistic, _counting_noise, normal((4.0, 6.0), 1.0, 2), 0.05)
_CHAIN = Diffusion(_chain, constant(0.5), normal(0.0, 0.4, 10), 0.05)
_REST = Diffusion(_to_rest, constant((0.8, 0.5)), normal(0.0, (0.8 / np.sqrt(2.0), 0.5), 2), 0.02)

_TIMES = (0.0, 0.5, 1.0, 1.5, 2.0, 2.5)
_UNEVEN_TIMES = (0.0, 0.05, 0.1, 1.0, 1.1, 2.5, 4.5)

TASKS: tuple[KnownTask, ...] = (
    KnownTask(
        name="thirty_points",
        family="awkward",
        asks=INTERPOLATE,
        law=_WELLS,
        times=_TIMES,
        asked=interior(_TIMES, 3),
        counts=30,
    ),
    KnownTask(
        name="uneven_sizes",
        family="awkward",
        asks=INTERPOLATE,
        law=_TURNING,
        times=_TIMES,
        asked=interior(_TIMES, 2),
        counts=(2000, 60, 400, 150, 1200, 90),
    ),
    KnownTask(
        name="uneven_gaps",
        family="awkward",
        asks=FORECAST,
        law=_TURNING,
        times=_UNEVEN_TIMES,
        asked=_UNEVEN_TIMES[-1:],
        counts=300,
    ),
    KnownTask(
        name="one_outlier",
        family="awkward",
        asks=INTERPOLATE,
        law=_WELLS,
        times=_TIMES,
        asked=interior(_TIMES, 3),
        counts=300,
        spoil=_outlier,
        remark="a point at (60, -80), all others within 4 of the origin",
    ),
    KnownTask(
        name="whole_numbers",
        family="awkward",
        asks=FORECAST,
        law=_MOLECULES,
        times=(0.0, 0.6, 1.2, 1.8, 2.4, 3.0),
        asked=(3.0,),
        counts=300,
        spoil=_whole_numbers,
        remark="the clouds given are rounded to counts and full of ties; those asked for are not",
    ),
    KnownTask(
        name="batch_shift_10d",
        family="awkward",
        asks=INTERPOLATE,
        law=_CHAIN,
        times=_TIMES,
        asked=interior(_TIMES, 3),
        counts=400,
        spoil=_batch_shift,
        remark="one cloud given is shifted by a vector of length 1.8",
    ),
    KnownTask(
        name="day_of_three",
        family="awkward",
        asks=FORECAST,
        law=_TURNING,
        times=_TIMES,
        asked=_TIMES[-1:],
        counts=(300, 300, 3, 300, 300, 300),
    ),
    KnownTask(
        name="near_duplicates",
        family="awkward",
        asks=INTERPOLATE,
        law=_WELLS,
        times=_TIMES,
        asked=interior(_TIMES, 2),
        counts=800,
        spoil=_near_duplicates,
        remark="200 points a cloud given, each four times",
    ),
    KnownTask(
        name="at_rest",
        family="awkward",
        asks=FORECAST,
        law=_REST,
        times=_TIMES,
        asked=_TIMES[-1:],
        counts=300,
        still=True,
        remark="stationary: nothing moves, and persistence is right",
    ),
)
