"""Drifts that change in time.

dX = g(X, t) dt + s dW
"""

import numpy as np
from benchmarks.zoo.sde import Diffusion, States, constant, normal
from benchmarks.zoo.task import FORECAST, INTERPOLATE, KnownTask, interior

_SWITCH = 1.0


def _moving_well(x: States, t: float) -> States:
    """The centre goes round a circle of radius 2 in 5.2 units of time."""
    centre = 2.0 * np.array([np.cos(1.2 * t), np.sin(1.2 * t)])
    return 2.0 * (centre - x)


def _treatment(x: States, t: float) -> States:
    """Pulled to one place before the switch, to another after it."""
    goal = np.array([2.0, 0.0]) if t < _SWITCH else np.array([0.0, -2.0])
    return 1.5 * (goal - x)


def _season(x: States, t: float) -> States:
    """A well that becomes two: dX = (a(t) X - X^3) dt, a from -2 to 2."""
    return (t - 2.0) * x - x**3


_WELL_TIMES = (0.0, 0.6, 1.2, 1.8, 2.4, 3.0, 3.6)
_TREATMENT_TIMES = (0.0, 0.3, 0.6, 0.9, 1.2, 1.5, 1.8, 2.1)
_SEASON_TIMES = (0.0, 1.0, 2.0, 2.7, 3.4, 4.0)

TASKS: tuple[KnownTask, ...] = (
    KnownTask(
        name="moving_well",
        family="changing",
        asks=INTERPOLATE,
        law=Diffusion(_moving_well, constant(0.5), normal((2.0, 0.0), 0.3, 2), 0.02),
        times=_WELL_TIMES,
        asked=interior(_WELL_TIMES, 3),
        counts=300,
        remark="the drift depends on time",
    ),
    KnownTask(
        name="switch_in_time",
        family="changing",
        asks=FORECAST,
        law=Diffusion(_treatment, constant(0.4), normal((-1.0, 1.0), 0.3, 2), 0.02),
        times=_TREATMENT_TIMES,
        asked=_TREATMENT_TIMES[-1:],
        counts=300,
        remark="the drift changes at t = 1, between two snapshots",
    ),
    KnownTask(
        name="splitting_well",
        family="changing",
        asks=INTERPOLATE,
        law=Diffusion(_season, constant(0.4), normal(0.0, 0.3, 1), 0.04),
        times=_SEASON_TIMES,
        asked=interior(_SEASON_TIMES, 4),
        counts=400,
        remark="the drift depends on time",
    ),
)
