"""What the bridge solver returns: a process, with no linear algebra behind it for error bars."""

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from itofit.bridge.iteration import Pass
from itofit.bridge.misses import worst_miss
from itofit.problem import Problem
from itofit.process.drift import AbstractLinearDrift
from itofit.process.ito import ItoProcess
from itofit.solution import BridgeHistory, Outcome, Solution
from itofit.solve.listeners import Listener, Progress
from itofit.solve.records import (
    Ending,
    drift_arrays,
    drift_of,
    drift_values,
    noise_arrays,
    record_of,
    restored_noise,
)


@dataclass(frozen=True, eq=False, kw_only=True)
class BridgeSolution(Solution):
    """A solution of the bridge solver.

    - `structure`: "smooth", "sparse", or "polished" of one polished on a part of the points.
    - `contradictions`: what can be said against it: the snapshot it misses most, and what a test of
      the polished process said.
    """

    structure: str
    contradictions: tuple[str, ...] = ()

    def doubts(self) -> list[str]:
        return list(self.contradictions)

    def remarks(self) -> list[str]:
        return []

    def values(self) -> dict[str, Any]:
        return {
            "structure": self.structure,
            "features": drift_values(self._drift),
            "contradictions": list(self.contradictions),
        }

    def arrays(self) -> dict[str, np.ndarray]:
        return drift_arrays(self._drift) | noise_arrays(self.process.diffusion)

    @property
    def _drift(self) -> AbstractLinearDrift:
        assert isinstance(self.process.drift, AbstractLinearDrift)
        return self.process.drift


@dataclass(eq=False)
class PassLog:
    """What passes are told of, and who listens."""

    n_total: int
    listeners: Sequence[Listener]
    missed: list[float] = field(default_factory=list)
    began: float = field(default_factory=time.perf_counter)

    def note(self, missed: float) -> None:
        """A pass is done."""
        self.missed.append(missed)
        n_done = len(self.missed)
        progress = Progress(
            n_done=n_done,
            n_total=max(n_done, self.n_total),
            rate=n_done / max(self.seconds, 1e-9),
            loss=missed,
            residuals=(),
            criterion=missed,
            best_criterion=min(self.missed),
            slope=float("nan"),
        )
        for listener in self.listeners:
            listener(progress)

    @property
    def seconds(self) -> float:
        """Since it began."""
        return time.perf_counter() - self.began


def bridge_solution(problem: Problem, structure: str, end: Pass, log: PassLog) -> BridgeSolution:
    """The solution that passes end in."""
    coefficients = np.asarray(getattr(end.process.drift, "coefficients", np.nan))
    is_finite = bool(np.all(np.isfinite(coefficients)))
    miss = worst_miss(problem, end.process) if is_finite else None
    passes = Outcome.converged if miss is None else Outcome.contradicted
    return BridgeSolution(
        problem=problem,
        process=end.process,
        outcome=passes if is_finite else Outcome.non_finite,
        history=BridgeHistory(np.asarray(end.missed)),
        n_iter=len(end.missed),
        seconds=log.seconds,
        structure=structure,
        contradictions=() if miss is None else (str(miss),),
    )


def restored_bridge(
    problem: Problem, values: dict[str, Any], arrays: dict[str, np.ndarray]
) -> BridgeSolution:
    """A solution as it was saved."""
    ending = Ending.of(values)
    drift = drift_of(values["features"], arrays, problem.clock)
    return BridgeSolution(
        problem=problem,
        process=ItoProcess(drift, restored_noise(problem, arrays)),
        outcome=ending.outcome,
        history=record_of(BridgeHistory, "history", arrays),
        n_iter=ending.n_iter,
        seconds=ending.seconds,
        dt_error=ending.dt_error,
        structure=values["structure"],
        contradictions=tuple(values["contradictions"]),
    )
