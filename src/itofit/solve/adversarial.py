"""Algorithm 1 of the paper: k ascent steps of the probes, one descent step of the drift, until a plateau.

A run is a `Run`: a value that holds everything the next iteration needs. The randomness of iteration i is
`fold_in(key, i)`, so a run continued from a saved `Run` is the uninterrupted one, bit for bit.
"""

import functools
import time
from collections.abc import Callable, Sequence

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Float, Int, PRNGKeyArray

from itofit.process.diffusion import AbstractDiffusion
from itofit.process.drift import AbstractDrift, NetworkDrift, PlainNetworkDrift
from itofit.process.network import xavier_network
from itofit.simulate.mesh import Mesh
from itofit.snapshots.clouds import Snapshots
from itofit.snapshots.scaling import Scaling
from itofit.solve.checkpoint import Checkpoint
from itofit.solve.criterion import HeldOutCriterion
from itofit.solve.game import Game, drift_gradient
from itofit.solve.listeners import Listener, Progress
from itofit.solve.options import AdversarialOptions
from itofit.solve.outcome import Fit, History, Outcome
from itofit.weak.probes import SpectralNetwork

# A simulated point this many times further out than any datum means that the run has diverged.
_TOO_FAR = 1000.0
# The state that is kept is the latest whose criterion is within this factor of the best: near the optimum the
# criterion is flat within its own sampling noise, while the average goes on improving as the rate decays.
_AS_GOOD = 1.05


class Players(eqx.Module):
    """The two sides of the game with their optimisers' memories."""

    drift: AbstractDrift
    average: AbstractDrift
    probes: SpectralNetwork
    drift_memory: optax.OptState
    probe_memory: optax.OptState


class Run(eqx.Module):
    """Everything a run has done so far; arrays of fixed shape, so it can be saved and loaded leaf by leaf."""

    players: Players
    best: AbstractDrift
    best_criterion: Float[Array, ""]
    best_iter: Int[Array, ""]
    n_done: Int[Array, ""]
    loss: Float[Array, " n_iter"]
    residuals: Float[Array, "n_iter n_targets"]
    criterion: Float[Array, " n_evals"]
    slope: Float[Array, " n_evals"]


class Optimisers(eqx.Module):
    """Adam for both sides; the drift's rate may decay on a cosine."""

    drift: optax.GradientTransformation = eqx.field(static=True)
    probes: optax.GradientTransformation = eqx.field(static=True)


@functools.cache
def optimisers_for(options: AdversarialOptions) -> Optimisers:
    """The optimisers these options ask for; cached, so that a second fit of the same kind compiles nothing."""
    b1, b2 = options.betas
    rate = options.drift_rate
    if options.cosine_decay:
        rate = optax.cosine_decay_schedule(rate, options.n_iter)
    return Optimisers(optax.adam(rate, b1, b2), optax.adam(options.probe_rate, b1, b2))


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

    `drift` is where to start, by default a fresh network. With a `checkpoint` the run is saved as it goes,
    and continued if the checkpoint already holds one.
    """
    k_init, k_run, k_criterion = jax.random.split(key, 3)
    game = Game.between(training, diffusion, mesh, options)
    criterion = HeldOutCriterion.on(held_out, Scaling.fit(training).sd, diffusion, game.legs, key=k_criterion)
    optimisers = optimisers_for(options)
    if drift is None:
        drift = fresh_drift(training.n_dims, float(mesh.times[-1] - mesh.times[0]), options, key=k_init)
    run = first_run(game, drift, optimisers, criterion, key=k_init)
    if checkpoint is not None:
        run = checkpoint.restore(run)
    limit = _TOO_FAR * max(float(np.max(np.abs(x))) for x in training.clouds)
    return _train(game, criterion, optimisers, run, k_run, limit, listeners, checkpoint)


def fresh_drift(n_dims: int, span: float, options: AdversarialOptions, *, key: PRNGKeyArray) -> AbstractDrift:
    """A network drift: with an affine skip and in units of 4 per time span, or the paper's plain one."""
    width, depth = options.drift_width, options.drift_depth
    if not options.affine_skip:
        return PlainNetworkDrift(xavier_network([n_dims, *[width] * depth, n_dims], key=key))
    return NetworkDrift.create(n_dims, width=width, depth=depth, speed=4.0 / span, last_gain=0.1, key=key)


def first_run(
    game: Game,
    drift: AbstractDrift,
    optimisers: Optimisers,
    criterion: HeldOutCriterion,
    *,
    key: PRNGKeyArray,
) -> Run:
    """A run before its first iteration."""
    options, n_dims = game.options, game.clouds[0].points.shape[1]

    def probe(k):
        return SpectralNetwork.create(n_dims, width=options.probe_width, depth=options.probe_depth, key=k)

    probes = eqx.filter_vmap(probe)(jax.random.split(jax.random.fold_in(key, 1), game.n_targets))
    players = Players(
        drift=drift,
        average=drift,
        probes=probes,
        drift_memory=optimisers.drift.init(eqx.filter(drift, eqx.is_inexact_array)),
        probe_memory=optimisers.probes.init(eqx.filter(probes, eqx.is_inexact_array)),
    )
    n_evals = -(-options.n_iter // options.eval_every)
    return Run(
        players=players,
        best=drift,
        best_criterion=_evaluate(criterion, drift),
        best_iter=jnp.zeros((), int),
        n_done=jnp.zeros((), int),
        loss=jnp.full(options.n_iter, jnp.nan, float),
        residuals=jnp.full((options.n_iter, game.n_targets), jnp.nan, float),
        criterion=jnp.full(n_evals, jnp.nan, float),
        slope=jnp.full(n_evals, jnp.nan, float),
    )


def iterate(game: Game, optimisers: Optimisers, players: Players, key: PRNGKeyArray):
    """One outer iteration; returns the players, the residuals they met and how far simulated points went."""
    options = game.options
    k_draw, k_drift, *k_critics = jax.random.split(key, 2 + options.critic_steps)
    draw = game.draw(k_draw)
    paths = game.simulate(players.drift, draw)

    def ascend(carry, k):
        probes, memory = carry
        k_nodes, k_fresh = jax.random.split(k)
        seen, way = draw, paths
        if options.fresh_paths:
            seen = game.draw(k_fresh)
            way = game.simulate(players.drift, seen)
        nodes = game.nodes(k_nodes)

        def gain(probes):
            values = game.residuals(_normalised(probes), players.drift, seen, way, nodes)
            return jnp.sum(values), values

        (_, values), slope = eqx.filter_value_and_grad(gain, has_aux=True)(probes)
        probes, memory = _climb(optimisers.probes, jax.tree.map(jnp.negative, slope), memory, probes)
        return (_sharpened(probes, options.power_iterations), memory), values

    critics = (players.probes, players.probe_memory)
    # On a CPU, XLA spreads heavy steps over the cores only outside a loop; light ones are not worth the compilation.
    heavy = options.n_nodes is None
    (probes, probe_memory), values = jax.lax.scan(ascend, critics, jnp.stack(k_critics), unroll=heavy)
    slope = drift_gradient(game, _normalised(probes), players.drift, draw, paths, game.nodes(k_drift))
    drift, drift_memory = _climb(optimisers.drift, slope, players.drift_memory, players.drift)
    average = _averaged(players.average, drift, options.averaging)
    reach = jnp.max(jnp.stack([jnp.max(jnp.abs(path)) for path in paths]))
    return Players(drift, average, probes, drift_memory, probe_memory), values[-1], reach


@eqx.filter_jit
def advance(game: Game, criterion: HeldOutCriterion, optimisers: Optimisers, run: Run, key: PRNGKeyArray, n: int):
    """`n` iterations and one reading of the criterion; returns the run and how far simulated points went."""

    def body(players, i):
        players, residuals, reach = iterate(game, optimisers, players, jax.random.fold_in(key, i))
        return players, (residuals, reach)

    dynamic, static = eqx.partition(run.players, eqx.is_array)

    def flat_body(dynamic, i):
        players, logged = body(eqx.combine(dynamic, static), i)
        return eqx.filter(players, eqx.is_array), logged

    dynamic, (residuals, reach) = jax.lax.scan(flat_body, dynamic, run.n_done + jnp.arange(n))
    players = eqx.combine(dynamic, static)
    value = criterion(players.average)
    keep = value < _AS_GOOD * run.best_criterion
    done = run.n_done + n
    evaluation = (done - 1) // game.options.eval_every
    run = Run(
        players=players,
        best=_select(keep, players.average, run.best),
        best_criterion=jnp.minimum(value, run.best_criterion),
        best_iter=jnp.where(_clearly_better(value, run.best_criterion), done, run.best_iter),
        n_done=done,
        loss=jax.lax.dynamic_update_slice(run.loss, jnp.sum(residuals, 1), (run.n_done,)),
        residuals=jax.lax.dynamic_update_slice(run.residuals, residuals, (run.n_done, 0)),
        criterion=run.criterion.at[evaluation].set(value),
        slope=run.slope.at[evaluation].set(_largest_slope(game, players.probes)),
    )
    return run, jnp.max(reach)


@eqx.filter_jit
def _evaluate(criterion: HeldOutCriterion, drift: AbstractDrift) -> Float[Array, ""]:
    return criterion(drift)


def _train(game, criterion, optimisers, run, key, limit, listeners, checkpoint) -> Fit:
    options, began = game.options, time.perf_counter()
    n_before = int(run.n_done)
    try:
        while (outcome := _finished(run, options)) is None:
            n = min(options.eval_every, options.n_iter - int(run.n_done))
            candidate, reach = advance(game, criterion, optimisers, run, key, n)
            outcome = _fault(candidate, float(reach), limit)
            if outcome is not None:
                break
            run = candidate
            progress = _progress(run, options, time.perf_counter() - began, n_before)
            for listener in listeners:
                listener(progress)
            if checkpoint is not None:
                checkpoint.save(run, force=_finished(run, options) is not None)
    except KeyboardInterrupt:
        outcome = Outcome.interrupted
        if checkpoint is not None:
            checkpoint.save(run, force=True)
    return Fit(
        process=game.process(run.best),
        outcome=outcome,
        history=_history(run, options),
        n_iter=int(run.n_done),
        best_iter=int(run.best_iter),
        seconds=time.perf_counter() - began,
    )


def _finished(run: Run, options: AdversarialOptions) -> Outcome | None:
    if int(run.n_done) - int(run.best_iter) >= options.patience:
        return Outcome.converged
    return Outcome.budget if int(run.n_done) >= options.n_iter else None


def _fault(run: Run, reach: float, limit: float) -> Outcome | None:
    done = int(run.n_done)
    weights = jax.tree.leaves(eqx.filter((run.players.drift, run.players.probes), eqx.is_inexact_array))
    finite = bool(jnp.all(jnp.stack([jnp.all(jnp.isfinite(w)) for w in weights])))
    if not finite or not np.all(np.isfinite(np.asarray(run.loss[:done]))) or not np.isfinite(reach):
        return Outcome.non_finite
    return Outcome.diverged if reach > limit else None


def _progress(run: Run, options: AdversarialOptions, seconds: float, n_before: int) -> Progress:
    done = int(run.n_done)
    last = (done - 1) // options.eval_every
    return Progress(
        n_done=done,
        n_total=options.n_iter,
        rate=(done - n_before) / max(seconds, 1e-9),
        loss=float(run.loss[done - 1]),
        residuals=tuple(np.asarray(run.residuals[done - 1]).tolist()),
        criterion=float(run.criterion[last]),
        best_criterion=float(run.best_criterion),
        slope=float(run.slope[last]),
    )


def _history(run: Run, options: AdversarialOptions) -> History:
    done = int(run.n_done)
    evals = -(-done // options.eval_every)
    return History(
        loss=np.asarray(run.loss)[:done],
        residuals=np.asarray(run.residuals)[:done],
        evaluated_at=np.minimum(options.eval_every * np.arange(1, evals + 1), done),
        criterion=np.asarray(run.criterion)[:evals],
        slope=np.asarray(run.slope)[:evals],
    )


def _normalised(probes: SpectralNetwork):
    return eqx.filter_vmap(SpectralNetwork.probe)(probes)


def _sharpened(probes: SpectralNetwork, n_iterations: int) -> SpectralNetwork:
    return eqx.filter_vmap(lambda probe: probe.sharpened(n_iterations))(probes)


def _climb(optimiser, slope, memory, player):
    updates, memory = optimiser.update(slope, memory, eqx.filter(player, eqx.is_inexact_array))
    return eqx.apply_updates(player, updates), memory


def _averaged(average, current, factor: float):
    """Factor * average + (1 - factor) * current, weight by weight."""
    return jax.tree.map(
        lambda a, c: factor * a + (1.0 - factor) * c if eqx.is_inexact_array(a) else c, average, current
    )


def _select(condition, yes, no):
    return jax.tree.map(lambda a, b: jnp.where(condition, a, b) if eqx.is_array(a) else a, yes, no)


def _clearly_better(value, best):
    """An improvement by 1 %, so that noise in the last digits does not keep a run alive."""
    return value < 0.99 * best


def _largest_slope(game: Game, probes: SpectralNetwork) -> Float[Array, ""]:
    gradient: Callable = lambda probe, cloud: jax.vmap(jax.grad(probe))(cloud.points)  # noqa: E731
    norms = [
        jnp.max(jnp.linalg.norm(gradient(jax.tree.map(lambda leaf, i=i: leaf[i], _normalised(probes)), cloud), axis=1))
        for i, cloud in enumerate(game.clouds[1:])
    ]
    return jnp.max(jnp.stack(norms))
