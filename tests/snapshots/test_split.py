import numpy as np
import pytest

from itofit.snapshots.clouds import Snapshots
from itofit.snapshots.split import split_rows


@pytest.fixture
def snapshots():
    rng = np.random.default_rng(0)
    counts = (10, 101, 4)
    clouds = [rng.normal(size=(n, 2)) for n in counts]
    # The weight is a function of the point, so that it can be recognised after shuffling.
    return Snapshots.from_arrays(
        clouds, [0.0, 1.0, 2.0], [np.exp(x[:, 0]) for x in clouds], ["a", "b"]
    )


def rows(cloud):
    return set(map(tuple, cloud.tolist()))


@pytest.mark.parametrize(
    ("fraction", "held"),
    [(0.2, (2, 20, 2)), (0.5, (5, 50, 2)), (0.01, (2, 2, 2)), (0.99, (8, 99, 2))],
)
def test_sizes_with_two_points_left_on_both_sides(snapshots, fraction, held):
    training, held_out = split_rows(snapshots, fraction)
    assert held_out.counts == held
    sizes = [a + b for a, b in zip(training.counts, held_out.counts, strict=True)]
    assert tuple(sizes) == snapshots.counts
    assert (training.names, training.times.tolist()) == (("a", "b"), [0.0, 1.0, 2.0])


def test_parts_are_disjoint_and_complete(snapshots):
    for whole, a, b in zip(snapshots, *split_rows(snapshots, 0.3), strict=True):
        assert not rows(a.points) & rows(b.points)
        assert rows(a.points) | rows(b.points) == rows(whole.points)


def test_weights_stay_with_their_points(snapshots):
    for part in split_rows(snapshots, 0.3):
        for _, x, w in part:
            np.testing.assert_allclose(w, np.exp(x[:, 0]) / np.exp(x[:, 0]).sum(), rtol=1e-12)


def test_the_seed_decides(snapshots):
    first, same, other = (split_rows(snapshots, 0.5, seed)[1].clouds[1] for seed in (0, 0, 1))
    np.testing.assert_array_equal(first, same)
    assert rows(first) != rows(other)


@pytest.mark.parametrize("fraction", [0.0, 1.0, -0.1, 1.5, float("nan")])
def test_fractions_outside_0_to_1_are_refused(refused, snapshots, fraction):
    with refused("a fraction between 0 and 1"):
        split_rows(snapshots, fraction)


def test_fewer_than_four_points_are_refused(refused):
    with refused("at least 4 points", "found 3"):
        split_rows(Snapshots.from_arrays([np.zeros((3, 1))], [0.0]), 0.5)


def test_a_part_without_weight_is_refused(refused):
    lonely = Snapshots.from_arrays(
        [np.arange(6.0)[:, None]], [0.0], [[1.0, 0.0, 0.0, 0.0, 0.0, 0.0]]
    )
    with refused("all zero"):
        split_rows(lonely, 0.5)
