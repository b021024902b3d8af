"""How far a forecast is off because time moves in steps, and how far it can be off because the
drift is not known.

Step doubling. Euler's weak error is of first order in dt, so for a mean or an sd

    F(dt) - F(0) = 2 (F(dt) - F(dt / 2)) + O(dt^2)

with both chains driven by one Brownian path, so that the difference is the scheme's.

Prop. 3 of the paper. If |g - g_true| <= eps everywhere and g has the Lipschitz constant K, paths of
one noise obey

    |X_T - X_true,T| <= (eps / K) (exp(K T) - 1)

and the same holds with a smaller or even negative m in place of K, if (x - y).(g(x) - g(y)) <= m |x
- y|^2: the largest eigenvalue of the symmetric part of dg/dx instead of its largest singular value.
What the proposition says of dt is misprinted (its constant does not grow with T) and is not
evaluated: the doubled step is there for that.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

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
# An error in dt is worth a word where it is more than this many standard errors of its own
# simulation.
_CLEAR = 2.0


@dataclass(frozen=True, eq=False)
class StepError:
    """What the step costs a forecast from the first snapshot, and what Prop. 3 says of an error in
    the drift.

    - `mean`, `sd`: estimated error of every mean and sd at `dt`, in units of that sd; `mean_noise`,
      `sd_noise`: how well the simulation knows them.
    - `lipschitz`, `one_sided`: K and m over the points of the snapshots, in coordinates divided by
      their sds. `eps`: the largest standard error of the drift there, None where the fit has none
      or the noise depends on the state.
    - `bound`, `one_sided_bound`: how far a mean can be off at most, in its sds, were eps and K true
      everywhere.
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
        found = []
        for t, time in enumerate(self.times):
            for d, name in enumerate(self.names):
                row = {"time": float(time), "coordinate": name}
                row |= {
                    k: float(getattr(self, k)[t, d])
                    for k in ("mean", "sd", "mean_noise", "sd_noise")
                }
                for k in ("bound", "one_sided_bound"):
                    values = getattr(self, k)
                    row[k] = None if values is None else float(values[t])
                found.append(row)
        return found

    def __str__(self) -> str:
        bounded = self.bound is not None and self.one_sided_bound is not None
        lines = [
            f"error of a forecast from dt = {self.dt:.3g}, in sds: the largest of a mean, of an sd"
        ]
        lines += [
            f"{'t':>10}{'mean':>10}{'sd':>10}{'known to':>10}"
            + (f"{'Prop. 3':>12}{'one-sided':>12}" * bounded)
        ]
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
        clear = np.any(np.abs(self.mean) > _CLEAR * self.mean_noise) or np.any(
            np.abs(self.sd) > _CLEAR * self.sd_noise
        )
        remarks = []
        if not clear:
            remarks.append("no error from dt can be told from the noise of this simulation")
        if self.eps is None:
            return [
                *remarks,
                f"K = {self.lipschitz:.3g} over the data; no bound without error bars and constant "
                "noise",
            ]
        return [
            *remarks,
            f"bounds: were the drift off by {self.eps:.3g} sd a unit of time, slope "
            f"{self.lipschitz:.3g} (one-sided {self.one_sided:.3g}),",
            "each the largest at the data. Usually too large by orders of magnitude; no promise "
            "where no point",
            "was observed: bands() says what to expect",
        ]


def forecast_step_error(
    process: ItoProcess,
    start: Snapshot,
    times: Float[np.ndarray, " n_times"],
    dt: float,
    *,
    points: Float[np.ndarray, "n n_dims"],
    eps: float | None,
    names: tuple[str, ...],
    key: PRNGKeyArray,
) -> StepError:
    """The error of a forecast from `start` at increasing `times`; all in standardised units."""
    lipschitz, one_sided = slopes_over(process.drift, points)
    rows = [_doubled(x, y, start.weights) for x, y in _both(process, start, times, dt, key)]
    mean, sd, mean_noise, sd_noise, spread = (
        np.stack(column) for column in zip(*rows, strict=True)
    )
    bounds = (None, None)
    if eps is not None:
        narrowest = np.min(spread, axis=1)
        bounds = tuple(
            drift_bound(eps, k, times - start.time) / narrowest for k in (lipschitz, one_sided)
        )
    return StepError(
        times, names, dt, mean, sd, mean_noise, sd_noise, lipschitz, one_sided, eps, *bounds
    )


def drift_bound(
    eps: float, slope: float, spans: Float[np.ndarray, " n"]
) -> Float[np.ndarray, " n"]:
    """(eps / K) (exp(K T) - 1), and eps T for K = 0."""
    with np.errstate(over="ignore"):
        grown = np.expm1(slope * np.asarray(spans, dtype=np.float64))
    return eps * (grown / slope if slope != 0.0 else spans)


def slopes_over(drift: AbstractDrift, points: Float[np.ndarray, "n n_dims"]) -> tuple[float, float]:
    """The largest singular value of dg/dx over these points, and the largest eigenvalue of its
    symmetric part.
    """
    found = np.asarray(_slopes(drift, jnp.asarray(points, dtype=float)), dtype=np.float64)
    singular = np.linalg.norm(found, ord=2, axis=(1, 2))
    return float(singular.max()), float(
        np.linalg.eigvalsh(0.5 * (found + np.swapaxes(found, 1, 2)))[:, -1].max()
    )


@eqx.filter_jit
def _slopes(
    drift: AbstractDrift, points: Float[Array, "n n_dims"]
) -> Float[Array, "n n_dims n_dims"]:
    return jax.lax.map(jax.jacfwd(drift), points, batch_size=_CHUNK)


def _both(
    process: ItoProcess, start: Snapshot, times: np.ndarray, dt: float, key: PRNGKeyArray
) -> list[tuple[np.ndarray, np.ndarray]]:
    """The clouds at every time with steps dt and dt / 2, driven by one Brownian path."""
    now = start.time
    found = []
    x = y = jnp.asarray(start.points, dtype=float)
    for i, time in enumerate(times):
        if time > now:
            steps = jnp.asarray(Mesh.refine([now, time], dt).steps, dtype=float)
            (x, y) = _halved(process, x, y, steps, jax.random.fold_in(key, i))
            now = time
        found.append((np.asarray(x, dtype=np.float64), np.asarray(y, dtype=np.float64)))
    return found


@eqx.filter_jit
def _halved(process: ItoProcess, x, y, steps, key):
    def step(both, h_and_key):
        h, k = h_and_key
        z = jax.random.normal(k, (2, *both[0].shape), both[0].dtype)
        coarse = euler_path(process, both[0], h[None], (z[:1] + z[1:]) / jnp.sqrt(2.0))[-1]
        return (coarse, euler_path(process, both[1], jnp.stack([h, h]) / 2.0, z)[-1]), None

    return jax.lax.scan(step, (x, y), (steps, jax.random.split(key, len(steps))))[0]


def _doubled(x: np.ndarray, y: np.ndarray, w: np.ndarray) -> tuple[np.ndarray, ...]:
    """2 (F(dt) - F(dt / 2)) of means and sds in units of that sd, the noise of both, and the sd."""
    (m0, s0) = _moments(x, w)
    (m1, s1) = _moments(y, w)
    spread = np.maximum(s1, 1e-12)
    with np.errstate(invalid="ignore", over="ignore"):
        apart = (x - m0) - (y - m1)
        stretched = ((x - m0) ** 2 / np.maximum(s0, 1e-12) - (y - m1) ** 2 / spread) / 2.0
        effective = [np.sqrt((w**2) @ (a - w @ a) ** 2) for a in (apart, stretched)]
        values = [2.0 * a / spread for a in (m0 - m1, s0 - s1, *effective)]
    # A chain that runs to infinity is as far off as can be.
    return *(np.where(np.isnan(a), np.inf, a) for a in values), spread


def _moments(x: np.ndarray, w: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    with np.errstate(invalid="ignore", over="ignore"):
        mean = w @ x
        return mean, np.sqrt(w @ (x - mean) ** 2)


def _largest(values: np.ndarray) -> float:
    return float(np.max(np.abs(values)))


def step_error(solution: Solution, times: Sequence[float] | np.ndarray | None = None) -> StepError:
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
        points=points,
        eps=eps,
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
    problem: Problem, times: Sequence[float] | np.ndarray | None
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
    return np.append(later[rows], later[-1] + 0.5 * (later[-1] - snapshots.times[0]))
