"""What a solver returns: a process, how the run ended, and what was logged on the way."""

import abc
import enum
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeVar

import numpy as np

from itofit.problem import Problem
from itofit.process.ito import ItoProcess

Answer = TypeVar("Answer")


class Outcome(enum.Enum):
    """How a run ended; the value is the sentence a user reads, remedy included.

    Examples
    --------
    >>> from itofit import Outcome
    >>> Outcome.converged.is_good
    True
    """

    converged = "converged: nothing improves the fit any further"
    budget = (
        "stopped at the iteration budget before a plateau; a larger n_iter may still improve the "
        "fit"
    )
    interrupted = (
        "interrupted; the best state so far was kept, resume continues from a checkpoint where "
        "there is one"
    )
    contradicted = (
        "contradicted: nothing improves the fit any further, and it misses the snapshots it was "
        "fitted to; look for a snapshot that does not belong with the others, or try another sigma "
        "or solver"
    )
    unjudged = (
        "unjudged: nothing improves the fit any further, and it takes every degree of freedom, so "
        "that no snapshot can contradict it; give more points or more snapshots"
    )
    diverged = (
        "diverged: simulated points left the data's range by a factor of 1000 and the best state "
        "before that was kept; lower the learning rate, shorten dt, or use anchor='previous'"
    )
    non_finite = (
        "non-finite loss or weights, the best state before that was kept; lower the learning rate, "
        "shorten dt, or look for extreme values in the data"
    )

    @property
    def is_good(self) -> bool:
        """Whether the run ended by itself, not by a fault; a process that ended so may be wrong."""
        return self in _BY_THEMSELVES


_BY_THEMSELVES = (
    Outcome.converged,
    Outcome.budget,
    Outcome.contradicted,
    Outcome.unjudged,
)


class Phase(enum.IntEnum):
    """What a step of the moments solver belonged to."""

    aim = 0
    select = 1
    polish = 2
    observed_path = 3

    @property
    def label(self) -> str:
        """In words, for pictures."""
        return _LABELS[self]


_LABELS = {
    Phase.aim: "means and covariances",
    Phase.select: "forward selection",
    Phase.polish: "polish",
    Phase.observed_path: "on the observed path",
}


@dataclass(frozen=True, eq=False)
class GaussNewtonHistory:
    """What the moments solver logged, one value an iteration.

    - `phase`: a `Phase`. `temperature`: by which residuals were divided.
    - `objective`: half the squared whitened residuals and the prior. `chi2`: squared residuals a
      row, at temperature 1.
    - `n_groups`: groups of features (times outputs) in the model.
    """

    phase: np.ndarray
    temperature: np.ndarray
    objective: np.ndarray
    chi2: np.ndarray
    n_groups: np.ndarray


@dataclass(frozen=True, eq=False)
class TrainingHistory:
    """What a run of the adversarial solver logged.

    - `loss`: sum of the adversary's values over the observed times, one an iteration.
    - `residuals`: the same per observed time, `(n_iter, n_targets)`: the critic values of networks,
      chi-squared by degree of freedom of ridges.
    - `evaluated_at`: iterations at which the criterion was read.
    - `criterion`: for ridges chi-squared by degree of freedom of a fixed family on all rows; for
      networks the root mean square weak residual of fixed cosines on held-out rows.
    - `slope`: largest |grad f| of networks on the training points, at most 1 up to the power
      iteration's lag; NaN for ridges.
    """

    loss: np.ndarray
    residuals: np.ndarray
    evaluated_at: np.ndarray
    criterion: np.ndarray
    slope: np.ndarray


@dataclass(frozen=True, eq=False)
class BridgeHistory:
    """What the bridge solver logged, one value a pass.

    - `missed`: squares of what the flow misses at the next snapshot, over those expected of the
      noise.
    """

    missed: np.ndarray


@dataclass(frozen=True, eq=False)
class Judgement:
    """How the ways to forecast did on a snapshot that was left out.

    - `scores`: by way, the energy distance of its forecast to the points left out, in units of the
      mean distance between these.
    """

    time: float
    beyond: bool
    scores: dict[str, float]


@dataclass(frozen=True, eq=False)
class Selection:
    """What judging chose: processes, and how much each way to forecast counts.

    - `processes`: the candidates fitted to all snapshots, in the units of the problem, by name.
    - `between`, `beyond`: weights of the ways between snapshots, and after the last.
    - `judgements`: the snapshots left out to find them.
    - `chosen`: the candidate that is the process of the fit, and `why`.
    - `thinning`: how many points were looked at where that were not all of them.
    """

    processes: dict[str, ItoProcess]
    between: dict[str, float]
    beyond: dict[str, float]
    judgements: tuple[Judgement, ...] = ()
    chosen: str = ""
    why: str = ""
    thinning: str = ""

    @property
    def line(self) -> str:
        """What was chosen, and why."""
        judges = (
            f"judged on {len(self.judgements)} snapshots left out"
            if self.judgements
            else ("nothing to judge by")
        )
        thinned = f"; {self.thinning}" if self.thinning else ""
        return (
            f"{self.chosen} drift, {self.why}; forecasts ({judges}): "
            f"between snapshots {_shares(self.between)}; after the last {_shares(self.beyond)}"
            f"{thinned}"
        )

    def __str__(self) -> str:
        lines = [f"between snapshots: {_shares(self.between)}"]
        lines.append(f"after the last: {_shares(self.beyond)}")
        if not self.judgements:
            return "\n".join([*lines, "nothing was left out: too few snapshots to judge by"])
        names = list(self.judgements[0].scores)
        head = f"{'left out':>14}" + "".join(f"{name:>18}" for name in names)
        lines += ["energy distance to a snapshot left out, in mean distances of its points:", head]
        for row in self.judgements:
            place = f"{row.time:g}{' (last)' if row.beyond else ''}"
            lines.append(f"{place:>14}" + "".join(f"{row.scores[n]:>18.4f}" for n in names))
        return "\n".join(lines)


def _shares(weights: dict[str, float]) -> str:
    """Those that count, the largest first."""
    order = sorted(weights.items(), key=lambda item: -item[1])
    return ", ".join(f"{100 * w:.0f} % {name}" for name, w in order if w > 0.005)


@dataclass(frozen=True, eq=False, kw_only=True)
class Solution(abc.ABC):
    """A fitted process in the units of its problem, and the story of the run.

    - `dt_error`: how far halving dt moves a mean or sd, in sds.
    - `selection`: what judging chose; None where nothing was judged.
    - `answers`: what later questions computed of it once and may ask for again.
    """

    problem: Problem
    process: ItoProcess
    outcome: Outcome
    history: GaussNewtonHistory | TrainingHistory | BridgeHistory
    n_iter: int
    seconds: float
    dt_error: float = float("nan")
    selection: Selection | None = None
    answers: dict[str, Any] = field(init=False, repr=False, default_factory=dict)

    @abc.abstractmethod
    def doubts(self) -> list[str]:
        """What a user should be warned of, in sentences that name a remedy."""

    @abc.abstractmethod
    def remarks(self) -> list[str]:
        """What a user may like to know of how it was found."""

    @abc.abstractmethod
    def values(self) -> dict[str, Any]:
        """What JSON can hold of it, for a run folder."""

    @abc.abstractmethod
    def arrays(self) -> dict[str, np.ndarray]:
        """The arrays of it, for a run folder."""

    def remembered(self, name: str, work_out: Callable[[], Answer]) -> Answer:
        """An answer worked out when it is first asked for."""
        if name not in self.answers:
            self.answers[name] = work_out()
        return self.answers[name]
