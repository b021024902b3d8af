"""Weights of a mixture of forecasts: those of least energy distance to what was left out.

    minimise   E(w) + doubt max(M, .2 n) sum_i (w_i - p_i)^2 / p_i       w >= 0,  sum w = 1
    E(w)     = sum over snapshots left out of  counts worth (2 w'A - w'B w) / (size s)
    A_i = E|X_i - Y|,   B_ij = E|X_i - X_j|,   s = E|Y - Y'|,   size = that of the best way

The energy distance of a mixture is a quadratic function of its weights, and a convex one, so the
best mixture is found without another forecast. A few snapshots left out tell a large difference
from none and not a small one: weights are drawn to those of a prior p, the more so the further the
best mixture is off. M is how far, beyond chance, and n how many snapshots count.

What is believed is changed by what was seen before it draws anything: by the exact W1 of every way,

    p_i  ~  believed_i  prod over snapshots left out of  (min_j W1_j / W1_i)^(strength counts worth)

which forecasts are scored by, and which notices noise off the thin set that points are on.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float
from scipy.optimize import minimize
from scipy.spatial.distance import cdist

from itofit.transport.plans import transport_cost

# How strongly weights are drawn to the prior, and as if no mixture were nearer than this part of
# what the best ways reach.
_DOUBT = 0.2
_NEAREST = 0.2
# The power of W1 in what is believed of a way; points of a forecast and of the truth it is read of.
_STRENGTH = 4.0
_MOST_COUPLED = 200
# A W1 that is as good as none; the least that is believed of any way, beside that of most belief.
_TOUCHING = 1e-3
_LEAST = 1e-4
# Weights that are left out; where nothing judges, those of what is hardly believed.
_NOTHING = 0.02
_HARDLY = 0.1
# Points of a snapshot that make it count half.
_HANDFUL = 20.0


@dataclass(frozen=True, eq=False)
class Energies:
    """Mean distances of the clouds of all ways to the one left out, and to one another, over s.

    - `coupled`: the exact W1 of every way, over s.
    - `worth`: what the snapshot left out counts, near 1 unless it has a handful of points.
    - `chance`: the energy distance of two clouds of these sizes from one law.
    """

    to_truth: Float[np.ndarray, " n_ways"]
    between: Float[np.ndarray, "n_ways n_ways"]
    coupled: Float[np.ndarray, " n_ways"]
    worth: float
    chance: float

    @classmethod
    def of(cls, clouds: list[np.ndarray], truth: np.ndarray, weights: np.ndarray) -> "Energies":
        """Of forecasts whose points count the same."""
        size = float(weights @ cdist(truth, truth) @ weights)
        size = max(size, 1e-300)
        to_truth = [float(np.mean(cdist(x, truth) @ weights)) for x in clouds]
        between = np.zeros((len(clouds), len(clouds)))
        for i, x in enumerate(clouds):
            for j, y in enumerate(clouds[: i + 1]):
                between[i, j] = between[j, i] = float(np.mean(cdist(x, y)))
        n_effective = 1.0 / float(weights @ weights)
        worth = n_effective / (n_effective + _HANDFUL)
        chance = 1.0 / n_effective + 1.0 / min(len(x) for x in clouds)
        coupled = np.asarray([_coupled(x, truth, weights) for x in clouds]) / size
        return cls(np.asarray(to_truth) / size, between / size, coupled, worth, chance)

    def distance(self, w: Float[np.ndarray, " n_ways"]) -> float:
        """The energy distance of a mixture."""
        return float(2.0 * w @ self.to_truth - w @ self.between @ w - 1.0)

    @property
    def size(self) -> float:
        """The energy distance of the best way, or what chance alone makes."""
        return max(self.chance, min(map(self.distance, np.eye(len(self.to_truth)))))


def stacked(
    energies: Sequence[Energies],
    counts: Float[np.ndarray, " n_left_out"],
    prior: Float[np.ndarray, " n_ways"],
) -> Float[np.ndarray, " n_ways"]:
    """The weights; ways that hardly count are left out.

    Distances are in units of that of the best way: a snapshot that no way forecasts says little of
    them. Every snapshot left out has as many votes as `counts` says.
    """
    if not energies:
        return _without(prior, _HARDLY)
    prior = believed_after(energies, counts, prior)
    parts = np.asarray([e.worth / e.size for e in energies]) * counts
    A = parts @ np.stack([e.to_truth for e in energies])
    B = np.tensordot(parts, np.stack([e.between for e in energies]), 1)
    best = _least(A, B, prior, 0.0)
    missed = float(parts @ [max(e.distance(best) - e.chance, 0.0) for e in energies])
    nearest = _NEAREST * float(np.sum(counts))
    return _without(_least(A, B, prior, _DOUBT * max(missed, nearest)), _NOTHING)


def believed_after(
    energies: Sequence[Energies],
    counts: Float[np.ndarray, " n_left_out"],
    prior: Float[np.ndarray, " n_ways"],
) -> Float[np.ndarray, " n_ways"]:
    """What is believed of the ways once the snapshots left out were seen; of none nothing."""
    log = np.log(prior)
    for e, count in zip(energies, counts, strict=True):
        log = log - _STRENGTH * count * e.worth * np.log(np.maximum(e.coupled, _TOUCHING))
    believed = np.maximum(np.exp(log - np.max(log)), _LEAST)
    return believed / np.sum(believed)


def _coupled(x: np.ndarray, truth: np.ndarray, weights: np.ndarray) -> float:
    """The exact W1 of points of a forecast and as many of the truth, which count the same."""
    count = min(len(x), len(truth), _MOST_COUPLED)
    mass = np.cumsum(weights)
    rows = np.searchsorted(mass, (np.arange(count) + 0.5) / count * mass[-1])
    return transport_cost(cdist(x[:count], truth[np.minimum(rows, len(truth) - 1)]), None, None)


def _without(w: Float[np.ndarray, " n_ways"], least: float) -> Float[np.ndarray, " n_ways"]:
    """The weights above `least`; the largest where none is."""
    kept = np.where(w > min(least, 0.999 * np.max(w)), w, 0.0)
    return kept / np.sum(kept)


def _least(A: np.ndarray, B: np.ndarray, prior: np.ndarray, doubt: float) -> np.ndarray:
    """The minimum, and the prior where that cannot be found."""
    # A trace of it makes the minimum unique.
    penalty = doubt + 1e-6 * float(np.max(A))

    def loss(w):
        return 2.0 * w @ A - w @ B @ w + penalty * float(np.sum((w - prior) ** 2 / prior))

    def slope(w):
        return 2.0 * A - 2.0 * B @ w + 2.0 * penalty * (w - prior) / prior

    sum_is_one = {"type": "eq", "fun": lambda w: np.sum(w) - 1.0, "jac": np.ones_like}
    bounds = [(0.0, 1.0)] * len(A)
    found = minimize(
        loss, prior, jac=slope, bounds=bounds, constraints=[sum_is_one], method="SLSQP"
    )
    return found.x if np.all(np.isfinite(found.x)) else prior
