"""Drifts with a potential, judged and trained: no rotation, whatever the solver; saved and read."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import itofit
from itofit.cli.methods import Choices
from itofit.judge.solver import Judged
from itofit.process.drift import potential_of
from itofit.process.ito import rescaled

N = 60
SYSTEM = itofit.known_system("ou")
STATES = np.array([[0.0, 0.0], [1.0, -1.0], [-0.5, 0.3], [0.5, 0.5]])
WIDE = np.array([1.0, 3.0])
SOLVER = Judged(n_passes=4, n_features=40)


def observed():
    """Of coordinates of unequal widths, so that units matter."""
    snapshots = SYSTEM.observe(N, [0.0, 0.5, 1.0], key=jax.random.key(3))
    return itofit.Snapshots.from_arrays([x * WIDE for x in snapshots.clouds], snapshots.times)


def fitted(solver, drift="potential", sigma="learn"):
    model = itofit.FokkerPlanckProcess(sigma, dt=0.05, drift=drift, solver=solver, random_state=0)
    return model.fit(observed())


def assert_no_rotation(drift):
    J = np.asarray(jax.vmap(jax.jacfwd(drift))(jnp.asarray(STATES * WIDE, float)))
    assert np.max(np.abs(J - np.swapaxes(J, 1, 2))) <= 1e-4 * np.max(np.abs(J))


@pytest.fixture(scope="module")
def model():
    return fitted(SOLVER)


@pytest.mark.slow
def test_no_candidate_rotates(model):
    assert {"smooth", "smooth polished"} <= model.selection_.processes.keys()
    assert_no_rotation(model.process_.drift)
    for process in model.selection_.processes.values():
        assert_no_rotation(rescaled(process, model.scaling_).drift.at(0.5))


@pytest.mark.slow
def test_a_saved_model_has_the_same_forecasts_and_potential(model, tmp_path):
    model.save(tmp_path / "run")
    again = itofit.load(tmp_path / "run")
    np.testing.assert_array_equal(again.potential(STATES), model.potential(STATES))
    before = model.forecast([0.25, 1.5], 20, start="auto")
    after = again.forecast([0.25, 1.5], 20, start="auto")
    for x, y in zip(before.clouds, after.clouds, strict=True):
        np.testing.assert_array_equal(x, y)


def test_a_potential_is_a_candidate_among_free_drifts(tmp_path):
    model = fitted(SOLVER, drift="free", sigma=[0.7, 2.1])
    processes = model.selection_.processes
    assert_no_rotation(rescaled(processes["potential"], model.scaling_).drift)
    assert "potential, flow" in model.selection_.between
    model.save(tmp_path / "run")
    drift = itofit.load(tmp_path / "run").selection_.processes["potential"].drift
    x = jnp.array([0.3, -0.4])
    np.testing.assert_array_equal(drift(x), processes["potential"].drift(x))


@pytest.mark.slow
@pytest.mark.parametrize("n_members", [1, 2])
def test_a_trained_drift_has_a_potential(n_members, tmp_path):
    solver = itofit.Adversarial(n_iter=4, eval_every=2, n_members=n_members)
    model = fitted(solver, sigma=[0.7, 2.1])
    assert_no_rotation(model.process_.drift)
    z = jnp.array([0.3, -0.4])
    drift = model.standard_process_.drift
    gradient = -model.scaling_.metric * jax.grad(potential_of(drift))(z)
    np.testing.assert_allclose(drift(z), gradient, rtol=1e-4, atol=1e-6)
    model.save(tmp_path / "run")
    again = itofit.load(tmp_path / "run")
    np.testing.assert_array_equal(again.drift(STATES), model.drift(STATES))
    np.testing.assert_array_equal(again.potential(STATES), model.potential(STATES))


def test_the_command_line_asks_for_a_potential():
    assert Choices("bridge", drift="potential").estimator().get_params()["drift"] == "potential"
    assert Choices("bridge").estimator().get_params()["drift"] == "free"


def test_a_method_without_a_choice_of_drift_refuses_it(refused):
    with refused("--drift"):
        Choices("persistence", drift="potential").estimator()


def test_a_clone_keeps_the_kind_of_drift():
    """What `sklearn.clone` does: the question `drift(x)` and the parameter share a name."""
    model = itofit.FokkerPlanckProcess(drift="potential", solver=Judged("none"))
    again = type(model)(**model.get_params(deep=False))
    assert again.get_params() == model.get_params()
    assert callable(again.drift)
    assert again.set_params(drift="free", dt=0.1).get_params()["drift"] == "free"
    assert dataclasses.is_dataclass(again.solver)
