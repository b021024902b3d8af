"""Flights: bundles of Euler chains from one snapshot to another, driven by the same noise at every call.

Each start point flies `n_draws` times, in antithetic pairs (noise z and -z), so the problem is deterministic and the
noise of the simulation small beside that of the data. Points travel in chunks of one size: memory stays bounded and
one compilation serves snapshots of any size.
"""

import functools
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from itofit.process.diffusion import AbstractDiffusion
from itofit.process.drift import FeatureDrift
from itofit.process.ito import ItoProcess
from itofit.simulate.mesh import Mesh
from itofit.simulate.sensitivity import BLOCK, chain_ends, chain_sensitivities
from itofit.snapshots.clouds import Snapshots
from itofit.solve.game import legs_between


@dataclass(frozen=True, eq=False)
class Flight:
    """Chains from the snapshot `start` to the snapshot `target`.

    - `weights`: of the start points.
    - `times`, `steps`: the middle of each step and its length, filled up to whole blocks of `block`; `n_steps` count.
    - `starts`, `noise`: the chunks; the last is filled up with points that count nothing.
    - `heun`: whether the steps are Heun's instead of Euler's.
    """

    start: int
    target: int
    weights: Float[np.ndarray, " n_points"]
    n_draws: int
    times: Float[Array, " n_steps"]
    steps: Float[Array, " n_steps"]
    n_steps: int
    block: int
    starts: tuple[Float[Array, "chunk n_dims"], ...]
    noise: tuple[Float[Array, "n_steps chunk n_dims"], ...]
    heun: bool = False

    @functools.cached_property
    def chunk_weights(self) -> tuple[Float[Array, " chunk"], ...]:
        """What every chain counts in a mean, chunk by chunk."""
        size = len(self.starts[0])
        weights = np.zeros(size * len(self.starts), dtype=np.float32)
        weights[: self.n_draws * len(self.weights)] = np.tile(self.weights, self.n_draws) / self.n_draws
        return tuple(jnp.asarray(weights[a : a + size]) for a in range(0, len(weights), size))

    def chains(self) -> list[tuple[Array, Array, Array]]:
        """Start points, noise and weights, chunk by chunk: all points with the first draw, then with the second, ..."""
        return list(zip(self.starts, self.noise, self.chunk_weights, strict=True))

    def parts(self, n_points: int, n_features: int, size: int | None = None) -> list[tuple[Array, Array, Array]]:
        """The same for the first `n_points` start points and the first draw, in chunks fit for sensitivities."""
        n_points = min(n_points, len(self.weights))
        whole, n_dims = self.starts[0].shape
        size = min(whole, size) if size is not None else _sensitivity_chunk(n_features, n_dims, whole)
        weights = np.zeros(-(-n_points // size) * size, dtype=np.float32)
        weights[:n_points] = self.weights[:n_points] / self.weights[:n_points].sum()
        found = []
        for at in range(0, n_points, size):
            chunk, row = divmod(at, whole)
            x, z = _part(self.starts[chunk], self.noise[chunk], jnp.asarray(row), size)
            found.append((x, z, jnp.asarray(weights[at : at + size])))
        return found

    def fold(self, k: int, count: int) -> "Flight":
        """The k-th of `count` parts of the start points, each flown once; `count` is a power of two up to 16."""
        starts = tuple(x[k::count] for x in self.starts)
        noise = tuple(z[:, k::count] for z in self.noise)
        weights = self.weights[k::count] / self.weights[k::count].sum()
        return replace(self, weights=weights, n_draws=1, starts=starts, noise=noise)

    def end(self, process: ItoProcess, start: Array, noise: Array) -> Float[Array, "chunk n_dims"]:
        """Where the chains of one chunk end."""
        return chain_ends(process, start, self.times, self.steps, noise, jnp.asarray(self.n_steps), self.heun)

    def sensitivity(
        self, drift: FeatureDrift, diffusion: AbstractDiffusion, start: Array, noise: Array
    ) -> tuple[Array, Array, Array]:
        """Where the chains of one chunk end, and dX / dW and dX / dtheta there."""
        n_blocks = jnp.asarray(-(-self.n_steps // self.block))
        return chain_sensitivities(drift, diffusion, start, self.times, self.steps, noise, n_blocks, self.block)


def on_cores(function: Callable[..., Any], items: Sequence[tuple[Any, ...]]) -> list[Any]:
    """`function(*item)` for every item; on a CPU by one thread a core, since XLA runs a loop of small steps on one."""
    if not _on_cpu() or len(items) < 2:
        return [function(*item) for item in items]
    device = _device()

    def work(item):
        with jax.default_device(device):
            return jax.block_until_ready(function(*item))

    return list(_pool().map(work, items))


@functools.cache
def _pool() -> ThreadPoolExecutor:
    allowed = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return ThreadPoolExecutor(allowed, thread_name_prefix="itofit")


def flights_between(
    snapshots: Snapshots, mesh: Mesh, anchor: str, n_draws: int, seed: int, heun: bool = False
) -> tuple[Flight, ...]:
    """One flight to every snapshot after the first, from the one before it or from the first."""
    legs = legs_between(mesh, anchor)
    longest = max(len(leg.steps) for leg in legs)
    block = min(BLOCK, longest)
    padded = -(-longest // block) * block
    return tuple(
        _flight(snapshots, leg.start, target, leg.steps[:end], padded, block, n_draws, seed, heun)
        for leg in legs
        for target, end in leg.targets
    )


def _flight(
    snapshots: Snapshots, start: int, target: int, steps, padded: int, block: int, n_draws: int, seed: int, heun: bool
) -> Flight:
    points = snapshots.clouds[start].astype(np.float32)
    n_points, n_dims = points.shape
    total, size = n_draws * n_points, chunk_size(n_draws * n_points)
    full = -(-total // size) * size
    starts = np.zeros((full, n_dims), dtype=np.float32)
    starts[:total] = np.tile(points, (n_draws, 1))
    noise = np.zeros((padded, full, n_dims), dtype=np.float32)
    # One stream a start snapshot, drawn step by step: flights that share a start share their noise.
    rng = np.random.default_rng([seed, start])
    for k in range(len(steps)):
        half = rng.standard_normal(((n_draws + 1) // 2, n_points, n_dims), dtype=np.float32)
        noise[k, :total] = np.concatenate([half, -half])[:n_draws].reshape(total, n_dims)
    lengths = np.zeros(padded, dtype=np.float32)
    lengths[: len(steps)] = steps
    times = snapshots.times[start] + np.cumsum(lengths, dtype=np.float64) - 0.5 * lengths
    return Flight(
        start=start,
        target=target,
        weights=snapshots.weights[start],
        n_draws=n_draws,
        times=jnp.asarray(times, dtype=float),
        steps=jnp.asarray(lengths),
        n_steps=len(steps),
        block=block,
        starts=tuple(jnp.asarray(starts[a : a + size]) for a in range(0, full, size)),
        noise=tuple(jnp.asarray(noise[:, a : a + size]) for a in range(0, full, size)),
        heun=heun,
    )


@eqx.filter_jit
def _part(x, z, row, size: int):
    return jax.lax.dynamic_slice_in_dim(x, row, size), jax.lax.dynamic_slice_in_dim(z, row, size, axis=1)


def _on_cpu() -> bool:
    return _device().platform == "cpu"


def _device() -> Any:
    """The device computations go to, as the caller's `jax.default_device` says; threads do not inherit it."""
    return jnp.zeros(()).devices().pop()


def chunk_size(n: int) -> int:
    """Points a chunk: what keeps a CPU's cache warm, or fills a GPU; small clouds are not filled up much."""
    largest = 1024 if _on_cpu() else 16_384
    return min(largest, max(64, 1 << (n - 1).bit_length()))


def _sensitivity_chunk(n_features: int, n_dims: int, largest: int) -> int:
    """Points a chunk when sensitivities are carried, n_dims^2 n_features numbers a point (sizes measured)."""
    each = n_dims * n_dims * n_features
    numbers, most = (2_500_000, max(256, 4_096 // each)) if _on_cpu() else (400_000_000, largest)
    size = 1 << max(4, (numbers // each).bit_length() - 1)
    return min(largest, 1 << (most.bit_length() - 1), size)
