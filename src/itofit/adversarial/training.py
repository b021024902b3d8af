"""Algorithm 1 of the paper: the adversary answers with probes, the learner takes one step against
them, until a plateau.

A run is a `Run`: a value that holds everything the next iteration needs. The randomness of
iteration i is `fold_in(key, i)`, so a run continued from a saved `Run` is the uninterrupted one,
bit for bit. Contests of equal shape are one batch: every array of their runs has a leading axis of
members.
"""

import time
from collections.abc import Sequence
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from itofit.adversarial.adversaries import AbstractAdversary, NetworkAdversary, RidgeAdversary
from itofit.adversarial.criterion import AbstractCriterion, ChiSquared, HeldOutCriterion
from itofit.adversarial.game import AbstractGame, Game, drift_gradient
from itofit.adversarial.learners import AbstractLearner, NoisyLearner, learner_of
from itofit.adversarial.options import AdversarialOptions
from itofit.adversarial.run import (
    Batch,
    Contest,
    Optimisers,
    Players,
    Run,
    TrainedRun,
    optimisers_for,
    select,
)
from itofit.adversarial.schedule import (
    n_readings,
    next_block,
    rate_at,
    reading_at,
    stage_at,
    stage_length,
    thinning,
)
from itofit.adversarial.stages import at_present_stage, could_gain, is_accepted, next_stage
from itofit.errors import InputError
from itofit.process.drift import (
    AbstractDrift,
    NetworkDrift,
    PlainNetworkDrift,
    PotentialNetworkDrift,
    StagedDrift,
    stacked,
)
from itofit.process.features import box_of
from itofit.process.network import xavier_network
from itofit.process.noise import AbstractDiffusion, LearnedDiffusion
from itofit.simulate.mesh import Mesh
from itofit.snapshots.clouds import Snapshots
from itofit.snapshots.scaling import Scaling
from itofit.solution import Outcome, TrainingHistory
from itofit.solve.checkpoint import Checkpoint
from itofit.solve.listeners import Listener, Progress

# A simulated point this many times further out than any datum means that the run has diverged.
_TOO_FAR = 1000.0


class Iteration(NamedTuple):
    """The players after an iteration, the residuals they met and how far simulated points went."""

    players: Players
    residuals: Float[Array, " n_targets"]
    reach: Float[Array, ""]


class Block(NamedTuple):
    """A run after some iterations, how far simulated points went, and whether all is finite."""

    run: Run
    reach: Float[Array, "*members"]
    finite: Bool[Array, "*members"]


def prepared(
    training: Snapshots,
    held_out: Snapshots,
    learner: AbstractLearner | None,
    diffusion: AbstractDiffusion,
    mesh: Mesh,
    options: AdversarialOptions,
    *,
    key: PRNGKeyArray,
    metric: Float[np.ndarray, " n_dims"] | None = None,
) -> Contest:
    """A contest on snapshots in the units the solver works in, before its first iteration.

    `learner` is where to start, None for the fresh drift of the options, with a potential where
    there is a `metric`. A `diffusion` with parameters is where learning them starts.
    """
    k_init, k_run, k_criterion = jax.random.split(key, 3)
    game = Game.between(training, diffusion, mesh, options)
    if options.adversary == "ridges":
        adversary = RidgeAdversary.about(training, options)
        k_families, k_noise = jax.random.split(k_criterion)
        families = adversary.families(k_families)
        criterion = ChiSquared.on(held_out, families, diffusion, game.legs, key=k_noise)
    else:
        optimiser = optimisers_for(options).probes
        adversary = NetworkAdversary.create(game, optimiser, key=jax.random.fold_in(k_init, 1))
        scale = Scaling.fit(training).sd
        criterion = HeldOutCriterion.on(held_out, scale, diffusion, game.legs, key=k_criterion)
    if learner is None:
        span = float(mesh.times[-1] - mesh.times[0])
        learner = learner_of(fresh_drift(training, span, options, metric, key=k_init))
    if isinstance(diffusion, LearnedDiffusion):
        learner = NoisyLearner(learner, diffusion)
    return Contest(game, criterion, first_run(game, learner, adversary, criterion), k_run)


def play(
    contests: Sequence[Contest],
    options: AdversarialOptions,
    *,
    listeners: Sequence[Listener] = (),
    checkpoint: Checkpoint | None = None,
) -> list[TrainedRun]:
    """Play contests to their end, each from where its run stands.

    Their snapshots must have the same times and counts. Those whose learners have the same shape
    are played as one batch; learners that begin at solutions of the moments solver may differ in
    shape, and are then batches of their own. With a `checkpoint` the run is saved as it goes, and
    continued if the checkpoint already holds one; it holds one batch, and is not used for several.
    """
    _check_counts(contests)
    batches: dict[Any, list[int]] = {}
    for i, contest in enumerate(contests):
        batches.setdefault(_shape(contest.run.players.learner), []).append(i)
    batch_checkpoint = checkpoint if len(batches) == 1 else None
    trained: dict[int, TrainedRun] = {}
    for rows in batches.values():
        runs = _play_batch([contests[i] for i in rows], options, listeners, batch_checkpoint)
        trained |= dict(zip(rows, runs, strict=True))
    return [trained[i] for i in range(len(contests))]


def fresh_drift(
    training: Snapshots,
    span: float,
    options: AdversarialOptions,
    metric: Float[np.ndarray, " n_dims"] | None = None,
    *,
    correction: bool = False,
    key: PRNGKeyArray,
) -> AbstractDrift:
    """The drift a run begins with: in stages, a network with an affine skip, or the paper's plain
    one; with a metric that of a potential, a network with a quadratic skip.

    A `correction` of another drift begins at zero and, in stages, is frozen far from the data.
    """
    width = options.drift_width
    depth = options.drift_depth
    n_dims = training.n_dims
    speed = 4.0 / span
    if metric is not None:
        last = 0.0 if correction else 0.1
        return PotentialNetworkDrift.create(
            metric, width=width, depth=depth, speed=speed, last_gain=last, key=key
        )
    if options.drift_form == "plain":
        last = 0.0 if correction else 1.0
        sizes = [n_dims, *[width] * depth, n_dims]
        return PlainNetworkDrift(xavier_network(sizes, key=key, last_gain=last))
    if options.drift_form == "skip":
        last = 0.0 if correction else 0.1
        return NetworkDrift.create(
            n_dims, width=width, depth=depth, speed=speed, last_gain=last, key=key
        )
    points = np.concatenate(training.clouds)
    weights = np.concatenate(training.weights)
    return StagedDrift.create(
        points,
        weights,
        box_of(training),
        width=width,
        depth=depth,
        speed=speed,
        bounded=correction,
        key=key,
    )


def first_run(
    game: AbstractGame,
    learner: AbstractLearner,
    adversary: AbstractAdversary,
    criterion: AbstractCriterion,
) -> Run:
    """A run before its first iteration."""
    options = game.options
    memory = optimisers_for(options).learner.init(eqx.filter(learner, eqx.is_inexact_array))
    n_evals = n_readings(options, learner.n_stages)
    value = _evaluate(criterion, learner)
    return Run(
        players=Players(learner, learner, adversary, memory),
        best=learner.whole(),
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
    game: AbstractGame,
    optimisers: Optimisers,
    players: Players,
    key: PRNGKeyArray,
    factor: Float[Array, ""] | float = 1.0,
    sparsity: Float[Array, ""] | float = 0.0,
) -> Iteration:
    """One outer iteration.

    `factor` scales the learner's step and `sparsity` its sparse prior. The ridges' answer is exact
    for the noise it was given, so the learner meets it on points and noise of its own: else it
    would learn to fit that noise.
    """
    options = game.options
    learner = players.learner
    k_draw, k_nodes, k_answer, k_judge = jax.random.split(key, 4)
    draw = game.draw(k_draw)
    paths = game.simulate(learner, draw)
    adversary, probes, values = players.adversary.answer(
        game, optimisers.probes, learner, draw, paths, k_answer
    )
    if options.adversary == "ridges":
        draw = game.draw(k_judge)
        paths = paths if options.gradient == "pathwise" else game.simulate(learner, draw)
    slope: Any = drift_gradient(game, probes, learner, draw, paths, game.nodes(k_nodes))
    if learner.n_stages > 1:
        slope = jax.tree.map(lambda s, p: s + sparsity * p, slope, learner.sparse_pull())
    weights = eqx.filter(learner, eqx.is_inexact_array)
    updates, memory = optimisers.learner.update(slope, players.memory, weights)
    updates = _paced(updates, weights, learner.pace(), factor, options)
    learner = eqx.apply_updates(learner, updates)
    average = _averaged(players.average, learner, options.averaging)
    reach = jnp.max(jnp.stack([jnp.max(jnp.abs(path)) for path in paths]))
    return Iteration(Players(learner, average, adversary, memory), values, reach)


def advance(contest: Contest, optimisers: Optimisers, n: Int[Array, ""]) -> Block:
    """`n` iterations of one contest and a reading of the criterion."""
    game, criterion, run, key = contest
    options = game.options
    n_stages = run.players.learner.n_stages
    static = eqx.filter(run.players, eqx.is_array, inverse=True)
    begin, end = thinning(options, n_stages)

    def body(i, carry):
        dynamic, log, farthest = carry
        within = i % stage_length(options, n_stages)
        players = _thinned(eqx.combine(dynamic, static), within == end)
        sparsity = jnp.where((within >= begin) & (within < end), game.batch_fraction, 0.0)
        factor = rate_at(i, options, n_stages) * run.active
        k = jax.random.fold_in(key, i)
        players, residuals, reach = iterate(game, optimisers, players, k, factor, sparsity)
        log = log.at[i].set(jnp.where(run.active, residuals, log[i - 1]))
        return eqx.filter(players, eqx.is_array), log, jnp.maximum(farthest, reach)

    before = eqx.filter(run.players, eqx.is_array)
    done = run.n_done + n
    dynamic, log, reach = jax.lax.fori_loop(
        run.n_done, done, body, (before, run.residuals, jnp.zeros(()))
    )
    players = eqx.combine(select(run.active, dynamic, before), static)
    value = criterion(players.average)
    accepted = is_accepted(value, players.average, run, criterion, options)
    # A stage is weighed against the learner that was accepted last, a plain run against the lowest
    # value it has had.
    lowest = value if n_stages > 1 else jnp.minimum(value, run.best_criterion)
    better = accepted & _clearly_better(value, run.best_criterion)
    at = reading_at(done, options, n_stages)
    after = Run(
        players=players,
        best=select(accepted, players.average.whole(), run.best),
        best_criterion=jnp.where(accepted, lowest, run.best_criterion),
        best_iter=jnp.where(better, done, run.best_iter),
        n_done=done,
        bar=run.bar,
        active=run.active,
        residuals=log,
        criterion=run.criterion.at[at].set(jnp.where(run.active, value, run.best_criterion)),
        slope=run.slope.at[at].set(players.adversary.slope(game)),
    )
    # The box of the affine terms is infinite by design; a weight that runs away shows in the points
    # it moves.
    weights = jax.tree.leaves(
        eqx.filter((players.learner, players.adversary), eqx.is_inexact_array)
    )
    finite = ~jnp.any(jnp.stack([jnp.any(jnp.isnan(w)) for w in weights]))
    new = (jnp.arange(len(log)) >= run.n_done) & (jnp.arange(len(log)) < done)
    finite = finite & ~jnp.any(new[:, None] & ~jnp.isfinite(log))
    return Block(after, jnp.where(run.active, reach, 0.0), finite | ~run.active)


@eqx.filter_jit
def _advance_all(batch: Batch, optimisers: Optimisers, n: Int[Array, ""]) -> Block:
    """`advance` for every member at once; a single one without a batch axis, which a CPU does not
    thread well.
    """
    if batch.n_members == 1:
        block = advance(batch.member(0), optimisers, n)
        return jax.tree.map(lambda leaf: leaf[None] if eqx.is_array(leaf) else leaf, block)
    return eqx.filter_vmap(lambda contest: advance(contest, optimisers, n))(Contest(*batch))


def _thinned(players: Players, now: Bool[Array, ""]) -> Players:
    """The learner without the terms that leave; its average begins anew there."""
    learner = players.learner.thinned(now)
    return eqx.tree_at(
        lambda p: (p.learner, p.average), players, (learner, select(now, learner, players.average))
    )


@eqx.filter_jit
def _evaluate(criterion: AbstractCriterion, learner: AbstractLearner) -> Float[Array, ""]:
    return criterion(learner)


def _check_counts(contests: Sequence[Contest]) -> None:
    """Refuse data sets of unequal size, which cannot be stacked."""
    counts = [tuple(len(cloud.weights) for cloud in c.game.clouds) for c in contests]
    if any(count != counts[0] for count in counts):
        raise InputError(
            expected="the same number of points in each snapshot of every data set fitted together",
            found=", ".join(map(str, counts)),
            hint="thin them to equal counts, or fit them one after the other",
        )


def _shape(learner: AbstractLearner) -> Any:
    """What must agree for learners to be stacked."""
    dynamic, static = eqx.partition(learner, eqx.is_array)
    return jax.tree.structure(static), tuple(leaf.shape for leaf in jax.tree.leaves(dynamic))


def _play_batch(
    contests: Sequence[Contest],
    options: AdversarialOptions,
    listeners: Sequence[Listener],
    checkpoint: Checkpoint | None,
) -> list[TrainedRun]:
    """Play contests of equal shape to their end."""
    batch = Batch(*(stacked(parts) for parts in zip(*contests, strict=True)))
    if checkpoint is not None:
        batch = batch._replace(run=at_present_stage(checkpoint.restore(batch.run), options))
    reach = max(float(jnp.max(jnp.abs(cloud.points))) for cloud in batch.game.clouds)
    return _train(batch, optimisers_for(options), _TOO_FAR * reach, listeners, checkpoint)


def _train(
    batch: Batch,
    optimisers: Optimisers,
    limit: float,
    listeners: Sequence[Listener],
    checkpoint: Checkpoint | None,
) -> list[TrainedRun]:
    """Block after block, until the batch is finished; points beyond `limit` are a fault."""
    options = batch.game.options
    began = time.perf_counter()
    n_before = batch.n_done
    faults: list[Outcome | None] = [None] * batch.n_members
    interrupted = False
    try:
        while not _finished(batch):
            n = next_block(batch.n_done, options, batch.n_stages)
            candidate, reach, finite = _advance_all(batch, optimisers, jnp.asarray(n))
            new_faults = [
                _fault(float(r), bool(f), limit) for r, f in zip(reach, finite, strict=True)
            ]
            run = next_stage(_without_faults(batch.run, candidate, new_faults, options), batch)
            faults = [old or new for old, new in zip(faults, new_faults, strict=True)]
            batch = batch._replace(run=at_present_stage(run, options))
            if any(new_faults) and _finished(batch):
                break
            progress = _progress(batch, time.perf_counter() - began, n_before)
            for listener in listeners:
                listener(progress)
            if checkpoint is not None:
                checkpoint.save(batch.run, force=_finished(batch))
    except KeyboardInterrupt:
        interrupted = True
        if checkpoint is not None:
            checkpoint.save(batch.run, force=True)
    seconds = time.perf_counter() - began
    endings = [
        Outcome.interrupted if interrupted else _ending(batch, m, fault)
        for m, fault in enumerate(faults)
    ]
    return [_trained(batch.member(m), ending, seconds) for m, ending in enumerate(endings)]


def _trained(contest: Contest, outcome: Outcome, seconds: float) -> TrainedRun:
    run = contest.run
    return TrainedRun(
        learner=run.best,
        process=contest.game.process(run.best),
        outcome=outcome,
        history=_history(run, contest.game.options),
        n_iter=int(run.n_done),
        best_iter=int(run.best_iter),
        seconds=seconds,
    )


def _without_faults(
    old: Run, new: Run, faults: Sequence[Outcome | None], options: AdversarialOptions
) -> Run:
    """The new run, with members that failed put back to where they were, at rest.

    Where none plays on, what is left of the stage is passed over, so that a stage fails once. A
    first stage that fails ends the run: there is no better start for the next.
    """
    if not any(faults):
        return new
    sound = jnp.asarray([fault is None for fault in faults])
    active = new.active & sound
    before = int(old.n_done[0])
    done = int(new.n_done[0])
    if not bool(jnp.any(active)):
        length = stage_length(options, old.best.n_stages)
        stage = before // length
        done = min((stage + 1) * length, options.n_iter) if stage > 0 else before
    resting = _at_rest(old, done, options)
    run = jax.tree.map(lambda a, b: _where(sound, a, b), new, resting)
    n_done = jnp.full_like(old.n_done, done)
    return eqx.tree_at(lambda r: (r.active, r.n_done), run, (active, n_done))


def _at_rest(run: Run, done: int, options: AdversarialOptions) -> Run:
    """The run after `done` iterations in the new ones of which nothing happened: logs repeat."""
    before = int(run.n_done[0])
    if done == before:
        return run
    n_stages = run.best.n_stages
    reading = reading_at(before, options, n_stages)
    new = slice(reading + 1, reading_at(done, options, n_stages) + 1)
    residuals = run.residuals.at[:, before:done].set(run.residuals[:, before - 1, None])
    criterion = run.criterion.at[:, new].set(run.best_criterion[:, None])
    slope = run.slope.at[:, new].set(run.slope[:, reading, None])
    logs = (residuals, criterion, slope)
    return eqx.tree_at(lambda r: (r.residuals, r.criterion, r.slope), run, logs)


def _finished(batch: Batch) -> bool:
    run = batch.run
    options = batch.game.options
    stage = stage_at(batch.n_done, options, batch.n_stages)
    # Where a stage has failed the next one may not.
    waiting = could_gain(run, batch) & (0 < stage < batch.n_stages - 1)
    if batch.n_done >= options.n_iter or not bool(jnp.any(run.active | waiting)):
        return True
    at_rest = bool(jnp.all(run.n_done - run.best_iter >= options.patience))
    return batch.n_stages == 1 and at_rest


def _ending(batch: Batch, m: int, fault: Outcome | None) -> Outcome:
    """Where a fit is good, a fault in a later stage only means that the stage did not pay."""
    run = batch.run
    options = batch.game.options
    in_stages = batch.n_stages > 1
    good = float(run.best_criterion[m]) <= batch.criterion.enough
    if fault is not None and not (in_stages and good):
        return fault
    at_rest = not in_stages and int(run.n_done[m] - run.best_iter[m]) >= options.patience
    return Outcome.converged if at_rest or good else Outcome.budget


def _fault(reach: float, finite: bool, limit: float) -> Outcome | None:
    if not finite or not np.isfinite(reach):
        return Outcome.non_finite
    return Outcome.diverged if reach > limit else None


def _progress(batch: Batch, seconds: float, n_before: int) -> Progress:
    """Means over the members."""
    run = batch.run
    options = batch.game.options
    done = batch.n_done
    last = reading_at(done, options, batch.n_stages)
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


def _history(run: Run, options: AdversarialOptions) -> TrainingHistory:
    done = int(run.n_done)
    n_stages = run.best.n_stages
    ends = np.arange(1, done + 1)
    reading = reading_at(ends, options, n_stages)
    last = np.flatnonzero(np.diff(np.append(reading, -1)))
    return TrainingHistory(
        loss=np.sum(np.asarray(run.residuals)[:done], axis=1),
        residuals=np.asarray(run.residuals)[:done],
        evaluated_at=ends[last],
        criterion=np.asarray(run.criterion)[reading[last]],
        slope=np.asarray(run.slope)[reading[last]],
    )


def _paced(updates, weights, pace, factor, options: AdversarialOptions):
    """Adam's step and the decay of the weights, each weight at its own pace."""
    decay = options.drift_rate * options.weight_decay

    def step(update, weight, pace):
        return jnp.where(pace == 0.0, 0.0, factor * pace * (update - decay * weight))

    return jax.tree.map(step, updates, weights, pace)


def _averaged(average, current, factor: float):
    """Factor * average + (1 - factor) * current, weight by weight."""
    return jax.tree.map(
        lambda a, c: factor * a + (1.0 - factor) * c if eqx.is_inexact_array(a) else c,
        average,
        current,
    )


def _where(members: Bool[Array, " n_members"], yes, no):
    """`yes` for these members and `no` for the others; both have a leading axis of members."""
    return (
        jnp.where(members.reshape(-1, *[1] * (yes.ndim - 1)), yes, no) if eqx.is_array(yes) else yes
    )


def _clearly_better(value, best):
    """An improvement by 1 %, so that noise in the last digits does not keep a run alive."""
    return value < 0.99 * best
