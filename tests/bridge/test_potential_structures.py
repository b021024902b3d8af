"""Drifts with a potential, fitted by the bridge solver: no rotation, and near the truth."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.linalg import expm, solve_continuous_lyapunov

import itofit
from itofit.bridge.regression import Regression, Strengths
from itofit.bridge.solver import Bridge
from itofit.bridge.structures import Samples, SmoothPotential
from itofit.problem import Problem, Streams
from itofit.snapshots.clouds import Snapshots
from itofit.snapshots.scaling import Scaling

N = 150
SIGMA = 0.5
# Symmetric: dX = -A (X - c) dt + .5 dW has the potential (x - c)' A (x - c) / 2.
A = np.array([[2.0, 0.8], [0.8, 1.0]])
CENTRE = np.array([0.5, -0.5])
TIMES = (0.0, 0.25, 0.5, 1.0)
STATES = CENTRE + np.stack(np.meshgrid([-0.5, 0.5, 1.2], [-0.5, 0.6, 1.5]), axis=-1).reshape(-1, 2)


def linear_clouds(matrix, n=N, times=TIMES, seed=0):
    """Fresh draws from the law at these times, in closed form."""
    rng = np.random.default_rng(seed)
    stationary = solve_continuous_lyapunov(matrix, SIGMA**2 * np.eye(2))
    clouds = []
    for time in times:
        flow = expm(-matrix * time)
        mean = CENTRE + flow @ np.array([1.5, 2.0])
        covariance = stationary + flow @ (0.09 * np.eye(2) - stationary) @ flow.T
        clouds.append(rng.multivariate_normal(mean, covariance, n))
    return clouds


CLOUDS = linear_clouds(A)


def fitted(clouds, structure="smooth", drift="potential", times=TIMES, sigma=SIGMA, **options):
    solver = Bridge(structure=structure, n_passes=4, n_features=40)
    model = itofit.FokkerPlanckProcess(
        sigma, dt=0.0125, drift=drift, solver=solver, **({"random_state": 0} | options)
    )
    return model.fit(Snapshots.from_arrays(clouds, times))


@functools.cache
def reference(structure="smooth", drift="potential"):
    return fitted(CLOUDS, structure, drift)


def jacobians(model, states=STATES, time=0.0):
    drift = model.process_.drift.at(time)
    return np.asarray(jax.vmap(jax.jacfwd(drift))(jnp.asarray(states, float)), np.float64)


def root_mean_square(x):
    return float(np.sqrt(np.mean(np.square(x))))


def off(model, matrix=A):
    truth = -(STATES - CENTRE) @ matrix.T
    return root_mean_square(model.drift(STATES) - truth) / root_mean_square(truth)


def assert_no_rotation(J):
    """To single precision."""
    turned = J - np.swapaxes(J, -1, -2)
    assert np.max(np.abs(turned)) <= 1e-4 * np.max(np.abs(J))


@pytest.mark.parametrize("structure", ["smooth", "sparse"])
def test_the_jacobian_is_symmetric_in_the_users_units(structure):
    """Where the coordinates are of unequal widths, too, though those of the solver are equal."""
    assert_no_rotation(jacobians(reference(structure)))
    wide = fitted([x * np.array([1.0, 4.0]) for x in CLOUDS], structure)
    assert_no_rotation(jacobians(wide, STATES * np.array([1.0, 4.0])))


def test_a_free_drift_does_rotate():
    J = jacobians(reference(drift="free"))
    assert np.max(np.abs(J - np.swapaxes(J, 1, 2))) > 1e-2


@pytest.mark.parametrize("structure", ["smooth", "sparse"])
def test_the_potential_of_a_linear_system_is_the_quadratic_one(structure):
    """Four clouds of 150 know a mean to .03, a velocity over .25 to .17 of 1 to 4: a fifth."""
    model = reference(structure)
    assert off(model) < 0.2
    truth = 0.5 * np.einsum("ni,ij,nj->n", STATES - CENTRE, A, STATES - CENTRE)
    U = model.potential(STATES)
    assert np.std(U - truth) < 0.2 * np.std(truth)
    assert model.potential(STATES[0]) == pytest.approx(U[0], rel=1e-5)


@pytest.mark.parametrize("structure", ["smooth", "sparse"])
def test_the_drift_is_minus_the_gradient_of_the_potential(structure):
    """By differences of a hundredth; single precision of potentials of order ten."""
    model = reference(structure)
    h = 0.01
    for a in range(2):
        step = h * np.eye(2)[a]
        rise = (model.potential(STATES + step) - model.potential(STATES - step)) / (2.0 * h)
        np.testing.assert_allclose(model.drift(STATES)[:, a], -rise, atol=2e-2)


def test_a_rotating_flow_cannot_be_fitted():
    """Its turning is left out; what is left is -X: A minus its antisymmetric part."""
    turning = np.array([[1.0, -1.5], [1.5, 1.0]])
    clouds = linear_clouds(turning)
    model = fitted(clouds)
    assert_no_rotation(jacobians(model))
    assert off(model, turning) > 2.0 * off(fitted(clouds, drift="free"), turning)


def test_the_unit_of_length_does_not_matter():
    """A unit for all coordinates: rows are drawn anew, as by another seed, and no more."""
    here = reference().drift(STATES)
    other = fitted(CLOUDS, random_state=1).drift(STATES)
    larger = fitted([1000.0 * x for x in CLOUDS], sigma=1000.0 * SIGMA).drift(1000.0 * STATES)
    spread = root_mean_square(here - other)
    assert root_mean_square(larger / 1000.0 - here) < 3.0 * spread
    assert spread < 0.2 * root_mean_square(here)


def test_the_order_of_coordinates_does_not_matter():
    """To thrice what seeds differ by: cosines are drawn coordinate by coordinate."""
    here = reference().drift(STATES)
    spread = root_mean_square(here - fitted(CLOUDS, random_state=1).drift(STATES))
    swapped = fitted([x[:, ::-1] for x in CLOUDS]).drift(STATES[:, ::-1])[:, ::-1]
    assert root_mean_square(swapped - here) < 3.0 * spread


def test_a_rotated_world_has_the_rotated_drift():
    """Gradients turn with the world; units and priors do not quite: thrice what seeds differ by."""
    here = reference().drift(STATES)
    spread = root_mean_square(here - fitted(CLOUDS, random_state=1).drift(STATES))
    turn = np.array([[0.8, -0.6], [0.6, 0.8]])
    turned = fitted([x @ turn.T for x in CLOUDS]).drift(STATES @ turn.T) @ turn
    assert root_mean_square(turned - here) < 3.0 * spread


@pytest.mark.parametrize("structure", ["smooth", "sparse"])
def test_a_saved_model_has_the_same_drift_and_potential(structure, tmp_path):
    model = reference(structure)
    model.save(tmp_path / "run")
    again = itofit.load(tmp_path / "run")
    assert again.get_params()["drift"] == "potential"
    np.testing.assert_array_equal(again.drift(STATES), model.drift(STATES))
    np.testing.assert_array_equal(again.potential(STATES), model.potential(STATES))
    before = model.forecast([0.4, 1.2], 20, start="bridge")
    after = again.forecast([0.4, 1.2], 20, start="bridge")
    for x, y in zip(before.clouds, after.clouds, strict=True):
        np.testing.assert_array_equal(x, y)


@pytest.mark.parametrize("structure", ["smooth", "sparse"])
def test_a_potential_may_change_with_time(structure):
    """Means at 0, .5 and 2: velocities .5 and 1.5, and no rotation at any time."""
    rng = np.random.default_rng(3)
    x = 0.4 * rng.standard_normal((60, 2))
    right = np.array([1.0, 0.0])
    clouds = [x, x + 0.5 * right, x + 2.0 * right]
    model = fitted(clouds, structure, times=(0.0, 1.0, 2.0), sigma=0.3, time_varying=True)
    early = model.drift(0.25 * right, time=0.5)[0]
    late = model.drift(1.25 * right, time=1.5)[0]
    assert late - early == pytest.approx(1.0, abs=0.5)
    assert_no_rotation(jacobians(model, 0.3 * STATES, time=1.2))
    assert model.potential(STATES, time=1.5).shape == (len(STATES),)


def test_a_free_drift_has_no_potential(refused):
    with refused("potential", "drift='potential'"):
        reference(drift="free").potential(STATES)


def test_a_kind_of_drift_nobody_knows_is_refused(refused):
    with refused("free, potential", "curl"):
        fitted(CLOUDS, drift="curl")


def test_a_regression_of_all_coordinates_is_that_of_stacked_rows():
    """Weights 1 / r_i from what the last regression left, against least squares on plain rows."""
    observed = Snapshots.from_arrays(CLOUDS, TIMES)
    scaling = Scaling.fit_core(observed)
    problem = Problem.pose(
        observed, SIGMA, 0.1, scaling=scaling, streams=Streams(0), drift="potential"
    )
    structure = SmoothPotential.of(problem, 6)
    rng = np.random.default_rng(4)
    n_features = structure.dictionary.n_features
    gaps = [
        Samples(
            rng.standard_normal((20, 2, n_features)),
            rng.standard_normal((20, 2)) * np.array([1.0, 3.0]),
            rng.uniform(0.5, 1.5, 20),
        )
        for _ in range(2)
    ]
    strengths = Strengths.first(np.full(n_features, -1), 1)
    before = Regression(rng.standard_normal((n_features, 1)), strengths)
    sums = structure.sums(gaps, before)
    phi, u, c = (np.concatenate(column) for column in zip(*gaps, strict=True))
    left = np.array([c @ (u[:, i] - phi[:, i] @ before.coefficients[:, 0]) ** 2 for i in (0, 1)])
    weights = (1.0 / left) / np.mean(1.0 / left)
    gram = sum(weights[i] * (phi[:, i] * c[:, None]).T @ phi[:, i] for i in (0, 1))
    cross = sum(weights[i] * (phi[:, i] * c[:, None]).T @ u[:, i] for i in (0, 1))
    np.testing.assert_allclose(sums.gram, gram, rtol=1e-6)
    np.testing.assert_allclose(sums.cross[:, 0], cross, rtol=1e-6)
    assert sums.count == pytest.approx(2.0 * c.sum())
