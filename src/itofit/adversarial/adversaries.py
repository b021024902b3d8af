"""The two adversaries of the drift: they get its simulated clouds and answer with one probe for
every observed time.

- `NetworkAdversary`: spectral-norm networks that climb for a few steps, as in the paper.
- `RidgeAdversary`: a fresh random family each time, of which it takes the best member exactly; it
  keeps no memory.
"""

import abc
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Float, PRNGKeyArray

from itofit.adversarial.game import AbstractGame, Draw, Game, Paths
from itofit.adversarial.learners import AbstractLearner
from itofit.adversarial.options import AdversarialOptions
from itofit.snapshots.clouds import Snapshots
from itofit.weak.probes import AbstractProbe, SpectralNetwork
from itofit.weak.ridge_probes import (
    RidgeFamily,
    bowl_directions,
    n_cosines_for,
    random_cosines_of_few,
)

# A family is at least so wide, in sds of all points together: float32 tells no more apart, and a
# snapshot that is a single point has no width of its own.
_NARROWEST = 1e-4


class Reply(NamedTuple):
    """What an adversary has become, one probe a target, and their values."""

    adversary: "AbstractAdversary"
    probes: AbstractProbe
    values: Float[Array, " n_targets"]


class Ascent(NamedTuple):
    """Probes after a step, their optimiser's memory, and their values before the step."""

    probes: Any
    memory: optax.OptState
    values: Float[Array, " n_targets"]


class AbstractAdversary(eqx.Module):
    """What answers a learner."""

    @abc.abstractmethod
    def answer(
        self,
        game: AbstractGame,
        optimiser: optax.GradientTransformation,
        learner: AbstractLearner,
        draw: Draw,
        paths: Paths,
        key: PRNGKeyArray,
    ) -> Reply:
        """Its reply to the simulated `paths` of this draw."""

    @abc.abstractmethod
    def slope(self, game: AbstractGame) -> Float[Array, ""]:
        """Largest |grad f| on the targets' points."""


class NetworkAdversary(AbstractAdversary):
    """One spectral-norm network for every target, and its optimiser's memory."""

    probes: SpectralNetwork
    memory: optax.OptState

    @classmethod
    def create(
        cls, game: AbstractGame, optimiser: optax.GradientTransformation, *, key: PRNGKeyArray
    ) -> "NetworkAdversary":
        """Fresh networks."""
        options = game.options
        n_dims = game.clouds[0].points.shape[1]

        def probe(k):
            return SpectralNetwork.create(
                n_dims, width=options.probe_width, depth=options.probe_depth, key=k
            )

        probes = eqx.filter_vmap(probe)(jax.random.split(key, len(game.targets)))
        return cls(probes, optimiser.init(eqx.filter(probes, eqx.is_inexact_array)))

    def answer(
        self,
        game: AbstractGame,
        optimiser: optax.GradientTransformation,
        learner: AbstractLearner,
        draw: Draw,
        paths: Paths,
        key: PRNGKeyArray,
    ) -> Reply:
        """A few ascent steps; the probes after them and the residuals before the last."""
        options = game.options

        def ascend(carry, k):
            probes, memory = carry
            k_nodes, k_fresh = jax.random.split(k)
            step_draw = draw
            step_paths = paths
            if options.fresh_paths:
                step_draw = game.draw(k_fresh)
                step_paths = game.simulate(learner, step_draw)
            nodes = game.nodes(k_nodes)

            def gain(probes):
                values = game.residuals(_normalised(probes), learner, step_draw, step_paths, nodes)
                return jnp.sum(values), values

            probes, memory, values = ascent(gain, probes, memory, optimiser)
            return (_sharpened(probes, options.power_iterations), memory), values

        keys = jax.random.split(key, options.critic_steps)
        # On a CPU, XLA spreads heavy steps over the cores only outside a loop; light ones are not
        # worth compiling.
        heavy = options.n_nodes is None
        (probes, memory), values = jax.lax.scan(
            ascend, (self.probes, self.memory), keys, unroll=heavy
        )
        return Reply(NetworkAdversary(probes, memory), _normalised(probes), values[-1])

    def slope(self, game: AbstractGame) -> Float[Array, ""]:
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
        """Families in the units of each snapshot after the first; a minibatch limits their size."""
        fewest = min(min(snapshots.counts), options.batch_size or min(snapshots.counts))
        means = [w @ x for _, x, w in snapshots]
        sds = [np.sqrt(w @ (x - m) ** 2) for (_, x, w), m in zip(snapshots, means, strict=True)]
        least = _NARROWEST * np.std(np.concatenate(snapshots.clouds), axis=0)
        widths = [np.maximum(sd, least) for sd in sds]
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
        cosines = [
            random_cosines_of_few(self.n_cosines, n_dims, k)
            for k in jax.random.split(key, n_targets)
        ]
        return tuple(
            RidgeFamily(centre, width, self.bowls, omega, phase)
            for centre, width, (omega, phase) in zip(
                self.centres, self.widths, cosines, strict=True
            )
        )

    def answer(
        self,
        game: AbstractGame,
        optimiser: optax.GradientTransformation,
        learner: AbstractLearner,
        draw: Draw,
        paths: Paths,
        key: PRNGKeyArray,
    ) -> Reply:
        """The best probe of each random family and chi-squared by degree of freedom."""
        del optimiser
        assert isinstance(game, Game)
        k_family, k_nodes = jax.random.split(key)
        probes, values = game.answers(
            self.families(k_family), learner, draw, paths, game.nodes(k_nodes)
        )
        return Reply(self, probes, values)

    def slope(self, game: AbstractGame) -> Float[Array, ""]:
        """Ridges are not bound in slope."""
        del game
        return jnp.full((), jnp.nan)


def ascent(
    gain, probes: Any, memory: optax.OptState, optimiser: optax.GradientTransformation
) -> Ascent:
    """One step up `gain`, which gives a sum and the values behind it."""
    (_, values), slope = eqx.filter_value_and_grad(gain, has_aux=True)(probes)
    downhill = jax.tree.map(jnp.negative, slope)
    updates, memory = optimiser.update(downhill, memory, eqx.filter(probes, eqx.is_inexact_array))
    return Ascent(eqx.apply_updates(probes, updates), memory, values)


def largest_slope(probes: AbstractProbe, game: AbstractGame) -> Float[Array, ""]:
    """Largest |grad f| of stacked probes on their targets' points."""

    def largest(i, cloud):
        probe = jax.tree.map(lambda leaf: leaf[i], probes)
        return jnp.max(jnp.linalg.norm(jax.vmap(jax.grad(probe))(cloud.points), axis=1))

    return jnp.max(jnp.stack([largest(i, game.clouds[n]) for i, n in enumerate(game.targets)]))


def _normalised(probes: SpectralNetwork):
    return eqx.filter_vmap(SpectralNetwork.probe)(probes)


def _sharpened(probes: SpectralNetwork, n_iterations: int) -> SpectralNetwork:
    return eqx.filter_vmap(lambda probe: probe.sharpened(n_iterations))(probes)
