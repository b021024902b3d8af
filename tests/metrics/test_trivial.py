import numpy as np
import pytest

from itofit.metrics import W1, W2
from itofit.metrics.trivial import persistence_at
from itofit.snapshots.clouds import Snapshots
from itofit.transport import displacement
from itofit.transport.displacement import continued_at, midpoint_at


def in_order(points):
    return points[np.lexsort(points.T[::-1])]


@pytest.fixture
def snapshots():
    rng = np.random.default_rng(0)
    clouds = [rng.normal(size=(n, 2)) + [t, -t] for n, t in [(30, 0.0), (20, 1.0), (25, 4.0)]]
    return Snapshots.from_arrays(
        clouds, [0.0, 1.0, 4.0], [rng.uniform(size=len(x)) for x in clouds]
    )


@pytest.mark.parametrize(
    ("time", "place"),
    [(0.0, 0), (0.999, 0), (1.0, 1), (1.0 - 1e-12, 1), (3.0, 1), (4.0, 2), (99.0, 2)],
)
def test_persistence_is_the_last_snapshot_at_or_before(snapshots, time, place):
    row = persistence_at(snapshots, time)
    assert row.time == time
    np.testing.assert_array_equal(row.points, snapshots.clouds[place])
    np.testing.assert_array_equal(row.weights, snapshots.weights[place])


@pytest.mark.parametrize(
    "times",
    [
        pytest.param([0.0, 1e-9, 2e-9], id="nanoseconds in seconds"),
        pytest.param([1.6e9, 1.6e9 + 1.0, 1.6e9 + 2.0], id="seconds since 1970"),
    ],
)
def test_persistence_finds_its_snapshot_in_any_unit(snapshots, times):
    in_unit = Snapshots(np.array(times), snapshots.clouds, snapshots.weights, snapshots.names)
    assert [len(persistence_at(in_unit, t).points) for t in times] == [30, 20, 25]


@pytest.mark.parametrize("fraction", [0.25, 0.5, 0.9])
def test_midpoint_of_a_translated_cloud_is_translated_by_the_fraction(fraction):
    x = np.random.default_rng(1).normal(size=(50, 3))
    shift = np.array([3.0, -1.0, 20.0])
    snapshots = Snapshots.from_arrays([x, x + shift], [2.0, 6.0])
    row = midpoint_at(snapshots, 2.0 + 4.0 * fraction)
    np.testing.assert_allclose(in_order(row.points), in_order(x + fraction * shift), atol=1e-12)
    np.testing.assert_allclose(row.weights, 1.0 / 50.0, rtol=1e-9)


@pytest.mark.parametrize("time", [0.25, 0.5, 2.0])
def test_midpoint_lies_on_the_geodesic_of_W2(snapshots, time):
    i = 0 if time < 1.0 else 1
    (_, x, wx), (_, y, wy) = list(snapshots)[i : i + 2]
    row = midpoint_at(snapshots, time)
    fraction = (time - snapshots.times[i]) / np.diff(snapshots.times)[i]
    assert row.weights.sum() == pytest.approx(1.0, rel=1e-12)
    np.testing.assert_allclose(
        row.weights @ row.points, (1.0 - fraction) * (wx @ x) + fraction * (wy @ y), atol=1e-9
    )
    plan_cost = np.sqrt(_squared_cost(x, y, wx, wy))
    assert np.sqrt(_squared_cost(x, row.points, wx, row.weights)) == pytest.approx(
        fraction * plan_cost, rel=1e-6
    )
    assert np.sqrt(_squared_cost(row.points, y, row.weights, wy)) == pytest.approx(
        (1.0 - fraction) * plan_cost, rel=1e-6
    )


def _squared_cost(x, y, wx, wy):
    import ot

    squares = np.sum((x[:, None] - y[None]) ** 2, axis=-1)
    return ot.emd2(wx / wx.sum(), wy / wy.sum(), squares)


def rounded(points):
    return {tuple(point) for point in np.round(points, 9)}


@pytest.mark.parametrize("time", [0.0, 1.0, 4.0])
def test_midpoint_at_a_snapshot_is_that_snapshot(snapshots, time):
    row = midpoint_at(snapshots, time)
    own = snapshots.at(time)
    np.testing.assert_allclose(row.weights @ row.points, own.weights @ own.points, atol=1e-9)
    assert rounded(row.points) == rounded(own.points)


@pytest.mark.parametrize("time", [4.001, 100.0])
def test_there_is_no_midpoint_beyond_the_last_snapshot(snapshots, time):
    assert midpoint_at(snapshots, time) is None


def test_large_clouds_are_thinned_before_they_are_coupled(monkeypatch):
    monkeypatch.setattr(displacement, "_MAX_POINTS", 50)
    x = np.random.default_rng(2).normal(size=(400, 1))
    row = midpoint_at(Snapshots.from_arrays([x, x + 10.0], [0.0, 1.0]), 0.5)
    assert len(row.points) <= 100
    # Two samples of 50 of the same cloud, so W1 to the whole is at most about twice the floor of 50
    # points.
    floor = 2.0 * np.sqrt(1.0 / 50.0) * np.sqrt(2.0 / np.pi) * 1.6147
    assert W1(row.points, x + 5.0, row.weights) < 2.0 * floor
    assert W2(row.points, x, row.weights) > 4.0


@pytest.mark.parametrize("beyond", [0.5, 2.0])
def test_a_translated_cloud_goes_on_at_its_last_speed(beyond):
    x = np.random.default_rng(2).normal(size=(40, 2))
    shift = np.array([2.0, -1.0])
    snapshots = Snapshots.from_arrays([x + 7.0, x, x + shift], [0.0, 1.0, 3.0])
    row = continued_at(snapshots, 3.0 + beyond)
    expected = x + shift * (1.0 + beyond / 2.0)
    np.testing.assert_allclose(in_order(row.points), in_order(expected), atol=1e-12)


def test_up_to_the_last_snapshot_a_continuation_is_the_midpoint(snapshots):
    for time in (0.5, 2.0, 4.0):
        row = continued_at(snapshots, time)
        middle = midpoint_at(snapshots, time)
        np.testing.assert_array_equal(row.points, middle.points)
        np.testing.assert_array_equal(row.weights, middle.weights)
