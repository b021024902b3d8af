"""Weights of mixtures: energy distances against double sums, and what the weights must be."""

import numpy as np
import pytest

from itofit.judge.stacking import Energies, believed_after, stacked
from itofit.metrics import W1

WAYS = 3
ONE = np.ones(1)
SIMPLEX = np.array([0.2, 0.5, 0.3])


def clouds_and_truth(seed=0):
    rng = np.random.default_rng(seed)
    clouds = [
        rng.standard_normal((n, 2)) + shift for n, shift in ((30, 0.0), (20, 1.0), (25, -2.0))
    ]
    return clouds, rng.standard_normal((40, 2)) + 0.3, rng.dirichlet(np.ones(40))


def mean_distance(x, a, y, b):
    """Of two weighted clouds, pair by pair."""
    total = 0.0
    for point, mass in zip(x, a, strict=True):
        total += mass * float(b @ np.sqrt(np.sum((y - point) ** 2, axis=1)))
    return total


@pytest.mark.parametrize("w", [SIMPLEX, np.eye(WAYS)[1], np.full(WAYS, 1.0 / 3)])
def test_the_distance_of_a_mixture_is_that_of_the_pooled_cloud(w):
    """Double sums over all pairs of the cloud that the mixture is, and rounding."""
    clouds, truth, b = clouds_and_truth()
    pooled = np.concatenate(clouds)
    a = np.concatenate([np.full(len(x), v / len(x)) for x, v in zip(clouds, w, strict=True)])
    size = mean_distance(truth, b, truth, b)
    energy = 2.0 * mean_distance(pooled, a, truth, b) - mean_distance(pooled, a, pooled, a) - size
    assert Energies.of(clouds, truth, b).distance(w) == pytest.approx(energy / size, abs=1e-10)


def test_the_cloud_left_out_is_at_no_distance_of_itself():
    _, truth, _ = clouds_and_truth()
    b = np.full(len(truth), 1.0 / len(truth))
    assert Energies.of([truth], truth, b).distance(np.ones(1)) == pytest.approx(0.0, abs=1e-12)


def test_distances_have_no_units():
    clouds, truth, b = clouds_and_truth()
    larger = Energies.of([1000.0 * x for x in clouds], 1000.0 * truth, b)
    assert larger.distance(SIMPLEX) == pytest.approx(
        Energies.of(clouds, truth, b).distance(SIMPLEX)
    )


def test_a_snapshot_of_twenty_points_counts_half():
    clouds, truth, _ = clouds_and_truth()
    assert Energies.of(clouds, truth[:20], np.full(20, 0.05)).worth == pytest.approx(0.5)


@pytest.mark.parametrize("seed", range(5))
def test_weights_are_a_mixture_and_none_is_better(seed):
    """No other of 300 mixtures has less of what is minimised, 2 % of a weight being left out.

    Every way may lose .02 of its weight, where the sum changes by the square of that. The best
    mixture is at M of its distance, in units of that of the best way: the doubt is .2 M.
    """
    clouds, truth, b = clouds_and_truth(seed)
    energies = Energies.of(clouds, truth, b)
    others = np.random.default_rng(seed).dirichlet(np.full(WAYS, 0.5), 300)
    prior = np.array([0.5, 0.3, 0.2])
    w = stacked([energies], ONE, prior)
    assert np.all(w >= 0.0)
    assert np.sum(w) == pytest.approx(1.0)
    part = energies.worth / energies.size
    missed = part * max(min(map(energies.distance, others)) - energies.chance, 0.0)
    doubt = 0.2 * max(missed, 0.2)
    drawn_to = believed_after([energies], ONE, prior)

    def loss(v):
        return part * energies.distance(v) + doubt * np.sum((v - drawn_to) ** 2 / drawn_to)

    assert loss(w) <= min(map(loss, others)) + 0.02


def test_doubt_draws_weights_to_the_prior():
    """No way is near the truth, all are as far off: weights are those of the prior.

    Clouds around three corners of a triangle about the truth, of one spread; their points and those
    of the truth are drawn, hence the tolerance.
    """
    rng = np.random.default_rng(2)
    angles = 2.0 * np.pi * np.arange(WAYS) / WAYS
    corners = 9.0 * np.stack([np.cos(angles), np.sin(angles)], axis=1)
    clouds = [0.1 * rng.standard_normal((60, 2)) + corner for corner in corners]
    truth = 0.1 * rng.standard_normal((60, 2))
    energies = Energies.of(clouds, truth, np.full(60, 1.0 / 60))
    even = stacked([energies], ONE, np.full(WAYS, 1.0 / WAYS))
    np.testing.assert_allclose(even, 1.0 / WAYS, atol=0.02)
    drawn = stacked([energies], ONE, np.array([0.8, 0.1, 0.1]))
    assert drawn[0] > even[0] + 0.05


def test_the_way_that_is_the_truth_gets_most_weight():
    """The others are one and two sds off; the best of them stands for what learns nothing.
    They begin with a third each and keep a little: distance grows with the square of it."""
    clouds, truth, _ = clouds_and_truth()
    b = np.full(len(truth), 1.0 / len(truth))
    energies = Energies.of([clouds[1], truth, clouds[2]], truth, b)
    w = stacked([energies], ONE, np.full(WAYS, 1.0 / WAYS))
    assert w[1] > 0.6


def test_ways_that_tie_share():
    """Two equal forecasts, and one that is far off: the two share as the prior has them.

    Doubt leaves the third a little of its .2.
    """
    clouds, truth, b = clouds_and_truth()
    energies = Energies.of([clouds[0], clouds[0], clouds[2] - 5.0], truth, b)
    w = stacked([energies], ONE, np.array([0.4, 0.4, 0.2]))
    assert w[0] == pytest.approx(w[1], abs=1e-4)
    assert w[2] < 0.1


def test_belief_falls_with_the_fourth_power_of_the_distance():
    """Exact W1 of equal sizes; a snapshot of twenty points counts half."""
    clouds, truth, _ = clouds_and_truth()
    truth = truth[:20]
    clouds = [x[:20] for x in clouds]
    energies = Energies.of(clouds, truth, np.full(20, 0.05))
    prior = np.array([0.5, 0.3, 0.2])
    wanted = prior * np.array([W1(x, truth) for x in clouds]) ** (-4.0 * 0.5)
    believed = believed_after([energies], ONE, prior)
    np.testing.assert_allclose(believed, wanted / np.sum(wanted), rtol=1e-6)


def test_a_way_that_ran_away_keeps_a_trace_of_belief():
    clouds, truth, b = clouds_and_truth()
    energies = Energies.of([clouds[0], clouds[0] + 1e6], truth, b)
    believed = believed_after([energies], ONE, np.array([0.1, 0.9]))
    assert 0.0 < believed[1] < 1e-3


def test_points_of_large_weight_are_met_more_often():
    """Half of the mass of the truth on one of four points: so are half of the points compared."""
    truth = np.array([[0.0], [1.0], [2.0], [3.0]])
    ways = [np.array([[0.0], [0.0], [1.0], [2.0]]), truth]
    b = np.array([0.5, 0.2, 0.2, 0.1])
    coupled = Energies.of(ways, truth, b).coupled
    assert coupled[0] == pytest.approx(0.0, abs=1e-12)
    assert coupled[1] > 0.0


def test_a_mixture_may_beat_each_of_its_ways():
    """The truth is half of one cloud and half of another, and so are the weights, but for a doubt
    that draws them to .9 and .1 by less than a tenth.
    """
    rng = np.random.default_rng(3)
    left, right = rng.standard_normal((2, 80, 1)) + np.array([[[-3.0]], [[3.0]]])
    truth = np.concatenate([left, right])
    energies = Energies.of([left, right], truth, np.full(160, 1.0 / 160))
    w = stacked([energies], ONE, np.array([0.9, 0.1]))
    np.testing.assert_allclose(w, 0.5, atol=0.1)


def test_a_snapshot_of_few_points_decides_less():
    """One snapshot is the first way, another the second; that of more points counts more."""
    clouds, _, _ = clouds_and_truth()
    ways = [clouds[0], clouds[1]]
    many = Energies.of(ways, clouds[0], np.full(30, 1.0 / 30))
    few = Energies.of(ways, clouds[1][:3], np.full(3, 1.0 / 3))
    w = stacked([many, few], np.ones(2), np.full(2, 0.5))
    assert w[0] > 0.6


def test_where_nothing_judges_weights_are_what_is_believed_and_not_hardly():
    w = stacked([], np.zeros(0), np.array([0.6, 0.35, 0.05]))
    np.testing.assert_allclose(w, [0.6 / 0.95, 0.35 / 0.95, 0.0])


def test_a_snapshot_without_votes_decides_nothing():
    clouds, _, _ = clouds_and_truth()
    even = np.full(30, 1.0 / 30)
    ways = [clouds[0], clouds[2]]
    both = [
        Energies.of(ways, clouds[0], even),
        Energies.of(ways, clouds[2][:20], np.full(20, 0.05)),
    ]
    alone = stacked(both[:1], ONE, np.full(2, 0.5))
    np.testing.assert_allclose(stacked(both, np.array([1.0, 0.0]), np.full(2, 0.5)), alone)
    assert stacked(both, np.ones(2), np.full(2, 0.5))[0] < alone[0]
