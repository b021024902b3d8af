"""The solvers by name, and the entry to them: a further one is one class and one line here."""

from collections.abc import Sequence
from dataclasses import fields, replace
from typing import Any

from itofit.adversarial.solver import Adversarial
from itofit.bridge.solver import Bridge
from itofit.errors import InputError
from itofit.forecast import step_error_from_first
from itofit.judge.solver import Judged
from itofit.moments.solver import Moments
from itofit.problem import Problem
from itofit.solution import Solution
from itofit.solve.checkpoint import CheckpointFolder
from itofit.solve.listeners import Listener
from itofit.solve.solver import AbstractSolver

SOLVERS: dict[str, type[AbstractSolver]] = {
    solver.name: solver for solver in (Judged, Moments, Bridge, Adversarial)
}
DEFAULT = Judged.name


def solver_of(given: Any) -> AbstractSolver:
    """The solver a user gave: an object, or the name of one with its defaults."""
    if isinstance(given, AbstractSolver):
        return given
    if isinstance(given, str) and given in SOLVERS:
        return SOLVERS[given]()
    names = " or ".join(repr(name) for name in SOLVERS)
    kinds = " or ".join(f"{kind.__name__}(...)" for kind in SOLVERS.values())
    raise InputError(expected=f"solver to be {names}, or {kinds}", found=f"{given!r}", hint=names)


def solver_values(given: Any) -> Any:
    """A solver as plain values: its name, or its name and every option."""
    if isinstance(given, str):
        return given
    options = {field.name: getattr(given, field.name) for field in fields(given)}
    return {"name": given.name, "options": options}


def solver_from(values: Any) -> Any:
    """The solver of these values."""
    if isinstance(values, str):
        return values
    # JSON knows lists alone.
    options = {k: tuple(v) if isinstance(v, list) else v for k, v in values["options"].items()}
    return SOLVERS[values["name"]](**options)


def solve(
    problem: Problem,
    solver: AbstractSolver,
    *,
    listeners: Sequence[Listener] = (),
    checkpoints: CheckpointFolder | None = None,
) -> Solution:
    """The solution of a problem; a step that is ours to choose is halved until forecasts allow it.

    Parameters
    ----------
    problem : Problem
        What is asked.
    solver : AbstractSolver
        What finds the process, say `Judged()` or `Moments(...)`.
    listeners : sequence of callables, optional
        Called with a `Progress` as the run goes.
    checkpoints : CheckpointFolder, optional
        Where runs are saved as they go.

    Returns
    -------
    Solution
        The process and what later questions need.
    """
    solution = solver.solve(problem, listeners=listeners, checkpoints=checkpoints)
    solution = with_step_checked(solution)
    while _step_is_too_long(solution, solver):
        shorter = _with_short_step(solution, solver)
        solution = solver.solve_again(
            solution, shorter, listeners=listeners, checkpoints=checkpoints
        )
        solution = with_step_checked(solution)
    return solution


def with_step_checked(solution: Solution) -> Solution:
    """The same, with how far halving dt moves a mean or sd."""
    return replace(solution, dt_error=_step_error(solution, solution.problem))


def _step_is_too_long(solution: Solution, solver: AbstractSolver) -> bool:
    problem = solution.problem
    ours = not problem.step_given and problem.refinement < solver.most_halvings
    return ours and solution.outcome.is_good and not solution.dt_error <= solver.tolerance


def _with_short_step(solution: Solution, solver: AbstractSolver) -> Problem:
    """The problem with its step halved until it is short enough for the fitted process."""
    shorter = solution.problem.with_halved_step()
    while shorter.refinement < solver.most_halvings:
        if _step_error(solution, shorter) <= solver.tolerance:
            break
        shorter = shorter.with_halved_step()
    return shorter


def _step_error(solution: Solution, problem: Problem) -> float:
    return step_error_from_first(solution.process, problem.snapshots, problem.dt, problem.streams)
