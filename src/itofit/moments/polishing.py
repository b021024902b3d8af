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
from itofit.solve.listeners import Listener

# What linear algebra raises where chains run away or a covariance has too low a rank.
_BROKEN = (np.linalg.LinAlgError, FloatingPointError, InputError, ValueError)


def polished(
    problem: Problem,
    solver: Moments,
    start: ItoProcess,
    dictionary: Dictionary,
    listeners: Sequence[Listener] = (),
) -> MomentsSolution | None:
    """The solution nearest to a process whose drift is in these terms, each of one feature.

    None where the linear algebra breaks down on the way: chains that run away, covariances of too
    low a rank.
    """
    run = Run(solver.n_iter, listeners)
    end = _polished(problem, solver, start, dictionary, run)
    if end is None:
        return None
    try:
        solution = moments_solution(problem, solver, run, result_of(end.probing, end.fitted))
    except _BROKEN:
        return None
    return solution if _is_finite(solution) else None


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
    except _BROKEN:
        return None
    is_finite = bool(np.all(np.isfinite(fitted.state.v)))
    return _End(probing, fitted) if run.rows and is_finite else None


def _is_finite(solution: MomentsSolution) -> bool:
    evidence = solution.evidence
    return evidence is not None and bool(np.all(np.isfinite(evidence.chi2)))
