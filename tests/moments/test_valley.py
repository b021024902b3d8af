"""A noise that the snapshots do not know: the small end of what they allow, and how far that goes.

dX = -k X dt + s dW in one coordinate, from one sd, where all is known. Over three times close
together contraction and noise undo one another; over three times far apart they do not.
"""

from dataclasses import replace

import jax.numpy as jnp
import numpy as np
import pytest

from itofit import FokkerPlanckProcess, Judged, Snapshots, load
from itofit.judge.engine import POLISHER
from itofit.moments.valley import at_the_small_end
from itofit.process.noise import DiagonalForm, LearnedDiffusion
from itofit.trust.noise import covariance_interval
from itofit.trust.posterior import Along, along_valley, drift_draws

N = 500
RATE = 1.0
CLOSE = (0.0, 0.1, 0.2)
APART = (0.0, 0.5, 2.0)


def observed(times, variance, seed=0):
    """Fresh points of the exact law at every time, in the first sd's units."""
    rng = np.random.default_rng(seed)
    clouds = []
    for t in times:
        kept = np.exp(-RATE * t)
        spread = variance * (1.0 - kept**2) / (2.0 * RATE)
        sd = np.sqrt(kept**2 + spread)
        clouds.append(sd * rng.standard_normal((N, 1)))
    return Snapshots.from_arrays(clouds, times)


def fitted(times, variance, seed=0):
    solver = Judged(selection="none", n_features=40)
    return FokkerPlanckProcess(solver=solver, random_state=seed).fit(
        observed(times, variance, seed)
    )


@pytest.fixture(scope="module")
def close():
    return fitted(CLOSE, variance=0.02, seed=1)


@pytest.fixture(scope="module")
def apart():
    return fitted(APART, variance=1.0)


def test_the_interval_holds_the_truth_and_the_estimate_errs_to_the_small_side(close):
    """At three close times the variance of the noise is known to some 4 of its sizes: the variance
    of a cloud of N points is known to sqrt(2 / N) = .06, and the noise adds .002 a gap.
    """
    assert close.solution_.valley is not None
    low, high = close.covariance_interval(np.zeros(1))
    assert low[0, 0] <= 0.02 <= high[0, 0] < np.inf
    assert close.covariance(np.zeros(1))[0, 0] <= 0.02


def test_a_user_is_told(close):
    assert any("do not tell the noise of x1 from less" in one for one in close.solution_.remarks())


def test_error_bars_reach_to_the_other_end(close):
    """Without noise the cloud contracts at the rate k - a / 2 v, here k - .01 at the first time."""
    states = np.array([[-1.0], [0.5], [1.0]])
    z = close.solution_.problem.scaling.standardise(states)
    alone = drift_draws(replace(close.solution_, valley=None)).spread(z)
    along = drift_draws(close.solution_).spread(z)
    assert along[0, 0] > 1.2 * alone[0, 0]
    assert np.all(np.abs(close.drift(states) + RATE * states) < 3.0 * close.drift_std(states))


@pytest.mark.slow
def test_what_the_snapshots_know_stays_as_it_is(apart):
    """Here sqrt(2 / N) = .06 is the error of a variance of which the noise makes a third."""
    assert apart.solution_.valley is None
    assert at_the_small_end(apart.solution_, POLISHER) is apart.solution_
    assert 0.6 < apart.covariance(np.zeros(1))[0, 0] < 1.7


def test_a_saved_fit_has_its_valley(close, tmp_path):
    close.save(tmp_path / "run")
    again = load(tmp_path / "run")
    np.testing.assert_array_equal(
        again.covariance_interval(np.zeros(1)), close.covariance_interval(np.zeros(1))
    )
    np.testing.assert_allclose(again.drift_std([[1.0]]), close.drift_std([[1.0]]), rtol=1e-4)


def test_draws_are_evenly_between_the_ends(close):
    """In the coefficients of the drift and in the variance of the noise: the weak form is linear in
    these.
    """
    along = along_valley(close.solution_)
    fit = close.solution_.evidence.coefficients
    ends = np.array([0.0, 0.5, 1.0])
    drifts = along.drifts(np.tile(fit, (3, 1, 1)), fit, ends)
    np.testing.assert_allclose(drifts[0], fit)
    np.testing.assert_allclose(drifts[1], 0.5 * (drifts[0] + drifts[2]))
    np.testing.assert_allclose(drifts[2], along.valley.coefficients)
    moved = [along.noise.moved(jnp.asarray(v)) for v in along.noises(np.zeros((3, 1)), ends)]
    variances = [float(noise(jnp.zeros(1))[0, 0]) ** 2 for noise in moved]
    np.testing.assert_allclose(variances[1], 0.5 * (variances[0] + variances[2]), rtol=1e-4)


def test_coordinates_beside_a_valley_keep_their_own_interval(close):
    """A noise of two coordinates of which the valley is in the first."""
    noise = LearnedDiffusion(jnp.asarray([-3.0, 0.5]), DiagonalForm(2))
    valley = replace(close.solution_.valley, theta=np.asarray([-1.0, 0.5]))
    draws = np.asarray([[40.0, 0.3], [-40.0, -0.3]])
    moved = Along(valley, noise).noises(draws, np.asarray([0.0, 1.0]))
    np.testing.assert_array_equal(moved[:, 1], draws[:, 1])
    np.testing.assert_allclose(moved[:, 0], [0.0, 20.0], atol=1e-4)


def test_variances_of_some_coordinates_are_multiplied():
    noise = LearnedDiffusion(jnp.asarray([0.1, 0.2]), DiagonalForm(2))
    less = noise.multiplied(np.asarray([True, False]), 0.01)
    ratio = np.asarray(less(jnp.zeros(2))) @ np.diag(1.0 / np.diag(np.asarray(noise(jnp.zeros(2)))))
    np.testing.assert_allclose(np.diag(ratio), [0.1, 1.0], rtol=1e-5)


def test_an_interval_of_another_level_has_the_same_ends(close):
    z = jnp.zeros((1, 1))
    wide = covariance_interval(close.solution_, z, 0.99)
    np.testing.assert_array_equal(wide, covariance_interval(close.solution_, z, 0.9))
