"""The game of Algorithm 1: J probes ascend, one drift descends, on the weak residuals of all
observed times.

    min over g of sum_n max over f_n of r_n(f_n, g)

with |grad f_n| <= 1 for the paper's networks, and r_n in units of its own standard error for
ridges.

The `Setting` never changes during a run. Of a game `residuals` is the loss, `answers` are the best
ridges; `drift_gradient` is the loss's derivative in what is learned, in three ways. Nothing here
knows about optimisers, files or progress.
"""

import abc
from collections.abc import Sequence
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PRNGKeyArray

from itofit.adversarial.learners import AbstractLearner
from itofit.adversarial.options import AdversarialOptions
from itofit.process.ito import ItoProcess
from itofit.process.noise import AbstractDiffusion
from itofit.simulate.euler import euler_path
from itofit.simulate.legs import Leg, legs_between
from itofit.simulate.mesh import Mesh
from itofit.snapshots.clouds import Snapshots
from itofit.weak.generator import sketched
from itofit.weak.probes import AbstractProbe
from itofit.weak.quadrature import stratified_nodes, trapezoid_weights
from itofit.weak.residual import Cloud, PathRead, direct_residual, weak_residual
from itofit.weak.ridge_probes import RidgeFamily, best_answer, propagated_values

Paths = tuple[Float[Array, "_ _ n_dims"], ...]


class Draw(eqx.Module):
    """The randomness of one evaluation: points of every snapshot and the noise of every leg.

    `code` is the noise of an encoder, where a game has one.
    """

    clouds: tuple[Cloud, ...]
    noise: tuple[Float[Array, "_ _ n_noise"], ...]
    code: Float[Array, "n n_more"] | None = None


class Nodes(eqx.Module):
    """Where each target's quadrature reads its path, with which weights, and the trace's random
    signs.
    """

    positions: tuple[Int[Array, " _"], ...]
    weights: tuple[Float[Array, " _"], ...]
    signs: PRNGKeyArray


class Target(NamedTuple):
    """A snapshot that is held against the simulation `leg` at one of its nodes."""

    leg: Leg
    snapshot: int
    node: int


class Setting(eqx.Module):
    """What never changes during a run: the snapshots, the noise, the simulations and the choices.

    `diffusion` is the noise of learners that learn none; `weighted` says which snapshots have rows
    of unequal weight.
    """

    clouds: tuple[Cloud, ...]
    diffusion: AbstractDiffusion
    legs: tuple[Leg, ...] = eqx.field(static=True)
    weighted: tuple[bool, ...] = eqx.field(static=True)
    options: AdversarialOptions = eqx.field(static=True)

    @classmethod
    def between(
        cls,
        snapshots: Snapshots,
        diffusion: AbstractDiffusion,
        mesh: Mesh,
        options: AdversarialOptions,
    ) -> "Setting":
        """The setting of these snapshots, simulated over this mesh."""
        weighted = tuple(bool(np.ptp(w) > 1e-12) for w in snapshots.weights)
        legs = legs_between(mesh, options.anchor)
        return cls(device_clouds(snapshots), diffusion, legs, weighted, options)

    def draw(self, key: PRNGKeyArray) -> Draw:
        """A minibatch of every snapshot (or all of it) and fresh noise."""
        k_rows, k_noise = jax.random.split(key)
        size = self.options.batch_size
        clouds = self.clouds
        if size is not None:
            keys = jax.random.split(k_rows, len(clouds))
            clouds = tuple(
                minibatch(cloud, size, k, weighted=w)
                for cloud, k, w in zip(clouds, keys, self.weighted, strict=True)
            )
        return Draw(clouds, leg_noise(self.legs, clouds, k_noise))


class AbstractGame(eqx.Module):
    """What a learner and its adversary play."""

    setting: eqx.AbstractVar[Setting]

    @property
    @abc.abstractmethod
    def targets(self) -> tuple[int, ...]:
        """The snapshots that are held against a simulation, in the order of their probes."""

    @abc.abstractmethod
    def draw(self, key: PRNGKeyArray) -> Draw:
        """Rows of every snapshot and fresh noise."""

    @abc.abstractmethod
    def nodes(self, key: PRNGKeyArray) -> Nodes:
        """Quadrature nodes of every target: all of them, or a stratified random few where that is
        fewer.
        """

    @abc.abstractmethod
    def simulate(self, learner: AbstractLearner, draw: Draw) -> Paths:
        """What the learner's process makes of the points drawn."""

    @abc.abstractmethod
    def residuals(
        self,
        probes: AbstractProbe,
        learner: AbstractLearner,
        draw: Draw,
        paths: Paths,
        nodes: Nodes,
    ) -> Float[Array, " n_targets"]:
        """r_n(f_n, g) for every target; `probes` are stacked along their first axis."""

    @property
    def clouds(self) -> tuple[Cloud, ...]:
        """The snapshots."""
        return self.setting.clouds

    @property
    def legs(self) -> tuple[Leg, ...]:
        """The simulations."""
        return self.setting.legs

    @property
    def options(self) -> AdversarialOptions:
        """The choices."""
        return self.setting.options

    @property
    def batch_fraction(self) -> float:
        """Which part of the rows a draw has, on average over the snapshots."""
        size = self.options.batch_size
        counts = [len(cloud.weights) for cloud in self.clouds]
        return 1.0 if size is None else sum(min(1.0, size / n) for n in counts) / len(counts)

    def process(self, learner: AbstractLearner) -> ItoProcess:
        """The learner's process, with the setting's diffusion where it learns none."""
        return learner.process(self.setting.diffusion)


class Game(AbstractGame):
    """The game of the paper, on the snapshots after the first."""

    setting: Setting

    @classmethod
    def between(
        cls,
        snapshots: Snapshots,
        diffusion: AbstractDiffusion,
        mesh: Mesh,
        options: AdversarialOptions,
    ) -> "Game":
        """The game on these snapshots."""
        return cls(Setting.between(snapshots, diffusion, mesh, options))

    @property
    def targets(self) -> tuple[int, ...]:
        return tuple(target.snapshot for target in self._targets())

    def draw(self, key: PRNGKeyArray) -> Draw:
        return self.setting.draw(key)

    def nodes(self, key: PRNGKeyArray) -> Nodes:
        k_nodes, k_signs = jax.random.split(key)
        n_nodes = self.options.n_nodes
        positions = []
        weights = []
        for leg, snapshot, end in self._targets():
            w = trapezoid_weights(jnp.asarray(leg.steps[:end], dtype=float))
            k = jnp.arange(end + 1)
            if n_nodes is not None and n_nodes < end + 1:
                k, w = stratified_nodes(w, n_nodes, jax.random.fold_in(k_nodes, snapshot))
            positions.append(k)
            weights.append(w)
        return Nodes(tuple(positions), tuple(weights), k_signs)

    def simulate(self, learner: AbstractLearner, draw: Draw) -> Paths:
        """The Euler path of every leg."""
        process = self.process(learner)
        return tuple(
            euler_path(
                process, draw.clouds[leg.start].points, jnp.asarray(leg.steps, dtype=float), noise
            )
            for leg, noise in zip(self.legs, draw.noise, strict=True)
        )

    def residuals(
        self,
        probes: AbstractProbe,
        learner: AbstractLearner,
        draw: Draw,
        paths: Paths,
        nodes: Nodes,
    ) -> Float[Array, " n_targets"]:
        path_from = self._path_from(paths)
        values = []
        for i, target in enumerate(self._targets()):
            probe = jax.tree.map(lambda leaf, i=i: leaf[i], probes)
            start = draw.clouds[target.leg.start]
            observed = draw.clouds[target.snapshot]
            path = path_from[target.leg.start]
            if self.options.discrepancy == "direct":
                simulated = Cloud(path[target.node], start.weights)
                values.append(direct_residual(probe, observed, simulated))
            else:
                read = self.read(learner, target, path, nodes, i)
                values.append(weak_residual(probe, observed, start, read, nodes.weights[i]))
        return jnp.stack(values)

    def answers(
        self,
        families: Sequence[RidgeFamily],
        learner: AbstractLearner,
        draw: Draw,
        paths: Paths,
        nodes: Nodes,
    ) -> tuple[AbstractProbe, Float[Array, " n_targets"]]:
        """The best probe of every target's family, stacked, and chi-squared by degree of freedom of
        each.
        """
        path_from = self._path_from(paths)
        answers = []
        for i, target in enumerate(self._targets()):
            start = draw.clouds[target.leg.start]
            observed = draw.clouds[target.snapshot]
            path = path_from[target.leg.start]
            if self.options.discrepancy == "direct":
                propagated = jax.vmap(families[i])(path[target.node])
            else:
                read = self.read(learner, target, path, nodes, i)
                propagated = propagated_values(families[i], start, read, nodes.weights[i])
            answers.append(best_answer(families[i], observed, start, propagated))
        probes = jax.tree.map(
            lambda *leaves: jnp.stack(leaves), *(answer.probe for answer in answers)
        )
        return probes, jnp.stack([answer.chi2 / len(answer.probe.weights) for answer in answers])

    def read(
        self,
        learner: AbstractLearner,
        target: Target,
        path: Float[Array, "_ n_samples n_dims"],
        nodes: Nodes,
        i: int,
    ) -> PathRead:
        """The path at the nodes of the i-th target, with the drift its quadrature rule takes."""
        process = self.process(learner)
        dispersion = self._dispersion(process.diffusion, nodes)
        if self.options.rule == "trapezoid":
            return PathRead.of(process, path[nodes.positions[i]], dispersion)
        steps = jnp.asarray(target.leg.steps[: target.node], dtype=float)
        return PathRead.carried(
            process, path[: target.node + 1], steps, nodes.positions[i], dispersion
        )

    def _targets(self) -> list[Target]:
        return [Target(leg, n, end) for leg in self.legs for n, end in leg.targets]

    def _path_from(self, paths: Paths) -> dict[int, Float[Array, "_ _ n_dims"]]:
        """The path that begins at each snapshot."""
        return {leg.start: path for leg, path in zip(self.legs, paths, strict=True)}

    def _dispersion(self, diffusion: AbstractDiffusion, nodes: Nodes):
        n_sketch = self.options.n_sketch
        if n_sketch is None:
            return None
        return lambda x: sketched(diffusion(x), n_sketch, x, nodes.signs)


def drift_gradient(
    game: AbstractGame,
    probes: AbstractProbe,
    learner: AbstractLearner,
    draw: Draw,
    paths: Paths,
    nodes: Nodes,
) -> AbstractLearner:
    """Gradient of sum_n r_n in the learner's weights, as `options.gradient` says; `paths` are those
    of `learner`.
    """
    mode = game.options.gradient
    penalty = game.options.slope_penalty

    def loss(learner, paths):
        total = jnp.sum(game.residuals(probes, learner, draw, paths, nodes))
        return total + penalty * mean_square_slope(learner, draw.clouds) if penalty > 0.0 else total

    if mode == "pathwise":
        return eqx.filter_grad(lambda g: loss(g, game.simulate(g, draw)))(learner)
    if mode == "detached":
        return eqx.filter_grad(lambda g: loss(g, jax.lax.stop_gradient(paths)))(learner)
    assert isinstance(game, Game)
    return _adjoint_gradient(game, loss, learner, draw, paths)


def _adjoint_gradient(
    game: Game, loss, learner: AbstractLearner, draw: Draw, paths: Paths
) -> AbstractLearner:
    """The discrete adjoint: lambda_k = dl/dX_k + (dX_{k+1}/dX_k)' lambda_{k+1}, backwards along the
    path.

    The gradient is dl/dw at fixed positions plus sum_k (dX_{k+1}/dw)' lambda_{k+1}.
    """
    weights, static = eqx.partition(learner, eqx.is_inexact_array)
    direct, sources = jax.grad(lambda w, p: loss(eqx.combine(w, static), p), argnums=(0, 1))(
        weights, paths
    )

    def step(w, x, h, z):
        process = game.process(eqx.combine(w, static))
        return jax.vmap(process.euler_step, in_axes=(0, None, 0))(x, h, z)

    total = direct
    for leg, path, source, noise in zip(game.legs, paths, sources, draw.noise, strict=True):

        def backward(carry, at):
            adjoint, total = carry
            x, h, z, source_k = at
            _, pull = jax.vjp(lambda w, y: step(w, y, h, z), weights, x)
            slope, pulled = pull(adjoint)
            return (source_k + pulled, jax.tree.map(jnp.add, total, slope)), None

        steps = (path[:-1], jnp.asarray(leg.steps, dtype=float), noise, source[:-1])
        (_, total), _ = jax.lax.scan(backward, (source[-1], total), steps, reverse=True)
    return total


def mean_square_slope(learner: AbstractLearner, clouds: tuple[Cloud, ...]) -> Float[Array, ""]:
    """Mean of |dg/dx|^2 (Frobenius) over the clouds, a smooth stand-in for the drift's Lipschitz
    constant.
    """
    squares = [cloud.expect(lambda x: jnp.sum(jax.jacfwd(learner)(x) ** 2)) for cloud in clouds]
    return jnp.mean(jnp.stack(squares))


def device_clouds(snapshots: Snapshots) -> tuple[Cloud, ...]:
    """Snapshots as arrays of the default float type."""
    return tuple(
        Cloud(jnp.asarray(x, dtype=float), jnp.asarray(w, dtype=float)) for _, x, w in snapshots
    )


def minibatch(cloud: Cloud, size: int, key: PRNGKeyArray, *, weighted: bool) -> Cloud:
    """`size` equal points: drawn in proportion to their weights, or each at most once where all
    weigh the same.
    """
    n = len(cloud.weights)
    if size >= n:
        return cloud
    rows = jax.random.choice(
        key, n, (size,), replace=weighted, p=cloud.weights if weighted else None
    )
    return Cloud(cloud.points[rows], jnp.full(size, 1.0 / size))


def leg_noise(
    legs: tuple[Leg, ...], clouds: tuple[Cloud, ...], key: PRNGKeyArray
) -> tuple[Float[Array, "_ _ n_dims"], ...]:
    """Standard normal noise for every step of every leg."""
    return tuple(
        jax.random.normal(
            jax.random.fold_in(key, i), (len(leg.steps), *clouds[leg.start].points.shape)
        )
        for i, leg in enumerate(legs)
    )
