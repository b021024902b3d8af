"""Regression with strengths by the evidence, against plain linear algebra."""

import numpy as np
import pytest

from itofit.bridge.regression import Strengths, Sums, regressed

N = 200
# A constant, a group of three features that count, and one of four that do not.
GROUP = np.array([-1, 0, 0, 0, 1, 1, 1, 1])
TRUE = np.array([[0.5, -1.0], [1.0, 0.3], [-2.0, 0.8], [0.7, -0.4], *[[0.0, 0.0]] * 4])
NOISE = 0.3


def samples(seed=0):
    rng = np.random.default_rng(seed)
    phi = np.column_stack([np.ones(N), 0.5 + rng.standard_normal((N, 7))])
    c = rng.uniform(0.5, 1.5, N)
    u = phi @ TRUE + NOISE * rng.standard_normal((N, 2)) / np.sqrt(c)[:, None]
    return phi, u, c


def settled(sums, n_calls=12):
    """Regressed again and again, as passes do."""
    strengths = Strengths.first(GROUP, 2)
    fitted = None
    for _ in range(n_calls):
        fitted = regressed(sums, strengths)
        strengths = fitted.strengths
    return fitted


def diagonal(strengths, output):
    """Lambda, the constant all but free."""
    per_group = strengths.precision[:, output]
    return np.array([1e-6 if g < 0 else per_group[g] for g in GROUP])


@pytest.mark.parametrize("n_calls", [1, 12])
def test_coefficients_are_the_ridge_solution_under_the_final_strengths(n_calls):
    phi, u, c = samples()
    fitted = settled(Sums.of(phi, u, c), n_calls)
    for output in range(2):
        strengths = fitted.strengths
        # The same as least squares on rows of their own for the prior.
        rows = np.sqrt(c / strengths.noise[output])[:, None] * phi
        prior = np.diag(np.sqrt(diagonal(strengths, output)))
        wanted = np.append(np.sqrt(c / strengths.noise[output]) * u[:, output], np.zeros(8))
        expected = np.linalg.lstsq(np.vstack([rows, prior]), wanted, rcond=None)[0]
        np.testing.assert_allclose(fitted.coefficients[:, output], expected, atol=1e-8)


def test_known_coefficients_are_recovered():
    """To 4.5 standard errors of least squares, .3 / sqrt(200) at most twice over for the constant,
    whose features are not centred.
    """
    phi, u, c = samples()
    covariance = NOISE**2 * np.linalg.inv((phi * c[:, None]).T @ phi)
    error = np.sqrt(np.diag(covariance))[:, None]
    assert np.all(np.abs(settled(Sums.of(phi, u, c)).coefficients - TRUE) < 4.5 * error)


def test_the_noise_about_the_regression_is_found():
    """A variance of 192 free samples is known to 10 %: three of these."""
    noise = settled(Sums.of(*samples())).strengths.noise
    np.testing.assert_allclose(noise, NOISE**2, rtol=0.3)


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_features_without_effect_are_held_back(seed):
    """Their least-squares squares are of order s^2 / n = 3e-4, so that a precision is beyond 100;
    that of the features that count is 1 / 2.
    """
    precision = settled(Sums.of(*samples(seed))).strengths.precision
    assert np.all(precision[1] > 100.0)
    assert np.all(precision[0] < 20.0)


def log_evidence(phi, u, c, diagonal_of_prior, noise):
    """log N(u; 0, s^2 / c + Phi Lambda^-1 Phi'), the samples as they are."""
    covariance = np.diag(noise / c) + (phi / diagonal_of_prior) @ phi.T
    _, log_determinant = np.linalg.slogdet(covariance)
    return -0.5 * log_determinant - 0.5 * u @ np.linalg.solve(covariance, u)


def test_settled_strengths_are_those_of_largest_evidence():
    """Of the features that count and of the noise: 20 % more or less of either is worse."""
    phi, u, c = samples()
    fitted = settled(Sums.of(phi, u, c), 20)
    for output in range(2):
        prior = diagonal(fitted.strengths, output)
        noise = fitted.strengths.noise[output]
        best = log_evidence(phi, u[:, output], c, prior, noise)
        for factor in (0.8, 1.25):
            other = np.where(GROUP == 0, factor * prior, prior)
            assert log_evidence(phi, u[:, output], c, other, noise) < best
            assert log_evidence(phi, u[:, output], c, prior, factor * noise) < best


def test_a_constant_added_to_the_targets_moves_the_constant_alone():
    """To 1e-4: the constant is held back by a precision of 1e-6 beside n / s^2 of thousands."""
    phi, u, c = samples()
    before = settled(Sums.of(phi, u, c)).coefficients
    after = settled(Sums.of(phi, u + np.array([3.0, -2.0]), c)).coefficients
    np.testing.assert_allclose(after[1:], before[1:], atol=1e-4)
    np.testing.assert_allclose(after[0] - before[0], [3.0, -2.0], atol=1e-4)


def test_outputs_do_not_see_each_other():
    phi, u, c = samples()
    both = regressed(Sums.of(phi, u, c), Strengths.first(GROUP, 2))
    alone = regressed(Sums.of(phi, u[:, 1:], c), Strengths.first(GROUP, 1))
    np.testing.assert_allclose(both.coefficients[:, 1:], alone.coefficients, atol=1e-10)


def test_a_sample_of_weight_two_is_two_samples():
    phi, u, c = samples()
    twice = Sums.of(*(np.concatenate([part, part[:50]]) for part in (phi, u, c)))
    weighted = Sums.of(phi, u, np.where(np.arange(N) < 50, 2.0 * c, c))
    for name in ("gram", "cross", "squares", "count"):
        np.testing.assert_allclose(getattr(twice, name), getattr(weighted, name), rtol=1e-12)


def test_mixed_sums_are_the_sums_of_samples_of_such_weights():
    first, second = samples(0), samples(1)
    mixed = Sums.of(*first).mixed(Sums.of(*second), 0.3)
    weights = [0.7 * first[2], 0.3 * second[2]]
    pairs = [np.concatenate(columns) for columns in zip(first[:2], second[:2], strict=True)]
    pooled = Sums.of(*pairs, np.concatenate(weights))
    for name in ("gram", "cross", "squares", "count"):
        np.testing.assert_allclose(getattr(mixed, name), getattr(pooled, name), rtol=1e-12)


def test_sums_of_samples_that_ran_away_are_not_finite():
    phi, u, c = samples()
    assert Sums.of(phi, u, c).is_finite
    u[3, 1] = np.inf
    assert not Sums.of(phi, u, c).is_finite
