import numpy as np
import pytest

from itofit.simulate.step_size import checked_step, first_step
from itofit.simulate.systems import known_system
from itofit.snapshots.clouds import Snapshots


def gaussian(n, mean, sd, seed):
    """`n` points whose mean and sd are exactly these."""
    z = np.random.default_rng(seed).normal(size=(n, len(mean)))
    z = (z - z.mean(axis=0)) / z.std(axis=0)
    return np.asarray(mean) + np.asarray(sd) * z


@pytest.fixture
def snapshots():
    clouds = [
        gaussian(200, [0, 0], [1, 1], 0),
        gaussian(100, [3, 1], [1, 2], 1),
        gaussian(50, [4, 1], [1, 2], 2),
    ]
    return Snapshots.from_arrays(clouds, [0.0, 1.0, 3.0])


def test_a_tenth_of_the_shortest_time_in_which_the_cloud_moves_by_its_width(snapshots):
    # First gap: 3 sd in the first coordinate, 1 sd + log 2 in the second, in one unit of time.
    # Rate 3.
    assert first_step(snapshots) == pytest.approx(0.1 / 3.0, rel=1e-9)


def test_at_most_a_fifth_of_the_shortest_gap_and_at_least_a_400th_of_the_span():
    still = gaussian(100, [0.0], [1.0], 0)
    slow = Snapshots.from_arrays([still, still, still], [0.0, 1.0, 3.0])
    assert first_step(slow) == pytest.approx(0.2)
    fast = Snapshots.from_arrays([still, still + 1e4, still], [0.0, 1.0, 3.0])
    assert first_step(fast) == pytest.approx(3.0 / 400.0)


@pytest.mark.parametrize("unit", [1e-9, 1.0 / 24.0, 1e6])
def test_the_step_is_in_units_of_time(snapshots, unit):
    other = Snapshots(unit * snapshots.times, snapshots.clouds, snapshots.weights, snapshots.names)
    assert first_step(other) == pytest.approx(unit * first_step(snapshots), rel=1e-9)


def test_the_step_does_not_depend_on_when_time_begins(snapshots):
    other = Snapshots(100.0 + snapshots.times, snapshots.clouds, snapshots.weights, snapshots.names)
    assert first_step(other) == pytest.approx(first_step(snapshots), rel=1e-9)


@pytest.mark.parametrize("unit", [[1e-9, 1e-9], [1e6, 1e6], [1e-3, 40.0]])
def test_the_step_does_not_depend_on_units_of_space(snapshots, unit):
    other = snapshots.with_clouds([np.array(unit) * x for x in snapshots.clouds])
    assert first_step(other) == pytest.approx(first_step(snapshots), rel=1e-9)
    shifted = snapshots.with_clouds([x + 50.0 for x in snapshots.clouds])
    assert first_step(shifted) == pytest.approx(first_step(snapshots), rel=1e-9)


def test_the_step_uses_weights():
    x = gaussian(100, [0.0, 0.0], [1.0, 1.0], 3)
    far = np.concatenate([x, x + 1e3])
    ghosts = [np.concatenate([np.ones(100), np.zeros(100)])] * 2
    weighted = Snapshots.from_arrays([far, far + 1.0], [0.0, 1.0], ghosts)
    plain = Snapshots.from_arrays([x, x + 1.0], [0.0, 1.0])
    assert first_step(weighted) == pytest.approx(first_step(plain), rel=1e-6)


def test_the_papers_oscillator_gets_a_usable_step(getkey):
    system = known_system("syn3")
    step = first_step(system.observe(200, system.train_times, key=getkey()))
    gaps = np.diff(system.train_times)
    assert 0.0 < step <= gaps.min() / 5.0


@pytest.mark.parametrize(
    "clouds",
    [
        pytest.param([np.zeros((5, 2)), np.zeros((5, 2))], id="all in one point"),
        pytest.param(
            [np.eye(2) * [1.0, 0.0], np.eye(2) * [3.0, 0.0]], id="a coordinate that does not vary"
        ),
        pytest.param([np.zeros((5, 1)), np.arange(5.0)[:, None]], id="a start in one point"),
    ],
)
def test_flat_clouds_are_refused_by_others(clouds):
    # A coordinate without spread is refused when the scaling is fitted; until then the step is
    # finite and silent.
    step = first_step(Snapshots.from_arrays(clouds, [0.0, 1.0]))
    assert 1.0 / 400.0 * (1.0 - 1e-9) <= step <= 0.2


@pytest.mark.parametrize("dt", [1e-6, 0.5, 2, 2.0, np.float32(0.5), np.float64(0.5)])
def test_a_step_up_to_the_longest_gap_is_taken(snapshots, dt):
    assert checked_step(dt, snapshots) == pytest.approx(float(dt))


@pytest.mark.parametrize(
    "dt", [0.0, -0.1, 2.1, float("nan"), float("inf"), "fast", None, [0.1, 0.2]]
)
def test_other_steps_are_refused(refused, snapshots, dt):
    with refused("dt above 0", "longest gap between snapshots (2)", repr(dt)):
        checked_step(dt, snapshots)
