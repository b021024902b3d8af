"""The bridge solver through the face: what must not change a drift, and what it must find."""

import functools
import itertools

import jax
import numpy as np
import pytest
from scipy.optimize import linear_sum_assignment
from scipy.spatial.distance import cdist

import itofit
from itofit.bridge.iteration import Coupler
from itofit.bridge.noise import first_guess
from itofit.bridge.solver import Bridge
from itofit.bridge.structures import Smooth
from itofit.problem import Problem, Streams
from itofit.snapshots.clouds import Snapshots
from itofit.snapshots.scaling import Scaling

N = 60
TIMES = (0.0, 0.5, 1.0)
ROTATION = np.array([[-1.0, 1.5], [-1.5, -1.0]])
CENTRE = np.array([0.5, -0.5])
GRID = np.stack(np.meshgrid([-0.8, 0.0, 0.8], [-0.8, 0.0, 0.8]), axis=-1).reshape(-1, 2)


def mean_at(time):
    """Of the law."""
    turn = 1.5 * time
    rotated = np.array([[np.cos(turn), np.sin(turn)], [-np.sin(turn), np.cos(turn)]])
    return CENTRE + np.exp(-time) * rotated @ (np.array([1.5, 1.0]) - CENTRE)


def off_the_truth(model):
    """Largest error of the drift at means of the law, the velocity of which clouds determine.

    How isotropic clouds turn about their means they do not.
    """
    states = np.stack([mean_at(time) for time in (0.25, 0.75)])
    return np.max(np.abs(model.drift(states) - (states - CENTRE) @ ROTATION.T))


def ornstein_uhlenbeck(counts=(N, N, N), times=TIMES, seed=0):
    """Fresh draws of dX = R (X - c) dt + .5 dW from N((1.5, 1), .5^2), in closed form.

    R is minus the unit matrix and a rotation: covariances stay multiples of the unit matrix.
    """
    rng = np.random.default_rng(seed)
    clouds = []
    for n, t in zip(counts, times, strict=True):
        variance = 0.25 * np.exp(-2.0 * t) + 0.125 * (1.0 - np.exp(-2.0 * t))
        clouds.append(mean_at(t) + np.sqrt(variance) * rng.standard_normal((n, 2)))
    return clouds


CLOUDS = ornstein_uhlenbeck()


def fitted(clouds, times=TIMES, weights=None, sigma=0.5, seed=0, **options):
    model = itofit.FokkerPlanckProcess(
        sigma, dt=0.025, solver=Bridge(n_passes=4, n_features=40), random_state=seed, **options
    )
    return model.fit(Snapshots.from_arrays(clouds, times, weights))


@functools.cache
def reference(seed=0):
    """Fits that differ by their random draws alone."""
    return fitted(CLOUDS, seed=seed)


def drift_of(model, scale=1.0):
    states = scale * (GRID * 0.6 + np.array([0.8, 0.0]))
    return model.drift(states) / scale


def root_mean_square(x):
    return float(np.sqrt(np.mean(np.square(x))))


@functools.cache
def spread():
    """Between two seeds, in root mean square over the grid and three pairs of seeds."""
    drifts = [drift_of(reference(seed)) for seed in range(3)]
    pairs = itertools.combinations(drifts, 2)
    return root_mean_square([one - other for one, other in pairs])


def test_seeds_differ_and_by_less_than_the_drift():
    assert 0.0 < spread() < 0.5 * root_mean_square(drift_of(reference(0)))


def test_at_the_means_the_drift_is_near_the_truth():
    """Their velocities are 1.9 and 1.2. Means of 60 points of sd .45 are known to .06 and their
    difference over .5 of time to .17; four times that, as it is the largest of four.
    """
    assert off_the_truth(reference(0)) < 0.7


def test_the_order_of_rows_does_not_matter():
    """Not at all: rows are put into an order of their own."""
    rng = np.random.default_rng(1)
    shuffled = [x[rng.permutation(N)] for x in CLOUDS]
    np.testing.assert_array_equal(drift_of(fitted(shuffled)), drift_of(reference(0)))


def test_the_origin_of_time_does_not_matter():
    """Times are whole eighths, without rounding: a tenth of what seeds differ by."""
    later = fitted(CLOUDS, times=[t + 64.0 for t in TIMES])
    assert root_mean_square(drift_of(later) - drift_of(reference(0))) < 0.1 * spread()


def test_units_do_not_matter():
    """Standardised points are the same to their last digits, but rows are shuffled by what they
    hold: draws are others, and the law is the same. Three halves of what seeds differ by.
    """
    larger = fitted([1000.0 * x for x in CLOUDS], sigma=500.0)
    off = root_mean_square(drift_of(larger, 1000.0) - drift_of(reference(0)))
    assert off < 1.5 * spread()


def test_the_unit_of_time_does_not_matter():
    """Of a time in units four times as long the drift is four times as large, the noise twice."""
    model = itofit.FokkerPlanckProcess(
        1.0, dt=0.00625, solver=Bridge(n_passes=4, n_features=40), random_state=0
    ).fit(Snapshots.from_arrays(CLOUDS, [t / 4.0 for t in TIMES]))
    off = root_mean_square(drift_of(model) / 4.0 - drift_of(reference(0)))
    assert off < 0.5 * spread()


def test_a_rotated_world_has_the_rotated_drift():
    """Units are those of coordinates and turn not quite with the world: thrice what seeds differ
    by.
    """
    turn = np.array([[0.8, -0.6], [0.6, 0.8]])
    states = GRID * 0.6 + np.array([0.8, 0.0])
    turned = fitted([x @ turn.T for x in CLOUDS]).drift(states @ turn.T) @ turn
    assert root_mean_square(turned - drift_of(reference(0))) < 3.0 * spread()


def test_a_point_of_weight_two_is_two_points():
    """In law: three times what seeds differ by. To forget the weights would move the drift by more:
    the mean of the first cloud changes by .2 of its sd, .2 in velocity.
    """
    right = CLOUDS[0][:, 0] > np.median(CLOUDS[0][:, 0])
    weights = [np.where(right, 2.0, 1.0), np.ones(N), np.ones(N)]
    weighted = drift_of(fitted(CLOUDS, weights=weights))
    doubled = [np.concatenate([CLOUDS[0], CLOUDS[0][right]]), *CLOUDS[1:]]
    off = root_mean_square(drift_of(fitted(doubled)) - weighted)
    assert off < 3.0 * spread()


def test_weights_are_looked_at():
    """The same points twice: of the first cloud the left ones count, of the second the right."""
    rng = np.random.default_rng(2)
    x = np.linspace(-1.0, 1.0, N)[:, None] + 0.1 * rng.standard_normal((N, 2))
    left = np.where(x[:, 0] < 0.0, 9.0, 1.0)
    right = np.where(x[:, 0] > 0.0, 9.0, 1.0)
    model = fitted([x, x.copy()], [0.0, 1.0], [left, right])
    moved = right @ x / right.sum() - left @ x / left.sum()
    np.testing.assert_allclose(model.drift(np.zeros(2)), moved, rtol=0.35)


def test_of_a_translated_cloud_the_drift_is_shift_over_gap():
    """Inside the cloud, to .15 of the velocity: noise of .2 over a gap of .5 blurs by .14 sds."""
    shift = np.array([1.2, -0.6])
    model = fitted([CLOUDS[0], CLOUDS[0] + shift], [0.0, 0.5], sigma=0.2)
    middle = CLOUDS[0].mean(axis=0) + 0.5 * shift
    states = middle + 0.5 * GRID * CLOUDS[0].std(axis=0)
    velocity = shift / 0.5
    off = root_mean_square(model.drift(states) - velocity)
    assert off < 0.15 * np.linalg.norm(velocity)


def test_with_hardly_any_noise_and_no_drift_pairs_are_nearly_those_of_exact_transport():
    """Of the distance in units of the noise, which is that of the user's units.

    Alternation stops by count: one of 60 columns is left out, a chain of points beside it is one
    further, and that is a fifth of the pairs; the mean cost is met to 5 %.
    """
    observed = Snapshots.from_arrays(CLOUDS[:2], TIMES[:2])
    scaling = Scaling.fit_core(observed)
    problem = Problem.pose(observed, 1e-3, 0.1, scaling=scaling, streams=Streams(0))
    coupler = Coupler(problem, Smooth.of(problem, 4))
    (pins,) = coupler.drawn(coupler.at_rest(), 0)
    start = scaling.restore(np.asarray(pins.start, dtype=np.float64))
    end = start + scaling.sd * np.asarray(pins.missed, dtype=np.float64)
    x, y = observed.clouds
    costs = cdist(x, y, "sqeuclidean")
    rows, columns = linear_sum_assignment(costs)
    partner = y[columns[np.argmin(cdist(start, x), axis=1)]]
    assert np.mean(np.linalg.norm(end - partner, axis=1) < 1e-3) > 0.7
    cost = np.mean(np.sum((end - start) ** 2, axis=1))
    assert cost == pytest.approx(np.mean(costs[rows, columns]), rel=0.05)


def test_counts_and_gaps_may_be_unequal():
    """The same system, seen by fewer points at other times: .1 for a mean of 35, .24 for a velocity
    in the shorter gap and half of that in the longer; three times the first.
    """
    times = (0.0, 0.375, 1.0)
    clouds = ornstein_uhlenbeck((N, 35, 48), times, seed=3)
    assert off_the_truth(fitted(clouds, times)) < 0.7


def test_far_from_the_data_the_drift_is_bounded():
    """Lines are bounded at four sds and data reach two and a half: five times its largest there."""
    model = reference(0)
    on_data = np.max(np.abs(model.drift(np.concatenate(CLOUDS))))
    directions = np.array([[1.0, 0.0], [-1.0, 1.0], [0.0, -1.0], [1.0, 1.0]])
    for distance in (10.0, 1e3, 1e6):
        far = model.drift(distance * directions)
        assert np.all(np.isfinite(far))
        assert np.max(np.abs(far)) < 5.0 * on_data


def test_what_is_missed_is_logged_for_every_pass():
    model = reference(0)
    assert model.history_.missed.shape == (4,)
    assert np.all(model.history_.missed > 0.0)
    assert model.n_iter_ == 4
    assert model.outcome_.name == "converged"


def test_a_saved_model_has_the_same_drift_and_forecasts(tmp_path):
    model = reference(0)
    model.save(tmp_path / "run")
    again = itofit.load(tmp_path / "run")
    np.testing.assert_array_equal(drift_of(again), drift_of(model))
    before = model.forecast([0.25, 1.2], 30, start="bridge")
    after = again.forecast([0.25, 1.2], 30, start="bridge")
    for x, y in zip(before.clouds, after.clouds, strict=True):
        np.testing.assert_array_equal(x, y)
    np.testing.assert_array_equal(again.history_.missed, model.history_.missed)


@pytest.mark.parametrize("sigma", ["scalar", "full", "multiplicative"])
def test_a_noise_of_every_kind_is_learned(sigma, tmp_path):
    """A law stays: a(x) is symmetric and positive. Of constant ones its size is .25 within a factor
    of four, 120 pairs and four passes from a twentieth of the first guess.
    """
    model = fitted([x + 4.0 for x in CLOUDS], sigma=sigma)
    a = np.asarray(model.covariance(np.array([4.5, 3.5])))
    np.testing.assert_allclose(a, a.T, atol=1e-6)
    assert np.all(np.linalg.eigvalsh(a) > 0.0)
    assert 0.25 / 4.0 < np.trace(a) / 2.0 < 0.25 * 4.0
    model.save(tmp_path / "run")
    again = itofit.load(tmp_path / "run")
    np.testing.assert_array_equal(again.covariance(np.array([4.5, 3.5])), a)


def test_a_drift_may_change_with_time():
    """Means at 0, .5 and 2: velocities .5 and 1.5, of which the difference is found to a half."""
    x = CLOUDS[0] - CLOUDS[0].mean(axis=0)
    right = np.array([1.0, 0.0])
    clouds = [x, x + 0.5 * right, x + 2.0 * right]
    model = fitted(clouds, [0.0, 1.0, 2.0], sigma=0.3, time_varying=True)
    early = model.drift(0.25 * right, time=0.5)[0]
    late = model.drift(1.25 * right, time=1.5)[0]
    assert late - early == pytest.approx(1.0, abs=0.5)


def test_a_sparse_drift_of_a_linear_system_is_nearly_that_system():
    """At the means, as the smooth one; it has fewer terms than there are."""
    model = itofit.FokkerPlanckProcess(
        0.5,
        dt=0.025,
        solver=Bridge(structure="sparse", n_passes=4, n_features=40),
        random_state=0,
    ).fit(Snapshots.from_arrays(CLOUDS, TIMES))
    assert off_the_truth(model) < 0.7
    coefficients = np.asarray(model.standard_process_.drift.coefficients)
    assert coefficients.shape == (10, 2)
    assert 2 <= np.count_nonzero(coefficients) < 14
    assert model.solution_.structure == "sparse"
    assert model.n_iter_ == len(model.history_.missed)


def test_forecasts_of_the_known_system_are_near_it():
    """`known_system("ou")` at a time between: means to five standard errors, 5 / sqrt(60) sds."""
    system = itofit.known_system("ou")
    snapshots = system.observe(N, [0.0, 0.5, 1.0], key=jax.random.key(0))
    model = fitted(snapshots.clouds, snapshots.times, sigma=system.process.diffusion.factor[0, 0])
    cloud = model.predict(0.75, 500, start="bridge")
    mean, covariance = system.exact_moments(0.75)
    sd = np.sqrt(np.diagonal(covariance))
    assert np.max(np.abs(cloud.mean(axis=0) - mean) / sd) < 5.0 / np.sqrt(N)


def test_movement_is_not_taken_for_noise():
    """The first pass, from rest, leaves the noise as it is; the ones after it know the drift.

    Of clouds that move by three sds without any noise, misses at rest are 9 sds^2 a gap. What is
    learned is less than a tenth of that.
    """
    rng = np.random.default_rng(0)
    clouds = [rng.standard_normal((200, 2)) + [3.0 * k, 0.0] for k in range(3)]
    snapshots = Snapshots.from_arrays(clouds, [0.0, 1.0, 2.0])
    first = itofit.FokkerPlanckProcess(solver=Bridge(n_passes=1), random_state=0).fit(snapshots)
    begin = first_guess(first.solution_.problem.diffusion)
    np.testing.assert_array_equal(first.solution_.process.diffusion.theta, begin.theta)
    after = itofit.FokkerPlanckProcess(solver=Bridge(n_passes=8), random_state=0).fit(snapshots)
    assert after.covariance([3.0, 0.0])[0, 0] < 0.9
