"""The small end of the noises that the snapshots do not tell apart.

    E f(X_t) - E f(X_s) = integral of E[g . grad f + 1/2 tr(a hess f)]

is linear in g and a = S S'. If (g, a) and (g', a') both explain the snapshots, so do, to first
order in how far paths move, all pairs on the line between them: a valley. Over short gaps and near
equilibrium one reaches from a fit down to hardly any noise. The process is then the one at its
small end, and what is not known of it is the valley (`trust.posterior`).
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Bool, Float

from itofit.moments.gauss_newton import can_be_squared
from itofit.moments.phases import STAYING
from itofit.moments.polishing import Start, polished
from itofit.moments.relevance import Posterior
from itofit.moments.solution import MomentsSolution, Valley
from itofit.moments.solver import Moments
from itofit.process.ito import ItoProcess
from itofit.process.noise import LOG_UNIT, LearnedDiffusion

# Variances are tried at these parts and multiples of the fitted ones, one after the other.
_PARTS = (0.1, 0.01, 0.001)
_MULTIPLES = tuple(float(10.0 ** (k / 2)) for k in range(1, 7))
# By how much chi-squared may rise: the 95 % quantile for one unknown.
_ALLOWED = 3.84
# Draws of the noise from every start point, which make chi-squared uncertain, and chains of a
# snapshot at the most.
_N_DRAWS = 16
_MOST_CHAINS = 16_000
# From so many sds below its mean on, chi-squared is of residuals smaller than those of independent
# points.
_SDS = 2.0
# A first look has few steps and the draws of the fit: chi-squared so far above needs no second one.
_FEW_STEPS = 8
_FAR_ABOVE = 40.0
# Coordinates are tried without the others where log a has a standard error above this.
_UNSURE = 0.5
# Coordinates up to which these fits are quick enough.
_MOST_DIMS = 5


def at_the_small_end(fitted: MomentsSolution, solver: Moments) -> MomentsSolution:
    """The solution of least noise that explains the snapshots as well, with its valley.

    Parameters
    ----------
    fitted : MomentsSolution
        What a polish ended in.
    solver : Moments
        What polishes.

    Returns
    -------
    MomentsSolution
        The same where the snapshots know the noise, or contradict the process.
    """
    noise = fitted.process.diffusion
    few = fitted.problem.snapshots.n_dims <= _MOST_DIMS
    if not few or not isinstance(noise, LearnedDiffusion) or not noise.constant or fitted.doubts():
        return fitted
    doubtful = list(_Held(fitted, replace(solver, n_iter=_FEW_STEPS), noise).axes_in_doubt())
    if not doubtful:
        return fitted
    held = _Held(fitted, _with_more_draws(solver, max(fitted.problem.snapshots.counts)), noise)
    reference = held.at(held.every_axis, 1.0, fitted)
    if reference is None:
        return fitted
    for axes in doubtful:
        low = held.furthest(reference, axes, _PARTS)
        if low.factor < 1.0:
            high = held.furthest(reference, axes, _MULTIPLES)
            return _ended(low, high, axes)
    return fitted


def _with_more_draws(solver: Moments, n_points: int) -> Moments:
    n_draws = min(_N_DRAWS, _MOST_CHAINS // n_points)
    return replace(solver, n_draws=max(solver.n_draws, n_draws))


@dataclass(frozen=True, eq=False)
class _Reached:
    """How far the noise can be moved: the last fit that is allowed, the first factor that is not.

    - `factor`: of the last that is allowed.
    """

    solution: MomentsSolution
    factor: float
    refused: float


@dataclass(frozen=True, eq=False)
class _Held:
    """Fits like one of a learned noise, with that noise held at other sizes."""

    fitted: MomentsSolution
    solver: Moments
    noise: LearnedDiffusion

    @property
    def every_axis(self) -> Bool[np.ndarray, " n_dims"]:
        """All coordinates."""
        return np.ones(self.fitted.problem.snapshots.n_dims, dtype=bool)

    def axes_in_doubt(self) -> Iterator[Bool[np.ndarray, " n_dims"]]:
        """All coordinates, unless a fit with less noise is far off; those hardly known alone."""
        less = self.at(self.every_axis, _PARTS[0], self.fitted)
        if less is not None and _beyond(less) < _beyond(self.fitted) + _FAR_ABOVE:
            yield self.every_axis
        if self.noise.n_parameters == 1:
            return
        unsure = self._log_errors() > _UNSURE
        if np.any(unsure) and not np.all(unsure):
            yield unsure

    def furthest(
        self,
        reference: MomentsSolution,
        axes: Bool[np.ndarray, " n_dims"],
        factors: Sequence[float],
    ) -> _Reached:
        """The last of these factors that chi-squared allows, and the first that it does not."""
        reached = _Reached(reference, 1.0, refused=float("nan"))
        for factor in factors:
            there = self.at(axes, factor, reached.solution)
            if there is None or not _is_allowed(there, reference):
                return replace(reached, refused=factor)
            reached = _Reached(there, factor, refused=float("nan"))
        return replace(reached, refused=0.0 if factors[-1] < 1.0 else np.inf)

    def at(
        self, axes: Bool[np.ndarray, " n_dims"], factor: float, near: MomentsSolution
    ) -> MomentsSolution | None:
        """The fit with the variances of these coordinates multiplied, from the drift of one near.

        All its terms are kept.
        """
        process = ItoProcess(near.process.drift, self.noise.multiplied(axes, factor))
        dictionary = self.fitted.dictionary
        start = Start(process, dictionary, self._precision(), STAYING, noise_is_held=True)
        return polished(self.fitted.problem, self.solver, start)

    def _precision(self) -> Float[np.ndarray, "n_groups n_outputs"]:
        """Of the prior of every group but the constants, as a `Start` has it."""
        evidence = self.fitted.evidence
        assert evidence is not None
        groups = self.fitted.dictionary.groups
        first = np.cumsum([0, *(group.size for group in groups)])[:-1]
        held = [group.kind != "constant" for group in groups]
        in_units = (self.fitted.probing.speed * self.fitted.problem.span) ** 2
        return evidence.precision[first[held]] / in_units

    def _log_errors(self) -> Float[np.ndarray, " n_dims"]:
        """The standard error of log a of every coordinate; none where chains run away."""
        fitted = self.fitted
        state = fitted.state
        columns = np.flatnonzero(state.prior.alive)
        J = fitted.residual.jacobian(state.v, fitted.whitening, columns)
        if not can_be_squared(J):
            return np.zeros(len(self.every_axis))
        covariance = Posterior(J, state.prior.diagonal[columns]).covariance()
        of_noise = np.flatnonzero(columns >= fitted.residual.n_coefficients)[: len(self.every_axis)]
        return 2.0 * LOG_UNIT * np.sqrt(np.diag(covariance)[of_noise])


def _is_allowed(less: MomentsSolution, reference: MomentsSolution) -> bool:
    """Whether chi-squared rises by no more than it may, in units of what residuals are."""
    evidence = reference.evidence
    assert evidence is not None
    sd = float(np.sqrt(np.sum(evidence.freedom * evidence.row_variance)))
    unit = evidence.excess if _beyond(reference) < -_SDS * sd else 1.0
    return _beyond(less) <= _beyond(reference) + unit * _ALLOWED


def _beyond(solution: MomentsSolution) -> float:
    """Chi-squared less what is expected of it at the truth."""
    evidence = solution.evidence
    assert evidence is not None
    return float(np.sum(evidence.chi2) - np.sum(evidence.freedom * evidence.row_mean))


def _ended(low: _Reached, high: _Reached, axes: Bool[np.ndarray, " n_dims"]) -> MomentsSolution:
    """The fit at the small end; the large end is where its valley leads to."""
    assert high.solution.evidence is not None
    noise = high.solution.process.diffusion
    assert isinstance(noise, LearnedDiffusion)
    valley = Valley(
        axes=axes,
        coefficients=high.solution.evidence.coefficients,
        theta=np.asarray(noise.theta, dtype=np.float64),
        refused=np.asarray([low.refused, high.refused]) / low.factor,
    )
    return replace(low.solution, valley=valley)
