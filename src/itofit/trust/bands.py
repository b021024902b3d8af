"""Bands about a forecast: how far its means and quantiles would move with other particles of the same population."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray
from scipy.stats import norm

from itofit.errors import InputError
from itofit.forecast import start_before
from itofit.process.diffusion import AbstractDiffusion
from itofit.process.drift import AbstractDrift
from itofit.process.ito import ItoProcess
from itofit.simulate.mesh import Mesh
from itofit.snapshots.clouds import Snapshot, Snapshots
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
        found = _from_one_start(draws, diffusion, standard, at, some, dt, levels, k)
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

    Draws and fit share their noise, so that their difference is that of drift and start; the estimate itself has
    many chains.
    """
    few = draws.first(N_SIMULATED)
    weights = np.tile(start.weights, (few.n_draws, 1))
    if draws.seed is not None:
        weights *= particle_weights(draws.seed, snapshot, len(start.weights), draws.n_draws)[: few.n_draws]
        weights /= weights.sum(axis=1, keepdims=True)
    points, fitted = jnp.asarray(start.points, dtype=float), (draws.fitted, None)
    course = (diffusion, start.time, times, dt)
    clouds = _clouds((few.drifts, few.axes), few.n_draws, points, *course, key)
    beside = _clouds(fitted, 1, points, *course, key)
    many = _clouds(fitted, 1, jnp.tile(points, (_N_CHAINS, 1)), *course, jax.random.fold_in(key, 1))
    chained = np.tile(start.weights, _N_CHAINS) / _N_CHAINS
    estimates, errors = [], []
    for several, alone, fine in zip(clouds, beside, many, strict=True):
        found = np.stack([_statistics(cloud, w, levels) for cloud, w in zip(several, weights, strict=True)])
        estimates.append(_statistics(fine[0], chained, levels))
        errors.append(np.sqrt(np.mean((found - _statistics(alone[0], start.weights, levels)) ** 2, axis=0)))
    return np.stack(estimates), np.stack(errors)


def _statistics(x: np.ndarray, weights: np.ndarray, levels: np.ndarray) -> Float[np.ndarray, "n_statistics n_dims"]:
    """The mean and the quantiles of every coordinate."""
    order = np.argsort(x, axis=0)
    below = np.cumsum(weights[order], axis=0) - 0.5 * weights[order]
    columns = [np.interp(levels, below[:, d], x[order[:, d], d]) for d in range(x.shape[1])]
    return np.concatenate([(weights @ x)[None], np.stack(columns, axis=1)])


def _clouds(drifts, n_draws, points, diffusion, now, times, dt, key) -> list[Float[np.ndarray, "n_draws n n_dims"]]:
    """The clouds of every drift at increasing times, all driven by the same noise."""
    x, found = jnp.broadcast_to(points, (n_draws, *points.shape)), []
    for i, time in enumerate(times):
        if time > now:
            steps = jnp.asarray(Mesh.refine([now, time], dt).steps, dtype=float)
            x, now = _push(drifts[0], drifts[1], diffusion, x, steps, jax.random.fold_in(key, 2 + i)), time
        found.append(np.asarray(x, dtype=np.float64))
    return found


@eqx.filter_jit
def _push(
    drifts: AbstractDrift,
    axes: Any,
    diffusion: AbstractDiffusion,
    start: Float[Array, "n_draws n n_dims"],
    steps: Float[Array, " n_steps"],
    key: PRNGKeyArray,
) -> Float[Array, "n_draws n n_dims"]:
    def one(drift, x, h, z):
        return jax.vmap(ItoProcess(drift, diffusion).euler_step, in_axes=(0, None, 0))(x, h, z)

    def step(x, h_and_key):
        h, k = h_and_key
        z = jax.random.normal(k, x.shape[1:], x.dtype)
        return eqx.filter_vmap(one, in_axes=(axes, 0, None, None))(drifts, x, h, z), None

    return jax.lax.scan(step, start, (steps, jax.random.split(key, len(steps))))[0]
