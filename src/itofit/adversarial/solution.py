"""What the adversarial solver returns: the process, or the mean of an ensemble of them."""

from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from itofit.adversarial.training import TrainedRun
from itofit.problem import Problem
from itofit.process.drift import (
    AbstractDrift,
    AbstractLinearDrift,
    CorrectedDrift,
    MeanDrift,
    stacked,
)
from itofit.process.ito import ItoProcess
from itofit.process.noise import mean_noise
from itofit.solution import Outcome, Solution, TrainingHistory
from itofit.solve.checkpoint import named_arrays
from itofit.solve.records import drift_arrays, drift_values, noise_arrays


@dataclass(frozen=True, eq=False, kw_only=True)
class AdversarialSolution(Solution):
    """A solution of the adversarial solver; the drift of an ensemble is the mean of its members."""

    @classmethod
    def of(cls, problem: Problem, runs: list[TrainedRun]) -> "AdversarialSolution":
        """One solution of several runs: the mean drift and history, and the worst ending."""
        worst = max(runs, key=_badness)
        return cls(
            problem=problem,
            process=_mean_process([run.process for run in runs]),
            outcome=worst.outcome,
            history=_mean_history([run.history for run in runs]),
            n_iter=runs[0].n_iter,
            seconds=runs[0].seconds,
        )

    def doubts(self) -> list[str]:
        return []

    def remarks(self) -> list[str]:
        return []

    def values(self) -> dict[str, Any]:
        drift = self.process.drift
        base = drift.base if isinstance(drift, CorrectedDrift) else None
        return {"features": drift_values(base) if isinstance(base, AbstractLinearDrift) else []}

    def arrays(self) -> dict[str, np.ndarray]:
        drift = self.process.drift
        arrays = noise_arrays(self.process.diffusion)
        if not isinstance(drift, CorrectedDrift):
            return arrays | named_arrays(drift, "drift")
        assert isinstance(drift.base, AbstractLinearDrift)
        return arrays | named_arrays(drift.correction, "drift") | drift_arrays(drift.base)


def _badness(run: TrainedRun) -> tuple[bool, bool]:
    return not run.outcome.is_good, run.outcome is Outcome.budget


def _mean_process(processes: list[ItoProcess]) -> ItoProcess:
    if len(processes) == 1:
        return processes[0]
    drift = _mean_drift([process.drift for process in processes])
    return ItoProcess(drift, mean_noise([process.diffusion for process in processes]))


def _mean_drift(drifts: list[AbstractDrift]) -> AbstractDrift:
    first = drifts[0]
    if not isinstance(first, CorrectedDrift):
        return MeanDrift(stacked(drifts))
    corrections = [drift.correction for drift in drifts if isinstance(drift, CorrectedDrift)]
    return CorrectedDrift(first.base, MeanDrift(stacked(corrections)))


def _mean_history(histories: list[TrainingHistory]) -> TrainingHistory:
    if len(histories) == 1:
        return histories[0]
    names = [field.name for field in fields(TrainingHistory)]
    return TrainingHistory(
        **{name: np.mean([getattr(one, name) for one in histories], axis=0) for name in names}
    )
