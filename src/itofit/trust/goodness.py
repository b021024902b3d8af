"""Does the fitted process explain the snapshots? Chi-squared with honest degrees of freedom.

The whitened residuals of a transition have unit covariance at the truth, but the covariance they
are whitened with is an estimate from the same points, and far points count in the mean and in the
covariance at once. To first order in 1/points the sum of K squares (a studentised mean's, T^2 = r'
C^-1 r) has

    mean      K + G + S
    variance  2 K (1 + G / K)^3 + 12 S - 2 Q

    S = sum_abc t_abc^2 + sum_c (sum_a t_aac)^2,        t_abc = sum_i a_a(i) a_b(i) a_c(i)
    Q = sum_i |a(i)|^4 - (its value for normal points)

with a(i) what point i contributes, G = sum_s ((tr G_s)^2 + tr G_s^2 + tr G_s) / n_s for the two
ends s and G_s their parts of the unit covariance. G is Hotelling's; S, the skewness of the rows,
counts as much: together 4 % for 1200 points and 22 rows. A fit determines some of its rows: the
degrees of freedom are their number less what the drift takes of them. Sums over transitions are
compared with the gamma law of the same mean and variance.

Where a(i) is not at hand T^2 is taken for Hotelling's with nu degrees of freedom, the points of
both ends,

    mean = nu k / (nu - k - 1),        variance = 2 nu^2 k (nu - 1) / ((nu - k - 1)^2 (nu - k - 3))
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import numpy as np
from jaxtyping import Float
from scipy.stats import gamma

from itofit.devices import processor
from itofit.errors import InputError
from itofit.moments.evidence import Evidence
from itofit.moments.solution import MomentsSolution
from itofit.moments.whitening import Spread, contributions_of
from itofit.process.features import MANY_DIMS
from itofit.solution import Solution

# Points of a snapshot from which the skewness of its rows is read.
_MOST_POINTS = 600


class SquaresLaw(NamedTuple):
    """Mean and variance of a row's square at the truth, by transition: 1 and 2 for chi-squared."""

    mean: Float[np.ndarray, " n_transitions"]
    variance: Float[np.ndarray, " n_transitions"]


@dataclass(frozen=True, eq=False)
class GoodnessOfFit:
    """A test of the fit, interval by interval and in all; prints as a table.

    Parameters
    ----------
    intervals : tuple of pairs of float
        (from, to) in time.
    chi2 : array of shape (n_intervals,)
        Squared whitened residuals.
    freedom : array of shape (n_intervals,)
        Their degrees of freedom.
    p_values : array of shape (n_intervals,)
        How often a true model would do worse. Small where snapshots contradict the model; close to
        1 where they share particles, for which the test is too mild.
    p_value : float
        The same of all intervals together.

    Examples
    --------
    >>> import numpy as np
    >>> from itofit.trust.goodness import GoodnessOfFit
    >>> test = GoodnessOfFit(
    ...     ((0.0, 1.0),), np.array([12.0]), np.array([10.0]), np.array([0.29]), 0.29
    ... )
    >>> test.rejects()
    False
    """

    intervals: tuple[tuple[float, float], ...]
    chi2: Float[np.ndarray, " n_intervals"]
    freedom: Float[np.ndarray, " n_intervals"]
    p_values: Float[np.ndarray, " n_intervals"]
    p_value: float

    def rejects(self, level: float = 0.05) -> bool:
        """Whether the model is rejected at this level.

        Parameters
        ----------
        level : float
            Of the test.

        Returns
        -------
        bool
            Whether p is below it.
        """
        return self.p_value < level

    def to_records(self) -> list[dict[str, Any]]:
        """One plain dictionary an interval, for JSON."""
        rows = zip(self.intervals, self.chi2, self.freedom, self.p_values, strict=True)
        return [
            {"from": a, "to": b, "chi2": float(c), "freedom": float(f), "p": float(p)}
            for (a, b), c, f, p in rows
        ]

    def __str__(self) -> str:
        lines = [f"{'interval':>16}{'chi-squared':>13}{'freedom':>9}{'p':>8}"]
        rows = zip(self.intervals, self.chi2, self.freedom, self.p_values, strict=True)
        for (a, b), chi2, free, p in rows:
            lines.append(f"{f'{a:g} to {b:g}':>16}{chi2:>13.1f}{free:>9.1f}{p:>8.3f}")
        total = float(self.chi2.sum())
        free = float(self.freedom.sum())
        lines.append(f"{'all':>16}{total:>13.1f}{free:>9.1f}{self.p_value:>8.3f}")
        verdict = "contradict" if self.rejects() else "do not contradict"
        return "\n".join([*lines, f"the snapshots {verdict} this process at the 5 % level"])


def judged(
    evidence: Evidence,
    times: np.ndarray,
    law: SquaresLaw | None = None,
) -> GoodnessOfFit:
    """The test of a moments fit to snapshots at these times; Hotelling's without a law."""
    freedom = np.maximum(evidence.n_rows - evidence.n_determined, 1.0)
    if law is None:
        mean, variance = hotelling_moments(freedom, evidence.n_points)
    else:
        mean = freedom * law.mean
        variance = freedom * law.variance
    chi2 = evidence.chi2
    rows = zip(chi2, mean, variance, strict=True)
    return GoodnessOfFit(
        intervals=tuple((float(times[a]), float(times[b])) for a, b in evidence.ends),
        chi2=chi2,
        freedom=freedom,
        p_values=np.asarray([tail_of(value, m, v) for value, m, v in rows]),
        p_value=tail_of(float(chi2.sum()), float(mean.sum()), float(variance.sum())),
    )


def law_of_squares(
    spreads: Sequence[Spread],
    bases: Sequence[np.ndarray],
) -> SquaresLaw:
    """The law of the squares of rows `bases @ residuals`, for transitions with these ends.

    The rows are of unit covariance.
    """
    rows = []
    for spread, basis in zip(spreads, bases, strict=True):
        rows.append(_moments_of_square(_contributions(spread, basis)))
    mean, variance = np.transpose(rows)
    return SquaresLaw(mean, variance)


def _contributions(
    spread: Spread,
    basis: np.ndarray,
) -> list[Float[np.ndarray, "n_points n_rows"]]:
    """What every point of either end contributes to the rows; of pairs every individual."""
    return [a @ basis.T for _, a in contributions_of(spread)]


def _moments_of_square(ends: Sequence[np.ndarray]) -> tuple[float, float]:
    """Mean and variance of T^2 by row."""
    n_rows = ends[0].shape[1]
    hotelling = 0.0
    normal = 0.0
    for a in ends:
        count = len(a)
        part = a.T @ a
        trace = float(np.trace(part))
        squares = float(np.sum(part**2))
        hotelling += (trace**2 + squares + trace) / count
        normal += (trace**2 + 2.0 * squares) / count
    skewness = _skewness(ends)
    fourth = sum(float(np.sum(np.sum(a**2, axis=1) ** 2)) for a in ends)
    wider = max(12.0 * skewness - 2.0 * (fourth - normal), 0.0)
    mean = 1.0 + (hotelling + skewness) / n_rows
    variance = 2.0 * (1.0 + hotelling / n_rows) ** 3 + wider / n_rows
    return mean, variance


def _skewness(ends: Sequence[np.ndarray]) -> float:
    """S as a sum over pairs of points; a point with itself would count its noise as skewness."""
    few = np.concatenate([a[:_MOST_POINTS] for a in ends])
    stands_for = [max(1.0, len(a) / _MOST_POINTS) for a in ends]
    each = np.repeat(stands_for, [min(len(a), _MOST_POINTS) for a in ends])
    products = few @ few.T
    size = np.sum(few**2, axis=1)
    pairs = each @ (products * (products**2 + np.outer(size, size))) @ each
    return max(0.0, float(pairs - 2.0 * (each**2) @ size**3))


def hotelling_moments(
    k: Float[np.ndarray, " n"],
    nu: Float[np.ndarray, " n"],
) -> tuple[Float[np.ndarray, " n"], Float[np.ndarray, " n"]]:
    """Mean and variance of Hotelling's T^2 in k dimensions with nu degrees of freedom."""
    room = np.maximum(nu - k, 5.0)
    mean = nu * k / (room - 1.0)
    variance = 2.0 * nu**2 * k * (nu - 1.0) / ((room - 1.0) ** 2 * (room - 3.0))
    return mean, variance


def tail_of(
    value: float,
    mean: float,
    variance: float,
) -> float:
    """How often a gamma law of this mean and variance exceeds a value."""
    return float(gamma.sf(value, mean**2 / variance, scale=variance / mean))


def goodness_of_fit(solution: Solution) -> GoodnessOfFit:
    """Whether the snapshots contradict the fitted process, interval by interval and in all."""
    hint = "solver='moments'; for the adversarial solver see history_.criterion"
    moments = ended(solution, hint)
    assert moments.evidence is not None
    return judged(moments.evidence, solution.problem.observed.times, squares_law(moments))


def ended(
    solution: Solution,
    hint: str = "solver='moments'",
) -> MomentsSolution:
    """The solution of a moments fit that ended, or a refusal."""
    if isinstance(solution, MomentsSolution) and solution.evidence is not None:
        return solution
    kind = "moments" if isinstance(solution, MomentsSolution) else "other"
    raise InputError(
        expected="a moments fit that ended",
        found=f"one {kind} fit: {solution.outcome.value}",
        hint=hint,
    )


def is_plain(solution: Solution) -> bool:
    """Whether the drift is the same at all times and may be any vector field."""
    return not solution.process.drift.varies and not solution.problem.has_potential


def check_plain(solution: Solution, what: str) -> None:
    """Refuse a drift that changes with time, or is the gradient of a potential."""
    if solution.problem.has_potential:
        raise InputError(
            expected=f"for {what}, a drift that may be any vector field",
            found="one that has a potential",
            hint="fit with drift='free'",
        )
    check_autonomous(solution, what)


def check_autonomous(solution: Solution, what: str) -> None:
    """Refuse a drift that changes with time."""
    if solution.process.drift.varies:
        raise InputError(
            expected=f"for {what}, a drift that is the same at all times",
            found="one that changes with time",
            hint="fit with time_varying=False",
        )


def squares_law(solution: MomentsSolution) -> SquaresLaw | None:
    """The law of the squared residuals at the truth; worked out when it is first asked for.

    None in many dimensions, where correlations are shrunk, which makes another statistic.
    """
    if solution.problem.snapshots.n_dims > MANY_DIMS:
        return None
    return solution.remembered("squares_law", lambda: _law_at(solution))


def _law_at(solution: MomentsSolution) -> SquaresLaw:
    with jax.default_device(processor()):
        spreads = solution.residual.spreads(solution.state.v)
        return law_of_squares(spreads, solution.whitening.bases)
