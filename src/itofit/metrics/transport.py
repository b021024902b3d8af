"""Wasserstein distances between weighted clouds, in raw units (W1 and W2 are never just "Wasserstein").

    W_p^p = min over couplings of E |X - Y|^p

Exact ones by POT; where POT is missing, by assignment for equal counts and weights.
"""

import numpy as np
from jaxtyping import Float
from scipy.optimize import linear_sum_assignment
from scipy.spatial.distance import cdist
from scipy.stats import wasserstein_distance

from itofit.errors import InputError

Weights = Float[np.ndarray, " _"] | None

N_DIRECTIONS = 200


def W1(x: np.ndarray, y: np.ndarray, wx: Weights = None, wy: Weights = None) -> float:
    """Exact W1 with Euclidean cost."""
    return _transport_cost(cdist(x, y), wx, wy)


def W2(x: np.ndarray, y: np.ndarray, wx: Weights = None, wy: Weights = None) -> float:
    """Exact W2: the root of the least mean squared distance."""
    return float(np.sqrt(max(_transport_cost(cdist(x, y, "sqeuclidean"), wx, wy), 0.0)))


def coordinate_W1(x: np.ndarray, y: np.ndarray, wx: Weights = None, wy: Weights = None) -> float:
    """Mean over coordinates of the one-dimensional W1."""
    return float(np.mean([_line_W1(x[:, i], y[:, i], wx, wy) for i in range(x.shape[1])]))


def sliced_W1(x: np.ndarray, y: np.ndarray, wx: Weights = None, wy: Weights = None) -> float:
    """Mean over 200 fixed directions of the one-dimensional W1 of the projections."""
    directions = np.random.default_rng(0).normal(size=(N_DIRECTIONS, x.shape[1]))
    directions /= np.linalg.norm(directions, axis=1, keepdims=True)
    px, py = x @ directions.T, y @ directions.T
    return float(np.mean([_line_W1(px[:, i], py[:, i], wx, wy) for i in range(N_DIRECTIONS)]))


def transport_plan(x: np.ndarray, y: np.ndarray, wx: Weights = None, wy: Weights = None) -> np.ndarray:
    """An exact optimal coupling for squared distance, as a matrix of masses."""
    cost = cdist(x, y, "sqeuclidean")
    ot = _pot()
    if ot is not None:
        return ot.emd(masses(wx, len(x)), masses(wy, len(y)), cost, numItermax=1_000_000)
    rows, columns = _assignment(cost, wx, wy)
    plan = np.zeros_like(cost)
    plan[rows, columns] = 1.0 / len(x)
    return plan


def _line_W1(x: np.ndarray, y: np.ndarray, wx: Weights, wy: Weights) -> float:
    if wx is None and wy is None and len(x) == len(y):
        return float(np.mean(np.abs(np.sort(x) - np.sort(y))))
    return float(wasserstein_distance(x, y, wx, wy))


def _transport_cost(cost: np.ndarray, wx: Weights, wy: Weights) -> float:
    ot = _pot()
    if ot is not None:
        a, b = masses(wx, cost.shape[0]), masses(wy, cost.shape[1])
        return float(np.sum(ot.emd(a, b, cost, numItermax=1_000_000) * cost))
    rows, columns = _assignment(cost, wx, wy)
    return float(cost[rows, columns].mean())


def _assignment(cost: np.ndarray, wx: Weights, wy: Weights):
    uniform = all(w is None or np.ptp(w) < 1e-12 for w in (wx, wy))
    if cost.shape[0] != cost.shape[1] or not uniform:
        raise InputError(
            expected="POT for exact transport between unequal counts or weights",
            found="it is not installed",
            hint="pip install POT, or compare clouds of equal size",
        )
    return linear_sum_assignment(cost)


def masses(weights: Weights, n: int) -> np.ndarray:
    """Weights that sum to 1; equal ones for None."""
    return np.full(n, 1.0 / n) if weights is None else np.asarray(weights) / np.sum(weights)


def _pot():
    try:
        import ot
    except ImportError:
        return None
    return ot
