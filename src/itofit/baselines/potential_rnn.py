"""The potential recurrent network, the paper's rival "NN" (Hashimoto, Gifford and Jaakkola, ICML
2016):

    dX = -grad Psi(X) dt + sigma dW,    Psi(x) = c sum_k h_k softplus(w_k . x + b_k)

fitted by entropic transport between each snapshot and an Euler chain from the one before it, mixed
with the likelihood of the last snapshot under the stationary law, which is proportional to
exp(-2 Psi / sigma^2). `potential_objective` holds the mathematics, `potential_training` the phases.

A drift that is a gradient has no curl: a flow that turns, as that of Syn-3 does, cannot be
represented.
"""

import time
from collections.abc import Sequence
from contextlib import nullcontext
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, PRNGKeyArray

from itofit.baselines.counts import is_count
from itofit.baselines.potential_objective import (
    Objective,
    PotentialModel,
    RampPotential,
    Settings,
)
from itofit.baselines.potential_training import Training, TrainingResult
from itofit.devices import device_named
from itofit.errors import InputError
from itofit.face import check_choices
from itofit.forecast import step_error_from_first
from itofit.problem import Stream, Streams
from itofit.process.drift import stacked
from itofit.process.noise import LEARN, first_noise
from itofit.process_face import ProcessFace, warn_of_ending
from itofit.run_folder import registered
from itofit.simulate.legs import legs_between
from itofit.simulate.mesh import Mesh
from itofit.simulate.step_size import chosen_step
from itofit.snapshots.clouds import Snapshots
from itofit.snapshots.scaling import Scaling
from itofit.solution import Outcome
from itofit.solve.checkpoint import fill_tree, named_arrays
from itofit.solve.listeners import Progress, ProgressBar, Watch

MODES = ("stable", "faithful")
ANCHORS = ("initial", "previous")

# A run that gained less than this fraction from its middle fifth to its last is at rest.
_AT_REST = 0.01
_COUNTS = ("n_ramps", "n_pretrain", "n_short", "n_iter", "batch_size")
_VALUES = ("seed", "dt", "dt_error", "seconds", "sigma", "rate", "pretrain_rate", "n_iter")


class Start(NamedTuple):
    """Where a training begins: its data, the first model and a random key."""

    objective: Objective
    model: PotentialModel
    key: PRNGKeyArray


@registered
class PotentialRNN(ProcessFace):
    """Fit dX = -grad Psi(X) dt + sigma dW to snapshots by entropic transport.

    The drift is a gradient: a flow that turns is out of its reach.

    Parameters
    ----------
    sigma : float or "learn"
        The noise, the same for all coordinates. "learn" learns it along (an addition of ours; the
        published method is told it).
    mode : {"stable", "faithful"}
        "stable": transport in the log domain without the bias of its blur, Adam, minibatches, in
        units in which the snapshots have sd 1. "faithful", the published code: raw units, the Gibbs
        kernel exp(-10 |x - y|^2) with 10 alternations, its own Adagrad, all points. In single
        precision that kernel is zero beyond a distance of 3, so such data want units in which they
        have an sd of about 1.
    n_ramps : int
        Softplus ramps in the potential.
    anchor : {"previous", "initial"}
        Every interval is simulated from the snapshot before it (their `delta`), or all from the
        first.
    tau : float, optional
        Weight of the stationary likelihood of the last snapshot, from 0 to 1. None takes 0.7 in the
        faithful mode and 0 in the stable one, where pre-training is all that is asked of it: most
        populations have not come to rest.
    rate : float, optional
        The largest step size of the ladders; None takes 0.05 in the faithful mode and 0.03 in the
        stable one.
    n_pretrain : int
        Iterations of pre-training.
    n_short : int
        Iterations on each rung of the ladder.
    n_iter : int, optional
        Iterations of the long run; None takes 500 in the faithful mode and 2000 in the stable one.
    batch_size : int
        Points of each snapshot an iteration, of the stable mode.
    dt : float or "auto"
        Longest Euler step, in units of time; "auto" chooses it from the data.
    device : {"auto", "cpu", "gpu"}
        Where to train.
    random_state : int, optional
        Seed of training and forecasts; None draws a fresh one.
    verbose : bool
        Whether to show progress.

    Attributes
    ----------
    process_ : ItoProcess
        The fitted process, in the user's units.
    sigma_ : float
        The noise, in the user's units.
    history_ : array of shape (n_iter,)
        The transport loss of every iteration of the long run.
    rate_, pretrain_rate_ : float
        The step sizes that were best.
    n_iter_ : int
        Iterations of the long run that were made.
    outcome_, snapshots_, scaling_, dt_, dt_error_, seconds_, seed_
        As of every method.

    Examples
    --------
    A cloud that moves to the right, and a fit far too short:

    >>> import numpy as np
    >>> from itofit import PotentialRNN, Snapshots
    >>> x = np.random.default_rng(0).normal(size=(20, 1))
    >>> snapshots = Snapshots.from_arrays([x, x + 1.0], times=[0.0, 1.0])
    >>> model = PotentialRNN(
    ...     sigma=0.5, n_ramps=4, n_pretrain=2, n_short=2, n_iter=5, dt=0.25, random_state=0
    ... ).fit(snapshots)
    >>> model.history_.shape
    (5,)
    >>> bool(model.predict(1.0).mean() > x.mean())
    True
    """

    method = "potential-rnn"
    remark = "the drift is a gradient: a flow that turns is out of its reach"

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

    def _learn(self, snapshots: Snapshots, watch: Watch) -> None:
        watch.refuse_checkpoints(self.method)
        self._learn_batch([self], [snapshots])

    @classmethod
    def _learn_batch(cls, models: Sequence["PotentialRNN"], data: Sequence[Snapshots]) -> None:
        first = models[0]
        began = time.perf_counter()
        settings = first._settings(data[0].counts[0])
        progress = ProgressBar(cls.method) if first.verbose else nullcontext(_silent)
        with jax.default_device(device_named(first.device)):
            pairs = zip(models, data, strict=True)
            start = stacked([model._start(snapshots, settings) for model, snapshots in pairs])
            with progress as listener:
                training = Training(start.objective, settings, listener)
                result = training.run(start.model, start.key)
            seconds = time.perf_counter() - began
            for m, model in enumerate(models):
                member = jax.tree.map(lambda leaf, m=m: leaf[m], result)
                model._settle(data[m], member, seconds)

    def _settings(self, n_points: int) -> Settings:
        """The choices, checked; `n_points` is the size of the first snapshot."""
        check_choices(self, mode=MODES, anchor=ANCHORS)
        self._check_counts()
        faithful = self.mode == "faithful"
        tau = (0.7 if faithful else 0.0) if self.tau is None else self.tau
        rate = (0.05 if faithful else 0.03) if self.rate is None else self.rate
        n_iter = (500 if faithful else 2000) if self.n_iter is None else self.n_iter
        if not 0.0 <= tau <= 1.0:
            raise InputError(expected="tau from 0 to 1", found=f"{self.tau!r}", hint="0.7")
        if not rate > 0.0:
            raise InputError(expected="rate above 0", found=f"{self.rate!r}", hint="leave it out")
        return Settings(
            faithful=faithful,
            learn_sigma=_is_learned(self.sigma),
            tau=float(tau),
            rate=float(rate),
            n_pretrain=int(self.n_pretrain),
            n_short=int(self.n_short),
            n_iter=int(n_iter),
            batch_size=int(self.batch_size),
            n_points=n_points,
            one_by_one=device_named(self.device).platform == "cpu",
        )

    def _check_counts(self) -> None:
        for name in _COUNTS:
            value = getattr(self, name)
            if name == "n_iter" and value is None:
                continue
            if not is_count(value, 2):
                raise InputError(
                    expected=f"{name} as a whole number from 2 on", found=f"{value!r}", hint="100"
                )

    def _start(self, snapshots: Snapshots, settings: Settings) -> Start:
        """The data in the units of the fit, and where it begins."""
        self.seed_ = Streams.of(self.random_state).seed
        self.scaling_ = _scaling(snapshots, settings)
        self.dt_ = chosen_step(self.dt, snapshots)
        standard = self.scaling_.transform(snapshots)
        legs = legs_between(Mesh.refine(snapshots.times, self.dt_), self.anchor)
        objective = Objective.create(standard, legs, settings)
        sigma = _first_sigma(self.sigma, standard, self.scaling_, self._streams)
        speed = 1.0 if settings.faithful else 1.0 / objective.span
        potential = RampPotential.create(
            standard, self.n_ramps, speed, settings.faithful, self._streams.key(Stream.weights)
        )
        log_sigma = jnp.log(jnp.asarray(sigma, dtype=float))
        return Start(
            objective, PotentialModel(potential, log_sigma), self._streams.key(Stream.training)
        )

    def _settle(self, snapshots: Snapshots, result: TrainingResult, seconds: float) -> None:
        """Set the learned attributes, and warn of a fit to doubt."""
        self.standard_process_ = result.model.process()
        self.sigma_ = float(result.model.sigma) * self.scaling_.sd[0]
        self.pretrain_rate_ = float(result.pretrain_rate)
        self.rate_ = float(result.rate)
        self.history_ = np.asarray(result.loss, dtype=np.float64)
        self.seconds_ = seconds
        self.n_iter_ = int(np.sum(np.isfinite(self.history_)))
        self.outcome_ = _outcome(result)
        standard = self.scaling_.transform(snapshots)
        self.dt_error_ = step_error_from_first(
            self.standard_process_, standard, self.dt_, self._streams
        )
        warn_of_ending(self.outcome_, self.dt_, self.dt_error_)

    def _notes(self) -> tuple[str, ...]:
        return self._remark()

    def _values(self) -> dict[str, Any]:
        values = {name: getattr(self, f"{name}_") for name in _VALUES}
        return values | {"outcome": self.outcome_.name}

    def _arrays(self) -> dict[str, np.ndarray]:
        drift = named_arrays(self.standard_process_.drift, "drift")
        return drift | {
            "scaling.mean": self.scaling_.mean,
            "scaling.sd": self.scaling_.sd,
            "history": self.history_,
        }

    def _restore(self, values: dict[str, Any], arrays: dict[str, np.ndarray]) -> None:
        for name in values.keys() - {"outcome"}:
            setattr(self, f"{name}_", values[name])
        self.outcome_ = Outcome[values["outcome"]]
        self.history_ = arrays["history"]
        self.scaling_ = Scaling(arrays["scaling.mean"], arrays["scaling.sd"])
        K = self.n_ramps
        D = self.snapshots_.n_dims
        like = RampPotential(jnp.zeros((K, D)), jnp.zeros(K), jnp.zeros(K), jnp.zeros(()))
        drift = fill_tree(like, arrays, "drift")
        log_sigma = jnp.log(self.sigma_ / self.scaling_.sd[0])
        self.standard_process_ = PotentialModel(drift, log_sigma).process()


def _is_learned(sigma: Any) -> bool:
    return isinstance(sigma, str) and sigma == LEARN


def _scaling(snapshots: Snapshots, settings: Settings) -> Scaling:
    """One unit for all coordinates: a gradient is none any more where they are stretched
    differently.
    """
    own = Scaling.fit(snapshots)  # refuses a coordinate that does not vary
    if settings.faithful:
        return Scaling.identity(snapshots.n_dims)
    sd = np.sqrt(np.mean(own.sd**2))
    return Scaling(own.mean, np.full(snapshots.n_dims, sd))


def _first_sigma(sigma: Any, standard: Snapshots, scaling: Scaling, streams: Streams) -> float:
    """The noise in the units of the fit: as given, or a first guess that is rather too large."""
    if _is_learned(sigma):
        rng = streams.rng(Stream.noise_network)
        diffusion = first_noise("scalar", standard, scaling, rng)
        return float(diffusion(jnp.zeros(standard.n_dims))[0, 0])
    is_number = isinstance(sigma, int | float | np.number) and not isinstance(sigma, bool)
    if not is_number or not 0.0 < sigma < np.inf:
        raise InputError(
            expected="sigma as one number above 0, the same for all coordinates",
            found=f"{sigma!r}",
            hint="sigma='learn', or a solver that knows other noise: --method moments",
        )
    return float(sigma) / float(scaling.sd[0])


def _outcome(result: TrainingResult) -> Outcome:
    """How the long run ended."""
    loss = np.asarray(result.loss)
    if not all(bool(jnp.all(jnp.isfinite(leaf))) for leaf in jax.tree.leaves(result.model)):
        return Outcome.non_finite
    if not result.finished:
        return Outcome.interrupted
    if not np.isfinite(loss[-1]):
        return Outcome.non_finite
    return Outcome.converged if _is_at_rest(loss) else Outcome.budget


def _is_at_rest(loss: Float[np.ndarray, " n_iter"]) -> bool:
    """Whether the loss fell no more from the middle of the long run on, where its rate was still a
    half.
    """
    fifth = max(1, len(loss) // 5)
    loss = loss[np.isfinite(loss)]
    middle = loss[-3 * fifth : -2 * fifth]
    late = loss[-fifth:]
    if len(middle) < fifth:
        return False
    noise = (late.std() + middle.std()) / np.sqrt(fifth)
    return bool(middle.mean() - late.mean() < max(_AT_REST * late.mean(), noise))


def _silent(progress: Progress) -> None:
    del progress
