"""Clouds carried to other times: resampling, starts, pushing, and the error of the step."""

import jax.numpy as jnp
import numpy as np
import pytest

from itofit.forecast import (
    checked_times,
    push_forward,
    resampled,
    start_before,
    step_doubling_error,
)
from itofit.process import ConstantDiffusion, FunctionDrift, ItoProcess
from itofit.snapshots.clouds import Snapshot, Snapshots


def process(drift, sigma=0.0, n_dims=2):
    return ItoProcess(FunctionDrift(drift), ConstantDiffusion(sigma * jnp.eye(n_dims)))


DECAY = process(lambda x: -1.5 * x)  # one object, so that chains of one length compile once


def cloud(n=50, time=0.0, seed=0, shift=0.0):
    points = shift + np.random.default_rng(seed).normal(size=(n, 2))
    return Snapshot(time, points, np.full(n, 1.0 / n))


# Resampling


@pytest.mark.parametrize("size", [2, 37, 100, 5000])
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_resampled_counts_are_the_weights_up_to_one(size, seed):
    rng = np.random.default_rng(10 + seed)
    points = np.arange(60.0)[:, None]
    weights = rng.gamma(0.3, size=60)
    weights /= weights.sum()
    drawn = resampled(Snapshot(1.5, points, weights), size, np.random.default_rng(seed))
    counts = np.bincount(drawn.points[:, 0].astype(int), minlength=60)
    assert drawn.time == 1.5
    assert counts.sum() == size
    # Systematic resampling: floor or ceiling of n w, up to rounding of the cumulative sum.
    assert np.all(np.abs(counts - size * weights) < 1.0 + 1e-9)
    np.testing.assert_array_equal(drawn.weights, np.full(size, 1.0 / size))


def test_as_many_equally_weighted_points_are_each_drawn_once():
    start = cloud(40)
    drawn = resampled(start, 40, np.random.default_rng(0))
    assert sorted(drawn.points[:, 0]) == sorted(start.points[:, 0])


def test_without_a_size_every_point_stays_with_its_weight():
    start = cloud(40)
    same = resampled(start, None, np.random.default_rng(0))
    np.testing.assert_array_equal(same.points, start.points)
    np.testing.assert_array_equal(same.weights, start.weights)


def test_resampling_follows_the_seed_and_leaves_no_order():
    points = np.arange(1000.0)[:, None]
    start = Snapshot(0.0, points, np.full(1000, 1e-3))
    first, same, other = (
        resampled(start, 1000, np.random.default_rng(seed)).points for seed in (0, 0, 1)
    )
    np.testing.assert_array_equal(first, same)
    assert not np.array_equal(first, other)
    # Four standard errors of a correlation of independent rows.
    assert abs(np.corrcoef(first[:, 0], points[:, 0])[0, 1]) < 4.0 / np.sqrt(1000.0)


@pytest.mark.parametrize("size", [1, 0, -5])
def test_fewer_than_two_samples_are_refused(refused, size):
    with refused("at least 2", f"found {size}."):
        resampled(cloud(), size, np.random.default_rng(0))


# Times and starts


def test_times_are_sorted_and_taken_once():
    assert checked_times([3, 1.0, 3.0], 0.5).tolist() == [1.0, 3.0]
    assert checked_times(np.array([0.5 - 1e-12]), 0.5).tolist() == [0.5]


@pytest.mark.parametrize("times", [[], [np.nan], [1.0, np.inf], [[1.0, 2.0]]])
def test_times_that_are_none_are_refused(refused, times):
    with refused("finite times"):
        checked_times(np.array(times), 0.0)


def test_times_that_are_text_are_refused(refused):
    with refused("time", "soon"):
        checked_times(np.array(["soon"]), 0.0)


def test_times_before_the_first_are_refused(refused):
    with refused("t0 = 2", "t = 1.9"):
        checked_times([3.0, 1.9], 2.0)


def test_one_second_before_the_first_snapshot_is_before_it(refused):
    with refused("t0"):
        checked_times([1.6e9 - 1.0], 1.6e9)


@pytest.fixture
def snapshots():
    return Snapshots.from_arrays([cloud(n).points for n in (5, 6, 7)], [0.0, 1.0, 4.0])


@pytest.mark.parametrize(
    ("time", "began"), [(0.0, 0.0), (0.5, 0.0), (1.0, 1.0), (3.9, 1.0), (4.0, 4.0), (50.0, 4.0)]
)
def test_the_start_is_the_first_or_the_previous_snapshot(snapshots, time, began):
    assert start_before(snapshots, time, "initial").time == 0.0
    assert start_before(snapshots, time, "previous").time == began


@pytest.mark.parametrize("times", [(0.0, 1e-9, 2e-9), (1.6e9, 1.6e9 + 1.0, 1.6e9 + 2.0)])
def test_the_previous_snapshot_is_found_in_any_unit(times):
    snapshots = Snapshots.from_arrays([cloud(n).points for n in (5, 6, 7)], times)
    assert [len(start_before(snapshots, t, "previous").points) for t in times] == [5, 6, 7]


def test_other_starts_are_refused(refused, snapshots):
    with refused("initial, previous", "'last'"):
        start_before(snapshots, 1.0, "last")


# Pushing


def test_nothing_moves_without_drift_and_noise(getkey):
    start = cloud()
    for x in push_forward(process(jnp.zeros_like), start, [0.0, 0.3, 2.0], 0.1, key=getkey()):
        # The cloud passes through single precision.
        np.testing.assert_allclose(x, start.points, rtol=1e-6)


def test_a_constant_drift_moves_every_point_alike(getkey):
    start = cloud(time=1.0)
    velocity = jnp.array([2.0, -1.0])
    clouds = push_forward(process(lambda x: velocity), start, [1.0, 1.25, 3.0], 0.07, key=getkey())
    for x, passed in zip(clouds, [0.0, 0.25, 2.0], strict=True):
        np.testing.assert_allclose(x, start.points + passed * np.array([2.0, -1.0]), atol=1e-5)


def test_brownian_motion_spreads_from_one_time_to_the_next(getkey):
    n = 5000
    start = Snapshot(0.0, np.zeros((n, 2)), np.full(n, 1.0 / n))
    half, full = push_forward(process(jnp.zeros_like, 2.0), start, [0.5, 1.0], 0.1, key=getkey())
    # sigma^2 t = 2 and 4; a variance has the standard error var sqrt(2 / n). Increments are
    # independent: four se.
    for x, var in [(half, 2.0), (full, 4.0), (full - half, 2.0)]:
        assert np.all(np.abs(x.var(axis=0) - var) < 4.0 * var * np.sqrt(2.0 / n))
    assert np.all(np.abs(np.mean(half * (full - half), axis=0)) < 4.0 * 2.0 / np.sqrt(n))


def test_pushing_follows_the_key(getkey):
    key = getkey()
    first, same, other = (
        push_forward(process(jnp.zeros_like, 1.0), cloud(), [1.0], 0.1, key=k)[0]
        for k in (key, key, getkey())
    )
    np.testing.assert_array_equal(first, same)
    assert not np.array_equal(first, other)


# Step doubling


def test_halving_the_step_changes_nothing_for_constant_drift_and_noise(getkey):
    constant = process(lambda x: jnp.array([3.0, -1.0]), 0.7)
    # Both chains end at x0 + g t + sigma W_t, up to single precision of numbers of size 10.
    assert step_doubling_error(constant, cloud(), np.array([1.0, 3.0]), 0.25, key=getkey()) < 1e-5


@pytest.mark.parametrize("dt", [0.4, 0.2])
def test_halving_the_step_of_a_decay_is_the_closed_form(getkey, dt):
    rate = 1.5
    time = 2.0
    start = cloud(shift=3.0)
    error = step_doubling_error(DECAY, start, np.array([time]), dt, key=getkey())
    n_steps = round(time / dt)
    coarse = (1.0 - rate * dt) ** n_steps
    fine = (1.0 - rate * dt / 2.0) ** (2 * n_steps)
    mean = start.points.mean(axis=0)
    sd = start.points.std(axis=0)
    expected = np.max(np.maximum(np.abs(mean), sd) * abs(coarse - fine) / (fine * sd))
    assert error == pytest.approx(expected, rel=1e-4)
    assert coarse < fine  # the Euler chain decays too fast, the more so the longer its step


def test_the_error_of_ornstein_uhlenbeck_falls_with_the_step(getkey):
    key = getkey()
    start = cloud(2000, shift=3.0)
    ou = process(lambda x: -1.5 * x, 1.0)
    times = np.array([0.4, 1.2])
    steps = np.array([0.2, 0.1, 0.05])
    errors = [step_doubling_error(ou, start, times, float(dt), key=key) for dt in steps]
    assert errors == sorted(errors, reverse=True)
    # Euler is of weak order 1; the next term bends the line by rate * dt, at most 0.3.
    slope = np.polyfit(np.log(steps), np.log(errors), 1)[0]
    assert 0.8 < slope < 1.3


def test_the_step_error_uses_weights(getkey):
    start = cloud(shift=3.0)
    key = getkey()
    weights = np.where(np.arange(50) < 40, 1.0 / 40.0, 0.0)
    far = start.points.copy()
    far[40:] += 100.0
    chosen, same = (Snapshot(0.0, x, weights) for x in (start.points, far))
    a, b = (step_doubling_error(DECAY, s, np.array([2.0]), 0.4, key=key) for s in (chosen, same))
    assert a == pytest.approx(b, rel=1e-5)


def test_no_time_to_go_is_no_error(getkey):
    assert step_doubling_error(DECAY, cloud(), np.array([0.0]), 0.1, key=getkey()) == 0.0
