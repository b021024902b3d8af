"""What the linear algebra at a solution of the moments solver says."""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int

from itofit.moments.gauss_newton import State, can_be_squared
from itofit.moments.relevance import EXCLUDED, Posterior
from itofit.moments.residuals import Residual
from itofit.moments.squares import SquaresLaw, law_at
from itofit.moments.whitening import Whitening

# Chi-squared by what is expected of it that contradicts a fit, beyond so many of its own sds.
_LARGE_EXCESS = 1.5
_SDS = 2.0 * np.sqrt(2.0)


@dataclass(frozen=True, eq=False)
class Evidence:
    """What the linear algebra at the solution says.

    Parameters
    ----------
    coefficients : array of shape (n_features, n_outputs)
        Of the features in the model, in standardised units of state per unit of time; outputs are
        the coordinates of the drift, or the one potential.
    covariance : array of shape (n_features * n_outputs, n_features * n_outputs)
        Of the flattened coefficients, given the precisions.
    precision : array of shape (n_features, n_outputs)
        Of the prior of the coefficients.
    ends : array of shape (n_transitions, 2)
        The snapshots every transition goes from and to.
    chi2 : array of shape (n_transitions,)
        Squared whitened residuals of every transition.
    n_rows : array of shape (n_transitions,)
        The number of these residuals.
    row_mean, row_variance : arrays of shape (n_transitions,)
        Mean and variance of the square of a residual at the truth (`moments.squares`).
    n_determined : array of shape (n_transitions,)
        How many of its rows the drift takes; in all, the coefficients that the data determine.
    alive : array of shape (n_groups, n_outputs)
        Which group of features is in the model for which output.

    Examples
    --------
    >>> import numpy as np
    >>> from itofit.moments.evidence import Evidence
    >>> evidence = Evidence(
    ...     coefficients=np.ones((2, 1)), covariance=np.eye(2), precision=np.ones((2, 1)),
    ...     ends=np.array([[0, 1], [1, 2]]), chi2=np.array([9.0, 8.0]), n_rows=np.array([10, 10]),
    ...     row_mean=np.ones(2), row_variance=np.full(2, 2.0), n_determined=np.array([1.5, 1.5]),
    ...     alive=np.ones((2, 1), dtype=bool),
    ... )
    >>> evidence.reduced_chi2, evidence.gaps
    (1.0, [0, 1])
    """

    coefficients: Float[np.ndarray, "n_features n_outputs"]
    covariance: Float[np.ndarray, "n_coefficients n_coefficients"]
    precision: Float[np.ndarray, "n_features n_outputs"]
    ends: Int[np.ndarray, "n_transitions 2"]
    chi2: Float[np.ndarray, " n_transitions"]
    n_rows: Int[np.ndarray, " n_transitions"]
    row_mean: Float[np.ndarray, " n_transitions"]
    row_variance: Float[np.ndarray, " n_transitions"]
    n_determined: Float[np.ndarray, " n_transitions"]
    alive: np.ndarray

    @property
    def reduced_chi2(self) -> float:
        """Chi-squared by degree of freedom.

        About 1 for a model that fits, less where snapshots share particles; NaN where there is less
        than one degree of freedom to judge by.
        """
        return float(np.sum(self.chi2)) / self.n_free if self.can_judge else np.nan

    @property
    def n_free(self) -> float:
        """Degrees of freedom: residuals minus the coefficients they determine; 0 at the least."""
        return float(np.sum(self.freedom))

    @property
    def freedom(self) -> Float[np.ndarray, " n_transitions"]:
        """The same by transition."""
        return np.maximum(self.n_rows - self.n_determined, 0.0)

    @property
    def can_judge(self) -> bool:
        """Whether degrees of freedom are left to judge the fit by."""
        return self.n_free >= 1.0

    @property
    def law(self) -> SquaresLaw:
        """The law of a row's square at the truth."""
        return SquaresLaw(self.row_mean, self.row_variance)

    @property
    def excess(self) -> float:
        """Chi-squared over its mean at the truth; NaN where nothing can be judged."""
        if not self.can_judge:
            return np.nan
        return float(np.sum(self.chi2) / np.sum(self.freedom * self.row_mean))

    @property
    def contradicted(self) -> bool:
        """Whether chi-squared is far above what is expected of a true model."""
        sd = np.sqrt(np.sum(self.freedom * self.row_variance))
        allowed = _LARGE_EXCESS * np.sum(self.freedom * self.row_mean) + _SDS * sd
        return self.can_judge and bool(np.sum(self.chi2) > allowed)

    @property
    def widening(self) -> float:
        """By how much errors are larger than the points alone make them: 1 unless contradicted."""
        return float(np.sqrt(self.excess)) if self.contradicted else 1.0

    @property
    def gaps(self) -> list[int]:
        """The snapshot every transition starts at."""
        return [int(start) for start, _ in self.ends]


def evidence_at(
    residual: Residual,
    state: State,
    whitening: Whitening,
) -> Evidence | None:
    """The evidence at a state, of whitened residuals y and their Jacobian J there.

    None where chains run away.
    """
    alive = state.prior.alive
    y = whitening(state.read(residual))
    J = residual.jacobian(state.v, whitening, np.flatnonzero(alive))
    if not can_be_squared(y, J):
        return None
    inside = Posterior(J, state.prior.diagonal[alive]).covariance()
    covariance = np.zeros((len(alive), len(alive)))
    covariance[np.ix_(alive, alive)] = inside
    n_rows = np.asarray([len(basis) for basis in whitening.bases])
    first_row = np.concatenate([[0], np.cumsum(n_rows)[:-1]])
    leverage = np.sum((J @ inside) * J, axis=1)
    n_outputs = residual.n_outputs
    count = residual.n_coefficients
    precision = np.minimum(state.prior.diagonal[:count], EXCLUDED)
    law = law_at(residual.spreads(state.v), whitening)
    sizes = [group.size for group in residual.dictionary.groups]
    first_feature = np.cumsum([0, *sizes])[:-1]
    return Evidence(
        coefficients=residual.speed * state.v[:count].reshape(-1, n_outputs),
        covariance=residual.speed**2 * covariance[:count, :count],
        precision=precision.reshape(-1, n_outputs),
        ends=np.asarray(residual.ends),
        chi2=np.add.reduceat(y**2, first_row),
        n_rows=n_rows,
        row_mean=law.mean,
        row_variance=law.variance,
        n_determined=np.add.reduceat(leverage, first_row),
        alive=alive[:count].reshape(-1, n_outputs)[first_feature],
    )
