"""Flows without a potential: rotation, saddle, and tracers in an ocean's stream function.

dX = (-d psi / dx2, d psi / dx1) dt + s dW
"""

import numpy as np
from benchmarks.zoo.sde import Diffusion, States, constant, normal
from benchmarks.zoo.task import FORECAST, INTERPOLATE, KnownTask, interior


def _shear(x: States, t: float) -> States:
    """Rotation that is faster inside: 3 / (1 + |x|^2) a unit of time."""
    turned = np.stack([-x[:, 1], x[:, 0]], axis=1)
    return 3.0 * turned / (1.0 + np.sum(x**2, axis=1, keepdims=True))


def _saddle(x: States, t: float) -> States:
    return np.array([0.9, -0.9]) * x


def _gyres(x: States, t: float) -> States:
    """The stream psi = sin x1 sin x2 - x2 / 4: cells that turn in a steady current."""
    u = -np.sin(x[:, 0]) * np.cos(x[:, 1]) + 0.25
    v = np.cos(x[:, 0]) * np.sin(x[:, 1])
    return np.stack([u, v], axis=1)


def _jet(x: States, t: float) -> States:
    """The stream psi = -tanh(x2 - sin(x1) / 2) + x2 / 10: a jet that meanders east, return flow."""
    speed = 1.0 / np.cosh(x[:, 1] - 0.5 * np.sin(x[:, 0])) ** 2
    return np.stack([speed - 0.1, 0.5 * np.cos(x[:, 0]) * speed], axis=1)


_SHEAR_TIMES = (0.0, 0.4, 0.8, 1.2, 1.6, 2.0)
_SADDLE_TIMES = (0.0, 0.5, 1.0, 1.5, 2.0)
_GYRE_TIMES = (0.0, 0.8, 1.6, 2.4, 3.2, 4.0, 4.8)
_JET_TIMES = (0.0, 1.0, 2.0, 3.0, 4.0, 5.0)

TASKS: tuple[KnownTask, ...] = (
    KnownTask(
        name="rotation_with_shear",
        family="flows",
        asks=INTERPOLATE,
        law=Diffusion(_shear, constant(0.15), normal((1.2, 0.0), (0.5, 0.2), 2), 0.02),
        times=_SHEAR_TIMES,
        asked=interior(_SHEAR_TIMES, 3),
        counts=400,
    ),
    KnownTask(
        name="saddle",
        family="flows",
        asks=FORECAST,
        law=Diffusion(_saddle, constant(0.3), normal((0.2, 2.5), 0.3, 2), 0.02),
        times=_SADDLE_TIMES,
        asked=_SADDLE_TIMES[-1:],
        counts=300,
    ),
    KnownTask(
        name="ocean_gyres",
        family="flows",
        asks=INTERPOLATE,
        law=Diffusion(_gyres, constant(0.15), normal((1.0, 1.0), 0.4, 2), 0.04),
        times=_GYRE_TIMES,
        asked=interior(_GYRE_TIMES, 4),
        counts=400,
    ),
    KnownTask(
        name="ocean_jet",
        family="flows",
        asks=FORECAST,
        law=Diffusion(_jet, constant(0.15), normal((0.0, 0.0), (0.4, 0.7), 2), 0.04),
        times=_JET_TIMES,
        asked=_JET_TIMES[-2:],
        counts=600,
    ),
)
