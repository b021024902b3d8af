"""The game of Algorithm 1: J probes ascend, one drift descends, on the weak residuals of all observed times.

    min over g of sum_n max over f_n of r_n(f_n, g)

with |grad f_n| <= 1 for the paper's networks, and r_n in units of its own standard error for ridges.

`Game` holds what never changes during a run (clouds, mesh, choices); `residuals` is the loss, `answers` are the best
ridges; `drift_gradient` is the loss's derivative in the drift in three ways. Nothing here knows about optimisers,
files or progress.
"""

from collections.abc import Sequence
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PRNGKeyArray

from itofit.process.diffusion import AbstractDiffusion
from itofit.process.drift import AbstractDrift
from itofit.process.ito import ItoProcess
from itofit.process.noise import process_of
from itofit.simulate.euler import euler_path
from itofit.simulate.mesh import Mesh
from itofit.snapshots.clouds import Snapshots
from itofit.solve.options import AdversarialOptions
from itofit.weak.generator import sketched
from itofit.weak.probes import AbstractProbe
from itofit.weak.quadrature import stratified_nodes, trapezoid_weights
from itofit.weak.residual import Cloud, PathRead, direct_residual, weak_residual
from itofit.weak.ridge_probes import RidgeFamily, best_answer, flown_values

Paths = tuple[Float[Array, "_ _ n_dims"], ...]


class Leg(NamedTuple):
    """One simulation: from the snapshot `start` over `steps`, read at the node of every target snapshot."""

    start: int
    steps: tuple[float, ...]
    targets: tuple[tuple[int, int], ...]


def legs_between(mesh: Mesh, anchor: str) -> tuple[Leg, ...]:
    """One leg from the first snapshot to all others (`initial`), or one from each to the next (`previous`)."""
    last = len(mesh.observed) - 1
    if anchor == "initial":
        return (Leg(0, tuple(mesh.steps.tolist()), tuple((n, mesh.observed[n]) for n in range(1, last + 1))),)
    parts = [mesh.between(n - 1, n) for n in range(1, last + 1)]
    return tuple(Leg(n, tuple(part.steps.tolist()), ((n + 1, len(part.steps)),)) for n, part in enumerate(parts))


class Draw(eqx.Module):
    """The randomness of one evaluation: points of every snapshot and the noise of every leg."""

    clouds: tuple[Cloud, ...]
    noise: tuple[Float[Array, "_ _ n_dims"], ...]


class Nodes(eqx.Module):
    """Where each target's quadrature reads its path, with which weights, and the trace's random signs."""

    positions: tuple[Int[Array, " _"], ...]
    weights: tuple[Float[Array, " _"], ...]
    signs: PRNGKeyArray


class Game(eqx.Module):
    """The fixed part of Algorithm 1."""

    clouds: tuple[Cloud, ...]
    diffusion: AbstractDiffusion
    legs: tuple[Leg, ...] = eqx.field(static=True)
    weighted: tuple[bool, ...] = eqx.field(static=True)
    options: AdversarialOptions = eqx.field(static=True)

    @classmethod
    def between(
        cls, snapshots: Snapshots, diffusion: AbstractDiffusion, mesh: Mesh, options: AdversarialOptions
    ) -> "Game":
        """The game on these snapshots."""
        weighted = tuple(bool(np.ptp(w) > 1e-12) for w in snapshots.weights)
        return cls(device_clouds(snapshots), diffusion, legs_between(mesh, options.anchor), weighted, options)

    @property
    def targets(self) -> tuple[int, ...]:
        """The snapshots that are held against a simulation, in the order of their probes."""
        return tuple(n for _, n, _ in self._targets())

    @property
    def share(self) -> float:
        """Which part of the rows a draw sees, on average over the snapshots."""
        size = self.options.batch_size
        counts = [len(cloud.weights) for cloud in self.clouds]
        return 1.0 if size is None else sum(min(1.0, size / n) for n in counts) / len(counts)

    def process(self, drift: AbstractDrift) -> ItoProcess:
        """The process with this drift, and the game's diffusion where it brings none of its own."""
        return process_of(drift, self.diffusion)

    def draw(self, key: PRNGKeyArray) -> Draw:
        """A minibatch of every snapshot (or all of it) and fresh noise."""
        k_rows, k_noise = jax.random.split(key)
        size = self.options.batch_size
        clouds = self.clouds
        if size is not None:
            keys = jax.random.split(k_rows, len(clouds))
            clouds = tuple(
                minibatch(cloud, size, k, weighted=w) for cloud, k, w in zip(clouds, keys, self.weighted, strict=True)
            )
        return Draw(clouds, leg_noise(self.legs, clouds, k_noise))

    def nodes(self, key: PRNGKeyArray) -> Nodes:
        """Quadrature nodes of every target: all of them, or a stratified random few where that is fewer."""
        k_nodes, k_signs = jax.random.split(key)
        positions, weights = [], []
        for leg, n, end in self._targets():
            w = trapezoid_weights(jnp.asarray(leg.steps[:end], dtype=float))
            k = jnp.arange(end + 1)
            if self.options.n_nodes is not None and self.options.n_nodes < end + 1:
                k, w = stratified_nodes(w, self.options.n_nodes, jax.random.fold_in(k_nodes, n))
            positions.append(k)
            weights.append(w)
        return Nodes(tuple(positions), tuple(weights), k_signs)

    def simulate(self, drift: AbstractDrift, draw: Draw) -> Paths:
        """The Euler path of every leg."""
        process = self.process(drift)
        return tuple(
            euler_path(process, draw.clouds[leg.start].points, jnp.asarray(leg.steps, dtype=float), noise)
            for leg, noise in zip(self.legs, draw.noise, strict=True)
        )

    def residuals(
        self, probes: AbstractProbe, drift: AbstractDrift, draw: Draw, paths: Paths, nodes: Nodes
    ) -> Float[Array, " n_targets"]:
        """r_n(f_n, g) for every observed time after the first; `probes` are stacked along their first axis."""
        path_of = {leg.start: path for leg, path in zip(self.legs, paths, strict=True)}
        values = []
        for i, (leg, n, end) in enumerate(self._targets()):
            probe = jax.tree.map(lambda leaf, i=i: leaf[i], probes)
            start, target, path = draw.clouds[leg.start], draw.clouds[n], path_of[leg.start]
            if self.options.discrepancy == "direct":
                values.append(direct_residual(probe, target, Cloud(path[end], start.weights)))
            else:
                read = self._read(drift, leg, path, end, nodes, i)
                values.append(weak_residual(probe, target, start, read, nodes.weights[i]))
        return jnp.stack(values)

    def answers(self, families: Sequence[RidgeFamily], drift: AbstractDrift, draw: Draw, paths: Paths, nodes: Nodes):
        """The best probe of every target's family, stacked, and chi-squared by degree of freedom of each."""
        path_of = {leg.start: path for leg, path in zip(self.legs, paths, strict=True)}
        answers = []
        for i, (leg, n, end) in enumerate(self._targets()):
            start, target, path = draw.clouds[leg.start], draw.clouds[n], path_of[leg.start]
            if self.options.discrepancy == "direct":
                flown = jax.vmap(families[i])(path[end])
            else:
                read = self._read(drift, leg, path, end, nodes, i)
                flown = flown_values(families[i], start, read, nodes.weights[i])
            answers.append(best_answer(families[i], target, start, flown))
        probes = jax.tree.map(lambda *leaves: jnp.stack(leaves), *(answer.probe for answer in answers))
        return probes, jnp.stack([answer.chi2 / len(answer.probe.weights) for answer in answers])

    def _read(self, drift: AbstractDrift, leg: Leg, path: Array, end: int, nodes: Nodes, i: int) -> PathRead:
        """The path at the nodes of target i, with the drift its quadrature rule takes."""
        process = self.process(drift)
        noise = self._dispersion(process.diffusion, nodes)
        if self.options.rule == "trapezoid":
            return PathRead.of(process, path[nodes.positions[i]], noise)
        steps = jnp.asarray(leg.steps[:end], dtype=float)
        return PathRead.carried(process, path[: end + 1], steps, nodes.positions[i], noise)

    def _targets(self) -> list[tuple[Leg, int, int]]:
        return [(leg, n, end) for leg in self.legs for n, end in leg.targets]

    def _dispersion(self, diffusion: AbstractDiffusion, nodes: Nodes):
        n_sketch = self.options.n_sketch
        return None if n_sketch is None else lambda x: sketched(diffusion(x), n_sketch, x, nodes.signs)


def drift_gradient(
    game: Game, probes: AbstractProbe, drift: AbstractDrift, draw: Draw, paths: Paths, nodes: Nodes
) -> AbstractDrift:
    """Gradient of sum_n r_n in the drift's weights, as `options.gradient` says; `paths` are those of `drift`."""
    mode, penalty = game.options.gradient, game.options.slope_penalty

    def loss(drift, paths):
        total = jnp.sum(game.residuals(probes, drift, draw, paths, nodes))
        return total + penalty * mean_square_slope(drift, draw.clouds) if penalty > 0.0 else total

    if mode == "pathwise":
        return eqx.filter_grad(lambda g: loss(g, game.simulate(g, draw)))(drift)
    if mode == "detached":
        return eqx.filter_grad(lambda g: loss(g, jax.lax.stop_gradient(paths)))(drift)
    return _adjoint_gradient(game, loss, drift, draw, paths)


def _adjoint_gradient(game: Game, loss, drift: AbstractDrift, draw: Draw, paths: Paths) -> AbstractDrift:
    """The discrete adjoint: lambda_k = dl/dX_k + (dX_{k+1}/dX_k)' lambda_{k+1}, backwards along the path.

    The gradient is dl/dw at fixed positions plus sum_k (dX_{k+1}/dw)' lambda_{k+1}.
    """
    weights, static = eqx.partition(drift, eqx.is_inexact_array)
    direct, sources = jax.grad(lambda w, p: loss(eqx.combine(w, static), p), argnums=(0, 1))(weights, paths)

    def step(w, x, h, z):
        process = game.process(eqx.combine(w, static))
        return jax.vmap(process.euler_step, in_axes=(0, None, 0))(x, h, z)

    total = direct
    for leg, path, source, noise in zip(game.legs, paths, sources, draw.noise, strict=True):

        def backward(carry, at):
            adjoint, total = carry
            x, h, z, source_k = at
            _, pull = jax.vjp(lambda w, y: step(w, y, h, z), weights, x)
            slope, moved = pull(adjoint)
            return (source_k + moved, jax.tree.map(jnp.add, total, slope)), None

        steps = (path[:-1], jnp.asarray(leg.steps, dtype=float), noise, source[:-1])
        (_, total), _ = jax.lax.scan(backward, (source[-1], total), steps, reverse=True)
    return total


def mean_square_slope(drift: AbstractDrift, clouds: tuple[Cloud, ...]) -> Float[Array, ""]:
    """Mean of |dg/dx|^2 (Frobenius) over the clouds, a smooth stand-in for the drift's Lipschitz constant."""
    squares = [cloud.expect(lambda x: jnp.sum(jax.jacfwd(drift)(x) ** 2)) for cloud in clouds]
    return jnp.mean(jnp.stack(squares))


def device_clouds(snapshots: Snapshots) -> tuple[Cloud, ...]:
    """Snapshots as arrays of the default float type."""
    return tuple(Cloud(jnp.asarray(x, dtype=float), jnp.asarray(w, dtype=float)) for _, x, w in snapshots)


def minibatch(cloud: Cloud, size: int, key: PRNGKeyArray, *, weighted: bool) -> Cloud:
    """`size` equal points: drawn in proportion to their weights, or each at most once where all weigh the same."""
    n = len(cloud.weights)
    if size >= n:
        return cloud
    rows = jax.random.choice(key, n, (size,), replace=weighted, p=cloud.weights if weighted else None)
    return Cloud(cloud.points[rows], jnp.full(size, 1.0 / size))


def leg_noise(legs: tuple[Leg, ...], clouds: tuple[Cloud, ...], key: PRNGKeyArray):
    """Standard normal noise for every step of every leg."""
    return tuple(
        jax.random.normal(jax.random.fold_in(key, i), (len(leg.steps), *clouds[leg.start].points.shape))
        for i, leg in enumerate(legs)
    )
