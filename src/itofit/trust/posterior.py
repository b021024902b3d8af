"""Draws of the drift, and of a noise that was learned: what else the same particles could tell.

Each draw gives every particle a random weight (Bayesian bootstrap), draws a model
(`trust.structure`) and solves its linear problem at the solution of the fit (`moments.linearised`),

    v = C (H v_fit - J'(y + e) + Lambda^1/2 xi)
    C = (H + Lambda)^-1,        e = sum_i (omega_i - 1) a(i)

with omega_i ~ Exp(1) and xi ~ N(0, I), where a(i) is what particle i contributes to the whitened
residuals. Its covariance is that of an estimate from many moments, some of which say little,
C (J'J + Lambda) C (Newey and Windmeijer, 2009), and it belongs to the weights: a forecast from the
cloud with the same weights has the errors of drift and start together.

The weighting matrix of the fit is itself an estimate. For R residuals, p unknowns and a covariance
estimated with nu degrees of freedom the variance of a generalised least squares estimate is that of
known weights times nu / (nu - R + p), and C, which takes the estimate for the truth, is too small
by the same factor: e is lengthened by nu / (nu - R + p).

Where chi-squared contradicts the fit, residuals are larger than the points make them by the root of
its excess, and so are all errors (`DriftDraws.widened`).

Where the snapshots do not know the noise, the fit is the small end of a valley of processes
(`moments.valley`), and every draw is moved along it, evenly over its length:

    v + u (v' - v),    a + u (a' - a),    u ~ U(0, 1)
"""

from dataclasses import dataclass, replace
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from itofit.devices import processor
from itofit.errors import InputError
from itofit.moments.linearised import Linearised
from itofit.moments.relevance import EXCLUDED, Posterior
from itofit.moments.solution import MomentsSolution, Valley
from itofit.problem import Stream, Streams
from itofit.process.drift import (
    AbstractDrift,
    AbstractLinearDrift,
    linear_drift,
    members_of,
    stacked,
)
from itofit.process.noise import LearnedDiffusion
from itofit.solution import Solution
from itofit.trust.goodness import found_instead, hint_for
from itofit.trust.structure import draw_structures, loose_precisions

N_DRAWS = 100


@dataclass(frozen=True, eq=False)
class DriftDraws:
    """Drifts that could be the true one, as far as the data can say.

    - `drifts`: all of them as one, with a leading axis of draws in the arrays for which `axes` is
      0.
    - `fitted`: the drift of the fit. `n_draws`: how many there are.
    - `noise`: by how much every draw moves the parameters of the noise, in their units; none where
      it is known.
    - `streams`: give the weights of the particles behind each draw (`particle_weights`); None where
      there are none.
    - `widened`: how many times larger errors are than these draws say; above 1 where the snapshots
      contradict the fit.
    """

    drifts: AbstractDrift
    axes: Any
    fitted: AbstractDrift
    n_draws: int
    noise: Float[np.ndarray, "n_draws n_noise"]
    streams: Streams | None
    widened: float = 1.0

    @classmethod
    def of_coefficients(
        cls,
        alone: AbstractLinearDrift,
        coefficients: Float[np.ndarray, "n_draws n_features n_outputs"],
        noise: Float[np.ndarray, "n_draws n_noise"],
        streams: Streams,
    ) -> "DriftDraws":
        """Draws that differ from the fitted drift by its coefficients."""
        several = _with_coefficients(alone, jnp.asarray(coefficients, dtype=float))
        axes = _with_coefficients(jax.tree.map(lambda _: None, alone), 0)
        return cls(several, axes, alone, len(coefficients), noise, streams)

    @classmethod
    def of_members(
        cls,
        members: AbstractDrift,
        n_members: int,
        mean: AbstractDrift,
    ) -> "DriftDraws":
        """The members of an ensemble, stacked."""
        return cls(
            members,
            eqx.if_array(0),
            mean,
            n_members,
            np.zeros((n_members, 0)),
            None,
        )

    def first(self, count: int) -> "DriftDraws":
        """The first `count` of them."""
        if count >= self.n_draws:
            return self
        if isinstance(self.axes, AbstractLinearDrift):
            assert isinstance(self.drifts, AbstractLinearDrift)
            drifts = _with_coefficients(self.drifts, self.drifts.coefficients[:count])
        else:
            arrays, rest = eqx.partition(self.drifts, eqx.is_array)
            drifts = eqx.combine(jax.tree.map(lambda leaf: leaf[:count], arrays), rest)
        return replace(
            self,
            drifts=drifts,
            n_draws=count,
            noise=self.noise[:count],
        )

    def spread(
        self,
        points: Float[np.ndarray, "n n_dims"],
        times: Float[np.ndarray, " n"] | None = None,
    ) -> Float[np.ndarray, "n n_dims"]:
        """The error at every point and its time: how far draws are from the fit, root mean square.

        Widened where the fit is contradicted.
        """
        x = jnp.asarray(points, dtype=float)
        t = jnp.asarray(np.zeros(len(points)) if times is None else times, float)
        apart = _values(
            self.drifts,
            self.axes,
            x,
            t,
        ) - _field(self.fitted, x, t)
        # An ensemble is measured about its own mean.
        count = self.n_draws if self.streams is not None else max(1, self.n_draws - 1)
        squares = np.sum(np.asarray(apart, dtype=np.float64) ** 2, axis=0)
        return self.widened * np.sqrt(squares / count)


def _with_coefficients(drift: AbstractLinearDrift, coefficients: Any) -> AbstractLinearDrift:
    return eqx.tree_at(
        lambda g: g.coefficients, drift, coefficients, is_leaf=lambda leaf: leaf is None
    )


@eqx.filter_jit
def _values(
    drifts: AbstractDrift,
    axes: Any,
    x: Float[Array, "n n_dims"],
    t: Float[Array, " n"],
) -> Float[Array, "n_draws n n_dims"]:
    return eqx.filter_vmap(_field, in_axes=(axes, None, None))(drifts, x, t)


def _field(
    drift: AbstractDrift,
    x: Float[Array, "n n_dims"],
    t: Float[Array, " n"],
) -> Float[Array, "n n_dims"]:
    return jax.vmap(lambda y, now: drift.at(now)(y))(x, t)


@dataclass(frozen=True, eq=False)
class Along:
    """A valley as it is seen from its small end, where the fitted noise is `noise`."""

    valley: Valley
    noise: LearnedDiffusion

    def drifts(
        self,
        draws: Float[np.ndarray, "n_draws n_features n_outputs"],
        fitted: Float[np.ndarray, "n_features n_outputs"],
        far: Float[np.ndarray, " n_draws"],
    ) -> Float[np.ndarray, "n_draws n_features n_outputs"]:
        """Draws of coefficients, moved these parts of its length; first are those of the fit."""
        whole = np.zeros_like(fitted)
        count = len(self.valley.coefficients)
        whole[:count] = self.valley.coefficients - fitted[:count]
        return draws + far[:, None, None] * whole

    def noises(
        self,
        draws: Float[np.ndarray, "n_draws n_noise"],
        far: Float[np.ndarray, " n_draws"],
    ) -> Float[np.ndarray, "n_draws n_noise"]:
        """Draws of the noise; what differs between the ends is evenly between them."""
        small = np.asarray(self.noise.theta, dtype=np.float64)
        large = self.valley.theta
        variance = np.exp(2.0 * small) + far[:, None] * (np.exp(2.0 * large) - np.exp(2.0 * small))
        moves = (0.5 * np.log(variance) - small) / self.noise.form.unit()
        return np.where(large != small, moves, draws)


def draw_drifts(
    linear: Linearised,
    streams: Streams,
    n_draws: int = N_DRAWS,
    along: Along | None = None,
) -> DriftDraws:
    """Draws of the drift of a fit, moved `along` the valley that it is in."""
    v = _drawn_unknowns(linear, streams, n_draws)
    coefficients = linear.coefficients(v)
    fitted = linear.coefficients(linear.unknowns.v)
    noise = v[:, linear.unknowns.noise]
    if along is not None:
        far = streams.rng(Stream.valley).uniform(size=n_draws)
        coefficients = along.drifts(coefficients, fitted, far)
        noise = along.noises(noise, far)
    inside = np.any(coefficients != 0.0, axis=(0, 2)) | np.any(fitted != 0.0, axis=1)
    used = np.flatnonzero(inside)
    features = linear.features.only(used)
    W = jnp.asarray(fitted[used], dtype=float)
    alone = linear_drift(features, W, linear.metric, linear.clock)
    return DriftDraws.of_coefficients(alone, coefficients[:, used], noise, streams)


def _drawn_unknowns(
    linear: Linearised,
    streams: Streams,
    n_draws: int,
) -> Float[np.ndarray, "n_draws n_unknowns"]:
    """The unknowns v of every draw, 0 for what is not in its model."""
    rng = streams.rng(Stream.drift_draws)
    unknowns = linear.unknowns
    G = linear.information_root
    against = linear.against
    always = np.isinf(unknowns.log_odds)
    loose = loose_precisions(unknowns.jacobian, G, unknowns.precision, always)
    # Cosines are one field: its prior is that of all of them, not of each by itself.
    precision = np.where(unknowns.in_a_field, unknowns.precision, loose)
    inside = (unknowns.precision < EXCLUDED) | always
    models = draw_structures(
        G,
        against,
        precision,
        inside,
        unknowns.log_odds,
        n_draws,
        rng,
    )
    errors = _error_draws(linear, streams, n_draws) @ unknowns.jacobian
    v = np.zeros((n_draws, len(against)))
    for row, error, model in zip(v, errors, models, strict=True):
        posterior = Posterior(G[:, model.inside], model.precision)
        noise = np.sqrt(model.precision) * rng.standard_normal(len(model.inside))
        row[model.inside] = posterior.solve((against - error)[model.inside] + noise)
    return v


def particle_weights(
    streams: Streams,
    snapshot: int,
    n_points: int,
    n_draws: int = N_DRAWS,
) -> Float[np.ndarray, "n_draws n"]:
    """Omega of the particles of one snapshot, mean 1 over it, draw by draw."""
    rng = streams.rng(Stream.particle_weights, snapshot)
    omega = rng.exponential(size=(n_draws, n_points))
    return omega / omega.mean(axis=1, keepdims=True)


def _error_draws(
    linear: Linearised,
    streams: Streams,
    n_draws: int,
) -> Float[np.ndarray, "n_draws n_rows"]:
    """The errors e of every draw, lengthened."""
    errors = []
    for snapshot, a in linear.influence.items():
        omega = particle_weights(streams, snapshot, a.shape[1], n_draws)
        errors.append((omega - 1.0) @ a.T)
    n_rows = len(linear.y)
    n_inside = int(np.sum(linear.unknowns.precision < EXCLUDED))
    freedom = linear.n_apart * sum(a.shape[1] for a in linear.influence.values())
    return np.sum(errors, axis=0) * freedom / max(freedom - n_rows + n_inside, 0.5 * freedom)


def drift_draws(solution: Solution) -> DriftDraws:
    """Drifts that could be the true one; worked out when they are first asked for."""
    return solution.remembered("drift_draws", lambda: _drawn(solution))


def _drawn(solution: Solution) -> DriftDraws:
    if isinstance(solution, MomentsSolution) and solution.evidence is not None:
        with jax.default_device(processor()):
            along = along_valley(solution)
            draws = draw_drifts(solution.linearised, solution.problem.streams, along=along)
        return replace(draws, widened=solution.evidence.widening)
    drift = solution.process.drift
    members = members_of(drift)
    if isinstance(solution, MomentsSolution) or len(members) == 1:
        raise InputError(
            expected="a moments fit that ended, or an ensemble",
            found=found_instead(solution),
            hint=hint_for(solution, "solver='moments', or solver=Adversarial(n_members=5)"),
        )
    return DriftDraws.of_members(stacked(members), len(members), drift)


def along_valley(solution: MomentsSolution) -> Along | None:
    """The valley of a solution, where it is in one."""
    noise = solution.process.diffusion
    if solution.valley is None or not isinstance(noise, LearnedDiffusion):
        return None
    return Along(solution.valley, noise)


def widened_by(factor: float) -> str:
    """In words, that errors were widened."""
    return f"errors are widened {factor:.2g} times, since the snapshots contradict the process"


def has_error_bars(solution: Solution) -> bool:
    """Whether draws of the drift can be had."""
    if isinstance(solution, MomentsSolution):
        return solution.evidence is not None
    return len(members_of(solution.process.drift)) > 1
