"""What a fit returns: a process, how the run ended, and what was logged on the way."""

import enum
from dataclasses import dataclass

import numpy as np

from itofit.process.ito import ItoProcess


class Outcome(enum.Enum):
    """How a run ended; the value is the sentence a user reads, remedy included."""

    converged = "converged: nothing improves the fit any further"
    budget = "stopped at the iteration budget before a plateau; a larger n_iter may still improve the fit"
    interrupted = "interrupted; the best state so far was kept, resume continues from a checkpoint where there is one"
    diverged = (
        "diverged: simulated points left the data's range by a factor of 1000 and the best state before that was "
        "kept; lower the learning rate, shorten dt, or use anchor='previous'"
    )
    non_finite = (
        "non-finite loss or weights, the best state before that was kept; lower the learning rate, shorten dt, or "
        "look for extreme values in the data"
    )

    @property
    def is_good(self) -> bool:
        """Whether the run ended by itself, not by a fault."""
        return self in (Outcome.converged, Outcome.budget)


@dataclass(frozen=True, eq=False)
class History:
    """What a run logged.

    - `loss`: sum of the adversary's values over the observed times, one an iteration.
    - `residuals`: the same per observed time, `(n_iter, n_targets)`: the critic values of networks, chi-squared by
      degree of freedom of ridges.
    - `evaluated_at`: iterations at which the criterion was read.
    - `criterion`: for ridges chi-squared by degree of freedom of a fixed family on all rows; for networks the root mean
      square weak residual of fixed cosines on held-out rows.
    - `slope`: largest |grad f| of networks on the training points, at most 1 up to the power iteration's lag; NaN for
      ridges.
    """

    loss: np.ndarray
    residuals: np.ndarray
    evaluated_at: np.ndarray
    criterion: np.ndarray
    slope: np.ndarray


@dataclass(frozen=True, eq=False)
class Fit:
    """A fitted process in the units the solver was given, and the story of the run."""

    process: ItoProcess
    outcome: Outcome
    history: History
    n_iter: int
    best_iter: int
    seconds: float
