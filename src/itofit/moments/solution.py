"""What the moments solver returns: the process, and the linear algebra later questions need."""

import functools
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Bool, Float

from itofit.errors import InputError
from itofit.moments.evidence import Evidence
from itofit.moments.gauss_newton import State
from itofit.moments.library import Library, library_for
from itofit.moments.linearised import Linearised, Terms, linearised, state_of
from itofit.moments.options import MomentsOptions
from itofit.moments.probing import Probing
from itofit.moments.residuals import Residual
from itofit.moments.whitening import Whitening
from itofit.process.drift import AbstractLinearDrift
from itofit.process.features import Dictionary
from itofit.simulate.mesh import Mesh
from itofit.solution import Solution
from itofit.solve.records import drift_arrays, drift_values, noise_arrays, record_arrays

_PATHS = {
    "simulated": [],
    "observed": [
        "snapshots are dense in time: the observed clouds were the path, without simulation"
    ],
    "corrected": [
        "snapshots are dense in time: the observed clouds were the path, each gap corrected by a "
        "simulation"
    ],
}


@dataclass(frozen=True, eq=False)
class Valley:
    """Processes that explain the snapshots as well as the one of a solution, at its small end.

    All between the two ends do (`moments.valley`).

    - `axes`: coordinates whose noise differs along it.
    - `coefficients`, `theta`: of drift and noise at the large end.
    - `refused`: parts of the variance at the small end that are less, and more, than is allowed;
      0 and infinity where nothing was refused.
    """

    axes: Bool[np.ndarray, " n_dims"]
    coefficients: Float[np.ndarray, "n_features n_outputs"]
    theta: Float[np.ndarray, " n_parameters"]
    refused: Float[np.ndarray, " 2"]


@dataclass(frozen=True, eq=False, kw_only=True)
class MomentsSolution(Solution):
    """A solution of the moments solver, with the linear algebra at hand that later questions need.

    Parameters
    ----------
    problem : Problem
        What was asked.
    process : ItoProcess
        The fitted process, in the units of the problem.
    outcome : Outcome
        How the run ended.
    history : GaussNewtonHistory
        What was logged.
    n_iter : int
        Gauss-Newton steps taken.
    seconds : float
        How long it took.
    dt_error : float
        How far halving dt moves a mean or sd, in sds.
    solver : MomentsOptions
        The options it was solved with.
    dictionary : Dictionary
        The features in the model.
    evidence : Evidence or None
        What the linear algebra says at the solution; None where the run was interrupted.
    path : {"simulated", "observed", "corrected"}
        Between snapshots: simulated chains, the observed clouds, or these corrected by a simulation
        of each gap.
    mesh : Mesh
        Of the chains.
    final_residual : Residual or None
        The residual at the solution, where the run left it and it is not too large to be held.
    valley : Valley or None
        What else explains the snapshots as well, where they do not know the noise.

    Examples
    --------
    Of a fitted `model`:

    >>> solution = model.solution_
    >>> solution.path, solution.outcome.name
    ('corrected', 'converged')
    >>> len(solution.whitening.bases)
    2
    """

    solver: MomentsOptions
    dictionary: Dictionary
    evidence: Evidence | None
    path: str
    mesh: Mesh
    final_residual: Residual | None = None
    valley: Valley | None = None

    @property
    def terms(self) -> Terms:
        """What a fit that ended chose."""
        if self.evidence is None:
            raise InputError(
                expected="a moments fit that ended",
                found=f"one that did not: {self.outcome.value}",
                hint="fit again",
            )
        return Terms(self.dictionary, self.evidence, self.path)

    @functools.cached_property
    def probing(self) -> Probing:
        """The problem under the solver's probes, with the noise that was fitted."""
        return Probing(self.problem.with_noise(self.process.diffusion), self.solver, self.mesh)

    @functools.cached_property
    def library(self) -> Library:
        """What could have been in the model."""
        return library_for(self.problem, self.solver)

    @functools.cached_property
    def residual(self) -> Residual:
        """The residual of the path of this fit; parameters of the noise count from the fitted."""
        if self.final_residual is not None:
            return self.final_residual
        terms = self.terms
        residual = self.probing.on_path(terms.path, terms.dictionary, terms.evidence.gaps)
        return self.probing.without_step_bias(residual, self.process)

    @functools.cached_property
    def state(self) -> State:
        """The solution, every coefficient with its own precision."""
        n_noise = self.process.diffusion.n_parameters
        return state_of(self.terms, self.probing.speed, n_noise)

    @functools.cached_property
    def whitening(self) -> Whitening:
        """The covariance of the residuals at the solution."""
        return self.probing.whitening(self.residual, self.state.v)

    @functools.cached_property
    def linearised(self) -> Linearised:
        """The linear problem at the solution, what was left out of the drift beside it."""
        return linearised(
            self.probing,
            self.terms,
            self.residual,
            self.state,
            self.library,
            self.whitening,
        )

    def doubts(self) -> list[str]:
        evidence = self.evidence
        if evidence is None:
            return []
        if not evidence.can_judge:
            return [
                f"the fit cannot be judged: its drift takes all {int(np.sum(evidence.n_rows))} "
                "residuals that so few points allow; give more points or more snapshots"
            ]
        if not evidence.contradicted:
            return []
        return [
            f"chi-squared is {evidence.reduced_chi2:.1f} times its degrees of freedom: no drift of "
            f"this dictionary with this sigma explains the snapshots; {self._remedy}"
        ]

    def remarks(self) -> list[str]:
        return [*_PATHS[self.path], *self._said_of_noise]

    def values(self) -> dict[str, Any]:
        groups = self.dictionary.groups
        return {
            "path": self.path,
            "n_draws": self.solver.n_draws,
            "steps": self.mesh.counts.tolist(),
            "features": drift_values(self._drift),
            "groups": [[group.size, group.kind, list(group.coordinates)] for group in groups],
        }

    def arrays(self) -> dict[str, np.ndarray]:
        arrays = drift_arrays(self._drift) | noise_arrays(self.process.diffusion)
        if self.evidence is None:
            return arrays
        if self.valley is not None:
            arrays |= record_arrays("valley", self.valley)
        return arrays | record_arrays("evidence", self.evidence)

    @property
    def _said_of_noise(self) -> list[str]:
        """What the snapshots do not know of the noise."""
        if self.valley is None:
            return []
        pairs = zip(self.problem.observed.names, self.valley.axes, strict=True)
        names = ", ".join(name for name, among in pairs if among)
        return [
            f"the snapshots do not tell the noise of {names} from less: the least that they allow "
            "was taken, and error bars know of the rest (covariance_interval)"
        ]

    @property
    def _remedy(self) -> str:
        allows = self.solver.allows_clock(self.problem.snapshots.n_dims)
        may_vary = allows and not self.problem.time_varying
        trial = "try time_varying=True, " if may_vary else ""
        if self.problem.has_potential:
            return f"{trial}look at sigma, or leave out drift='potential': it may rotate"
        own = "give a dictionary of your own (solver=Moments(dictionary=...))"
        return f"{trial}look at sigma, or {own}" if trial else f"look at sigma or {own}"

    @property
    def _drift(self) -> AbstractLinearDrift:
        assert isinstance(self.process.drift, AbstractLinearDrift)
        return self.process.drift
