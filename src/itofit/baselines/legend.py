"""LEGEND: learning the dynamics of aggregate data with a hidden process and Wasserstein critics.

A re-implementation from the published description (Wang, Dai, Kong, Erfani, Bailey and Zha, UAI
2018); the body of that paper was not available, and what it leaves open is chosen here as a fair
rival would have it:

    h_0 = e(x_0, zeta),    dh = g(h) dt + diag(sigma) dW,    x_t = k(h_t),    zeta standard normal
    min over e, g, sigma, k of sum_n max over |grad f_n| <= 1 of E f_n(X_n) - E f_n(k(h_n))

with one critic for every snapshot, the first included, so that e and k together reproduce it. There
are more hidden coordinates than observed ones, and gradients go through the whole path. With the
identity for e and k this is the `direct` game of the adversarial solver, and it is played by the
same code.
"""

import functools
import time
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import fields, replace
from typing import Any, Literal, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Float, PRNGKeyArray

from itofit.adversarial.adversaries import (
    AbstractAdversary,
    NetworkAdversary,
    Reply,
    ascent,
    largest_slope,
)
from itofit.adversarial.criterion import UnpricedCriterion, fixed_cosines
from itofit.adversarial.game import AbstractGame, Draw, Nodes, Paths, Setting
from itofit.adversarial.learners import (
    AbstractLearner,
    NoisyLearner,
    PlainLearner,
    SingleStageLearner,
    even_pace,
)
from itofit.adversarial.options import AdversarialOptions
from itofit.adversarial.run import Contest, TrainedRun, optimisers_for
from itofit.adversarial.training import first_run, play
from itofit.devices import device_named
from itofit.errors import InputError
from itofit.face import Face, check_choices
from itofit.forecast import Forecaster, finite, push_forward, step_doubling_error
from itofit.problem import Stream, Streams
from itofit.process.drift import NetworkDrift
from itofit.process.ito import ItoProcess
from itofit.process.network import TanhNetwork, xavier_network
from itofit.process.noise import (
    LEARN,
    AbstractDiffusion,
    DiagonalForm,
    LearnedDiffusion,
    diffusion_from_sigma,
    first_noise,
)
from itofit.process_face import warn_of_ending
from itofit.run_folder import registered
from itofit.simulate.euler import euler_path
from itofit.simulate.mesh import Mesh
from itofit.simulate.step_size import chosen_step
from itofit.snapshots.clouds import Snapshot, Snapshots
from itofit.snapshots.scaling import Scaling
from itofit.snapshots.split import FEWEST_TO_SPLIT, split_rows
from itofit.solution import Outcome, TrainingHistory
from itofit.solve.checkpoint import fill_tree, named_arrays
from itofit.solve.listeners import ProgressBar, Watch
from itofit.weak.probes import AbstractProbe, CosineProbe, NetworkProbe
from itofit.weak.residual import Cloud, direct_residual

CRITICS = ("gradient-penalty", "spectral-norm")
ENCODERS = ("network", "identity")

# Hidden coordinates beside the observed ones; their networks; the weight of the penalty.
_MORE_HIDDEN = 2
_CODE_WIDTH = 64
_PENALTY = 10.0


@registered
class Legend(Face):
    """Fit a hidden process with an encoder and a decoder, against one critic a snapshot.

    A re-implementation from the published description of LEGEND (Wang et al., 2018).

    Parameters
    ----------
    sigma : "learn", float or array of shape (n_dims,)
        The noise of the observed coordinates with which learning begins. Where encoder and decoder
        are networks the noise of the hidden process is always learned, since they can stretch it;
        with `encoder="identity"` a number is held.
    encoder : {"network", "identity"}
        Networks for encoder and decoder, or the hidden state is the state.
    n_hidden : int or None
        Hidden coordinates; None takes two more than are observed.
    critic : {"gradient-penalty", "spectral-norm"}
        How critics are held to slope 1.
    n_iter : int
        Iterations of the game.
    critic_steps : int
        Ascent steps of the critics an iteration.
    learning_rate : float
        Of both sides.
    batch_size : int
        Points drawn from each snapshot for one iteration.
    dt : float or "auto"
        Longest Euler step; "auto" chooses it from the data.
    device : {"auto", "cpu", "gpu"}
        Where to compute.
    random_state : int or None
        Seed of everything random; None for a fresh one.
    verbose : bool
        Show a progress bar.

    Attributes
    ----------
    model_ : HiddenProcess
        Encoder, hidden process and decoder in standardised units; the hidden state is known only
        up to a change of coordinates.
    outcome_, history_, n_iter_, seconds_
        How the run ended, what it logged, and how long it was.
    dt_, dt_error_
        The step, and how far halving it moves a mean or sd, in sds.
    scaling_ : Scaling
        The standardised units.

    Examples
    --------
    >>> from itofit import Legend
    >>> model = Legend(n_hidden=4, random_state=0)
    >>> model.remark
    're-implementation from the published description'

    With snapshots of your own::

        cloud = model.fit(snapshots).predict(0.5)
    """

    method = "legend"
    remark = "re-implementation from the published description"

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

    def _game_options(self) -> AdversarialOptions:
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

    def _learn(self, snapshots: Snapshots, watch: Watch) -> None:
        watch.refuse_checkpoints(self.method)
        self._learn_batch([self], [snapshots])

    @classmethod
    def _learn_batch(cls, models: Sequence["Legend"], data: Sequence[Snapshots]) -> None:
        first = models[0]
        began = time.perf_counter()
        with jax.default_device(device_named(first.device)):
            contests = [
                model._contest(snapshots) for model, snapshots in zip(models, data, strict=True)
            ]
            with ProgressBar(cls.method) if first.verbose else nullcontext() as bar:
                runs = play(contests, first._game_options(), listeners=[bar] if bar else [])
            seconds = time.perf_counter() - began
            for model, snapshots, run in zip(models, data, runs, strict=True):
                model._settle(snapshots, run, seconds)

    def _contest(self, snapshots: Snapshots) -> Contest:
        """The contest before its first iteration; sets what it needs of the learned attributes."""
        check_choices(self, critic=CRITICS, encoder=ENCODERS)
        options = self._game_options()
        self.seed_ = Streams.of(self.random_state).seed
        self.dt_ = chosen_step(self.dt, snapshots)
        training = snapshots
        held_out = snapshots
        Scaling.fit(snapshots)  # refuses a coordinate that does not vary
        if min(snapshots.counts) >= FEWEST_TO_SPLIT:
            training, held_out = split_rows(
                snapshots, options.hold_out, self._streams.integer(Stream.hold_out)
            )
        self.scaling_ = Scaling.fit(training)
        return prepared(
            self,
            self.scaling_.transform(training),
            self.scaling_.transform(held_out),
            Mesh.refine(training.times, self.dt_),
            key=self._streams.key(Stream.training),
        )

    def _hidden_dims(self, n_dims: int) -> int:
        """Coordinates of the hidden state."""
        if self.encoder == "identity":
            if self.n_hidden not in (None, n_dims):
                raise InputError(
                    expected=f"with encoder='identity', n_hidden None or the {n_dims} observed "
                    "coordinates",
                    found=f"{self.n_hidden!r}",
                    hint="encoder='network'",
                )
            return n_dims
        wanted = n_dims + _MORE_HIDDEN if self.n_hidden is None else self.n_hidden
        if isinstance(wanted, bool) or not isinstance(wanted, int | np.integer) or wanted < n_dims:
            raise InputError(
                expected=f"n_hidden as a whole number from the {n_dims} observed coordinates on",
                found=f"{self.n_hidden!r}",
                hint=f"leave it out for {n_dims + _MORE_HIDDEN}",
            )
        return int(wanted)

    def _fresh(self, snapshots: Snapshots, key: PRNGKeyArray) -> "Beginning":
        """Where learning begins."""
        options = self._game_options()
        n_dims = snapshots.n_dims
        n_hidden = self._hidden_dims(n_dims)
        drift = NetworkDrift.create(
            n_hidden,
            width=options.drift_width,
            depth=options.drift_depth,
            speed=4.0 / float(np.ptp(snapshots.times)),
            last_gain=0.1,
            key=key,
        )
        learner = PlainLearner(drift)
        rng = self._streams.rng(Stream.noise_network)
        size = _first_sizes(self.sigma, snapshots, self.scaling_, rng)
        if self.encoder == "identity" and not _is_to_be_learned(self.sigma):
            return Beginning(CodedLearner(learner, None), diffusion_from_sigma(size, n_dims))
        theta = np.log(np.append(size, np.full(n_hidden - n_dims, np.mean(size))))
        noise = LearnedDiffusion(jnp.asarray(theta, dtype=float), DiagonalForm(n_hidden))
        code = None
        if self.encoder == "network":
            code = Code.create(n_dims, n_hidden, jax.random.fold_in(key, 2))
        return Beginning(CodedLearner(NoisyLearner(learner, noise), code), noise)

    def _settle(self, snapshots: Snapshots, run: TrainedRun, seconds: float) -> None:
        assert isinstance(run.learner, CodedLearner)
        self.model_ = HiddenProcess(run.process, run.learner.code)
        self.outcome_ = run.outcome
        self.history_ = run.history
        self.n_iter_ = run.n_iter
        self.seconds_ = seconds
        standard = self.scaling_.transform(snapshots)
        begin = standard.at(float(standard.times[0]))
        k_code, k_noise = jax.random.split(self._streams.key(Stream.step_check))
        hidden = np.asarray(
            self.model_.started(jnp.asarray(begin.points, dtype=float), k_code), dtype=np.float64
        )
        start = Snapshot(begin.time, hidden, begin.weights)
        self.dt_error_ = step_doubling_error(
            self.model_.process, start, standard.times, self.dt_, key=k_noise
        )
        warn_of_ending(self.outcome_, self.dt_, self.dt_error_)

    def _carry(
        self, times: np.ndarray, n_samples: int | None, start: str, first: Snapshot | None
    ) -> Snapshots:
        push = functools.partial(push_hidden, self.model_, self.scaling_, self.dt_)
        forecaster = Forecaster(push, self.snapshots_, self._streams)
        return forecaster.clouds(times, n_samples, start, first)

    def _notes(self) -> tuple[str, ...]:
        return self._remark()

    def _values(self) -> dict[str, Any]:
        names = ("seed", "dt", "dt_error", "seconds", "n_iter")
        return {name: getattr(self, f"{name}_") for name in names} | {"outcome": self.outcome_.name}

    def _arrays(self) -> dict[str, np.ndarray]:
        history = {f"history.{name}": value for name, value in vars(self.history_).items()}
        scaling = {"scaling.mean": self.scaling_.mean, "scaling.sd": self.scaling_.sd}
        process = named_arrays(self.model_.process, "model")
        return process | named_arrays(self.model_.code, "model.code") | history | scaling

    def _restore(self, values: dict[str, Any], arrays: dict[str, np.ndarray]) -> None:
        for name in values.keys() - {"outcome"}:
            setattr(self, f"{name}_", values[name])
        self.outcome_ = Outcome[values["outcome"]]
        self.scaling_ = Scaling(arrays["scaling.mean"], arrays["scaling.sd"])
        names = [field.name for field in fields(TrainingHistory)]
        self.history_ = TrainingHistory(**{name: arrays[f"history.{name}"] for name in names})
        fresh = self._fresh(self.scaling_.transform(self.snapshots_), jax.random.key(0))
        process = fresh.learner.process(fresh.diffusion)
        self.model_ = HiddenProcess(
            fill_tree(process, arrays, "model"),
            fill_tree(fresh.learner.code, arrays, "model.code"),
        )


def _is_to_be_learned(sigma: Any) -> bool:
    return isinstance(sigma, str) and sigma == LEARN


def _first_sizes(
    sigma: Any, standard: Snapshots, scaling: Scaling, rng: np.random.Generator
) -> Float[np.ndarray, " n_dims"]:
    """The noise of the observed coordinates where learning begins, in standardised units."""
    if _is_to_be_learned(sigma):
        return np.exp(np.asarray(first_noise("diagonal", standard, scaling, rng).theta))
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
    """Into the hidden coordinates and out of them: the observed ones as they are, and networks
    that move them.
    """

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

    def encode(
        self, x: Float[Array, " n_dims"], zeta: Float[Array, " n_more"]
    ) -> Float[Array, " n_hidden"]:
        """e(x, zeta)."""
        whole = jnp.concatenate([x, zeta])
        return whole + self.into(whole)

    def decode(self, h: Float[Array, " n_hidden"]) -> Float[Array, " n_dims"]:
        """k(h)."""
        shift = self.out(h)
        return h[: len(shift)] + shift


class CodedLearner(SingleStageLearner):
    """What one side of the game trains: the hidden drift with its noise, and the code; None is the
    identity.
    """

    learner: AbstractLearner
    code: Code | None

    def __call__(self, x: Float[Array, " n_hidden"]) -> Float[Array, " n_hidden"]:
        return self.learner(x)

    def process(self, diffusion: AbstractDiffusion) -> ItoProcess:
        """The hidden process."""
        return self.learner.process(diffusion)

    def pace(self) -> "CodedLearner":
        """The learner's, whose noise is faster; the code's is even."""
        return eqx.tree_at(lambda g: g.learner, even_pace(self, 1.0), self.learner.pace())


class Beginning(NamedTuple):
    """A learner, and the noise of its process where it learns none."""

    learner: CodedLearner
    diffusion: AbstractDiffusion


class HiddenProcess(eqx.Module):
    """The hidden process with the way in and out; a code of None is the identity."""

    process: ItoProcess
    code: Code | None

    @property
    def n_more(self) -> int:
        """Hidden coordinates beside the observed ones."""
        if self.code is None:
            return 0
        return self.code.into.weights[-1].shape[-2] - self.code.out.weights[-1].shape[-2]

    def started(self, x: Float[Array, "n n_dims"], key: PRNGKeyArray) -> Float[Array, "n n_hidden"]:
        """Hidden states of these points."""
        return self.encoded(x, jax.random.normal(key, (len(x), self.n_more)))

    def encoded(
        self, x: Float[Array, "n n_dims"], zeta: Float[Array, "n n_more"]
    ) -> Float[Array, "n n_hidden"]:
        """The code e of every row."""
        return x if self.code is None else jax.vmap(self.code.encode)(x, zeta)

    def decoded(self, h: Float[Array, "n n_hidden"]) -> Float[Array, "n n_dims"]:
        """The state k of every row."""
        return h if self.code is None else jax.vmap(self.code.decode)(h)


def push_hidden(
    model: HiddenProcess,
    scaling: Scaling,
    dt: float,
    start: Snapshot,
    times: Sequence[float],
    key: PRNGKeyArray,
) -> list[Float[np.ndarray, "n n_dims"]]:
    """Encode a cloud, push it to increasing `times`, and decode it there; at its own time it is
    what it was.
    """
    k_code, k_push = jax.random.split(key)
    z = jnp.asarray(scaling.standardise(start.points), dtype=float)
    hidden = Snapshot(
        start.time, np.asarray(model.started(z, k_code), dtype=np.float64), start.weights
    )
    clouds = finite(push_forward(model.process, hidden, times, dt, key=k_push), times[-1])
    decoded = [
        np.asarray(model.decoded(jnp.asarray(h, dtype=float)), dtype=np.float64) for h in clouds
    ]
    return [
        start.points if t == start.time else scaling.restore(z)
        for t, z in zip(times, decoded, strict=True)
    ]


class HiddenGame(AbstractGame):
    """The direct game on what is observed of a hidden process, from the first snapshot on.

    `n_more` are the hidden coordinates beside the observed ones; None where the state is its own
    code.
    """

    setting: Setting
    n_more: int | None = eqx.field(static=True)

    @property
    def targets(self) -> tuple[int, ...]:
        """The first snapshot is one too, unless it is its own code and nothing is left to
        reproduce.
        """
        (leg,) = self.legs
        later = tuple(n for n, _ in leg.targets)
        return later if self.n_more is None else (0, *later)

    def draw(self, key: PRNGKeyArray) -> Draw:
        """With noise of the hidden size where there is a code."""
        plain = self.setting.draw(key)
        if self.n_more is None:
            return plain
        k_noise, k_code = jax.random.split(jax.random.fold_in(key, 1))
        (noise,) = plain.noise
        more = jax.random.normal(k_noise, (*noise.shape[:2], self.n_more))
        zeta = jax.random.normal(k_code, (noise.shape[1], self.n_more))
        return Draw(plain.clouds, (jnp.concatenate([noise, more], axis=-1),), zeta)

    def nodes(self, key: PRNGKeyArray) -> Nodes:
        """None: direct residuals have no quadrature."""
        return Nodes((), (), key)

    def simulate(self, learner: AbstractLearner, draw: Draw) -> Paths:
        """What is observed of the hidden path at the targets."""
        assert isinstance(learner, CodedLearner)
        model = HiddenProcess(self.process(learner), learner.code)
        (leg,) = self.legs
        (noise,) = draw.noise
        zeta = jnp.zeros((noise.shape[1], 0)) if draw.code is None else draw.code
        hidden = model.encoded(draw.clouds[0].points, zeta)
        path = euler_path(model.process, hidden, jnp.asarray(leg.steps, dtype=float), noise)
        ends = [end for _, end in leg.targets]
        nodes = ends if self.n_more is None else [0, *ends]
        return (jnp.stack([model.decoded(path[node]) for node in nodes]),)

    def residuals(
        self,
        probes: AbstractProbe,
        learner: AbstractLearner,
        draw: Draw,
        paths: Paths,
        nodes: Nodes,
    ) -> Float[Array, " n_targets"]:
        """E f_n(X_n) - E f_n(k(h_n)) for every target."""
        del learner, nodes
        start = draw.clouds[0]
        values = []
        for i, (n, decoded) in enumerate(zip(self.targets, paths[0], strict=True)):
            probe = jax.tree.map(lambda leaf, i=i: leaf[i], probes)
            values.append(direct_residual(probe, draw.clouds[n], Cloud(decoded, start.weights)))
        return jnp.stack(values)


class PenaltyAdversary(AbstractAdversary):
    """Plain networks that climb E f(X_n) - E f(k(h_n)) - 10 E (|grad f| - 1)^2, the last between
    the two clouds.
    """

    probes: NetworkProbe
    memory: optax.OptState

    @classmethod
    def create(
        cls, game: AbstractGame, optimiser: optax.GradientTransformation, *, key: PRNGKeyArray
    ) -> "PenaltyAdversary":
        """Fresh networks."""
        options = game.options
        n_dims = game.clouds[0].points.shape[1]
        sizes = [n_dims, *[options.probe_width] * options.probe_depth, 1]
        probes = eqx.filter_vmap(lambda k: NetworkProbe(xavier_network(sizes, key=k)))(
            jax.random.split(key, len(game.targets))
        )
        return cls(probes, optimiser.init(eqx.filter(probes, eqx.is_inexact_array)))

    def answer(
        self,
        game: AbstractGame,
        optimiser: optax.GradientTransformation,
        learner: AbstractLearner,
        draw: Draw,
        paths: Paths,
        key: PRNGKeyArray,
    ) -> Reply:
        """A few ascent steps; the probes after them and the residuals before the last."""

        def ascend(carry, k):
            probes, memory = carry

            def gain(probes):
                values = game.residuals(probes, learner, draw, paths, game.nodes(k))
                excess = self._excess(probes, game, draw, paths, k)
                return jnp.sum(values - _PENALTY * excess), values

            probes, memory, values = ascent(gain, probes, memory, optimiser)
            return (probes, memory), values

        keys = jax.random.split(key, game.options.critic_steps)
        (probes, memory), values = jax.lax.scan(ascend, (self.probes, self.memory), keys)
        return Reply(PenaltyAdversary(probes, memory), probes, values[-1])

    def _excess(
        self, probes, game: AbstractGame, draw: Draw, paths: Paths, key: PRNGKeyArray
    ) -> Float[Array, " n_targets"]:
        """E (|grad f| - 1)^2 at random points between pairs of the two clouds."""
        excesses = []
        for i, (n, decoded) in enumerate(zip(game.targets, paths[0], strict=True)):
            probe = jax.tree.map(lambda leaf, i=i: leaf[i], probes)
            target = draw.clouds[n]
            shape = (len(decoded),)
            k_decoded, k_target, k_between = jax.random.split(jax.random.fold_in(key, n), 3)
            a = jax.random.choice(k_decoded, decoded, shape, p=draw.clouds[0].weights)
            b = jax.random.choice(k_target, target.points, shape, p=target.weights)
            u = jax.random.uniform(k_between, (len(decoded), 1))
            between = u * a + (1.0 - u) * b
            slopes = jnp.sqrt(jnp.sum(jax.vmap(jax.grad(probe))(between) ** 2, axis=1) + 1e-12)
            excesses.append(jnp.mean((slopes - 1.0) ** 2))
        return jnp.stack(excesses)

    def slope(self, game: AbstractGame) -> Float[Array, ""]:
        """Largest |grad f| on the targets' points, which the penalty keeps near 1."""
        return largest_slope(self.probes, game)


class DecodedCriterion(UnpricedCriterion):
    """Root mean square of E f(X_n) - E f(k(h_n)) over fixed cosines and all targets, on rows held
    out.
    """

    game: HiddenGame
    fixed: Draw
    cosines: CosineProbe

    def __call__(self, learner: AbstractLearner) -> Float[Array, ""]:
        (path,) = self.game.simulate(learner, self.fixed)
        squares = []
        for n, decoded in zip(self.game.targets, path, strict=True):
            target = self.fixed.clouds[n]
            simulated = Cloud(decoded, self.fixed.clouds[0].weights)
            residuals = jax.lax.map(
                lambda f, t=target, s=simulated: direct_residual(f, t, s), self.cosines
            )
            squares.append(jnp.mean(residuals**2))
        return jnp.sqrt(jnp.mean(jnp.stack(squares)))


def prepared(
    model: Legend, training: Snapshots, held_out: Snapshots, mesh: Mesh, *, key: PRNGKeyArray
) -> Contest:
    """The contest of a model on standardised snapshots, before its first iteration."""
    options = model._game_options()
    k_init, k_run, k_criterion = jax.random.split(key, 3)
    learner, diffusion = model._fresh(training, k_init)
    n_more = None
    if model.encoder == "network":
        n_more = model._hidden_dims(training.n_dims) - training.n_dims
    game = HiddenGame(Setting.between(training, diffusion, mesh, options), n_more)
    kind = PenaltyAdversary if model.critic == "gradient-penalty" else NetworkAdversary
    optimiser = optimisers_for(options).probes
    adversary = kind.create(game, optimiser, key=jax.random.fold_in(k_init, 1))
    k_draw, k_cosines = jax.random.split(k_criterion)
    all_rows = replace(options, batch_size=None)
    judge = HiddenGame(Setting.between(held_out, diffusion, mesh, all_rows), n_more)
    cosines = fixed_cosines(Scaling.fit(training).sd, k_cosines)
    criterion = DecodedCriterion(judge, judge.draw(k_draw), cosines)
    return Contest(game, criterion, first_run(game, learner, adversary, criterion), k_run)
