"""The two adversaries of the drift: they see its simulated clouds and answer with one probe for every observed time.

- `NetworkAdversary`: spectral-norm networks that climb for a few steps, as in the paper.
- `RidgeAdversary`: a fresh random family each time, of which it takes the best member exactly; it keeps no memory.
"""

import abc
from typing import Self

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Float, PRNGKeyArray

from itofit.process.drift import AbstractDrift
from itofit.snapshots.clouds import Snapshots
from itofit.solve.game import Draw, Game, Paths
from itofit.solve.options import AdversarialOptions
from itofit.weak.probes import AbstractProbe, SpectralNetwork
from itofit.weak.ridge_probes import RidgeFamily, bowl_directions, n_cosines_for, random_cosines_of_few

Values = Float[Array, " n_targets"]


class AbstractAdversary(eqx.Module):
    """What answers a drift."""

    @abc.abstractmethod
    def answer(
        self,
        game: Game,
        optimiser: optax.GradientTransformation,
        drift: AbstractDrift,
        draw: Draw,
        paths: Paths,
        key: PRNGKeyArray,
    ) -> tuple[Self, AbstractProbe, Values]:
        """What it has become, one probe a target, and its values."""

    @abc.abstractmethod
    def slope(self, game: Game) -> Float[Array, ""]:
        """Largest |grad f| on the targets' points."""


class NetworkAdversary(AbstractAdversary):
    """One spectral-norm network for every target, and its optimiser's memory."""

    probes: SpectralNetwork
    memory: optax.OptState

    @classmethod
    def create(cls, game: Game, optimiser: optax.GradientTransformation, *, key: PRNGKeyArray) -> "NetworkAdversary":
        """Fresh networks."""
        options, n_dims = game.options, game.clouds[0].points.shape[1]

        def probe(k):
            return SpectralNetwork.create(n_dims, width=options.probe_width, depth=options.probe_depth, key=k)

        probes = eqx.filter_vmap(probe)(jax.random.split(key, len(game.targets)))
        return cls(probes, optimiser.init(eqx.filter(probes, eqx.is_inexact_array)))

    def answer(
        self,
        game: Game,
        optimiser: optax.GradientTransformation,
        drift: AbstractDrift,
        draw: Draw,
        paths: Paths,
        key: PRNGKeyArray,
    ) -> tuple["NetworkAdversary", AbstractProbe, Values]:
        """A few ascent steps; the probes after them and the residuals before the last."""
        options = game.options

        def ascend(carry, k):
            probes, memory = carry
            k_nodes, k_fresh = jax.random.split(k)
            seen, way = draw, paths
            if options.fresh_paths:
                seen = game.draw(k_fresh)
                way = game.simulate(drift, seen)
            nodes = game.nodes(k_nodes)

            def gain(probes):
                values = game.residuals(_normalised(probes), drift, seen, way, nodes)
                return jnp.sum(values), values

            probes, memory, values = climbed(gain, probes, memory, optimiser)
            return (_sharpened(probes, options.power_iterations), memory), values

        keys = jax.random.split(key, options.critic_steps)
        # On a CPU, XLA spreads heavy steps over the cores only outside a loop; light ones are not worth compiling.
        heavy = options.n_nodes is None
        (probes, memory), values = jax.lax.scan(ascend, (self.probes, self.memory), keys, unroll=heavy)
        return NetworkAdversary(probes, memory), _normalised(probes), values[-1]

    def slope(self, game: Game) -> Float[Array, ""]:
        """Largest |grad f| on the targets' points; at most 1 up to the power iteration's lag."""
        return largest_slope(_normalised(self.probes), game)


class RidgeAdversary(AbstractAdversary):
    """Where the families of the targets stand, and how many cosines each has."""

    centres: Float[Array, "n_targets n_dims"]
    widths: Float[Array, "n_targets n_dims"]
    bowls: Float[Array, "n_bowls n_dims"]
    n_cosines: int = eqx.field(static=True)

    @classmethod
    def about(cls, snapshots: Snapshots, options: AdversarialOptions) -> "RidgeAdversary":
        """Families in the units of each snapshot after the first, as large as a minibatch allows."""
        fewest = min(min(snapshots.counts), options.batch_size or min(snapshots.counts))
        means = [w @ x for _, x, w in snapshots]
        sds = [np.sqrt(w @ (x - m) ** 2) for (_, x, w), m in zip(snapshots, means, strict=True)]
        widths = [np.maximum(sd, 1e-6 * sd.max() + 1e-12) for sd in sds]
        n_dims = snapshots.n_dims
        return cls(
            jnp.asarray(np.stack(means[1:]), dtype=float),
            jnp.asarray(np.stack(widths[1:]), dtype=float),
            jnp.asarray(bowl_directions(n_dims, fewest), dtype=float),
            n_cosines_for(n_dims, fewest),
        )

    @eqx.filter_jit
    def families(self, key: PRNGKeyArray) -> tuple[RidgeFamily, ...]:
        """A random family for every target."""
        n_targets, n_dims = self.centres.shape
        cosines = [random_cosines_of_few(self.n_cosines, n_dims, k) for k in jax.random.split(key, n_targets)]
        return tuple(
            RidgeFamily(centre, width, self.bowls, omega, phase)
            for centre, width, (omega, phase) in zip(self.centres, self.widths, cosines, strict=True)
        )

    def answer(
        self,
        game: Game,
        optimiser: optax.GradientTransformation,
        drift: AbstractDrift,
        draw: Draw,
        paths: Paths,
        key: PRNGKeyArray,
    ) -> tuple["RidgeAdversary", AbstractProbe, Values]:
        """The best probe of each random family and chi-squared by degree of freedom."""
        del optimiser
        k_family, k_nodes = jax.random.split(key)
        probes, values = game.answers(self.families(k_family), drift, draw, paths, game.nodes(k_nodes))
        return self, probes, values

    def slope(self, game: Game) -> Float[Array, ""]:
        """Ridges are not bound in slope."""
        del game
        return jnp.full((), jnp.nan)


def climbed(gain, probes, memory: optax.OptState, optimiser: optax.GradientTransformation):
    """One step up `gain`, which gives a sum and the values behind it; these are from before the step."""
    (_, values), slope = eqx.filter_value_and_grad(gain, has_aux=True)(probes)
    downhill = jax.tree.map(jnp.negative, slope)
    updates, memory = optimiser.update(downhill, memory, eqx.filter(probes, eqx.is_inexact_array))
    return eqx.apply_updates(probes, updates), memory, values


def largest_slope(probes: AbstractProbe, game: Game) -> Float[Array, ""]:
    """Largest |grad f| of stacked probes on their targets' points."""

    def largest(i, cloud):
        probe = jax.tree.map(lambda leaf: leaf[i], probes)
        return jnp.max(jnp.linalg.norm(jax.vmap(jax.grad(probe))(cloud.points), axis=1))

    return jnp.max(jnp.stack([largest(i, game.clouds[n]) for i, n in enumerate(game.targets)]))


def _normalised(probes: SpectralNetwork):
    return eqx.filter_vmap(SpectralNetwork.probe)(probes)


def _sharpened(probes: SpectralNetwork, n_iterations: int) -> SpectralNetwork:
    return eqx.filter_vmap(lambda probe: probe.sharpened(n_iterations))(probes)
