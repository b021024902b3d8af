"""Which further snapshot would tell most about a forecast.

A snapshot that nobody has taken yet is replaced by the cloud the fitted process predicts from the one before it. What
the way there says of the drift adds to the information H of the others (`solve.reference`), and with L = d E[X_T] / dv
the variance of the forecast's means that comes from the drift is L (H + Lambda)^-1 L', with and without it.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float


@dataclass(frozen=True, eq=False)
class NextSnapshot:
    """What each candidate would leave of the uncertainty of the forecast at `time`; prints as a table.

    `before`, `after`: root mean square over coordinates of the standard error of the mean from the drift alone, in sds
    of the forecast, without and with a snapshot of `n_points` at each of `candidates`.
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
        return [{"time": float(t), "forecast": self.time, "before": self.before, "after": float(sd)} for t, sd in rows]

    def __str__(self) -> str:
        lines = [f"mean at t = {self.time:g}: standard error {self.before:.3g} sd from the drift (reference prior)"]
        for t, sd in sorted(zip(self.candidates, self.after, strict=True), key=lambda row: row[1]):
            lines.append(f"  with {self.n_points} points at t = {t:<8.4g} {sd:.3g} sd")
        return "\n".join([*lines, f"take the next snapshot at t = {self.best:g}"])


def left_over(slopes: Float[np.ndarray, "n_dims n"], covariance: Float[np.ndarray, "n n"]) -> float:
    """Root mean square over coordinates of the standard error of the means."""
    return float(np.sqrt(np.mean(np.sum((slopes @ covariance) * slopes, axis=1))))
