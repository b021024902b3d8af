"""How a drift grows: what a level must win to be kept, what the next one begins with, and when a run rests."""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool

from itofit.process.drift import AbstractDrift
from itofit.solve.options import AdversarialOptions
from itofit.solve.run import Batch, Criterion, Players, Run, optimisers_for
from itofit.solve.schedule import level_at, level_length

# The state that is kept is the latest whose criterion is within this factor of the best: near the optimum the
# criterion is flat within its own sampling noise, while the average goes on improving as the rate decays.
_AS_GOOD = 1.05


def worth_keeping(value, drift: AbstractDrift, run: Run, criterion: Criterion, options) -> Bool[Array, ""]:
    """As good as the best so far, given its terms; and, if it grows, enough better than before this level."""
    fewer = run.best.n_terms - drift.n_terms
    as_good = value < _AS_GOOD * run.best_criterion + criterion.price_of_terms(fewer)
    if run.best.n_levels == 1 or options.gain is None:
        return run.active & as_good
    return run.active & as_good & (value < run.bar - criterion.price(options.gain))


def grown(run: Run, batch: Batch) -> Run:
    """At the end of a level the best drift so far grows, unless growing has brought nothing and nothing is amiss."""
    options, n_levels, criterion = batch.game.options, batch.n_levels, batch.criterion
    done = int(run.n_done[0])
    if n_levels == 1 or done % level_length(options, n_levels) or done == options.n_iter:
        return run
    active = jnp.ones_like(run.active)
    if options.gain is not None:
        gained, room = run.best_criterion < run.bar, run.best_criterion > criterion.price(options.gain)
        active = (gained & room) | wanting(run, batch)
    level = level_at(done, options, n_levels)
    begun = eqx.filter_vmap(lambda drift: drift.begun(level))(run.best)
    dropped = eqx.filter_vmap(lambda old, new: old.n_terms - new.n_terms)(run.best, begun)
    bar = run.best_criterion + criterion.price_of_terms(dropped)
    memory = jax.tree.map(jnp.zeros_like, run.players.memory)
    players = Players(begun, begun, run.players.adversary, memory)
    return eqx.tree_at(lambda r: (r.players, r.bar, r.active), run, (players, bar, active))


def wanting(run: Run, batch: Batch) -> Bool[Array, " n_members"]:
    """Which members do not explain the snapshots yet, and could win the price of growing."""
    price = batch.criterion.price(batch.game.options.gain or 0.0)
    return (run.best_criterion > batch.criterion.enough) & (run.best_criterion > price)


def at_present_level(run: Run, options: AdversarialOptions) -> Run:
    """The run with its players at the level its iterations have come to; the best drift is kept whole."""
    level = level_at(int(run.n_done[0]), options, run.best.n_levels)
    set_to = eqx.filter_vmap(lambda drift: drift.at_level(level))
    drift, average = set_to(run.players.drift), set_to(run.players.average)
    empty = optimisers_for(options).drift.init(eqx.filter(drift, eqx.is_inexact_array))
    memory = jax.tree.unflatten(jax.tree.structure(empty), jax.tree.leaves(run.players.memory))
    return eqx.tree_at(lambda r: r.players, run, Players(drift, average, run.players.adversary, memory))
