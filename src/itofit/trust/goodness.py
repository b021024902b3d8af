"""Does the fitted process explain the snapshots? Chi-squared with honest degrees of freedom.

The squares are compared with their law at the truth (`moments.squares`). A fit determines some of
its rows: the degrees of freedom are their number less what the drift takes of them. Where less than
one is left nothing can be judged. Sums over transitions are compared with the gamma law of the same
mean and variance.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float
from scipy.stats import gamma

from itofit.bridge.solution import BridgeSolution
from itofit.errors import InputError
from itofit.moments.evidence import Evidence
from itofit.moments.solution import MomentsSolution
from itofit.moments.squares import SquaresLaw
from itofit.solution import Solution


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
        1 where they share particles, for which the test is too mild; NaN where less than one degree
        of freedom is left.
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

    @property
    def can_judge(self) -> bool:
        """Whether degrees of freedom are left to judge by."""
        return not np.isnan(self.p_value)

    def rejects(self, level: float = 0.05) -> bool:
        """Whether the model is rejected at this level.

        Parameters
        ----------
        level : float
            Of the test.

        Returns
        -------
        bool
            Whether p is below it; what cannot be judged is not rejected.
        """
        return self.p_value < level

    def to_records(self) -> list[dict[str, Any]]:
        """One plain dictionary an interval, for JSON."""
        rows = zip(self.intervals, self.chi2, self.freedom, self.p_values, strict=True)
        return [
            {
                "from": a,
                "to": b,
                "chi2": float(c),
                "freedom": float(f),
                "p": None if np.isnan(p) else float(p),
            }
            for (a, b), c, f, p in rows
        ]

    def __str__(self) -> str:
        lines = [f"{'interval':>16}{'chi-squared':>13}{'freedom':>9}{'p':>8}"]
        rows = zip(self.intervals, self.chi2, self.freedom, self.p_values, strict=True)
        for (a, b), chi2, free, p in rows:
            lines.append(f"{f'{a:g} to {b:g}':>16}{chi2:>13.1f}{free:>9.1f}{_shown(p):>8}")
        total = float(self.chi2.sum())
        free = float(self.freedom.sum())
        lines.append(f"{'all':>16}{total:>13.1f}{free:>9.1f}{_shown(self.p_value):>8}")
        if not self.can_judge:
            return "\n".join([*lines, "the fit cannot be judged: no degree of freedom is left"])
        verdict = "contradict" if self.rejects() else "do not contradict"
        return "\n".join([*lines, f"the snapshots {verdict} this process at the 5 % level"])


def _shown(p: float) -> str:
    return "-" if np.isnan(p) else f"{p:.3f}"


def judged(
    evidence: Evidence,
    times: np.ndarray,
    law: SquaresLaw | None = None,
) -> GoodnessOfFit:
    """The test of a moments fit to snapshots at these times, by its own law unless one is given."""
    law = law or evidence.law
    freedom = evidence.freedom
    mean = freedom * law.mean
    variance = freedom * law.variance
    chi2 = evidence.chi2
    rows = zip(freedom, chi2, mean, variance, strict=True)
    return GoodnessOfFit(
        intervals=tuple((float(times[a]), float(times[b])) for a, b in evidence.ends),
        chi2=chi2,
        freedom=freedom,
        p_values=np.asarray([tail_of(c, m, v) if f >= 1.0 else np.nan for f, c, m, v in rows]),
        p_value=tail_of(float(chi2.sum()), float(mean.sum()), float(variance.sum()))
        if evidence.can_judge
        else np.nan,
    )


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
    return judged(moments.evidence, solution.problem.observed.times)


def ended(
    solution: Solution,
    hint: str = "solver='moments'",
) -> MomentsSolution:
    """The solution of a moments fit that ended, or a refusal."""
    if isinstance(solution, MomentsSolution) and solution.evidence is not None:
        return solution
    raise InputError(
        expected="a moments fit that ended",
        found=found_instead(solution),
        hint=hint_for(solution, hint),
    )


def found_instead(solution: Solution) -> str:
    """What there is where a moments fit that ended is asked for."""
    if isinstance(solution, BridgeSolution) and solution.selection is not None:
        return (
            f"a {solution.structure} process, chosen by snapshots left out: it has no chi-squared "
            "and no error bars"
        )
    kind = "moments" if isinstance(solution, MomentsSolution) else "other"
    return f"one {kind} fit, without error bars: {solution.outcome.value}"


def hint_for(solution: Solution, hint: str) -> str:
    """What to do instead; of a judged fit, where to read how far its forecasts missed."""
    if solution.selection is None:
        return hint
    return (
        "FokkerPlanckProcess(solver='moments') has both for its own drift; how far forecasts of "
        "this one missed snapshots left out: print(model.selection_)"
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
