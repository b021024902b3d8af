"""The polish alone: Gauss-Newton on the weak residuals from a process that is nearly right.

    terms and their coefficients, a noise  ->  the phase `polish` of a fit  ->  a solution

None comes in; what has too little evidence leaves.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from itofit.errors import InputError
from itofit.moments.coupled_start import state_at
from itofit.moments.gauss_newton import Fitted, Run
from itofit.moments.phases import polish
from itofit.moments.probing import Probing
from itofit.moments.solution import MomentsSolution
from itofit.moments.solver import Moments, moments_solution, result_of
from itofit.problem import Problem
from itofit.process.features import Dictionary
from itofit.process.ito import ItoProcess
from itofit.solution import Outcome
from itofit.solve.listeners import Listener


def polished(
    problem: Problem,
    solver: Moments,
    start: ItoProcess,
    dictionary: Dictionary,
    listeners: Sequence[Listener] = (),
) -> MomentsSolution | None:
    """The solution nearest to a process whose drift is in these terms, each of one feature.

    None where its chains run away, and where a snapshot has no spread to compare with.
    """
    run = Run(solver.n_iter, listeners)
    end = _polished(problem, solver, start, dictionary, run)
    if end is None:
        return None
    solution = moments_solution(problem, solver, run, result_of(end.probing, end.fitted))
    return None if solution.evidence is None else solution


def polished_process(
    problem: Problem, solver: Moments, start: ItoProcess, dictionary: Dictionary
) -> ItoProcess | None:
    """The process of that solution, without what the linear algebra says there.

    Its forecasts have the step of its chains, so that it keeps what that step adds.
    """
    problem = problem.as_fitted(step_given=True, refinement=problem.refinement)
    end = _polished(problem, solver, start, dictionary, Run(solver.n_iter, ()))
    return None if end is None else end.fitted.residual.process(end.fitted.state.v)


class _End(NamedTuple):
    probing: Probing
    fitted: Fitted


def _polished(
    problem: Problem, solver: Moments, start: ItoProcess, dictionary: Dictionary, run: Run
) -> _End | None:
    probing = Probing(problem.with_noise(start.diffusion), solver)
    state = state_at(start, dictionary, probing.speed)
    try:
        with np.errstate(all="ignore"):
            fitted = polish(probing, dictionary, state, run, ridges_adapt=False)
    except InputError:
        return None
    return _End(probing, fitted) if fitted.outcome is not Outcome.non_finite else None
