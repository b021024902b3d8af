"""Pinned paths against closed forms: Brownian bridges, and bridges of linear processes."""

import functools

import jax.numpy as jnp
import numpy as np
import pytest
from scipy.linalg import expm

from itofit.bridge.pins import N_STEPS, Box, Draws, Gap, pinned
from itofit.process.drift import FeatureDrift
from itofit.process.features import affine
from itofit.process.ito import ItoProcess
from itofit.process.noise import ConstantDiffusion

S = np.array([[0.8, 0.0], [0.3, 0.5]])
Q = S @ S.T
A = np.array([[-0.6, 0.9], [-0.9, -0.2]])
OFFSET = np.array([0.4, -0.3])
BEGIN = 2.0
LENGTH = 0.7
X = np.array([0.5, -1.0])
Y = np.array([1.2, 0.3])
BOX = Box(jnp.full(2, -50.0), jnp.full(2, 50.0))
N_DRAWS = 20_000
PER_STEP = N_DRAWS // N_STEPS
TOGETHER = pytest.mark.parametrize("linearised", [True, False], ids=["linearised", "plain"])


def linear_process(matrix, offset, factor=S):
    dictionary = affine(2)
    coefficients = jnp.asarray(np.vstack([offset, matrix.T]), dtype=float)
    noise = ConstantDiffusion(jnp.asarray(factor, dtype=float))
    return ItoProcess(FeatureDrift(dictionary.features, coefficients), noise)


def at_rest():
    return linear_process(np.zeros((2, 2)), np.zeros(2))


def gap_of(x, a, y, b):
    arrays = [jnp.asarray(array, dtype=float) for array in (x, a, y, b, BEGIN, LENGTH)]
    return Gap(*arrays)


def one_pair():
    return gap_of(X[None], np.ones(1), Y[None], np.ones(1))


@functools.cache
def drawn(which, linearised):
    """All tests of one pair, and all of clouds, look at the same draws."""
    gap, n_draws = (clouds(), 100) if which == "clouds" else (one_pair(), N_DRAWS)
    process = linear_process(A, OFFSET) if which == "linear" else at_rest()
    draws = Draws.fresh(np.random.default_rng(0), len(gap.x), n_draws, 2)
    pins = pinned(process, gap, BOX, draws, linearised)
    return type(pins)(*(np.asarray(part, dtype=np.float64) for part in pins))


def steps_of(pins):
    return np.round((pins.times - BEGIN) / LENGTH * N_STEPS).astype(int)


def integrals(time):
    """exp(A t), the integral of exp(A s) OFFSET, and that of exp(A s) Q exp(A' s), up to t."""
    zero = np.zeros((2, 2))
    block = expm(time * np.block([[-A, Q], [zero, A.T]]))
    forward = block[2:, 2:].T
    moved = expm(time * np.block([[A, OFFSET[:, None]], [np.zeros((1, 3))]]))[:2, 2]
    return forward, moved, forward @ block[:2, 2:]


def linear_bridge(u):
    """Mean and covariance at time u of the linear process from X, given that it is at Y."""
    here, moved, P = integrals(u)
    m = here @ X + moved
    R = integrals(LENGTH - u)[0]
    last, moved_last, P_last = integrals(LENGTH)
    missed = Y - last @ X - moved_last
    gain = P @ R.T @ np.linalg.inv(P_last)
    return m + gain @ missed, P - gain @ R @ P


def pinned_drift(u, x):
    """The forward drift of that bridge: A x + b + Q times the slope of the log of what remains."""
    R, moved, rest = integrals(LENGTH - u)
    return A @ x + OFFSET + Q @ R.T @ np.linalg.solve(rest, Y - R @ x - moved)


def check_moments(points, mean, covariance, bias=0.0):
    """Of 2000 draws a mean is known to sd / 45 and a covariance to sd^2 / 31: 4.5 of each.

    `bias` is what the ten steps of the chain may be off, in the same sds.
    """
    sd = np.sqrt(np.diag(covariance))
    off = (points.mean(axis=0) - mean) / sd
    spread = (np.cov(points.T) - covariance) / np.outer(sd, sd)
    assert np.max(np.abs(off)) < 4.5 / np.sqrt(len(points)) + bias
    assert np.max(np.abs(spread)) < 4.5 * np.sqrt(2.0 / len(points)) + bias


@TOGETHER
def test_without_drift_pins_are_brownian_bridges(linearised):
    pins = drawn("at rest", linearised)
    for k in range(1, N_STEPS):
        s = k / N_STEPS
        points = pins.points[steps_of(pins) == k]
        assert len(points) == PER_STEP
        check_moments(points, X + s * (Y - X), s * (1.0 - s) * LENGTH * Q)


@TOGETHER
def test_pins_begin_at_their_start_point(linearised):
    """To 1e-5, the root of what keeps a covariance of no rank from being one."""
    pins = drawn("at rest", linearised)
    first = pins.points[steps_of(pins) == 0]
    assert len(first) == PER_STEP
    np.testing.assert_allclose(first, np.tile(X, (PER_STEP, 1)), atol=1e-5)


@TOGETHER
def test_without_drift_a_pin_heads_straight_for_its_end(linearised):
    """(Y - x) / what is left of time; 1e-3 of it is what the factored covariance may be off."""
    pins = drawn("at rest", linearised)
    left = LENGTH + BEGIN - pins.times
    np.testing.assert_allclose(pins.drift, (Y - pins.points) / left[:, None], rtol=1e-3, atol=2e-3)


def test_pins_of_a_linear_process_are_its_bridge():
    """Ten midpoint steps are off by (|A| h)^2 / 6 a unit of rate, below .002 sds here."""
    pins = drawn("linear", True)
    for k in range(1, N_STEPS):
        points = pins.points[steps_of(pins) == k]
        check_moments(points, *linear_bridge(LENGTH * k / N_STEPS), bias=0.002)


def test_the_drift_on_pins_of_a_linear_process_is_that_of_its_bridge():
    """Place by place, nothing random: .01 of the largest drift is the error of ten steps."""
    pins = drawn("linear", True)
    some = slice(None, None, 100)
    times = pins.times[some] - BEGIN
    expected = [pinned_drift(u, x) for u, x in zip(times, pins.points[some], strict=True)]
    np.testing.assert_allclose(pins.drift[some], expected, atol=0.01 * np.max(np.abs(expected)))


def test_the_spread_and_what_is_missed_are_those_of_the_linear_process():
    """To 1e-3: ten steps of second order."""
    pins = drawn("linear", True)
    last, moved, P = integrals(LENGTH)
    np.testing.assert_allclose(pins.spread, P, atol=1e-3)
    np.testing.assert_allclose(pins.missed[0], Y - last @ X - moved, atol=2e-3)


def clouds():
    rng = np.random.default_rng(5)
    x = rng.standard_normal((60, 2))
    y = 0.8 * rng.standard_normal((50, 2)) + 0.5
    a = rng.dirichlet(np.full(60, 3.0))
    b = np.append(rng.dirichlet(np.full(45, 3.0)), np.zeros(5))
    return gap_of(x, a, y, b)


@TOGETHER
def test_pairs_have_the_observed_clouds_at_both_ends(linearised):
    """Starts exactly. Of the end y_j a share b_j, up to 5 sds of so many draws and 1 % of a
    mean weight, to which the plan has its columns.

    The variance of the share is below b_j max(a) / n_draws. Ends of no weight are never drawn.
    """
    gap = clouds()
    a, y, b = (np.asarray(part, np.float64) for part in (gap.x_weights, gap.y, gap.y_weights))
    pins = drawn("clouds", linearised)
    n_draws = len(pins.points) // len(a)
    np.testing.assert_allclose(pins.start, np.repeat(gap.x, n_draws, axis=0))
    np.testing.assert_allclose(pins.weights, np.repeat(a / n_draws, n_draws), rtol=1e-5)
    distances = np.abs(pins.start[:, None] + pins.missed[:, None] - y).sum(axis=-1)
    assert np.max(np.min(distances, axis=1)) < 1e-4
    mass = np.bincount(np.argmin(distances, axis=1), pins.weights, minlength=len(y))
    sd = np.sqrt(b * np.max(a) / n_draws)
    assert np.all(np.abs(mass - b) <= 5.0 * sd + 0.01 / len(b) * (b > 0))


def test_without_drift_plain_pins_are_the_linearised_ones():
    """The same numbers draw the same pairs and shocks, unless a draw falls within 1e-5 of the
    border between two: of 100 at most 2. Places to 1e-3, drifts to .01 of the largest.
    """
    linear = drawn("clouds", True)
    plain = drawn("clouds", False)
    same = np.all(np.abs(linear.missed - plain.missed) < 1e-4, axis=1)
    assert np.mean(same) > 0.98
    np.testing.assert_array_equal(linear.times, plain.times)
    np.testing.assert_allclose(linear.points[same], plain.points[same], atol=1e-3)
    size = np.max(np.abs(plain.drift))
    np.testing.assert_allclose(linear.drift[same], plain.drift[same], atol=0.01 * size)
    np.testing.assert_allclose(linear.spread, plain.spread, rtol=1e-4)
