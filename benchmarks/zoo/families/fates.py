"""Fates: one population splits in several, most coordinates have no part in it.

    dS = (2 - S) dt + s dB                  the stem, on its way to where the fates part
    dY = (sum_k r_k(Y) m_k - Y) a(S) dt - Y (1 - a(S)) dt + s dB
    dZ = -Z dt + sqrt(2) dB                 nuisance, stationary

with wells m_k, shares r_k(Y) = softmax(-|Y - m_k|^2 / 2v) and a(S) a step from 0 to 1 at S = 1.
"""

from dataclasses import dataclass

import numpy as np
from benchmarks.zoo.sde import Diffusion, Start, States, constant, normal
from benchmarks.zoo.task import FORECAST, INTERPOLATE, KnownTask, interior


def _toggle(x: States, t: float) -> States:
    """Two genes that repress each other; a negative level represses as 0 does."""
    other = np.maximum(x[:, ::-1], 0.0)
    return 3.0 / (1.0 + other**3) - x


@dataclass(frozen=True, eq=False)
class _Branching:
    """The drift above in `n_dims` coordinates: stem, those of the wells, nuisance."""

    wells: np.ndarray
    n_dims: int

    @property
    def n_signal(self) -> int:
        return 1 + self.wells.shape[1]

    def __call__(self, x: States, t: float) -> States:
        y = x[:, 1 : self.n_signal]
        away = 1.0 / (1.0 + np.exp(-8.0 * (x[:, :1] - 1.0)))
        drift = -x
        drift[:, :1] += 2.0
        drift[:, 1 : self.n_signal] += away * (self._responsible(y) @ self.wells)
        return drift

    def _responsible(self, y: States) -> np.ndarray:
        square = np.sum((y[:, None, :] - self.wells) ** 2, axis=2)
        weight = np.exp(-(square - square.min(axis=1, keepdims=True)) / 0.5)
        return weight / weight.sum(axis=1, keepdims=True)

    def start(self) -> Start:
        sd = np.ones(self.n_dims)
        sd[: self.n_signal] = 0.15
        return normal(0.0, sd, self.n_dims)

    def law(self) -> Diffusion:
        sigma = np.full(self.n_dims, np.sqrt(2.0))
        sigma[: self.n_signal] = 0.25
        return Diffusion(self, constant(sigma), self.start(), 0.04)


def _polygon(n_wells: int, radius: float) -> np.ndarray:
    angles = 2.0 * np.pi * np.arange(n_wells) / n_wells
    return radius * np.stack([np.cos(angles), np.sin(angles)], axis=1)


def branching(n_fates: int, radius: float, n_dims: int) -> Diffusion:
    """So many fates on a circle, in all of `n_dims` coordinates."""
    return _Branching(_polygon(n_fates, radius), n_dims).law()


_PAIR = np.array([[1.5], [-1.5]])
_TIMES = (0.0, 0.4, 0.8, 1.4, 2.0, 3.0)

TASKS: tuple[KnownTask, ...] = (
    KnownTask(
        name="toggle",
        family="fates",
        asks=FORECAST,
        law=Diffusion(_toggle, constant(0.3), normal(0.4, 0.2, 2), 0.04),
        times=(0.0, 0.5, 1.0, 2.0, 3.0, 4.0),
        asked=(4.0,),
        counts=400,
    ),
    KnownTask(
        name="two_fates",
        family="fates",
        asks=INTERPOLATE,
        law=_Branching(_PAIR, 2).law(),
        times=_TIMES,
        asked=interior(_TIMES, 3),
        counts=300,
    ),
    KnownTask(
        name="three_fates_10d",
        family="fates",
        asks=INTERPOLATE,
        law=branching(3, 2.0, 10),
        times=_TIMES,
        asked=interior(_TIMES, 3),
        counts=500,
    ),
    KnownTask(
        name="five_fates_30d",
        family="fates",
        asks=FORECAST,
        law=branching(5, 3.0, 30),
        times=(0.0, 0.4, 0.8, 1.4, 2.0, 3.0),
        asked=(3.0,),
        counts=600,
    ),
)
