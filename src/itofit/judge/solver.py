"""The default solver: couple, select, polish, judge.

    couple    a smooth drift by bridge regression          select   few terms on its pinned paths
    polish    both by Gauss-Newton on weak residuals       judge    all on snapshots left out

The process is a polished one where chi-squared allows it, else the one that counts most;
forecasts are the mixture that did best.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from threadpoolctl import threadpool_limits

from itofit.bridge.solution import PassLog
from itofit.bridge.solver import Bridge
from itofit.bridge.structures import Smooth
from itofit.judge.engine import POLISHER, Candidates, Engine, Traits
from itofit.judge.judging import folds_of, judged
from itofit.judge.records import selection_from
from itofit.moments.solver import Moments
from itofit.problem import Problem, Streams
from itofit.process.ito import ItoProcess
from itofit.snapshots.clouds import Snapshots
from itofit.snapshots.paired import PairedSnapshots
from itofit.snapshots.scaling import Scaling
from itofit.solution import Selection, Solution
from itofit.solve.checkpoint import CheckpointFolder
from itofit.solve.listeners import Listener
from itofit.solve.options import check_choice, check_count
from itofit.solve.solver import AbstractSolver
from itofit.ways import FLOW

SELECTIONS = ("judge", "none")


@dataclass(frozen=True, eq=False)
class Refit:
    """Fits candidates again, in this process or another."""

    engine: Engine
    traits: Traits

    def __call__(self, rest: Problem, log: PassLog) -> dict[str, ItoProcess]:
        """Their processes for other snapshots."""
        return self.engine.fitted_again(rest, self.traits, log)


@dataclass(frozen=True, repr=False)
class Judged(AbstractSolver):
    """Several structures of the drift, of which snapshots left out decide.

    A smooth and a sparse drift are fitted by bridge regression, and both are polished on the weak
    residuals. Then interior snapshots, and the last ones, are forecast from fits without
    them: by the processes, by their flows, by straight transport and by nothing. Forecasts are the
    mixture that did best. The process is a polished one where chi-squared allows it, with error
    bars and a test of the fit; else the one that counts most in the mixture. `solver="judged"` is
    short for `Judged()`.

    Parameters
    ----------
    selection : {"judge", "none"}
        Whether snapshots are left out; with "none" the process is the polished one unless
        chi-squared contradicts it, then the smooth one, and forecasts are its own.
    n_features : int
        Cosines of the smooth drift.
    n_passes : int
        How often snapshots are coupled.
    jobs : int
        Local processes that the fits without a snapshot are shared among; the result is the same.
        A process takes some seconds to begin and some 500 MB. A script that asks for more than one
        needs `if __name__ == "__main__":`, and a `sigma` that is a function one of a module.

    Examples
    --------
    >>> from itofit import FokkerPlanckProcess, Judged
    >>> FokkerPlanckProcess(solver=Judged(selection="none")).solver
    Judged(selection='none')
    """

    name: ClassVar[str] = "judged"
    prefers_cpu: ClassVar[bool] = True
    presets: ClassVar[dict[str, dict[str, Any]]] = {"default": {}}

    selection: str = "judge"
    n_features: int = 200
    n_passes: int = 12
    jobs: int = 1

    def __post_init__(self):
        check_choice("selection", self.selection, SELECTIONS)
        for name in ("n_features", "n_passes", "jobs"):
            check_count(name, getattr(self, name), 1, "leave it out")

    def scaling(self, snapshots: Snapshots, streams: Streams) -> Scaling:
        del streams
        return Scaling.fit_core(snapshots)

    def solve(
        self,
        problem: Problem,
        *,
        listeners: Sequence[Listener] = (),
        checkpoints: CheckpointFolder | None = None,
    ) -> Solution:
        del checkpoints  # it is done in seconds: begun again rather than continued
        if isinstance(problem.snapshots, PairedSnapshots):
            return _polisher(problem).solve(problem, listeners=listeners)
        # The matrices are small; threads that wait for one another take longer than the products.
        with threadpool_limits(1, user_api="blas"):
            return self._solved(problem, listeners)

    def solve_again(
        self,
        solution: Solution,
        problem: Problem,
        *,
        listeners: Sequence[Listener] = (),
        checkpoints: CheckpointFolder | None = None,
    ) -> Solution:
        """The same: the step of a solution is that of its forecasts.

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
        Solution
            With the new problem.
        """
        del listeners, checkpoints
        return replace(solution, problem=problem)

    def solve_together(self, problems: Sequence[Problem]) -> list[Solution]:
        return [self.solve(problem) for problem in problems]

    def restore(self, problem: Problem, values: dict[str, Any], arrays: dict[str, Any]) -> Solution:
        alone = Bridge()
        if "structure" not in values:
            alone = replace(_polisher(problem), n_draws=values["n_draws"])
        solution = alone.restore(problem, values, arrays)
        return replace(solution, selection=selection_from(problem, values["selection"], arrays))

    def _solved(self, problem: Problem, listeners: Sequence[Listener]) -> Solution:
        engine = Engine(Bridge(n_features=self.n_features, n_passes=self.n_passes))
        n_folds = len(folds_of(problem))
        n_fits = 1 + (n_folds if self.selection == "judge" else 0)
        log = PassLog(n_fits * engine.n_passes, listeners)
        candidates = engine.fitted(problem, log)
        if self.selection == "none":
            return _alone(problem, candidates, log)

        refit = Refit(engine, candidates.traits)
        believed = candidates.believed if n_folds else candidates.met(problem)
        verdict = judged(problem, refit, believed, log, jobs=self.jobs)
        selection = Selection(
            candidates.processes, verdict.between, verdict.beyond, verdict.judgements
        )
        chosen = candidates.explained or _chosen(selection)
        selection = replace(
            selection,
            chosen=chosen,
            why=candidates.why(chosen),
            thinning=engine.thinning(problem),
        )
        solution = candidates.solution(problem, chosen, log)
        return replace(solution, selection=selection, seconds=log.seconds)


def _polisher(problem: Problem) -> Moments:
    """The moments solver; of pairs, which the bridge solver knows nothing of, all of it."""
    return Moments() if isinstance(problem.snapshots, PairedSnapshots) else POLISHER


def _alone(problem: Problem, candidates: Candidates, log: PassLog) -> Solution:
    """Nothing judged: the polished drift where chi-squared allows it, else the smooth one."""
    chosen = candidates.explained or Smooth.name
    return replace(candidates.solution(problem, chosen, log), seconds=log.seconds)


def _chosen(selection: Selection) -> str:
    """The process that counts most, the smooth one in doubt."""
    count = {
        name: sum(
            weights[name] + weights[name + FLOW]
            for weights in (selection.between, selection.beyond)
        )
        for name in selection.processes
    }
    return max(count, key=lambda name: count[name])
