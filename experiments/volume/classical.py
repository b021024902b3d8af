"""The forecasters that are not ours: rolling means, Kalman filters, and references that only mark a
level.
"""

import warnings

import numpy as np
from jaxtyping import Float
from scipy.stats import norm

from experiments.volume.data import N_TEST, TEST_BINS, TRAIN_BINS, Task
from experiments.volume.forecasts import LEVELS, Days, Forecast
from itofit import FitWarning, InputError
from itofit.baselines import (
    VolumeParameters,
    dynamic_forecast,
    filter_volume,
    fit_kalman_volume,
    matched_forecast,
    rolling_mean,
    static_forecast,
)

_OUT = list(TEST_BINS)


def rolling(task: Task, window: int | None = None, log: bool = False) -> Forecast:
    """The mean of the same bin over past days, test days that are past included; its law: their
    quantiles.
    """
    volume = rolling_mean(np.exp(task.log[:, _OUT]), window, log=log)[-N_TEST:]
    if np.isnan(volume).any():
        raise InputError(
            expected="a past day in every window", found="none", hint="rolling-all, or group A"
        )
    n_days = len(task.log)
    pasts = [
        task.log[0 if window is None else max(0, t - window) : t, _OUT]
        for t in range(n_days - N_TEST, n_days)
    ]
    quantiles = np.stack([np.nanquantile(past, LEVELS, axis=0) for past in pasts], axis=1)
    return Forecast(volume, np.log(volume), quantiles)


def kalman(task: Task, kind: str) -> Forecast:
    """The filter fitted to all bins of the training days, then run on through the test days;
    medians.
    """
    parameters = _fitted(task.train)
    forecasters = {
        "static": static_forecast,
        "dynamic": dynamic_forecast,
        "matched": matched_forecast,
    }
    forecast = forecasters[kind](parameters, task.log)
    return _gaussian(forecast.mean[-N_TEST:, _OUT], forecast.variance[-N_TEST:, _OUT])


def kalman_of_five(task: Task) -> Forecast:
    """The filter that sees the training bins only, and of test days, past or present, bin 0.

    Its bins are the five; between them mean and variance of the log are interpolated, from those at
    bin 0 on.
    """
    parameters = _fitted(task.train[:, list(TRAIN_BINS)])
    observed = task.log[:, list(TRAIN_BINS)]
    observed[-N_TEST:, 1:] = np.nan
    later = matched_forecast(parameters, observed)
    states = filter_volume(parameters, observed)
    mean = later.mean[-N_TEST:]
    variance = later.variance[-N_TEST:]
    mean[:, 0] = parameters.phi[0] + states.mean[-N_TEST:, 0].sum(axis=-1)
    variance[:, 0] = states.covariance[-N_TEST:, 0].sum(axis=(-2, -1)) + parameters.r
    return _gaussian(_between_bins(mean), _between_bins(variance))


def _fitted(train: np.ndarray) -> VolumeParameters:
    with warnings.catch_warnings(action="ignore", category=FitWarning):
        return fit_kalman_volume(train).parameters


def _between_bins(at_five: Float[np.ndarray, "n_test n_train_bins"]) -> Days:
    return np.stack([np.interp(TEST_BINS, TRAIN_BINS, row) for row in at_five])


def _gaussian(mean: Days, variance: Days) -> Forecast:
    return Forecast(np.exp(mean), mean, mean + norm.ppf(LEVELS)[:, None, None] * np.sqrt(variance))


def resample(task: Task) -> Forecast:
    """A training day drawn for every test day: what a model scores that knows the law of the bin
    and nothing else.
    """
    rng = np.random.default_rng([task.seed, 10])
    laws = [column[~np.isnan(column)] for column in task.train[:, _OUT].T]
    days = np.column_stack([rng.choice(law, N_TEST) for law in laws])
    return Forecast(np.exp(days), days, _same_every_day([np.quantile(law, LEVELS) for law in laws]))


def constant(task: Task) -> Forecast:
    """Of each bin the number, the same on all test days, that scores best on them, by MAPE of
    either scale.
    """
    quantiles = [np.quantile(column, LEVELS) for column in task.truth.T]
    return Forecast(
        _best_constant(np.exp(task.truth)),
        _best_constant(task.truth),
        _same_every_day(quantiles),
    )


def _best_constant(values: Days) -> Days:
    best = [_weighted_median(column, 1.0 / np.abs(column)) for column in values.T]
    return np.tile(best, (N_TEST, 1))


def regression(task: Task) -> Forecast:
    """The line through training days' (log bin 0, log of the bin) and the spread around it: pairs,
    straight away.
    """
    means = []
    spreads = []
    first = task.train[:, 0]
    for column in task.train[:, _OUT].T:
        both = ~np.isnan(first) & ~np.isnan(column)
        line = np.polynomial.Polynomial.fit(first[both], column[both], 1)
        means.append(line(task.first))
        spreads.append(np.var(column[both] - line(first[both]), ddof=2))
    return _gaussian(np.column_stack(means), np.tile(spreads, (N_TEST, 1)))


def _same_every_day(
    quantiles: list[Float[np.ndarray, " n_levels"]],
) -> Float[np.ndarray, "n_levels n_test n_out"]:
    return np.repeat(np.column_stack(quantiles)[:, None], N_TEST, axis=1)


def _weighted_median(values: Float[np.ndarray, " n"], weights: Float[np.ndarray, " n"]) -> float:
    order = np.argsort(values)
    return float(values[order][np.searchsorted(np.cumsum(weights[order]), weights.sum() / 2.0)])
