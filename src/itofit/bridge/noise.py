"""The noise of the process from what its flow misses: misses should have the covariance P_T.

ratio = E[e e'] / E[P_T],       a <- a (1 + ratio) / 2
"""

from collections.abc import Sequence

import jax.numpy as jnp
import numpy as np

from itofit.bridge.pins import Pinned
from itofit.process.noise import (
    AbstractDiffusion,
    FullForm,
    FunctionForm,
    LearnedDiffusion,
    ScalarForm,
)

# The noise of `first_noise` fills twice the variance of the clouds within a gap; coupling begins
# with a tenth of it.
_FIRST_RATIO = 0.05
# Smallest ratio of a pass, and smallest sd of the noise over the whole span in sds of the data.
_LEAST_RATIO = 0.05
_LEAST_SD = 3e-3


def first_guess(diffusion: AbstractDiffusion) -> AbstractDiffusion:
    """A known noise as it is; of one to be learned the size that coupling begins with."""
    if not isinstance(diffusion, LearnedDiffusion):
        return diffusion
    return _grown(diffusion, np.full(_n_scales(diffusion), _FIRST_RATIO))


def learned_from(
    diffusion: AbstractDiffusion, pins: Sequence[Pinned], span: float, step: float
) -> AbstractDiffusion:
    """A `step` of the way to the noise that these misses ask for, of those that can be learned."""
    if not isinstance(diffusion, LearnedDiffusion):
        return diffusion
    missed = np.zeros_like(np.asarray(pins[0].spread, dtype=np.float64))
    expected = np.zeros_like(missed)
    for pin in pins:
        e = np.asarray(pin.missed, dtype=np.float64)
        missed += (e * np.asarray(pin.weights)[:, None]).T @ e
        expected += np.asarray(pin.spread, dtype=np.float64)
    least = _LEAST_SD**2 / span
    if isinstance(diffusion.form, FullForm):
        return _grown_triangle(diffusion, missed, expected, step, least)
    ratio = np.diag(missed) / np.maximum(np.diag(expected), 1e-12)
    grown = np.maximum(1.0 - step + step * ratio, _LEAST_RATIO)
    grown = np.maximum(grown, least / np.maximum(np.diag(expected) / span, 1e-12))
    return _grown(diffusion, grown)


def _n_scales(diffusion: LearnedDiffusion) -> int:
    """Log scales come first among the parameters."""
    return len(diffusion(jnp.zeros(_n_dims(diffusion))))


def _n_dims(diffusion: LearnedDiffusion) -> int:
    form = diffusion.form
    sizes = getattr(form, "sd", None)
    return int(form.n_dims) if sizes is None else len(sizes)  # pyright: ignore


def _grown(diffusion: LearnedDiffusion, ratio: np.ndarray) -> LearnedDiffusion:
    """Variances multiplied by these; a function of the user's own has no scales to multiply."""
    form = diffusion.form
    if isinstance(form, FunctionForm):
        return diffusion
    theta = np.asarray(diffusion.theta, dtype=np.float64).copy()
    if isinstance(form, ScalarForm):
        theta[0] += 0.5 * np.log(np.mean(ratio))
    else:
        theta[: len(ratio)] += 0.5 * np.log(ratio)
    return LearnedDiffusion(jnp.asarray(theta, dtype=float), form)


def _grown_triangle(
    diffusion: LearnedDiffusion,
    missed: np.ndarray,
    expected: np.ndarray,
    step: float,
    least: float,
) -> LearnedDiffusion:
    """A full noise: a <- L_a ((1 - step) I + step L_P^-1 M L_P^-T) L_a'."""
    n_dims = len(missed)
    eye = np.eye(n_dims)
    L = np.asarray(diffusion(jnp.zeros(n_dims)), dtype=np.float64)
    size = np.trace(expected) / n_dims
    inverse = np.linalg.inv(np.linalg.cholesky(expected + 1e-6 * size * eye))
    ratio = (1.0 - step) * eye + step * inverse @ missed @ inverse.T
    after = np.linalg.cholesky(L @ ratio @ L.T + least * eye)
    scale = np.diag(after)
    below = (after / scale[:, None])[np.tril_indices(n_dims, -1)]
    theta = np.concatenate([np.log(scale), below])
    return LearnedDiffusion(jnp.asarray(theta, dtype=float), diffusion.form)
