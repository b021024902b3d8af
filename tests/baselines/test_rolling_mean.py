"""The rolling mean against pandas, series whose error is known, and panels that are refused."""

import numpy as np
import pandas as pd
import pytest

from itofit.baselines import log_volume, rolling_mean


def panel(n_days=40, n_bins=6, missing=0.0, seed=0):
    rng = np.random.default_rng(seed)
    values = np.exp(rng.normal(8.0, 1.0, size=(n_days, n_bins)))
    return np.where(rng.uniform(size=values.shape) < missing, np.nan, values)


@pytest.mark.parametrize("missing", [0.0, 0.6])
@pytest.mark.parametrize("window", [1, 5, 20, 60, None])
def test_the_forecast_is_that_of_pandas(window, missing):
    values = panel(missing=missing)
    values[7] = np.nan  # a whole day
    frame = pd.DataFrame(values)
    windows = frame.expanding(1) if window is None else frame.rolling(window, min_periods=1)
    np.testing.assert_allclose(rolling_mean(values, window), windows.mean().shift(1), rtol=1e-12)
    windows = (
        np.log(frame).expanding(1)
        if window is None
        else np.log(frame).rolling(window, min_periods=1)
    )
    np.testing.assert_allclose(
        rolling_mean(values, window, log=True), np.exp(windows.mean().shift(1)), rtol=1e-12
    )


@pytest.mark.parametrize("log", [False, True])
def test_a_constant_series_is_forecast_without_error(log):
    forecast = rolling_mean(np.full((30, 3), 0.1), 7, log=log)
    assert np.isnan(forecast[0]).all()
    np.testing.assert_allclose(forecast[1:], 0.1, rtol=1e-15 if not log else 1e-14)


@pytest.mark.parametrize("window", [1, 5, 20])
def test_a_linear_trend_is_missed_by_half_a_window_and_a_half(window):
    slope = 3.0
    days = np.arange(50.0)
    values = slope * days[:, None] + np.array([0.0, 10.0])
    error = (values - rolling_mean(values, window))[window:]
    np.testing.assert_allclose(error, slope * (window + 1) / 2, rtol=1e-12)


def test_a_row_of_nan_asks_for_the_day_to_come():
    values = panel(10)
    forecast = rolling_mean(np.vstack([values, np.full(6, np.nan)]), 4)[-1]
    np.testing.assert_allclose(forecast, values[-4:].mean(axis=0), rtol=1e-12)


def test_a_window_without_values_gives_nan_and_a_longer_one_reaches_past_it():
    values = np.array([[4.0], [np.nan], [np.nan], [1.0]])
    np.testing.assert_array_equal(rolling_mean(values, 2)[:, 0], [np.nan, 4.0, 4.0, np.nan])
    np.testing.assert_array_equal(rolling_mean(values)[:, 0], [np.nan, 4.0, 4.0, 4.0])


def test_wrong_panels_are_refused_with_the_row_and_a_remedy(refused):
    values = panel(8, 4)
    values[5, 2] = 0.0
    assert np.isfinite(rolling_mean(values)[1:]).all()  # an empty bin has a mean, but no logarithm
    with refused("above 0", "0 in row 5", "column 2", "NaN for a bin without trades"):
        rolling_mean(values, log=True)
    values[6, 1] = -3.0
    with refused("0 in row 5", "and 1 more"):
        log_volume(values)
    values[0, 3] = np.inf
    with refused("inf in row 0", "column 3"):
        rolling_mean(values)
    with refused("days x bins", "shape (5,)", "reshape(n_days, n_bins)"):
        rolling_mean(np.ones(5))
    with refused("same bins", "half-day"):
        rolling_mean([[1.0, 2.0], [3.0]])
    for window in (0, -1, True):
        with refused("window", f"{window!r}"):
            rolling_mean(np.ones((3, 2)), window)
