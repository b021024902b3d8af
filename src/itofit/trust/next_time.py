"""Which further snapshot would tell most about a forecast.

A snapshot that nobody has taken yet is replaced by the cloud the fitted process predicts from the
one before it. What the way there says of the drift adds to the information H of the others
(`moments.reference`), and with L = d E[X_T] / dv the variance of the forecast's means that comes
from the drift is L (H + Lambda)^-1 L', with and without it.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np
from jaxtyping import Float

from itofit.devices import processor
from itofit.errors import InputError
from itofit.forecast import checked_times
from itofit.moments.reference import mean_slopes, reference
from itofit.snapshots.clouds import numeric_times
from itofit.solution import Solution
from itofit.trust.goodness import check_plain, ended
from itofit.trust.identifiability import probing_between, with_snapshot_at


@dataclass(frozen=True, eq=False)
class NextTime:
    """What each candidate would leave of the uncertainty of a forecast; prints as a table.

    The uncertainty is the root mean square over coordinates of the standard error of the mean from
    the drift alone, in sds of the forecast.

    Parameters
    ----------
    time : float
        Of the forecast.
    n_points : int
        Of the further snapshot.
    candidates : array of shape (n_candidates,)
        The times at which it could be taken.
    before : float
        The uncertainty without it.
    after : array of shape (n_candidates,)
        The uncertainty with it, by candidate.

    Examples
    --------
    >>> import numpy as np
    >>> from itofit.trust.next_time import NextTime
    >>> answer = NextTime(2.0, 100, np.array([0.5, 1.5]), 0.4, np.array([0.3, 0.2]))
    >>> answer.best
    1.5
    """

    time: float
    n_points: int
    candidates: Float[np.ndarray, " n_candidates"]
    before: float
    after: Float[np.ndarray, " n_candidates"]

    @property
    def best(self) -> float:
        """The candidate that leaves least."""
        return float(self.candidates[int(np.argmin(self.after))])

    def to_records(self) -> list[dict[str, Any]]:
        """One plain dictionary a candidate, for JSON."""
        rows = zip(self.candidates, self.after, strict=True)
        return [
            {"time": float(t), "forecast": self.time, "before": self.before, "after": float(sd)}
            for t, sd in rows
        ]

    def __str__(self) -> str:
        lines = [
            f"mean at t = {self.time:g}: standard error {self.before:.3g} sd from the drift "
            "(reference prior)"
        ]
        rows = zip(self.candidates, self.after, strict=True)
        for time, sd in sorted(rows, key=lambda row: row[1]):
            lines.append(f"  with {self.n_points} points at t = {time:<8.4g} {sd:.3g} sd")
        return "\n".join([*lines, f"take the next snapshot at t = {self.best:g}"])


def left_over(
    slopes: Float[np.ndarray, "n_dims n"],
    covariance: Float[np.ndarray, "n n"],
) -> float:
    """Root mean square over coordinates of the standard error of the means."""
    variances = np.sum((slopes @ covariance) * slopes, axis=1)
    return float(np.sqrt(np.mean(variances)))


def next_time(
    solution: Solution,
    candidates: Sequence[float] | np.ndarray,
    forecast: float,
    n_points: int | None = None,
) -> NextTime:
    """Of these times, the one at which a snapshot would reduce the forecast's variance most.

    `n_points` of that snapshot are by default as many as the others have on average. Of a moments
    fit.
    """
    moments = ended(solution)
    check_plain(solution, "next_time")
    snapshots = solution.problem.snapshots
    times = _checked_candidates(candidates, snapshots.times)
    if n_points is not None and n_points < 2:
        raise InputError(
            expected="n_points of at least 2", found=f"{n_points!r}", hint="leave it out"
        )
    wanted = float(checked_times([forecast], float(snapshots.times[0]))[0])
    count = n_points or int(np.mean(snapshots.counts))
    with jax.default_device(processor()):
        known = reference(moments.probing, moments.terms)
        first = snapshots.at(float(snapshots.times[0]))
        onward = probing_between(
            moments,
            first,
            wanted,
            len(first.points),
            "initial",
        )
        slopes = mean_slopes(onward, moments.terms, known)
        before = left_over(slopes, known.covariance())
        after = []
        for time in times:
            more = with_snapshot_at(moments, known, float(time), count)
            # The information of few points is known with noise, but no snapshot takes any away.
            after.append(min(before, left_over(slopes, more.covariance())))
    return NextTime(wanted, count, times, before, np.asarray(after))


def _checked_candidates(
    candidates: Sequence[float] | np.ndarray,
    taken: np.ndarray,
) -> Float[np.ndarray, " n_candidates"]:
    times = np.unique(numeric_times(candidates))
    begin = float(taken[0])
    later = len(times) > 0 and np.all(times > begin)
    if not later or np.any(np.isin(times, taken)):
        raise InputError(
            expected=f"candidates after the first snapshot (t = {begin:g}) at which there is none "
            "yet",
            found=f"{candidates!r}",
            hint="[0.5, 1.5]",
        )
    return times
