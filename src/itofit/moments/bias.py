"""A learned noise without what its weights and Jacobian owe to the same points as the residuals.

J'y is not zero in the mean at the truth. The covariance of a skewed probe is large where its mean
is, which adds

    -J' sum_i a(i) |a(i)|^2

for the contributions a(i) of the points; and J and y share their start points, which shows in the
products of different folds. A scale learns it: sigma comes out too small by some per cent.
"""

from dataclasses import replace

import numpy as np

from itofit.moments.gauss_newton import State, can_be_squared
from itofit.moments.relevance import Posterior
from itofit.moments.residuals import Residual
from itofit.moments.whitening import Whitening


def less_biased(
    residual: Residual,
    state: State,
    whitening: Whitening,
    *,
    drift_too: bool,
) -> State:
    """The state with the noise moved by its bias, and the drift to where it fits best with it.

    With `drift_too` the drift is rid of its own part as well, which only pairs know well enough.
    """
    columns = np.flatnonzero(state.prior.alive)
    v = state.v
    folds = residual.folds()
    J = np.stack([fold.jacobian(v, whitening, columns) for fold in folds])
    y = np.stack([whitening(fold(v)) for fold in folds])
    if not can_be_squared(J, y):
        return state
    mean = J.mean(axis=0)
    bias = -mean.T @ whitening.skewness(residual.spreads(v))
    if len(folds) > 1:
        together = mean.T @ np.mean(y, axis=0)
        same = np.einsum("krp,kr->p", J, y) / len(folds)
        bias += (same - together) / (len(folds) - 1)
    posterior = Posterior(mean, state.prior.diagonal[columns])
    move = posterior.solve(bias)
    if not drift_too:
        noise = columns >= residual.n_coefficients
        along = posterior.covariance()[:, noise]
        move = along @ np.linalg.lstsq(along[noise], move[noise])[0]
    corrected = v.copy()
    corrected[columns] += move
    return replace(state, v=corrected, residuals=None)
