"""Algorithm 1 of the paper: the adversary answers with probes, the drift takes one step against them, until a plateau.

A run is a `Run`: a value that holds everything the next iteration needs. The randomness of iteration i is
`fold_in(key, i)`, so a run continued from a saved `Run` is the uninterrupted one, bit for bit. Members of an ensemble
are one batch: every array of their runs has a leading axis of members.
"""

import time
from collections.abc import Sequence
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from itofit.errors import InputError
from itofit.process.diffusion import AbstractDiffusion
from itofit.process.drift import AbstractDrift, GrowingDrift, NetworkDrift, PlainNetworkDrift
from itofit.process.network import xavier_network
from itofit.process.noise import LearnedDiffusion, NoisyDrift
from itofit.simulate.mesh import Mesh
from itofit.snapshots.clouds import Snapshots
from itofit.snapshots.scaling import Scaling
from itofit.solve.adversaries import AbstractAdversary, NetworkAdversary, RidgeAdversary
from itofit.solve.checkpoint import Checkpoint
from itofit.solve.criterion import ChiSquared, HeldOutCriterion
from itofit.solve.dictionaries import box_of
from itofit.solve.game import Game, drift_gradient
from itofit.solve.levels import at_present_level, grown, wanting, worth_keeping
from itofit.solve.listeners import Listener, Progress
from itofit.solve.options import AdversarialOptions
from itofit.solve.outcome import Fit, History, Outcome
from itofit.solve.run import (
    Batch,
    Criterion,
    Optimisers,
    Players,
    Run,
    optimisers_for,
    select,
    stacked,
)
from itofit.solve.schedule import level_at, level_length, n_readings, next_block, rate_at, reading_at, thinning

# A simulated point this many times further out than any datum means that the run has diverged.
_TOO_FAR = 1000.0


class Member(NamedTuple):
    """One data set and one key: what a member of a batch is fitted to. `drift` is where to start.

    A `diffusion` with parameters is where learning them starts.
    """

    training: Snapshots
    held_out: Snapshots
    diffusion: AbstractDiffusion
    key: PRNGKeyArray
    drift: AbstractDrift | None = None


def fit_adversarial(
    training: Snapshots,
    held_out: Snapshots,
    diffusion: AbstractDiffusion,
    mesh: Mesh,
    options: AdversarialOptions,
    *,
    key: PRNGKeyArray,
    drift: AbstractDrift | None = None,
    listeners: Sequence[Listener] = (),
    checkpoint: Checkpoint | None = None,
) -> Fit:
    """Fit a drift to snapshots in the units the solver should work in.

    `drift` is where to start, by default a fresh one. With a `checkpoint` the run is saved as it goes,
    and continued if the checkpoint already holds one.
    """
    member = Member(training, held_out, diffusion, key, drift)
    return fit_members([member], mesh, options, listeners=listeners, checkpoint=checkpoint)[0]


def fit_members(
    members: Sequence[Member],
    mesh: Mesh,
    options: AdversarialOptions,
    *,
    listeners: Sequence[Listener] = (),
    checkpoint: Checkpoint | None = None,
) -> list[Fit]:
    """Fit several members in one batched run; their snapshots must have the same times and counts.

    Members that begin with drifts of different shapes, as the moments solver may find them, are batches of their own.
    """
    if any(member.training.counts != members[0].training.counts for member in members):
        raise InputError(
            expected="the same number of points in each snapshot of every data set fitted together",
            found=", ".join(str(member.training.counts) for member in members),
            hint="thin them to equal counts, or fit them one after the other",
        )
    alike = [_shape(member.drift) for member in members]
    if any(shape != alike[0] for shape in alike):
        groups = {shape: [i for i, other in enumerate(alike) if other == shape] for shape in alike}
        fits = {}
        for rows in groups.values():
            found = fit_members([members[i] for i in rows], mesh, options, listeners=listeners)
            fits |= dict(zip(rows, found, strict=True))
        return [fits[i] for i in range(len(members))]
    parts = [prepared(member, mesh, options) for member in members]
    return play(parts, options, listeners=listeners, checkpoint=checkpoint)


def play(
    parts: Sequence[tuple[Game, Criterion, Run, PRNGKeyArray]],
    options: AdversarialOptions,
    *,
    listeners: Sequence[Listener] = (),
    checkpoint: Checkpoint | None = None,
) -> list[Fit]:
    """Play games of equal shape to their end, as one batch; each from where its run stands."""
    batch = Batch(*(stacked(part) for part in zip(*parts, strict=True)))
    if checkpoint is not None:
        batch = batch._replace(run=at_present_level(checkpoint.restore(batch.run), options))
    reach = max(float(jnp.max(jnp.abs(cloud.points))) for cloud in batch.game.clouds)
    return _train(batch, optimisers_for(options), _TOO_FAR * reach, listeners, checkpoint)


def _shape(drift: AbstractDrift | None) -> Any:
    """What must agree for drifts to be stacked."""
    dynamic, static = eqx.partition(drift, eqx.is_array)
    return jax.tree.structure(static), tuple(leaf.shape for leaf in jax.tree.leaves(dynamic))


def prepared(member: Member, mesh: Mesh, options: AdversarialOptions) -> tuple[Game, Criterion, Run, PRNGKeyArray]:
    """The game, the criterion, the run before its first iteration, and the key of its iterations."""
    k_init, k_run, k_criterion = jax.random.split(member.key, 3)
    training, optimisers = member.training, optimisers_for(options)
    game = Game.between(training, member.diffusion, mesh, options)
    if options.adversary == "ridges":
        adversary = RidgeAdversary.about(training, options)
        k_families, k_noise = jax.random.split(k_criterion)
        families = adversary.families(k_families)
        criterion = ChiSquared.on(member.held_out, families, member.diffusion, game.legs, key=k_noise)
    else:
        adversary = NetworkAdversary.create(game, optimisers.probes, key=jax.random.fold_in(k_init, 1))
        scale = Scaling.fit(training).sd
        criterion = HeldOutCriterion.on(member.held_out, scale, member.diffusion, game.legs, key=k_criterion)
    drift = member.drift
    if drift is None:
        drift = fresh_drift(training, float(mesh.times[-1] - mesh.times[0]), options, key=k_init)
    if isinstance(member.diffusion, LearnedDiffusion):
        drift = NoisyDrift(drift, member.diffusion)
    return game, criterion, first_run(game, drift, adversary, optimisers, criterion), k_run


def fresh_drift(training: Snapshots, span: float, options: AdversarialOptions, *, key: PRNGKeyArray) -> AbstractDrift:
    """The drift a run begins with: growing, a network with an affine skip, or the paper's plain one."""
    width, depth, n_dims, speed = options.drift_width, options.drift_depth, training.n_dims, 4.0 / span
    if options.drift_form == "plain":
        return PlainNetworkDrift(xavier_network([n_dims, *[width] * depth, n_dims], key=key))
    if options.drift_form == "skip":
        return NetworkDrift.create(n_dims, width=width, depth=depth, speed=speed, last_gain=0.1, key=key)
    points, weights = np.concatenate(training.clouds), np.concatenate(training.weights)
    shape = {"width": width, "depth": depth, "speed": speed}
    return GrowingDrift.create(points, weights, box_of(training), **shape, key=key)


def first_run(
    game: Game, drift: AbstractDrift, adversary: AbstractAdversary, optimisers: Optimisers, criterion: Criterion
) -> Run:
    """A run before its first iteration."""
    options = game.options
    players = Players(drift, drift, adversary, optimisers.drift.init(eqx.filter(drift, eqx.is_inexact_array)))
    n_evals, value = n_readings(options, drift.n_levels), _evaluate(criterion, drift)
    return Run(
        players=players,
        best=drift.whole(),
        best_criterion=value,
        best_iter=jnp.zeros((), int),
        n_done=jnp.zeros((), int),
        bar=value,
        active=jnp.ones((), bool),
        residuals=jnp.full((options.n_iter, len(game.targets)), jnp.nan, float),
        criterion=jnp.full(n_evals, jnp.nan, float),
        slope=jnp.full(n_evals, jnp.nan, float),
    )


def iterate(
    game: Game,
    optimisers: Optimisers,
    players: Players,
    key: PRNGKeyArray,
    factor: Float[Array, ""] | float = 1.0,
    sparsity: Float[Array, ""] | float = 0.0,
):
    """One outer iteration; returns the players, the residuals they met and how far simulated points went.

    `factor` scales the drift's step and `sparsity` its sparse prior. The ridges' answer is exact for the noise it has
    seen, so the drift meets it on points and noise of its own: else it would learn to fit that noise.
    """
    options = game.options
    k_draw, k_drift, k_answer, k_judge = jax.random.split(key, 4)
    draw = game.draw(k_draw)
    paths = game.simulate(players.drift, draw)
    adversary, probes, values = players.adversary.answer(game, optimisers.probes, players.drift, draw, paths, k_answer)
    if options.adversary == "ridges":
        draw = game.draw(k_judge)
        paths = paths if options.gradient == "pathwise" else game.simulate(players.drift, draw)
    slope: Any = drift_gradient(game, probes, players.drift, draw, paths, game.nodes(k_drift))
    if players.drift.n_levels > 1:
        slope = jax.tree.map(lambda s, p: s + sparsity * p, slope, players.drift.sparse_pull())
    weights = eqx.filter(players.drift, eqx.is_inexact_array)
    updates, memory = optimisers.drift.update(slope, players.memory, weights)
    updates = _paced(updates, weights, players.drift.pace(), factor, options)
    drift = eqx.apply_updates(players.drift, updates)
    average = _averaged(players.average, drift, options.averaging)
    reach = jnp.max(jnp.stack([jnp.max(jnp.abs(path)) for path in paths]))
    return Players(drift, average, adversary, memory), values, reach


def advance(game: Game, criterion: Criterion, optimisers: Optimisers, run: Run, key: PRNGKeyArray, n: Int[Array, ""]):
    """`n` iterations of one member and a reading of the criterion; how far points went, and whether all is sound."""
    options, n_levels = game.options, run.players.drift.n_levels
    static = eqx.filter(run.players, eqx.is_array, inverse=True)
    begin, end = thinning(options, n_levels)

    def body(i, carry):
        dynamic, log, farthest = carry
        within = i % level_length(options, n_levels)
        players = _thinned(eqx.combine(dynamic, static), within == end)
        sparsity = jnp.where((within >= begin) & (within < end), game.share, 0.0)
        factor, k = rate_at(i, options, n_levels) * run.active, jax.random.fold_in(key, i)
        players, residuals, reach = iterate(game, optimisers, players, k, factor, sparsity)
        log = log.at[i].set(jnp.where(run.active, residuals, log[i - 1]))
        return eqx.filter(players, eqx.is_array), log, jnp.maximum(farthest, reach)

    before, done = eqx.filter(run.players, eqx.is_array), run.n_done + n
    dynamic, log, reach = jax.lax.fori_loop(run.n_done, done, body, (before, run.residuals, jnp.zeros(())))
    players = eqx.combine(select(run.active, dynamic, before), static)
    value = criterion(players.average)
    keep = worth_keeping(value, players.average, run, criterion, options)
    # A level is weighed against the drift that is kept, a plain run against the lowest value it has seen.
    lowest = value if n_levels > 1 else jnp.minimum(value, run.best_criterion)
    at = reading_at(done, options, n_levels)
    after = Run(
        players=players,
        best=select(keep, players.average.whole(), run.best),
        best_criterion=jnp.where(keep, lowest, run.best_criterion),
        best_iter=jnp.where(keep & _clearly_better(value, run.best_criterion), done, run.best_iter),
        n_done=done,
        bar=run.bar,
        active=run.active,
        residuals=log,
        criterion=run.criterion.at[at].set(jnp.where(run.active, value, run.best_criterion)),
        slope=run.slope.at[at].set(players.adversary.slope(game)),
    )
    # The box of the affine terms is infinite by design; a weight that runs away shows in the points it moves.
    weights = jax.tree.leaves(eqx.filter((players.drift, players.adversary), eqx.is_inexact_array))
    sound = ~jnp.any(jnp.stack([jnp.any(jnp.isnan(w)) for w in weights]))
    new = (jnp.arange(len(log)) >= run.n_done) & (jnp.arange(len(log)) < done)
    sound = sound & ~jnp.any(new[:, None] & ~jnp.isfinite(log))
    return after, jnp.where(run.active, reach, 0.0), sound | ~run.active


@eqx.filter_jit
def _advance_all(batch: Batch, optimisers: Optimisers, n: Int[Array, ""]):
    """`advance` for every member at once; a single one without a batch axis, which a CPU does not thread well."""
    game, criterion, run, key = batch
    if len(run.n_done) == 1:
        one = jax.tree.map(lambda leaf: leaf[0] if eqx.is_array(leaf) else leaf, (game, criterion, run, key))
        done = advance(one[0], one[1], optimisers, one[2], one[3], n)
        return jax.tree.map(lambda leaf: leaf[None] if eqx.is_array(leaf) else leaf, done)
    member = lambda g, c, r, k: advance(g, c, optimisers, r, k, n)  # noqa: E731
    return eqx.filter_vmap(member)(game, criterion, run, key)


def _thinned(players: Players, now: Bool[Array, ""]) -> Players:
    """The drift without the terms that have gone; its average begins anew there."""
    drift = players.drift.thinned(now)
    return eqx.tree_at(lambda p: (p.drift, p.average), players, (drift, select(now, drift, players.average)))


@eqx.filter_jit
def _evaluate(criterion: Criterion, drift: AbstractDrift) -> Float[Array, ""]:
    return criterion(drift)


def _train(batch: Batch, optimisers, limit, listeners, checkpoint) -> list[Fit]:
    options, began = batch.game.options, time.perf_counter()
    n_before, faults = batch.n_done, [None] * len(batch.run.n_done)
    outcome = None
    try:
        while not _finished(batch):
            n = next_block(batch.n_done, options, batch.n_levels)
            candidate, reach, finite = _advance_all(batch, optimisers, jnp.asarray(n))
            found = [_fault(float(r), bool(f), limit) for r, f in zip(reach, finite, strict=True)]
            run = grown(_without_faults(batch.run, candidate, found), batch)
            faults = [old or new for old, new in zip(faults, found, strict=True)]
            batch = batch._replace(run=at_present_level(run, options))
            if any(found) and _finished(batch):
                break
            progress = _progress(batch, time.perf_counter() - began, n_before)
            for listener in listeners:
                listener(progress)
            if checkpoint is not None:
                checkpoint.save(batch.run, force=_finished(batch))
    except KeyboardInterrupt:
        outcome = Outcome.interrupted
        if checkpoint is not None:
            checkpoint.save(batch.run, force=True)
    seconds = time.perf_counter() - began
    return [_fit_of(batch, m, outcome or _ending(batch, m, faults[m]), seconds) for m in range(len(faults))]


def _fit_of(batch: Batch, m: int, outcome: Outcome, seconds: float) -> Fit:
    game, run = (jax.tree.map(lambda leaf: leaf[m] if eqx.is_array(leaf) else leaf, t) for t in (batch.game, batch.run))
    return Fit(
        process=game.process(run.best),
        outcome=outcome,
        history=_history(run, game.options),
        n_iter=int(run.n_done),
        best_iter=int(run.best_iter),
        seconds=seconds,
    )


def _without_faults(old: Run, new: Run, found: Sequence[Outcome | None]) -> Run:
    """The new run, with members that failed put back to where they were, at rest."""
    if not any(found):
        return new
    sound = jnp.asarray([fault is None for fault in found])
    kept = jax.tree.map(lambda a, b: _where(sound, a, b), new, old)
    n_done = new.n_done if bool(jnp.any(kept.active & sound)) else old.n_done
    return eqx.tree_at(lambda r: (r.active, r.n_done), kept, (kept.active & sound, n_done))


def _finished(batch: Batch) -> bool:
    run, options = batch.run, batch.game.options
    level = level_at(batch.n_done, options, batch.n_levels)
    # Where a level has failed the next one may not.
    waiting = wanting(run, batch) & (0 < level < batch.n_levels - 1)
    if batch.n_done >= options.n_iter or not bool(jnp.any(run.active | waiting)):
        return True
    waited = bool(jnp.all(run.n_done - run.best_iter >= options.patience))
    return batch.n_levels == 1 and waited


def _ending(batch: Batch, m: int, fault: Outcome | None) -> Outcome:
    """Where a fit is good, a fault on growing only means that growing did not pay."""
    run, options, growing = batch.run, batch.game.options, batch.n_levels > 1
    good = float(run.best_criterion[m]) <= batch.criterion.enough
    if fault is not None and not (growing and good):
        return fault
    rested = not growing and int(run.n_done[m] - run.best_iter[m]) >= options.patience
    return Outcome.converged if rested or good else Outcome.budget


def _fault(reach: float, finite: bool, limit: float) -> Outcome | None:
    if not finite or not np.isfinite(reach):
        return Outcome.non_finite
    return Outcome.diverged if reach > limit else None


def _progress(batch: Batch, seconds: float, n_before: int) -> Progress:
    """Means over the members."""
    run, options, done = batch.run, batch.game.options, batch.n_done
    last = reading_at(done, options, batch.n_levels)
    return Progress(
        n_done=done,
        n_total=options.n_iter,
        rate=(done - n_before) / max(seconds, 1e-9),
        loss=float(jnp.mean(jnp.sum(run.residuals[:, done - 1], axis=-1))),
        residuals=tuple(np.asarray(jnp.mean(run.residuals[:, done - 1], axis=0)).tolist()),
        criterion=float(jnp.mean(run.criterion[:, last])),
        best_criterion=float(jnp.mean(run.best_criterion)),
        slope=float(jnp.mean(run.slope[:, last])),
    )


def _history(run: Run, options: AdversarialOptions) -> History:
    done, n_levels = int(run.n_done), run.best.n_levels
    ends = np.arange(1, done + 1)
    reading = reading_at(ends, options, n_levels)
    last = np.flatnonzero(np.diff(np.append(reading, -1)))
    return History(
        loss=np.sum(np.asarray(run.residuals)[:done], axis=1),
        residuals=np.asarray(run.residuals)[:done],
        evaluated_at=ends[last],
        criterion=np.asarray(run.criterion)[reading[last]],
        slope=np.asarray(run.slope)[reading[last]],
    )


def _paced(updates, weights, pace, factor, options: AdversarialOptions):
    """Adam's step and the decay of the weights, each weight at its own pace."""
    decay = options.drift_rate * options.weight_decay
    moved = lambda u, w, p: jnp.where(p == 0.0, 0.0, factor * p * (u - decay * w))  # noqa: E731
    return jax.tree.map(moved, updates, weights, pace)


def _averaged(average, current, factor: float):
    """Factor * average + (1 - factor) * current, weight by weight."""
    return jax.tree.map(
        lambda a, c: factor * a + (1.0 - factor) * c if eqx.is_inexact_array(a) else c, average, current
    )


def _where(members: Bool[Array, " n_members"], yes, no):
    """`yes` for some members and `no` for the others, in an array with a leading axis of members."""
    return jnp.where(members.reshape(-1, *[1] * (yes.ndim - 1)), yes, no) if eqx.is_array(yes) else yes


def _clearly_better(value, best):
    """An improvement by 1 %, so that noise in the last digits does not keep a run alive."""
    return value < 0.99 * best
