"""How sure a learned noise is: a = S S' over the draws of its parameters."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from scipy.stats import norm

from itofit.errors import InputError
from itofit.moments.solution import MomentsSolution
from itofit.process.noise import AbstractDiffusion
from itofit.solution import Solution
from itofit.trust.posterior import drift_draws


def covariances(
    diffusion: AbstractDiffusion,
    moves: Float[np.ndarray, "n_draws n_noise"],
    z: Float[Array, "n n_dims"],
) -> Float[np.ndarray, "n_draws n n_dims n_dims"]:
    """S S' at every state, for every move of the parameters."""
    matrices = _covariances(diffusion, jnp.asarray(moves, dtype=float), z)
    return np.asarray(matrices, dtype=np.float64)


def interval_of(
    draws: Float[np.ndarray, "n_draws n d d"],
    fitted: Float[np.ndarray, "n d d"],
    level: float,
) -> tuple[np.ndarray, np.ndarray]:
    """Ends of intervals about the fit, on the diagonal about its logarithm."""
    z = norm.ppf(0.5 + 0.5 * level)
    d = np.arange(fitted.shape[-1])
    reach = z * np.sqrt(np.mean((draws - fitted) ** 2, axis=0))
    low = fitted - reach
    high = fitted + reach
    own = np.maximum(fitted[:, d, d], 1e-300)
    drawn = np.maximum(draws[:, :, d, d], 1e-300)
    factor = np.exp(z * np.sqrt(np.mean(np.log(drawn / own) ** 2, axis=0)))
    low[:, d, d] = own / factor
    high[:, d, d] = own * factor
    return low, high


@eqx.filter_jit
def _covariances(
    diffusion: AbstractDiffusion,
    moves: Array,
    z: Array,
) -> Array:
    def covariance(v, x):
        S = diffusion.moved(v)(x)
        return S @ S.T

    over_states = jax.vmap(covariance, in_axes=(None, 0))
    return jax.vmap(over_states, in_axes=(0, None))(moves, z)


def covariance_std(
    solution: Solution,
    z: Float[Array, "n n_dims"],
) -> Float[np.ndarray, "n n_dims n_dims"]:
    """The standard error of a learned S S' at standardised states, in the user's units.

    Half the width of what holds 68 % of the draws: scales are drawn in their logarithm, and where
    they are hardly known a root mean square would be that of a single draw.
    """
    low, high = np.quantile(_noise_draws(solution, z), (0.1587, 0.8413), axis=0)
    return 0.5 * (high - low)


def covariance_interval(
    solution: Solution,
    z: Float[Array, "n n_dims"],
    level: float,
) -> tuple[np.ndarray, np.ndarray]:
    """Lower and upper ends about a learned S S' at standardised states, in the user's units.

    Where the fit is the small end of a valley, the ends are the first sizes that chi-squared
    refuses, whatever the level.
    """
    if not 0.0 < level < 1.0:
        raise InputError(expected="a level between 0 and 1", found=f"{level!r}", hint="0.95")
    diffusion = solution.process.diffusion
    draws = _noise_draws(solution, z)
    unmoved = np.zeros((1, diffusion.n_parameters))
    fitted = _in_units(solution, covariances(diffusion, unmoved, z))[0]
    low, high = interval_of(draws, fitted, level)
    if isinstance(solution, MomentsSolution) and solution.valley is not None:
        d = np.flatnonzero(solution.valley.axes)
        low[:, d, d], high[:, d, d] = (part * fitted[:, d, d] for part in solution.valley.refused)
    return low, high


def _noise_draws(
    solution: Solution,
    z: Float[Array, "n n_dims"],
) -> np.ndarray:
    """Draws of a(x) in the user's units."""
    diffusion = solution.process.diffusion
    draws = drift_draws(solution)
    if draws.streams is None or not diffusion.n_parameters:
        raise InputError(
            expected="a noise learned by the moments solver",
            found=f"sigma={solution.problem.sigma!r}",
            hint="sigma='learn', solver='moments'",
        )
    return _in_units(solution, covariances(diffusion, draws.widened * draws.noise, z))


def _in_units(
    solution: Solution,
    a: np.ndarray,
) -> np.ndarray:
    sd = solution.problem.scaling.sd
    return sd[:, None] * a * sd
