"""The linear problem at a solution: its columns are slopes of the residuals, its influences their covariance."""

from dataclasses import replace

import jax.numpy as jnp
import numpy as np
import pytest

from itofit.process import ConstantDiffusion, FeatureDrift
from itofit.process.features import affine, joined
from itofit.simulate.mesh import Mesh
from itofit.snapshots import Scaling, Snapshots
from itofit.solve.dictionaries import library_for
from itofit.solve.evidence import Evidence
from itofit.solve.linearised import dictionary_of, linearised
from itofit.solve.options import MomentsOptions
from itofit.solve.relevance import GONE
from itofit.solve.task import Task
from itofit.solve.turning import ridges_at

N_POINTS = 100


@pytest.fixture(scope="module")
def problem():
    """A drift of a line and one ridge; the quadratic, the cubic and two drawn ridges were left out."""
    rng = np.random.default_rng(0)
    clouds = [rng.normal(mean, 1.0, (N_POINTS, 1)) for mean in (0.0, 0.4, 0.9)]
    snapshots = Snapshots.from_arrays(clouds, [0.0, 0.5, 1.0])
    options = MomentsOptions(n_draws=1, n_single=2, path="simulated")
    task = Task(snapshots, ConstantDiffusion(jnp.eye(1)), Mesh.refine(snapshots.times, 0.1), options, seed=0)
    library = library_for(snapshots, Scaling.identity(1), options, 0)
    known = joined([affine(1), ridges_at(np.asarray([[1.2, -0.3]]))])
    coefficients = np.asarray([[0.5], [-0.6], [0.8]])
    evidence = Evidence(
        coefficients=coefficients,
        covariance=np.eye(3),
        precision=np.asarray([[1e-3], [1.0], [1.0]]),
        ends=np.asarray([[0, 1], [1, 2]]),
        chi2=np.ones(2),
        n_rows=np.ones(2, dtype=int),
        n_points=np.ones(2),
        n_determined=np.ones(2),
        alive=np.ones((3, 1), dtype=bool),
    )
    drift = FeatureDrift(known.features, jnp.asarray(coefficients, dtype=float))
    return task, library, drift, evidence, linearised(task, library, drift, evidence, "simulated")


def test_columns_are_slopes_of_the_whitened_residuals(problem):
    """Central differences with a step of 0.005: single precision leaves 1e-5 / 0.01, the bend of a cubic 1 %."""
    task, library, drift, evidence, linear = problem
    known = task.residual(dictionary_of(drift.features, library), 1, cosines=True)
    v = evidence.coefficients.ravel() / task.speed
    whitening = task.whitening(known, v)
    wide = replace(known, dictionary=linear.unknowns.dictionary)

    def rows(unknowns):
        return whitening(wide(linear.coefficients(unknowns).ravel() / task.speed))

    at, step = linear.unknowns.v, 0.005
    for p, column in enumerate(linear.unknowns.jacobian.T):
        moved = step * np.eye(len(at))[p]
        slope = (rows(at + moved) - rows(at - moved)) / (2 * step)
        np.testing.assert_allclose(column, slope, atol=0.01 * np.abs(column).max() + 2e-3)
    np.testing.assert_allclose(linear.y, whitening(known(v)), atol=1e-6)


def test_unknowns_are_what_is_in_the_model_its_shape_and_what_was_left_out(problem):
    task, _, drift, evidence, linear = problem
    unknowns = linear.unknowns
    # constant, slope, ridge | direction and offset of the ridge | square, cube, two drawn ridges
    assert (unknowns.precision < GONE).tolist() == [True] * 5 + [False] * 4
    assert np.isinf(unknowns.log_odds).tolist() == [True, True, False, True, True] + [False] * 4
    np.testing.assert_allclose(linear.coefficients(unknowns.v)[:3], evidence.coefficients, rtol=1e-6)
    x = jnp.asarray([0.7])
    np.testing.assert_allclose(linear.features(x) @ linear.coefficients(unknowns.v), drift(x), rtol=1e-5)
    turned = unknowns.v + 0.05 * np.eye(9)[3]
    shape = ridges_at(np.asarray([[1.2 + 0.1 * 0.05, -0.3]]))
    exact = FeatureDrift(joined([affine(1), shape]).features, drift.coefficients)(x)
    np.testing.assert_allclose(linear.features(x) @ linear.coefficients(turned), exact, rtol=1e-4)
    assert task.speed == linear.speed


def test_influences_of_all_points_add_up_to_unit_covariance(problem):
    influence = problem[-1].influence
    assert {n: a.shape[1] for n, a in influence.items()} == {0: N_POINTS, 1: N_POINTS, 2: N_POINTS}
    total = sum(a @ a.T for a in influence.values())
    np.testing.assert_allclose(total, np.eye(len(total)), atol=1e-4)
    for a in influence.values():
        np.testing.assert_allclose(a.sum(axis=1), 0.0, atol=1e-6)
