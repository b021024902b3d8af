"""Draws of the drift against the closed form of their linear problem."""

import jax.numpy as jnp
import numpy as np
import pytest

from itofit.moments.linearised import Linearised, Unknowns
from itofit.problem import Streams
from itofit.process.drift import FeatureDrift, stacked
from itofit.process.features import affine
from itofit.trust.posterior import DriftDraws, draw_drifts, particle_weights


@pytest.fixture(scope="module")
def linear():
    """g(x) = v_0 + v_1 x in one dimension, 6 residuals, 200 points in each of two snapshots."""
    rng = np.random.default_rng(0)
    J = rng.standard_normal((6, 2))
    points = rng.standard_normal((6, 400))
    points -= points.mean(axis=1, keepdims=True)
    white = np.linalg.solve(np.linalg.cholesky(points @ points.T), points)
    v = np.asarray([1.0, -2.0])
    precision = np.asarray([0.05, 0.05])
    sure = np.full(2, np.inf)
    unknowns = Unknowns.coefficients(J[None], v, precision, sure, affine(1), 1)
    # So that v is the posterior mean.
    b = (J + np.linalg.solve(J @ J.T + 1e-9 * np.eye(6), J) * 0.05) @ v
    influence = {0: white[:, :200], 1: white[:, 200:]}
    return Linearised(unknowns, J @ v - b, influence, speed=3.0, clock=None)


def test_draws_have_the_mean_and_covariance_of_the_posterior(linear):
    """Each entry of a covariance of n normal draws has a standard error below sqrt(2 / n) times its
    sds: 4 of them.
    """
    n = 6000
    J = linear.unknowns.jacobian
    draws = draw_drifts(linear, Streams(3), n_draws=n)
    v = np.asarray(draws.drifts.coefficients)[:, :, 0] / 3.0
    data = J.T @ J
    prior = 0.05 * np.eye(2)
    C = np.linalg.inv(data + prior)
    lengthened = (400.0 / (400.0 - 6.0 + 2.0)) ** 2
    expected = C @ (lengthened * data + prior) @ C
    sds = np.sqrt(np.diag(expected))
    unit = np.outer(sds, sds)
    np.testing.assert_allclose(np.cov(v.T) / unit, expected / unit, atol=4 * np.sqrt(2 / n))
    b = J @ linear.unknowns.v - linear.y
    np.testing.assert_allclose(v.mean(axis=0), C @ J.T @ b, atol=4 * np.max(sds) / np.sqrt(n))


def test_the_spread_of_a_line_is_that_of_its_coefficients(linear):
    draws = draw_drifts(linear, Streams(3), n_draws=50)
    v = np.asarray(draws.drifts.coefficients)[:, :, 0] - np.asarray(draws.fitted.coefficients)[:, 0]
    x = np.asarray([[-1.0], [0.0], [2.0]])
    expected = np.sqrt(np.mean((v[:, :1] + v[:, 1:] * x[:, 0]) ** 2, axis=0))
    np.testing.assert_allclose(draws.spread(x)[:, 0], expected, rtol=1e-5)
    assert draws.first(10).n_draws == 10
    assert len(draws.first(10).drifts.coefficients) == 10


def test_particle_weights_are_those_of_a_bayesian_bootstrap():
    """Mean 1 over the points, variance 1, the same again for the same seed, others for another
    snapshot.
    """
    weights = particle_weights(Streams(0), 1, 500, 40)
    np.testing.assert_allclose(weights.mean(axis=1), 1.0)
    # The fourth cumulant of Exp(1) is 6.
    assert weights.var() == pytest.approx(1.0, abs=4 * np.sqrt(8 / 20_000))
    np.testing.assert_array_equal(weights, particle_weights(Streams(0), 1, 500, 40))
    assert not np.any(weights == particle_weights(Streams(0), 2, 500, 40))


def test_an_ensemble_spreads_about_its_mean():
    features = affine(1).features
    lines = [FeatureDrift(features, jnp.asarray([[0.0], [slope]])) for slope in (1.0, 2.0, 6.0)]
    mean = FeatureDrift(features, jnp.asarray([[0.0], [3.0]]))
    draws = DriftDraws.of_members(stacked(lines), 3, mean)
    spread = draws.spread(np.asarray([[1.0], [2.0]]))[:, 0]
    np.testing.assert_allclose(spread, np.sqrt([7.0, 28.0]), rtol=1e-5)
    assert draws.first(2).spread(np.ones((1, 1))).shape == (1, 1)
