"""Forecast: push a cloud through a process to any time, as snapshots again."""

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, Int, PRNGKeyArray

from itofit.errors import InputError
from itofit.process.ito import ItoProcess
from itofit.simulate.euler import euler_path, euler_push
from itofit.simulate.mesh import Mesh
from itofit.snapshots.clouds import Snapshot, Snapshots, numeric_times, time_tolerance
from itofit.snapshots.scaling import Scaling

# Where a cloud is grown from; a forecast may also be `between`: grown from the snapshot before, landed in that after;
# or `hedged`: half of it so, half on straight lines between the two.
STARTS = ("initial", "previous")
BETWEEN, HEDGED = "between", "hedged"
# (clouds, their ends, weights, the snapshot to land in, shares of the way) -> (clouds, weights)
Landing = Callable[..., tuple[list[np.ndarray], np.ndarray]]


@dataclass(frozen=True, eq=False)
class Conditional:
    """Where paths from given states are later, as draws: `(n_paths, n_dims)`, or one such array a state."""

    draws: Float[np.ndarray, "*n n_paths n_dims"]

    @property
    def mean(self) -> Float[np.ndarray, "*n n_dims"]:
        """The conditional mean."""
        return self.draws.mean(axis=-2)

    @property
    def median(self) -> Float[np.ndarray, "*n n_dims"]:
        """The conditional median, coordinate by coordinate."""
        return np.median(self.draws, axis=-2)

    @property
    def sd(self) -> Float[np.ndarray, "*n n_dims"]:
        """The conditional standard deviation."""
        return self.draws.std(axis=-2)

    def quantile(self, levels: float | Sequence[float]) -> Float[np.ndarray, "*levels_and_n n_dims"]:
        """Conditional quantiles, coordinate by coordinate; several levels come first."""
        wanted = np.asarray(levels, dtype=np.float64)
        if wanted.size == 0 or not np.all((wanted >= 0.0) & (wanted <= 1.0)):
            raise InputError(expected="levels between 0 and 1", found=f"{levels!r}", hint="(0.1, 0.5, 0.9)")
        return np.quantile(self.draws, wanted, axis=-2)


def checked_times(times: Sequence[float] | np.ndarray, first: float) -> np.ndarray:
    """Increasing forecast times from `first` on, or a refusal."""
    wanted = np.atleast_1d(numeric_times(times))
    if wanted.ndim != 1 or wanted.size == 0 or not np.all(np.isfinite(wanted)):
        raise InputError(expected="one or more finite times", found=f"{times!r}", hint="forecast([0.5, 5.0])")
    tolerance = 1e-11 * max(abs(first), float(np.abs(wanted).max()))
    if np.any(wanted < first - tolerance):
        raise InputError(
            expected=f"times from the first snapshot on (t0 = {first:g})",
            found=f"t = {wanted.min():g}",
            hint="a process is only run forwards; fit snapshots that begin earlier",
        )
    return np.unique(np.maximum(wanted, first))


def start_before(snapshots: Snapshots, time: float, start: str) -> Snapshot:
    """The first snapshot (`initial`), or the last one at or before `time` (`previous`)."""
    if start not in STARTS:
        raise InputError(
            expected=f"start to be one of {', '.join(STARTS)}, or of a forecast {BETWEEN} or {HEDGED}",
            found=f"{start!r}",
            hint="'initial'",
        )
    if start == "initial":
        return snapshots.at(float(snapshots.times[0]))
    earlier = snapshots.times[snapshots.times <= time + time_tolerance(snapshots.times)]
    return snapshots.at(float(earlier[-1]))


def resampled(
    points: Float[np.ndarray, "n n_dims"], weights: Float[np.ndarray, " n"], size: int | None, seed: int
) -> tuple[np.ndarray, np.ndarray]:
    """`size` equally weighted points by systematic resampling, or with None every point once with its weight."""
    if size is None:
        return points, weights
    return points[resampled_rows(weights, size, seed)], np.full(size, 1.0 / size)


def resampled_rows(weights: Float[np.ndarray, " n"], size: int, seed: int) -> Int[np.ndarray, " size"]:
    """`size` row numbers by systematic resampling, in no order."""
    if size < 2:
        raise InputError(expected="n_samples of at least 2", found=f"{size}", hint="leave it out for all start points")
    rng = np.random.default_rng(seed)
    positions = (np.arange(size) + rng.uniform()) / size
    order = rng.permutation(len(weights))
    rows = order[np.minimum(np.searchsorted(np.cumsum(weights[order]), positions), len(weights) - 1)]
    return rng.permutation(rows)


def push_forward(
    process: ItoProcess,
    start: Snapshot,
    times: Sequence[float] | np.ndarray,
    dt: float,
    *,
    key: PRNGKeyArray,
) -> list[Float[np.ndarray, "n n_dims"]]:
    """The cloud grown from `start` at each of the increasing `times`, row k the same particle throughout."""
    x, now, clouds = jnp.asarray(start.points, dtype=float), start.time, []
    for i, time in enumerate(times):
        if time > now:
            steps = jnp.asarray(Mesh.refine([now, time], dt).steps, dtype=float)
            x, now = _push(process, x, steps, jax.random.fold_in(key, i), jnp.asarray(now, float)), time
        clouds.append(start.points if now == start.time else np.asarray(x, dtype=np.float64))
    return clouds


def push_in_units(
    process: ItoProcess,
    scaling: Scaling,
    start: Snapshot,
    times: Sequence[float] | np.ndarray,
    dt: float,
    *,
    key: PRNGKeyArray,
) -> list[Float[np.ndarray, "n n_dims"]]:
    """`push_forward` of a standardised process, from and to the user's units.

    It runs in standardised units, where single precision serves whatever the user's units are.
    """
    standard = Snapshot(start.time, scaling.standardise(start.points), start.weights)
    return [scaling.restore(z) for z in finite(push_forward(process, standard, times, dt, key=key), times[-1])]


def finite(clouds: list[np.ndarray], last: float) -> list[np.ndarray]:
    """The same clouds, or a refusal."""
    if not all(np.all(np.isfinite(z)) for z in clouds):
        raise InputError(
            expected=f"a process that stays finite up to t = {last:g}",
            found="points that ran to infinity",
            hint="forecast nearer to the data; the drift is extrapolated where no point was ever seen",
        )
    return clouds


def grown(
    process: Any,
    scaling: Scaling,
    snapshots: Snapshots,
    times: np.ndarray,
    dt: float,
    *,
    n_samples: int | None,
    start: str,
    first: Snapshot | None,
    seed: int,
    key: PRNGKeyArray,
    land: Landing,
    push: Callable[..., list[np.ndarray]] = push_in_units,
) -> Snapshots:
    """Clouds at increasing `times`, grown from the snapshot that `start` names; `first` stands in for the first.

    Of clouds `between` and `hedged`, `land` holds the paths to the snapshot after; beyond the last there is none.
    """
    clouds, masses = [], []
    begins = [start_before(snapshots, float(t), grown_from(start)).time for t in times]
    for began, group in itertools.groupby(range(len(times)), key=lambda i: begins[i]):
        wanted = [float(times[i]) for i in group]
        source = first if first is not None and began == first.time else snapshots.at(began)
        points, weights = resampled(source.points, source.weights, n_samples, seed)
        after = int(np.searchsorted(snapshots.times, began, side="right"))
        begin_key = jax.random.fold_in(key, after - 1)
        held = start in (BETWEEN, HEDGED) and after < len(snapshots)
        ends = [float(snapshots.times[after])] if held else []
        found = push(process, scaling, Snapshot(began, points, weights), [*wanted, *ends], dt, key=begin_key)
        if ends:
            shares = [(t - began) / (ends[0] - began) for t in wanted]
            goal, resting = snapshots.at(ends[0]), ([points] * len(wanted), points, weights)
            found, weights = land(found[:-1], found[-1], weights, goal, shares)
            if start == HEDGED:  # points at rest land along the straight lines of the transport plan
                lines, masses_of_lines = land(*resting, goal, shares)
                found = [np.concatenate(both) for both in zip(found, lines, strict=True)]
                weights = np.concatenate([weights, masses_of_lines]) / 2.0
            if n_samples is not None:
                rows = resampled_rows(weights, n_samples, seed)
                found, weights = [cloud[rows] for cloud in found], np.full(n_samples, 1.0 / n_samples)
        clouds += found
        masses += [weights] * len(wanted)
    return Snapshots.from_arrays(clouds, times, masses, snapshots.names)


def grown_from(start: str) -> str:
    """The snapshot that such a forecast is grown from, `initial` or `previous`."""
    return "previous" if start in (BETWEEN, HEDGED) else start


def step_doubling_error(
    process: ItoProcess, start: Snapshot, times: np.ndarray, dt: float, *, key: PRNGKeyArray
) -> float:
    """How far halving `dt` moves the law: the largest shift of a mean or sd at `times`, in units of that sd.

    Both chains are driven by the same Brownian path, so the difference is the scheme's and not the noise's.
    The returned value compares dt with dt / 2; Euler's weak error at dt is about twice that.
    """
    coarse, worst = Mesh.refine(np.concatenate([[start.time], times[times > start.time]]), dt), 0.0
    h = jnp.asarray(coarse.steps, dtype=float)
    x0, w = jnp.asarray(start.points, dtype=float), jnp.asarray(start.weights, dtype=float)
    z, begin = jax.random.normal(key, (len(h), 2, *x0.shape)), jnp.asarray(start.time, dtype=float)
    fine = _path(process, x0, jnp.repeat(h / 2.0, 2), z.reshape(-1, *x0.shape), begin)[::2]
    plain = _path(process, x0, h, (z[:, 0] + z[:, 1]) / jnp.sqrt(2.0), begin)
    for k in coarse.observed[1:]:
        (m0, s0), (m1, s1) = _moments(plain[k], w), _moments(fine[k], w)
        shift = jnp.maximum(jnp.abs(m0 - m1), jnp.abs(s0 - s1)) / jnp.maximum(s1, 1e-12)
        # A chain that runs to infinity is as far off as can be; max() would pass over its NaN.
        worst = max(worst, float(jnp.max(jnp.where(jnp.isnan(shift), jnp.inf, shift))))
    return worst


def _moments(x, w):
    mean = w @ x
    return mean, jnp.sqrt(w @ (x - mean) ** 2)


@eqx.filter_jit
def _push(process, start, steps, key, begin):
    return euler_push(process, start, steps, key, begin)


@eqx.filter_jit
def _path(process, start, steps, noise, begin):
    return euler_path(process, start, steps, noise, begin)
