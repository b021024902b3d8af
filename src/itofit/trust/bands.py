"""Bands about a forecast: how far its means and quantiles would move with other particles."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PRNGKeyArray
from scipy.stats import norm

from itofit.errors import InputError
from itofit.forecast import checked_times, start_before
from itofit.problem import Stream
from itofit.process.drift import AbstractDrift
from itofit.process.ito import ItoProcess
from itofit.process.noise import AbstractDiffusion
from itofit.simulate.euler import step_times
from itofit.simulate.mesh import Mesh
from itofit.snapshots.clouds import Snapshot, Snapshots
from itofit.snapshots.paired import PairedSnapshots
from itofit.snapshots.scaling import Scaling
from itofit.solution import Solution
from itofit.trust.posterior import DriftDraws, drift_draws, particle_weights, widened_by

# Draws of the drift that are simulated, and chains a start point behind the estimate itself.
N_SIMULATED = 50
_N_CHAINS = 8
# A draw whose mean or quantiles are so many widths of the data away from them has run away, and
# how many of the draws may.
_FAR = 10.0
_MOST_AWAY = 0.05


@dataclass(frozen=True, eq=False)
class Bands:
    """Means and quantiles of a forecast and their standard errors, in the user's units.

    Intervals are `estimate +- z std` with z of the coverage `level`.

    Parameters
    ----------
    times : array of shape (n_times,)
        Of the forecast.
    names : tuple of str
        Of the coordinates.
    level : float
        Coverage of the intervals.
    mean : array of shape (n_times, n_dims)
        Means of the forecast.
    mean_std : array of shape (n_times, n_dims)
        Their standard errors.
    levels : array of shape (n_levels,)
        Levels of the quantiles, between 0 and 1.
    quantile : array of shape (n_times, n_levels, n_dims)
        Quantiles of the forecast.
    quantile_std : array of shape (n_times, n_levels, n_dims)
        Their standard errors.
    widened : float
        How many times larger the standard errors are than the points alone make them; above 1 where
        the snapshots contradict the process.

    Examples
    --------
    >>> import numpy as np
    >>> from itofit.trust.bands import Bands
    >>> bands = Bands(
    ...     times=np.array([1.0]), names=("x",), level=0.95,
    ...     mean=np.array([[2.0]]), mean_std=np.array([[0.1]]), levels=np.array([0.5]),
    ...     quantile=np.array([[[1.9]]]), quantile_std=np.array([[[0.2]]]),
    ... )
    >>> low, high = bands.mean_interval()
    >>> round(float(low[0, 0]), 2), round(float(high[0, 0]), 2)
    (1.8, 2.2)
    """

    times: np.ndarray
    names: tuple[str, ...]
    level: float
    mean: Float[np.ndarray, "n_times n_dims"]
    mean_std: Float[np.ndarray, "n_times n_dims"]
    levels: np.ndarray
    quantile: Float[np.ndarray, "n_times n_levels n_dims"]
    quantile_std: Float[np.ndarray, "n_times n_levels n_dims"]
    widened: float = 1.0

    @property
    def z(self) -> float:
        """Half the length of an interval in standard errors."""
        return float(norm.ppf(0.5 + 0.5 * self.level))

    def mean_interval(self) -> tuple[np.ndarray, np.ndarray]:
        """Lower and upper ends about the means."""
        half = self.z * self.mean_std
        return self.mean - half, self.mean + half

    def quantile_interval(self) -> tuple[np.ndarray, np.ndarray]:
        """Lower and upper ends about the quantiles."""
        half = self.z * self.quantile_std
        return self.quantile - half, self.quantile + half

    def to_records(self) -> list[dict[str, Any]]:
        """One plain dictionary a time, coordinate and statistic, for JSON."""
        records = []
        for t in range(len(self.times)):
            for d in range(len(self.names)):
                records.append(
                    self._record(
                        t,
                        d,
                        "mean",
                        self.mean[t, d],
                        self.mean_std[t, d],
                    )
                )
                for q, level in enumerate(self.levels):
                    value = self.quantile[t, q, d]
                    std = self.quantile_std[t, q, d]
                    records.append(
                        self._record(
                            t,
                            d,
                            f"q{level:g}",
                            value,
                            std,
                        )
                    )
        return records

    def __str__(self) -> str:
        lines = [f"{'time':>12}{'coordinate':>14}{'mean':>12}{'std':>12}"]
        for t, time in enumerate(self.times):
            for d, name in enumerate(self.names):
                values = f"{self.mean[t, d]:>12.4g}{self.mean_std[t, d]:>12.2g}"
                lines.append(f"{time:>12g}{name:>14}{values}")
        return "\n".join(lines if self.widened == 1.0 else [*lines, widened_by(self.widened)])

    def _record(
        self,
        t: int,
        d: int,
        statistic: str,
        value: float,
        std: float,
    ) -> dict[str, Any]:
        return {
            "time": float(self.times[t]),
            "coordinate": self.names[d],
            "statistic": statistic,
            "value": float(value),
            "std": float(std),
        }


def bands(
    solution: Solution,
    times: Sequence[float] | np.ndarray,
    quantiles: Sequence[float] = (0.1, 0.5, 0.9),
    *,
    level: float = 0.95,
    start: str = "initial",
) -> Bands:
    """Means and quantiles of a forecast with standard errors and intervals of this coverage.

    Each is carried from the snapshot that `start` names.
    """
    problem = solution.problem
    snapshots = problem.observed
    increasing = checked_times(times, float(snapshots.times[0]))
    levels = _checked_levels(quantiles, level)
    course = Course(solution.process.diffusion, problem.dt, levels)
    begins = [start_before(snapshots, float(time), start).time for time in increasing]
    draws = drift_draws(solution)
    by_start = []
    for began in dict.fromkeys(begins):
        chosen = [float(t) for t, begin in zip(increasing, begins, strict=True) if begin == began]
        position = int(np.searchsorted(snapshots.times, began))
        individuals = 0 if isinstance(snapshots, PairedSnapshots) else position
        cloud = StartCloud(problem.snapshots.at(began), individuals)
        key = problem.streams.key(Stream.bands, position)
        by_start.append(
            _near(
                _from_one_start(
                    draws,
                    cloud,
                    chosen,
                    course,
                    key,
                ),
                problem.snapshots,
                chosen[-1],
            )
        )
    estimates = np.concatenate([statistics.estimates for statistics in by_start])
    errors = draws.widened * np.concatenate([statistics.errors for statistics in by_start])
    values, std = _in_units(problem.scaling, Statistics(estimates, errors))
    return Bands(
        times=increasing,
        names=tuple(snapshots.names),
        level=level,
        mean=values[:, 0],
        mean_std=std[:, 0],
        levels=levels,
        quantile=values[:, 1:],
        quantile_std=std[:, 1:],
        widened=draws.widened,
    )


def _checked_levels(
    quantiles: Sequence[float],
    level: float,
) -> np.ndarray:
    levels = np.asarray(quantiles, dtype=float)
    if levels.ndim != 1 or not np.all((levels > 0.0) & (levels < 1.0)):
        raise InputError(
            expected="quantiles between 0 and 1", found=f"{quantiles!r}", hint="(0.1, 0.5, 0.9)"
        )
    if not 0.0 < level < 1.0:
        raise InputError(expected="a level between 0 and 1", found=f"{level!r}", hint="0.95")
    return levels


def _in_units(
    scaling: Scaling,
    statistics: "Statistics",
) -> "Statistics":
    """The same in the user's units."""
    values = scaling.mean + scaling.sd * statistics.estimates
    return Statistics(values, scaling.sd * statistics.errors)


def _near(drawn: "Drawn", snapshots: Snapshots, last: float) -> "Statistics":
    """Estimates and errors, or a refusal where more than a few of the draws ran away."""
    points = np.concatenate(snapshots.clouds)
    low = points.min(axis=0)
    high = points.max(axis=0)
    reach = _FAR * (high - low)
    inside = (drawn.statistics > low - reach) & (drawn.statistics < high + reach)
    stays = np.all(inside, axis=(0, 2, 3))
    n_away = int(np.sum(~stays))
    if n_away > _MOST_AWAY * len(stays) or not np.all(np.isfinite(drawn.estimates)):
        raise InputError(
            expected=f"drifts that stay near the data up to t = {last:g}",
            found=f"{n_away} of {len(stays)} drifts that could be the true one which run to "
            f"infinity, or {_FAR:g} widths of the data away",
            hint="ask nearer to the data, or from the snapshot before (start='previous'): these "
            "points do not determine the drift well enough to follow it so far",
        )
    apart = drawn.statistics[:, stays] - drawn.fitted[:, None]
    return Statistics(drawn.estimates, np.sqrt(np.mean(apart**2, axis=1)))


class StartCloud(NamedTuple):
    """A standardised start snapshot, and the one whose particle weights are behind the draws."""

    snapshot: Snapshot
    individuals: int


class Course(NamedTuple):
    """What the simulations of all draws share: the noise, the step, the quantiles read."""

    diffusion: AbstractDiffusion
    dt: float
    levels: np.ndarray


class Statistics(NamedTuple):
    """Estimates and standard errors `(n_times, 1 + n_levels, n_dims)`, the mean first."""

    estimates: np.ndarray
    errors: np.ndarray


class Drawn(NamedTuple):
    """Means and quantiles: of the fit, of it with the noise of the draws, and of every draw."""

    estimates: Float[np.ndarray, "n_times n_statistics n_dims"]
    fitted: Float[np.ndarray, "n_times n_statistics n_dims"]
    statistics: Float[np.ndarray, "n_times n_draws n_statistics n_dims"]


def _from_one_start(
    draws: DriftDraws,
    cloud: StartCloud,
    times: Sequence[float],
    course: Course,
    key: PRNGKeyArray,
) -> Drawn:
    """What is forecast from one start.

    Draws and the first chain of the fit share their noise, so that their difference is that of
    drift and start; the estimate itself is over all chains of the fit.
    """
    start = cloud.snapshot
    few = draws.first(N_SIMULATED)
    weights = _drawn_weights(draws, cloud, few.n_draws)
    one_stream = np.zeros(few.n_draws, dtype=int)
    drifts = Drifts(few.drifts, few.axes, few.noise)
    clouds = _clouds(drifts, one_stream, start, times, course, key)
    unmoved = np.zeros((_N_CHAINS, draws.noise.shape[1]))
    fitted = Drifts(draws.fitted, None, unmoved)
    chains = _clouds(
        fitted,
        np.arange(_N_CHAINS),
        start,
        times,
        course,
        key,
    )
    chain_weights = np.tile(start.weights, _N_CHAINS) / _N_CHAINS
    levels = course.levels
    estimates = []
    fitted_alike = []
    by_draw = []
    for drawn, fits in zip(clouds, chains, strict=True):
        pairs = zip(drawn, weights, strict=True)
        by_draw.append(np.stack([_statistics(x, w, levels) for x, w in pairs]))
        estimates.append(_statistics(np.concatenate(fits), chain_weights, levels))
        fitted_alike.append(_statistics(fits[0], start.weights, levels))
    return Drawn(np.stack(estimates), np.stack(fitted_alike), np.stack(by_draw))


def _drawn_weights(
    draws: DriftDraws,
    cloud: StartCloud,
    n_draws: int,
) -> Float[np.ndarray, "n_draws n"]:
    """The weights of the start points behind each of the first draws."""
    start = cloud.snapshot
    weights = np.tile(start.weights, (n_draws, 1))
    if draws.streams is None:
        return weights
    count = len(start.weights)
    weights *= particle_weights(
        draws.streams,
        cloud.individuals,
        count,
        draws.n_draws,
    )[:n_draws]
    weights /= weights.sum(axis=1, keepdims=True)
    return weights


def _statistics(
    x: np.ndarray,
    weights: np.ndarray,
    levels: np.ndarray,
) -> Float[np.ndarray, "n_statistics n_dims"]:
    """The mean and the quantiles of every coordinate."""
    order = np.argsort(x, axis=0)
    below = np.cumsum(weights[order], axis=0) - 0.5 * weights[order]
    increasing = np.take_along_axis(x, order, axis=0)
    pairs = zip(below.T, increasing.T, strict=True)
    quantiles = [np.interp(levels, under, column) for under, column in pairs]
    return np.concatenate([(weights @ x)[None], np.stack(quantiles, axis=1)])


class Drifts(NamedTuple):
    """Drifts of all draws as one, the axes of their arrays, and what moves the noise.

    `noise` is `(n_draws, n_noise)`.
    """

    drifts: AbstractDrift
    axes: Any
    noise: Any


def _clouds(
    drifts: Drifts,
    streams: Int[np.ndarray, " n_draws"],
    start: Snapshot,
    times: Sequence[float],
    course: Course,
    key: PRNGKeyArray,
) -> list[Float[np.ndarray, "n_draws n n_dims"]]:
    """The clouds of every drift and move of the noise at increasing times, driven by its stream."""
    begins = [start.time, *times]
    legs = [_steps_between(a, b, course.dt) for a, b in pairwise(begins)]
    longest = max(1, *(len(leg) for leg in legs))
    points = jnp.asarray(start.points, dtype=float)
    x = jnp.broadcast_to(points, (len(streams), *points.shape))
    driven = Drifts(drifts.drifts, drifts.axes, jnp.asarray(drifts.noise, dtype=float))
    clouds = []
    for i, (begin, steps) in enumerate(zip(begins, legs, strict=False)):
        # Filled up, so that one compilation serves all times.
        padded = np.append(steps, np.zeros(longest - len(steps)))
        leg = Leg(
            begin=jnp.asarray(begin, dtype=float),
            steps=jnp.asarray(padded, dtype=float),
            n_taken=jnp.asarray(len(steps)),
            streams=jnp.asarray(streams),
            n_streams=int(streams.max()) + 1,
            key=jax.random.fold_in(key, i),
        )
        x = _push(driven, course.diffusion, x, leg)
        clouds.append(np.asarray(x, dtype=np.float64))
    return clouds


def _steps_between(
    begin: float,
    end: float,
    dt: float,
) -> Float[np.ndarray, " n_steps"]:
    return Mesh.refine([begin, end], dt).steps if end > begin else np.zeros(0)


class Leg(NamedTuple):
    """The way to one time: from `begin` over the first `n_taken` of these steps.

    Every draw has the noise of one of `n_streams` streams.
    """

    begin: Float[Array, ""]
    steps: Float[Array, " n_steps"]
    n_taken: Int[Array, ""]
    streams: Int[Array, " n_draws"]
    n_streams: int
    key: PRNGKeyArray


@eqx.filter_jit
def _push(
    drifts: Drifts,
    diffusion: AbstractDiffusion,
    start: Float[Array, "n_draws n n_dims"],
    leg: Leg,
) -> Float[Array, "n_draws n n_dims"]:
    times = step_times(leg.begin, leg.steps)
    learned = drifts.noise.shape[1] > 0

    def move(
        drift,
        v,
        x,
        t,
        h,
        z,
    ):
        process = ItoProcess(drift.at(t), diffusion.moved(v) if learned else diffusion)
        return jax.vmap(process.euler_step, in_axes=(0, None, 0))(x, h, z)

    over_draws = eqx.filter_vmap(move, in_axes=(drifts.axes, 0, 0, None, None, 0))

    def step(k, x):
        fold = jax.vmap(jax.random.fold_in, in_axes=(None, 0))
        keys = fold(jax.random.fold_in(leg.key, k), jnp.arange(leg.n_streams))
        z = jax.vmap(lambda key: jax.random.normal(key, x.shape[1:], x.dtype))(keys)
        noise = z[leg.streams]
        return over_draws(
            drifts.drifts,
            drifts.noise,
            x,
            times[k],
            leg.steps[k],
            noise,
        )

    return jax.lax.fori_loop(0, leg.n_taken, step, start)
