"""What snapshots say of any drift, whatever the fit chose: a linear problem of a broad dictionary.

    drifts        all polynomials of low degree in standardised units, about the fitted drift,
                  and log sigma
    prior         every degree moves the drift by 3 sd in the span of the data, on the data, for
                  each output
    information   H = G'G of `moments.linearised`, in which the noise of J does not count as
                  knowledge

The fitted drift only says where the problem is linearised. What it dropped is unknown here like
everything else.
"""

import functools
from dataclasses import dataclass, replace
from math import comb

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from itofit.moments.adaptive_ridges import on_trial
from itofit.moments.forward_selection import JACOBIAN_POINTS
from itofit.moments.gauss_newton import State
from itofit.moments.linearised import Terms, by_fold, information_root_of, state_of
from itofit.moments.probing import Probing
from itofit.moments.relevance import Posterior
from itofit.moments.residuals import Residual, Simulated
from itofit.moments.whitening import Whitening
from itofit.process.features import Dictionary, monomials
from itofit.process.monomials import Monomials
from itofit.process.noise import ScaledDiffusion

# Coefficients above which only a lower degree is looked at.
_MOST_COEFFICIENTS = 1000
_HIGHEST_DEGREE = 3
# sigma is unknown up to a factor e, and its slope is a difference over this fraction of it.
_LOG_SIGMA_PRECISION = 1.0
_STEP = 0.05


@dataclass(frozen=True, eq=False)
class Reference:
    """The linear problem of the coefficients, feature by feature, output by output, and log sigma.

    - `metric`: mean products of the features over the snapshots, each of them counting the same.
      `speed`: of the drift for coefficients of size one.
    - `folds`: the slopes of the residuals, over independent parts of the start points. `precision`:
      of the prior.
    - `fitted`: the fitted drift as a polynomial, as near as there is one.
    """

    dictionary: Dictionary
    n_dims: int
    metric: Float[np.ndarray, "n_features n_features"]
    speed: float
    folds: Float[np.ndarray, "n_folds n_rows n_unknowns"]
    precision: Float[np.ndarray, " n_unknowns"]
    fitted: Float[np.ndarray, " n_coefficients"]

    @functools.cached_property
    def information_root(self) -> Float[np.ndarray, "n_root n_unknowns"]:
        """G."""
        return information_root_of(self.folds, doubt=1.0)

    @property
    def n_coefficients(self) -> int:
        """Unknowns but for sigma."""
        return self.dictionary.n_features * self.n_dims

    def joined(self, other: "Reference") -> "Reference":
        """The same unknowns under both problems."""
        both = [self.folds, other.folds]
        if len(self.folds) != len(other.folds):
            both = [folds.mean(axis=0, keepdims=True) for folds in both]
        return replace(self, folds=np.concatenate(both, axis=1))

    def covariance(self, sigma_known: bool = True) -> Float[np.ndarray, "n_unknowns n_unknowns"]:
        """What the snapshots leave of the prior; without the row of log sigma where it is known."""
        columns = slice(self.n_coefficients) if sigma_known else slice(None)
        return Posterior(self.information_root[:, columns], self.precision[columns]).covariance()


def reference_degree(n_dims: int) -> int:
    """The highest degree whose polynomials are not too many."""
    for degree in range(_HIGHEST_DEGREE, 1, -1):
        if n_dims * comb(n_dims + degree, degree) <= _MOST_COEFFICIENTS:
            return degree
    return 1


def reference(
    probing: Probing,
    terms: Terms,
    like: Reference | None = None,
) -> Reference:
    """The problem at the drift of these terms; with the unknowns of another, `like`."""
    state = state_of(terms, probing.speed)
    base = _prior_of(probing, terms.dictionary, state) if like is None else like
    residual = _residual(probing, terms, terms.dictionary)
    whitening = probing.whitening(residual, state.v)
    v = np.concatenate([state.v, np.zeros(base.n_coefficients)])
    columns = np.arange(len(state.v), len(v))
    wide = on_trial(residual, [base.dictionary])
    if not isinstance(residual, Simulated):
        wide = _residual(probing, terms, wide.dictionary)
    slopes = by_fold(wide, v, whitening, columns)
    noise = _noise_slopes(probing, terms, state, whitening)
    every = np.concatenate([slopes * base.speed / probing.speed, noise[:, :, None]], axis=2)
    return replace(base, folds=every)


def mean_slopes(
    probing: Probing,
    terms: Terms,
    like: Reference,
) -> Float[np.ndarray, "n_dims n_coefficients"]:
    """How the means at the last of two snapshots change with the coefficients of `like`, in sds."""
    state = state_of(terms, probing.speed)
    residual = probing.simulated(terms.dictionary, 1, cosines=False)
    wide = replace(residual, dictionary=on_trial(residual, [like.dictionary]).dictionary)
    v = np.concatenate([state.v, np.zeros(like.n_coefficients)])
    means = np.eye(like.n_dims, len(wide(v)[0]))
    slopes = wide.slopes(v, [means], np.arange(len(state.v), len(v)))[0]
    return slopes * like.speed / probing.speed


def _prior_of(
    probing: Probing,
    known: Dictionary,
    state: State,
) -> Reference:
    """The unknowns and their prior, without data yet."""
    n_dims = probing.snapshots.n_dims
    terms = Monomials.up_to(n_dims, reference_degree(n_dims)).terms
    low, high = probing.box
    tried = monomials(terms, low, high)
    metric, fitted = _projection(probing, tried, known, state)
    degree = np.asarray([len(term) for term in terms])
    by_feature = np.bincount(degree)[degree] * np.maximum(np.diag(metric), 1e-12)
    precision = np.append(np.repeat(by_feature, n_dims), _LOG_SIGMA_PRECISION)
    return Reference(
        dictionary=tried,
        n_dims=n_dims,
        metric=metric,
        speed=probing.speed,
        folds=np.zeros((1, 0, len(precision))),
        precision=precision,
        fitted=fitted,
    )


def _residual(
    probing: Probing,
    terms: Terms,
    dictionary: Dictionary,
) -> Residual:
    """The residual that information is read from: by simulation, or linear on observed clouds."""
    path = "simulated" if terms.path == "simulated" else "observed"
    residual = probing.on_path(
        path,
        dictionary,
        terms.evidence.gaps,
        n_draws=2,
    )
    if isinstance(residual, Simulated):
        return replace(residual, n_jacobian=2 * JACOBIAN_POINTS)
    return residual


def _projection(
    probing: Probing,
    tried: Dictionary,
    known: Dictionary,
    state: State,
) -> tuple[np.ndarray, np.ndarray]:
    """Mean products of the features on trial, and their coefficients nearest to the drift."""
    metric = np.zeros((tried.n_features, tried.n_features))
    product = np.zeros((tried.n_features, known.n_features))
    for snapshot in probing.snapshots:
        x = jnp.asarray(snapshot.points, dtype=float)
        phi = np.asarray(jax.vmap(tried.features)(x), dtype=np.float64)
        psi = np.asarray(jax.vmap(known.features)(x), dtype=np.float64)
        weighted = snapshot.weights[:, None]
        metric += phi.T @ (weighted * phi) / len(probing.snapshots)
        product += phi.T @ (weighted * psi) / len(probing.snapshots)
    nearest = np.linalg.lstsq(metric, product, rcond=1e-10)[0]
    fitted = nearest @ state.v.reshape(known.n_features, -1)
    return metric, fitted.ravel()


def _noise_slopes(
    probing: Probing,
    terms: Terms,
    state: State,
    whitening: Whitening,
) -> Float[np.ndarray, "n_folds n_rows"]:
    """How the residuals change with log sigma, fold by fold."""

    def residuals_with(factor: float) -> np.ndarray:
        scaled = probing.with_noise(ScaledDiffusion(probing.diffusion, factor))
        folds = _residual(scaled, terms, terms.dictionary).folds()
        return np.stack([whitening(fold(state.v)) for fold in folds])

    return (residuals_with(1.0 + _STEP) - residuals_with(1.0 - _STEP)) / (2.0 * _STEP)
