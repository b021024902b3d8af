"""Energy distance and maximum mean discrepancy, as V-statistics (never negative).

energy^2 = 2 E|X - Y| - E|X - X'| - E|Y - Y'|
mmd^2    = E k(X, X') + E k(Y, Y') - 2 E k(X, Y),   k a sum of Gaussians of 1/2, 1 and 2 times the median distance
"""

import numpy as np
from scipy.spatial.distance import cdist

from itofit.metrics.transport import Weights, masses


def energy_distance(x: np.ndarray, y: np.ndarray, wx: Weights = None, wy: Weights = None) -> float:
    """Energy distance, from 0 on (the square is a V-statistic, so it is never negative)."""
    a, b = masses(wx, len(x)), masses(wy, len(y))
    square = 2.0 * a @ cdist(x, y) @ b - a @ cdist(x, x) @ a - b @ cdist(y, y) @ b
    return float(np.sqrt(max(square, 0.0)))


def mmd(x: np.ndarray, y: np.ndarray, wx: Weights = None, wy: Weights = None) -> float:
    """Maximum mean discrepancy; the bandwidths come from the pooled clouds."""
    a, b = masses(wx, len(x)), masses(wy, len(y))
    xy = cdist(x, y, "sqeuclidean")
    median = _median(xy.ravel(), np.outer(a, b).ravel())
    square = 0.0
    for factor in (0.25, 1.0, 4.0):
        k = lambda d, scale=2.0 * factor * median: np.exp(-d / scale)  # noqa: E731
        square += a @ k(cdist(x, x, "sqeuclidean")) @ a + b @ k(cdist(y, y, "sqeuclidean")) @ b - 2.0 * a @ k(xy) @ b
    return float(np.sqrt(max(square, 0.0)))


def _median(squares: np.ndarray, pairs: np.ndarray) -> float:
    """Median of the positive squared distances, each counted with the mass of its pair; 1 where there is none."""
    order = np.argsort(squares)
    order = order[(squares[order] > 0) & (pairs[order] > 0)]
    if not len(order):
        return 1.0
    mass = np.cumsum(pairs[order])
    low, high = np.searchsorted(mass, [mass[-1] * (0.5 - 1e-9), mass[-1] * (0.5 + 1e-9)])
    return float(0.5 * (squares[order[low]] + squares[order[high]]))
