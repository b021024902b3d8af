"""One battery over every distance between clouds."""

import numpy as np
import pytest
from scipy.stats import norm, wasserstein_distance_nd

from itofit.metrics import (
    W1,
    W2,
    coordinate_W1,
    energy_distance,
    mmd,
    sliced_W1,
    transport_plan,
)
from itofit.transport import plans

DISTANCES = [W1, W2, coordinate_W1, sliced_W1, energy_distance, mmd]
TRANSPORT = [W1, W2, coordinate_W1, sliced_W1]
ROUND = [W1, W2, energy_distance, mmd]  # those that do not depend on the axes
EXACT = [W1, W2]

# Roots of sums of n^2 terms of size 1 that cancel: sqrt(1e-16 * a few).
ZERO = 1e-7


@pytest.fixture
def pair():
    rng = np.random.default_rng(0)
    return rng.normal(size=(40, 3)), [0.5, 0.0, -1.0] + 1.5 * rng.normal(size=(40, 3))


@pytest.fixture
def uneven():
    rng = np.random.default_rng(1)
    return rng.normal(size=(30, 2)), 0.5 + rng.normal(size=(20, 2))


@pytest.mark.parametrize("distance", DISTANCES)
def test_zero_on_identical_clouds_in_any_order(distance, pair):
    x, _ = pair
    assert distance(x, x) == pytest.approx(0.0, abs=ZERO)
    assert distance(x, x[::-1]) == pytest.approx(0.0, abs=ZERO)


@pytest.mark.parametrize("distance", DISTANCES)
def test_positive_and_symmetric(distance, pair, uneven):
    for x, y in (pair, uneven):
        assert distance(x, y) > 0.01
        assert distance(x, y) == pytest.approx(distance(y, x), rel=1e-9)


@pytest.mark.parametrize("distance", DISTANCES)
def test_order_of_rows_does_not_matter(distance, uneven):
    x, y = uneven
    assert distance(x[::-1], y[np.argsort(y[:, 0])]) == pytest.approx(distance(x, y), rel=1e-9)


@pytest.mark.parametrize("distance", DISTANCES)
def test_shifting_both_clouds_changes_nothing(distance, uneven):
    x, y = uneven
    assert distance(x + [3.0, -5.0], y + [3.0, -5.0]) == pytest.approx(distance(x, y), rel=1e-7)


@pytest.mark.parametrize("distance", ROUND)
def test_rotating_both_clouds_changes_nothing(distance, pair):
    x, y = pair
    rotation = np.linalg.qr(np.random.default_rng(2).normal(size=(3, 3)))[0]
    assert distance(x @ rotation, y @ rotation) == pytest.approx(distance(x, y), rel=1e-7)


@pytest.mark.parametrize("distance", EXACT)
def test_a_shifted_cloud_is_as_far_as_the_shift(distance, pair):
    x, _ = pair
    shift = np.array([3.0, -4.0, 12.0])
    assert distance(x, x + shift) == pytest.approx(13.0, rel=1e-9)


def test_a_shifted_cloud_by_coordinate_and_by_direction(pair):
    x, _ = pair
    shift = np.array([3.0, -4.0, 12.0])
    assert coordinate_W1(x, x + shift) == pytest.approx(19.0 / 3.0, rel=1e-9)
    # |c| E|u_1| = |c| / 2 on the sphere of R^3, where u_1 is uniform; sd(|u_1|) = sqrt(1/12) over
    # 200 directions.
    error = 13.0 * np.sqrt(1.0 / 12.0 / 200.0)
    assert sliced_W1(x, x + shift) == pytest.approx(6.5, abs=4.0 * error)


@pytest.mark.parametrize(
    ("distance", "power"),
    [
        (W1, 1.0),
        (W2, 1.0),
        (coordinate_W1, 1.0),
        (sliced_W1, 1.0),
        (energy_distance, 0.5),
        (mmd, 0),
    ],
)
@pytest.mark.parametrize("unit", [1e-6, 1e6])
def test_units(distance, power, unit, uneven):
    x, y = uneven
    assert distance(unit * x, unit * y) == pytest.approx(unit**power * distance(x, y), rel=1e-6)


@pytest.mark.parametrize("distance", DISTANCES)
def test_every_point_twice_changes_nothing(distance, uneven):
    x, y = uneven
    assert distance(np.repeat(x, 2, axis=0), y) == pytest.approx(distance(x, y), rel=1e-7)
    assert distance(np.tile(x, (2, 1)), np.tile(y, (2, 1))) == pytest.approx(
        distance(x, y), rel=1e-7
    )


@pytest.mark.parametrize("distance", DISTANCES)
def test_a_weight_is_a_repetition(distance, uneven):
    x, y = uneven
    times = np.random.default_rng(3).integers(0, 4, len(x))
    repeated = np.repeat(x, times, axis=0)
    assert distance(x, y, times.astype(float)) == pytest.approx(distance(repeated, y), rel=1e-7)
    assert distance(y, x, None, times / times.sum()) == pytest.approx(
        distance(y, repeated), rel=1e-7
    )


@pytest.mark.parametrize("distance", DISTANCES)
def test_weights_on_both_sides_of_clouds_of_different_size(distance, uneven):
    x, y = uneven
    rng = np.random.default_rng(4)
    a = rng.integers(1, 4, len(x))
    b = rng.integers(1, 4, len(y))
    wanted = distance(np.repeat(x, a, axis=0), np.repeat(y, b, axis=0))
    assert distance(x, y, a.astype(float), b / b.sum()) == pytest.approx(wanted, rel=1e-7)


@pytest.mark.parametrize("distance", DISTANCES)
def test_equal_weights_are_no_weights(distance, uneven):
    x, y = uneven
    assert distance(x, y, np.full(30, 7.0)) == pytest.approx(distance(x, y), rel=1e-9)


@pytest.mark.parametrize("distance", TRANSPORT)
def test_triangle_inequality(distance, pair):
    x, y = pair
    z = 2.0 * np.random.default_rng(5).normal(size=(25, 3))
    assert distance(x, y) <= distance(x, z) + distance(z, y) + 1e-12


def test_order_of_the_distances(pair):
    x, y = pair
    assert coordinate_W1(x, y) <= W1(x, y) + 1e-12  # every coordinate is a 1-Lipschitz function
    assert sliced_W1(x, y) <= W1(x, y) + 1e-12
    assert W1(x, y) <= W2(x, y) + 1e-12


@pytest.mark.parametrize(("n", "m", "n_dims"), [(8, 8, 1), (12, 7, 2), (10, 10, 5)])
def test_W1_is_scipys_linear_program(n, m, n_dims):
    rng = np.random.default_rng(n)
    x = rng.normal(size=(n, n_dims))
    y = 1.0 + rng.normal(size=(m, n_dims))
    wx = rng.uniform(size=n)
    assert W1(x, y) == pytest.approx(wasserstein_distance_nd(x, y), abs=1e-9)
    assert W1(x, y, wx) == pytest.approx(wasserstein_distance_nd(x, y, wx), abs=1e-9)


@pytest.mark.parametrize("distance", [W1, coordinate_W1])
def test_one_dimensional_gaussians_are_as_far_as_the_folded_normal(distance):
    # Quantiles m + s z against z: W1 = E|dm + ds Z|. They cross only below z = -4, so that the
    # distance of two samples is the difference of their means up to 1e-4, unbiased, with the
    # standard error of the repeats.
    dm = 2.0
    ds = 0.5
    n = 300
    rng = np.random.default_rng(6)
    ratio = dm / ds
    closed = 2.0 * ds * norm.pdf(ratio) + dm * (1.0 - 2.0 * norm.cdf(-ratio))
    distances = [
        distance(rng.normal(size=(n, 1)), dm + (1.0 + ds) * rng.normal(size=(n, 1)))
        for _ in range(40)
    ]
    error = np.std(distances, ddof=1) / np.sqrt(len(distances))
    assert abs(np.mean(distances) - closed) < 4.0 * error
    # sd of a difference of two means: sqrt((1 + 1.5^2) / 300) = 0.104; the test would see an error
    # of 4 percent.
    assert error < 0.02


def test_one_dimensional_W1_is_the_mean_sorted_difference():
    rng = np.random.default_rng(7)
    x = rng.normal(size=(50, 1))
    y = rng.gamma(2.0, size=(50, 1))
    wanted = np.abs(np.sort(x[:, 0]) - np.sort(y[:, 0])).mean()
    assert W1(x, y) == pytest.approx(wanted, abs=1e-12)
    assert coordinate_W1(x, y) == pytest.approx(wanted, abs=1e-12)
    # The only directions of a line are +1 and -1.
    assert sliced_W1(x, y) == pytest.approx(wanted, abs=1e-12)


def test_two_samples_of_one_law_are_apart_by_the_known_floor():
    # METHODS 1.2.4: sqrt(2/n) sqrt(2/pi) 1.6147 sd = 0.0644 sd for n = 800; by Monte Carlo, with
    # its standard error.
    n = 800
    sd = 3.0
    rng = np.random.default_rng(8)
    distances = [
        coordinate_W1(sd * rng.normal(size=(n, 1)), sd * rng.normal(size=(n, 1))) / sd
        for _ in range(300)
    ]
    error = np.std(distances, ddof=1) / np.sqrt(len(distances))
    assert error < 0.002
    assert abs(np.mean(distances) - 0.0644) < 4.0 * error


def test_W2_of_gaussians_on_a_line_is_the_distance_of_mean_and_sd():
    # W2^2 = dm^2 + ds^2 between quantile functions; on a grid of 2000 quantiles, cut at +-3.5 sd.
    z = norm.ppf((np.arange(2000) + 0.5) / 2000.0)[::10, None]
    s = np.sqrt(np.mean(z**2))
    assert W2(z, 3.0 + 2.0 * z) == pytest.approx(
        np.sqrt(9.0 + s**2 + 2.0 * 3.0 * z.mean()), rel=1e-6
    )


def test_energy_distance_is_twice_the_integrated_squared_difference_of_cdfs():
    x = np.array([[0.0], [1.0]])
    y = np.array([[0.0], [3.0]])
    # F - G is 0 on [0, 1) and 1/2 on [1, 3): energy^2 = 2 * (1/4) * 2.
    assert energy_distance(x, y) == pytest.approx(1.0, rel=1e-12)


def test_mmd_of_two_points():
    x = np.zeros((2, 1))
    y = np.full((3, 1), 2.0)
    # All cross distances are 2, so squared bandwidths are 1, 4, 16 and k = exp(-4 / (2 * that)).
    wanted = np.sqrt(sum(2.0 - 2.0 * np.exp(-2.0 / s) for s in (1.0, 4.0, 16.0)))
    assert mmd(x, y) == pytest.approx(wanted, rel=1e-12)


def test_plan_has_the_masses_of_the_clouds_and_the_cost_of_W2(uneven):
    x, y = uneven
    wx = np.random.default_rng(9).uniform(size=30)
    plan = transport_plan(x, y, wx)
    np.testing.assert_allclose(plan.sum(axis=1), wx / wx.sum(), atol=1e-12)
    np.testing.assert_allclose(plan.sum(axis=0), 1.0 / 20.0, atol=1e-12)
    squares = np.sum((x[:, None] - y[None]) ** 2, axis=-1)
    assert np.sum(plan * squares) == pytest.approx(W2(x, y, wx) ** 2, rel=1e-9)


def test_without_pot_equal_clouds_are_assigned(monkeypatch, pair):
    x, y = pair
    wanted = [W1(x, y), W2(x, y)]
    plan = transport_plan(x, y)
    monkeypatch.setattr(plans, "_pot", lambda: None)
    assert [W1(x, y), W2(x, y)] == pytest.approx(wanted, rel=1e-9)
    assert W1(x, y, np.full(40, 3.0), np.full(40, 0.1)) == pytest.approx(wanted[0], rel=1e-9)
    np.testing.assert_allclose(transport_plan(x, y), plan, atol=1e-12)


def test_without_pot_unequal_counts_or_weights_are_refused(monkeypatch, refused, pair, uneven):
    monkeypatch.setattr(plans, "_pot", lambda: None)
    for distance in (W1, W2, transport_plan):
        with refused("POT", "equal size"):
            distance(*uneven)
        with refused("POT"):
            distance(*pair, np.arange(1.0, 41.0))
        with refused("POT"):
            distance(*pair, None, np.arange(1.0, 41.0))
