"""The state of a run of Algorithm 1, and a batch of them: values that hold everything the next iteration needs."""

import functools
from collections.abc import Sequence
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from itofit.process.drift import AbstractDrift
from itofit.solve.adversaries import AbstractAdversary
from itofit.solve.criterion import ChiSquared, PlainCriterion
from itofit.solve.game import Game
from itofit.solve.options import AdversarialOptions

Criterion = PlainCriterion | ChiSquared


class Players(eqx.Module):
    """The two sides of the game and the drift's optimiser's memory."""

    drift: AbstractDrift
    average: AbstractDrift
    adversary: AbstractAdversary
    memory: optax.OptState


class Run(eqx.Module):
    """Everything a run has done so far; arrays of fixed shape, so it can be saved and loaded leaf by leaf.

    `bar` is what the present level of a growing drift has to beat: the best criterion before it. A run that is not
    `active` is at rest: growing brought nothing, before the budget of the batch was spent, or this level has failed.
    """

    players: Players
    best: AbstractDrift
    best_criterion: Float[Array, ""]
    best_iter: Int[Array, ""]
    n_done: Int[Array, ""]
    bar: Float[Array, ""]
    active: Bool[Array, ""]
    residuals: Float[Array, "n_iter n_targets"]
    criterion: Float[Array, " n_evals"]
    slope: Float[Array, " n_evals"]


class Batch(NamedTuple):
    """What `advance` takes, every array with a leading axis of members."""

    game: Game
    criterion: Criterion
    run: Run
    key: PRNGKeyArray

    @property
    def n_levels(self) -> int:
        """Of the drifts, which are alike in that."""
        return self.run.players.drift.n_levels

    @property
    def n_done(self) -> int:
        """Iterations so far; members go together."""
        return int(self.run.n_done[0])


class Optimisers(eqx.Module):
    """Adam for both sides; the drift's steps are scaled by `rate_at` and by its own pace."""

    drift: optax.GradientTransformation = eqx.field(static=True)
    probes: optax.GradientTransformation = eqx.field(static=True)


@functools.cache
def optimisers_for(options: AdversarialOptions) -> Optimisers:
    """The optimisers these options ask for; cached, so that a second fit of the same kind compiles nothing."""
    b1, b2 = options.betas
    return Optimisers(optax.adam(options.drift_rate, b1, b2), optax.adam(options.probe_rate, b1, b2))


def select(condition: Bool[Array, ""], yes: Any, no: Any) -> Any:
    """One of two trees of equal structure."""
    return jax.tree.map(lambda a, b: jnp.where(condition, a, b) if eqx.is_array(a) else a, yes, no)


def stacked(trees: Sequence[Any]) -> Any:
    """Trees of equal structure as one, their arrays stacked along a first axis of members."""
    return jax.tree.map(lambda *leaves: jnp.stack(leaves) if eqx.is_array(leaves[0]) else leaves[0], *trees)
