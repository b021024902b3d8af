"""How sure a learned noise is: a = S S' over the draws of its parameters."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from scipy.stats import norm

from itofit.process.diffusion import AbstractDiffusion


def covariances(
    diffusion: AbstractDiffusion, moved: Float[np.ndarray, "n_draws n_noise"], z: Float[Array, "n n_dims"]
) -> Float[np.ndarray, "n_draws n n_dims n_dims"]:
    """S S' at every state, for every move of the parameters."""
    return np.asarray(_covariances(diffusion, jnp.asarray(moved, dtype=float), z), dtype=np.float64)


def interval_of(
    draws: Float[np.ndarray, "n_draws n d d"], fitted: Float[np.ndarray, "n d d"], level: float
) -> tuple[np.ndarray, np.ndarray]:
    """Ends of intervals about the fit: of the logarithm on the diagonal, else of the entry itself."""
    z, d = norm.ppf(0.5 + 0.5 * level), np.arange(fitted.shape[-1])
    reach = z * np.sqrt(np.mean((draws - fitted) ** 2, axis=0))
    low, high = fitted - reach, fitted + reach
    own, drawn = np.maximum(fitted[:, d, d], 1e-300), np.maximum(draws[:, :, d, d], 1e-300)
    factor = np.exp(z * np.sqrt(np.mean(np.log(drawn / own) ** 2, axis=0)))
    low[:, d, d], high[:, d, d] = own / factor, own * factor
    return low, high


@eqx.filter_jit
def _covariances(diffusion: AbstractDiffusion, moved: Array, z: Array) -> Array:
    def at(v, x):
        S = diffusion.moved(v)(x)
        return S @ S.T

    return jax.vmap(jax.vmap(at, in_axes=(None, 0)), in_axes=(0, None))(moved, z)
