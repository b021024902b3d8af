"""Exact plans: the coupling of two weighted clouds of least mean cost.

    min over P >= 0 of sum_ij P_ij c_ij,        row sums of P = a,  column sums = b

By POT; where POT is missing, by assignment for equal counts and weights.
"""

import numpy as np
from jaxtyping import Float
from scipy.optimize import linear_sum_assignment
from scipy.spatial.distance import cdist

from itofit.errors import InputError

Weights = Float[np.ndarray, " _"] | None


def transport_plan(
    x: np.ndarray, y: np.ndarray, wx: Weights = None, wy: Weights = None
) -> np.ndarray:
    """An exact optimal coupling for squared distance.

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
    array of shape (n, m)
        The mass that goes from each point of `x` to each of `y`; rows sum to the weights of `x`,
        columns to those of `y`.

    Raises
    ------
    InputError
        Without POT, where the clouds differ in size or have unequal weights.

    Examples
    --------
    >>> import numpy as np
    >>> from itofit.metrics import transport_plan
    >>> transport_plan(np.array([[0.0], [1.0]]), np.array([[5.0], [4.0]]))
    array([[0. , 0.5],
           [0.5, 0. ]])
    """
    cost = cdist(x, y, "sqeuclidean")
    ot = _pot()
    if ot is not None:
        a = masses(wx, len(x))
        b = masses(wy, len(y))
        return ot.emd(a, b, cost, numItermax=1_000_000)
    rows, columns = _assignment(cost, wx, wy)
    plan = np.zeros_like(cost)
    plan[rows, columns] = 1.0 / len(x)
    return plan


def transport_cost(cost: np.ndarray, wx: Weights, wy: Weights) -> float:
    """The least mean cost of a coupling, for a matrix of costs."""
    ot = _pot()
    if ot is not None:
        a = masses(wx, cost.shape[0])
        b = masses(wy, cost.shape[1])
        plan = ot.emd(a, b, cost, numItermax=1_000_000)
        return float(np.sum(plan * cost))
    rows, columns = _assignment(cost, wx, wy)
    return float(cost[rows, columns].mean())


def masses(weights: Weights, n: int) -> np.ndarray:
    """Weights that sum to 1; equal ones for None."""
    return np.full(n, 1.0 / n) if weights is None else np.asarray(weights) / np.sum(weights)


def _assignment(cost: np.ndarray, wx: Weights, wy: Weights):
    uniform = all(w is None or np.ptp(w) < 1e-12 for w in (wx, wy))
    if cost.shape[0] != cost.shape[1] or not uniform:
        raise InputError(
            expected="POT for exact transport between unequal counts or weights",
            found="it is not installed",
            hint="pip install POT, or compare clouds of equal size",
        )
    return linear_sum_assignment(cost)


def _pot():
    try:
        import ot
    except ImportError:
        return None
    return ot
