"""The state of a run of Algorithm 1, and a batch of them: values that hold everything the next
iteration needs.
"""

import functools
from dataclasses import dataclass
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from itofit.adversarial.adversaries import AbstractAdversary
from itofit.adversarial.criterion import AbstractCriterion
from itofit.adversarial.game import AbstractGame
from itofit.adversarial.learners import AbstractLearner
from itofit.adversarial.options import AdversarialOptions
from itofit.process.ito import ItoProcess
from itofit.solution import Outcome, TrainingHistory


class Players(eqx.Module):
    """The two sides of the game and the learner's optimiser's memory."""

    learner: AbstractLearner
    average: AbstractLearner
    adversary: AbstractAdversary
    memory: optax.OptState


class Run(eqx.Module):
    """Everything a run has done so far; arrays of fixed shape, so it can be saved and loaded leaf
    by leaf.

    `bar` is what the present stage has to beat: the best criterion before it. A run that is not
    `active` is at rest: another stage brought nothing, before the budget of the batch was spent, or
    this stage has failed.
    """

    players: Players
    best: AbstractLearner
    best_criterion: Float[Array, ""]
    best_iter: Int[Array, ""]
    n_done: Int[Array, ""]
    bar: Float[Array, ""]
    active: Bool[Array, ""]
    residuals: Float[Array, "n_iter n_targets"]
    criterion: Float[Array, " n_evals"]
    slope: Float[Array, " n_evals"]


class Contest(NamedTuple):
    """One learner against one adversary: the game, how the learner is judged, where the run stands,
    and the key of its iterations.
    """

    game: AbstractGame
    criterion: AbstractCriterion
    run: Run
    key: PRNGKeyArray


class Batch(NamedTuple):
    """Contests of equal shape, every array with a leading axis of members."""

    game: AbstractGame
    criterion: AbstractCriterion
    run: Run
    key: PRNGKeyArray

    @property
    def n_members(self) -> int:
        """How many contests there are."""
        return len(self.run.n_done)

    @property
    def n_stages(self) -> int:
        """Of the learners, which are alike in that."""
        return self.run.players.learner.n_stages

    @property
    def n_done(self) -> int:
        """Iterations so far; members go together."""
        return int(self.run.n_done[0])

    def member(self, m: int) -> Contest:
        """One of them, without the axis of members."""
        return Contest(
            *jax.tree.map(lambda leaf: leaf[m] if eqx.is_array(leaf) else leaf, tuple(self))
        )


@dataclass(frozen=True, eq=False)
class TrainedRun:
    """What a run has led to, in the units it was given.

    - `learner`: what was trained, at its best. `process`: the drift and the noise of it.
    - `best_iter`: the iteration after which it was clearly better than ever before.
    - `seconds`: of the whole batch.
    """

    learner: AbstractLearner
    process: ItoProcess
    outcome: Outcome
    history: TrainingHistory
    n_iter: int
    best_iter: int
    seconds: float


class Optimisers(eqx.Module):
    """Adam for both sides; the learner's steps are scaled by `rate_at` and by its own pace."""

    learner: optax.GradientTransformation = eqx.field(static=True)
    probes: optax.GradientTransformation = eqx.field(static=True)


@functools.cache
def optimisers_for(options: AdversarialOptions) -> Optimisers:
    """The optimisers these options ask for; cached, so that a second fit of the same kind compiles
    nothing.
    """
    b1, b2 = options.betas
    return Optimisers(
        optax.adam(options.drift_rate, b1, b2), optax.adam(options.probe_rate, b1, b2)
    )


def select(condition: Bool[Array, ""], yes: Any, no: Any) -> Any:
    """One of two trees of equal structure."""
    return jax.tree.map(lambda a, b: jnp.where(condition, a, b) if eqx.is_array(a) else a, yes, no)
