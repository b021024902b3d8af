"""What a run of the moments solver leaves: its log, and what the linear algebra says."""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int


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
      given the relevances; in standardised units of state per unit of time. `precision`: of their prior.
    - `ends`, `chi2`, `n_rows`: by flight, the snapshots it goes from and to, its squared whitened residuals and
      their number; `n_points`: effective points of both ends, from which their covariance is known; `n_determined`:
      how many of its rows the drift takes, in all the number of coefficients the data determine.
    - `alive`: which (group, output) is in the model, `(n_groups, n_dims)`.
    """

    coefficients: Float[np.ndarray, "n_features n_dims"]
    covariance: Float[np.ndarray, "n_coefficients n_coefficients"]
    precision: Float[np.ndarray, "n_features n_dims"]
    ends: Int[np.ndarray, "n_flights 2"]
    chi2: Float[np.ndarray, " n_flights"]
    n_rows: Int[np.ndarray, " n_flights"]
    n_points: Float[np.ndarray, " n_flights"]
    n_determined: Float[np.ndarray, " n_flights"]
    alive: np.ndarray

    @property
    def misfit(self) -> float:
        """Chi-squared by degree of freedom: about 1 for a model that fits, less where snapshots share particles."""
        return float(np.sum(self.chi2)) / self.n_free

    @property
    def n_free(self) -> float:
        """Degrees of freedom: residuals minus the coefficients they determine."""
        return max(1.0, float(np.sum(self.n_rows)) - float(np.sum(self.n_determined)))
