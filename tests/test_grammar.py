"""A problem, a solver, a solution: what the grammar promises."""

import ast
import dataclasses
import inspect
from pathlib import Path
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from itofit import (
    Adversarial,
    Bridge,
    FokkerPlanckProcess,
    Judged,
    Moments,
    Problem,
    known_system,
)
from itofit.adversarial.solution import AdversarialSolution
from itofit.devices import placed
from itofit.problem import Streams
from itofit.process.drift import FunctionDrift
from itofit.process.ito import ItoProcess
from itofit.snapshots.scaling import Scaling
from itofit.solution import Outcome, TrainingHistory
from itofit.solve.solver import AbstractSolver
from itofit.solvers import solver_from, solver_of, solver_values

OLD_KEYWORDS = (
    "preset", "anchor", "gradient", "discrepancy", "quadrature", "n_iter", "batch_size",
    "critic_steps", "learning_rate", "warm_start", "n_members", "options",
)  # fmt: skip


@pytest.fixture(scope="module")
def snapshots():
    return known_system("ou").observe(60, [0.0, 0.4, 1.0], key=jax.random.key(0))


def test_the_estimator_adds_nothing_to_what_the_solver_finds(snapshots):
    solver = Moments(n_iter=4, polynomials=False, n_single=0, n_pair=0)
    model = FokkerPlanckProcess(0.7, dt=0.05, solver=solver, random_state=5).fit(snapshots)
    streams = Streams(5)
    scaling = solver.scaling(snapshots, streams)
    problem = Problem.pose(snapshots, 0.7, 0.05, scaling=scaling, streams=streams)
    alone = solver.solve(problem)
    x = jnp.asarray(problem.snapshots.clouds[0])
    here, there = (jax.vmap(p.drift)(x) for p in (model.solution_.process, alone.process))
    np.testing.assert_array_equal(here, there)


def test_a_word_is_short_for_the_solver_with_its_defaults():
    assert solver_of("judged") == Judged()
    assert solver_of("bridge") == Bridge()
    assert solver_of("moments") == Moments()
    assert solver_of("adversarial") == Adversarial()


@pytest.mark.parametrize(
    "solver", [Moments(n_draws=3), Bridge(n_passes=3), Judged(), Adversarial.paper(n_members=2)]
)
def test_a_solver_is_frozen_hashable_and_comes_back_from_plain_values(solver):
    with pytest.raises(dataclasses.FrozenInstanceError):
        solver.n_iter = 1
    assert hash(solver) == hash(dataclasses.replace(solver))
    assert solver_from(solver_values(solver)) == solver


def test_a_solver_shows_what_is_not_its_default():
    assert repr(Moments(n_draws=3)) == "Moments(n_draws=3)"
    assert repr(Adversarial()) == "Adversarial()"


@pytest.mark.parametrize("wrong", ["bridges", None, 3, Moments])
def test_a_solver_nobody_knows_is_refused(refused, wrong):
    with refused("moments", "Adversarial(...)"):
        solver_of(wrong)


def test_the_estimator_has_few_parameters():
    assert len(FokkerPlanckProcess().get_params()) <= 10


@pytest.mark.parametrize("name", OLD_KEYWORDS)
def test_an_old_keyword_says_where_it_went(refused, name):
    with refused(name, "solver="):
        FokkerPlanckProcess(**{name: 1})


def test_a_keyword_that_never_was_is_refused(refused):
    with refused("colour", "random_state"):
        FokkerPlanckProcess(colour="red")


class Gpu:
    platform = "gpu"
    device_kind = "a fast one"


def test_the_default_is_the_same_beside_a_gpu_and_runs_on_the_cpu(monkeypatch):
    cpu = jax.devices("cpu")[0]
    monkeypatch.setattr("itofit.devices.jax.devices", lambda kind=None: [cpu if kind else Gpu()])
    solver = solver_of(FokkerPlanckProcess().solver)
    assert solver == Judged()
    place = placed("auto", "the judged solver", prefers_cpu=solver.prefers_cpu)
    assert place.device is cpu
    assert "the judged solver runs on the CPU" in str(place.remark)
    training = placed("auto", "it", prefers_cpu=Adversarial.prefers_cpu)
    assert (training.device.platform, training.remark) == ("gpu", None)


def test_the_estimator_never_asks_for_the_name_of_a_solver():
    tree = ast.parse(Path(inspect.getfile(FokkerPlanckProcess)).read_text())
    compared = [node for node in ast.walk(tree) if isinstance(node, ast.Compare)]
    text = " ".join(ast.unparse(node) for node in compared)
    assert "moments" not in text
    assert "adversarial" not in text


@dataclasses.dataclass(frozen=True, repr=False)
class AtRest(AbstractSolver):
    """A further solver: nothing moves."""

    name: ClassVar[str] = "at-rest"
    prefers_cpu: ClassVar[bool] = True
    presets: ClassVar[dict[str, dict[str, Any]]] = {"default": {}}

    def scaling(self, snapshots, streams):
        return Scaling.identity(snapshots.n_dims)

    def solve(self, problem, *, listeners=(), checkpoints=None):
        nothing = np.zeros(0)
        return AdversarialSolution(
            problem=problem,
            process=ItoProcess(FunctionDrift(jnp.zeros_like), problem.diffusion),
            outcome=Outcome.converged,
            history=TrainingHistory(nothing, nothing, nothing, nothing, nothing),
            n_iter=0,
            seconds=0.0,
        )

    def solve_again(self, solution, problem, *, listeners=(), checkpoints=None):
        return self.solve(problem)

    def solve_together(self, problems):
        return [self.solve(problem) for problem in problems]

    def restore(self, problem, values, arrays):
        return self.solve(problem)


def test_a_further_solver_is_an_object_like_the_others(snapshots):
    model = FokkerPlanckProcess(0.0, dt=0.1, solver=AtRest(), random_state=0).fit(snapshots)
    np.testing.assert_array_equal(model.predict(2.0), snapshots.clouds[0])
    np.testing.assert_array_equal(model.drift([1.0, 2.0]), [0.0, 0.0])
    assert model.solver_ == AtRest()
