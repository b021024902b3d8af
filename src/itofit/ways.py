"""Ways to forecast, and mixtures of them.

    process             bridges between snapshots; after the last, paths from the last
    process, flow       the same without noise
    lines               the straight lines of the transport plan; after the last they go on
    rest                the snapshot before

A mixture has points of each way in proportion to its weight.
"""

import functools
import zlib
from dataclasses import dataclass

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PRNGKeyArray

from itofit.errors import InputError
from itofit.forecast import (
    AUTO,
    BRIDGE,
    PREVIOUS,
    Forecaster,
    Paths,
    finite,
    push_in_units,
    resampled,
)
from itofit.problem import Problem, Stream
from itofit.process.ito import ItoProcess
from itofit.simulate.blocks import in_blocks
from itofit.simulate.mesh import Mesh
from itofit.snapshots.clouds import Snapshot, Snapshots, time_tolerance
from itofit.solution import Selection, Solution
from itofit.transport.displacement import continued_at

LINES = "lines"
REST = "rest"
FLOW = ", flow"
# Of a larger cloud so many points are carried: exact transport is cubic in their number.
_MOST_POINTS = 1000
# How far around the data, in their widths, a forecast between snapshots may be, but for so few
# points.
_SURROUNDINGS = 2.0
_FEW = 0.01
# Points carried at once: one program serves clouds of all sizes.
_BLOCK = 256


def ways_of(names: list[str]) -> list[str]:
    """All ways to forecast with these processes."""
    return [*(way for name in names for way in (name, name + FLOW)), LINES, REST]


@dataclass(frozen=True, eq=False)
class Ways:
    """The ways to forecast from the snapshots of a problem."""

    problem: Problem
    processes: dict[str, ItoProcess]

    def cloud(self, way: str, time: float, size: int | None) -> Snapshot:
        """The forecast of a way, between snapshots or after the last."""
        if way == REST:
            return resampled(self.before(time), size, self._rng(way))
        if way == LINES:
            return resampled(continued_at(self.problem.observed, time), size, self._rng(way))
        name = way.removesuffix(FLOW)
        start = resampled(self.before(time), size, self.problem.streams.rng(Stream.resampling))
        key = self.problem.streams.key(Stream.forecast, zlib.crc32(name.encode()) >> 1)
        run = _Run(self.processes[name], self.problem, key, 1.0 if way == name else 0.0)
        target = self._after(time)
        points = run.carried(start.points, start.time, time, leg=0)
        if target is None:
            return Snapshot(time, finite([points], time)[0], start.weights)
        end = run.carried(points, time, target.time, leg=1)
        finite([end], target.time)
        (bridge,) = Paths([time], [points], end, start).bridged(target)
        return bridge if size is None else resampled(bridge, size, self._rng(way))

    def is_observed(self, time: float) -> bool:
        """Whether there is a snapshot at this time."""
        times = self.problem.observed.times
        return bool(np.any(np.abs(times - time) <= time_tolerance(times)))

    def is_beyond(self, time: float) -> bool:
        """Whether the time is after the last snapshot."""
        return bool(time > self.problem.observed.times[-1])

    def strays(self, cloud: Snapshot) -> bool:
        """Whether a cloud between snapshots is in part where no data are near."""
        if self.is_beyond(cloud.time):
            return False
        observed = np.concatenate(self.problem.observed.clouds)
        low, high = np.min(observed, axis=0), np.max(observed, axis=0)
        margin = _SURROUNDINGS * (high - low)
        outside = np.any((cloud.points < low - margin) | (cloud.points > high + margin), axis=1)
        return bool(cloud.weights @ outside > _FEW)

    def before(self, time: float) -> Snapshot:
        """The last snapshot at or before a time."""
        times = self.problem.observed.times
        earlier = times[times <= time + time_tolerance(times)]
        return self.problem.observed.at(float(earlier[-1]))

    def _after(self, time: float) -> Snapshot | None:
        times = self.problem.observed.times
        later = times[times > time]
        return self.problem.observed.at(float(later[0])) if len(later) else None

    def _rng(self, way: str) -> np.random.Generator:
        return self.problem.streams.rng(Stream.mixture, *way.encode())


@dataclass(frozen=True, eq=False)
class _Run:
    """A process, its noise multiplied by `noise`, and how clouds are carried along it."""

    process: ItoProcess
    problem: Problem
    key: PRNGKeyArray
    noise: float

    def carried(self, points: np.ndarray, begin: float, end: float, leg: int) -> np.ndarray:
        """The points of a time `begin` at a time `end`, all in the user's units.

        Every leg of a path has noise of its own.
        """
        n_steps = len(Mesh.refine([begin, end], self.problem.dt).steps)
        scaling = self.problem.scaling
        span = jnp.asarray([begin, end, self.noise], dtype=float)
        x = jnp.asarray(scaling.standardise(points), dtype=float)
        key = jax.random.fold_in(self.key, leg)
        n = jnp.asarray(n_steps)
        ends = [
            np.asarray(_carried(self.process, block, span, n, jax.random.fold_in(key, k)))
            for k, block in enumerate(in_blocks(x, _BLOCK))
        ]
        return scaling.restore(np.concatenate(ends)[: len(x)].astype(np.float64))


@eqx.filter_jit
def _carried(
    process: ItoProcess,
    x: Float[Array, "n n_dims"],
    span: Float[Array, "3"],
    n_steps: Int[Array, ""],
    key: PRNGKeyArray,
) -> Float[Array, "n n_dims"]:
    """Euler-Maruyama; one program for any number of steps."""
    begin, end, noise = span
    h = (end - begin) / n_steps

    def step(k, x):
        now = process.at(begin + k * h)
        z = noise * jax.random.normal(jax.random.fold_in(key, k), x.shape, x.dtype)
        return jax.vmap(lambda y, shock: now.euler_step(y, h, shock))(x, z)

    return jax.lax.fori_loop(0, n_steps, step, x)


@dataclass(frozen=True, eq=False)
class Mixture:
    """Forecasts in which every way has points in proportion to its weight."""

    ways: Ways
    selection: Selection

    def clouds(self, times: np.ndarray, n_samples: int | None) -> Snapshots:
        """Clouds at increasing times, all points of which count the same."""
        clouds = [self._cloud(float(time), n_samples) for time in times]
        points = [cloud.points for cloud in clouds]
        weights = [cloud.weights for cloud in clouds]
        return Snapshots.from_arrays(points, times, weights, self.ways.problem.observed.names)

    def answers(self, start: str, times: np.ndarray) -> bool:
        """Whether forecasts from this start are mixtures at these times.

        A free run from the snapshot before is of the process alone where snapshots lie on both
        sides.
        """
        if start in (AUTO, BRIDGE):
            return True
        return start == PREVIOUS and all(self.ways.is_beyond(float(time)) for time in times)

    def _cloud(self, time: float, n_samples: int | None) -> Snapshot:
        ways = self.ways
        before = ways.before(time)
        rng = ways.problem.streams.rng(Stream.mixture)
        if ways.is_observed(time):
            return resampled(before, n_samples, rng)
        weights = self.selection.beyond if ways.is_beyond(time) else self.selection.between
        size = len(before.points) if n_samples is None else n_samples
        whole = None if len(before.points) <= _MOST_POINTS else _MOST_POINTS
        clouds = self._finite_clouds(weights, time, whole)
        # All ways at once: a far point that is in each of them is drawn once and not by luck.
        mass = np.concatenate([weights[way] * cloud.weights for way, cloud in clouds.items()])
        points = np.concatenate([cloud.points for cloud in clouds.values()])
        pooled = Snapshot(time, points, mass / np.sum(mass))
        mixed = rng.permutation(evenly(pooled, size, rng))
        return Snapshot(time, mixed, np.full(size, 1.0 / size))

    def _finite_clouds(
        self, weights: dict[str, float], time: float, size: int | None
    ) -> dict[str, Snapshot]:
        """The clouds of the ways that count; one that runs to infinity leaves its part.

        So does one that leaves the surroundings of the data between two snapshots.
        """
        clouds = {}
        strayed = {}
        refusal = None
        for way, weight in weights.items():
            if weight == 0.0:
                continue
            try:
                cloud = self.ways.cloud(way, time, size)
            except InputError as error:
                refusal = error
                continue
            among = strayed if self.ways.strays(cloud) else clouds
            among[way] = cloud
        if refusal is not None and not clouds and not strayed:
            raise refusal
        return clouds or strayed


def evenly(cloud: Snapshot, size: int, rng: np.random.Generator) -> np.ndarray:
    """`size` points spread over a cloud as its weights are: fewer accidents than a random draw.

    Points are passed in slabs across the first principal axis, up and down the second one, and
    taken at equal steps of their mass.
    """
    centred = cloud.points - cloud.weights @ cloud.points
    _, _, axes = np.linalg.svd(np.sqrt(cloud.weights)[:, None] * centred, full_matrices=False)
    along = centred @ axes[:2].T
    ranks = np.argsort(np.argsort(along[:, 0]))
    n_slabs = max(1, round(np.sqrt(size))) if along.shape[1] > 1 else len(ranks)
    slab = ranks * n_slabs // len(ranks)
    across = along[:, -1] if along.shape[1] > 1 else ranks
    order = np.lexsort((np.where(slab % 2, -across, across), slab))
    mass = np.cumsum(cloud.weights[order])
    places = np.searchsorted(mass, (np.arange(size) + rng.uniform()) / size * mass[-1])
    return cloud.points[order[np.minimum(places, len(order) - 1)]]


def mixture_of(solution: Solution) -> Mixture | None:
    """The mixture that a judged solution forecasts with."""
    selection = solution.selection
    if selection is None:
        return None
    return Mixture(Ways(solution.problem, selection.processes), selection)


def forecaster_of(solution: Solution) -> Forecaster:
    """The forecaster of a fitted process by itself."""
    problem = solution.problem
    push = functools.partial(push_in_units, solution.process, problem.scaling, problem.dt)
    return Forecaster(push, problem.observed, problem.streams)
