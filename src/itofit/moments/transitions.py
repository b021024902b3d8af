"""Transition batches: Euler chains from one snapshot to another, driven by the same noise always.

`n_draws` chains start at every point, in antithetic pairs (noise z and -z), so the problem is
deterministic and the noise of the simulation small beside that of the data. Points travel in chunks
of one size: memory stays bounded and one compilation serves snapshots of any size.
"""

import functools
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PRNGKeyArray

from itofit.process.drift import AbstractLinearDrift
from itofit.process.ito import ItoProcess
from itofit.process.noise import AbstractDiffusion
from itofit.simulate.legs import legs_between
from itofit.simulate.mesh import Mesh
from itofit.simulate.sensitivity import (
    BLOCK,
    Sensitivities,
    chain_ends,
    chain_sensitivities,
    finer_ends,
)
from itofit.snapshots.clouds import Snapshots
from itofit.solve.cores import on_cpu


class Chunk(NamedTuple):
    """Start points of some chains, their noise, and what each chain counts in a mean.

    `place`: how many whole chunks stand before it.
    """

    start: Float[Array, "chunk n_dims"]
    noise: Float[Array, "n_steps chunk n_dims"]
    weights: Float[Array, " chunk"]
    place: int


class Cut(NamedTuple):
    """How steps of chains are cut: into `n_parts` each; `key` is that of the noise inside."""

    n_parts: int
    key: PRNGKeyArray


class DrivenChains(NamedTuple):
    """The chains of one chunk over `n_taken` steps, with the drift and the noise behind them."""

    drift: AbstractLinearDrift
    diffusion: AbstractDiffusion
    start: Float[Array, "chunk n_dims"]
    times: Float[Array, " n_steps"]
    steps: Float[Array, " n_steps"]
    noise: Float[Array, "n_steps chunk n_dims"]
    n_taken: Int[Array, ""]


@dataclass(frozen=True, eq=False)
class TransitionBatch:
    """Chains from the snapshot `start` to the snapshot `target`.

    - `weights`: of the start points.
    - `times`, `steps`: the middle of each step and its length, filled up to whole blocks of
      `block`; `n_steps` count.
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

    @property
    def ends(self) -> tuple[int, int]:
        """The snapshots it goes from and to."""
        return self.start, self.target

    @functools.cached_property
    def chunk_weights(self) -> tuple[Float[Array, " chunk"], ...]:
        """What every chain counts in a mean, chunk by chunk."""
        size = len(self.starts[0])
        weights = np.zeros(size * len(self.starts), dtype=np.float32)
        n_chains = self.n_draws * len(self.weights)
        weights[:n_chains] = np.tile(self.weights, self.n_draws) / self.n_draws
        firsts = range(0, len(weights), size)
        return tuple(jnp.asarray(weights[first : first + size]) for first in firsts)

    def chains(self) -> list[Chunk]:
        """All chains, chunk by chunk: every point with the first draw, then with the second, ..."""
        places = range(len(self.starts))
        chunks = zip(self.starts, self.noise, self.chunk_weights, places, strict=True)
        return [Chunk(*chunk) for chunk in chunks]

    def jacobian_chunks(
        self,
        n_points: int,
        n_features: int,
        size: int | None = None,
    ) -> list[Chunk]:
        """The first draw of the first `n_points` start points, in chunks fit for sensitivities."""
        n_points = min(n_points, len(self.weights))
        whole, n_dims = self.starts[0].shape
        size = min(whole, size or _sensitivity_chunk(n_features, n_dims, whole))
        weights = np.zeros(-(-n_points // size) * size, dtype=np.float32)
        weights[:n_points] = self.weights[:n_points] / self.weights[:n_points].sum()
        chunks = []
        for first in range(0, n_points, size):
            i, row = divmod(first, whole)
            x, z = _part(
                self.starts[i],
                self.noise[i],
                jnp.asarray(row),
                size,
            )
            chunks.append(Chunk(x, z, jnp.asarray(weights[first : first + size]), i))
        return chunks

    def fold(
        self,
        k: int,
        count: int,
    ) -> "TransitionBatch":
        """The k-th of `count` parts of the start points, one chain a point.

        `count` is a power of two up to 16.
        """
        starts = tuple(x[k::count] for x in self.starts)
        noise = tuple(z[:, k::count] for z in self.noise)
        weights = self.weights[k::count] / self.weights[k::count].sum()
        return replace(
            self,
            weights=weights,
            n_draws=1,
            starts=starts,
            noise=noise,
        )

    def end(
        self,
        process: ItoProcess,
        chunk: Chunk,
    ) -> Float[Array, "chunk n_dims"]:
        """Where the chains of one chunk end."""
        return chain_ends(
            process,
            chunk.start,
            self.times,
            self.steps,
            chunk.noise,
            jnp.asarray(self.n_steps),
            self.heun,
        )

    def finer_end(
        self,
        process: ItoProcess,
        chunk: Chunk,
        cut: Cut,
    ) -> Float[Array, "chunk n_dims"]:
        """Where they end if every step is cut, on the same Brownian paths."""
        key = jax.random.fold_in(jax.random.fold_in(cut.key, self.start), chunk.place)
        return finer_ends(
            process,
            chunk.start,
            self.times,
            self.steps,
            chunk.noise,
            jnp.asarray(self.n_steps),
            key,
            cut.n_parts,
        )

    def sensitivity(
        self,
        drift: AbstractLinearDrift,
        diffusion: AbstractDiffusion,
        chunk: Chunk,
    ) -> Sensitivities:
        """Where the chains of one chunk end, and dX / dW and dX / dtheta there."""
        return chain_sensitivities(
            drift,
            diffusion,
            chunk.start,
            self.times,
            self.steps,
            chunk.noise,
            n_blocks=jnp.asarray(-(-self.n_steps // self.block)),
            block=self.block,
        )

    def driven(
        self,
        drift: AbstractLinearDrift,
        diffusion: AbstractDiffusion,
        chunk: Chunk,
    ) -> DrivenChains:
        """The chains of one chunk as a value that jax can trace."""
        return DrivenChains(
            drift=drift,
            diffusion=diffusion,
            start=chunk.start,
            times=self.times,
            steps=self.steps,
            noise=chunk.noise,
            n_taken=jnp.asarray(self.n_steps),
        )


@dataclass(frozen=True, eq=False)
class BatchPlan:
    """How the chains of a fit are laid out, the same for all of its batches.

    - `n_draws`: chains from every start point. `heun`: whether their steps are Heun's.
    - `rng_at`: the generator of the noise of all chains from one snapshot.
    """

    n_draws: int
    rng_at: Callable[[int], np.random.Generator]
    heun: bool = False


def transition_batches(
    snapshots: Snapshots,
    mesh: Mesh,
    anchor: str,
    plan: BatchPlan,
) -> tuple[TransitionBatch, ...]:
    """One batch to every snapshot after the first, from the one before it or from the first."""
    legs = legs_between(mesh, anchor)
    longest = max(len(leg.steps) for leg in legs)
    batches = []
    for leg in legs:
        for target, end in leg.targets:
            steps = np.asarray(leg.steps[:end])
            batches.append(
                _transition(
                    snapshots,
                    leg.start,
                    target,
                    steps,
                    longest,
                    plan,
                )
            )
    return tuple(batches)


def _transition(
    snapshots: Snapshots,
    start: int,
    target: int,
    steps: Float[np.ndarray, " n_steps"],
    longest: int,
    plan: BatchPlan,
) -> TransitionBatch:
    """The chains over these steps, laid out for the `longest` of all batches."""
    block = min(BLOCK, longest)
    padded = -(-longest // block) * block
    points = snapshots.clouds[start].astype(np.float32)
    n_chains = plan.n_draws * len(points)
    size = chunk_size(n_chains)
    full = -(-n_chains // size) * size
    starts = np.zeros((full, snapshots.n_dims), dtype=np.float32)
    starts[:n_chains] = np.tile(points, (plan.n_draws, 1))
    noise = np.zeros((padded, full, snapshots.n_dims), dtype=np.float32)
    # One stream a start snapshot, drawn step by step: batches that share a start share their noise.
    rng = plan.rng_at(start)
    for k in range(len(steps)):
        noise[k, :n_chains] = _antithetic(rng, plan.n_draws, points.shape)
    lengths = np.zeros(padded, dtype=np.float32)
    lengths[: len(steps)] = steps
    times = snapshots.times[start] + np.cumsum(lengths, dtype=np.float64) - 0.5 * lengths
    firsts = range(0, full, size)
    return TransitionBatch(
        start=start,
        target=target,
        weights=snapshots.weights[start],
        n_draws=plan.n_draws,
        times=jnp.asarray(times, dtype=float),
        steps=jnp.asarray(lengths),
        n_steps=len(steps),
        block=block,
        starts=tuple(jnp.asarray(starts[first : first + size]) for first in firsts),
        noise=tuple(jnp.asarray(noise[:, first : first + size]) for first in firsts),
        heun=plan.heun,
    )


def _antithetic(
    rng: np.random.Generator,
    n_draws: int,
    shape: tuple[int, int],
) -> Float[np.ndarray, "n_chains n_dims"]:
    """Normal numbers for every chain, those of one half of the draws minus those of the other."""
    half = rng.standard_normal(((n_draws + 1) // 2, *shape), dtype=np.float32)
    return np.concatenate([half, -half])[:n_draws].reshape(-1, shape[1])


@eqx.filter_jit
def _part(x, z, row, size: int):
    points = jax.lax.dynamic_slice_in_dim(x, row, size)
    return points, jax.lax.dynamic_slice_in_dim(z, row, size, axis=1)


def chunk_size(n: int) -> int:
    """Points a chunk: what keeps a CPU's cache warm, or fills a GPU.

    Small clouds are not filled up much.
    """
    largest = 1024 if on_cpu() else 16_384
    return min(largest, max(64, 1 << (n - 1).bit_length()))


def _sensitivity_chunk(
    n_features: int,
    n_dims: int,
    largest: int,
) -> int:
    """Points a chunk when sensitivities are carried, n_dims^2 n_features numbers a point.

    The sizes were measured.
    """
    each = n_dims * n_dims * n_features
    numbers = 400_000_000
    most = largest
    if on_cpu():
        numbers = 2_500_000
        most = max(256, 4_096 // each)
    size = 1 << max(4, (numbers // each).bit_length() - 1)
    return min(largest, 1 << (most.bit_length() - 1), size)
