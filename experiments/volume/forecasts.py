"""What a method says of the test days, and how it is scored: with f the forecast and v what came,
over the 100 days

    MAPE = mean |f - v| / v
    sorted MAPE = the same after sorting both: how well the laws agree, whatever the day

of volume and of its log. The MAPE of a log depends on the unit in which volume is counted.
"""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from experiments.volume.data import TEST_BINS, Task

LEVELS = (0.1, 0.25, 0.5, 0.75, 0.9)
SCORES = ("mape", "mape_log", "sorted", "sorted_log", "pinball", "coverage", "slope")

Days = Float[np.ndarray, "n_test n_out"]


@dataclass(frozen=True, eq=False)
class Forecast:
    """Point forecasts of volume and of its log, days x `TEST_BINS`, and quantiles of the log at
    `LEVELS`, if any.
    """

    volume: Days
    log: Days
    quantiles: Float[np.ndarray, "n_levels n_test n_out"] | None = None

    @property
    def is_finite(self) -> bool:
        """Whether there is a number for every day."""
        parts = [self.volume, self.log]
        if self.quantiles is not None:
            parts.append(self.quantiles)
        return all(np.all(np.isfinite(part)) for part in parts)


def scores(forecast: Forecast, task: Task) -> dict[int, dict[str, float | None]]:
    """The scores by bin; those of a law are None where a method gives none."""
    return {b: _scores_at(forecast, task, k) for k, b in enumerate(TEST_BINS)}


def _scores_at(forecast: Forecast, task: Task, k: int) -> dict[str, float | None]:
    log = task.truth[:, k]
    volume = np.exp(task.truth[:, k])
    quantiles = None if forecast.quantiles is None else forecast.quantiles[:, :, k]
    return {
        "mape": mape(forecast.volume[:, k], volume),
        "mape_log": mape(forecast.log[:, k], log),
        "sorted": sorted_mape(forecast.volume[:, k], volume),
        "sorted_log": sorted_mape(forecast.log[:, k], log),
        "pinball": None if quantiles is None else pinball(quantiles, log),
        "coverage": None if quantiles is None else coverage(quantiles[0], quantiles[-1], log),
        "slope": slope(forecast.log[:, k], task.first),
    }


def mape(forecast: Float[np.ndarray, " n"], truth: Float[np.ndarray, " n"]) -> float:
    """Mean absolute error by the size of the truth, day by day."""
    return float(np.mean(np.abs(forecast - truth) / np.abs(truth)))


def sorted_mape(forecast: Float[np.ndarray, " n"], truth: Float[np.ndarray, " n"]) -> float:
    """The MAPE of the smallest for the smallest, and so on: days do not matter."""
    return mape(np.sort(forecast), np.sort(truth))


def pinball(quantiles: Float[np.ndarray, "n_levels n"], truth: Float[np.ndarray, " n"]) -> float:
    """Mean over levels q and days of max(q (v - f), (q - 1)(v - f)): smallest for the true
    quantiles.
    """
    miss = truth - quantiles
    levels = np.asarray(LEVELS)[:, None]
    return float(np.mean(np.maximum(levels * miss, (levels - 1.0) * miss)))


def coverage(
    low: Float[np.ndarray, " n"], high: Float[np.ndarray, " n"], truth: Float[np.ndarray, " n"]
) -> float:
    """Fraction of days between the two; 0.8 is wanted."""
    return float(np.mean((low <= truth) & (truth <= high)))


def slope(forecast: Float[np.ndarray, " n"], first: Float[np.ndarray, " n"]) -> float:
    """By how much the log forecast changes with the log volume of the day's bin 0: least squares
    over the days.
    """
    away = first - first.mean()
    return float(away @ forecast / (away @ away))
