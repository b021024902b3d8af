"""What a fitted FokkerPlanckProcess says of its own reliability; each method hands over to a file of this room."""

from collections.abc import Sequence
from typing import Any

import jax
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from itofit.errors import InputError
from itofit.forecast import checked_times
from itofit.process.drift import FeatureDrift, members_of
from itofit.process.features import FunctionFeatures
from itofit.process.ito import ItoProcess
from itofit.simulate.mesh import Mesh
from itofit.snapshots.clouds import Snapshots
from itofit.snapshots.scaling import Scaling
from itofit.solve.dictionaries import library_for
from itofit.solve.evidence import Evidence
from itofit.solve.linearised import Linearised, linearised
from itofit.solve.options import MomentsOptions
from itofit.solve.outcome import Outcome
from itofit.solve.run import stacked
from itofit.solve.task import Task
from itofit.trust.bands import Bands, forecast_bands
from itofit.trust.goodness import GoodnessOfFit, goodness_of_fit
from itofit.trust.posterior import DriftDraws, draw_drifts


class TrustMethods:
    """The part of `FokkerPlanckProcess` that needs a finished fit and changes nothing."""

    snapshots_: Snapshots
    scaling_: Scaling
    standard_process_: ItoProcess
    evidence_: Evidence | None
    outcome_: Outcome
    solver_: str
    path_: str
    dt_: float
    seed_: int

    _linear: Linearised | None
    _drawn: DriftDraws | None

    @property
    def _automatic(self) -> bool:
        raise NotImplementedError

    def _check_fitted(self) -> None:
        raise NotImplementedError

    def _key(self, purpose: int) -> PRNGKeyArray:
        raise NotImplementedError

    def _moments_options(self) -> MomentsOptions:
        raise NotImplementedError

    def _standardised(self, x: Any) -> tuple[Float[Array, "n n_dims"], bool]:
        raise NotImplementedError

    def _forget(self) -> None:
        """Drop what was computed from an earlier fit."""
        self._linear = self._drawn = None

    def drift_std(self, x: Any) -> np.ndarray:
        """The standard error of g(x), at one state or at rows of states.

        Of a moments fit: over other particles of the same population, and over the terms that could have been in the
        drift (docs/trust.md). Of an ensemble: the standard deviation over its members, which is that of the training
        alone.
        """
        z, one = self._standardised(x)
        std = self.scaling_.sd * self._draws().spread(np.asarray(z))
        return std[0] if one else std

    def bands(
        self,
        times: Sequence[float] | np.ndarray,
        quantiles: Sequence[float] = (0.1, 0.5, 0.9),
        *,
        level: float = 0.95,
        start: str = "initial",
    ) -> Bands:
        """Means and quantiles of a forecast with standard errors and intervals of this coverage."""
        self._check_fitted()
        wanted = checked_times(times, float(self.snapshots_.times[0]))
        how = {"quantiles": quantiles, "level": level, "start": start, "key": self._key(6)}
        where = (self.scaling_, self.snapshots_, wanted, self.dt_)
        return forecast_bands(self._draws(), self.standard_process_.diffusion, *where, **how)

    def goodness_of_fit(self) -> GoodnessOfFit:
        """Whether the snapshots contradict the fitted process, interval by interval and in all; of a moments fit."""
        self._check_fitted()
        if self.evidence_ is None:
            raise InputError(
                expected="a moments fit that ended",
                found=f"one {self.solver_} fit: {self.outcome_.value}",
                hint="solver='moments'; for the adversarial solver see history_.criterion",
            )
        return goodness_of_fit(self.evidence_, self.snapshots_.times)

    def _draws(self) -> DriftDraws:
        """Drifts that could be the true one; found when they are first asked for."""
        self._check_fitted()
        if self._drawn is None:
            self._drawn = self._linear_draws() if self.solver_ == "moments" else self._member_draws()
        if self._drawn is None:
            raise InputError(
                expected="a moments fit that ended, or an ensemble",
                found=f"one {self.solver_} fit: {self.outcome_.value}",
                hint="solver='moments', or n_members=5",
            )
        return self._drawn

    def _linear_draws(self) -> DriftDraws | None:
        linear = self._linear_problem()
        return None if linear is None else draw_drifts(linear, self.seed_)

    def _linear_problem(self) -> Linearised | None:
        """The linear problem at the solution of a moments fit; made when it is first asked for."""
        drift, options = self.standard_process_.drift, self._moments_options()
        if self._linear is None and self.evidence_ is not None and isinstance(drift, FeatureDrift):
            # Many small steps and host linear algebra: a GPU only adds to them.
            with jax.default_device(jax.local_devices(backend="cpu")[0]):
                snapshots = self.scaling_.transform(self.snapshots_)
                mesh = Mesh.refine(snapshots.times, self.dt_)
                task = Task(snapshots, self.standard_process_.diffusion, mesh, options, self.seed_, not self._automatic)
                library = library_for(snapshots, self.scaling_, options, self.seed_)
                self._linear = linearised(task, library, drift, self.evidence_, self.path_)
        return self._linear

    def _member_draws(self) -> DriftDraws | None:
        members = members_of(drift := self.standard_process_.drift)
        return None if len(members) == 1 else DriftDraws.of_members(stacked(members), len(members), drift)

    def dictionary_coefficients(self) -> tuple[np.ndarray, np.ndarray]:
        """Coefficients of the user's own dictionary, in the user's units, and their standard errors.

        Both `(n_features, n_dims)`, the drift being `coefficients.T @ dictionary(x)`; features without evidence are 0.
        """
        self._check_fitted()
        drift, evidence = self.standard_process_.drift, self.evidence_
        features = drift.features if isinstance(drift, FeatureDrift) else None
        if not isinstance(features, FunctionFeatures) or evidence is None:
            raise InputError(
                expected="a fit with a dictionary of your own",
                found=f"one by the {self.solver_} solver's features",
                hint="options={'dictionary': lambda x: jnp.stack([1.0, x[0], x[0] ** 3])}",
            )
        kept = list(range(len(features.size)) if features.kept is None else features.kept)
        units = self.scaling_.sd / np.asarray(features.size, dtype=np.float64)[kept, None]
        values, errors = np.zeros((2, len(features.size), self.snapshots_.n_dims))
        values[kept] = units * evidence.coefficients
        errors[kept] = units * np.sqrt(np.diag(evidence.covariance)).reshape(evidence.coefficients.shape)
        return values, errors
