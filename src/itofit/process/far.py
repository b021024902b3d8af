"""How a drift goes on far from the data: u . g(c + r w u) for directions u and growing r.

A bounded drift is at last the same at twice the distance; one that grows outward may carry whatever
comes there to infinity.
"""

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from itofit.process.drift import AbstractDrift

# Half-widths of the data at which a drift is far from them, and by which factor it has grown at
# twice the distance where it is not bounded.
_FAR = 20.0
_GROWN = 1.5
_N_DIRECTIONS = 64


def grows_outward(
    drift: AbstractDrift, low: Float[np.ndarray, " n_dims"], high: Float[np.ndarray, " n_dims"]
) -> bool:
    """Whether a drift leads away from a box the faster the farther.

    Parameters
    ----------
    drift : AbstractDrift
        Of a drift that changes with time, as it is at time 0.
    low, high : arrays of shape (n_dims,)
        The box.

    Returns
    -------
    bool
        True where it does so along an axis, or along one of 64 directions drawn once for all.

    Examples
    --------
    >>> import numpy as np
    >>> from itofit.process import FunctionDrift
    >>> from itofit.process.far import grows_outward
    >>> box = (-np.ones(2), np.ones(2))
    >>> grows_outward(FunctionDrift(lambda x: 0.1 * x), *box)
    True
    >>> grows_outward(FunctionDrift(lambda x: -3.0 * x), *box)
    False
    """
    n_dims = len(low)
    drawn = np.random.default_rng(0).standard_normal((_N_DIRECTIONS, n_dims))
    along = np.concatenate([np.eye(n_dims), -np.eye(n_dims), drawn])
    along /= np.linalg.norm(along, axis=1, keepdims=True)
    near, far = (_fastest(drift, low, high, along, r) for r in (_FAR, 2.0 * _FAR))
    return far > 0.0 and not far < _GROWN * near


def _fastest(
    drift: AbstractDrift, low: np.ndarray, high: np.ndarray, along: np.ndarray, distance: float
) -> float:
    """The fastest that points at this distance are carried away, in half-widths."""
    width = 0.5 * (high - low)
    points = jnp.asarray(0.5 * (low + high) + distance * width * along, dtype=float)
    values = np.asarray(jax.vmap(drift.at(0.0))(points), dtype=np.float64)
    outward = np.sum(values / np.maximum(width, 1e-12) * along, axis=1)
    return float(np.max(np.nan_to_num(outward, nan=np.inf, posinf=np.inf)))
