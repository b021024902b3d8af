import jax.numpy as jnp
import numpy as np
import pytest

from itofit.metrics import coordinate_W1, population_error, split_half_floor, system_floor
from itofit.metrics.floor import N_DRAWS, draw_rows, plain_weights, truth_draws
from itofit.simulate.systems import known_system
from itofit.snapshots.clouds import Snapshot


def even(points, time=1.0):
    return Snapshot(time, points, np.full(len(points), 1.0 / len(points)))


def gap_of_means(x, y, wx=None, wy=None):
    return float(abs(np.average(x, axis=0, weights=wx)[0] - np.average(y, axis=0, weights=wy)[0]))


def test_the_floor_of_a_known_system_is_the_mean_and_sd_over_its_draws():
    test = even(np.zeros((5, 1)))
    model = even(np.full((4, 1), 10.0))
    floor = system_floor(gap_of_means, test, model, [np.full((4, 1), v) for v in (1.0, 2.0, 6.0)])
    assert (floor.mean, floor.sd, floor.excess) == pytest.approx((3.0, np.sqrt(7.0), 7.0))


def test_the_floor_uses_the_weights_of_the_test_and_of_the_model():
    test = Snapshot(1.0, np.array([[0.0], [10.0]]), np.array([0.9, 0.1]))
    model = Snapshot(1.0, np.array([[0.0], [10.0]]), np.array([0.2, 0.8]))
    floor = system_floor(gap_of_means, test, model, [np.full((3, 1), v) for v in (1.0, 2.0)])
    assert (floor.mean, floor.excess) == pytest.approx((0.5, 7.0 - 0.5))


@pytest.mark.parametrize("n", [7, 8])
def test_halves_of_the_test_cloud_are_disjoint_and_of_equal_size(n):
    scored = []

    def spy(x, y, wx=None, wy=None):
        scored.append((x[:, 0].tolist(), y[:, 0].tolist()))
        return 0.0

    split_half_floor(
        spy, even(np.arange(float(n))[:, None]), even(100.0 + np.arange(20.0)[:, None])
    )
    assert len(scored) == 2 * N_DRAWS
    for (b, a), (model, same) in zip(scored[::2], scored[1::2], strict=True):
        assert len(a) == len(b) == len(model) == n // 2
        assert a == same
        assert not set(a) & set(b)
        assert len(set(model)) == n // 2
        assert min(model) >= 100.0


def test_split_half_floor_is_reproducible_and_paired():
    rng = np.random.default_rng(0)
    test = even(rng.normal(size=(60, 1)))
    model = even(5.0 + rng.normal(size=(60, 1)))
    first, same, other = (split_half_floor(gap_of_means, test, model, seed=s) for s in (0, 0, 1))
    assert first == same
    assert first != other
    # The halves' own distance is about sqrt(2 / 30), so nearly the whole shift of 5 is excess.
    assert 4.0 < first.excess < 5.5


def test_truth_draws_share_the_start_and_differ_in_noise(getkey):
    system = known_system("syn3")
    start = np.random.default_rng(1).normal(size=(30, 2))
    draws = truth_draws(system, start, [0.0, 0.05], key=getkey())
    assert len(draws) == N_DRAWS
    for clouds in draws:
        np.testing.assert_allclose(clouds[0], start, rtol=1e-6)
    ends = {clouds[1].tobytes() for clouds in draws}
    assert len(ends) == N_DRAWS


def test_population_error_of_the_truth_is_its_own_floor_and_of_standing_still_is_not(getkey):
    system = known_system("syn1")
    times = [0.1, 0.5]
    n = 20_000
    key = getkey()
    perfect = population_error(
        lambda start, t: system.push(jnp.asarray(start), t, key), system, times, key=getkey(), n=n
    )
    still = population_error(lambda start, t: [start for _ in t], system, times, key=getkey(), n=n)
    for time, own, idle in zip(times, perfect, still, strict=True):
        mean, cov = system.euler_moments(time)
        # METHODS 1.2.4: sqrt(2/n) sqrt(2/pi) 1.6147 sd with a scatter of 0.34 of itself per
        # coordinate; four of them.
        floor = np.sqrt(2.0 / n) * np.sqrt(2.0 / np.pi) * 1.6147 * np.sqrt(np.diag(cov)).mean()
        assert 0.0 < own < floor * (1.0 + 4.0 * 0.34)
        # W1 is at least the distance of the means.
        assert idle > 0.9 * np.abs(mean).mean()


def test_equal_weights_are_plain():
    assert plain_weights(np.full(7, 1.0 / 7.0)) is None
    w = np.array([0.25, 0.75])
    assert plain_weights(w) is w


def test_rows_are_drawn_once_each_where_that_is_possible():
    rng = np.random.default_rng(0)
    w = np.full(10, 0.1)
    assert sorted(draw_rows(rng, w, 10)) == list(range(10))
    assert len(draw_rows(rng, w, 25)) == 25


def test_rows_are_drawn_in_proportion_to_weights():
    n = 4000
    w = np.array([0.0, 0.1, 0.2, 0.7])
    counts = np.bincount(draw_rows(np.random.default_rng(0), w, n), minlength=4)
    # A binomial count has the standard error sqrt(n w (1 - w)); four of them.
    assert np.all(np.abs(counts - n * w) <= 4.0 * np.sqrt(n * w * (1.0 - w)))


def test_points_of_weight_zero_do_not_enter_the_floor():
    rng = np.random.default_rng(2)
    x = rng.normal(size=(40, 1))
    w = np.full(40, 1.0 / 30.0)
    x[::4] = 1e6
    w[::4] = 0.0
    test = Snapshot(1.0, x, w)
    # Thirty points of sd 1 in two halves are nowhere near the outliers.
    assert split_half_floor(coordinate_W1, test, test).mean < 2.0


def test_every_model_meets_the_same_halves():
    rng = np.random.default_rng(0)
    test, small, large = (even(rng.normal(size=(n, 2))) for n in (30, 7, 200))
    # 15 of 7 are drawn with replacement, 15 of 200 without.
    first, second = (split_half_floor(coordinate_W1, test, model) for model in (small, large))
    assert (first.mean, first.sd) == (second.mean, second.sd)
