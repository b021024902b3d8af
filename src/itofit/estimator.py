"""FokkerPlanckProcess: the face over our solvers."""

import dataclasses
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from itofit.errors import FitWarning, InputError
from itofit.face import device_named, processor, seed_of
from itofit.process.clock import Clock
from itofit.process.diffusion import AbstractDiffusion
from itofit.process.drift import AbstractDrift, CorrectedDrift, FeatureDrift, MeanDrift, members_of
from itofit.process.features import AbstractFeatures, described, rebuilt
from itofit.process.ito import ItoProcess, rescaled
from itofit.process.noise import LEARN, LearnedDiffusion, first_noise, is_learned, mean_noise, noise_of
from itofit.process_face import ProcessFace, warn_of_ending
from itofit.simulate.mesh import Mesh
from itofit.snapshots.clouds import Snapshots
from itofit.snapshots.scaling import Scaling
from itofit.snapshots.split import FEWEST_TO_SPLIT, split_rows
from itofit.solve.adversarial import Member, fit_members, fresh_drift
from itofit.solve.checkpoint import Checkpoint, fill_tree, fingerprint, named_arrays
from itofit.solve.dictionaries import library_for
from itofit.solve.evidence import Evidence, GaussNewtonHistory
from itofit.solve.listeners import Listener, MetricLog, ProgressBar
from itofit.solve.moments import MomentsFit, fit_moments
from itofit.solve.options import PRESETS, AdversarialOptions, MomentsOptions
from itofit.solve.outcome import Fit, History, Outcome
from itofit.solve.run import stacked
from itofit.solve.step_size import TOLERANCE, checked_step, first_step
from itofit.trust.methods import TrustMethods
from itofit.trust.report import short_report
from itofit.trust.sensitivity import standard_diffusion

SOLVERS = ("auto", "moments", "adversarial")
_ADVERSARIAL_ONLY = (
    "gradient",
    "discrepancy",
    "quadrature",
    "batch_size",
    "critic_steps",
    "learning_rate",
    "warm_start",
    "n_members",
)
_MOMENTS_FIELDS = {field.name for field in dataclasses.fields(MomentsOptions)}
_ADVERSARIAL_FIELDS = {field.name for field in dataclasses.fields(AdversarialOptions)}
_MOST_REFINEMENTS = 2
# Chi-squared by degree of freedom that draws a warning, besides four standard deviations of its own noise.
_TOO_MUCH_MISFIT = 1.5


class FokkerPlanckProcess(ProcessFace, TrustMethods):
    """Fit dX = g(X) dt + S dW to snapshots by the weak form of the Fokker-Planck equation.

    - `sigma`: `"learn"`, one number a coordinate, or what else is to be learned: `"scalar"`, `"full"` (a matrix),
      `"multiplicative"` (sigma_i x_i), `"network"`, `"network-full"` (of the state), a `ParametricSigma`; or the noise
      where it is known: a number (sigma I), a vector (diagonal), a matrix S, or a function of the state.
    - `dt`: longest Euler step, or `"auto"`: chosen from the data and checked by step doubling.
    - `solver`: `"moments"` (many fixed probes and Gauss-Newton: seconds on a laptop), `"adversarial"` (Algorithm 1 of
      the paper), or `"auto"`: moments, unless a GPU is present or a choice below asks for the adversarial one.
    - `time_varying`: whether the drift may change with time, g(x, t), smoothly between the first and the last snapshot;
      after that it stays as it is there. Of the moments solver, in fewer than 16 dimensions.
    - `anchor`: `"initial"` simulates from the first snapshot, `"previous"` every interval from the one before.
    - `n_iter`: budget of iterations; None takes the solver's.
    - `options`: further fields of `MomentsOptions` or `AdversarialOptions` by name.
    - for the adversarial solver alone: `preset`, `"default"` (what trains best) or `"paper"` (the printed recipe to the
      letter); `gradient` of the drift, `"pathwise"`, `"detached"` or `"adjoint"`; `discrepancy`, `"weak"`, or
      `"direct"` as an ablation; `quadrature`, `"stratified"` random nodes in time or `"all"` steps; `batch_size`,
      `critic_steps`, `learning_rate`; `warm_start`, `"moments"` to learn a correction to the moments solution;
      `n_members`, to train an ensemble in one batch, whose mean drift is the model (`members_` holds each of them).
    - `device`: `"auto"`, `"cpu"` or `"gpu"`.
    - `random_state`: seed of everything random, or None for a fresh one.
    - `verbose`: show a progress bar.

    After `fit`: `process_` (drift and diffusion in the user's units), `snapshots_`, `scaling_`, `dt_`,
    `dt_error_` (how far halving dt moves a mean or sd, in sds), `solver_`, `outcome_`, `history_`, `n_iter_`,
    `seconds_`, `device_`, `seed_`, `path_` (between snapshots: `"simulated"` chains; where snapshots are dense the
    clouds `"seen"`, or these `"corrected"` by a simulation of each gap); of the moments solver also `evidence_`:
    coefficients with their covariance, and chi-squared of the fit.
    """

    method = "adversarial"
    aliases = ("moments",)
    batched = True

    def __init__(
        self,
        sigma: Any = LEARN,
        *,
        dt: float | Literal["auto"] = "auto",
        solver: str = "auto",
        preset: str = "default",
        time_varying: bool = False,
        anchor: str | None = None,
        gradient: str | None = None,
        discrepancy: str | None = None,
        quadrature: str | None = None,
        n_iter: int | None = None,
        batch_size: int | None = None,
        critic_steps: int | None = None,
        learning_rate: float | None = None,
        warm_start: str | None = None,
        n_members: int | None = None,
        options: dict[str, Any] | None = None,
        device: str = "auto",
        random_state: int | np.integer | None = None,
        verbose: bool = False,
    ):
        self.sigma = sigma
        self.dt = dt
        self.solver = solver
        self.preset = preset
        self.time_varying = time_varying
        self.anchor = anchor
        self.gradient = gradient
        self.discrepancy = discrepancy
        self.quadrature = quadrature
        self.n_iter = n_iter
        self.batch_size = batch_size
        self.critic_steps = critic_steps
        self.learning_rate = learning_rate
        self.warm_start = warm_start
        self.n_members = n_members
        self.options = options
        self.device = device
        self.random_state = random_state
        self.verbose = verbose

    def fit(
        self,
        X: Any,
        t: Any = None,
        *,
        time_key: str | None = None,
        rep: str | None = None,
        genes: Sequence[str] | None = None,
        layer: str | None = None,
        n_pcs: int | None = None,
        checkpoint: str | Path | None = None,
        resume: bool = False,
        listeners: Sequence[Listener] = (),
    ) -> "FokkerPlanckProcess":
        """Fit to `Snapshots`, to points `X` with one time per row `t`, or to an AnnData (`time_key`, `rep`, ...).

        Of `PairedSnapshots` the moments solver also tests what each individual became; the adversarial one does not.
        Of an AnnData, `time_key` names the column of obs with the times, and `rep` an array of obsm, or `genes` the
        genes to use, from `layer` or X; with `n_pcs` so many principal components of them, or of all genes.

        `checkpoint` names a folder in which an adversarial run is saved as it goes; with `resume` a run saved there by
        the same call continues bit for bit (the moments solver keeps none and begins again). `listeners` are called
        with a `Progress` after every block of iterations.
        """
        cells = {"time_key": time_key, "rep": rep, "genes": genes, "layer": layer, "n_pcs": n_pcs}
        return self._fit(X, t, cells, checkpoint=checkpoint, resume=resume, listeners=listeners)

    def solver_options(self) -> AdversarialOptions | MomentsOptions:
        """The choices of the solver this estimator would use, its own in them."""
        return self._moments_options() if self._chosen_solver() == "moments" else self._adversarial_options()

    def _chosen_solver(self) -> str:
        if self.solver not in SOLVERS:
            raise InputError(
                expected=f"solver to be one of {', '.join(SOLVERS)}", found=f"{self.solver!r}", hint="solver='auto'"
            )
        if self.warm_start not in (None, "moments"):
            raise InputError(expected="warm_start to be moments or None", found=f"{self.warm_start!r}", hint="moments")
        if not isinstance(self._n_members, int | np.integer) or self._n_members < 1:
            raise InputError(expected="n_members of at least 1", found=f"{self.n_members!r}", hint="3")
        asked = [name for name in _ADVERSARIAL_ONLY if getattr(self, name) is not None]
        asked += ["preset"] if self.preset != "default" else []
        asked += [name for name in self.options or {} if name not in _MOMENTS_FIELDS and name in _ADVERSARIAL_FIELDS]
        if self.solver == "moments" and asked:
            raise InputError(
                expected="choices the moments solver knows",
                found=", ".join(asked),
                hint="leave them out, or solver='adversarial'",
            )
        if self.time_varying and (self.solver == "adversarial" or asked):
            raise InputError(
                expected="the moments solver for a drift that changes with time",
                found=", ".join(asked) or "solver='adversarial'",
                hint="solver='moments', or time_varying=False",
            )
        if self.solver != "auto" or self.time_varying:
            return "moments" if self.time_varying else self.solver
        return "adversarial" if asked or device_named(self.device).platform == "gpu" else "moments"

    def _moments_options(self) -> MomentsOptions:
        chosen = {name: getattr(self, name) for name in ("anchor", "n_iter") if getattr(self, name) is not None}
        return MomentsOptions(clock=bool(self.time_varying)).override(**(chosen | (self.options or {})))

    def _adversarial_options(self) -> AdversarialOptions:
        if self.preset not in PRESETS:
            raise InputError(
                expected=f"preset to be one of {', '.join(PRESETS)}", found=f"{self.preset!r}", hint="default"
            )
        if self.quadrature not in (None, "all", "stratified"):
            raise InputError(
                expected="quadrature to be all or stratified", found=f"{self.quadrature!r}", hint="stratified"
            )
        chosen = {
            name: getattr(self, name)
            for name in ("anchor", "gradient", "discrepancy", "n_iter", "batch_size", "critic_steps")
            if getattr(self, name) is not None
        }
        if self.learning_rate is not None:
            chosen |= {"drift_rate": self.learning_rate, "probe_rate": self.learning_rate}
        if self.quadrature is not None:
            chosen["n_nodes"] = None if self.quadrature == "all" else PRESETS["default"].n_nodes
        return PRESETS[self.preset].override(**(chosen | (self.options or {})))

    def _learn(self, snapshots: Snapshots, **how: Any) -> None:
        device = device_named(self.device)
        with jax.default_device(device):
            task, dt = self._begun(snapshots)
            fit = self._solve(task, dt, 0, self._beginning(task, dt, **how), **how)
            error, seconds = self._step_error(fit.process, task.training, dt), fit.seconds
            for refinement in range(1, _MOST_REFINEMENTS + 1):
                if not self._automatic or error <= TOLERANCE or not fit.outcome.is_good:
                    break
                dt = dt / 2.0
                if not (isinstance(fit, MomentsFit) and fit.path != "simulated"):  # else no step was in the fit
                    fit = self._solve(task, dt, refinement, fit.process, **how)
                    seconds += fit.seconds
                error = self._step_error(fit.process, task.training, dt)
        self._settle(task, fit, dt, error, seconds, device)

    @classmethod
    def _learn_together(cls, models: Sequence["FokkerPlanckProcess"], data: Sequence[Snapshots]) -> None:
        first, options = models[0], models[0].solver_options()
        if first._automatic or isinstance(options, MomentsOptions):
            raise InputError(expected="the adversarial solver with dt given", found=f"dt={first.dt!r}", hint="dt=0.01")
        device = device_named(first.device)
        with jax.default_device(device):
            tasks = [model._begun(snapshots) for model, snapshots in zip(models, data, strict=True)]
            dt, how = tasks[0][1], {"checkpoint": None, "resume": False, "listeners": ()}
            starts = [model._beginning(task, dt, **how) for model, (task, _) in zip(models, tasks, strict=True)]
            groups = [m._members(task, start) for m, (task, _), start in zip(models, tasks, starts, strict=True)]
            mesh = Mesh.refine(tasks[0][0].training.times, dt)
            fits = iter(fit_members([member for group in groups for member in group], mesh, options))
            for model, (task, _), group in zip(models, tasks, groups, strict=True):
                fit = _ensemble([next(fits) for _ in group])
                error = model._step_error(fit.process, task.training, dt)
                model._settle(task, fit, dt, error, fit.seconds, device)

    def _begun(self, snapshots: Snapshots) -> tuple["_Task", float]:
        """The task in the solver's units and the first step."""
        options, self.seed_ = self.solver_options(), seed_of(self.random_state)
        dt = first_step(snapshots) if self._automatic else checked_step(self.dt, snapshots)
        return _Task.prepare(snapshots, self.sigma, options, self.seed_), dt

    def _settle(self, task: "_Task", fit: Fit | MomentsFit, dt: float, error: float, seconds: float, device) -> None:
        """Keep what was learned."""
        self.scaling_, self.standard_process_, self.history_ = task.scaling, fit.process, fit.history
        self.outcome_, self.n_iter_, self.seconds_ = fit.outcome, fit.n_iter, seconds
        self.dt_, self.dt_error_, self.device_ = dt, error, str(device)
        self.solver_ = "moments" if isinstance(fit, MomentsFit) else "adversarial"
        self.evidence_ = fit.evidence if isinstance(fit, MomentsFit) else None
        self.path_ = fit.path if isinstance(fit, MomentsFit) else "simulated"
        self._forget()
        self._warn()

    @property
    def _n_members(self) -> int:
        return 1 if self.n_members is None else self.n_members

    @property
    def members_(self) -> list[ItoProcess]:
        """The processes of an ensemble in the user's units; of a single fit its process alone."""
        self._check_fitted()
        process = self.standard_process_
        return [rescaled(ItoProcess(g, process.diffusion), self.scaling_) for g in members_of(process.drift)]

    def _solve(
        self, task: "_Task", dt: float, refinement: int, start: ItoProcess | None, **how: Any
    ) -> Fit | MomentsFit:
        label = "fit" if not refinement else f"fit, dt={dt:.3g}"
        if not self.verbose:
            return self._run_solver(task, dt, refinement, start, [], how)
        with ProgressBar(label) as bar:
            return self._run_solver(task, dt, refinement, start, [bar], how)

    def _run_solver(self, task, dt, refinement, start, bars, how) -> Fit | MomentsFit:
        options, mesh = task.options, Mesh.refine(task.training.times, dt)
        listeners = [*how["listeners"], *bars]
        if isinstance(options, MomentsOptions):
            library = library_for(task.training, task.scaling, options, self.seed_)
            how = {"seed": self.seed_, "given_step": not self._automatic, "listeners": listeners}
            return fit_moments(task.training, task.diffusion, mesh, options, library, **how)
        if refinement:
            options = dataclasses.replace(options, n_iter=max(1, options.n_iter // 2))
        parts = (task, options, dt, refinement, self.seed_, self._n_members, self.warm_start)
        keeper = _keeper(*parts, how["checkpoint"], how["resume"])
        if keeper is not None:
            listeners.insert(0, MetricLog(keeper.path.with_name("log.jsonl")))
        members = self._members(task, start, refinement)
        return _ensemble(fit_members(members, mesh, options, checkpoint=keeper, listeners=listeners))

    def _members(self, task: "_Task", start: ItoProcess | None, refinement: int = 0) -> list[Member]:
        """One member, or the members of an ensemble, which differ by their keys; each goes on from its own drift."""
        key = self._key(1 + 10 * refinement)
        keys = [key, *(jax.random.fold_in(key, m) for m in range(1, self._n_members))]
        drifts = [None] * len(keys) if start is None else members_of(start.drift)
        drifts = drifts * len(keys) if len(drifts) == 1 else drifts
        data = (task.training, task.held_out, task.diffusion if start is None else start.diffusion)
        return [Member(*data, k, g) for k, g in zip(keys, drifts, strict=True)]

    def _beginning(self, task: "_Task", dt: float, **how: Any) -> ItoProcess | None:
        """Where the adversarial solver begins: at the moments solution and a correction of zero, if that was asked."""
        if self.warm_start is None or isinstance(task.options, MomentsOptions):
            return None
        moments = MomentsOptions(anchor=task.options.anchor)
        with jax.default_device(processor()):  # many small steps and host linear algebra: a GPU only adds to them
            fit = self._solve(task._replace(options=moments), dt, 0, None, **how)
        weights, rest = eqx.partition(fit.process, eqx.is_array)
        base = eqx.combine(jax.tree.map(lambda leaf: jnp.asarray(np.asarray(leaf)), weights), rest)
        correction = fresh_drift(task.training, float(np.ptp(task.training.times)), task.options, key=self._key(5))
        return ItoProcess(CorrectedDrift(base.drift, correction), base.diffusion)

    def _warn(self) -> None:
        warn_of_ending(self.outcome_, self.dt_, self.dt_error_)
        if self.evidence_ is not None and self.evidence_.misfit > _TOO_MUCH_MISFIT + 4.0 / np.sqrt(
            self.evidence_.n_free
        ):
            warnings.warn(
                f"chi-squared is {self.evidence_.misfit:.1f} times its degrees of freedom: no drift of this dictionary "
                "with this sigma explains the snapshots; "
                + ("look at sigma" if self.time_varying else "try time_varying=True, look at sigma,")
                + " or give a dictionary of your own (options={'dictionary': ...})",
                FitWarning,
                stacklevel=5,
            )

    def _notes(self) -> tuple[str, ...]:
        return tuple(short_report(self))

    def _values(self) -> dict[str, Any]:
        return {
            "features": self._described()[0],
            "solver": self.solver_,
            "path": self.path_,
            "seed": self.seed_,
            "dt": self.dt_,
            "dt_error": self.dt_error_,
            "outcome": self.outcome_.name,
            "n_iter": self.n_iter_,
            "seconds": self.seconds_,
            "device": self.device_,
            "versions": {"jax": jax.__version__, "numpy": np.__version__},
        }

    def _described(self) -> tuple[list[dict[str, Any]], dict[str, np.ndarray]]:
        """The dictionary of a drift found by the moments solver, as values and arrays."""
        drift = self.standard_process_.drift
        drift = drift.base if isinstance(drift, CorrectedDrift) else drift
        if isinstance(drift, FeatureDrift) and isinstance(drift.features, AbstractFeatures):
            values, arrays = described(drift.features)
            return values, {**arrays, "coefficients": np.asarray(drift.coefficients)}
        return [], {}

    def _arrays(self) -> dict[str, np.ndarray]:
        history = {f"history.{name}": value for name, value in vars(self.history_).items()}
        scaling = {"scaling.mean": self.scaling_.mean, "scaling.sd": self.scaling_.sd}
        evidence = (
            {} if self.evidence_ is None else {f"evidence.{k}": np.asarray(v) for k, v in vars(self.evidence_).items()}
        )
        parts = {f"features.{name}": value for name, value in self._described()[1].items()}
        if isinstance(self.standard_process_.diffusion, LearnedDiffusion):
            parts["noise.theta"] = np.asarray(self.standard_process_.diffusion.theta)
        if self.solver_ == "moments":
            return parts | history | scaling | evidence
        drift = self.standard_process_.drift
        trained = drift.correction if isinstance(drift, CorrectedDrift) else drift
        return named_arrays(trained, "drift") | parts | history | scaling

    def _restore(self, values: dict[str, Any], arrays: dict[str, np.ndarray]) -> None:
        for name in ("solver", "path", "seed", "dt", "dt_error", "n_iter", "seconds", "device"):
            setattr(self, f"{name}_", values[name])
        self.outcome_ = Outcome[values["outcome"]]
        self.scaling_ = Scaling(arrays["scaling.mean"], arrays["scaling.sd"])
        self.history_ = _record(GaussNewtonHistory if self.solver_ == "moments" else History, "history", arrays)
        self.evidence_ = _record(Evidence, "evidence", arrays) if "evidence.chi2" in arrays else None
        diffusion = self._restored_diffusion(arrays)
        self.standard_process_ = ItoProcess(self._restored_drift(values, arrays), diffusion)
        self._forget()

    def _restored_diffusion(self, arrays: dict[str, np.ndarray]) -> AbstractDiffusion:
        if not is_learned(self.sigma):
            return standard_diffusion(self.sigma, self.scaling_)
        like = noise_of(self.sigma, self.scaling_, np.ones(self.snapshots_.n_dims), self.seed_)
        return LearnedDiffusion(jnp.asarray(arrays["noise.theta"], dtype=float), like.form)

    def _restored_drift(self, values: dict[str, Any], arrays: dict[str, np.ndarray]) -> AbstractDrift:
        inside = {k.removeprefix("features."): v for k, v in arrays.items() if k.startswith("features.")}
        base = None
        if values["features"]:
            varies = self.solver_ == "moments" and self._moments_options().clock
            clock = Clock.over(self.snapshots_.times) if varies else None
            base = FeatureDrift(rebuilt(values["features"], inside), jnp.asarray(inside["coefficients"]), clock)
        if self.solver_ == "moments" and base is not None:
            return base
        snapshots, span = self.scaling_.transform(self.snapshots_), float(np.ptp(self.snapshots_.times))
        like = fresh_drift(snapshots, span, self._adversarial_options(), key=jax.random.key(0))
        like = like.whole()
        like = MeanDrift(stacked([like] * self._n_members)) if self._n_members > 1 else like
        drift = fill_tree(like, arrays, "drift")
        return drift if base is None else CorrectedDrift(base, drift)


def _ensemble(fits: Sequence[Fit]) -> Fit:
    """One fit of several: the mean drift, the mean history and the worst ending."""
    if len(fits) == 1:
        return fits[0]
    drifts = [fit.process.drift for fit in fits]
    if isinstance(drifts[0], CorrectedDrift):
        corrections = [g.correction for g in drifts if isinstance(g, CorrectedDrift)]
        drift: AbstractDrift = CorrectedDrift(drifts[0].base, MeanDrift(stacked(corrections)))
    else:
        drift = MeanDrift(stacked(drifts))
    worst = max(fits, key=lambda fit: (not fit.outcome.is_good, fit.outcome is Outcome.budget))
    history = History(
        **{f.name: np.mean([getattr(x.history, f.name) for x in fits], axis=0) for f in dataclasses.fields(History)}
    )
    process = ItoProcess(drift, mean_noise([fit.process.diffusion for fit in fits]))
    return dataclasses.replace(fits[0], process=process, history=history, outcome=worst.outcome)


def _record(kind, name: str, arrays: dict[str, np.ndarray]):
    """A dataclass of arrays read back field by field."""
    return kind(**{field.name: arrays[f"{name}.{field.name}"] for field in dataclasses.fields(kind)})


class _Task(NamedTuple):
    """A fit in the units the solver works in."""

    training: Snapshots
    held_out: Snapshots
    diffusion: AbstractDiffusion
    scaling: Scaling
    options: AdversarialOptions | MomentsOptions

    @classmethod
    def prepare(
        cls, snapshots: Snapshots, sigma: Any, options: AdversarialOptions | MomentsOptions, seed: int
    ) -> "_Task":
        """Hold rows back, fit the scaling on the rest, and bring data and noise into its units."""
        scaling = Scaling.fit(snapshots)  # refuses a coordinate that does not vary
        training, held_out = snapshots, snapshots
        if isinstance(options, AdversarialOptions):
            if options.hold_out > 0.0 and min(snapshots.counts) >= FEWEST_TO_SPLIT:
                training, held_out = split_rows(snapshots, options.hold_out, seed)
            scaling = Scaling.fit(training) if options.standardise else Scaling.identity(snapshots.n_dims)
        standard = scaling.transform(training)
        learned = is_learned(sigma)
        diffusion = first_noise(sigma, standard, scaling, seed) if learned else standard_diffusion(sigma, scaling)
        return cls(standard, scaling.transform(held_out), diffusion, scaling, options)


def _keeper(
    task: _Task,
    options: AdversarialOptions,
    dt: float,
    refinement: int,
    seed: int,
    n_members: int,
    warm_start: str | None,
    folder: Any,
    resume: bool,
) -> Checkpoint | None:
    """The checkpoint of one solve; an existing one is continued with `resume` and refused without."""
    if folder is None:
        return None
    X, t, w = task.training.to_rows()
    factor = np.asarray(task.diffusion(jnp.zeros(task.training.n_dims)))
    parts = (dataclasses.asdict(options), dt, refinement, seed, n_members, warm_start)
    identity = fingerprint(X, t, w, factor, *parts)
    path = Path(folder) / ("checkpoint.npz" if not refinement else f"checkpoint-{refinement}.npz")
    if path.exists() and not resume:
        raise InputError(
            expected=f"no unfinished run in {folder}",
            found=f"{path.name}",
            hint="resume=True (--resume), or another folder",
        )
    return Checkpoint(path, identity)
