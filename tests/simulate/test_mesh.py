import numpy as np
import pytest

from itofit.simulate.mesh import Mesh, steps_per_gap

TIMES = [
    pytest.param([0.0, 0.2, 2.0], id="syn1"),
    pytest.param([0.0, 0.03, 0.07, 0.2], id="syn3"),
    pytest.param([-1.0, 1.0 / 3.0, 0.5, np.pi, 7.123], id="irregular"),
    pytest.param([1.6e9, 1.6e9 + 3600.0], id="far from zero"),
    pytest.param([2.0], id="one time"),
]


@pytest.mark.parametrize("dt", [0.01, 0.037, 1.0, 100.0])
@pytest.mark.parametrize("times", TIMES)
def test_a_mesh_contains_the_times_and_steps_no_longer_than_dt(times, dt):
    dt = dt * max(1.0, float(np.ptp(times)) / 7.0)
    mesh = Mesh.refine(times, dt)
    np.testing.assert_array_equal(mesh.times[list(mesh.observed)], times)
    assert len(mesh.steps) == len(mesh.times) - 1
    assert np.all(mesh.steps > 0.0)
    # A gap may exceed a multiple of dt by one part in 1e9 without being cut further; nodes are
    # rounded to float64.
    assert np.all(mesh.steps <= dt * (1.0 + 1.01e-9) + np.spacing(np.abs(times).max()))


@pytest.mark.parametrize("times", TIMES)
def test_steps_are_equal_inside_a_gap(times):
    mesh = Mesh.refine(times, 0.1 * max(1.0, np.ptp(times)))
    for a, b in zip(mesh.observed[:-1], mesh.observed[1:], strict=True):
        steps = mesh.steps[a:b]
        np.testing.assert_allclose(steps, steps[0], rtol=1e-6)


def test_a_gap_that_is_a_multiple_of_dt_is_cut_into_exactly_that_many_steps():
    assert steps_per_gap(np.array([0.2, 1.8, 0.07 - 0.03, 0.3]), 0.01).tolist() == [20, 180, 4, 30]
    assert steps_per_gap(np.array([0.201, 0.005]), 0.01).tolist() == [21, 1]


def test_between_is_the_part_between_two_observations():
    mesh = Mesh.refine([0.0, 0.03, 0.07, 0.2], 0.01)
    part = mesh.between(1, 3)
    np.testing.assert_allclose(part.times, np.linspace(0.03, 0.2, 18), atol=1e-15)
    assert part.observed == (0, 4, 17)
    assert len(mesh.between(0, 3).times) == len(mesh.times)
