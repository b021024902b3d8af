"""The polish alone: Gauss-Newton on the weak residuals from a process that is nearly right.

    features and their coefficients, a noise  ->  the phase `polish` of a fit  ->  a solution

No feature comes in. Terms of too little evidence leave; cosines stay, under their prior.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from itofit.errors import InputError
from itofit.moments.coupled_start import state_at
from itofit.moments.gauss_newton import Fitted, Run
from itofit.moments.phases import CHOOSING, Schedule, polish
from itofit.moments.probing import Probing
from itofit.moments.solution import MomentsSolution
from itofit.moments.solver import Moments, moments_solution, result_of
from itofit.problem import Problem
from itofit.process.drift import AbstractLinearDrift
from itofit.process.features import Dictionary
from itofit.process.ito import ItoProcess
from itofit.simulate.mesh import Mesh
from itofit.solution import Outcome
from itofit.solve.listeners import Listener

# Steps of a chain in the time in which two paths part or meet by a factor e; the least of a gap.
_STEPS_A_FOLD = 4.0
_FEWEST_STEPS = 12
# Points of a snapshot at which the slope of a drift is read.
_READ = 128


@dataclass(frozen=True, eq=False)
class Start:
    """Where a polish begins.

    - `dictionary`: the features of the drift.
    - `precision`: of the prior of every group of features and output, for drifts of one sd in the
      whole span; None where every group is one term, whose precision is not known yet.
    - `noise_is_held`: whether a noise that could be learned stays as it is.
    """

    process: ItoProcess
    dictionary: Dictionary
    precision: Float[np.ndarray, "n_groups n_outputs"] | None = None
    schedule: Schedule = CHOOSING
    noise_is_held: bool = False


def polished(
    problem: Problem, solver: Moments, start: Start, listeners: Sequence[Listener] = ()
) -> MomentsSolution | None:
    """The solution nearest to a process.

    None where its chains run away, and where a snapshot has no spread to compare with.
    """
    run = Run(solver.n_iter, listeners)
    end = _polished(problem, solver, start, run)
    if end is None:
        return None
    solution = moments_solution(problem, end.probing, run, result_of(end.probing, end.fitted))
    return None if solution.evidence is None else solution


def polished_process(problem: Problem, solver: Moments, start: Start) -> ItoProcess | None:
    """The process of that solution, without what the linear algebra says there."""
    end = _polished(problem, solver, start, Run(solver.n_iter, ()))
    return None if end is None else end.fitted.residual.process(end.fitted.state.v)


class _End(NamedTuple):
    probing: Probing
    fitted: Fitted


def _polished(problem: Problem, solver: Moments, start: Start, run: Run) -> _End | None:
    noisy = problem.with_noise(start.process.diffusion)
    probing = replace(Probing.of(noisy, solver), mesh=mesh_for(problem, start.process))
    state = state_at(
        start.process, start.dictionary, probing.speed, noise_is_held=start.noise_is_held
    )
    if start.precision is not None:
        in_units = (probing.speed * problem.span) ** 2
        state = state.under(in_units * start.precision)
    try:
        with np.errstate(all="ignore"):
            fitted = polish(
                probing,
                start.dictionary,
                state,
                run,
                ridges_adapt=False,
                schedule=start.schedule,
            )
    except InputError:
        return None
    return _End(probing, fitted) if fitted.outcome is not Outcome.non_finite else None


def mesh_for(problem: Problem, process: ItoProcess) -> Mesh:
    """Steps for the chains of a fit near this process, as many a gap as its drift asks for.

    A step that the user gave is kept, and none is shorter than what the data ask for.
    """
    mesh = problem.before_halving().mesh
    if problem.step_given:
        return mesh
    snapshots = problem.snapshots
    rates = [
        _rate(process, snapshots.clouds[k], float(snapshots.times[k]))
        for k in range(len(snapshots))
    ]
    faster = np.maximum(rates[:-1], rates[1:])
    wanted = np.ceil(_STEPS_A_FOLD * faster * np.diff(snapshots.times))
    counts = np.minimum(np.maximum(wanted, _FEWEST_STEPS), mesh.counts)
    return Mesh.cut(snapshots.times, counts.astype(int))


def _rate(process: ItoProcess, cloud: Float[np.ndarray, "n n_dims"], time: float) -> float:
    """The median over points of the largest singular value of the slope of the drift."""
    places = np.resize(cloud, (_READ, cloud.shape[1])) if len(cloud) < _READ else cloud[:_READ]
    slopes = _slopes(process, jnp.asarray(places, dtype=float), jnp.asarray(time, dtype=float))
    slopes = np.asarray(slopes, dtype=np.float64)
    if not np.all(np.isfinite(slopes)):
        return np.inf
    return float(np.median(np.linalg.norm(slopes, 2, axis=(1, 2))))


@eqx.filter_jit
def _slopes(
    process: ItoProcess, places: Float[Array, "n n_dims"], time: Float[Array, ""]
) -> Float[Array, "n n_dims n_dims"]:
    drift = process.drift.at(time)
    assert isinstance(drift, AbstractLinearDrift)
    return jax.vmap(drift.slope)(places)
