"""Bridges between two snapshots: their two limits, and the clouds they must meet at both ends."""

import numpy as np
import pytest

from itofit import Snapshots
from itofit.metrics.distances import W1
from itofit.transport.bridging import bridged
from itofit.transport.displacement import midpoint_at


def pair(n=40, m=31):
    rng = np.random.default_rng(0)
    return Snapshots.from_arrays(
        [rng.normal(size=(n, 2)), rng.normal(size=(m, 2)) * 0.5 + 3.0], [0.0, 2.0]
    )


@pytest.mark.parametrize("fraction", [0.25, 0.5])
def test_of_a_process_at_rest_it_is_the_transport_midpoint(fraction):
    snapshots = pair()
    start, target = snapshots
    (cloud,), weights = bridged([start.points], start.points, start.weights, target, [fraction])
    midpoint = midpoint_at(snapshots, 2.0 * fraction)
    assert W1(cloud, midpoint.points, weights, midpoint.weights) < 1e-9


def test_it_begins_as_the_path_does_and_ends_in_the_cloud():
    start, target = pair()
    end = start.points * 0.9 + [1.0, 0.0]
    (first, last), weights = bridged([start.points, end], end, start.weights, target, [0.0, 1.0])
    assert W1(first, start.points, weights, start.weights) < 1e-9
    assert W1(last, target.points, weights, target.weights) < 1e-9


def test_paths_that_end_in_the_cloud_are_left_alone():
    _, target = pair(m=40)
    middle = target.points - 1.0
    order = np.random.default_rng(1).permutation(40)
    (cloud,), _ = bridged([middle[order]], target.points[order], np.full(40, 1 / 40), target, [0.5])
    np.testing.assert_allclose(np.sort(cloud, axis=0), np.sort(middle, axis=0), atol=1e-12)


def test_large_clouds_are_thinned():
    rng = np.random.default_rng(0)
    snapshots = Snapshots.from_arrays(
        [rng.normal(size=(2500, 1)), rng.normal(size=(2100, 1)) + 1.0], [0.0, 1.0]
    )
    start, target = snapshots
    (cloud,), weights = bridged([start.points], start.points, start.weights, target, [1.0])
    assert len(cloud) <= 4000
    assert weights.sum() == pytest.approx(1.0)
    # Both are subsets of the same target: their means differ by sampling alone, of sd
    # 1 / sqrt(2000).
    assert weights @ cloud[:, 0] == pytest.approx(target.points.mean(), abs=4 / np.sqrt(2000))
