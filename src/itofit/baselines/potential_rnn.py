"""The potential recurrent network, the paper's rival "NN" (Hashimoto, Gifford and Jaakkola, ICML 2016):

    dX = -grad Psi(X) dt + sigma dW,    Psi(x) = c sum_k h_k softplus(w_k . x + b_k)

fitted by entropic transport between each snapshot and an Euler chain grown from the one before it, mixed with the
likelihood of the last snapshot under the stationary law, which is proportional to exp(-2 Psi / sigma^2).

1. Pre-training: contrastive divergence on the last snapshot, for a ladder of step sizes.
2. A short run of the mixed objective for a ladder of step sizes.
3. A long run at the best of them.

A drift that is a gradient has no curl: a flow that turns, as that of Syn-3 does, cannot be represented.
"""

import time
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any, Literal

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Float, Int, Key, PRNGKeyArray

from itofit.errors import InputError
from itofit.face import check_choices, device_named, seed_of
from itofit.metrics.sinkhorn import kernel_plan, sinkhorn_divergence, squared_distances
from itofit.process.diffusion import ConstantDiffusion
from itofit.process.drift import AbstractDrift
from itofit.process.ito import ItoProcess
from itofit.process.noise import LEARN, first_noise
from itofit.process_face import ProcessFace, warn_of_ending
from itofit.simulate.euler import euler_path, euler_push
from itofit.simulate.mesh import Mesh
from itofit.snapshots.clouds import Snapshots
from itofit.snapshots.scaling import Scaling
from itofit.solve.checkpoint import fill_tree, named_arrays
from itofit.solve.game import Leg, device_clouds, leg_noise, legs_between, minibatch
from itofit.solve.listeners import Progress, ProgressBar
from itofit.solve.outcome import Outcome
from itofit.solve.run import stacked
from itofit.solve.step_size import checked_step, first_step
from itofit.weak.residual import Cloud

# One key a member.
Keys = Key[Array, " n_members"]

MODES = ("stable", "faithful")
ANCHORS = ("initial", "previous")

# The published code: exp(-10 M), 10 alternations, halved up to 10 times where the kernel is not finite.
_SHARPNESS, _ALTERNATIONS, _HALVINGS = 10.0, 10, 10
# Steps by which the last snapshot's points are pushed to stand for the model's own law, and their length where the
# pace of that push is ours to choose (in units of the cloud's variance over half of sigma squared).
_BURN_IN, _PUSH = 50, 0.02
_BLOCK = 50
# A run that gained less than this share from its middle fifth to its last is at rest.
_AT_REST = 0.01
_ADAM = optax.scale_by_adam()


class PotentialRNN(ProcessFace):
    """Fit dX = -grad Psi(X) dt + sigma dW to snapshots by entropic transport.

    - `sigma`: the noise: one number, or `"learn"`: one number is learned along (an addition of ours; the published
      method is told it).
    - `mode`: `"stable"`, transport in the log domain without the bias of its blur, Adam, minibatches, in units in which
      the snapshots have sd 1; or `"faithful"`, the published code: raw units, the Gibbs kernel exp(-10 |x - y|^2) with
      10 alternations, its own Adagrad, all points. In single precision that kernel is zero beyond a distance of 3, so
      such data want units in which they have an sd of about 1.
    - `n_ramps`: softplus ramps in the potential.
    - `anchor`: `"previous"` grows every interval from the snapshot before it (their `delta`), `"initial"` all from the
      first.
    - `tau`: weight of the stationary likelihood of the last snapshot, from 0 to 1; None takes 0.7 in the faithful mode
      and 0 in the stable one, where pre-training is all that is asked of it: most populations have not come to rest.
    - `rate`: the largest step size of the ladders; None takes the mode's.
    - `n_pretrain`, `n_short`, `n_iter`: iterations of pre-training, of a rung of the ladder, of the long run, for which
      None takes 500 in the faithful mode and 2000 in the stable one.
    - `batch_size`: points of each snapshot an iteration, of the stable mode.
    - `dt`, `device`, `random_state`, `verbose`: as everywhere.

    After `fit`: `process_`, `sigma_`, `outcome_`, `history_` (the transport loss of every iteration of the long run),
    `rate_` (the rung that was taken), `pretrain_rate_`, `n_iter_`, `seconds_`.
    """

    method = "potential-rnn"
    remark = "the drift is a gradient: a flow that turns is out of its reach"
    batched = True

    def __init__(
        self,
        sigma: Any = LEARN,
        *,
        mode: str = "stable",
        n_ramps: int = 200,
        anchor: str = "previous",
        tau: float | None = None,
        rate: float | None = None,
        n_pretrain: int = 400,
        n_short: int = 100,
        n_iter: int | None = None,
        batch_size: int = 256,
        dt: float | Literal["auto"] = "auto",
        device: str = "auto",
        random_state: int | np.integer | None = None,
        verbose: bool = False,
    ):
        self.sigma = sigma
        self.mode = mode
        self.n_ramps = n_ramps
        self.anchor = anchor
        self.tau = tau
        self.rate = rate
        self.n_pretrain = n_pretrain
        self.n_short = n_short
        self.n_iter = n_iter
        self.batch_size = batch_size
        self.dt = dt
        self.device = device
        self.random_state = random_state
        self.verbose = verbose

    def _learn(self, snapshots: Snapshots, **how: Any) -> None:
        del how
        self._learn_together([self], [snapshots])

    @classmethod
    def _learn_together(cls, models: Sequence["PotentialRNN"], data: Sequence[Snapshots]) -> None:
        first, began = models[0], time.perf_counter()
        plan = first._plan(data[0].counts[0])
        device = device_named(first.device)
        with jax.default_device(device):
            parts = [model._begun(snapshots, plan) for model, snapshots in zip(models, data, strict=True)]
            problems, starts, keys = (stacked(list(part)) for part in zip(*parts, strict=True))
            with ProgressBar(cls.method) if first.verbose else nullcontext(_unseen) as bar:
                found = _Training(problems, plan, bar).run(starts, keys)
            seconds = time.perf_counter() - began
            for m, model in enumerate(models):
                model._settle(data[m], jax.tree.map(lambda leaf, m=m: leaf[m], found), seconds)

    def _plan(self, n_points: int) -> "Plan":
        """The choices, checked."""
        check_choices(self, mode=MODES, anchor=ANCHORS)
        for name in ("n_ramps", "n_pretrain", "n_short", "n_iter", "batch_size"):
            value = getattr(self, name)
            if name == "n_iter" and value is None:
                continue
            if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < 2:
                raise InputError(expected=f"{name} as a whole number from 2 on", found=f"{value!r}", hint="100")
        faithful = self.mode == "faithful"
        tau = (0.7 if faithful else 0.0) if self.tau is None else self.tau
        rate = (0.05 if faithful else 0.03) if self.rate is None else self.rate
        if not 0.0 <= tau <= 1.0:
            raise InputError(expected="tau from 0 to 1", found=f"{self.tau!r}", hint="0.7")
        if not rate > 0.0:
            raise InputError(expected="rate above 0", found=f"{self.rate!r}", hint="leave it out")
        n_iter = (500 if faithful else 2000) if self.n_iter is None else self.n_iter
        counts = (int(self.n_pretrain), int(self.n_short), int(n_iter))
        learned = isinstance(self.sigma, str) and self.sigma == LEARN
        on_cpu = device_named(self.device).platform == "cpu"
        return Plan(faithful, learned, float(tau), float(rate), *counts, int(self.batch_size), n_points, on_cpu)

    def _begun(self, snapshots: Snapshots, plan: "Plan") -> tuple["Problem", "Model", PRNGKeyArray]:
        """The task in the units of the fit, and where it begins."""
        self.seed_, self.scaling_ = seed_of(self.random_state), _scaling(snapshots, plan)
        self.dt_ = first_step(snapshots) if self._automatic else checked_step(self.dt, snapshots)
        standard, span = self.scaling_.transform(snapshots), float(np.ptp(snapshots.times))
        legs = legs_between(Mesh.refine(snapshots.times, self.dt_), self.anchor)
        weighted = tuple(bool(np.ptp(w) > 1e-12) for w in snapshots.weights)
        problem = Problem(device_clouds(standard), legs, weighted, span, plan)
        noise = _first_sigma(self.sigma, standard, self.scaling_, self.seed_)
        potential = RampPotential.create(
            standard, self.n_ramps, 1.0 if plan.faithful else 1.0 / span, plan, self._key(0)
        )
        return problem, Model(potential, jnp.log(jnp.asarray(noise, dtype=float))), self._key(1)

    def _settle(self, snapshots: Snapshots, found: "Found", seconds: float) -> None:
        self.standard_process_, self.sigma_ = found.model.process(), float(found.model.sigma) * self.scaling_.sd[0]
        self.pretrain_rate_, self.rate_ = float(found.pretrain_rate), float(found.rate)
        self.history_, self.seconds_ = np.asarray(found.loss, dtype=np.float64), seconds
        self.n_iter_, self.outcome_ = int(np.sum(np.isfinite(self.history_))), _outcome(found)
        self.dt_error_ = self._step_error(self.standard_process_, self.scaling_.transform(snapshots), self.dt_)
        warn_of_ending(self.outcome_, self.dt_, self.dt_error_)

    def _values(self) -> dict[str, Any]:
        kept = ("seed", "dt", "dt_error", "seconds", "sigma", "rate", "pretrain_rate", "n_iter")
        return {name: getattr(self, f"{name}_") for name in kept} | {"outcome": self.outcome_.name}

    def _arrays(self) -> dict[str, np.ndarray]:
        scaling = {"scaling.mean": self.scaling_.mean, "scaling.sd": self.scaling_.sd, "history": self.history_}
        return named_arrays(self.standard_process_.drift, "drift") | scaling

    def _restore(self, values: dict[str, Any], arrays: dict[str, np.ndarray]) -> None:
        for name in values.keys() - {"outcome"}:
            setattr(self, f"{name}_", values[name])
        self.outcome_, self.history_ = Outcome[values["outcome"]], arrays["history"]
        self.scaling_ = Scaling(arrays["scaling.mean"], arrays["scaling.sd"])
        K, D = self.n_ramps, self.snapshots_.n_dims
        like = RampPotential(jnp.zeros((K, D)), jnp.zeros(K), jnp.zeros(K), jnp.zeros(()))
        drift = fill_tree(like, arrays, "drift")
        self.standard_process_ = Model(drift, jnp.log(self.sigma_ / self.scaling_.sd[0])).process()


def _scaling(snapshots: Snapshots, plan: "Plan") -> Scaling:
    """One unit for all coordinates: a gradient is none any more where they are stretched differently."""
    own = Scaling.fit(snapshots)  # refuses a coordinate that does not vary
    if plan.faithful:
        return Scaling.identity(snapshots.n_dims)
    return Scaling(own.mean, np.full(snapshots.n_dims, np.sqrt(np.mean(own.sd**2))))


def _first_sigma(sigma: Any, standard: Snapshots, scaling: Scaling, seed: int) -> float:
    """The noise in the units of the fit: as told, or a first guess that is rather too large."""
    if isinstance(sigma, str) and sigma == LEARN:
        return float(first_noise("scalar", standard, scaling, seed)(jnp.zeros(standard.n_dims))[0, 0])
    if isinstance(sigma, bool) or not isinstance(sigma, int | float | np.number) or not 0.0 < sigma < np.inf:
        raise InputError(
            expected="sigma as one number above 0, the same for all coordinates",
            found=f"{sigma!r}",
            hint="sigma='learn', or a solver that knows other noise: --method moments",
        )
    return float(sigma) / float(scaling.sd[0])


def _outcome(found: "Found") -> Outcome:
    """At rest if the loss fell no more from the middle of the long run on, where its rate was still a half."""
    loss = np.asarray(found.loss)
    if not all(bool(jnp.all(jnp.isfinite(leaf))) for leaf in jax.tree.leaves(found.model)):
        return Outcome.non_finite
    if not found.finished:
        return Outcome.interrupted
    if not np.isfinite(loss[-1]):
        return Outcome.non_finite
    loss, part = loss[np.isfinite(loss)], max(1, len(loss) // 5)
    middle, late = loss[-3 * part : -2 * part], loss[-part:]
    if len(middle) < part:
        return Outcome.budget
    noise = (late.std() + middle.std()) / np.sqrt(part)
    return Outcome.converged if middle.mean() - late.mean() < max(_AT_REST * late.mean(), noise) else Outcome.budget


class RampPotential(AbstractDrift):
    """-grad Psi, a layer of sigmoids with the same weights on the way in and out."""

    weights: Float[Array, "n_ramps n_dims"]
    biases: Float[Array, " n_ramps"]
    heights: Float[Array, " n_ramps"]
    speed: Float[Array, ""]

    @classmethod
    def create(
        cls, snapshots: Snapshots, n_ramps: int, speed: float, plan: "Plan", key: PRNGKeyArray
    ) -> "RampPotential":
        """A flat potential: ramps of random slopes at height 0.

        They begin near random points of the data; in the published code all near the mean of the first snapshot.
        """
        k_slope, k_offset, k_point = jax.random.split(key, 3)
        weights = jax.random.normal(k_slope, (n_ramps, snapshots.n_dims))
        pooled, share = (np.concatenate(parts) for parts in (snapshots.clouds, snapshots.weights))
        if plan.faithful:
            at = jnp.asarray(snapshots.weights[0] @ snapshots.clouds[0], dtype=float)
        else:
            share = jnp.asarray(share / share.sum(), dtype=float)
            at = jax.random.choice(k_point, jnp.asarray(pooled, dtype=float), (n_ramps,), p=share)
        biases = -jnp.sum(weights * at, axis=1) + jax.random.uniform(k_offset, (n_ramps,), minval=-1.0, maxval=1.0)
        return cls(weights, biases, jnp.zeros(n_ramps), jnp.asarray(speed, dtype=float))

    def potential(self, x: Float[Array, " n_dims"]) -> Float[Array, ""]:
        """Psi(x)."""
        return self.speed * (self.heights @ jax.nn.softplus(self.weights @ x + self.biases))

    def __call__(self, x: Float[Array, " n_dims"]) -> Float[Array, " n_dims"]:
        return -self.speed * (self.weights.T @ (self.heights * jax.nn.sigmoid(self.weights @ x + self.biases)))


class Model(eqx.Module):
    """What is learned: the potential, and the noise where it is not told."""

    potential: RampPotential
    log_sigma: Float[Array, "*members"]

    @property
    def sigma(self) -> Float[Array, "*members"]:
        """The noise."""
        return jnp.exp(self.log_sigma)

    def process(self) -> ItoProcess:
        """The process dX = -grad Psi dt + sigma dW."""
        factor = self.sigma * jnp.eye(self.potential.weights.shape[-1])
        return ItoProcess(self.potential, ConstantDiffusion(factor))

    def log_density(self, x: Float[Array, " n_dims"]) -> Float[Array, ""]:
        """Of the stationary law, up to a constant."""
        return -2.0 * self.potential.potential(x) / self.sigma**2


@dataclass(frozen=True)
class Plan:
    """The choices of a fit."""

    faithful: bool
    learn_sigma: bool
    tau: float
    rate: float
    n_pretrain: int
    n_short: int
    n_iter: int
    batch_size: int
    n_points: int
    one_by_one: bool

    @property
    def decay(self) -> float:
        """The a of the published Adagrad."""
        return 0.01 / self.n_points

    def rates(self, n: int) -> Float[np.ndarray, " n"]:
        """A ladder of step sizes, each half of the one before."""
        return self.rate * 0.5 ** np.arange(n)


class Problem(eqx.Module):
    """The fixed part of a fit."""

    clouds: tuple[Cloud, ...]
    legs: tuple[Leg, ...] = eqx.field(static=True)
    weighted: tuple[bool, ...] = eqx.field(static=True)
    span: float = eqx.field(static=True)
    plan: Plan = eqx.field(static=True)

    def transport(self, model: Model, key: PRNGKeyArray, size: int | None) -> Float[Array, ""]:
        """The sum over intervals of the transport loss between the chain's end and the snapshot seen there."""
        k_rows, k_noise, k_match = jax.random.split(key, 3)
        keys, process, total = jax.random.split(k_rows, len(self.clouds)), model.process(), jnp.zeros(())
        sizes = [len(c.weights) if size is None else size for c in self.clouds]
        clouds = tuple(_points(*some) for some in zip(self.clouds, sizes, keys, self.weighted, strict=True))
        for leg, noise in zip(self.legs, leg_noise(self.legs, clouds, k_noise), strict=True):
            start = clouds[leg.start]
            path = euler_path(process, start.points, jnp.asarray(leg.steps, dtype=float), noise)
            for n, end in leg.targets:
                if self.plan.faithful:
                    total += barycentric_loss(path[end], clouds[n], jax.random.fold_in(k_match, n))
                else:
                    total += sinkhorn_divergence(path[end], clouds[n].points, start.weights, clouds[n].weights)
        return total

    def contrast(self, model: Model, key: PRNGKeyArray) -> Float[Array, ""]:
        """Minus the log likelihood of the last snapshot, up to its constant: contrastive divergence."""
        k_rows, k_push = jax.random.split(key)
        last, here = self._last(k_rows), jax.lax.stop_gradient(model)
        negatives = Cloud(self.pushed(here, last, k_push), last.weights)
        return negatives.expect(model.log_density) - last.expect(model.log_density)

    def pushed(self, model: Model, last: Cloud, key: PRNGKeyArray) -> Float[Array, "n n_dims"]:
        """Points of the last snapshot, a while later under the model."""
        pace = self.span / _BURN_IN if self.plan.faithful else _PUSH
        step = 2.0 * pace / model.sigma**2
        return euler_push(model.process(), last.points, jnp.full(_BURN_IN, step), key)

    def misfit_at_rest(self, model: Model, key: PRNGKeyArray) -> Float[Array, ""]:
        """How far the model's own law is from the last snapshot."""
        k_rows, k_seen, k_push, k_match = jax.random.split(key, 4)
        last, seen = self._last(k_rows), self._last(k_seen)
        pushed = self.pushed(model, last, k_push)
        if self.plan.faithful:
            return barycentric_loss(pushed, seen, k_match)
        return sinkhorn_divergence(pushed, seen.points, last.weights, seen.weights)

    def _last(self, key: PRNGKeyArray) -> Cloud:
        """The last snapshot, or some of its points."""
        size = len(self.clouds[-1].weights) if self.plan.faithful else self.plan.batch_size
        return _points(self.clouds[-1], size, key, self.weighted[-1])

    def mixed(self, model: Model, key: PRNGKeyArray) -> tuple[Float[Array, ""], Float[Array, ""]]:
        """(1 - tau) transport - tau log likelihood, and the transport alone."""
        k_transport, k_contrast = jax.random.split(key)
        moved = self.transport(model, k_transport, None if self.plan.faithful else self.plan.batch_size)
        if self.plan.tau == 0.0:
            return moved, moved
        return (1.0 - self.plan.tau) * moved + self.plan.tau * self._scale * self.contrast(model, k_contrast), moved

    @property
    def _scale(self) -> float:
        """The published transport is a sum over points, and so is its likelihood."""
        return float(len(self.clouds[-1].weights)) if self.plan.faithful else 1.0


def _points(cloud: Cloud, size: int, key: PRNGKeyArray, weighted: bool) -> Cloud:
    """So many points that count equally, of a cloud whose points may not."""
    n = len(cloud.weights)
    if weighted and size >= n:
        return Cloud(jax.random.choice(key, cloud.points, (n,), p=cloud.weights), jnp.full(n, 1.0 / n))
    return minibatch(cloud, size, key, weighted=weighted)


def barycentric_loss(x: Float[Array, "n n_dims"], target: Cloud, key: PRNGKeyArray) -> Float[Array, ""]:
    """sum_i |x_i - b_i|^2 of the published code, differentiated as it does: -sum_i e_i . dx_i with e = b - x.

    b_i is the mean of the targets that the plan sends to i, targets resampled to the number of points; where the kernel
    is not finite its sharpness is halved. Infinite where that does not help.
    """
    y = jax.random.choice(key, target.points, (len(x),), p=target.weights)
    M = squared_distances(jax.lax.stop_gradient(x), y)

    def planned(sharpness):
        return kernel_plan(M, 1.0 / sharpness, _ALTERNATIONS)

    def failing(state):
        tries, _, plan = state
        return (tries < _HALVINGS) & ~jnp.all(jnp.isfinite(plan))

    def halved(state):
        tries, sharpness, _ = state
        return tries + 1, sharpness / 2.0, planned(sharpness / 2.0)

    start = (jnp.zeros((), int), jnp.asarray(_SHARPNESS), planned(_SHARPNESS))
    plan = jax.lax.while_loop(failing, halved, start)[2]
    found = jnp.all(jnp.isfinite(plan))
    error = jnp.where(found, jax.lax.stop_gradient(plan @ y - x), 0.0)
    value = jnp.where(found, jnp.sum(error**2), jnp.inf)
    along = jnp.sum(error * x)
    return value - (along - jax.lax.stop_gradient(along))


class Lane(eqx.Module):
    """One run: the model and its optimiser's memory."""

    model: Model
    memory: Any


class Found(eqx.Module):
    """The end of a fit."""

    model: Model
    pretrain_rate: Float[Array, "*members"]
    rate: Float[Array, "*members"]
    loss: Float[Array, "*members n_iter"]
    finished: bool = eqx.field(static=True)


class _Training:
    """The three phases, for all members at once."""

    def __init__(self, problems: Problem, plan: Plan, bar: Callable[[Progress], None]):
        self.problems, self.plan, self.bar = problems, plan, bar
        self.began, self.done, self.best = time.perf_counter(), 0, float("inf")
        self.total = plan.n_pretrain + plan.n_short + plan.n_iter
        self.latest: Model | None = None
        self.losses: list[Array] = []

    def run(self, models: Model, keys: Keys) -> Found:
        """Pre-train, climb the ladder, run long; Ctrl-C keeps what there is."""
        plan, nan = self.plan, jnp.full(keys.shape[0], jnp.nan)
        k = [jax.vmap(lambda key, i=i: jax.random.fold_in(key, i))(keys) for i in range(5)]
        found = Found(models, nan, nan, jnp.full((keys.shape[0], plan.n_iter), jnp.nan), finished=False)
        finished = False
        try:
            rates = plan.rates(5)
            lanes = self._descend(_at_rest(models), "contrast", rates, k[0], plan.n_pretrain)
            scores = _scores(self.problems, lanes.model, k[1], "rest")
            pretrained, rung = _best(lanes.model, scores, _at_rest(models))
            pretrained = _back_from_rest(pretrained, models)
            found = eqx.tree_at(lambda f: (f.model, f.pretrain_rate), found, (pretrained, jnp.asarray(rates)[rung]))
            rates = plan.rates(10) / 10.0 if plan.faithful else plan.rates(5)
            lanes = self._descend(pretrained, "mixed", rates, k[2], plan.n_short)
            short, rung = _best(lanes.model, _scores(self.problems, lanes.model, k[3], "transport"), pretrained)
            found = eqx.tree_at(lambda f: (f.model, f.rate), found, (short, jnp.asarray(rates)[rung]))
            self.latest = None
            self._descend(pretrained, "mixed", found.rate[:, None], k[4], plan.n_iter)
            finished = True
        except KeyboardInterrupt:
            if self.latest is None or bool(jnp.any(jnp.isnan(found.rate))):
                return found
        return self._longest(found, k[3], finished)

    def _longest(self, found: Found, keys: Keys, finished: bool) -> Found:
        """The long run as far as it went, or the short one where it is better or the long one has failed."""
        assert self.latest is not None
        both = eqx.filter_vmap(lambda *m: stacked(m))(found.model, jax.tree.map(lambda leaf: leaf[:, 0], self.latest))
        scores = _scores(self.problems, both, keys, "transport")
        if self.plan.faithful:  # the published code falls back where there is no other way
            scores = jnp.where(jnp.isfinite(scores[:, 1:]), scores.at[:, 0].set(jnp.inf), scores)
        model, _ = _best(both, scores, found.model)
        loss = jnp.concatenate(self.losses, axis=-1)[:, 0]
        loss = jnp.pad(loss, ((0, 0), (0, self.plan.n_iter - loss.shape[1])), constant_values=jnp.nan)
        return Found(model, found.pretrain_rate, found.rate, loss, finished=finished)

    def _descend(self, models: Model, what: str, rates: Any, keys: Keys, n: int) -> Lane:
        """`n` iterations on every rung of a ladder for every member."""
        n_members = keys.shape[0]
        rates = jnp.broadcast_to(jnp.asarray(rates, dtype=float), (n_members, np.shape(rates)[-1]))
        memory = eqx.filter_vmap(lambda model: _memory(self.plan, model))(models)
        lanes = jax.tree.map(lambda a: jnp.repeat(a[:, None], rates.shape[1], axis=1), Lane(models, memory))
        self.losses, self.best = [], float("inf")
        for begin in range(0, n, _BLOCK):
            end = min(begin + _BLOCK, n)
            lanes, loss = _advance(self.problems, lanes, rates, keys, jnp.asarray([begin, end, n]), what)
            self.losses.append(loss[..., : end - begin])
            self.latest = lanes.model
            self.done += end - begin
            self._report(float(jnp.nanmedian(self.losses[-1][..., -1])))
        return lanes

    def _report(self, loss: float) -> None:
        self.best = min(self.best, loss)
        rate = self.done / max(time.perf_counter() - self.began, 1e-9)
        self.bar(Progress(self.done, self.total, rate, loss, (loss,), loss, self.best, float("nan")))


@eqx.filter_jit
def _advance(problems: Problem, lanes: Lane, rates: Array, keys: Keys, when: Int[Array, " 3"], what: str):
    """The iterations from one to another, of so many in all, of every member and rung; and their losses."""
    begin, end, n = when

    def one(problem: Problem, lane: Lane, rate: Array, key: PRNGKeyArray):
        def body(i, carry):
            lane, losses = carry
            lane, loss = _iterate(problem, lane, rate, jax.random.fold_in(key, i), i / n, what)
            return lane, losses.at[i - begin].set(loss)

        return jax.lax.fori_loop(begin, end, body, (lane, jnp.zeros(_BLOCK)))

    def member(problem, lanes, rates, key):
        return _over(problem.plan, lambda some: one(problem, some[0], some[1], key), (lanes, rates))

    return _over(problems.plan, lambda some: member(*some), (problems, lanes, rates, keys))


def _over(plan: Plan, f: Callable, xs: Any) -> Any:
    """Map over the first axis: at once on a GPU, one by one on a CPU, which does not thread small batched products."""
    return jax.lax.map(f, xs) if plan.one_by_one else jax.vmap(f)(xs)


def _iterate(problem: Problem, lane: Lane, rate: Array, key: PRNGKeyArray, share: Array, what: str):
    """One step down."""
    plan = problem.plan

    def loss(model):
        if what == "contrast":
            value = problem.contrast(model, key)
            return value, value
        return problem.mixed(model, key)

    (_, moved), slope = eqx.filter_value_and_grad(loss, has_aux=True)(lane.model)
    fixed = what == "contrast" or not plan.learn_sigma
    slope = eqx.tree_at(lambda m: m.potential.speed, slope, jnp.zeros(()))
    slope = eqx.tree_at(lambda m: m.log_sigma, slope, jnp.zeros(())) if fixed else slope
    factor = rate if plan.faithful else rate * 0.5 * (1.0 + jnp.cos(jnp.pi * share))
    updates, memory = _step(plan, slope, lane.memory, factor)
    return Lane(eqx.apply_updates(lane.model, updates), memory), moved


def _memory(plan: Plan, model: Model) -> Any:
    """What the optimiser keeps of a model's slopes, before the first."""
    weights = eqx.filter(model, eqx.is_inexact_array)
    return jax.tree.map(jnp.ones_like, weights) if plan.faithful else _ADAM.init(weights)


def _step(plan: Plan, slope: Any, memory: Any, rate: Array) -> tuple[Any, Any]:
    """Adam, or the published variant of Adagrad: s <- s + rate a slope^2 from s = 1, and rate slope / sqrt(s)."""
    if plan.faithful:
        memory = jax.tree.map(lambda s, g: s + rate * plan.decay * g**2, memory, slope)
        return jax.tree.map(lambda s, g: -rate * g / jnp.sqrt(s), memory, slope), memory
    updates, memory = _ADAM.update(slope, memory)
    return jax.tree.map(lambda u: -rate * u, updates), memory


@eqx.filter_jit
def _scores(problems: Problem, models: Model, keys: Keys, what: str) -> Float[Array, "n_members n_rungs"]:
    """Every rung on the same points and noise; more of them than an iteration takes."""

    def one(problem, model, key):
        if what == "transport":
            return problem.transport(model, key, None if problem.plan.faithful else 4 * problem.plan.batch_size)
        return problem.misfit_at_rest(model, key)

    def member(problem, models, key):
        return _over(problem.plan, lambda model: one(problem, model, key), models)

    return _over(problems.plan, lambda some: member(*some), (problems, models, keys))


def _best(models: Model, scores: Float[Array, "n_members n_rungs"], before: Model) -> tuple[Model, Array]:
    """The best rung of every member, and which; what there was before where all have failed."""
    sound = jnp.isfinite(scores)
    rung = jnp.argmin(jnp.where(sound, scores, jnp.inf), axis=1)
    any_sound = jnp.any(sound, axis=1)

    def picked(leaf, old):
        new = leaf[jnp.arange(len(rung)), rung]
        return jnp.where(any_sound.reshape(-1, *[1] * (new.ndim - 1)), new, old)

    return jax.tree.map(picked, models, before), rung


def _at_rest(models: Model) -> Model:
    """Pre-training moves with sigma = sqrt 2, where the stationary law is exp(-Psi), and knows no unit of time."""
    unit = (jnp.full_like(models.log_sigma, 0.5 * np.log(2.0)), jnp.ones_like(models.potential.speed))
    return eqx.tree_at(lambda m: (m.log_sigma, m.potential.speed), models, unit)


def _back_from_rest(pretrained: Model, models: Model) -> Model:
    """The same stationary law at the noise of the data: Psi times sigma^2 / 2."""
    factor = 0.5 * models.sigma**2 / models.potential.speed
    heights = pretrained.potential.heights * factor[:, None]
    new = (heights, models.potential.speed, models.log_sigma)
    return eqx.tree_at(lambda m: (m.potential.heights, m.potential.speed, m.log_sigma), pretrained, new)


def _unseen(progress: Progress) -> None:
    del progress
