"""How far a forecast is off because of the step, and how far it can be because of the drift.

Step doubling. Euler's weak error is of first order in dt, so for a mean or an sd

    F(dt) - F(0) = 2 (F(dt) - F(dt / 2)) + O(dt^2)

with both chains driven by one Brownian path, so that the difference is the scheme's.

Prop. 3 of the paper. If |g - g_true| <= eps everywhere and g has the Lipschitz constant K, paths of
one noise obey

    |X_T - X_true,T| <= (eps / K) (exp(K T) - 1)

and the same holds with a smaller or even negative m in place of K, if (x - y).(g(x) - g(y)) <=
m |x - y|^2: the largest eigenvalue of the symmetric part of dg/dx instead of its largest singular
value.
What the proposition says of dt is misprinted (its constant does not grow with T) and is not
evaluated: the doubled step is there for that.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from itofit.forecast import checked_times, resampled
from itofit.problem import Problem, Stream
from itofit.process.drift import AbstractDrift
from itofit.process.ito import ItoProcess
from itofit.simulate.euler import euler_path
from itofit.simulate.mesh import Mesh
from itofit.snapshots.clouds import Snapshot, Snapshots
from itofit.solution import Solution
from itofit.trust.goodness import check_autonomous
from itofit.trust.posterior import drift_draws, has_error_bars

_CHUNK = 512
# Start points of the forecasts that show what a step or a sigma does.
_MOST_STARTS = 1000
_MOST_TIMES = 4
# An error in dt is clear from this many standard errors of its own simulation on.
_CLEAR = 2.0


@dataclass(frozen=True, eq=False)
class StepError:
    """What the step costs a forecast, and what Prop. 3 says of an error in the drift.

    Forecasts are from the first snapshot; coordinates are divided by their sds. Prints as a table.

    Parameters
    ----------
    times : array of shape (n_times,)
        Of the forecasts.
    names : tuple of str
        Of the coordinates.
    dt : float
        The step.
    mean : array of shape (n_times, n_dims)
        Estimated error of every mean at `dt`, in units of the sd there.
    sd : array of shape (n_times, n_dims)
        The same of every sd.
    mean_noise : array of shape (n_times, n_dims)
        How well the simulation knows `mean`.
    sd_noise : array of shape (n_times, n_dims)
        How well the simulation knows `sd`.
    lipschitz : float
        K over the points of the snapshots.
    one_sided : float
        m over these points.
    eps : float or None
        The largest standard error of the drift there; None where the fit has none or the noise
        depends on the state.
    bound : array of shape (n_times,) or None
        How far a mean can be off at most, in its sds, were eps and K true everywhere.
    one_sided_bound : array of shape (n_times,) or None
        The same with m in place of K.

    Examples
    --------
    >>> import numpy as np
    >>> from itofit.trust.steps import StepError
    >>> error = StepError(
    ...     times=np.array([1.0]), names=("x",), dt=0.1, mean=np.array([[0.02]]),
    ...     sd=np.array([[0.01]]), mean_noise=np.array([[0.001]]), sd_noise=np.array([[0.001]]),
    ...     lipschitz=1.0, one_sided=-1.0, eps=None, bound=None, one_sided_bound=None,
    ... )
    >>> print(error)
    error of a forecast from dt = 0.1, in sds: the largest of a mean, of an sd
             t      mean        sd  known to
             1    0.0200    0.0100    0.0010
    K = 1 over the data; no bound without error bars and constant noise
    """

    times: np.ndarray
    names: tuple[str, ...]
    dt: float
    mean: Float[np.ndarray, "n_times n_dims"]
    sd: Float[np.ndarray, "n_times n_dims"]
    mean_noise: Float[np.ndarray, "n_times n_dims"]
    sd_noise: Float[np.ndarray, "n_times n_dims"]
    lipschitz: float
    one_sided: float
    eps: float | None
    bound: Float[np.ndarray, " n_times"] | None
    one_sided_bound: Float[np.ndarray, " n_times"] | None

    def to_records(self) -> list[dict[str, Any]]:
        """One plain dictionary a time and coordinate, for JSON."""
        records = []
        for t in range(len(self.times)):
            records += [self._record(t, d) for d in range(len(self.names))]
        return records

    def _record(
        self,
        t: int,
        d: int,
    ) -> dict[str, Any]:
        bounds = {"bound": self.bound, "one_sided_bound": self.one_sided_bound}
        return {
            "time": float(self.times[t]),
            "coordinate": self.names[d],
            "mean": float(self.mean[t, d]),
            "sd": float(self.sd[t, d]),
            "mean_noise": float(self.mean_noise[t, d]),
            "sd_noise": float(self.sd_noise[t, d]),
            **{k: None if values is None else float(values[t]) for k, values in bounds.items()},
        }

    def __str__(self) -> str:
        title = f"error of a forecast from dt = {self.dt:.3g}, in sds: "
        head = f"{'t':>10}{'mean':>10}{'sd':>10}{'known to':>10}"
        if self.bound is not None:
            head += f"{'Prop. 3':>12}{'one-sided':>12}"
        lines = [title + "the largest of a mean, of an sd", head]
        noise = np.maximum(self.mean_noise, self.sd_noise)
        for t, time in enumerate(self.times):
            mean = _largest(self.mean[t])
            sd = _largest(self.sd[t])
            row = f"{time:>10.4g}{mean:>10.4f}{sd:>10.4f}{noise[t].max():>10.4f}"
            if self.bound is not None and self.one_sided_bound is not None:
                row += f"{self.bound[t]:>12.3g}{self.one_sided_bound[t]:>12.3g}"
            lines.append(row)
        return "\n".join([*lines, *self._remarks()])

    def _remarks(self) -> list[str]:
        clear_mean = np.any(np.abs(self.mean) > _CLEAR * self.mean_noise)
        clear_sd = np.any(np.abs(self.sd) > _CLEAR * self.sd_noise)
        remarks = []
        if not clear_mean and not clear_sd:
            remarks.append("no error from dt can be told from the noise of this simulation")
        if self.eps is None:
            slope = f"K = {self.lipschitz:.3g} over the data"
            return [*remarks, f"{slope}; no bound without error bars and constant noise"]
        slopes = f"{self.lipschitz:.3g} (one-sided {self.one_sided:.3g})"
        return [
            *remarks,
            f"bounds: were the drift off by {self.eps:.3g} sd a unit of time, slope {slopes},",
            "each the largest at the data. Usually too large by orders of magnitude, and no "
            "promise where no point",
            "was observed: bands() says what to expect",
        ]


class SlopeBounds(NamedTuple):
    """What Prop. 3 needs of a drift.

    - `lipschitz`, `one_sided`: K and m. `eps`: how far it may be off, None where that is unknown.
    """

    lipschitz: float
    one_sided: float
    eps: float | None

    @classmethod
    def over(
        cls,
        drift: AbstractDrift,
        points: Float[np.ndarray, "n n_dims"],
        eps: float | None,
    ) -> "SlopeBounds":
        """Those of a drift over these points."""
        lipschitz, one_sided = slopes_over(drift, points)
        return cls(lipschitz, one_sided, eps)


def forecast_step_error(
    process: ItoProcess,
    start: Snapshot,
    times: Float[np.ndarray, " n_times"],
    dt: float,
    slopes: SlopeBounds,
    *,
    names: tuple[str, ...],
    key: PRNGKeyArray,
) -> StepError:
    """The error of a forecast from `start` at increasing `times`; all in standardised units."""
    pairs = _both(process, start, times, dt, key)
    errors = [_doubled(coarse, fine, start.weights) for coarse, fine in pairs]
    bound = None
    one_sided_bound = None
    if slopes.eps is not None:
        spans = times - start.time
        narrowest = np.min([error.spread for error in errors], axis=1)
        bound = drift_bound(slopes.eps, slopes.lipschitz, spans) / narrowest
        one_sided_bound = drift_bound(slopes.eps, slopes.one_sided, spans) / narrowest
    return StepError(
        times=times,
        names=names,
        dt=dt,
        mean=np.stack([error.mean for error in errors]),
        sd=np.stack([error.sd for error in errors]),
        mean_noise=np.stack([error.mean_noise for error in errors]),
        sd_noise=np.stack([error.sd_noise for error in errors]),
        lipschitz=slopes.lipschitz,
        one_sided=slopes.one_sided,
        eps=slopes.eps,
        bound=bound,
        one_sided_bound=one_sided_bound,
    )


def drift_bound(
    eps: float,
    slope: float,
    spans: Float[np.ndarray, " n"],
) -> Float[np.ndarray, " n"]:
    """(eps / K) (exp(K T) - 1), and eps T for K = 0."""
    with np.errstate(over="ignore"):
        grown = np.expm1(slope * np.asarray(spans, dtype=np.float64))
    return eps * (grown / slope if slope != 0.0 else spans)


def slopes_over(
    drift: AbstractDrift,
    points: Float[np.ndarray, "n n_dims"],
) -> tuple[float, float]:
    """K and m: the largest singular value of dg/dx, and eigenvalue of its symmetric part."""
    slopes = np.asarray(_slopes(drift, jnp.asarray(points, dtype=float)), dtype=np.float64)
    singular = np.linalg.norm(slopes, ord=2, axis=(1, 2))
    symmetric = 0.5 * (slopes + np.swapaxes(slopes, 1, 2))
    largest = np.linalg.eigvalsh(symmetric)[:, -1]
    return float(singular.max()), float(largest.max())


@eqx.filter_jit
def _slopes(
    drift: AbstractDrift,
    points: Float[Array, "n n_dims"],
) -> Float[Array, "n n_dims n_dims"]:
    return jax.lax.map(jax.jacfwd(drift), points, batch_size=_CHUNK)


def _both(
    process: ItoProcess,
    start: Snapshot,
    times: np.ndarray,
    dt: float,
    key: PRNGKeyArray,
) -> list[tuple[np.ndarray, np.ndarray]]:
    """The clouds at every time with steps dt and dt / 2, driven by one Brownian path."""
    now = start.time
    clouds = []
    coarse = fine = jnp.asarray(start.points, dtype=float)
    for i, time in enumerate(times):
        if time > now:
            steps = jnp.asarray(Mesh.refine([now, time], dt).steps, dtype=float)
            coarse, fine = _halved(
                process,
                coarse,
                fine,
                steps,
                jax.random.fold_in(key, i),
            )
            now = time
        clouds.append((np.asarray(coarse, dtype=np.float64), np.asarray(fine, dtype=np.float64)))
    return clouds


@eqx.filter_jit
def _halved(
    process: ItoProcess,
    coarse,
    fine,
    steps,
    key,
):
    def step(clouds, step_and_key):
        x, y = clouds
        h, k = step_and_key
        z = jax.random.normal(k, (2, *x.shape), x.dtype)
        x = euler_path(
            process,
            x,
            h[None],
            (z[:1] + z[1:]) / jnp.sqrt(2.0),
        )[-1]
        y = euler_path(
            process,
            y,
            jnp.stack([h, h]) / 2.0,
            z,
        )[-1]
        return (x, y), None

    keys = jax.random.split(key, len(steps))
    ends, _ = jax.lax.scan(step, (coarse, fine), (steps, keys))
    return ends


class Doubled(NamedTuple):
    """2 (F(dt) - F(dt / 2)) of means and sds in units of that sd, the noise of both, and the sd."""

    mean: Float[np.ndarray, " n_dims"]
    sd: Float[np.ndarray, " n_dims"]
    mean_noise: Float[np.ndarray, " n_dims"]
    sd_noise: Float[np.ndarray, " n_dims"]
    spread: Float[np.ndarray, " n_dims"]


def _doubled(
    x: np.ndarray,
    y: np.ndarray,
    w: np.ndarray,
) -> Doubled:
    m0, s0 = _moments(x, w)
    m1, s1 = _moments(y, w)
    spread = np.maximum(s1, 1e-12)

    def in_sds(values: np.ndarray) -> np.ndarray:
        scaled = 2.0 * values / spread
        # A chain that runs to infinity is as far off as can be.
        return np.where(np.isnan(scaled), np.inf, scaled)

    with np.errstate(invalid="ignore", over="ignore"):
        apart = (x - m0) - (y - m1)
        stretched = ((x - m0) ** 2 / np.maximum(s0, 1e-12) - (y - m1) ** 2 / spread) / 2.0
        return Doubled(
            mean=in_sds(m0 - m1),
            sd=in_sds(s0 - s1),
            mean_noise=in_sds(_standard_error(apart, w)),
            sd_noise=in_sds(_standard_error(stretched, w)),
            spread=spread,
        )


def _standard_error(
    values: np.ndarray,
    w: np.ndarray,
) -> Float[np.ndarray, " n_dims"]:
    """Of the weighted mean."""
    return np.sqrt((w**2) @ (values - w @ values) ** 2)


def _moments(
    x: np.ndarray,
    w: np.ndarray,
) -> tuple[np.ndarray, np.ndarray]:
    with np.errstate(invalid="ignore", over="ignore"):
        mean = w @ x
        return mean, np.sqrt(w @ (x - mean) ** 2)


def _largest(values: np.ndarray) -> float:
    return float(np.max(np.abs(values)))


def step_error(
    solution: Solution,
    times: Sequence[float] | np.ndarray | None = None,
) -> StepError:
    """The error of a forecast from dt, by halving it, and the bound of Prop. 3 beside it.

    Without `times`: up to four of the snapshots' and half a span beyond the last.
    """
    check_autonomous(solution, "step_error")
    problem = solution.problem
    process = solution.process
    points = np.concatenate(problem.snapshots.clouds)
    eps = None
    if process.diffusion.constant and has_error_bars(solution):
        spread = drift_draws(solution).spread(points)
        eps = float(np.max(np.linalg.norm(spread, axis=1)))
    return forecast_step_error(
        process,
        thin_start(problem),
        times_or_telling(problem, times),
        problem.dt,
        SlopeBounds.over(process.drift, points, eps),
        names=tuple(problem.snapshots.names),
        key=problem.streams.key(Stream.step_error),
    )


def thin_start(problem: Problem) -> Snapshot:
    """The first snapshot, or so many of its points that a difference of forecasts is clear."""
    snapshots = problem.snapshots
    first = snapshots.at(float(snapshots.times[0]))
    size = min(len(first.points), _MOST_STARTS)
    return resampled(first, size, problem.streams.rng(Stream.resampling))


def times_or_telling(
    problem: Problem,
    times: Sequence[float] | np.ndarray | None,
) -> Float[np.ndarray, " n_times"]:
    """These times, checked; without any those that tell most."""
    if times is None:
        return telling_times(problem.observed)
    return checked_times(times, float(problem.observed.times[0]))


def telling_times(snapshots: Snapshots) -> Float[np.ndarray, " n_times"]:
    """Up to four of the times after the first snapshot, the last among them, and one beyond it."""
    later = snapshots.times[1:]
    places = np.linspace(0, len(later) - 1, min(len(later), _MOST_TIMES))
    rows = np.unique(places.round().astype(int))
    beyond = later[-1] + 0.5 * (later[-1] - snapshots.times[0])
    return np.append(later[rows], beyond)
