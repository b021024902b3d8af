"""What a fitted FokkerPlanckProcess says of its own reliability; each method hands over to a file of this room."""

import warnings
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import jax
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray
from sklearn.base import clone

from itofit.errors import FitWarning, InputError
from itofit.forecast import checked_times, resampled, start_before
from itofit.process.diffusion import AbstractDiffusion
from itofit.process.drift import FeatureDrift, members_of
from itofit.process.features import MANY_DIMS, Dictionary, FunctionFeatures
from itofit.process.ito import ItoProcess
from itofit.process.noise import is_learned
from itofit.simulate.mesh import Mesh
from itofit.snapshots.clouds import Snapshot, Snapshots, numeric_times
from itofit.snapshots.scaling import Scaling
from itofit.solve.dictionaries import library_for
from itofit.solve.evidence import Evidence
from itofit.solve.linearised import Linearised, dictionary_of, linearised
from itofit.solve.moments import refit
from itofit.solve.options import MomentsOptions
from itofit.solve.outcome import Outcome
from itofit.solve.reference import Reference, mean_slopes, reference
from itofit.solve.run import stacked
from itofit.solve.task import Task
from itofit.solve.whitening import Whitening
from itofit.trust.bands import Bands, forecast_bands
from itofit.trust.equations import checked_degree, find_equations
from itofit.trust.goodness import GoodnessOfFit, SquaresLaw, goodness_of_fit, law_of_squares
from itofit.trust.identifiability import Identifiability, determined, identifiability, third_snapshot
from itofit.trust.next_snapshot import NextSnapshot, left_over
from itofit.trust.noise import covariances, interval_of
from itofit.trust.posterior import DriftDraws, draw_drifts
from itofit.trust.printed import Equations
from itofit.trust.report import report
from itofit.trust.sensitivity import Refit, Sensitivity, sigma_sensitivity, sigmas, standard_diffusion, telling_times
from itofit.trust.steps import StepError, step_error

# Start points of the forecasts that show what a step or a sigma does.
_MOST_STARTS = 1000


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
    sigma: Any

    _linear: Linearised | None
    _drawn: DriftDraws | None
    _law: SquaresLaw | None

    @property
    def _automatic(self) -> bool:
        raise NotImplementedError

    def drift(self, x: Any, time: Any = None) -> np.ndarray:
        """g(x), or g(x, t)."""
        raise NotImplementedError

    def _when(self, time: Any, n: int) -> Float[Array, " n"]:
        raise NotImplementedError

    def covariance(self, x: Any) -> np.ndarray:
        """S(x) S(x)'."""
        raise NotImplementedError

    def _check_fitted(self) -> None:
        raise NotImplementedError

    def _key(self, purpose: int) -> PRNGKeyArray:
        raise NotImplementedError

    def _moments_options(self) -> MomentsOptions:
        raise NotImplementedError

    def _carry(self, times: np.ndarray, n_samples: int | None, start: str, first: Snapshot | None) -> Snapshots:
        raise NotImplementedError

    def _standardised(self, x: Any) -> tuple[Float[Array, "n n_dims"], bool]:
        raise NotImplementedError

    def _forget(self) -> None:
        """Drop what was computed from an earlier fit."""
        self._linear = self._drawn = self._law = None

    def drift_std(self, x: Any, time: Any = None) -> np.ndarray:
        """The standard error of g(x), at one state or at rows of states; of a drift that changes with time, of g(x, t).

        Of a moments fit: over other particles of the same population, and over the terms that could have been in the
        drift (docs/trust.md). Of an ensemble: the standard deviation over its members, which is that of the training
        alone.
        """
        z, one = self._standardised(x)
        std = self.scaling_.sd * self._draws().spread(np.asarray(z), np.asarray(self._when(time, len(z))))
        return std[0] if one else std

    def covariance_std(self, x: Any) -> np.ndarray:
        """The standard error of a(x) = S(x) S(x)' of a learned noise, at one state or at rows of states.

        Half the width of what holds 68 % of the draws: scales are drawn in their logarithm, and where they are hardly
        known a root mean square would be that of a single draw.
        """
        z, one = self._standardised(x)
        low, high = np.quantile(self._noise_draws(z), (0.1587, 0.8413), axis=0)
        return 0.5 * (high - low)[0] if one else 0.5 * (high - low)

    def covariance_interval(self, x: Any, level: float = 0.95) -> tuple[np.ndarray, np.ndarray]:
        """Lower and upper ends about a(x) of a learned noise; on the diagonal, which is positive, in its logarithm."""
        z, one = self._standardised(x)
        if not 0.0 < level < 1.0:
            raise InputError(expected="a level between 0 and 1", found=f"{level!r}", hint="0.95")
        found = interval_of(self._noise_draws(z), self._noise_draws(z, fitted=True)[0], level)
        return (found[0][0], found[1][0]) if one else found

    def _noise_draws(self, z: Float[Array, "n n_dims"], fitted: bool = False) -> np.ndarray:
        """Draws of a(x) in the user's units, or what was fitted."""
        diffusion, draws = self.standard_process_.diffusion, self._draws()
        if draws.seed is None or not diffusion.n_parameters:
            raise InputError(
                expected="a noise learned by the moments solver",
                found=f"sigma={self.sigma!r} and solver {self.solver_}",
                hint="sigma='learn', solver='moments'",
            )
        moved = np.zeros((1, diffusion.n_parameters)) if fitted else draws.noise
        sd = self.scaling_.sd
        return sd[:, None] * covariances(diffusion, moved, z) * sd

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
        evidence = self._ended("solver='moments'; for the adversarial solver see history_.criterion")
        return goodness_of_fit(evidence, self.snapshots_.times, self._squares_law())

    def reliability(self) -> str:
        """All that can be said of how far to believe the fit, in a few lines."""
        self._check_fitted()
        return report(self)

    def equations(self, degree: int = 3) -> Equations:
        """The drift as a polynomial in the user's units: the terms the snapshots ask for, with standard errors.

        Terms are chosen among all products of up to `degree` coordinates and fitted to the snapshots anew, beginning at
        the fitted drift, be it of the moments or the adversarial solver. `p_value` says whether such a polynomial
        explains the snapshots.
        """
        self._check_fitted()
        self._check_autonomous("equations")
        checked_degree(degree, self.snapshots_.n_dims)
        if self.evidence_ is None and self.path_ != "simulated":
            raise InputError(
                expected="a moments fit that ended", found=f"one that did not: {self.outcome_.value}", hint="fit again"
            )
        options = self._moments_options() if self.solver_ == "moments" else MomentsOptions()
        gaps = [] if self.evidence_ is None else [int(a) for a, _ in self.evidence_.ends]
        with jax.default_device(jax.local_devices(backend="cpu")[0]):
            snapshots, process = self.scaling_.transform(self.snapshots_), self.standard_process_
            mesh = Mesh.refine(snapshots.times, self.dt_)
            task = Task(snapshots, process.diffusion, mesh, options, self.seed_, not self._automatic)
            return find_equations(task, process.drift, self.path_, gaps, self.scaling_, degree)

    def identifiability(self, *, sigma_known: bool | None = None) -> Identifiability:
        """What the snapshots do not determine of the drift, whatever the fit chose; of a moments fit.

        With `sigma_known=False`, the default where it was learned, sigma is an unknown beside the drift.
        """
        evidence = self._ended()
        self._check_autonomous("identifiability")
        sigma_known = not is_learned(self.sigma) if sigma_known is None else sigma_known
        with jax.default_device(jax.local_devices(backend="cpu")[0]):
            task = self._task(self.standard_process_.diffusion)
            known = self._terms(task)
            problem = reference(task, known, evidence, self.path_)
            found = identifiability(
                problem, task.snapshots, self.scaling_, self.snapshots_.names, sigma_known=sigma_known
            )
            if len(self.snapshots_) > 2:
                return found
            first, last = (float(t) for t in self.snapshots_.times)
            shares = {}
            for time in (0.5 * (first + last), last + 0.5 * (last - first)):
                more = self._seen_further(problem, known, time, int(np.mean(self.snapshots_.counts)))
                shares[time] = determined(more, sigma_known=sigma_known)
            return replace(found, notes=(*found.notes, third_snapshot(found.determined, shares)))

    def next_snapshot(
        self, candidates: Sequence[float] | np.ndarray, forecast: float, n_points: int | None = None
    ) -> NextSnapshot:
        """Of these times, the one at which a further snapshot would reduce the variance of the forecast's means most.

        `n_points` of that snapshot are by default as many as the others have on average. Of a moments fit.
        """
        evidence = self._ended()
        self._check_autonomous("next_snapshot")
        begin, taken = float(self.snapshots_.times[0]), self.snapshots_.times
        times = np.unique(numeric_times(candidates))
        if len(times) == 0 or not np.all(times > begin) or np.any(np.isin(times, taken)):
            raise InputError(
                expected=f"candidates after the first snapshot (t = {begin:g}) at which there is none yet",
                found=f"{candidates!r}",
                hint="[0.5, 1.5]",
            )
        if n_points is not None and n_points < 2:
            raise InputError(expected="n_points of at least 2", found=f"{n_points!r}", hint="leave it out")
        wanted, count = float(self._wanted([forecast])[0]), n_points or int(np.mean(self.snapshots_.counts))
        with jax.default_device(jax.local_devices(backend="cpu")[0]):
            task = self._task(self.standard_process_.diffusion)
            known = self._terms(task)
            problem = reference(task, known, evidence, self.path_)
            first = task.snapshots.at(float(task.snapshots.times[0]))
            onward = self._task_between(first, wanted, len(first.points), "initial")
            slopes = mean_slopes(onward, known, evidence, problem)
            after = [self._seen_further(problem, known, float(t), count) for t in times]
            before = left_over(slopes, problem.covariance())
            # The information of few points is known with noise, but no snapshot takes any away.
            left = np.asarray([min(before, left_over(slopes, one.covariance())) for one in after])
            return NextSnapshot(wanted, count, times, before, left)

    def _ended(self, hint: str = "solver='moments'") -> Evidence:
        """The evidence of a moments fit, or a refusal."""
        self._check_fitted()
        if self.evidence_ is None:
            found = f"one {self.solver_} fit: {self.outcome_.value}"
            raise InputError(expected="a moments fit that ended", found=found, hint=hint)
        return self.evidence_

    def _check_autonomous(self, what: str) -> None:
        if self.standard_process_.drift.varies:
            raise InputError(
                expected=f"for {what}, a drift that is the same at all times",
                found="one that changes with time",
                hint="fit with time_varying=False",
            )

    def _seen_further(self, problem: Reference, known: Dictionary, time: float, n_points: int) -> Reference:
        """The reference problem with one more snapshot, as the fitted process predicts it."""
        assert self.evidence_ is not None
        before = start_before(self.scaling_.transform(self.snapshots_), time, "previous")
        task = self._task_between(before, time, n_points, "previous")
        return problem.joined(reference(task, known, self.evidence_, like=problem))

    def _task_between(self, first: Snapshot, time: float, n_points: int, start: str) -> Task:
        """From a standardised snapshot to the cloud that the fitted process predicts for that time."""
        cloud = self._carry(np.asarray([time]), n_points, start, None).clouds[0]
        clouds = [first.points, self.scaling_.standardise(cloud)]
        snapshots = Snapshots.from_arrays(clouds, [first.time, time], [first.weights, None])
        mesh = Mesh.refine(snapshots.times, self.dt_)
        options, diffusion = self._moments_options(), self.standard_process_.diffusion
        return Task(snapshots, diffusion, mesh, options, self.seed_, not self._automatic)

    def sensitivity(
        self,
        sigma: Any,
        times: Sequence[float] | np.ndarray | None = None,
        *,
        full: bool = False,
    ) -> Sensitivity:
        """How drift and forecast change with the sigma assumed, and which sigmas the snapshots exclude.

        Each entry of `sigma` is what the estimator takes as `sigma`. The terms of the fitted drift are kept and fitted
        anew for each; with `full` every fit begins anew and chooses its terms, which takes as long as the fit. Without
        `times`: up to four of the snapshots' and half a span beyond the last.
        """
        evidence = self._ended("solver='moments'; or fit once for each sigma and compare the forecasts")
        wanted = telling_times(self.snapshots_) if times is None else self._wanted(times)
        fitted = Refit(self.standard_process_, evidence)
        with jax.default_device(jax.local_devices(backend="cpu")[0]):
            snapshots, tried = self.scaling_.transform(self.snapshots_), sigmas(sigma)
            again = self._fitted_anew if full else self._same_terms
            others = [(one, again(standard_diffusion(one, self.scaling_), one)) for one in tried]
            where = (snapshots, self._thin_start(snapshots), wanted, self.dt_)
            how = {"full": full, "law": self._squares_law(), "key": self._key(8)}
            return sigma_sensitivity((self.sigma, fitted), others, *where, **how)

    def step_error(self, times: Sequence[float] | np.ndarray | None = None) -> StepError:
        """The error of a forecast from dt, by halving it, and the bound of Prop. 3 for an error of the drift beside it.

        Without `times`: up to four of the snapshots' and half a span beyond the last.
        """
        self._check_fitted()
        self._check_autonomous("step_error")
        wanted = telling_times(self.snapshots_) if times is None else self._wanted(times)
        snapshots, process = self.scaling_.transform(self.snapshots_), self.standard_process_
        points, eps = np.concatenate(snapshots.clouds), None
        if process.diffusion.constant and (self.evidence_ is not None or len(members_of(process.drift)) > 1):
            eps = float(np.max(np.linalg.norm(self._draws().spread(points), axis=1)))
        how = {"points": points, "eps": eps, "names": tuple(snapshots.names), "key": self._key(9)}
        return step_error(process, self._thin_start(snapshots), wanted, self.dt_, **how)

    def _wanted(self, times: Sequence[float] | np.ndarray) -> np.ndarray:
        return checked_times(times, float(self.snapshots_.times[0]))

    def _thin_start(self, snapshots: Snapshots) -> Snapshot:
        """The first snapshot, or so many of its points that a difference of forecasts is clear."""
        first = snapshots.at(float(snapshots.times[0]))
        points, weights = resampled(first.points, first.weights, min(len(first.points), _MOST_STARTS), self.seed_)
        return Snapshot(first.time, points, weights)

    def _same_terms(self, diffusion: AbstractDiffusion, sigma: Any) -> Refit | None:
        del sigma
        assert self.evidence_ is not None
        task = self._task(diffusion)
        found = refit(task, self._terms(task), self.evidence_, self.path_)
        return None if found is None else Refit(*found)

    def _fitted_anew(self, diffusion: AbstractDiffusion, sigma: Any) -> Refit | None:
        del diffusion
        with warnings.catch_warnings(action="ignore", category=FitWarning):
            other = clone(self).set_params(sigma=sigma, solver="moments", random_state=self.seed_)  # pyright: ignore
            other.fit(self.snapshots_)
        return None if other.evidence_ is None else Refit(other.standard_process_, other.evidence_)

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
                task = self._task(self.standard_process_.diffusion)
                library = library_for(task.snapshots, self.scaling_, options, self.seed_)
                self._linear = linearised(task, library, drift, self.evidence_, self.path_)
        return self._linear

    def _squares_law(self) -> SquaresLaw | None:
        """The law of the squared residuals at the truth; found when it is first asked for."""
        evidence = self.evidence_
        if self.snapshots_.n_dims > MANY_DIMS or evidence is None:
            return None  # in many dimensions correlations are shrunk, which makes another statistic
        if self._law is None:
            with jax.default_device(jax.local_devices(backend="cpu")[0]):
                task = self._task(self.standard_process_.diffusion)
                known, gaps = self._terms(task), [int(a) for a, _ in evidence.ends]
                simulated, n_draws = self.path_ == "simulated", task.options.n_draws
                residual = task.residual(known, n_draws, cosines=True) if simulated else task.seen_path(known, gaps)
                spreads = residual.spreads(evidence.coefficients.ravel() / task.speed)
                self._law = law_of_squares(spreads, Whitening.of(spreads, task.options.share).bases)
        return self._law

    def _terms(self, task: Task) -> Dictionary:
        """The dictionary of the fitted drift."""
        drift = self.standard_process_.drift
        assert isinstance(drift, FeatureDrift)
        return dictionary_of(drift.features, library_for(task.snapshots, self.scaling_, task.options, self.seed_))

    def _task(self, diffusion: AbstractDiffusion) -> Task:
        """What the moments solver was given, with this noise; all in standardised units."""
        snapshots = self.scaling_.transform(self.snapshots_)
        mesh = Mesh.refine(snapshots.times, self.dt_)
        return Task(snapshots, diffusion, mesh, self._moments_options(), self.seed_, not self._automatic)

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
