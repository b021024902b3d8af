"""How the potential recurrent network is trained:

1. Pre-training: contrastive divergence on the last snapshot, for a ladder of step sizes.
2. A short run of the mixed objective for a ladder of step sizes.
3. A long run at the best of them.

Every array has a first axis of members, fits that are trained together; on a ladder a second one of
rungs, one a step size.
"""

import enum
import time
from collections.abc import Callable
from typing import Any, Literal, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Float, Int, Key, PRNGKeyArray

from itofit.baselines.potential_objective import Objective, PotentialModel, Settings
from itofit.process.drift import stacked
from itofit.solve.listeners import Listener, Progress

Keys = Key[Array, " n_members"]
Loss = Literal["contrast", "mixed"]
Score = Literal["stationary", "transport"]

_BLOCK = 50
_ADAM = optax.scale_by_adam()


class _Stream(enum.IntEnum):
    """What random numbers of a training are for."""

    pretraining = 0
    pretraining_scores = 1
    short_run = 2
    scores = 3
    long_run = 4


class TrainingState(eqx.Module):
    """A model, and what its optimiser has to remember."""

    model: PotentialModel
    memory: Any


class TrainingResult(eqx.Module):
    """The end of a training: NaN where it did not come so far."""

    model: PotentialModel
    pretrain_rate: Float[Array, "*members"]
    rate: Float[Array, "*members"]
    loss: Float[Array, "*members n_iter"]
    finished: bool = eqx.field(static=True)

    @classmethod
    def untrained(cls, models: PotentialModel, n_iter: int) -> "TrainingResult":
        """Before the first iteration."""
        n_members = models.log_sigma.shape[0]
        nan = jnp.full(n_members, jnp.nan)
        return cls(models, nan, nan, jnp.full((n_members, n_iter), jnp.nan), finished=False)


class Block(NamedTuple):
    """The iterations from `begin` to `end`, of `n` in all."""

    begin: Int[Array, ""]
    end: Int[Array, ""]
    n: Int[Array, ""]


class Training:
    """The three phases, for all members at once."""

    def __init__(self, objectives: Objective, settings: Settings, listener: Listener):
        self.objectives = objectives
        self.settings = settings
        self.listener = listener
        self.began = time.perf_counter()
        self.n_done = 0
        self.n_total = settings.n_pretrain + settings.n_short + settings.n_iter
        self.best_loss = float("inf")
        self.latest: PotentialModel | None = None
        self.losses: list[Array] = []

    def run(self, models: PotentialModel, keys: Keys) -> TrainingResult:
        """Pre-train, climb the ladder, run long; Ctrl-C leaves what there is."""
        result = TrainingResult.untrained(models, self.settings.n_iter)
        finished = False
        try:
            result = self._pretrain(result, keys)
            pretrained = result.model
            result = self._short_run(result, keys)
            self.latest = None
            self._long_run(pretrained, result.rate, keys)
            finished = True
        except KeyboardInterrupt:
            if self.latest is None or bool(jnp.any(jnp.isnan(result.rate))):
                return result
        return self._better_run(result, keys, finished)

    def _pretrain(self, result: TrainingResult, keys: Keys) -> TrainingResult:
        """The potential whose stationary law is nearest to the last snapshot."""
        rates = self.settings.rates(5)
        resting = at_rest(result.model)
        k_train = _keys_for(_Stream.pretraining, keys)
        k_score = _keys_for(_Stream.pretraining_scores, keys)
        states = self._descend(resting, "contrast", rates, k_train, self.settings.n_pretrain)
        scores = _scores(self.objectives, states.model, k_score, "stationary")
        trained, rung = _best(states.model, scores, resting)
        pretrained = back_from_rest(trained, result.model)
        return eqx.tree_at(
            lambda r: (r.model, r.pretrain_rate), result, (pretrained, jnp.asarray(rates)[rung])
        )

    def _short_run(self, result: TrainingResult, keys: Keys) -> TrainingResult:
        """The best step size for the mixed objective, and how far it came."""
        settings = self.settings
        rates = settings.rates(10) / 10.0 if settings.faithful else settings.rates(5)
        k_train = _keys_for(_Stream.short_run, keys)
        k_score = _keys_for(_Stream.scores, keys)
        states = self._descend(result.model, "mixed", rates, k_train, settings.n_short)
        scores = _scores(self.objectives, states.model, k_score, "transport")
        trained, rung = _best(states.model, scores, result.model)
        return eqx.tree_at(lambda r: (r.model, r.rate), result, (trained, jnp.asarray(rates)[rung]))

    def _long_run(
        self, pretrained: PotentialModel, rate: Float[Array, " n_members"], keys: Keys
    ) -> None:
        """The mixed objective again, at the step size of each member; leaves `latest`, `losses`."""
        k_train = _keys_for(_Stream.long_run, keys)
        self._descend(pretrained, "mixed", rate[:, None], k_train, self.settings.n_iter)

    def _better_run(self, short: TrainingResult, keys: Keys, finished: bool) -> TrainingResult:
        """The long run as far as it went, or the short one where it is better or the long one has
        failed.
        """
        assert self.latest is not None
        long_model = jax.tree.map(lambda leaf: leaf[:, 0], self.latest)
        both = eqx.filter_vmap(lambda *models: stacked(models))(short.model, long_model)
        scores = _scores(self.objectives, both, _keys_for(_Stream.scores, keys), "transport")
        if self.settings.faithful:  # the published code falls back where there is no other way
            without_short = scores.at[:, 0].set(jnp.inf)
            scores = jnp.where(jnp.isfinite(scores[:, 1:]), without_short, scores)
        model, _ = _best(both, scores, short.model)
        loss = jnp.concatenate(self.losses, axis=-1)[:, 0]
        not_run = self.settings.n_iter - loss.shape[1]
        loss = jnp.pad(loss, ((0, 0), (0, not_run)), constant_values=jnp.nan)
        return TrainingResult(model, short.pretrain_rate, short.rate, loss, finished=finished)

    def _descend(
        self, models: PotentialModel, loss: Loss, rates: Any, keys: Keys, n: int
    ) -> TrainingState:
        """`n` iterations on every rung of a ladder for every member."""
        n_rungs = np.shape(rates)[-1]
        rates = jnp.broadcast_to(jnp.asarray(rates, dtype=float), (keys.shape[0], n_rungs))
        memory = eqx.filter_vmap(lambda model: first_memory(self.settings, model))(models)
        states = jax.tree.map(
            lambda leaf: jnp.repeat(leaf[:, None], n_rungs, axis=1), TrainingState(models, memory)
        )
        self.losses = []
        self.best_loss = float("inf")
        for begin in range(0, n, _BLOCK):
            end = min(begin + _BLOCK, n)
            block = Block(*(jnp.asarray(i, int) for i in (begin, end, n)))
            states, losses = _advance(self.objectives, states, rates, keys, block, loss)
            self.losses.append(losses[..., : end - begin])
            self.latest = states.model
            self.n_done += end - begin
            self._report(float(jnp.nanmedian(self.losses[-1][..., -1])))
        return states

    def _report(self, loss: float) -> None:
        self.best_loss = min(self.best_loss, loss)
        seconds = max(time.perf_counter() - self.began, 1e-9)
        progress = Progress(
            n_done=self.n_done,
            n_total=self.n_total,
            rate=self.n_done / seconds,
            loss=loss,
            residuals=(loss,),
            criterion=loss,
            best_criterion=self.best_loss,
            slope=float("nan"),
        )
        self.listener(progress)


def _keys_for(stream: _Stream, keys: Keys) -> Keys:
    """The key of every member for one purpose."""
    return jax.vmap(lambda key: jax.random.fold_in(key, int(stream)))(keys)


@eqx.filter_jit
def _advance(
    objectives: Objective,
    states: TrainingState,
    rates: Float[Array, "n_members n_rungs"],
    keys: Keys,
    block: Block,
    loss: Loss,
):
    """A block of iterations of every member and rung, and their losses."""

    def of_rung(objective: Objective, state: TrainingState, rate: Array, key: PRNGKeyArray):
        def body(i, carry):
            state, losses = carry
            k = jax.random.fold_in(key, i)
            state, value = iterate(objective, state, rate, k, i / block.n, loss)
            return state, losses.at[i - block.begin].set(value)

        return jax.lax.fori_loop(block.begin, block.end, body, (state, jnp.zeros(_BLOCK)))

    def of_member(objective: Objective, states: TrainingState, rates: Array, key: PRNGKeyArray):
        def advance(state: TrainingState, rate: Array):
            return of_rung(objective, state, rate, key)

        return _map(objective.settings, advance, states, rates)

    return _map(objectives.settings, of_member, objectives, states, rates, keys)


def _map(settings: Settings, f: Callable, *xs: Any) -> Any:
    """Map over the first axis: at once on a GPU, one by one on a CPU."""
    if settings.one_by_one:
        return jax.lax.map(lambda parts: f(*parts), xs)
    return jax.vmap(f)(*xs)


def iterate(
    objective: Objective,
    state: TrainingState,
    rate: Array,
    key: PRNGKeyArray,
    fraction: Array,
    loss: Loss,
) -> tuple[TrainingState, Array]:
    """One step down when this fraction of the run is over, and the loss before it."""
    settings = objective.settings

    def value_of(model: PotentialModel):
        if loss == "contrast":
            value = objective.contrast(model, key)
            return value, value
        return objective.mixed(model, key)

    (_, shown), slope = eqx.filter_value_and_grad(value_of, has_aux=True)(state.model)
    slope = eqx.tree_at(lambda m: m.potential.speed, slope, jnp.zeros(()))
    if loss == "contrast" or not settings.learn_sigma:
        slope = eqx.tree_at(lambda m: m.log_sigma, slope, jnp.zeros(()))
    cosine = 0.5 * (1.0 + jnp.cos(jnp.pi * fraction))
    step_size = rate if settings.faithful else rate * cosine
    updates, memory = _updates(settings, slope, state.memory, step_size)
    return TrainingState(eqx.apply_updates(state.model, updates), memory), shown


def first_memory(settings: Settings, model: PotentialModel) -> Any:
    """What the optimiser remembers of a model's slopes, before the first."""
    weights = eqx.filter(model, eqx.is_inexact_array)
    return jax.tree.map(jnp.ones_like, weights) if settings.faithful else _ADAM.init(weights)


def _updates(settings: Settings, slope: Any, memory: Any, rate: Array) -> tuple[Any, Any]:
    """Adam, or the published variant of Adagrad: s <- s + rate a slope^2 from s = 1, and rate slope
    / sqrt(s).
    """
    if settings.faithful:
        memory = jax.tree.map(lambda s, g: s + rate * settings.decay * g**2, memory, slope)
        updates = jax.tree.map(lambda s, g: -rate * g / jnp.sqrt(s), memory, slope)
        return updates, memory
    directions, memory = _ADAM.update(slope, memory)
    return jax.tree.map(lambda u: -rate * u, directions), memory


@eqx.filter_jit
def _scores(
    objectives: Objective, models: PotentialModel, keys: Keys, score: Score
) -> Float[Array, "n_members n_rungs"]:
    """Every rung on the same points and noise; more of them than an iteration takes."""

    def of_rung(objective: Objective, model: PotentialModel, key: PRNGKeyArray):
        if score == "transport":
            return objective.transport(model, key, objective.settings.scoring_size)
        return objective.stationary_distance(model, key)

    def of_member(objective: Objective, models: PotentialModel, key: PRNGKeyArray):
        return _map(objective.settings, lambda model: of_rung(objective, model, key), models)

    return _map(objectives.settings, of_member, objectives, models, keys)


def _best(
    models: PotentialModel, scores: Float[Array, "n_members n_rungs"], before: PotentialModel
) -> tuple[PotentialModel, Int[Array, " n_members"]]:
    """The best rung of every member, and which; what there was before where all have failed."""
    sound = jnp.isfinite(scores)
    rung = jnp.argmin(jnp.where(sound, scores, jnp.inf), axis=1)
    any_sound = jnp.any(sound, axis=1)

    def picked(leaf, old):
        new = leaf[jnp.arange(len(rung)), rung]
        by_member = any_sound.reshape(-1, *[1] * (new.ndim - 1))
        return jnp.where(by_member, new, old)

    return jax.tree.map(picked, models, before), rung


def at_rest(models: PotentialModel) -> PotentialModel:
    """Pre-training moves with sigma = sqrt 2, where the stationary law is exp(-Psi), and knows no
    unit of time.
    """
    log_sigma = jnp.full_like(models.log_sigma, 0.5 * np.log(2.0))
    speed = jnp.ones_like(models.potential.speed)
    return eqx.tree_at(lambda m: (m.log_sigma, m.potential.speed), models, (log_sigma, speed))


def back_from_rest(pretrained: PotentialModel, models: PotentialModel) -> PotentialModel:
    """The same stationary law at the noise of the data: Psi times sigma^2 / 2."""
    speed = models.potential.speed
    factor = 0.5 * models.sigma**2 / speed
    heights = pretrained.potential.heights * factor[:, None]
    return eqx.tree_at(
        lambda m: (m.potential.heights, m.potential.speed, m.log_sigma),
        pretrained,
        (heights, speed, models.log_sigma),
    )
