"""Does the fitted process explain the snapshots? Chi-squared with honest degrees of freedom.

The whitened residuals of a flight have unit covariance at the truth, but the covariance they are whitened with is an
estimate from the same points: the sum of k squares is Hotelling's T^2 with nu degrees of freedom, not chi-squared,

    mean = nu k / (nu - k - 1),        variance = 2 nu^2 k (nu - 1) / ((nu - k - 1)^2 (nu - k - 3))

with nu the points of both ends. A fit determines some of its rows: k is their number less what the drift takes of them.
Sums over flights are compared with the gamma law of the same mean and variance.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float
from scipy.stats import gamma

from itofit.solve.evidence import Evidence


@dataclass(frozen=True, eq=False)
class GoodnessOfFit:
    """A test of the fit, interval by interval and in all.

    - `intervals`: (from, to) in time. `chi2`, `freedom`: squared residuals and their degrees of freedom.
    - `p_values`, `p_value`: how often a true model would do worse, by interval and in all. Small where snapshots
      contradict the model; close to 1 where they share particles, for which the test is too mild.
    """

    intervals: tuple[tuple[float, float], ...]
    chi2: Float[np.ndarray, " n_intervals"]
    freedom: Float[np.ndarray, " n_intervals"]
    p_values: Float[np.ndarray, " n_intervals"]
    p_value: float

    def rejects(self, level: float = 0.05) -> bool:
        """Whether the model is rejected at this level."""
        return self.p_value < level

    def to_records(self) -> list[dict[str, Any]]:
        """One plain dictionary an interval, for JSON."""
        rows = zip(self.intervals, self.chi2, self.freedom, self.p_values, strict=True)
        return [{"from": a, "to": b, "chi2": float(c), "freedom": float(f), "p": float(p)} for (a, b), c, f, p in rows]

    def __str__(self) -> str:
        lines = [f"{'interval':>16}{'chi-squared':>13}{'freedom':>9}{'p':>8}"]
        for (a, b), chi2, free, p in zip(self.intervals, self.chi2, self.freedom, self.p_values, strict=True):
            lines.append(f"{f'{a:g} to {b:g}':>16}{chi2:>13.1f}{free:>9.1f}{p:>8.3f}")
        total, free = float(self.chi2.sum()), float(self.freedom.sum())
        lines.append(f"{'all':>16}{total:>13.1f}{free:>9.1f}{self.p_value:>8.3f}")
        verdict = "contradict" if self.rejects() else "do not contradict"
        return "\n".join([*lines, f"the snapshots {verdict} this process at the 5 % level"])


def goodness_of_fit(evidence: Evidence, times: np.ndarray) -> GoodnessOfFit:
    """The test of a moments fit to snapshots at these times."""
    freedom = np.maximum(evidence.n_rows - evidence.n_determined, 1.0)
    mean, variance = hotelling_moments(freedom, evidence.n_points)
    each = np.asarray([_tail(c, m, v) for c, m, v in zip(evidence.chi2, mean, variance, strict=True)])
    whole = _tail(float(evidence.chi2.sum()), float(mean.sum()), float(variance.sum()))
    intervals = tuple((float(times[a]), float(times[b])) for a, b in evidence.ends)
    return GoodnessOfFit(intervals, evidence.chi2, freedom, each, whole)


def hotelling_moments(
    k: Float[np.ndarray, " n"], nu: Float[np.ndarray, " n"]
) -> tuple[Float[np.ndarray, " n"], Float[np.ndarray, " n"]]:
    """Mean and variance of Hotelling's T^2 in k dimensions with nu degrees of freedom."""
    room = np.maximum(nu - k, 5.0)
    return nu * k / (room - 1.0), 2.0 * nu**2 * k * (nu - 1.0) / ((room - 1.0) ** 2 * (room - 3.0))


def _tail(value: float, mean: float, variance: float) -> float:
    return float(gamma.sf(value, mean**2 / variance, scale=variance / mean))
