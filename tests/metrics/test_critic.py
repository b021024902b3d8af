import numpy as np
import pytest

from itofit.metrics import W1, critic_distance
from itofit.metrics.critic import _halves

N = 400  # one size throughout, so that the training compiles once


def halves_read(x, y, seed):
    """The points the critic's value is read on."""
    rng = np.random.default_rng(seed)
    return [np.asarray(_halves(points, None, rng)[1].points) for points in (x, y)]


@pytest.mark.parametrize("shift", [0.0, 0.3, 3.0, 30.0])
def test_the_critic_is_a_lower_bound_of_W1(shift):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(N, 2))
    y = [shift, 0.0] + rng.normal(size=(N, 2))
    value = critic_distance(x, y, seed=1)
    # Its gradient is at most 1, so on the very points it is read on it stays below their W1 (single
    # precision).
    assert value <= W1(*halves_read(x, y, 1)) + 1e-4
    if shift >= 3.0:
        assert 0.0 < value <= W1(x, y)


def test_two_samples_of_one_law_scatter_around_zero():
    rng = np.random.default_rng(1)
    values = [
        critic_distance(rng.normal(size=(N, 2)), rng.normal(size=(N, 2)), seed=i) for i in range(6)
    ]
    # The critic does not know the 200 + 200 points it is read on, so the mean is 0, and by the
    # Poincare inequality Var f(X) <= E|grad f|^2 <= 1: a value has variance at most 1/200 + 1/200.
    # Four standard errors of the mean.
    assert abs(np.mean(values)) < 4.0 * np.sqrt(2.0 / 200.0 / 6.0)


def test_the_seed_decides():
    rng = np.random.default_rng(2)
    x = rng.normal(size=(N, 2))
    y = 1.0 + rng.normal(size=(N, 2))
    assert critic_distance(x, y, seed=3) == critic_distance(x, y, seed=3)
    assert critic_distance(x, y, seed=3) != critic_distance(x, y, seed=4)


def test_a_far_cloud_scores_higher_than_a_near_one():
    rng = np.random.default_rng(3)
    x = rng.normal(size=(N, 2))
    y = rng.normal(size=(N, 2))
    assert critic_distance(x, y + 2.0) > critic_distance(x, y + 0.5)


def test_points_of_weight_zero_do_not_count():
    rng = np.random.default_rng(4)
    x = rng.normal(size=(N, 2))
    y = 1.0 + rng.normal(size=(N, 2))
    outliers = x.copy()
    w = np.ones(N)
    outliers[::4] = 1e3
    w[::4] = 0.0
    inside = critic_distance(x, y, w)
    with_outliers = critic_distance(outliers, y, w)
    # The same points with the same weights; only what weighs nothing differs.
    assert with_outliers == pytest.approx(inside, abs=1e-4)
