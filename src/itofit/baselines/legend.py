"""LEGEND: learning the dynamics of aggregate data with a hidden process and Wasserstein critics.

A re-implementation from the published description (Wang, Dai, Kong, Erfani, Bailey and Zha, UAI 2018); the body of that
paper was not available, and what it leaves open is chosen here as a fair rival would have it:

    h_0 = e(x_0, zeta),    dh = g(h) dt + diag(sigma) dW,    x_t = k(h_t),    zeta standard normal
    min over e, g, sigma, k of sum_n max over |grad f_n| <= 1 of E f_n(X_n) - E f_n(k(h_n))

with one critic for every snapshot, the first included, so that e and k together reproduce it. There are more hidden
coordinates than seen ones, and gradients go through the whole path. With e and k the identity this is the `direct`
game of the adversarial solver, and it is played by the same code.
"""

import time
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import fields, replace
from typing import Any, Literal

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Float, PRNGKeyArray

from itofit.errors import InputError
from itofit.face import Face, check_choices, device_named, seed_of
from itofit.forecast import finite, grown, push_forward, step_doubling_error
from itofit.metrics.landing import landed
from itofit.process.diffusion import AbstractDiffusion, diffusion_from_sigma
from itofit.process.drift import AbstractDrift, NetworkDrift
from itofit.process.ito import ItoProcess
from itofit.process.network import TanhNetwork, xavier_network
from itofit.process.noise import LEARN, DiagonalForm, LearnedDiffusion, NoisyDrift, first_noise, process_of
from itofit.process_face import warn_of_ending
from itofit.simulate.euler import euler_path
from itofit.simulate.mesh import Mesh
from itofit.snapshots.clouds import Snapshot, Snapshots
from itofit.snapshots.scaling import Scaling
from itofit.snapshots.split import FEWEST_TO_SPLIT, split_rows
from itofit.solve.adversarial import first_run, play
from itofit.solve.adversaries import AbstractAdversary, NetworkAdversary, climbed, largest_slope
from itofit.solve.checkpoint import fill_tree, named_arrays
from itofit.solve.criterion import PlainCriterion, fixed_cosines
from itofit.solve.game import Draw, Game, Leg, Nodes, Paths
from itofit.solve.listeners import ProgressBar
from itofit.solve.options import AdversarialOptions
from itofit.solve.outcome import Fit, History, Outcome
from itofit.solve.run import optimisers_for
from itofit.solve.step_size import checked_step, first_step
from itofit.weak.probes import AbstractProbe, CosineProbe, NetworkProbe
from itofit.weak.residual import Cloud, direct_residual

CRITICS = ("gradient-penalty", "spectral-norm")
ENCODERS = ("network", "identity")

# Hidden coordinates beside those that are seen; their networks; the weight of the penalty.
_MORE_HIDDEN, _CODE_WIDTH, _PENALTY = 2, 64, 10.0


class Legend(Face):
    """Fit a hidden process with an encoder and a decoder to snapshots, against one critic a snapshot.

    A re-implementation from the published description of LEGEND (Wang et al., 2018).

    - `sigma`: `"learn"`, or the noise of the seen coordinates with which learning begins: a number, or one per
      coordinate. Where encoder and decoder are networks the noise of the hidden process is always learned, since they
      can stretch it; with `encoder="identity"` a number is held.
    - `encoder`: `"network"` for encoder and decoder, or `"identity"`: the hidden state is the state.
    - `n_hidden`: hidden coordinates; None takes two more than are seen.
    - `critic`: how critics are kept to slope 1: `"gradient-penalty"` or `"spectral-norm"`.
    - `n_iter`, `critic_steps`, `learning_rate`, `batch_size`: of the game.
    - `dt`, `device`, `random_state`, `verbose`: as everywhere.

    After `fit`: `model_` (encoder, hidden process and decoder in standardised units; the hidden state is known only up
    to a change of coordinates), `outcome_`, `history_`, `n_iter_`, `seconds_`, `dt_`, `dt_error_`, `scaling_`.
    """

    method = "legend"
    remark = "re-implementation from the published description"
    batched = True

    def __init__(
        self,
        sigma: Any = LEARN,
        *,
        encoder: str = "network",
        n_hidden: int | None = None,
        critic: str = "gradient-penalty",
        n_iter: int = 2000,
        critic_steps: int = 10,
        learning_rate: float = 1e-3,
        batch_size: int = 512,
        dt: float | Literal["auto"] = "auto",
        device: str = "auto",
        random_state: int | np.integer | None = None,
        verbose: bool = False,
    ):
        self.sigma = sigma
        self.encoder = encoder
        self.n_hidden = n_hidden
        self.critic = critic
        self.n_iter = n_iter
        self.critic_steps = critic_steps
        self.learning_rate = learning_rate
        self.batch_size = batch_size
        self.dt = dt
        self.device = device
        self.random_state = random_state
        self.verbose = verbose

    def solver_options(self) -> AdversarialOptions:
        """The choices of the game."""
        return AdversarialOptions(
            anchor="initial",
            discrepancy="direct",
            adversary="network",
            drift_form="skip",
            n_iter=self.n_iter,
            critic_steps=self.critic_steps,
            batch_size=self.batch_size,
            drift_rate=self.learning_rate,
            probe_rate=self.learning_rate,
            betas=(0.5, 0.9) if self.critic == "gradient-penalty" else (0.9, 0.99),
            hold_out=0.1,
        )

    def _learn(self, snapshots: Snapshots, **how: Any) -> None:
        del how
        self._learn_together([self], [snapshots])

    @classmethod
    def _learn_together(cls, models: Sequence["Legend"], data: Sequence[Snapshots]) -> None:
        first, began = models[0], time.perf_counter()
        with jax.default_device(device_named(first.device)):
            parts = [model._begun(snapshots) for model, snapshots in zip(models, data, strict=True)]
            with ProgressBar(cls.method) if first.verbose else nullcontext() as bar:
                fits = play(parts, first.solver_options(), listeners=[bar] if bar else [])
            seconds = time.perf_counter() - began
            for model, snapshots, fit in zip(models, data, fits, strict=True):
                model._settle(snapshots, fit, seconds)

    def _begun(self, snapshots: Snapshots):
        """The game, the criterion, the run before its first iteration, and its key."""
        check_choices(self, critic=CRITICS, encoder=ENCODERS)
        options, self.seed_ = self.solver_options(), seed_of(self.random_state)
        self.dt_ = first_step(snapshots) if self.dt == "auto" else checked_step(self.dt, snapshots)
        training, held_out = snapshots, snapshots
        Scaling.fit(snapshots)  # refuses a coordinate that does not vary
        if min(snapshots.counts) >= FEWEST_TO_SPLIT:
            training, held_out = split_rows(snapshots, options.hold_out, self.seed_)
        self.scaling_ = Scaling.fit(training)
        training, held_out = (self.scaling_.transform(part) for part in (training, held_out))
        return prepared(self, training, held_out, Mesh.refine(training.times, self.dt_), key=self._key(1))

    def hidden_dims(self, n_dims: int) -> int:
        """Coordinates of the hidden state."""
        if self.encoder == "identity":
            if self.n_hidden not in (None, n_dims):
                raise InputError(
                    expected=f"with encoder='identity', n_hidden None or the {n_dims} seen coordinates",
                    found=f"{self.n_hidden!r}",
                    hint="encoder='network'",
                )
            return n_dims
        wanted = n_dims + _MORE_HIDDEN if self.n_hidden is None else self.n_hidden
        if isinstance(wanted, bool) or not isinstance(wanted, int | np.integer) or wanted < n_dims:
            raise InputError(
                expected=f"n_hidden as a whole number from the {n_dims} seen coordinates on",
                found=f"{self.n_hidden!r}",
                hint=f"leave it out for {n_dims + _MORE_HIDDEN}",
            )
        return int(wanted)

    def fresh(self, snapshots: Snapshots, key: PRNGKeyArray) -> tuple["CodedDrift", AbstractDiffusion]:
        """Where learning begins, and the noise of a process that brings none of its own."""
        options, n_dims = self.solver_options(), snapshots.n_dims
        n_hidden, speed = self.hidden_dims(n_dims), 4.0 / float(np.ptp(snapshots.times))
        shape = {"width": options.drift_width, "depth": options.drift_depth, "speed": speed, "last_gain": 0.1}
        drift = NetworkDrift.create(n_hidden, **shape, key=key)
        size = _first_sizes(self.sigma, snapshots, self.scaling_, self.seed_)
        if self.encoder == "identity" and not _is_to_be_learned(self.sigma):
            return CodedDrift(drift, None), diffusion_from_sigma(size, n_dims)
        theta = np.log(np.append(size, np.full(n_hidden - n_dims, np.mean(size))))
        noise = LearnedDiffusion(jnp.asarray(theta, dtype=float), DiagonalForm(n_hidden))
        code = None if self.encoder == "identity" else Code.create(n_dims, n_hidden, jax.random.fold_in(key, 2))
        return CodedDrift(NoisyDrift(drift, noise), code), noise

    def _settle(self, snapshots: Snapshots, fit: Fit, seconds: float) -> None:
        assert isinstance(fit.process, HiddenProcess)
        self.model_ = fit.process
        self.outcome_, self.history_ = fit.outcome, fit.history
        self.n_iter_, self.seconds_ = fit.n_iter, seconds
        standard = self.scaling_.transform(snapshots)
        begin, (k_code, k_noise) = standard.at(float(standard.times[0])), jax.random.split(self._key(3))
        hidden = np.asarray(self.model_.begun(jnp.asarray(begin.points, dtype=float), k_code), dtype=np.float64)
        start = Snapshot(begin.time, hidden, begin.weights)
        self.dt_error_ = step_doubling_error(self.model_, start, standard.times, self.dt_, key=k_noise)
        warn_of_ending(self.outcome_, self.dt_, self.dt_error_)

    def _carry(self, times: np.ndarray, n_samples: int | None, start: str, first: Snapshot | None) -> Snapshots:
        how = {"n_samples": n_samples, "start": start, "first": first, "seed": self.seed_, "key": self._key(4)}
        return grown(self.model_, self.scaling_, self.snapshots_, times, self.dt_, **how, land=landed, push=push_hidden)

    def _key(self, purpose: int) -> PRNGKeyArray:
        return jax.random.fold_in(jax.random.key(self.seed_), purpose)

    def _values(self) -> dict[str, Any]:
        kept = ("seed", "dt", "dt_error", "seconds", "n_iter")
        return {name: getattr(self, f"{name}_") for name in kept} | {"outcome": self.outcome_.name}

    def _arrays(self) -> dict[str, np.ndarray]:
        history = {f"history.{name}": value for name, value in vars(self.history_).items()}
        scaling = {"scaling.mean": self.scaling_.mean, "scaling.sd": self.scaling_.sd}
        return named_arrays(self.model_, "model") | history | scaling

    def _restore(self, values: dict[str, Any], arrays: dict[str, np.ndarray]) -> None:
        for name in values.keys() - {"outcome"}:
            setattr(self, f"{name}_", values[name])
        self.outcome_ = Outcome[values["outcome"]]
        self.scaling_ = Scaling(arrays["scaling.mean"], arrays["scaling.sd"])
        self.history_ = History(**{f.name: arrays[f"history.{f.name}"] for f in fields(History)})
        like, diffusion = self.fresh(self.scaling_.transform(self.snapshots_), jax.random.key(0))
        self.model_ = fill_tree(HiddenProcess.of(like, diffusion), arrays, "model")


def _is_to_be_learned(sigma: Any) -> bool:
    return isinstance(sigma, str) and sigma == LEARN


def _first_sizes(sigma: Any, standard: Snapshots, scaling: Scaling, seed: int) -> Float[np.ndarray, " n_dims"]:
    """The noise of the seen coordinates where learning begins, in standardised units."""
    if _is_to_be_learned(sigma):
        return np.exp(np.asarray(first_noise("diagonal", standard, scaling, seed).theta))
    try:
        value = np.asarray(sigma, dtype=np.float64)
    except (TypeError, ValueError):
        value = np.full(1, np.nan)
    if value.shape not in ((), scaling.sd.shape) or not np.all((value > 0.0) & np.isfinite(value)):
        raise InputError(
            expected=f"sigma as a number or {len(scaling.sd)} numbers, finite and above 0",
            found=f"{sigma!r}",
            hint="sigma='learn'",
        )
    return value / scaling.sd


class Code(eqx.Module):
    """Into the hidden coordinates and out of them: the seen ones as they are, and networks that move them."""

    into: TanhNetwork
    out: TanhNetwork

    @classmethod
    def create(cls, n_dims: int, n_hidden: int, key: PRNGKeyArray) -> "Code":
        """Networks of one layer that do little yet."""
        k_into, k_out = jax.random.split(key)
        sizes = [n_hidden, _CODE_WIDTH]
        return cls(
            xavier_network([*sizes, n_hidden], key=k_into, last_gain=0.1),
            xavier_network([*sizes, n_dims], key=k_out, last_gain=0.1),
        )

    def encode(self, x: Float[Array, " n_dims"], zeta: Float[Array, " n_more"]) -> Float[Array, " n_hidden"]:
        """e(x, zeta)."""
        whole = jnp.concatenate([x, zeta])
        return whole + self.into(whole)

    def decode(self, h: Float[Array, " n_hidden"]) -> Float[Array, " n_dims"]:
        """k(h)."""
        moved = self.out(h)
        return h[: len(moved)] + moved


class CodedDrift(AbstractDrift):
    """What one side of the game trains: the hidden drift with its noise, and the code; None is the identity."""

    drift: AbstractDrift
    code: Code | None

    def __call__(self, x: Float[Array, " n_hidden"]) -> Float[Array, " n_hidden"]:
        return self.drift(x)

    def pace(self) -> "CodedDrift":
        """The drift's, whose noise is faster."""
        even = jax.tree.map(lambda leaf: 1.0, eqx.filter(self, eqx.is_inexact_array))
        return eqx.tree_at(lambda g: g.drift, even, self.drift.pace())


class HiddenProcess(ItoProcess):
    """The hidden process with the way in and out."""

    code: Code | None

    @classmethod
    def of(cls, drift: CodedDrift, diffusion: AbstractDiffusion) -> "HiddenProcess":
        """With this noise where the drift brings none of its own."""
        process = process_of(drift.drift, diffusion)
        return cls(process.drift, process.diffusion, drift.code)

    @property
    def n_more(self) -> int:
        """Hidden coordinates beside those that are seen."""
        return 0 if self.code is None else self.code.into.weights[-1].shape[-2] - self.code.out.weights[-1].shape[-2]

    def begun(self, x: Float[Array, "n n_dims"], key: PRNGKeyArray) -> Float[Array, "n n_hidden"]:
        """Hidden states of these points."""
        return self.encoded(x, jax.random.normal(key, (len(x), self.n_more)))

    def encoded(self, x: Float[Array, "n n_dims"], zeta: Float[Array, "n n_more"]) -> Float[Array, "n n_hidden"]:
        """E of every row."""
        return x if self.code is None else jax.vmap(self.code.encode)(x, zeta)

    def decoded(self, h: Float[Array, "n n_hidden"]) -> Float[Array, "n n_dims"]:
        """K of every row."""
        return h if self.code is None else jax.vmap(self.code.decode)(h)


def push_hidden(
    model: HiddenProcess, scaling: Scaling, start: Snapshot, times: Sequence[float], dt: float, *, key: PRNGKeyArray
) -> list[Float[np.ndarray, "n n_dims"]]:
    """Encode a cloud, push it to increasing `times`, and decode it there; at its own time it is what it was."""
    k_code, k_push = jax.random.split(key)
    z = jnp.asarray(scaling.standardise(start.points), dtype=float)
    hidden = Snapshot(start.time, np.asarray(model.begun(z, k_code), dtype=np.float64), start.weights)
    clouds = finite(push_forward(model, hidden, times, dt, key=k_push), times[-1])
    seen = [np.asarray(model.decoded(jnp.asarray(h, dtype=float)), dtype=np.float64) for h in clouds]
    return [start.points if t == start.time else scaling.restore(z) for t, z in zip(times, seen, strict=True)]


class CodedDraw(Draw):
    """The noise of the encoder as well."""

    zeta: Float[Array, "n n_more"]


class HiddenGame(Game):
    """The direct game on what is seen of a hidden process, from the first snapshot on."""

    n_more: int | None = eqx.field(static=True)

    @classmethod
    def on(
        cls,
        snapshots: Snapshots,
        diffusion: AbstractDiffusion,
        mesh: Mesh,
        options: AdversarialOptions,
        n_more: int | None,
    ) -> "HiddenGame":
        """The game on these snapshots, with so many hidden coordinates more; None where the state is its own code."""
        plain = Game.between(snapshots, diffusion, mesh, options)
        return cls(plain.clouds, diffusion, plain.legs, plain.weighted, options, n_more)

    def process(self, drift: AbstractDrift) -> HiddenProcess:
        """The hidden process and its code."""
        assert isinstance(drift, CodedDrift)
        return HiddenProcess.of(drift, self.diffusion)

    def draw(self, key: PRNGKeyArray) -> Draw:
        """As the plain game draws; with noise of the hidden size where there is a code."""
        plain = super().draw(key)
        if self.n_more is None:
            return plain
        k_noise, k_code = jax.random.split(jax.random.fold_in(key, 1))
        (noise,) = plain.noise
        more = jax.random.normal(k_noise, (*noise.shape[:2], self.n_more))
        zeta = jax.random.normal(k_code, (noise.shape[1], self.n_more))
        return CodedDraw(plain.clouds, (jnp.concatenate([noise, more], axis=-1),), zeta)

    def simulate(self, drift: AbstractDrift, draw: Draw) -> Paths:
        """What is seen of the hidden path at the targets."""
        model, (leg,), (noise,) = self.process(drift), self.legs, draw.noise
        zeta = draw.zeta if isinstance(draw, CodedDraw) else jnp.zeros((noise.shape[1], 0))
        hidden = model.encoded(draw.clouds[0].points, zeta)
        path = euler_path(model, hidden, jnp.asarray(leg.steps, dtype=float), noise)
        return (jnp.stack([model.decoded(path[end]) for _, _, end in self._targets()]),)

    def residuals(
        self, probes: AbstractProbe, drift: AbstractDrift, draw: Draw, paths: Paths, nodes: Nodes
    ) -> Float[Array, " n_targets"]:
        """E f_n(X_n) - E f_n(k(h_n)) for every target."""
        del drift, nodes
        start, values = draw.clouds[0], []
        for i, (n, seen) in enumerate(zip(self.targets, paths[0], strict=True)):
            probe = jax.tree.map(lambda leaf, i=i: leaf[i], probes)
            values.append(direct_residual(probe, draw.clouds[n], Cloud(seen, start.weights)))
        return jnp.stack(values)

    def _targets(self) -> list[tuple[Leg, int, int]]:
        """The first snapshot is one too, unless it is its own code and nothing is left to reproduce."""
        later = super()._targets()
        return later if self.n_more is None else [(later[0][0], 0, 0), *later]


class PenaltyAdversary(AbstractAdversary):
    """Plain networks that climb E f(X_n) - E f(k(h_n)) - 10 E (|grad f| - 1)^2, the last between the two clouds."""

    probes: NetworkProbe
    memory: optax.OptState

    @classmethod
    def create(cls, game: Game, optimiser: optax.GradientTransformation, *, key: PRNGKeyArray) -> "PenaltyAdversary":
        """Fresh networks."""
        options, n_dims = game.options, game.clouds[0].points.shape[1]
        sizes = [n_dims, *[options.probe_width] * options.probe_depth, 1]
        probes = eqx.filter_vmap(lambda k: NetworkProbe(xavier_network(sizes, key=k)))(
            jax.random.split(key, len(game.targets))
        )
        return cls(probes, optimiser.init(eqx.filter(probes, eqx.is_inexact_array)))

    def answer(
        self,
        game: Game,
        optimiser: optax.GradientTransformation,
        drift: AbstractDrift,
        draw: Draw,
        paths: Paths,
        key: PRNGKeyArray,
    ) -> tuple["PenaltyAdversary", AbstractProbe, Float[Array, " n_targets"]]:
        """A few ascent steps; the probes after them and the residuals before the last."""

        def ascend(carry, k):
            probes, memory = carry

            def gain(probes):
                values = game.residuals(probes, drift, draw, paths, game.nodes(k))
                return jnp.sum(values - _PENALTY * self._excess(probes, game, draw, paths, k)), values

            probes, memory, values = climbed(gain, probes, memory, optimiser)
            return (probes, memory), values

        keys = jax.random.split(key, game.options.critic_steps)
        (probes, memory), values = jax.lax.scan(ascend, (self.probes, self.memory), keys)
        return PenaltyAdversary(probes, memory), probes, values[-1]

    def _excess(self, probes, game: Game, draw: Draw, paths: Paths, key: PRNGKeyArray) -> Float[Array, " n_targets"]:
        """E (|grad f| - 1)^2 at random points between pairs of the two clouds."""
        found = []
        for i, (n, seen) in enumerate(zip(game.targets, paths[0], strict=True)):
            probe = jax.tree.map(lambda leaf, i=i: leaf[i], probes)
            k_seen, k_target, k_between = jax.random.split(jax.random.fold_in(key, n), 3)
            a = jax.random.choice(k_seen, seen, (len(seen),), p=draw.clouds[0].weights)
            b = jax.random.choice(k_target, draw.clouds[n].points, (len(seen),), p=draw.clouds[n].weights)
            u = jax.random.uniform(k_between, (len(seen), 1))
            between = u * a + (1.0 - u) * b
            slopes = jnp.sqrt(jnp.sum(jax.vmap(jax.grad(probe))(between) ** 2, axis=1) + 1e-12)
            found.append(jnp.mean((slopes - 1.0) ** 2))
        return jnp.stack(found)

    def slope(self, game: Game) -> Float[Array, ""]:
        """Largest |grad f| on the targets' points, which the penalty keeps near 1."""
        return largest_slope(self.probes, game)


class SeenCriterion(PlainCriterion):
    """Root mean square of E f(X_n) - E f(k(h_n)) over fixed cosines and all targets, on rows held back."""

    game: HiddenGame
    fixed: Draw
    cosines: CosineProbe

    def __call__(self, drift: AbstractDrift) -> Float[Array, ""]:
        (path,), squares = self.game.simulate(drift, self.fixed), []
        for n, seen in zip(self.game.targets, path, strict=True):
            target, simulated = self.fixed.clouds[n], Cloud(seen, self.fixed.clouds[0].weights)
            residuals = jax.lax.map(lambda f, t=target, s=simulated: direct_residual(f, t, s), self.cosines)
            squares.append(jnp.mean(residuals**2))
        return jnp.sqrt(jnp.mean(jnp.stack(squares)))


def prepared(model: Legend, training: Snapshots, held_out: Snapshots, mesh: Mesh, *, key: PRNGKeyArray):
    """The game, the criterion, the run before its first iteration, and the key of its iterations."""
    options = model.solver_options()
    k_init, k_run, k_criterion = jax.random.split(key, 3)
    drift, diffusion = model.fresh(training, k_init)
    optimisers = optimisers_for(options)
    n_more = None if model.encoder == "identity" else model.hidden_dims(training.n_dims) - training.n_dims
    game = HiddenGame.on(training, diffusion, mesh, options, n_more)
    kind = PenaltyAdversary if model.critic == "gradient-penalty" else NetworkAdversary
    adversary: Any = kind.create(game, optimisers.probes, key=jax.random.fold_in(k_init, 1))
    k_draw, k_cosines = jax.random.split(k_criterion)
    judge = HiddenGame.on(held_out, diffusion, mesh, replace(options, batch_size=None), n_more)
    criterion = SeenCriterion(judge, judge.draw(k_draw), fixed_cosines(Scaling.fit(training).sd, k_cosines))
    return game, criterion, first_run(game, drift, adversary, optimisers, criterion), k_run
