"""Energy distance and maximum mean discrepancy, as V-statistics (never negative).

    energy^2 = 2 E|X - Y| - E|X - X'| - E|Y - Y'|
    mmd^2    = E k(X, X') + E k(Y, Y') - 2 E k(X, Y)

k is a sum of Gaussians of 1/2, 1 and 2 times the median distance.
"""

import numpy as np
from scipy.spatial.distance import cdist

from itofit.transport.plans import Weights, masses


def energy_distance(x: np.ndarray, y: np.ndarray, wx: Weights = None, wy: Weights = None) -> float:
    """Energy distance: the root of 2 E|X - Y| - E|X - X'| - E|Y - Y'|.

    Parameters
    ----------
    x : array of shape (n, n_dims)
        The points of one cloud.
    y : array of shape (m, n_dims)
        The points of the other.
    wx : array of shape (n,), optional
        Weights of `x`; divided by their sum. Without them all points count the same.
    wy : array of shape (m,), optional
        Weights of `y`, likewise.

    Returns
    -------
    float
        In the root of the units of the coordinates, from 0 on.

    Examples
    --------
    >>> import numpy as np
    >>> from itofit.metrics import energy_distance
    >>> energy_distance(np.array([[0.0], [1.0]]), np.array([[0.0], [3.0]]))
    1.0
    """
    a = masses(wx, len(x))
    b = masses(wy, len(y))
    across = 2.0 * a @ cdist(x, y) @ b
    square = across - a @ cdist(x, x) @ a - b @ cdist(y, y) @ b
    return float(np.sqrt(max(square, 0.0)))


def mmd(x: np.ndarray, y: np.ndarray, wx: Weights = None, wy: Weights = None) -> float:
    """Maximum mean discrepancy, its bandwidths 1/2, 1 and 2 times the median distance.

    Parameters
    ----------
    x : array of shape (n, n_dims)
        The points of one cloud.
    y : array of shape (m, n_dims)
        The points of the other.
    wx : array of shape (n,), optional
        Weights of `x`; divided by their sum. Without them all points count the same.
    wy : array of shape (m,), optional
        Weights of `y`, likewise.

    Returns
    -------
    float
        Without units, from 0 on.

    Examples
    --------
    >>> import numpy as np
    >>> from itofit.metrics import mmd
    >>> round(mmd(np.zeros((2, 1)), np.full((3, 1), 2.0)), 4)
    1.6587
    """
    a = masses(wx, len(x))
    b = masses(wy, len(y))
    xx = cdist(x, x, "sqeuclidean")
    yy = cdist(y, y, "sqeuclidean")
    xy = cdist(x, y, "sqeuclidean")
    median = _median(xy.ravel(), np.outer(a, b).ravel())
    square = 0.0
    for factor in (0.25, 1.0, 4.0):
        scale = 2.0 * factor * median
        within = a @ np.exp(-xx / scale) @ a + b @ np.exp(-yy / scale) @ b
        square += within - 2.0 * a @ np.exp(-xy / scale) @ b
    return float(np.sqrt(max(square, 0.0)))


def _median(squares: np.ndarray, pairs: np.ndarray) -> float:
    """Median of the positive squared distances, weighted by the mass of a pair; 1 if none is."""
    order = np.argsort(squares)
    order = order[(squares[order] > 0) & (pairs[order] > 0)]
    if not len(order):
        return 1.0
    mass = np.cumsum(pairs[order])
    low, high = np.searchsorted(mass, [mass[-1] * (0.5 - 1e-9), mass[-1] * (0.5 + 1e-9)])
    return float(0.5 * (squares[order[low]] + squares[order[high]]))
