"""From stage to stage: what one must win to be accepted, what the next begins with, and when a run
rests.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from itofit.adversarial.criterion import AbstractCriterion
from itofit.adversarial.learners import AbstractLearner
from itofit.adversarial.options import AdversarialOptions
from itofit.adversarial.run import Batch, Players, Run, optimisers_for
from itofit.adversarial.schedule import stage_at, stage_length

# The state that is returned is the latest whose criterion is within this factor of the best: near
# the optimum the criterion is flat within its own sampling noise, while the average goes on
# improving as the rate decays.
_AS_GOOD = 1.05


def is_accepted(
    value: Float[Array, ""],
    learner: AbstractLearner,
    run: Run,
    criterion: AbstractCriterion,
    options: AdversarialOptions,
) -> Bool[Array, ""]:
    """As good as the best so far, given its terms; and, in stages, enough better than before this
    stage.
    """
    fewer = run.best.n_terms - learner.n_terms
    as_good = value < _AS_GOOD * run.best_criterion + criterion.price_of_terms(fewer)
    if run.best.n_stages == 1 or options.gain is None:
        return run.active & as_good
    return run.active & as_good & (value < run.bar - criterion.price(options.gain))


def next_stage(run: Run, batch: Batch) -> Run:
    """At the end of a stage the best learner so far begins the next one, unless the last stage has
    brought nothing and nothing is amiss.
    """
    options = batch.game.options
    n_stages = batch.n_stages
    criterion = batch.criterion
    done = int(run.n_done[0])
    at_end = done > 0 and done % stage_length(options, n_stages) == 0
    if n_stages == 1 or not at_end or done == options.n_iter:
        return run
    active = jnp.ones_like(run.active)
    if options.gain is not None:
        gained = run.best_criterion < run.bar
        room = run.best_criterion > criterion.price(options.gain)
        active = (gained & room) | could_gain(run, batch)
    stage = stage_at(done, options, n_stages)
    begun = eqx.filter_vmap(lambda learner: learner.begin_stage(stage))(run.best)
    dropped = eqx.filter_vmap(lambda old, new: old.n_terms - new.n_terms)(run.best, begun)
    bar = run.best_criterion + criterion.price_of_terms(dropped)
    memory = jax.tree.map(jnp.zeros_like, run.players.memory)
    players = Players(begun, begun, run.players.adversary, memory)
    return eqx.tree_at(lambda r: (r.players, r.bar, r.active), run, (players, bar, active))


def could_gain(run: Run, batch: Batch) -> Bool[Array, " n_members"]:
    """Which members do not explain the snapshots yet, and could win the price of another stage."""
    price = batch.criterion.price(batch.game.options.gain or 0.0)
    return (run.best_criterion > batch.criterion.enough) & (run.best_criterion > price)


def at_present_stage(run: Run, options: AdversarialOptions) -> Run:
    """The run with its players at the stage its iterations have come to; the best learner stays
    whole.
    """
    stage = stage_at(int(run.n_done[0]), options, run.best.n_stages)
    set_to_stage = eqx.filter_vmap(lambda learner: learner.at_stage(stage))
    learner = set_to_stage(run.players.learner)
    average = set_to_stage(run.players.average)
    empty = optimisers_for(options).learner.init(eqx.filter(learner, eqx.is_inexact_array))
    memory = jax.tree.unflatten(jax.tree.structure(empty), jax.tree.leaves(run.players.memory))
    return eqx.tree_at(
        lambda r: r.players, run, Players(learner, average, run.players.adversary, memory)
    )
