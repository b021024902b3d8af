"""What snapshots say of any drift, whatever the fit chose: the linear problem of a fixed, broad dictionary and prior.

    drifts        all polynomials of low degree in standardised units, about the fitted drift, and log sigma
    prior         every degree moves the drift by 3 sd in the span of the data, on the data, for each output
    information   H = G'G of `solve.linearised`, in which the noise of J does not count as knowledge

The fitted drift only says where the problem is linearised. What it dropped is unknown here like everything else.
"""

import functools
from dataclasses import dataclass, replace
from math import comb

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from itofit.process.diffusion import AbstractDiffusion
from itofit.process.features import Dictionary, monomials
from itofit.process.monomials import Monomials
from itofit.solve.evidence import Evidence
from itofit.solve.gauss_newton import State
from itofit.solve.growth import JACOBIAN_POINTS
from itofit.solve.linearised import by_fold, signal_of, state_of
from itofit.solve.relevance import Posterior
from itofit.solve.residuals import Residual
from itofit.solve.task import Task
from itofit.solve.turning import on_trial
from itofit.solve.whitening import Whitening

# Coefficients above which only a lower degree is looked at.
_MOST_COEFFICIENTS, _HIGHEST_DEGREE = 1000, 3
# sigma is unknown up to a factor e, and its slope is a difference over this share of it.
_LOG_SIGMA_PRECISION, _STEP = 1.0, 0.05


class ScaledDiffusion(AbstractDiffusion):
    """A multiple of another diffusion."""

    inner: AbstractDiffusion
    factor: float = eqx.field(static=True)

    def __call__(self, x):
        return self.factor * self.inner(x)


@dataclass(frozen=True, eq=False)
class Reference:
    """The linear problem: unknowns are the coefficients, feature by feature and output by output, and log sigma.

    - `metric`: mean products of the features over the snapshots, each of them counting the same. `speed`: of the drift
      for coefficients of size one.
    - `folds`: the slopes of the residuals, over independent parts of the start points. `precision`: of the prior.
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
    def signal(self) -> Float[np.ndarray, "n_signal n_unknowns"]:
        """G."""
        return signal_of(self.folds, doubt=1.0)

    @property
    def n_coefficients(self) -> int:
        """Unknowns but for sigma."""
        return self.dictionary.n_features * self.n_dims

    def joined(self, other: "Reference") -> "Reference":
        """The same unknowns seen by both problems."""
        parts = [self.folds, other.folds]
        if len(self.folds) != len(other.folds):
            parts = [part.mean(axis=0, keepdims=True) for part in parts]
        return replace(self, folds=np.concatenate(parts, axis=1))

    def covariance(self, sigma_known: bool = True) -> Float[np.ndarray, "n_unknowns n_unknowns"]:
        """What the snapshots leave of the prior; without the row of log sigma where it is known."""
        kept = slice(self.n_coefficients) if sigma_known else slice(None)
        return Posterior(self.signal[:, kept], self.precision[kept]).covariance()


def reference_degree(n_dims: int) -> int:
    """The highest degree whose polynomials are not too many."""
    fits = [d for d in range(1, _HIGHEST_DEGREE + 1) if n_dims * comb(n_dims + d, d) <= _MOST_COEFFICIENTS]
    return max(fits, default=1)


def reference(
    task: Task, known: Dictionary, evidence: Evidence, path: str = "simulated", like: Reference | None = None
) -> Reference:
    """The problem at the drift of `evidence`, whose dictionary is `known`; with the unknowns of another, `like`."""
    state = state_of(evidence, known, task.speed)
    base = _prior_of(task, known, state) if like is None else like
    gaps = [int(a) for a, _ in evidence.ends]
    residual = _residual(task, known, path, gaps)
    whitening = task.whitening(residual, state.v)
    v = np.concatenate([state.v, np.zeros(base.n_coefficients)])
    columns = np.arange(len(state.v), len(v))
    slopes = by_fold(_beside(task, residual, base.dictionary, path, gaps), v, whitening, columns)
    noise = _noise_slopes(task, known, state, whitening, path, gaps)
    every = np.concatenate([slopes * base.speed / task.speed, noise[:, :, None]], axis=2)
    return replace(base, folds=every)


def mean_slopes(task: Task, known: Dictionary, evidence: Evidence, like: Reference) -> Float[np.ndarray, "n_dims n"]:
    """How the means at the last of two snapshots, in its sds, change with the coefficients of `like`."""
    state = state_of(evidence, known, task.speed)
    residual = task.residual(known, 1, cosines=False)
    wide = replace(residual, dictionary=on_trial(residual, [like.dictionary]).dictionary)
    v = np.concatenate([state.v, np.zeros(like.n_coefficients)])
    means = np.eye(like.n_dims, len(wide(v)[0]))
    found = wide.slopes(v, [means], np.arange(len(state.v), len(v)))[0]
    return found * like.speed / task.speed


def _prior_of(task: Task, known: Dictionary, state: State) -> Reference:
    """The unknowns and their prior; nothing is seen of them yet."""
    n_dims = task.snapshots.n_dims
    terms = Monomials.up_to(n_dims, reference_degree(n_dims)).terms
    tried = monomials(terms, *task.box)
    metric, fitted = _projection(task, tried, known, state)
    degree = np.asarray([len(term) for term in terms])
    precision = np.bincount(degree)[degree] * np.maximum(np.diag(metric), 1e-12)
    every = np.append(np.repeat(precision, n_dims), _LOG_SIGMA_PRECISION)
    return Reference(tried, n_dims, metric, task.speed, np.zeros((1, 0, len(every))), every, fitted)


def _residual(task: Task, known: Dictionary, path: str, gaps: list[int]) -> Residual:
    if path == "simulated":
        return replace(task.residual(known, 2, cosines=True), n_jacobian=2 * JACOBIAN_POINTS)
    return task.seen_path(known, gaps)


def _beside(task: Task, residual: Residual, tried: Dictionary, path: str, gaps: list[int]) -> Residual:
    """The residual with the features that are tried."""
    wide = on_trial(residual, [tried])
    return wide if path == "simulated" else task.seen_path(wide.dictionary, gaps)


def _projection(task: Task, tried: Dictionary, known: Dictionary, state: State) -> tuple[np.ndarray, np.ndarray]:
    """Mean products of the features that are tried, and the coefficients with which they come nearest to the drift."""
    metric, product = np.zeros((tried.n_features, tried.n_features)), np.zeros((tried.n_features, known.n_features))
    for points, weights in zip(task.snapshots.clouds, task.snapshots.weights, strict=True):
        x = jnp.asarray(points, dtype=float)
        phi, psi = (np.asarray(jax.vmap(f.features)(x), dtype=np.float64) for f in (tried, known))
        metric += phi.T @ (weights[:, None] * phi) / len(task.snapshots)
        product += phi.T @ (weights[:, None] * psi) / len(task.snapshots)
    nearest = np.linalg.lstsq(metric, product, rcond=1e-10)[0]
    return metric, (nearest @ state.v.reshape(known.n_features, -1)).ravel()


def _noise_slopes(
    task: Task, known: Dictionary, state: State, whitening: Whitening, path: str, gaps: list[int]
) -> Float[np.ndarray, "n_folds n_rows"]:
    """How the residuals change with log sigma, fold by fold."""
    ends = []
    for factor in (1.0 + _STEP, 1.0 - _STEP):
        louder = replace(task, diffusion=ScaledDiffusion(task.diffusion, factor))
        parts = _residual(louder, known, path, gaps).folds()
        ends.append(np.stack([whitening(part(state.v)) for part in parts]))
    return (ends[0] - ends[1]) / (2.0 * _STEP)
