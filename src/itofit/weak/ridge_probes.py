"""Test functions of one projection each, in a snapshot's own units z = (x - centre) / width:

    lines     z_a                       where a cloud is
    bowls     sqrt(1 + (u . z)^2)       how wide it is; a square whose slope stays below 1 far away
    cosines   cos(omega . z + phase)    its shape

All are psi(u . z + b), so L f = psi' u . g / width + 1/2 psi'' |S' u / width|^2 in closed form. A
network with one hidden layer is a weighted sum of such functions; here the hidden layer is drawn
and the weights are solved for exactly (`best_answer`), instead of both by ascent.
"""

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from itofit.weak.probes import AbstractProbe
from itofit.weak.residual import Cloud, PathRead

Scalar = Float[Array, ""]
Point = Float[Array, " n_dims"]

_MOST_BOWLS = 100
_SHORTEST = 0.4
_LONGEST = 3.0
# A part of the variances, added to the covariance so that near-dependent functions are not played
# off against each other.
_SHRINK = 1e-3


class RidgeFamily(eqx.Module):
    """Lines, bowls and cosines about one snapshot."""

    centre: Point
    width: Point
    bowls: Float[Array, "n_bowls n_dims"]
    omega: Float[Array, "n_cosines n_dims"]
    phase: Float[Array, " n_cosines"]

    def __call__(self, x: Point) -> Float[Array, " n_functions"]:
        z = (x - self.centre) / self.width
        bowls = jnp.sqrt(1.0 + (self.bowls @ z) ** 2)
        cosines = jnp.cos(self.omega @ z + self.phase)
        return jnp.concatenate([z, bowls, cosines])

    def generator(
        self, x: Point, drift: Point, dispersion: Float[Array, "n_dims n_noise"]
    ) -> Float[Array, " n_functions"]:
        """L f of every function."""
        z = (x - self.centre) / self.width
        rate = drift / self.width
        spread = dispersion / self.width[:, None]
        along = self.bowls @ z
        angle = self.omega @ z + self.phase
        height = jnp.sqrt(1.0 + along**2)
        bowl_noise = jnp.sum((self.bowls @ spread) ** 2, axis=1)
        bowls = along / height * (self.bowls @ rate) + 0.5 / height**3 * bowl_noise
        curvature = 0.5 * jnp.sum((self.omega @ spread) ** 2, axis=1)
        cosines = -jnp.sin(angle) * (self.omega @ rate) - jnp.cos(angle) * curvature
        return jnp.concatenate([rate, bowls, cosines])


class RidgeProbe(AbstractProbe):
    """f = weights . family: one test function."""

    family: RidgeFamily
    weights: Float[Array, " n_functions"]

    def __call__(self, x: Point) -> Scalar:
        return self.weights @ self.family(x)

    def generator(
        self, x: Point, drift: Point, dispersion: Float[Array, "n_dims n_noise"]
    ) -> Scalar:
        return self.weights @ self.family.generator(x, drift, dispersion)


class Answer(NamedTuple):
    """The best test function of a family, and chi-squared of the residuals it combines."""

    probe: RidgeProbe
    chi2: Scalar


def best_answer(
    family: RidgeFamily,
    target: Cloud,
    start: Cloud,
    propagated: Float[Array, "n_samples n_functions"],
) -> Answer:
    """The f of the family whose residual is largest in units of its own standard error.

    `propagated` holds for every start point what its chain predicts for f at the target's time.
    With r the residuals of all functions and C their covariance, the maximum of r(f) / sd(r(f)) is
    at weights along C^-1 r, and its square is chi-squared = r' C^-1 r. The weights returned are
    C^-1 r / sqrt(1 + chi-squared / K): K sqrt(1 + chi-squared / K) is what the drift descends.
    """
    observed = jax.vmap(family)(target.points)
    residual = target.weights @ observed - start.weights @ propagated
    covariance = _covariance(observed, target.weights) + _covariance(propagated, start.weights)
    variances = jnp.diag(covariance) + jnp.finfo(observed.dtype).tiny
    covariance = covariance + _SHRINK * jnp.diag(variances)
    factor = jax.scipy.linalg.cho_factor(covariance)
    weights = jax.scipy.linalg.cho_solve(factor, residual)
    chi2 = residual @ weights
    weights = weights / jnp.sqrt(1.0 + chi2 / len(weights))
    return Answer(RidgeProbe(family, jax.lax.stop_gradient(weights)), chi2)


def propagated_values(
    family: RidgeFamily, start: Cloud, path: PathRead, quadrature: Float[Array, " n_nodes"]
) -> Float[Array, "n_samples n_functions"]:
    """f(X_s) + sum_k w_k L f(X_k) of every chain: what the weak form predicts for f at the end."""

    def generator(x, drift):
        return family.generator(x, drift, path.dispersion(x))

    rates = jax.vmap(jax.vmap(generator))(path.points, path.drifts)
    return jax.vmap(family)(start.points) + jnp.einsum("k,knf->nf", quadrature, rates)


def n_cosines_for(n_dims: int, n_points: int) -> int:
    """More in more dimensions, and no more functions in all than a quarter of the points."""
    room = n_points // 4 - n_dims - len(bowl_directions(n_dims, n_points))
    return max(4, min(24 + 4 * n_dims, room))


def bowl_directions(n_dims: int, n_points: int) -> Float[np.ndarray, "n_bowls n_dims"]:
    """Every coordinate, and sums and differences of two where there are points enough for them."""
    single = np.eye(n_dims)
    a, b = np.triu_indices(n_dims, 1)
    room = min(_MOST_BOWLS, n_points // 8) - n_dims
    if 2 * len(a) > room:
        return single
    sums = (single[a] + single[b]) / np.sqrt(2)
    differences = (single[a] - single[b]) / np.sqrt(2)
    return np.concatenate([single, sums, differences])


def random_cosines_of_few(n: int, n_dims: int, key: PRNGKeyArray) -> tuple[Array, Array]:
    """Frequencies and phases, in turn of one coordinate, two and all; 1 / |omega| log-uniform."""
    k_direction, k_length, k_phase, k_choice = jax.random.split(key, 4)
    omega = jax.random.normal(k_direction, (n, n_dims))
    pair = jax.nn.one_hot(jax.random.randint(k_choice, (n, 2), 0, n_dims), n_dims)
    of_one = pair[:, 0]
    of_two = jnp.max(pair, axis=1)
    turn = (jnp.arange(n) % 3)[:, None]
    mask = jnp.where(turn == 0, of_one, jnp.where(turn == 1, of_two, 1.0))
    omega = omega * mask
    omega = omega / jnp.linalg.norm(omega, axis=1, keepdims=True)
    low = np.log(_SHORTEST)
    high = np.log(_LONGEST)
    length = jnp.exp(jax.random.uniform(k_length, (n, 1), minval=low, maxval=high))
    return omega / length, jax.random.uniform(k_phase, (n,), maxval=2.0 * jnp.pi)


def _covariance(values: Float[Array, "n k"], weights: Float[Array, " n"]) -> Float[Array, "k k"]:
    """Covariance of the weighted mean of the rows."""
    centred = values - weights @ values
    return jnp.sum(weights**2) * (centred * weights[:, None]).T @ centred
