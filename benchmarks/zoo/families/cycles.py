"""Limit cycles: the law goes round and comes back, out of phase.

    dV = 3 (V - V^3 / 3 - W + I) dt + s dB        dW = 0.6 (V + 0.7 - 0.8 W) dt + s dB

FitzHugh and Nagumo's neuron; Brussels' chemistry; loops of genes, each of which represses the next.
"""

import numpy as np
from benchmarks.zoo.sde import Diffusion, Field, States, constant, normal
from benchmarks.zoo.task import FORECAST, INTERPOLATE, KnownTask, interior


def _neuron(x: States, t: float) -> States:
    voltage = x[:, 0]
    recovery = x[:, 1]
    fast = 3.0 * (voltage - voltage**3 / 3.0 - recovery + 0.5)
    slow = 0.6 * (voltage + 0.7 - 0.8 * recovery)
    return np.stack([fast, slow], axis=1)


def _brusselator(x: States, t: float) -> States:
    """A = 1, B = 2.4."""
    cubic = x[:, 0] ** 2 * x[:, 1]
    return np.stack([1.0 + cubic - 3.4 * x[:, 0], 2.4 * x[:, 0] - cubic], axis=1)


def _negative_loop(strength: float, steepness: int) -> Field:
    """dX_i = (0.1 + a / (1 + X_{i-1}^n) - X_i) dt; a negative level represses as 0 does."""

    def drift(x: States, t: float) -> States:
        repressor = np.maximum(np.roll(x, 1, axis=1), 0.0)
        return 0.1 + strength / (1.0 + repressor**steepness) - x

    return drift


_NEURON_TIMES = tuple(0.6 * k for k in range(9))
_GENE_TIMES = (0.0, 0.5, 1.0, 1.5, 2.0, 2.5, 3.0, 3.5)

TASKS: tuple[KnownTask, ...] = (
    KnownTask(
        name="fitzhugh_nagumo",
        family="cycles",
        asks=INTERPOLATE,
        law=Diffusion(_neuron, constant((0.25, 0.1)), normal((-1.2, -0.4), 0.15, 2), 0.02),
        times=_NEURON_TIMES,
        asked=interior(_NEURON_TIMES, 5),
        counts=300,
    ),
    KnownTask(
        name="brusselator",
        family="cycles",
        asks=FORECAST,
        law=Diffusion(_brusselator, constant(0.1), normal((1.5, 1.5), 0.15, 2), 0.02),
        times=(0.0, 0.8, 1.6, 2.4, 3.2, 4.0, 4.8, 5.6, 6.4),
        asked=(6.4,),
        counts=300,
    ),
    KnownTask(
        name="three_gene_loop",
        family="cycles",
        asks=INTERPOLATE,
        law=Diffusion(
            _negative_loop(5.0, 4), constant(0.15), normal((2.5, 0.4, 1.0), 0.2, 3), 0.02
        ),
        times=_GENE_TIMES,
        asked=interior(_GENE_TIMES, 4),
        counts=350,
    ),
    KnownTask(
        name="five_gene_loop",
        family="cycles",
        asks=FORECAST,
        law=Diffusion(
            _negative_loop(6.0, 3), constant(0.15), normal((3.0, 0.5, 2.5, 0.5, 1.0), 0.2, 5), 0.04
        ),
        times=(0.0, 0.8, 1.6, 2.4, 3.2, 4.0, 4.8, 5.6, 6.4, 7.2),
        asked=(6.4, 7.2),
        counts=300,
    ),
)
