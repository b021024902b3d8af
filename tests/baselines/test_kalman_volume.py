"""The model of volume against statsmodels, joint Gaussians written out, closed forms and parameters
that are known.
"""

from dataclasses import replace
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from statsmodels.tsa.statespace.kalman_smoother import KalmanSmoother

from itofit import FitWarning
from itofit.baselines import (
    VolumeForecast,
    VolumeParameters,
    dynamic_forecast,
    filter_volume,
    fit_kalman_volume,
    matched_forecast,
    smooth_volume,
    static_forecast,
)
from itofit.baselines.kalman_em import leap
from itofit.baselines.kalman_volume import _theta


def parameters(n_bins=5, **changed):
    phi = np.cos(2.0 * np.pi * np.arange(n_bins) / n_bins) * 0.5
    V0 = np.array([[0.3, 0.05], [0.05, 0.2]])
    known = VolumeParameters(
        0.95, 0.6, 0.05, 0.03, 0.04, phi - phi.mean(), np.array([8.0, 0.2]), V0
    )
    return replace(known, **changed)


def simulated(known, n_days, seed=0, missing=0.0):
    rng = np.random.default_rng(seed)
    n_bins = len(known.phi)
    y = np.empty((n_days, n_bins))
    eta, mu = rng.multivariate_normal(known.x0, known.V0)
    for day in range(n_days):
        for i in range(n_bins):
            y[day, i] = eta + mu + known.phi[i] + rng.normal(0.0, np.sqrt(known.r))
            mu = known.a_mu * mu + rng.normal(0.0, np.sqrt(known.q_mu))
        eta = known.a_eta * eta + rng.normal(0.0, np.sqrt(known.q_eta))
    return np.where(rng.uniform(size=y.shape) < missing, np.nan, y)


def transitions(known, n_steps):
    """A and Q of each step to the next."""
    closes = np.arange(1, n_steps + 1) % len(known.phi) == 0
    A, Q = np.zeros((2, n_steps, 2, 2))
    A[:, 0, 0] = np.where(closes, known.a_eta, 1.0)
    A[:, 1, 1] = known.a_mu
    Q[:, 0, 0] = np.where(closes, known.q_eta, 0.0)
    Q[:, 1, 1] = known.q_mu
    return A, Q


def by_statsmodels(known, y):
    A, Q = transitions(known, y.size)
    model = KalmanSmoother(k_endog=1, k_states=2)
    model.bind(y.ravel().copy())
    model["design"] = np.ones((1, 2))
    model["selection"] = np.eye(2)
    model["obs_cov"] = np.array([[known.r]])
    model["obs_intercept"] = np.tile(known.phi, len(y))[None]
    model["transition"] = np.moveaxis(A, 0, -1)
    model["state_cov"] = np.moveaxis(Q, 0, -1)
    model.initialize_known(known.x0, known.V0)
    return model.smooth()


class JointLaw(NamedTuple):
    """Mean and covariance of all states, and C: y = C x + phi + v, one dense Gaussian."""

    mean: np.ndarray
    cov: np.ndarray
    C: np.ndarray


def joint_law(known, n_days):
    n = n_days * len(known.phi)
    A, Q = transitions(known, n)
    mean = np.zeros(2 * n)
    cov = np.zeros((2 * n, 2 * n))
    mean[:2] = known.x0
    cov[:2, :2] = known.V0
    for k in range(n - 1):
        here = slice(2 * k, 2 * k + 2)
        there = slice(2 * k + 2, 2 * k + 4)
        past = slice(0, 2 * k + 2)
        mean[there] = A[k] @ mean[here]
        cov[there, past] = A[k] @ cov[here, past]
        cov[past, there] = cov[there, past].T
        cov[there, there] = A[k] @ cov[here, here] @ A[k].T + Q[k]
    return JointLaw(mean, cov, np.kron(np.eye(n), np.ones((1, 2))))


def given(known, y, use):
    """The law of all states given the observed bins marked in `use`."""
    law = joint_law(known, len(y))
    cov = law.cov
    use = (use & ~np.isnan(y)).ravel()
    C = law.C[use]
    observed = (y - known.phi).ravel()[use]
    gain = cov @ C.T @ np.linalg.inv(C @ cov @ C.T + known.r * np.eye(use.sum()))
    return law.mean + gain @ (observed - C @ law.mean), cov - gain @ C @ cov


def forecast_by_joint_law(known, y, first_unknown):
    """Mean and variance of each bin given the bins before `first_unknown(day, bin)`, in order of
    time.
    """
    n_bins = y.shape[1]
    order = np.arange(y.size).reshape(y.shape)
    mean, variance = np.full((2, *y.shape), np.nan)
    for day, i in np.ndindex(y.shape):
        end = first_unknown(day, i)
        if end is not None:
            x, V = given(known, y, order < end)
            pair = slice(2 * order[day, i], 2 * order[day, i] + 2)
            mean[day, i] = x[pair].sum() + known.phi[i % n_bins]
            variance[day, i] = V[pair, pair].sum() + known.r
    return mean, variance


@pytest.mark.parametrize("missing", [0.0, 0.5])
@pytest.mark.parametrize("changed", [{}, {"a_mu": -0.4, "a_eta": 1.0}, {"q_eta": 0.0, "q_mu": 0.0}])
def test_likelihood_and_states_are_those_of_statsmodels(missing, changed):
    known = parameters(**changed)
    y = simulated(known, 40, missing=missing)
    if missing:
        y[[0, 11]] = np.nan  # whole days, the first of them
    theirs = by_statsmodels(known, y)
    filtered = filter_volume(known, y)
    smoothed = smooth_volume(known, y)
    assert filtered.log_likelihood == pytest.approx(theirs.llf, abs=1e-8)
    assert smoothed.log_likelihood == filtered.log_likelihood
    for ours, name in [
        (filtered.mean, "filtered_state"),
        (filtered.covariance, "filtered_state_cov"),
        (filtered.predicted_mean, "predicted_state"),
        (filtered.predicted_covariance, "predicted_state_cov"),
        (smoothed.mean, "smoothed_state"),
        (smoothed.covariance, "smoothed_state_cov"),
    ]:
        reference = np.moveaxis(getattr(theirs, name), -1, 0)[: y.size].reshape(ours.shape)
        np.testing.assert_allclose(ours, reference, rtol=0.0, atol=1e-8, err_msg=name)


@pytest.mark.parametrize("missing", [0.0, 0.4])
def test_one_em_step_is_the_maximum_of_the_expected_log_likelihood(missing):
    known = parameters(3)
    y = simulated(known, 4, seed=3, missing=missing)
    x, V = given(known, y, np.ones(y.shape, dtype=bool))
    moments = (V + np.outer(x, x)).reshape(y.size, 2, y.size, 2)
    before = np.arange(y.size - 1)
    step = fit_kalman_volume(y, n_iter=1, tolerance=0.0, start=known).parameters
    closes = before[2::3]

    def regression(k, state):
        m = moments[:, state, :, state]
        crossed = moments[k + 1, state, k, state].sum()
        a = crossed / m[k, k].sum()
        return a, np.mean(m[k + 1, k + 1] - 2.0 * a * m[k + 1, k] + a**2 * m[k, k])

    assert (step.a_eta, step.q_eta) == pytest.approx(regression(closes, 0), rel=1e-9)
    assert (step.a_mu, step.q_mu) == pytest.approx(regression(before, 1), rel=1e-9)
    np.testing.assert_allclose(step.x0, x[:2], rtol=1e-9)
    np.testing.assert_allclose(step.V0, V[:2, :2], rtol=1e-9)
    signal = x.reshape(y.size, 2).sum(axis=1).reshape(y.shape)
    spread = np.array(
        [V[2 * k : 2 * k + 2, 2 * k : 2 * k + 2].sum() for k in range(y.size)]
    ).reshape(y.shape)
    # phi: least squares under sum(phi) = 0, by its normal equations with a multiplier.
    counts = (~np.isnan(y)).sum(axis=0)
    totals = np.nansum(y - signal, axis=0)
    system = np.block([[np.diag(counts), np.ones((3, 1))], [np.ones((1, 3)), np.zeros((1, 1))]])
    np.testing.assert_allclose(step.phi, np.linalg.solve(system, [*totals, 0.0])[:3], rtol=1e-9)
    assert step.r == pytest.approx(
        np.nanmean((y - signal - step.phi) ** 2 + spread + 0.0 * y), rel=1e-9
    )


@pytest.mark.parametrize("missing", [0.0, 0.5])
@pytest.mark.parametrize("accelerate", [False, True])
def test_the_likelihood_never_falls(missing, accelerate):
    y = simulated(parameters(), 60, seed=1, missing=missing)
    y[20:23] = np.nan
    y[5:50, 2] = np.nan  # bins observed unequally often
    fit = fit_kalman_volume(y, n_iter=81, tolerance=0.0, accelerate=accelerate)
    assert fit.n_iterations == 81
    assert not fit.converged
    assert np.diff(fit.log_likelihoods).min() > -1e-9
    assert fit.log_likelihoods[-1] == pytest.approx(
        filter_volume(fit.parameters, y).log_likelihood, abs=1e-9
    )
    assert fit.parameters.phi.sum() == pytest.approx(0.0, abs=1e-12)


def test_acceleration_reaches_the_same_optimum_in_fewer_steps():
    y = simulated(parameters(), 80, seed=3, missing=0.1)
    plain = fit_kalman_volume(y, tolerance=1e-5, accelerate=False, start=parameters())
    fast = fit_kalman_volume(y, tolerance=1e-5, start=parameters())
    assert plain.converged
    assert fast.converged
    assert fast.n_iterations < plain.n_iterations / 5
    # A step of 1e-5 with a thousand more like it to come: 0.01.
    assert fast.log_likelihoods[-1] == pytest.approx(plain.log_likelihoods[-1], abs=0.01)
    for name in ("a_eta", "a_mu", "q_eta", "q_mu", "r", "phi"):
        np.testing.assert_allclose(
            getattr(fast.parameters, name), getattr(plain.parameters, name), atol=0.01
        )


def test_a_leap_that_would_make_a_variance_negative_falls_back_to_the_second_step():
    start, first, second = (
        _theta(parameters(q_mu=q, r=r)) for q, r in [(1.0, 0.9), (0.5, 0.5), (0.4, 0.3)]
    )
    ahead = leap(start, first, second)
    assert ahead.q_mu == pytest.approx(
        1.0 - 0.5**2 / 0.4
    )  # Aitken: the limit of a geometric series
    assert ahead.r == pytest.approx(0.9 - 0.4**2 / 0.2)
    falling = leap(start, first, _theta(parameters(q_mu=0.2, r=0.3)))
    assert falling.q_mu == 0.2  # 1 - 0.5^2 / 0.2 is below 0
    np.testing.assert_array_equal(falling.V0, second.V0)


@pytest.mark.parametrize("missing", [0.0, 0.5])
def test_without_noise_in_the_states_the_model_is_the_seasonal_means(missing):
    y = simulated(parameters(), 30, seed=4, missing=missing)
    still = parameters(a_eta=1.0, q_eta=0.0, q_mu=0.0, x0=np.zeros(2), V0=np.diag([1e6, 0.0]))
    fit = fit_kalman_volume(y, start=still, tolerance=0.0, n_iter=200)
    seasonal = np.nanmean(y, axis=0)
    np.testing.assert_allclose(fit.parameters.phi, seasonal - seasonal.mean(), atol=1e-5)
    assert fit.parameters.q_eta == pytest.approx(0.0, abs=1e-9)
    assert fit.parameters.q_mu == 0.0
    static = static_forecast(fit.parameters, np.vstack([y, np.full(5, np.nan)]))
    np.testing.assert_allclose(static.mean[-1], seasonal, atol=1e-4)


@pytest.mark.parametrize("missing", [0.0, 0.4])
def test_forecasts_are_conditional_laws(missing):
    known = parameters(4)
    y = simulated(known, 4, seed=5, missing=missing)
    y[-1] = np.nan  # the day to come
    cases = [
        (dynamic_forecast(known, y), lambda day, i: 4 * day + i),
        (static_forecast(known, y), lambda day, i: 4 * day),
        (matched_forecast(known, y), lambda day, i: 4 * day + 1 if i > 0 else None),
        (matched_forecast(known, y, through=2), lambda day, i: 4 * day + 3 if i > 2 else None),
    ]
    for forecast, first_unknown in cases:
        mean, variance = forecast_by_joint_law(known, y, first_unknown)
        np.testing.assert_allclose(forecast.mean, mean, atol=1e-10)
        np.testing.assert_allclose(forecast.variance, variance, atol=1e-10)


def test_volume_is_the_median_or_the_mean_of_the_lognormal_law():
    forecast = VolumeForecast(np.array([[2.0, np.nan]]), np.array([[0.5, np.nan]]))
    np.testing.assert_allclose(forecast.volume(), [[np.exp(2.0), np.nan]])
    np.testing.assert_allclose(forecast.volume("mean"), [[np.exp(2.25), np.nan]])


def test_an_infinite_threshold_is_the_plain_filter():
    y = simulated(parameters(), 20, missing=0.2)
    plain, robust = (
        fit_kalman_volume(y, n_iter=30, tolerance=0.0, robust=kappa) for kappa in (None, np.inf)
    )
    np.testing.assert_array_equal(plain.log_likelihoods, robust.log_likelihoods)
    np.testing.assert_array_equal(plain.parameters.phi, robust.parameters.phi)


def test_the_robust_filter_counts_an_innovation_up_to_kappa_deviations():
    known = parameters(3)
    kappa = 1.5
    y = simulated(known, 6, seed=6)
    y[2, 1] += 5.0
    states = filter_volume(known, y, robust=kappa)
    level = 0.0
    A, Q = transitions(known, y.size)
    x = known.x0
    V = known.V0
    for k, (day, i) in enumerate(np.ndindex(y.shape)):
        S = V.sum() + known.r
        e = y[day, i] - known.phi[i] - x.sum()
        z = np.sign(e) * max(abs(e) - kappa * np.sqrt(S), 0.0)
        level -= 0.5 * (
            np.log(2.0 * np.pi * S) + (e - z) ** 2 / S + 2.0 * kappa / np.sqrt(S) * abs(z)
        )
        gain = V.sum(axis=1) / S
        x = x + gain * (e - z)
        V = V - np.outer(gain, V.sum(axis=0))
        np.testing.assert_allclose(states.mean[day, i], x, atol=1e-10)
        np.testing.assert_allclose(states.covariance[day, i], V, atol=1e-10)
        x = A[k] @ x
        V = A[k] @ V @ A[k].T + Q[k]
    assert states.log_likelihood == pytest.approx(level, abs=1e-9)


def test_the_robust_fit_is_moved_less_by_bad_prints():
    known = parameters()
    clean = simulated(known, 100, seed=7)
    bad = clean.copy()
    bad[np.random.default_rng(0).uniform(size=clean.shape) < 0.05] += 4.0
    errors = {}
    for kappa in (None, 1.5):
        fit = fit_kalman_volume(bad, robust=kappa, n_iter=300, tolerance=1e-3)
        errors[kappa] = np.mean(
            (dynamic_forecast(fit.parameters, bad, robust=kappa).mean - clean)[20:] ** 2
        )
    assert errors[1.5] < 0.8 * errors[None]


def test_known_parameters_are_found():
    """To four standard deviations: those of 40 fits of this size to other seeds, 100 to 139."""
    known = parameters(12, V0=np.zeros((2, 2)))
    fitted = fit_kalman_volume(simulated(known, 250, seed=8)).parameters
    for name, sd in [
        ("a_eta", 0.009),
        ("a_mu", 0.065),
        ("q_eta", 0.0064),
        ("q_mu", 0.0051),
        ("r", 0.0043),
    ]:
        assert getattr(fitted, name) == pytest.approx(getattr(known, name), abs=4 * sd), name
    np.testing.assert_allclose(fitted.phi, known.phi, atol=4 * 0.017)


def test_the_forecast_variance_is_honest():
    known = parameters(V0=np.zeros((2, 2)))
    y = simulated(known, 400, seed=9)
    for forecast in (
        dynamic_forecast(known, y),
        static_forecast(known, y),
        matched_forecast(known, y),
    ):
        scores = ((y - forecast.mean) ** 2 / forecast.variance)[5:]
        # Errors of one day are correlated: 395 days, each at least one independent chi-square of
        # variance 2.
        assert np.nanmean(scores) == pytest.approx(1.0, abs=4 * np.sqrt(2.0 / 395))


def test_double_precision_stays_inside():
    assert (
        fit_kalman_volume(simulated(parameters(), 10), n_iter=2, tolerance=0.0).parameters.phi.dtype
        == np.float64
    )
    assert not jax.config.jax_enable_x64
    assert jnp.zeros(()).dtype == jnp.float32


def test_a_fit_cut_short_says_so():
    y = simulated(parameters(), 10)
    with pytest.warns(FitWarning, match="more n_iter"):
        fit = fit_kalman_volume(y, n_iter=3)
    assert not fit.converged
    assert fit.n_iterations == 3


def test_wrong_input_is_refused_with_the_row_and_a_remedy(refused):
    known = parameters()
    y = simulated(parameters(), 6)
    with np.errstate(divide="ignore"):
        empty = np.where(np.arange(5) == 3, np.log(0.0), y)
    with refused("finite", "-inf in row 0", "column 3", "NaN for a bin without trades"):
        fit_kalman_volume(empty)
    with refused("every bin", "column 3", "drop"):
        fit_kalman_volume(np.where(np.isinf(empty), np.nan, empty))
    with refused("days x bins", "shape (30,)"):
        fit_kalman_volume(y.ravel())
    with refused("at least 2 days", "(1, 5)"):
        fit_kalman_volume(y[:1])
    with refused("5 bins a day", "4"):
        filter_volume(known, y[:, :4])
    with refused("5 bins a day", "4"):
        fit_kalman_volume(y[:, :4], start=known)
    with refused("n_iter", "0"):
        fit_kalman_volume(y, n_iter=0)
    with refused("tolerance", "-1"):
        fit_kalman_volume(y, tolerance=-1.0)
    with refused("robust", "0.0"):
        smooth_volume(known, y, robust=0.0)
    for through in (-1, 4):
        with refused("through", f"{through}", "static_forecast"):
            matched_forecast(known, y, through=through)
    with refused("r above 0", "r = 0"):
        parameters(r=0.0)
    with refused("finite"):
        parameters(a_mu=np.nan)
    with (
        refused("EM can follow", "e+300", "logarithm"),
        np.errstate(over="ignore", invalid="ignore"),
    ):
        fit_kalman_volume(1e300 * y)
    with refused("median or mean", "mode"):
        VolumeForecast(y, y).volume("mode")


def test_days_missing_as_a_whole_are_allowed():
    y = simulated(parameters(), 30)
    y[[0, 1, 15, 29]] = np.nan
    fit = fit_kalman_volume(y, tolerance=1e-3)
    assert fit.converged
    assert np.isfinite(static_forecast(fit.parameters, y).mean).all()
