"""Forecast: push a cloud through a process to any time, as snapshots again."""

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PRNGKeyArray

from itofit.errors import InputError
from itofit.problem import Stream, Streams
from itofit.process.ito import ItoProcess
from itofit.simulate.euler import euler_push
from itofit.simulate.mesh import Mesh
from itofit.snapshots.clouds import Snapshot, Snapshots, numeric_times, time_tolerance
from itofit.snapshots.scaling import Scaling
from itofit.transport.bridging import bridged

# Where a cloud starts; a forecast may also be a bridge, from the snapshot before to the one after,
# or half of it so and half along the straight lines of a transport plan.
PREVIOUS = "previous"
STARTS = ("initial", PREVIOUS)
# What judging chose; of a model that was not judged, from the first snapshot.
AUTO = "auto"
BRIDGE = "bridge"
BRIDGE_OT = "bridge_ot"
# Points that carry the check of a step.
_MOST_CHECKED = 1000


@dataclass(frozen=True, eq=False)
class Conditional:
    """Where paths from given states are later.

    Parameters
    ----------
    draws : array of shape (..., n_paths, n_dims)
        Ends of paths, one set for every state.
    """

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

    def quantile(
        self, levels: float | Sequence[float]
    ) -> Float[np.ndarray, "*levels_and_n n_dims"]:
        """Conditional quantiles, coordinate by coordinate; several levels come first.

        Parameters
        ----------
        levels : float or sequence of float
            Between 0 and 1; several come first in the result.

        Returns
        -------
        array of shape (..., n_dims)
            Coordinate by coordinate.
        """
        wanted = np.asarray(levels, dtype=np.float64)
        if wanted.size == 0 or not np.all((wanted >= 0.0) & (wanted <= 1.0)):
            raise InputError(
                expected="levels between 0 and 1", found=f"{levels!r}", hint="(0.1, 0.5, 0.9)"
            )
        return np.quantile(self.draws, wanted, axis=-2)


def checked_times(times: Sequence[float] | np.ndarray, first: float) -> np.ndarray:
    """Increasing forecast times from `first` on, or a refusal."""
    wanted = np.atleast_1d(numeric_times(times))
    if wanted.ndim != 1 or wanted.size == 0 or not np.all(np.isfinite(wanted)):
        raise InputError(
            expected="one or more finite times", found=f"{times!r}", hint="forecast([0.5, 5.0])"
        )
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
    start = "initial" if start == AUTO else start
    if start not in STARTS:
        raise InputError(
            expected=f"start to be one of {', '.join(STARTS)}, or of a forecast {AUTO}, {BRIDGE} "
            f"or {BRIDGE_OT}",
            found=f"{start!r}",
            hint="'initial'",
        )
    if start == "initial":
        return snapshots.at(float(snapshots.times[0]))
    earlier = snapshots.times[snapshots.times <= time + time_tolerance(snapshots.times)]
    return snapshots.at(float(earlier[-1]))


def resampled(cloud: Snapshot, size: int | None, rng: np.random.Generator) -> Snapshot:
    """`size` equally weighted points by systematic resampling; with None the cloud as it is."""
    if size is None:
        return cloud
    rows = resampled_rows(cloud.weights, size, rng)
    return Snapshot(cloud.time, cloud.points[rows], np.full(size, 1.0 / size))


def resampled_rows(
    weights: Float[np.ndarray, " n"], size: int, rng: np.random.Generator
) -> Int[np.ndarray, " size"]:
    """`size` row numbers by systematic resampling, in no order."""
    if size < 2:
        raise InputError(
            expected="n_samples of at least 2",
            found=f"{size}",
            hint="leave it out for all start points",
        )
    positions = (np.arange(size) + rng.uniform()) / size
    order = rng.permutation(len(weights))
    places = np.searchsorted(np.cumsum(weights[order]), positions)
    rows = order[np.minimum(places, len(weights) - 1)]
    return rng.permutation(rows)


def push_forward(
    process: ItoProcess,
    start: Snapshot,
    times: Sequence[float] | np.ndarray,
    dt: float,
    *,
    key: PRNGKeyArray,
) -> list[Float[np.ndarray, "n n_dims"]]:
    """The cloud carried from `start` to each of the increasing `times`, row k the same particle
    throughout.
    """
    x = jnp.asarray(start.points, dtype=float)
    now = start.time
    clouds = []
    for i, time in enumerate(times):
        if time > now:
            steps = jnp.asarray(Mesh.refine([now, time], dt).steps, dtype=float)
            x = _push(process, x, steps, jax.random.fold_in(key, i), jnp.asarray(now, float))
            now = time
        clouds.append(start.points if now == start.time else np.asarray(x, dtype=np.float64))
    return clouds


def push_in_units(
    process: ItoProcess,
    scaling: Scaling,
    dt: float,
    start: Snapshot,
    times: Sequence[float] | np.ndarray,
    key: PRNGKeyArray,
) -> list[Float[np.ndarray, "n n_dims"]]:
    """`push_forward` of a standardised process, from and to the user's units.

    It runs in standardised units, where single precision serves whatever the user's units are.
    """
    standard = Snapshot(start.time, scaling.standardise(start.points), start.weights)
    clouds = push_forward(process, standard, times, dt, key=key)
    return [scaling.restore(z) for z in finite(clouds, times[-1])]


def finite(clouds: list[np.ndarray], last: float) -> list[np.ndarray]:
    """The same clouds, or a refusal."""
    if not all(np.all(np.isfinite(z)) for z in clouds):
        raise InputError(
            expected=f"a process that stays finite up to t = {last:g}",
            found="points that ran to infinity",
            hint="forecast nearer to the data; the drift is extrapolated where no point was ever "
            "seen",
        )
    return clouds


# (start, increasing times, key) -> a cloud at each time, all in the user's units
Push = Callable[[Snapshot, Sequence[float], PRNGKeyArray], list[np.ndarray]]


@dataclass(frozen=True, eq=False)
class Forecaster:
    """Clouds at any time, carried there from the snapshots of a fit.

    - `push`: carries a cloud forward. `snapshots`: where clouds start, in the user's units.
    """

    push: Push
    snapshots: Snapshots
    streams: Streams

    def clouds(
        self,
        times: np.ndarray,
        n_samples: int | None = None,
        start: str = "initial",
        first: Snapshot | None = None,
    ) -> Snapshots:
        """Clouds at increasing `times`; `first` stands in for the first snapshot where given."""
        start = "initial" if start == AUTO else start
        begins = [self._start(float(time), start).time for time in times]
        points = []
        weights = []
        for began, group in itertools.groupby(range(len(times)), key=lambda i: begins[i]):
            chosen = [float(times[i]) for i in group]
            is_first = first is not None and began == first.time
            source = first if first is not None and is_first else self.snapshots.at(began)
            clouds = self._from_one(source, chosen, n_samples, start)
            points += [cloud.points for cloud in clouds]
            weights += [cloud.weights for cloud in clouds]
        return Snapshots.from_arrays(points, times, weights, self.snapshots.names)

    def _start(self, time: float, start: str) -> Snapshot:
        return start_before(self.snapshots, time, starting_snapshot(start))

    def _from_one(
        self, source: Snapshot, times: list[float], n_samples: int | None, start: str
    ) -> list[Snapshot]:
        """The clouds of one start; a bridge is held to the snapshot after it, if there is one."""
        cloud = resampled(source, n_samples, self.streams.rng(Stream.resampling))
        after = int(np.searchsorted(self.snapshots.times, source.time, side="right"))
        key = self.streams.key(Stream.forecast, after - 1)
        if start in STARTS or after == len(self.snapshots):
            clouds = self.push(cloud, times, key)
            return [Snapshot(t, x, cloud.weights) for t, x in zip(times, clouds, strict=True)]
        target = self.snapshots.at(float(self.snapshots.times[after]))
        *clouds, end = self.push(cloud, [*times, target.time], key)
        paths = Paths(times, clouds, end, cloud)
        bridges = paths.bridged(target)
        if start == BRIDGE_OT:
            bridges = _half_and_half(bridges, paths.at_rest().bridged(target))
        if n_samples is None:
            return bridges
        return [self._thinned(bridge, n_samples) for bridge in bridges]

    def _thinned(self, cloud: Snapshot, n_samples: int) -> Snapshot:
        return resampled(cloud, n_samples, self.streams.rng(Stream.resampling))


@dataclass(frozen=True, eq=False)
class Paths:
    """Paths of a process from the cloud `start`: where they are at `times`, and at their `end`."""

    times: list[float]
    clouds: list[np.ndarray]
    end: np.ndarray
    start: Snapshot

    def at_rest(self) -> "Paths":
        """Paths that do not move: their bridges are the straight lines of the transport plan."""
        points = self.start.points
        return Paths(self.times, [points] * len(self.times), points, self.start)

    def bridged(self, target: Snapshot) -> list[Snapshot]:
        """The paths moved so that they end in the snapshot `target`."""
        length = target.time - self.start.time
        fractions = [(time - self.start.time) / length for time in self.times]
        clouds, weights = bridged(self.clouds, self.end, self.start.weights, target, fractions)
        return [Snapshot(t, x, weights) for t, x in zip(self.times, clouds, strict=True)]


def _half_and_half(some: list[Snapshot], others: list[Snapshot]) -> list[Snapshot]:
    """Both clouds at every time, each counting half."""
    joined = []
    for a, b in zip(some, others, strict=True):
        points = np.concatenate([a.points, b.points])
        weights = np.concatenate([a.weights, b.weights]) / 2.0
        joined.append(Snapshot(a.time, points, weights))
    return joined


def starting_snapshot(start: str) -> str:
    """The snapshot that such a forecast starts from, `initial` or `previous`."""
    if start == AUTO:
        return "initial"
    return PREVIOUS if start in (BRIDGE, BRIDGE_OT) else start


def step_doubling_error(
    process: ItoProcess, start: Snapshot, times: np.ndarray, dt: float, *, key: PRNGKeyArray
) -> float:
    """How far halving `dt` moves the law: the largest shift of a mean or sd at `times`, in units of
    that sd.

    Both chains are driven by the same Brownian path, so the difference is the scheme's and not the
    noise's. The returned value compares dt with dt / 2; Euler's weak error at dt is about twice
    that.
    """
    worst = 0.0
    coarse = fine = jnp.asarray(start.points, dtype=float)
    w = jnp.asarray(start.weights, dtype=float)
    begins = np.concatenate([[start.time], times[times > start.time]])
    for i, (begin, end) in enumerate(itertools.pairwise(begins)):
        n_steps = jnp.asarray(len(Mesh.refine([begin, end], dt).steps))
        span = jnp.asarray([begin, end], dtype=float)
        keys = jax.random.fold_in(key, i)
        coarse, fine = _with_steps_halved(process, coarse, fine, span, n_steps, keys)
        (m0, s0) = _moments(coarse, w)
        (m1, s1) = _moments(fine, w)
        shift = jnp.maximum(jnp.abs(m0 - m1), jnp.abs(s0 - s1)) / jnp.maximum(s1, 1e-12)
        # A chain that runs to infinity is as far off as can be; max() would pass over its NaN.
        worst = max(worst, float(jnp.max(jnp.where(jnp.isnan(shift), jnp.inf, shift))))
    return worst


def step_error_from_first(
    process: ItoProcess, snapshots: Snapshots, dt: float, streams: Streams
) -> float:
    """How far halving dt moves a mean or sd of the first snapshot's points, in sds.

    All in the units of the process.
    """
    first = snapshots.at(float(snapshots.times[0]))
    size = min(len(first.points), _MOST_CHECKED)
    start = resampled(first, size, streams.rng(Stream.resampling))
    key = streams.key(Stream.step_check)
    return step_doubling_error(process, start, snapshots.times, dt, key=key)


def _moments(x, w):
    mean = w @ x
    return mean, jnp.sqrt(w @ (x - mean) ** 2)


@eqx.filter_jit
def _push(process, start, steps, key, begin):
    return euler_push(process, start, steps, key, begin)


@eqx.filter_jit
def _with_steps_halved(
    process: ItoProcess,
    coarse: Float[Array, "n n_dims"],
    fine: Float[Array, "n n_dims"],
    span: Float[Array, "2"],
    n_steps: Int[Array, ""],
    key: PRNGKeyArray,
) -> tuple[Float[Array, "n n_dims"], Float[Array, "n n_dims"]]:
    """One cloud carried by so many steps and another by twice as many, on the same Brownian paths.

    One program for any number of steps.
    """
    begin, end = span
    h = (end - begin) / n_steps

    def moved(x, time, length, z):
        now = process.at(time)
        return jax.vmap(now.euler_step, in_axes=(0, None, 0))(x, length, z)

    def step(k, clouds):
        x, y = clouds
        now = begin + k * h
        z = jax.random.normal(jax.random.fold_in(key, k), (2, *x.shape), x.dtype)
        x = moved(x, now + 0.5 * h, h, (z[0] + z[1]) / jnp.sqrt(2.0))
        y = moved(y, now + 0.25 * h, 0.5 * h, z[0])
        return x, moved(y, now + 0.75 * h, 0.5 * h, z[1])

    return jax.lax.fori_loop(0, n_steps, step, (coarse, fine))
