"""What the drift and the forecast owe to the sigma that was assumed.

For every other sigma the drift is fitted anew and compared with the fitted one, over the points of
all snapshots and by the forecasts of both from the first snapshot with the same noise,

    change of the drift  =  rms |g' - g| / rms |g|,        change of a mean or sd  =  (F' - F) / sd

in coordinates divided by their sds. Chi-squared at each sigma says which of them the snapshots
exclude.
"""

import functools
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from itofit.devices import processor
from itofit.errors import InputError
from itofit.forecast import push_forward
from itofit.moments.refit import Refit, refit
from itofit.moments.solution import MomentsSolution
from itofit.moments.solver import Moments
from itofit.moments.squares import SquaresLaw
from itofit.problem import Problem, Stream
from itofit.process.ito import ItoProcess
from itofit.process.noise import is_learned, standard_diffusion
from itofit.snapshots.clouds import Snapshot, Snapshots
from itofit.solution import Solution
from itofit.solvers import solve
from itofit.trust.goodness import ended, judged
from itofit.trust.steps import thin_start, times_or_telling


@dataclass(frozen=True, eq=False)
class Assumed:
    """What one sigma leads to; everything is infinite where its chains run to infinity.

    Parameters
    ----------
    sigma : Any
        As the estimator takes it.
    drift : float
        Change of the drift, in units of its size.
    mean : array of shape (n_times, n_dims)
        Change of the means of the forecast, in sds.
    sd : array of shape (n_times, n_dims)
        Change of the sds of the forecast, in sds.
    reduced_chi2 : float
        Chi-squared by degree of freedom.
    p_value : float
        How often a true model would do worse.

    Examples
    --------
    >>> import numpy as np
    >>> from itofit.trust.sensitivity import Assumed
    >>> row = Assumed(0.5, 0.1, np.zeros((1, 2)), np.zeros((1, 2)), 1.1, 0.3)
    >>> row.drift
    0.1
    """

    sigma: Any
    drift: float
    mean: Float[np.ndarray, "n_times n_dims"]
    sd: Float[np.ndarray, "n_times n_dims"]
    reduced_chi2: float
    p_value: float


@dataclass(frozen=True, eq=False)
class Sensitivity:
    """What each sigma leads to, the fitted one first; prints as a table.

    Parameters
    ----------
    times : array of shape (n_times,)
        Of the forecasts.
    names : tuple of str
        Of the coordinates.
    rows : tuple of Assumed
        One a sigma, that of the fit first.
    full : bool
        Whether every fit began anew; else they have the terms of the first.

    Examples
    --------
    >>> import numpy as np
    >>> from itofit.trust.sensitivity import Assumed, Sensitivity
    >>> still = np.zeros((1, 1))
    >>> fitted = Assumed(0.5, 0.0, still, still, 1.0, 0.4)
    >>> louder = Assumed(1.0, 0.3, still + 0.2, still, 4.0, 1e-4)
    >>> table = Sensitivity(np.array([1.0]), ("x",), (fitted, louder), full=False)
    >>> table.excluded()
    [1.0]
    """

    times: np.ndarray
    names: tuple[str, ...]
    rows: tuple[Assumed, ...]
    full: bool

    def excluded(self, level: float = 0.05) -> list[Any]:
        """The sigmas with which the snapshots contradict the fit at this level.

        Parameters
        ----------
        level : float
            Of the test.

        Returns
        -------
        list
            Of sigmas, as they were given.
        """
        return [row.sigma for row in self.rows if row.p_value < level]

    def to_records(self) -> list[dict[str, Any]]:
        """One plain dictionary a sigma, time and coordinate, for JSON."""
        records = []
        for row in self.rows:
            for t in range(len(self.times)):
                records += [self._record(row, t, d) for d in range(len(self.names))]
        return records

    def _record(
        self,
        row: Assumed,
        t: int,
        d: int,
    ) -> dict[str, Any]:
        return {
            "sigma": _label(row.sigma),
            "drift": row.drift,
            "reduced_chi2": row.reduced_chi2,
            "p": row.p_value,
            "time": float(self.times[t]),
            "coordinate": self.names[d],
            "mean": float(row.mean[t, d]),
            "sd": float(row.sd[t, d]),
        }

    def __str__(self) -> str:
        labels = [_label(row.sigma) for row in self.rows]
        labels[0] += " (fitted)"
        width = 2 + max(map(len, labels))
        times = "".join(f"{f't = {time:.3g}':>18}" for time in self.times)
        lines = [f"{'sigma':<{width}}{'drift':>8}{'chi2/free':>11}{'p':>8}{times}"]
        lines.append(" " * (width + 27) + f"{'mean':>10}{'sd':>8}" * len(self.times))
        for label, row in zip(labels, self.rows, strict=True):
            begin = f"{label:<{width}}{row.drift:>8.3f}{row.reduced_chi2:>11.2f}"
            lines.append(f"{begin}{row.p_value:>8.3f}{_shown_changes(row)}")
        terms = "of terms chosen anew" if self.full else "of the same terms"
        lines.append(
            "changes: of the drift in units of its size; of means and sds in sds, the largest over "
            "coordinates"
        )
        lines.append(f"a small p: with this sigma no drift {terms} explains the snapshots")
        return "\n".join(lines)


def _shown_changes(row: Assumed) -> str:
    """The largest changes of a mean and of an sd, time by time."""
    means = np.abs(row.mean).max(axis=1)
    sds = np.abs(row.sd).max(axis=1)
    changes = zip(means, sds, strict=True)
    return "".join(f"{mean:>10.3f}{sd:>8.3f}" for mean, sd in changes)


def sigmas(given: Any) -> list[Any]:
    """The sigmas one by one, or a refusal."""
    if callable(given) or isinstance(given, str) or not isinstance(given, Iterable):
        raise InputError(
            expected="sigmas to try, one after the other",
            found=f"{given!r}",
            hint="sigma=[0.8, 1.25]",
        )
    return list(given)


def sensitivity(
    solution: Solution,
    sigma: Any,
    times: Sequence[float] | np.ndarray | None = None,
    *,
    full: bool = False,
) -> Sensitivity:
    """How drift and forecast change with the sigma assumed, and which the snapshots exclude.

    Each entry of `sigma` is what the estimator takes as `sigma`. The terms of the fitted drift are
    fitted anew for each; with `full` every fit begins anew and chooses its terms, which takes as
    long as the fit. Without `times`: up to four of the snapshots' and half a span beyond the last.
    """
    hint = "solver='moments'; or fit once for each sigma and compare the forecasts"
    moments = ended(solution, hint)
    assert moments.evidence is not None
    problem = solution.problem
    fitted = Refit(solution.process, moments.evidence)
    fit_with = _solved_anew if full else _same_terms
    with jax.default_device(processor()):
        others = [(other, fit_with(moments, other)) for other in sigmas(sigma)]
        compared = ComparedForecast(
            problem,
            fitted.process,
            thin_start(problem),
            times_or_telling(problem, times),
            moments.evidence.law,
        )
        rows = [compared.assumed(problem.sigma, fitted)]
        rows += [compared.assumed(other, refitted) for other, refitted in others]
    names = tuple(problem.snapshots.names)
    return Sensitivity(compared.times, names, tuple(rows), full)


def _same_terms(
    solution: MomentsSolution,
    sigma: Any,
) -> Refit | None:
    """The terms of the fit with another noise."""
    diffusion = standard_diffusion(sigma, solution.problem.scaling)
    return refit(solution.probing.with_noise(diffusion), solution.terms)


def _solved_anew(
    solution: MomentsSolution,
    sigma: Any,
) -> Refit | None:
    """A fit of its own with another noise."""
    before = solution.problem
    problem = Problem.pose(
        before.observed,
        sigma,
        before.dt if before.step_given else "auto",
        scaling=before.scaling,
        streams=before.streams,
        time_varying=before.time_varying,
        drift=before.drift,
    )
    assert isinstance(solution.solver, Moments)
    other = solve(problem, solution.solver)
    assert isinstance(other, MomentsSolution)
    return None if other.evidence is None else Refit(other.process, other.evidence)


@dataclass(frozen=True, eq=False)
class ComparedForecast:
    """What every fit is compared with: the fitted process, by its drift and its forecasts.

    - `start`, `times`: of the forecasts. `law`: of the squared residuals, one for all.
    """

    problem: Problem
    process: ItoProcess
    start: Snapshot
    times: Float[np.ndarray, " n_times"]
    law: SquaresLaw

    def assumed(
        self,
        sigma: Any,
        refit: Refit | None,
    ) -> Assumed:
        """What a sigma leads to; everything is infinite where its chains ran away."""
        if refit is None:
            nowhere = np.full(self._moments.mean.shape, np.inf)
            return Assumed(
                sigma,
                np.inf,
                nowhere,
                nowhere,
                np.inf,
                0.0,
            )
        snapshots = self.problem.snapshots
        weights = np.concatenate(snapshots.weights) / len(snapshots)
        change = _size(_values(refit.process, snapshots) - self._drift, weights)
        test = judged(refit.evidence, snapshots.times, self.law)
        mean, sd = self._moments_of(refit.process)
        spread = np.maximum(self._moments.sd, 1e-12)
        return Assumed(
            sigma,
            drift=change / max(_size(self._drift, weights), 1e-12),
            mean=_or_infinite((mean - self._moments.mean) / spread),
            sd=_or_infinite((sd - self._moments.sd) / spread),
            reduced_chi2=refit.evidence.reduced_chi2,
            p_value=test.p_value,
        )

    @functools.cached_property
    def _drift(self) -> Float[np.ndarray, "n n_dims"]:
        return _values(self.process, self.problem.snapshots)

    @functools.cached_property
    def _moments(self) -> "CloudMoments":
        return self._moments_of(self.process)

    def _moments_of(self, process: ItoProcess) -> "CloudMoments":
        key = self.problem.streams.key(Stream.sensitivity)
        clouds = push_forward(
            process,
            self.start,
            self.times,
            self.problem.dt,
            key=key,
        )
        return _moments(clouds, self.start.weights)


class CloudMoments(NamedTuple):
    """Means and sds, both `(n_times, n_dims)`."""

    mean: np.ndarray
    sd: np.ndarray


def _moments(
    clouds: Sequence[np.ndarray],
    w: np.ndarray,
) -> CloudMoments:
    with np.errstate(over="ignore", invalid="ignore"):
        means = [w @ x for x in clouds]
        sds = [np.sqrt(w @ (x - m) ** 2) for x, m in zip(clouds, means, strict=True)]
    return CloudMoments(np.stack(means), np.stack(sds))


def _or_infinite(values: np.ndarray) -> np.ndarray:
    return np.where(np.isfinite(values), values, np.inf)


def _size(
    g: np.ndarray,
    weights: np.ndarray,
) -> float:
    return float(np.sqrt(weights @ np.sum(g**2, axis=1)))


def _values(
    process: ItoProcess,
    snapshots: Snapshots,
) -> Float[np.ndarray, "n n_dims"]:
    """The drift at the points of every snapshot, at its time."""
    values = []
    for snapshot in snapshots:
        drift = process.at(float(snapshot.time)).drift
        values.append(_drift_at(drift, jnp.asarray(snapshot.points, dtype=float)))
    return np.concatenate(values).astype(np.float64)


@eqx.filter_jit
def _drift_at(
    drift: Callable[[Array], Array],
    x: Float[Array, "n n_dims"],
) -> Float[Array, "n n_dims"]:
    return jax.vmap(drift)(x)


def _label(sigma: Any) -> str:
    if is_learned(sigma):
        return "learned"
    if callable(sigma):
        return getattr(sigma, "__name__", "function")
    value = np.asarray(sigma, dtype=float)
    if value.ndim == 0:
        return f"{float(value):.4g}"
    rows = [" ".join(f"{entry:.3g}" for entry in row) for row in np.atleast_2d(value)]
    return f"({'; '.join(rows)})"
