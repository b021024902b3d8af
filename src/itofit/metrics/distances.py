"""Wasserstein distances between weighted clouds, in raw units.

    W_p^p = min over couplings of E |X - Y|^p

Exact ones by `transport.plans`. W1 and W2 are never just "Wasserstein".
"""

import numpy as np
from scipy.spatial.distance import cdist
from scipy.stats import wasserstein_distance

from itofit.transport.plans import Weights, transport_cost

N_DIRECTIONS = 200


def W1(x: np.ndarray, y: np.ndarray, wx: Weights = None, wy: Weights = None) -> float:
    """Exact W1 with Euclidean cost: the least mean distance of a coupling.

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
        In the units of the coordinates. Two samples of one law are not at 0: see `Floor`.

    Examples
    --------
    >>> import numpy as np
    >>> from itofit.metrics import W1
    >>> x = np.array([[0.0, 0.0], [1.0, 0.0]])
    >>> W1(x, x + [3.0, 4.0])
    5.0
    """
    return transport_cost(cdist(x, y), wx, wy)


def W2(x: np.ndarray, y: np.ndarray, wx: Weights = None, wy: Weights = None) -> float:
    """Exact W2: the root of the least mean squared distance of a coupling.

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
        In the units of the coordinates; never below W1.

    Examples
    --------
    >>> import numpy as np
    >>> from itofit.metrics import W2
    >>> x = np.array([[0.0], [0.0]])
    >>> y = np.array([[1.0], [7.0]])
    >>> W2(x, y)
    5.0
    """
    mean_square = transport_cost(cdist(x, y, "sqeuclidean"), wx, wy)
    return float(np.sqrt(max(mean_square, 0.0)))


def coordinate_W1(x: np.ndarray, y: np.ndarray, wx: Weights = None, wy: Weights = None) -> float:
    """Mean over coordinates of the one-dimensional W1.

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
        In the units of the coordinates; blind to how these depend on each other.

    Examples
    --------
    >>> import numpy as np
    >>> from itofit.metrics import coordinate_W1
    >>> x = np.array([[0.0, 0.0], [1.0, 0.0]])
    >>> coordinate_W1(x, x + [3.0, 4.0])
    3.5
    """
    return float(np.mean([_line_W1(x[:, i], y[:, i], wx, wy) for i in range(x.shape[1])]))


def sliced_W1(x: np.ndarray, y: np.ndarray, wx: Weights = None, wy: Weights = None) -> float:
    """Mean over 200 fixed directions of the one-dimensional W1 of the projections.

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
        In the units of the coordinates; never above W1.

    Examples
    --------
    >>> import numpy as np
    >>> from itofit.metrics import sliced_W1
    >>> x = np.array([[0.0, 0.0], [1.0, 0.0]])
    >>> round(sliced_W1(x, x + [3.0, 4.0]), 1)  # over all directions 10 / pi
    3.1
    """
    directions = np.random.default_rng(0).normal(size=(N_DIRECTIONS, x.shape[1]))
    directions /= np.linalg.norm(directions, axis=1, keepdims=True)
    px = x @ directions.T
    py = y @ directions.T
    return float(np.mean([_line_W1(px[:, i], py[:, i], wx, wy) for i in range(N_DIRECTIONS)]))


def _line_W1(x: np.ndarray, y: np.ndarray, wx: Weights, wy: Weights) -> float:
    if wx is None and wy is None and len(x) == len(y):
        return float(np.mean(np.abs(np.sort(x) - np.sort(y))))
    return float(wasserstein_distance(x, y, wx, wy))
