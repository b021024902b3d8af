"""Gradient systems: a potential pulls downhill, noise carries over its barriers.

dX = -grad V(X) dt + s dW
"""

import numpy as np
from benchmarks.zoo.sde import Diffusion, States, constant, normal
from benchmarks.zoo.task import FORECAST, INTERPOLATE, KnownTask, interior

_ANGLES = 2.0 * np.pi * np.arange(3) / 3.0 + 0.3
_WELLS = 1.6 * np.stack([np.cos(_ANGLES), np.sin(_ANGLES)], axis=1)
_STIFFNESS = np.array([0.25, 0.5, 0.8, 1.2, 2.0])
_BEND = np.array([0.8, -0.6, 0.5, 0.0])


def _double_well(x: States, t: float) -> States:
    """V = x^4 / 2 - x^2."""
    return 2.0 * x - 2.0 * x**3


def _triple_well(x: States, t: float) -> States:
    """V = -v log sum_k exp(-|x - m_k|^2 / 2v) at v = 0.3."""
    square = np.sum((x[:, None, :] - _WELLS) ** 2, axis=2)
    weight = np.exp(-(square - square.min(axis=1, keepdims=True)) / 0.6)
    weight /= weight.sum(axis=1, keepdims=True)
    return weight @ _WELLS - x


def _ring(x: States, t: float) -> States:
    """V = (|x|^2 - 2)^2 / 4."""
    return -x * (np.sum(x**2, axis=1, keepdims=True) - 2.0)


def _plateau(x: States, t: float) -> States:
    """V = -x1 - x2 / 2 + (cos 4 x1 + cos 4 x2) / 5: a slope with dents in it."""
    return np.array([1.0, 0.5]) + 0.8 * np.sin(4.0 * x)


def _bowl(x: States, t: float) -> States:
    """V = sum_i k_i x_i^2 / 2."""
    return -_STIFFNESS * x


def _bent_double_well(x: States, t: float) -> States:
    """V = (x1^2 - 1)^2 / 2 + |x_rest - b x1^2|^2 / 2: the way between the wells is bent."""
    first = x[:, :1]
    rest = x[:, 1:] - _BEND * first**2
    along = -2.0 * first * (first**2 - 1.0) + 2.0 * first * (rest @ _BEND)[:, None]
    return np.concatenate([along, -rest], axis=1)


_SHORT = (0.0, 0.2, 0.4, 0.7, 1.0, 1.5)
_RING_TIMES = (0.0, 0.3, 0.8, 1.5, 2.5, 4.0)
_BOWL_TIMES = (0.0, 0.5, 1.0, 1.5, 2.0)
_BENT_TIMES = (0.0, 0.25, 0.5, 1.0, 1.5, 2.0)

TASKS: tuple[KnownTask, ...] = (
    KnownTask(
        name="double_well",
        family="gradient",
        asks=INTERPOLATE,
        law=Diffusion(_double_well, constant(0.6), normal(0.1, 0.2, 1), 0.02),
        times=_SHORT,
        asked=interior(_SHORT, 3),
        counts=400,
    ),
    KnownTask(
        name="triple_well",
        family="gradient",
        asks=FORECAST,
        law=Diffusion(_triple_well, constant(0.6), normal(0.0, 0.3, 2), 0.02),
        times=(0.0, 0.3, 0.6, 1.0, 1.5, 2.5),
        asked=(1.5, 2.5),
        counts=500,
    ),
    KnownTask(
        name="ring",
        family="gradient",
        asks=INTERPOLATE,
        law=Diffusion(_ring, constant(0.7), normal((2.2, 0.0), 0.2, 2), 0.01),
        times=_RING_TIMES,
        asked=interior(_RING_TIMES, 3),
        counts=300,
    ),
    KnownTask(
        name="rugged_plateau",
        family="gradient",
        asks=FORECAST,
        law=Diffusion(_plateau, constant(0.6), normal((-2.0, -1.0), 0.3, 2), 0.02),
        times=(0.0, 0.5, 1.0, 1.5, 2.0, 2.5, 3.0),
        asked=(3.0,),
        counts=400,
    ),
    KnownTask(
        name="far_bowl_5d",
        family="gradient",
        asks=INTERPOLATE,
        law=Diffusion(_bowl, constant(0.5), normal((6.0, -5.0, 4.0, -6.0, 5.0), 0.5, 5), 0.02),
        times=_BOWL_TIMES,
        asked=interior(_BOWL_TIMES, 2),
        counts=250,
    ),
    KnownTask(
        name="double_well_5d",
        family="gradient",
        asks=INTERPOLATE,
        law=Diffusion(
            _bent_double_well, constant(0.5), normal((0.2, 0.0, 0.0, 0.0, 1.5), 0.25, 5), 0.02
        ),
        times=_BENT_TIMES,
        asked=interior(_BENT_TIMES, 3),
        counts=400,
    ),
)
