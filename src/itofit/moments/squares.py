"""The law of the squared whitened residuals at the truth.

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
counts as much: together 4 % for 1200 points and 22 rows.

In many dimensions correlations are shrunk by a factor c, and what is left has the covariance
P = sum_i a(i) a(i)', not 1. The sum of squares has

    mean      tr P + c^2 G
    variance  2 tr P^2 (1 + c^2 G / tr P)^3

where the noise of P is taken off its square: tr P^2 is a sum over pairs of different points.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from itofit.moments.whitening import Spread, Whitening, contributions_of

# Points of a snapshot from which the skewness of its rows is read, and the covariance of many rows.
_MOST_POINTS = 600
_MOST_SHRUNK = 2000


class SquaresLaw(NamedTuple):
    """Mean and variance of a row's square at the truth, by transition: 1 and 2 for chi-squared."""

    mean: Float[np.ndarray, " n_transitions"]
    variance: Float[np.ndarray, " n_transitions"]


def law_at(spreads: Sequence[Spread], whitening: Whitening) -> SquaresLaw:
    """The law of what this whitening makes of residuals with these ends."""
    if whitening.by_probe:
        return _law_of_shrunk(spreads, whitening)
    return law_of_squares(spreads, whitening.bases)


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


def _law_of_shrunk(spreads: Sequence[Spread], whitening: Whitening) -> SquaresLaw:
    """The law where correlations are shrunk."""
    rows = whitening.influence([_thinned(spread) for spread in spreads])
    ends = np.cumsum([len(basis) for basis in whitening.bases])[:-1]
    counts = _counts(spreads)
    by_snapshot = {}
    for snapshot, a in rows.items():
        by_snapshot[snapshot] = np.split(np.sqrt(a.shape[1] / counts[snapshot]) * a, ends)
    laws = []
    for n in range(len(spreads)):
        parts = [(by_snapshot[s][n], counts[s]) for s in by_snapshot]
        laws.append(_moments_of_shrunk(parts, whitening.certain))
    mean, variance = np.transpose(laws)
    return SquaresLaw(mean, variance)


def _moments_of_shrunk(
    parts: Sequence[tuple[np.ndarray, int]], certain: float
) -> tuple[float, float]:
    """Mean and variance of the squares by row; of every snapshot its rows, and how many points."""
    n_rows = len(parts[0][0])
    whole = np.zeros((n_rows, n_rows))
    hotelling = 0.0
    own = 0.0
    for a, count in parts:
        part = a @ a.T
        trace = float(np.trace(part))
        hotelling += certain**2 * (trace**2 + float(np.sum(part**2)) + trace) / count
        own += float(np.sum(np.sum(a**2, axis=0) ** 2))
        whole += part
    trace = float(np.trace(whole))
    squares = max(float(np.sum(whole**2)) - own, trace**2 / n_rows)
    mean = (trace + hotelling) / n_rows
    return mean, 2.0 * squares * (1.0 + hotelling / trace) ** 3 / n_rows


def _counts(spreads: Sequence[Spread]) -> dict[int, int]:
    """The points of every snapshot."""
    starts = {spread.start: len(spread.start_weights) for spread in spreads}
    return starts | {spread.target: len(spread.target_weights) for spread in spreads}


def _thinned(spread: Spread) -> Spread:
    """The first points of both ends alone."""
    begun = spread.start_weights[:_MOST_SHRUNK]
    ended = spread.target_weights[:_MOST_SHRUNK]
    propagated = spread.propagated
    return spread._replace(
        start_weights=begun / begun.sum(),
        target_weights=ended / ended.sum(),
        propagated=None if propagated is None else propagated[:_MOST_SHRUNK],
        observed=spread.observed[:_MOST_SHRUNK],
    )
