"""The noise that misses ask for: what flows miss must have the covariance expected of it."""

import jax.numpy as jnp
import numpy as np
import pytest

from itofit.bridge.noise import first_guess, learned_from
from itofit.bridge.pins import Pinned
from itofit.process.noise import ConstantDiffusion, ParametricSigma, noise_of
from itofit.snapshots.scaling import Scaling

SD = np.array([1.0, 2.0])
SCALING = Scaling(np.array([3.0, -1.0]), SD)
GAPS = (0.5, 1.5)
KINDS = ("scalar", "diagonal", "full")
# In standardised units; for a scalar noise a ~ 1 / sd^2.
TRUTH = {
    "scalar": np.diag(0.36 / SD**2),
    "diagonal": np.diag([0.5, 0.2]),
    "full": np.array([[0.5, -0.2], [-0.2, 0.3]]),
}


def noise(kind, size):
    return noise_of(kind, SCALING, np.asarray(size, dtype=float), np.random.default_rng(0))


def covariance(diffusion):
    S = np.asarray(diffusion(jnp.zeros(2)), dtype=np.float64)
    return S @ S.T


def pins_of(missed, expected):
    """Four draws whose misses have exactly the covariance `missed`, where `expected` was."""
    e = np.sqrt(2.0) * np.linalg.cholesky(missed).T
    e = jnp.asarray(np.concatenate([e, -e]), dtype=float)
    place = jnp.zeros((4, 2))
    weights = jnp.full(4, 0.25)
    return Pinned(place, jnp.zeros(4), place, weights, place, e, jnp.asarray(expected, float))


def all_pins(truth, now):
    return [pins_of(gap * truth, gap * now) for gap in GAPS]


def learned(diffusion, truth, n_updates, step=0.5):
    for _ in range(n_updates):
        pins = all_pins(truth, covariance(diffusion))
        diffusion = learned_from(diffusion, pins, sum(GAPS), step)
    return diffusion


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("step", [0.5, 1.0])
def test_where_misses_are_as_expected_the_noise_stays(kind, step):
    """To 2e-5 of it: a full noise has its smallest variance of 1e-5 of the data a gap added."""
    before = learned(noise(kind, [0.7, 0.5]), TRUTH[kind], 60)
    pins = all_pins(covariance(before), covariance(before))
    after = covariance(learned_from(before, pins, sum(GAPS), step))
    np.testing.assert_allclose(after, covariance(before), atol=2e-5)


@pytest.mark.parametrize("kind", KINDS)
def test_the_noise_is_reached_from_twice_too_much(kind):
    """Half of the way an update: after 25 the rest is 3e-8, and rounding and the least noise,
    1e-5, remain.
    """
    size = np.sqrt(2.0 * np.diag(TRUTH[kind]))
    after = covariance(learned(noise(kind, size), TRUTH[kind], 25))
    np.testing.assert_allclose(after, TRUTH[kind], atol=5e-5)


@pytest.mark.parametrize("kind", KINDS)
def test_an_update_goes_its_part_of_the_way(kind):
    """(1 - step) a + step a*, in variances."""
    begin = noise(kind, np.sqrt(2.0 * np.diag(TRUTH[kind])))
    after = covariance(learned(begin, TRUTH[kind], 1, step=0.25))
    expected = 0.75 * covariance(begin) + 0.25 * TRUTH[kind]
    np.testing.assert_allclose(after, expected, atol=2e-5)


def test_a_scalar_noise_takes_the_mean_of_both_ratios():
    begin = noise("scalar", 0.6 / SD)
    now = covariance(begin)
    pins = [pins_of(now * np.array([[4.0, 0.0], [0.0, 2.0]]), now)]
    after = covariance(learned_from(begin, pins, 1.0, 1.0))
    np.testing.assert_allclose(after, 3.0 * now, rtol=1e-5)


@pytest.mark.parametrize("kind", KINDS)
def test_without_misses_the_noise_falls_and_stays_positive(kind):
    """Down to 3e-3 sds of the data over the whole span, no further."""
    after = covariance(learned(noise(kind, [0.7, 0.5]), 1e-14 * np.eye(2), 60))
    least = 3e-3**2 / sum(GAPS)
    assert np.all(np.linalg.eigvalsh(after) > 0.1 * least)
    assert np.all(np.diag(after) < 10.0 * least)


def test_a_known_noise_is_left_alone():
    known = ConstantDiffusion(jnp.eye(2))
    assert learned_from(known, all_pins(np.eye(2), np.eye(2)), 2.0, 1.0) is known
    assert first_guess(known) is known


def test_a_noise_of_the_users_own_has_no_scales_to_learn():
    own = noise(ParametricSigma(lambda x, p: jnp.exp(p[0]) * x, start=(0.0,)), [1.0, 1.0])
    after = learned_from(own, all_pins(4.0 * np.eye(2), np.eye(2)), 2.0, 1.0)
    np.testing.assert_array_equal(after.theta, own.theta)


@pytest.mark.parametrize("kind", [*KINDS, "multiplicative"])
def test_coupling_begins_with_a_twentieth_of_the_variance(kind):
    begin = noise(kind, [0.8, 0.8] / SD if kind == "scalar" else [0.8, 0.4])
    after = covariance(first_guess(begin))
    np.testing.assert_allclose(after, 0.05 * covariance(begin), rtol=1e-4, atol=1e-8)
