"""Draws of the drift, and of a noise that was learned: what else the same particles could have told.

Each draw gives every particle a random weight (Bayesian bootstrap), draws a model (`trust.structure`) and solves its
linear problem at the solution of the fit (`solve.linearised`),

    v = C (H v_fit - J'(y + e) + Lambda^1/2 xi),      C = (H + Lambda)^-1,      e = sum_i (omega_i - 1) a(i)

with omega_i ~ Exp(1) and xi ~ N(0, I), where a(i) is what particle i contributes to the whitened residuals. Its
covariance is that of an estimate from many moments, some of which say little, C (J'J + Lambda) C (Newey and Windmeijer,
2009), and it belongs to the weights: a forecast from the cloud with the same weights has the errors of drift and start
together.

The weighting matrix of the fit is itself an estimate. For R residuals, p unknowns and a covariance estimated with nu
degrees of freedom the variance of a generalised least squares estimate is that of known weights times
nu / (nu - R + p), and C, which takes the estimate for the truth, is too small by the same factor: e is lengthened by
nu / (nu - R + p).
"""

from dataclasses import dataclass
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from itofit.process.drift import AbstractDrift, FeatureDrift
from itofit.solve.linearised import Linearised
from itofit.solve.relevance import GONE, Posterior
from itofit.trust.structure import draw_structures, loose_precisions

N_DRAWS = 100


@dataclass(frozen=True, eq=False)
class DriftDraws:
    """Drifts that could be the true one, as far as the data can say.

    - `drifts`: all of them as one, with a leading axis of draws in the arrays for which `axes` is 0.
    - `fitted`: the drift of the fit. `n_draws`: how many there are.
    - `noise`: by how much every draw moves the parameters of the noise, in their units; none where it is known.
    - `seed`: gives the weights of the particles behind each draw (`particle_weights`); None where there are none.
    """

    drifts: AbstractDrift
    axes: Any
    fitted: AbstractDrift
    n_draws: int
    noise: Float[np.ndarray, "n_draws n_noise"]
    seed: int | None

    @classmethod
    def of_coefficients(
        cls,
        alone: FeatureDrift,
        coefficients: Float[np.ndarray, "n_draws n_features n_dims"],
        noise: Float[np.ndarray, "n_draws n_noise"],
        seed: int,
    ) -> "DriftDraws":
        """Draws that differ from the fitted drift by its coefficients."""
        several = _with_coefficients(alone, jnp.asarray(coefficients, dtype=float))
        axes = _with_coefficients(jax.tree.map(lambda _: None, alone), 0)
        return cls(several, axes, alone, len(coefficients), noise, seed)

    @classmethod
    def of_members(cls, members: AbstractDrift, n_members: int, mean: AbstractDrift) -> "DriftDraws":
        """The members of an ensemble, stacked."""
        return cls(members, eqx.if_array(0), mean, n_members, np.zeros((n_members, 0)), None)

    def first(self, count: int) -> "DriftDraws":
        """The first `count` of them."""
        if count >= self.n_draws:
            return self
        if isinstance(self.axes, FeatureDrift):
            fewer: AbstractDrift = _with_coefficients(self.drifts, self.drifts.coefficients[:count])  # pyright: ignore
        else:
            fewer = jax.tree.map(lambda leaf: leaf[:count] if eqx.is_array(leaf) else leaf, self.drifts)
        return DriftDraws(fewer, self.axes, self.fitted, count, self.noise[:count], self.seed)

    def spread(
        self, points: Float[np.ndarray, "n n_dims"], times: Float[np.ndarray, " n"] | None = None
    ) -> Float[np.ndarray, "n n_dims"]:
        """How far the draws are from the fit, root mean square at every point, and at its time if that matters."""
        x, t = jnp.asarray(points, dtype=float), jnp.asarray(np.zeros(len(points)) if times is None else times, float)
        apart = _values(self.drifts, self.axes, x, t) - _field(self.fitted, x, t)
        # An ensemble is measured about its own mean.
        count = self.n_draws if self.seed is not None else max(1, self.n_draws - 1)
        return np.sqrt(np.sum(np.asarray(apart, dtype=np.float64) ** 2, axis=0) / count)


def _with_coefficients(drift: FeatureDrift, coefficients: Any) -> FeatureDrift:
    return eqx.tree_at(lambda g: g.coefficients, drift, coefficients, is_leaf=lambda leaf: leaf is None)


@eqx.filter_jit
def _values(
    drifts: AbstractDrift, axes: Any, x: Float[Array, "n n_dims"], t: Float[Array, " n"]
) -> Float[Array, "n_draws n n_dims"]:
    return eqx.filter_vmap(_field, in_axes=(axes, None, None))(drifts, x, t)


def _field(drift: AbstractDrift, x: Float[Array, "n n_dims"], t: Float[Array, " n"]) -> Float[Array, "n n_dims"]:
    return jax.vmap(lambda y, now: drift.at(now)(y))(x, t)


def draw_drifts(linear: Linearised, seed: int, n_draws: int = N_DRAWS) -> DriftDraws:
    """Draws of the drift of a fit."""
    rng = np.random.default_rng([seed, 7])
    unknowns, G, against = linear.unknowns, linear.signal, linear.against
    always = np.isinf(unknowns.log_odds)
    precision = loose_precisions(unknowns.jacobian, G, unknowns.precision, always)
    inside = (unknowns.precision < GONE) | always
    models = draw_structures(G, against, precision, inside, unknowns.log_odds, n_draws, rng)
    moved = _error_draws(linear, seed, n_draws) @ unknowns.jacobian
    v = np.zeros((n_draws, len(against)))
    for row, move, model in zip(v, moved, models, strict=True):
        posterior = Posterior(G[:, model.inside], model.precision)
        noise = np.sqrt(model.precision) * rng.standard_normal(len(model.inside))
        row[model.inside] = posterior.solve((against - move)[model.inside] + noise)
    coefficients, fitted = linear.coefficients(v), linear.coefficients(unknowns.v)
    used = np.flatnonzero(np.any(coefficients != 0.0, axis=(0, 2)) | np.any(fitted != 0.0, axis=1))
    noise = v[:, unknowns.noise]
    alone = FeatureDrift(linear.features.only(used), jnp.asarray(fitted[used], dtype=float), linear.clock)
    return DriftDraws.of_coefficients(alone, coefficients[:, used], noise, seed)


def particle_weights(seed: int, snapshot: int, n_points: int, n_draws: int = N_DRAWS) -> Float[np.ndarray, "n_draws n"]:
    """Omega of the particles of one snapshot, mean 1 over it, draw by draw."""
    found = np.random.default_rng([seed, 8, snapshot]).exponential(size=(n_draws, n_points))
    return found / found.mean(axis=1, keepdims=True)


def _error_draws(linear: Linearised, seed: int, n_draws: int) -> Float[np.ndarray, "n_draws n_rows"]:
    parts = [
        (particle_weights(seed, snapshot, a.shape[1], n_draws) - 1.0) @ a.T for snapshot, a in linear.influence.items()
    ]
    n_rows, n_inside = len(linear.y), int(np.sum(linear.unknowns.precision < GONE))
    freedom = linear.n_apart * sum(a.shape[1] for a in linear.influence.values())
    return np.sum(parts, axis=0) * freedom / max(freedom - n_rows + n_inside, 0.5 * freedom)
