"""Arrows of a drift in an embedding y = E(x): dy/dt = J(x) g(x).

A UMAP is no function that could be differentiated; J is the linear map that fits the embedding
best, by least squares, over the nearest neighbours of each cell in the coordinates of the fit.
"""

import numpy as np
from jaxtyping import Float
from sklearn.neighbors import NearestNeighbors

# Neighbours for each coefficient of a linear map, and at least so many in all.
_A_COEFFICIENT = 5
_FEWEST = 30
# The fraction of the neighbours' variance by which directions in which they hardly differ are held
# back.
_RIDGE = 1e-2


def tangent_arrows(
    points: Float[np.ndarray, "n n_dims"],
    drift: Float[np.ndarray, "n n_dims"],
    embedded: Float[np.ndarray, "n n_more"],
) -> Float[np.ndarray, "n n_more"]:
    """The drift at each point as it appears in the embedding of the same points."""
    k = min(len(points), max(_FEWEST, _A_COEFFICIENT * points.shape[1]))
    near = NearestNeighbors(n_neighbors=k).fit(points).kneighbors(points, return_distance=False)
    x, y = (table[near] - table[near].mean(axis=1, keepdims=True) for table in (points, embedded))
    gram = np.einsum("nka,nkb->nab", x, x)
    ridge = _RIDGE * np.trace(gram, axis1=1, axis2=2) / points.shape[1]
    gram += (ridge + np.finfo(np.float64).tiny)[:, None, None] * np.eye(points.shape[1])
    jacobian = np.linalg.solve(gram, np.einsum("nka,nkb->nab", x, y))
    return np.einsum("na,nab->nb", drift, jacobian)
