"""Chaos: Lorenz's convection, seen a few times a turn.

dX = 10 (Y - X) dt + s dB,   dY = (X (28 - Z) - Y) dt + s dB,   dZ = (X Y - 8 Z / 3) dt + s dB
"""

import numpy as np
from benchmarks.zoo.sde import Diffusion, States, constant, normal
from benchmarks.zoo.task import FORECAST, INTERPOLATE, KnownTask, interior


def _lorenz(x: States, t: float) -> States:
    first = 10.0 * (x[:, 1] - x[:, 0])
    second = x[:, 0] * (28.0 - x[:, 2]) - x[:, 1]
    third = x[:, 0] * x[:, 1] - 8.0 / 3.0 * x[:, 2]
    return np.stack([first, second, third], axis=1)


_LAW = Diffusion(_lorenz, constant(0.5), normal((1.0, 1.0, 22.0), (2.0, 2.0, 2.0), 3), 0.005)
_TIMES = (0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7)

TASKS: tuple[KnownTask, ...] = (
    KnownTask(
        name="lorenz",
        family="chaos",
        asks=INTERPOLATE,
        law=_LAW,
        times=_TIMES,
        asked=interior(_TIMES, 4),
        counts=400,
    ),
    KnownTask(
        name="lorenz_thinned",
        family="chaos",
        asks=FORECAST,
        law=_LAW,
        times=(0.0, 0.3, 0.6, 0.9, 1.2, 1.5),
        asked=(1.5,),
        counts=400,
        remark="a turn takes about 0.7: two snapshots a turn",
    ),
)
