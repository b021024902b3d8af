"""Weights of a mixture of forecasts: those of least energy distance to what was left out.

    E(w) = sum over snapshots left out of  (2 w'A - w'B w) / s,      w >= 0,  sum w = 1
    A_i = E|X_i - Y|,   B_ij = E|X_i - X_j|,   s = E|Y - Y'|

The energy distance of a mixture is a quadratic function of its weights, and a convex one, so the
best mixture is found without another forecast.
"""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float
from scipy.optimize import minimize
from scipy.spatial.distance import cdist

# What is paid for the square of a weight: near ties are shared.
_TIE = 0.01
_NOTHING = 0.02
# Points of a snapshot that make it count half.
_HANDFUL = 20.0


@dataclass(frozen=True, eq=False)
class Energies:
    """Mean distances of the clouds of all ways to the one left out, and to one another, over s.

    - `worth`: what the snapshot left out counts, near 1 unless it has a handful of points.
    """

    to_truth: Float[np.ndarray, " n_ways"]
    between: Float[np.ndarray, "n_ways n_ways"]
    worth: float

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
        return cls(np.asarray(to_truth) / size, between / size, worth)

    def distance(self, w: Float[np.ndarray, " n_ways"]) -> float:
        """The energy distance of a mixture."""
        return float(2.0 * w @ self.to_truth - w @ self.between @ w - 1.0)


def stacked(energies: list[Energies], prior: Float[np.ndarray, " n_ways"]) -> np.ndarray:
    """The weights; ways that hardly count are left out."""
    A = np.sum([e.worth * e.to_truth for e in energies], axis=0)
    B = np.sum([e.worth * e.between for e in energies], axis=0)

    def loss(w):
        return 2.0 * w @ A - w @ B @ w + _TIE * float(w @ w)

    def slope(w):
        return 2.0 * A - 2.0 * B @ w + 2.0 * _TIE * w

    sum_is_one = {"type": "eq", "fun": lambda w: np.sum(w) - 1.0, "jac": np.ones_like}
    bounds = [(0.0, 1.0)] * len(A)
    found = minimize(
        loss, prior, jac=slope, bounds=bounds, constraints=[sum_is_one], method="SLSQP"
    )
    w = found.x if np.all(np.isfinite(found.x)) else prior
    w = np.where(w > _NOTHING, w, 0.0)
    return w / np.sum(w)
