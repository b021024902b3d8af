"""The bridge solver: couple neighbouring snapshots, pin paths to the pairs, regress, again.

    plan  ->  pinned paths  ->  g = E[drift | place],   S from what the flow misses  ->  plan ...

A form of EM for a Schroedinger bridge whose reference is fitted; docs/theory/bridge.md. Every pass
is linear algebra. A smooth drift is bounded; the linear terms of a sparse one are not, and passes
end where its flow runs away.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from itofit.bridge.iteration import Batching, Coupler, Pass
from itofit.bridge.solution import BridgeSolution, PassLog, bridge_solution, restored_bridge
from itofit.bridge.structures import AbstractStructure, Smooth, Sparse, smooth_for, sparse_for
from itofit.problem import Problem, Streams
from itofit.snapshots.clouds import Snapshots
from itofit.snapshots.scaling import Scaling
from itofit.solution import Solution
from itofit.solve.checkpoint import CheckpointFolder
from itofit.solve.listeners import Listener
from itofit.solve.options import check_choice, check_count
from itofit.solve.solver import AbstractSolver

STRUCTURES = (Smooth.name, Sparse.name)


@dataclass(frozen=True, repr=False)
class Bridge(AbstractSolver):
    """The bridge solver: regression on paths pinned to the points of neighbouring snapshots.

    Seconds on a laptop, whatever the data; near the truth, not at the bottom of it, and without
    error bars. `solver="bridge"` is short for `Bridge()`.

    Parameters
    ----------
    structure : {"smooth", "sparse"}
        A Gaussian process, bounded far from the data; or few monomials, chosen by their evidence.
    n_features : int
        Cosines of the smooth drift.
    n_passes : int
        How often snapshots are coupled; a sparse drift begins at the smooth one and takes half as
        many more.
    n_points : int
        Points a snapshot that a pass looks at, drawn anew.
    n_draws : int
        Places a pass looks at on the paths from each point.

    Examples
    --------
    >>> from itofit import Bridge, FokkerPlanckProcess
    >>> model = FokkerPlanckProcess(solver=Bridge(structure="sparse"))
    >>> model.solver.structure
    'sparse'
    """

    name: ClassVar[str] = "bridge"
    prefers_cpu: ClassVar[bool] = True
    presets: ClassVar[dict[str, dict[str, Any]]] = {"default": {}}

    structure: str = Smooth.name
    n_features: int = 200
    n_passes: int = 16
    n_points: int = 512
    n_draws: int = 4

    def __post_init__(self):
        check_choice("structure", self.structure, STRUCTURES)
        for name in ("n_features", "n_passes", "n_points", "n_draws"):
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
    ) -> BridgeSolution:
        del checkpoints  # it is done in seconds: begun again rather than continued
        log = PassLog(self.n_passes + self.n_sparse, listeners)
        end = self.smooth(problem, log)
        if self.structure == Sparse.name:
            end = self.sparse(problem, end, log)
        return bridge_solution(problem, self.structure, end, log)

    def solve_again(
        self,
        solution: Solution,
        problem: Problem,
        *,
        listeners: Sequence[Listener] = (),
        checkpoints: CheckpointFolder | None = None,
    ) -> Solution:
        """The same: the step of a problem is that of its forecasts alone.

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

    def restore(
        self, problem: Problem, values: dict[str, Any], arrays: dict[str, np.ndarray]
    ) -> BridgeSolution:
        return restored_bridge(problem, values, arrays)

    @property
    def n_sparse(self) -> int:
        """Passes of a sparse drift."""
        return max(1, self.n_passes // 2) if self.structure == Sparse.name else 0

    def smooth(self, problem: Problem, log: PassLog) -> Pass:
        """The smooth drift, from rest.

        Parameters
        ----------
        problem : Problem
            What is asked.
        log : PassLog
            Told of every pass.

        Returns
        -------
        Pass
            Where the passes end.
        """
        structure = smooth_for(problem, self.n_features)
        return self._coupler(problem, structure).iterate(self.n_passes, note=log.note)

    def sparse(self, problem: Problem, smooth: Pass, log: PassLog) -> Pass:
        """A sparse drift, from the smooth one.

        Parameters
        ----------
        problem : Problem
            What is asked.
        smooth : Pass
            Where the passes of the smooth drift ended.
        log : PassLog
            Told of every pass.

        Returns
        -------
        Pass
            Where the passes end.
        """
        coupler = self._coupler(problem, sparse_for(problem))
        return coupler.iterate(max(1, self.n_passes // 2), smooth.process, log.note)

    def clocked(self, problem: Problem, smooth: Pass, log: PassLog) -> Pass:
        """A smooth drift that changes with time, from one that does not.

        Parameters
        ----------
        problem : Problem
            What is asked, of a drift that does not change.
        smooth : Pass
            Where the passes of that ended.
        log : PassLog
            Told of every pass.

        Returns
        -------
        Pass
            Where the passes end.
        """
        changing = problem.with_clock()
        coupler = self._coupler(changing, smooth_for(changing, self.n_features))
        return coupler.iterate(max(1, self.n_passes // 2), smooth.process, log.note)

    def confined(self, problem: Problem, smooth: Pass, log: PassLog) -> Pass:
        """A smooth drift that has a potential, from one that need not have one.

        Parameters
        ----------
        problem : Problem
            What is asked, of any drift.
        smooth : Pass
            Where the passes of that ended.
        log : PassLog
            Told of every pass.

        Returns
        -------
        Pass
            Where the passes end.
        """
        asked = problem.with_potential()
        coupler = self._coupler(asked, smooth_for(asked, self.n_features))
        return coupler.iterate(max(1, self.n_passes // 2), smooth.process, log.note)

    def _coupler(self, problem: Problem, structure: AbstractStructure) -> Coupler:
        return Coupler(problem, structure, Batching(self.n_points, self.n_draws))
