"""The moments solver: many fixed probes at once, whitened, and Gauss-Newton for a linear drift.

    minimise over W   1/2 |y(W)|^2 + 1/2 sum_g lambda_g |W_g|^2,
    y = L^-1 (E f(simulated) - E f(observed))

for g(x) = speed * W' phi(x), all f at once, and over the parameters of a noise that is learned. The
Euler chains are driven by fixed noise, so y is a deterministic function whose Jacobian comes from
`simulate.sensitivity`; L is from `moments.whitening` and lambda from `moments.relevance`. The fit
goes through the phases of `moments.phases`. Where snapshots are dense in time nothing is simulated:
`moments.dense` takes the observed clouds for the path. A drift with a potential is coupled first
(`moments.coupled_start`), and polished.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, NamedTuple

import numpy as np

from itofit.errors import InputError
from itofit.moments.adaptive_ridges import AdaptiveRidges, frozen
from itofit.moments.bias import less_biased
from itofit.moments.coupled_start import coupled_and_polished
from itofit.moments.dense import collocate, worth_trying
from itofit.moments.evidence import Evidence, evidence_at
from itofit.moments.gauss_newton import Fitted, Run, State
from itofit.moments.library import library_for
from itofit.moments.observed_path import CorrectedPath, ObservedPath
from itofit.moments.options import MomentsOptions
from itofit.moments.pairs import check_pairs
from itofit.moments.phases import simulate_and_fit
from itofit.moments.probing import Probing
from itofit.moments.residuals import Residual, Simulated
from itofit.moments.solution import MomentsSolution, Valley
from itofit.problem import Problem, Streams
from itofit.process.features import MANY_DIMS, Dictionary, Group
from itofit.process.ito import ItoProcess
from itofit.simulate.mesh import Mesh
from itofit.snapshots.clouds import Snapshots
from itofit.snapshots.scaling import Scaling
from itofit.solution import GaussNewtonHistory, Outcome, Solution
from itofit.solve.checkpoint import CheckpointFolder
from itofit.solve.listeners import Listener
from itofit.solve.records import Ending, drift_of, record_of, restored_noise
from itofit.solve.solver import AbstractSolver

# Points a residual from which on an expansion in one over their number is worth something.
_POINTS_A_ROW = 30
# A residual stays with its solution up to this size; a larger one is made again when it is needed.
_MOST_BYTES = 1 << 28


@dataclass(frozen=True, repr=False)
class Moments(AbstractSolver, MomentsOptions):
    """The moments solver: hundreds of fixed probes at once, solved by Gauss-Newton.

    Seconds on a laptop, with error bars, goodness of fit and identifiability out of its linear
    algebra. `solver="moments"` is short for `Moments()`.

    Parameters
    ----------
    anchor : {"previous", "initial"}
        Simulate every interval from the snapshot before it, or all of them from the first.
    path : {"auto", "simulated", "observed"}
        Between snapshots: simulated chains, or the observed clouds themselves (one linear problem,
        for snapshots dense in time); "auto" takes the clouds where that is accurate enough.
        "observed" needs `anchor="previous"`.
    n_single, n_pair, n_all : int or None
        Tanh features drawn of each coordinate, of each pair and of all, from which ridges of the
        drift begin; None: by dimension.
    polynomials : bool
        Whether products of two coordinates and cubes are features.
    n_draws : int
        How often each start point is simulated with fresh noise in the last phase.
    max_directions : float
        Largest number of residual directions of a snapshot, as a fraction of its points.
    threshold : float or None
        Log Bayes factor below which a group of features leaves; None takes the log of the number of
        groups times outputs: the odds of one in so many.
    n_iter : int
        Budget of Gauss-Newton steps over all phases.
    dictionary : callable or None
        A function of one state in the user's units that returns features, instead of all of the
        above.

    Examples
    --------
    >>> from itofit import FokkerPlanckProcess, Moments
    >>> model = FokkerPlanckProcess(solver=Moments(n_draws=4, polynomials=False))
    >>> model.solver.n_draws
    4
    """

    name: ClassVar[str] = "moments"
    prefers_cpu: ClassVar[bool] = True
    presets: ClassVar[dict[str, dict[str, Any]]] = {"default": {}}

    def scaling(
        self,
        snapshots: Snapshots,
        streams: Streams,
    ) -> Scaling:
        del streams
        return Scaling.fit(snapshots)

    def solve(
        self,
        problem: Problem,
        *,
        listeners: Sequence[Listener] = (),
        checkpoints: CheckpointFolder | None = None,
    ) -> MomentsSolution:
        del checkpoints  # it is done in seconds: begun again rather than continued
        probing = Probing.of(problem, self)
        _check(probing)
        run = Run(self.n_iter, listeners)
        try:
            result = result_of(probing, _fitted(probing, run))
        except KeyboardInterrupt:
            if run.residual is None or run.state is None:
                raise
            result = _best_so_far(run.residual, run.state)
        if not np.all(np.isfinite(result.state.v)) or not run.rows:
            result = result._replace(outcome=Outcome.non_finite)
        return moments_solution(problem, probing, run, result)

    def solve_again(
        self,
        solution: Solution,
        problem: Problem,
        *,
        listeners: Sequence[Listener] = (),
        checkpoints: CheckpointFolder | None = None,
    ) -> MomentsSolution:
        """The same: a fit whose step is ours has no first order in it, forecasts have.

        Parameters
        ----------
        solution : Solution
            With the step before.
        problem : Problem
            With the shorter step.
        listeners : sequence of callables
            As of `solve`.
        checkpoints : CheckpointFolder, optional
            As of `solve`.

        Returns
        -------
        MomentsSolution
            With the new problem.
        """
        del listeners, checkpoints
        assert isinstance(solution, MomentsSolution)
        return replace(solution, problem=problem)

    def solve_together(self, problems: Sequence[Problem]) -> list[Solution]:
        return [self.solve(problem) for problem in problems]

    def restore(
        self,
        problem: Problem,
        values: dict[str, Any],
        arrays: dict[str, np.ndarray],
    ) -> MomentsSolution:
        drift = drift_of(values["features"], arrays, problem.clock)
        groups = tuple(Group(size, kind, tuple(axes)) for size, kind, axes in values["groups"])
        ended = "evidence.chi2" in arrays
        ending = Ending.of(values)
        return MomentsSolution(
            problem=problem,
            process=ItoProcess(drift, restored_noise(problem, arrays)),
            outcome=ending.outcome,
            history=record_of(GaussNewtonHistory, "history", arrays),
            n_iter=ending.n_iter,
            seconds=ending.seconds,
            dt_error=ending.dt_error,
            solver=self,
            dictionary=Dictionary(drift.features, groups),  # pyright: ignore
            evidence=record_of(Evidence, "evidence", arrays) if ended else None,
            path=values["path"],
            mesh=Mesh.cut(problem.snapshots.times, np.asarray(values["steps"])),
            valley=record_of(Valley, "valley", arrays) if "valley.theta" in arrays else None,
        )


def _check(probing: Probing) -> None:
    """Refuse what this solver cannot do."""
    options = probing.options
    if probing.paired:
        check_pairs(probing.snapshots, options)
    if probing.problem.has_potential:
        _check_potential(options)
    if probing.problem.time_varying:
        _check_clock(options, probing.snapshots.n_dims)
    learned = probing.diffusion.n_parameters > 0 and not probing.diffusion.constant
    if options.path == "observed" and learned:
        raise InputError(
            expected="with path='observed', a sigma that is known or the same everywhere",
            found="one that depends on the state and is to be learned",
            hint="path='auto', or sigma='learn'",
        )


def _check_potential(options: MomentsOptions) -> None:
    if options.dictionary is not None or options.path == "observed":
        raise InputError(
            expected="a drift with a potential to have the solver's own features and a simulated "
            "path",
            found="a dictionary" if options.dictionary is not None else "path='observed'",
            hint="drift='free', or leave that out",
        )


def _check_clock(options: MomentsOptions, n_dims: int) -> None:
    if options.allows_clock(n_dims):
        return
    if n_dims >= MANY_DIMS:
        raise InputError(
            expected=f"fewer than {MANY_DIMS} coordinates where the drift changes with time",
            found=f"{n_dims}",
            hint="fewer principal components, or time_varying=False",
        )
    raise InputError(
        expected="a drift that changes with time to have the solver's own features and a "
        "simulated path",
        found="a dictionary" if options.dictionary is not None else "path='observed'",
        hint="time_varying=False, or leave that out",
    )


class Result(NamedTuple):
    """Where a run ended, how, and what the linear algebra says there if it ended by itself."""

    residual: Residual
    state: State
    outcome: Outcome
    evidence: Evidence | None


def result_of(probing: Probing, fitted: Fitted) -> Result:
    """A model at its optimum, the bias of a learned noise taken off, and the evidence there."""
    unbiased = _without_bias(probing, fitted)
    evidence = _judged(probing, fitted, unbiased)
    if evidence is None:
        return Result(fitted.residual, fitted.state, Outcome.non_finite, None)
    return Result(unbiased.residual, unbiased.state, unbiased.outcome, evidence)


def _best_so_far(residual: Residual, state: State) -> Result:
    """What an interruption leaves."""
    if isinstance(residual, AdaptiveRidges):
        residual, state = frozen(residual, state)
    return Result(residual, state, Outcome.interrupted, None)


def _fitted(probing: Probing, run: Run) -> Fitted:
    """On the observed path where that is allowed, else by simulation; a potential from coupling."""
    if probing.problem.has_potential:
        return coupled_and_polished(probing, run)
    library = library_for(probing.problem, probing.options)
    fitted = collocate(probing, library, run) if _may_collocate(probing) else None
    return simulate_and_fit(probing, library, run) if fitted is None else fitted


def _may_collocate(probing: Probing) -> bool:
    if probing.options.path != "auto":
        return probing.options.path == "observed"
    return not probing.problem.time_varying and not probing.paired and worth_trying(probing)


def _without_bias(probing: Probing, fitted: Fitted) -> Fitted:
    """The fit with the bias of a learned noise taken off, where there are points enough."""
    n_rows = max(len(basis) for basis in fitted.whitening.bases)
    enough = min(probing.snapshots.counts) >= _POINTS_A_ROW * n_rows
    learned = np.any(fitted.state.prior.alive[fitted.residual.n_coefficients :])
    if fitted.outcome is not Outcome.converged or not learned or not enough:
        return fitted
    state = less_biased(
        fitted.residual,
        fitted.state,
        fitted.whitening,
        drift_too=probing.paired,
    )
    return fitted._replace(state=state)


def _judged(
    probing: Probing,
    fitted: Fitted,
    unbiased: Fitted,
) -> Evidence | None:
    """The evidence at the solution; None where chains run away.

    Of pairs, taking the bias off leaves the minimum, whose squares have the law of chi-squared.
    """
    evidence = evidence_at(unbiased.residual, unbiased.state, unbiased.whitening)
    if evidence is None or not probing.paired:
        return evidence
    least = evidence_at(fitted.residual, fitted.state, fitted.whitening)
    return None if least is None else replace(evidence, chi2=least.chi2)


def moments_solution(
    problem: Problem,
    probing: Probing,
    run: Run,
    result: Result,
) -> MomentsSolution:
    """The solution of a problem that a run ended in."""
    residual = result.residual
    process = residual.process(result.state.v)
    small = result.evidence is not None and _n_bytes(residual) <= _MOST_BYTES
    return MomentsSolution(
        problem=problem,
        process=process,
        outcome=_verdict(result),
        history=run.history(),
        n_iter=len(run.rows),
        seconds=time.perf_counter() - run.began,
        solver=probing.options,
        dictionary=residual.dictionary,
        evidence=result.evidence,
        path=_path_of(residual),
        mesh=probing.mesh,
        final_residual=residual.with_noise(process.diffusion) if small else None,
    )


def _verdict(result: Result) -> Outcome:
    """How the run ended, in the light of what chi-squared says where it ended by itself."""
    evidence = result.evidence
    if result.outcome is not Outcome.converged or evidence is None:
        return result.outcome
    if not evidence.can_judge:
        return Outcome.unjudged
    return Outcome.contradicted if evidence.contradicted else Outcome.converged


def _path_of(residual: Residual) -> str:
    if isinstance(residual, CorrectedPath):
        return "corrected"
    return "observed" if isinstance(residual, ObservedPath) else "simulated"


def _n_bytes(residual: Residual) -> int:
    """What the noise of its chains takes, which is nearly all."""
    simulated = residual.simulated if isinstance(residual, CorrectedPath) else residual
    if not isinstance(simulated, Simulated):
        return 0
    sizes = [noise.nbytes for batch in simulated.transitions for noise in batch.noise]
    return sum(sizes)
