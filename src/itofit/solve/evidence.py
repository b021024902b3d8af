"""What a run of the moments solver leaves: its log, what the linear algebra says, and the fitted process."""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from itofit.process.features import Dictionary
from itofit.process.ito import ItoProcess
from itofit.solve.outcome import Outcome


@dataclass(frozen=True, eq=False)
class GaussNewtonHistory:
    """What the moments solver logged, one value an iteration.

    - `phase`: 0 aim, 1 grow, 2 polish, 3 on the seen path. `temperature`: by which residuals were divided.
    - `objective`: half the squared whitened residuals and the prior. `chi2`: squared residuals a row, at temperature 1.
    - `n_groups`: groups of features (times outputs) in the model.
    """

    phase: np.ndarray
    temperature: np.ndarray
    objective: np.ndarray
    chi2: np.ndarray
    n_groups: np.ndarray


@dataclass(frozen=True, eq=False)
class Evidence:
    """What the linear algebra at the solution says.

    - `coefficients`, `covariance`: of the features that were kept, `(n_features, n_dims)` and of its flattening,
      given the relevances; in standardised units of state per unit of time.
    - `chi2`, `n_rows`: squared whitened residuals and their number, by flight. `n_determined`: sum of gamma, the
      number of coefficients the data determine.
    - `alive`: which (group, output) is in the model, `(n_groups, n_dims)`.
    """

    coefficients: Float[np.ndarray, "n_features n_dims"]
    covariance: Float[np.ndarray, "n_coefficients n_coefficients"]
    chi2: Float[np.ndarray, " n_flights"]
    n_rows: np.ndarray
    n_determined: Float[np.ndarray, ""]
    alive: np.ndarray

    @property
    def misfit(self) -> float:
        """Chi-squared by degree of freedom: about 1 for a model that fits, less where snapshots share particles."""
        return float(np.sum(self.chi2)) / self.n_free

    @property
    def n_free(self) -> float:
        """Degrees of freedom: residuals minus the coefficients they determine."""
        return max(1.0, float(np.sum(self.n_rows)) - float(self.n_determined))


@dataclass(frozen=True, eq=False)
class MomentsFit:
    """A fitted process in the units the solver was given, and the story of the run.

    `path`: what lay between snapshots: `"simulated"` chains, the `"seen"` clouds, or the seen clouds `"corrected"` by
    a simulation of each gap.
    """

    process: ItoProcess
    outcome: Outcome
    history: GaussNewtonHistory
    n_iter: int
    seconds: float
    dictionary: Dictionary
    evidence: Evidence | None
    path: str
