"""Bands about a forecast: how far its means and quantiles would move with other particles of the same population."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PRNGKeyArray
from scipy.stats import norm

from itofit.errors import InputError
from itofit.forecast import start_before
from itofit.process.diffusion import AbstractDiffusion
from itofit.process.drift import AbstractDrift
from itofit.process.ito import ItoProcess
from itofit.simulate.euler import step_times
from itofit.simulate.mesh import Mesh
from itofit.snapshots.clouds import Snapshot, Snapshots
from itofit.snapshots.paired import PairedSnapshots
from itofit.snapshots.scaling import Scaling
from itofit.trust.posterior import DriftDraws, particle_weights

# Draws of the drift that are simulated, and chains a start point behind the estimate itself.
N_SIMULATED, _N_CHAINS = 50, 8


@dataclass(frozen=True, eq=False)
class Bands:
    """Means and quantiles of a forecast and their standard errors, in the user's units.

    Everything is `(n_times, ..., n_dims)`; `quantile` has the levels of `levels` in between. Intervals are
    `estimate +- z std` with z of the coverage `level`.
    """

    times: np.ndarray
    names: tuple[str, ...]
    level: float
    mean: Float[np.ndarray, "n_times n_dims"]
    mean_std: Float[np.ndarray, "n_times n_dims"]
    levels: np.ndarray
    quantile: Float[np.ndarray, "n_times n_levels n_dims"]
    quantile_std: Float[np.ndarray, "n_times n_levels n_dims"]

    @property
    def z(self) -> float:
        """Half the length of an interval in standard errors."""
        return float(norm.ppf(0.5 + 0.5 * self.level))

    def mean_interval(self) -> tuple[np.ndarray, np.ndarray]:
        """Lower and upper ends about the means."""
        return self.mean - self.z * self.mean_std, self.mean + self.z * self.mean_std

    def quantile_interval(self) -> tuple[np.ndarray, np.ndarray]:
        """Lower and upper ends about the quantiles."""
        return self.quantile - self.z * self.quantile_std, self.quantile + self.z * self.quantile_std

    def to_records(self) -> list[dict[str, Any]]:
        """One plain dictionary a time, coordinate and statistic, for JSON."""
        found = []
        for t, time in enumerate(self.times):
            for d, name in enumerate(self.names):
                rows = [("mean", self.mean[t, d], self.mean_std[t, d])]
                rows += [
                    (f"q{level:g}", self.quantile[t, q, d], self.quantile_std[t, q, d])
                    for q, level in enumerate(self.levels)
                ]
                found += [
                    {"time": float(time), "coordinate": name, "statistic": s, "value": float(v), "std": float(e)}
                    for s, v, e in rows
                ]
        return found


def forecast_bands(
    draws: DriftDraws,
    diffusion: AbstractDiffusion,
    scaling: Scaling,
    snapshots: Snapshots,
    times: np.ndarray,
    dt: float,
    *,
    quantiles: Sequence[float],
    level: float,
    start: str,
    key: PRNGKeyArray,
) -> Bands:
    """Bands at increasing `times`, each grown from the snapshot that `start` names."""
    levels = np.asarray(quantiles, dtype=float)
    if levels.ndim != 1 or not np.all((levels > 0.0) & (levels < 1.0)):
        raise InputError(expected="quantiles between 0 and 1", found=f"{quantiles!r}", hint="(0.1, 0.5, 0.9)")
    if not 0.0 < level < 1.0:
        raise InputError(expected="a level between 0 and 1", found=f"{level!r}", hint="0.95")
    begins = [start_before(snapshots, float(time), start).time for time in times]
    estimates, errors = [], []
    for began in dict.fromkeys(begins):
        at, source = int(np.searchsorted(snapshots.times, began)), snapshots.at(began)
        standard = Snapshot(began, scaling.standardise(source.points), source.weights)
        some = [float(time) for time, begin in zip(times, begins, strict=True) if begin == began]
        k = jax.random.fold_in(key, at)
        whose = 0 if isinstance(snapshots, PairedSnapshots) else at
        found = _from_one_start(draws, diffusion, standard, whose, some, dt, levels, k)
        estimates.append(found[0])
        errors.append(found[1])
    if not np.all(np.isfinite(np.concatenate(errors))):
        raise InputError(
            expected=f"drifts that stay finite up to t = {times[-1]:g}",
            found="points that ran to infinity in some of the draws",
            hint="ask nearer to the data; the drift is extrapolated where no point was ever seen",
        )
    values, std = scaling.mean + scaling.sd * np.concatenate(estimates), scaling.sd * np.concatenate(errors)
    return Bands(times, tuple(snapshots.names), level, values[:, 0], std[:, 0], levels, values[:, 1:], std[:, 1:])


def _from_one_start(
    draws: DriftDraws,
    diffusion: AbstractDiffusion,
    start: Snapshot,
    snapshot: int,
    times: Sequence[float],
    dt: float,
    levels: np.ndarray,
    key: PRNGKeyArray,
) -> tuple[np.ndarray, np.ndarray]:
    """Estimates and standard errors `(n_times, 1 + n_levels, n_dims)`, the mean first, from one start snapshot.

    Draws and the first chain of the fit share their noise, so that their difference is that of drift and start; the
    estimate itself is over all chains of the fit.
    """
    few = draws.first(N_SIMULATED)
    weights = np.tile(start.weights, (few.n_draws, 1))
    if draws.seed is not None:
        weights *= particle_weights(draws.seed, snapshot, len(start.weights), draws.n_draws)[: few.n_draws]
        weights /= weights.sum(axis=1, keepdims=True)
    points, course = jnp.asarray(start.points, dtype=float), (diffusion, start.time, times, dt, key)
    clouds = _clouds((few.drifts, few.axes, few.noise), np.zeros(few.n_draws, dtype=int), points, *course)
    unmoved = np.zeros((_N_CHAINS, draws.noise.shape[1]))
    chains = _clouds((draws.fitted, None, unmoved), np.arange(_N_CHAINS), points, *course)
    chained = np.tile(start.weights, _N_CHAINS) / _N_CHAINS
    estimates, errors = [], []
    for several, fits in zip(clouds, chains, strict=True):
        found = np.stack([_statistics(cloud, w, levels) for cloud, w in zip(several, weights, strict=True)])
        estimates.append(_statistics(np.concatenate(fits), chained, levels))
        errors.append(np.sqrt(np.mean((found - _statistics(fits[0], start.weights, levels)) ** 2, axis=0)))
    return np.stack(estimates), np.stack(errors)


def _statistics(x: np.ndarray, weights: np.ndarray, levels: np.ndarray) -> Float[np.ndarray, "n_statistics n_dims"]:
    """The mean and the quantiles of every coordinate."""
    order = np.argsort(x, axis=0)
    below = np.cumsum(weights[order], axis=0) - 0.5 * weights[order]
    columns = [np.interp(levels, below[:, d], x[order[:, d], d]) for d in range(x.shape[1])]
    return np.concatenate([(weights @ x)[None], np.stack(columns, axis=1)])


def _clouds(
    drifts: tuple[AbstractDrift, Any, Float[np.ndarray, "n_draws n_noise"]],
    streams: Int[np.ndarray, " n_draws"],
    points: Float[Array, "n n_dims"],
    diffusion: AbstractDiffusion,
    now: float,
    times: Sequence[float],
    dt: float,
    key: PRNGKeyArray,
) -> list[Float[np.ndarray, "n_draws n n_dims"]]:
    """The clouds of every drift and move of the noise at increasing times, driven by the noise of its stream."""
    legs = [Mesh.refine([a, b], dt).steps if b > a else np.zeros(0) for a, b in pairwise([now, *times])]
    longest, n_streams = max(1, *(len(leg) for leg in legs)), int(streams.max()) + 1
    x, found = jnp.broadcast_to(points, (len(streams), *points.shape)), []
    for i, (begin, leg) in enumerate(zip([now, *times], legs, strict=False)):
        # Filled up, so that one compilation serves all times.
        steps = jnp.asarray(np.append(leg, np.zeros(longest - len(leg))), dtype=float)
        k = jax.random.fold_in(key, i)
        x = _push(
            *drifts[:2],
            jnp.asarray(drifts[2], dtype=float),
            diffusion,
            x,
            jnp.asarray(begin, dtype=float),
            steps,
            jnp.asarray(len(leg)),
            jnp.asarray(streams),
            n_streams,
            k,
        )
        found.append(np.asarray(x, dtype=np.float64))
    return found


@eqx.filter_jit
def _push(
    drifts: AbstractDrift,
    axes: Any,
    moved: Float[Array, "n_draws n_noise"],
    diffusion: AbstractDiffusion,
    start: Float[Array, "n_draws n n_dims"],
    begin: Float[Array, ""],
    steps: Float[Array, " n_steps"],
    n_taken: Int[Array, ""],
    streams: Int[Array, " n_draws"],
    n_streams: int,
    key: PRNGKeyArray,
) -> Float[Array, "n_draws n n_dims"]:
    times = step_times(begin, steps)

    def one(drift, v, x, t, h, z):
        process = ItoProcess(drift.at(t), diffusion.moved(v) if moved.shape[1] else diffusion)
        return jax.vmap(process.euler_step, in_axes=(0, None, 0))(x, h, z)

    def step(k, x):
        keys = jax.vmap(jax.random.fold_in, in_axes=(None, 0))(jax.random.fold_in(key, k), jnp.arange(n_streams))
        z = jax.vmap(lambda stream: jax.random.normal(stream, x.shape[1:], x.dtype))(keys)
        now = (times[k], steps[k])
        return eqx.filter_vmap(one, in_axes=(axes, 0, 0, None, None, 0))(drifts, moved, x, *now, z[streams])

    return jax.lax.fori_loop(0, n_taken, step, start)
