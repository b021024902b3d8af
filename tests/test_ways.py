"""Ways to forecast and their mixtures: counts, lines, and processes carried step by step."""

import jax.numpy as jnp
import numpy as np
import pytest
from scipy.optimize import linear_sum_assignment
from scipy.spatial.distance import cdist

from itofit.problem import Problem, Streams
from itofit.process.drift import AbstractDrift, FunctionDrift
from itofit.process.ito import ItoProcess
from itofit.process.noise import ConstantDiffusion
from itofit.simulate.mesh import Mesh
from itofit.snapshots.clouds import Snapshots
from itofit.snapshots.scaling import Scaling
from itofit.solution import Selection
from itofit.ways import Mixture, Ways, ways_of

TIMES = (0.0, 1.0, 2.0)
N = 24
DT = 0.125
FAR = 1e4


class Ramp(AbstractDrift):
    """g(x, t) = -x + t: the same velocity for all that is added at a time."""

    now: jnp.ndarray

    def __call__(self, x):
        return self.now - x

    @property
    def varies(self):
        return True

    def at(self, time):
        return Ramp(jnp.asarray(time, dtype=float))


def bent(x):
    return jnp.stack([x[1], jnp.sin(x[0]) - 0.5 * x[1]])


def clouds():
    rng = np.random.default_rng(0)
    return [rng.standard_normal((N, 2)) + np.array([1.5 * k, 0.2 * k]) for k in range(3)]


def with_a_far_point():
    *first, last = clouds()
    last[0] = FAR
    return [*first, last]


def ways_with(drift, noise=0.0, scaling=None, observed=None, seed=0):
    observed = Snapshots.from_arrays(observed or clouds(), TIMES)
    scaling = Scaling.identity(2) if scaling is None else scaling
    problem = Problem.pose(observed, 1.0, DT, scaling=scaling, streams=Streams(seed))
    process = ItoProcess(drift, ConstantDiffusion(noise * jnp.eye(2)))
    return Ways(problem, {"smooth": process})


def by_rows(points):
    return points[np.lexsort(points.T)]


def euler_in_numpy(field, x, begin, steps):
    now = begin
    for h in steps:
        x = x + h * field(x, now)
        now += h
    return x


def numpy_bent(x, now):
    return np.column_stack([x[:, 1], np.sin(x[:, 0]) - 0.5 * x[:, 1]])


@pytest.mark.parametrize("length", [0.3, 0.6, 1.0, 1.1])
def test_steps_that_are_filled_up_change_nothing(length):
    """3, 5, 8 and 9 steps of the mesh against a plain loop: single precision."""
    ways = ways_with(FunctionDrift(bent))
    last = ways.problem.observed.at(2.0)
    steps = Mesh.refine([2.0, 2.0 + length], DT).steps
    expected = euler_in_numpy(numpy_bent, last.points, 2.0, steps)
    for way in ("smooth", "smooth, flow"):
        cloud = ways.cloud(way, 2.0 + length, None)
        np.testing.assert_allclose(cloud.points, expected, atol=1e-5)
        np.testing.assert_array_equal(cloud.weights, last.weights)


def test_every_step_is_taken_with_the_drift_of_its_own_time():
    ways = ways_with(Ramp(jnp.zeros(())))
    steps = Mesh.refine([2.0, 2.6], DT).steps
    expected = euler_in_numpy(
        lambda x, now: now - x, ways.problem.observed.at(2.0).points, 2.0, steps
    )
    np.testing.assert_allclose(ways.cloud("smooth", 2.6, None).points, expected, atol=1e-5)


def test_a_process_is_carried_in_the_units_of_the_problem():
    """Of g(z) = -z in standardised units the points shrink about the mean of the scaling."""
    scaling = Scaling(np.array([2.0, -1.0]), np.array([3.0, 0.5]))
    ways = ways_with(FunctionDrift(lambda z: -z), scaling=scaling)
    n_steps = len(Mesh.refine([2.0, 3.0], DT).steps)
    about = ways.problem.observed.at(2.0).points - scaling.mean
    expected = scaling.mean + (1.0 - 1.0 / n_steps) ** n_steps * about
    np.testing.assert_allclose(ways.cloud("smooth", 3.0, None).points, expected, atol=1e-5)


def test_a_flow_is_without_noise_and_a_process_with_all_of_it():
    """Brownian motion over a time of 1: of 4000 draws a variance is known to 2.2 %; five times
    that.
    """
    ways = ways_with(FunctionDrift(jnp.zeros_like), noise=0.7)
    start = ways.problem.observed.at(2.0).points
    np.testing.assert_allclose(ways.cloud("smooth, flow", 3.0, None).points, start, atol=1e-6)
    cloud = ways.cloud("smooth", 3.0, 4000).points
    expected = np.cov(start.T, bias=True) + 0.49 * np.eye(2)
    np.testing.assert_allclose(np.cov(cloud.T, bias=True), expected, atol=0.11 * expected.max())


def test_lines_between_snapshots_are_the_midpoint_of_exact_transport():
    """Equal counts and weights: an assignment, and points on its straight lines."""
    ways = ways_with(FunctionDrift(bent))
    x, y = (ways.problem.observed.at(t).points for t in (1.0, 2.0))
    rows, columns = linear_sum_assignment(cdist(x, y, "sqeuclidean"))
    for time in (1.25, 1.5):
        expected = x[rows] + (time - 1.0) * (y[columns] - x[rows])
        cloud = ways.cloud("lines", time, None)
        np.testing.assert_allclose(by_rows(cloud.points), by_rows(expected), atol=1e-9)
        np.testing.assert_allclose(cloud.weights, 1.0 / N)


def test_lines_go_on_after_the_last_snapshot():
    ways = ways_with(FunctionDrift(bent))
    x, y = (ways.problem.observed.at(t).points for t in (1.0, 2.0))
    rows, columns = linear_sum_assignment(cdist(x, y, "sqeuclidean"))
    expected = x[rows] + 1.5 * (y[columns] - x[rows])
    cloud = ways.cloud("lines", 2.5, None)
    np.testing.assert_allclose(by_rows(cloud.points), by_rows(expected), atol=1e-9)


@pytest.mark.parametrize(("time", "before"), [(0.5, 0.0), (1.5, 1.0), (7.0, 2.0)])
def test_rest_is_the_snapshot_before(time, before):
    ways = ways_with(FunctionDrift(bent))
    expected = ways.problem.observed.at(before).points
    np.testing.assert_array_equal(ways.cloud("rest", time, None).points, expected)


def test_a_process_between_snapshots_is_held_to_both():
    """A cloud at rest is bridged to the next: near either snapshot it is nearly that one."""
    ways = ways_with(FunctionDrift(jnp.zeros_like))
    for time, near in ((1.0 + 1e-4, 1.0), (2.0 - 1e-4, 2.0)):
        cloud = ways.cloud("smooth, flow", time, None)
        expected = ways.problem.observed.at(near).points.mean(axis=0)
        np.testing.assert_allclose(cloud.weights @ cloud.points, expected, atol=1e-3)


def nowhere(ways):
    return dict.fromkeys(ways_of(list(ways.processes)), 0.0)


def test_a_mixture_has_points_of_each_way_by_its_weight():
    """After the last snapshot: those at rest, those moved by 100, and the rest on lines.

    Points are taken at equal steps of mass along a path through all of them. The path enters those
    that were moved once a slab at most, of which there are six: the others lie between.
    """
    ways = ways_with(FunctionDrift(lambda x: jnp.array([100.0, 0.0]) + 0.0 * x))
    beyond = nowhere(ways) | {"rest": 0.25, "smooth, flow": 0.45, "lines": 0.3}
    mixture = Mixture(ways, Selection(ways.processes, nowhere(ways) | {"rest": 1.0}, beyond))
    (cloud,) = mixture.clouds(np.array([3.0]), 40)
    points = cloud.points
    last = ways.problem.observed.at(2.0).points
    at_rest = (cdist(points, last) < 1e-9).any(axis=1)
    carried = (cdist(points, last + np.array([100.0, 0.0])) < 1e-3).any(axis=1)
    assert len(points) == 40
    assert abs(at_rest.sum() - 10) <= 6
    assert abs(carried.sum() - 18) <= 1
    np.testing.assert_allclose(cloud.weights, 1.0 / 40)


@pytest.mark.parametrize("seed", range(5))
def test_a_far_point_of_every_way_is_drawn_as_often_as_it_counts(seed):
    """One of N points is far off, in all ways: of N points one or two are, whatever the seed."""
    ways = ways_with(FunctionDrift(jnp.zeros_like), observed=with_a_far_point(), seed=seed)
    beyond = nowhere(ways) | {"rest": 0.4, "smooth": 0.3, "smooth, flow": 0.3}
    mixture = Mixture(ways, Selection(ways.processes, nowhere(ways) | {"rest": 1.0}, beyond))
    (cloud,) = mixture.clouds(np.array([3.0]), N)
    assert 1 <= np.sum(cloud.points[:, 0] > FAR / 2) <= 2


def test_a_way_that_strays_between_snapshots_leaves_its_part():
    """Thrown out by a hundred widths and pulled back: held to both snapshots, and nowhere near."""

    def thrown(x):
        return 1e4 * jnp.sin(4.0 * x)

    ways = ways_with(FunctionDrift(thrown))
    weights = nowhere(ways)
    weights |= {"smooth": 0.5, "lines": 0.5}
    selection = Selection(ways.processes, weights, weights)
    (cloud,) = Mixture(ways, selection).clouds(np.array([0.5]), 40).clouds
    lines = ways.cloud("lines", 0.5, None).points
    assert np.max(np.abs(cloud)) <= np.max(np.abs(lines))
    alone = Selection(ways.processes, *2 * [weights | {"lines": 0.0, "smooth": 1.0}])
    (far,) = Mixture(ways, alone).clouds(np.array([0.5]), 40).clouds
    assert np.max(np.abs(far)) > 100.0


def test_between_snapshots_and_after_the_last_weights_are_their_own():
    ways = ways_with(FunctionDrift(bent))
    selection = Selection(
        ways.processes, nowhere(ways) | {"rest": 1.0}, nowhere(ways) | {"lines": 1.0}
    )
    between, beyond = Mixture(ways, selection).clouds(np.array([1.5, 2.5]), None)
    np.testing.assert_array_equal(
        by_rows(between.points), by_rows(ways.problem.observed.at(1.0).points)
    )
    assert np.min(cdist(beyond.points, ways.problem.observed.at(2.0).points)) > 1e-6


def test_at_the_time_of_a_snapshot_a_mixture_is_that_snapshot():
    ways = ways_with(FunctionDrift(bent))
    selection = Selection(
        ways.processes, nowhere(ways) | {"lines": 1.0}, nowhere(ways) | {"lines": 1.0}
    )
    for cloud in Mixture(ways, selection).clouds(np.array(TIMES), None):
        expected = ways.problem.observed.at(cloud.time)
        np.testing.assert_array_equal(by_rows(cloud.points), by_rows(expected.points))


def test_a_mixture_answers_free_runs_only_after_the_last_snapshot():
    ways = ways_with(FunctionDrift(bent))
    mixture = Mixture(ways, Selection(ways.processes, nowhere(ways), nowhere(ways)))
    assert mixture.answers("auto", np.array([0.5, 3.0]))
    assert mixture.answers("bridge", np.array([0.5]))
    assert mixture.answers("previous", np.array([2.5, 3.0]))
    assert not mixture.answers("previous", np.array([0.5, 3.0]))
    assert not mixture.answers("initial", np.array([3.0]))
