"""The adversarial solver: Algorithm 1 of the paper.

    min over g of sum_n max over f_n of r_n(f_n, g)

One probe f_n a snapshot answers the drift, the drift takes one step against them, until a plateau.
The game is in `adversarial.game`, the loop in `adversarial.training`.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, ClassVar, Self

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, PRNGKeyArray
from threadpoolctl import threadpool_limits

from itofit.adversarial.learners import learner_of
from itofit.adversarial.options import AdversarialOptions
from itofit.adversarial.solution import AdversarialSolution
from itofit.adversarial.training import Contest, fresh_drift, play, prepared
from itofit.bridge.solver import Bridge
from itofit.devices import processor
from itofit.errors import InputError
from itofit.moments.solver import Moments
from itofit.problem import Problem, Stream, Streams
from itofit.process.drift import AbstractDrift, CorrectedDrift, MeanDrift, members_of, stacked
from itofit.process.ito import ItoProcess
from itofit.process.noise import AbstractDiffusion
from itofit.simulate.step_size import TOLERANCE
from itofit.snapshots.clouds import Snapshots
from itofit.snapshots.scaling import Scaling
from itofit.snapshots.split import FEWEST_TO_SPLIT, split_rows
from itofit.solution import Solution, TrainingHistory
from itofit.solve.checkpoint import Checkpoint, CheckpointFolder, fill_tree, fingerprint
from itofit.solve.listeners import Listener, MetricLog
from itofit.solve.options import check_choice, check_count
from itofit.solve.records import Ending, drift_of, record_of, restored_noise
from itofit.solve.solver import AbstractSolver

# The printed recipe: raw units, one network a side without a skip, Adam at 1e-4 with PyTorch's
# betas, full batch, every step. It prints no number of ascent steps (the public code uses 5) and no
# number of iterations.
_PAPER: dict[str, Any] = {
    "anchor": "initial",
    "adversary": "network",
    "rule": "trapezoid",
    "drift_form": "plain",
    "n_iter": 10_000,
    "critic_steps": 5,
    "batch_size": None,
    "n_nodes": None,
    "fresh_paths": True,
    "drift_rate": 1e-4,
    "probe_rate": 1e-4,
    "betas": (0.9, 0.999),
    "cosine_decay": False,
    "averaging": 0.0,
    "standardise": False,
    "drift_width": 32,
    "drift_depth": 1,
    "power_iterations": 1,
    "hold_out": 0.1,
    "patience": 2000,
    "eval_every": 50,
    "warm_start": None,
}


# The solvers whose solutions a run may begin with.
STARTS = (Bridge.name, Moments.name)


@dataclass(frozen=True, repr=False)
class Adversarial(AbstractSolver, AdversarialOptions):
    """Algorithm 1 of the paper: one probe a snapshot, a min-max game.

    It wants a GPU or patience. `solver="adversarial"` is short for `Adversarial()`, which trains
    best; `Adversarial.paper()` is the printed recipe to the letter.

    Parameters
    ----------
    anchor : {"previous", "initial"}
        Simulate every interval from the snapshot before it (Prop. 1), or all of them from the first
        (Prop. 2).
    gradient : {"pathwise", "detached", "adjoint"}
        Of the drift: through the simulated path ("adjoint": the same by a backward recursion), or
        at frozen sample positions ("detached").
    discrepancy : {"weak", "direct"}
        The weak form, or the difference of expectations at the end points, as an ablation.
    adversary : {"ridges", "network"}
        Where a probe comes from. "ridges": the best weighted sum of lines, bowls and random
        cosines, found exactly and drawn anew every iteration; "network": a spectral-norm network
        trained by ascent, as in the paper.
    rule : {"chain", "trapezoid"}
        Of the quadrature in time: the trapezoid as printed, or the same nodes and weights with the
        drift that carried the chain, which is exact to second order for the chain itself.
    drift_form : {"staged", "skip", "plain"}
        "staged" begins with each coordinate by itself and takes in all affine terms, then
        polynomials or a network in their place, for as long as that pays; "skip" is a network with
        an affine skip, "plain" the paper's. A potential is a network with a quadratic skip always.
    gain : float or None
        What a stage took in stays if chi-squared fell by this much for each coordinate; None: all.
    n_iter : int
        Budget of iterations, in equal parts for the stages of a staged drift.
    critic_steps : int
        Ascent steps of the adversary "network" an iteration.
    batch_size : int or None
        Points drawn from each snapshot for one iteration; None: all.
    n_nodes : int or None
        Random quadrature nodes for each probe; None: every step of the mesh.
    n_sketch : int or None
        Random directions for the trace in the generator; None: all of them.
    fresh_paths : bool
        Whether the adversary "network" simulates anew for every ascent step, as printed.
    drift_rate, probe_rate : float
        Learning rates of the two sides.
    betas : tuple of float
        Of Adam.
    cosine_decay : bool
        Whether the drift's rate falls as a cosine over each stage.
    averaging : float
        The drift that is kept is an exponential average of the iterates with this factor.
    weight_decay : float
        Shrinks the drift's weights by this fraction of the learning rate in every iteration.
    slope_penalty : float
        Times the mean of |dg/dx|^2 over the snapshots, added to the loss.
    standardise : bool
        Whether it works in units of mean 0 and sd 1, or in the user's.
    drift_width, drift_depth : int
        Hidden units and layers of the drift's network.
    probe_width, probe_depth : int
        The same of the adversary "network".
    power_iterations : int
        For the spectral norms after every ascent step; too few let the slope of a probe pass 1
        (`history_.slope` shows it).
    hold_out : float
        Fraction of every snapshot held out for the criterion; with 0 it is read on all rows.
    patience : int
        Iterations without improvement of that criterion by 1 % before the run stops.
    eval_every : int
        Iterations between readings of the criterion.
    warm_start : {"bridge", "moments", None}
        Learn a correction to the smooth drift of the bridge solver, which is bounded, or to the
        solution of the moments solver; with None, begin at rest.
    n_members : int
        Train an ensemble of so many in one batch; its mean drift is the model.

    Examples
    --------
    >>> from itofit import Adversarial
    >>> Adversarial(n_members=3).n_iter
    2400
    >>> Adversarial.paper().drift_form
    'plain'
    """

    warm_start: str | None = Bridge.name
    n_members: int = 1

    name: ClassVar[str] = "adversarial"
    prefers_cpu: ClassVar[bool] = False
    # Every halving trains again.
    tolerance: ClassVar[float] = TOLERANCE
    most_halvings: ClassVar[int] = 2
    presets: ClassVar[dict[str, dict[str, Any]]] = {"default": {}, "paper": _PAPER}

    def __post_init__(self):
        self._check_options()
        if self.warm_start is not None:
            check_choice("warm_start", self.warm_start, STARTS)
        if self.warm_start == Bridge.name and not self.standardise:
            raise InputError(
                expected="standardise=True where a run begins with the bridge",
                found="standardise=False",
                hint="warm_start=None, or standardise=True",
            )
        check_count("n_members", self.n_members, 1, "3")

    @classmethod
    def paper(cls, **changes: Any) -> Self:
        """The printed recipe to the letter, but for these changes.

        Parameters
        ----------
        **changes
            Parameters of the solver by name.

        Returns
        -------
        Adversarial
            The solver.
        """
        return cls(**(cls.presets["paper"] | changes))

    def scaling(self, snapshots: Snapshots, streams: Streams) -> Scaling:
        Scaling.fit(snapshots)  # refuses a coordinate that does not vary
        if not self.standardise:
            return Scaling.identity(snapshots.n_dims)
        return Scaling.fit(self._split(snapshots, streams)[0])

    def solve(
        self,
        problem: Problem,
        *,
        listeners: Sequence[Listener] = (),
        checkpoints: CheckpointFolder | None = None,
    ) -> AdversarialSolution:
        start = self._warm_start(problem, listeners)
        return self._trained(problem, start, listeners, checkpoints)

    def solve_again(
        self,
        solution: Solution,
        problem: Problem,
        *,
        listeners: Sequence[Listener] = (),
        checkpoints: CheckpointFolder | None = None,
    ) -> AdversarialSolution:
        shorter = replace(self, n_iter=max(1, self.n_iter // 2))
        again = shorter._trained(problem, solution.process, listeners, checkpoints)
        return replace(again, seconds=solution.seconds + again.seconds)

    def solve_together(self, problems: Sequence[Problem]) -> list[Solution]:
        steps = [problem.mesh.steps for problem in problems]
        if any(not np.array_equal(one, steps[0]) for one in steps):
            raise InputError(
                expected="the same dt for all that are fitted together",
                found="steps that differ",
                hint="dt=0.01",
            )
        groups = [self._contests(problem, self._warm_start(problem, ())) for problem in problems]
        runs = iter(play([contest for group in groups for contest in group], self))
        return [
            AdversarialSolution.of(problem, [next(runs) for _ in group])
            for problem, group in zip(problems, groups, strict=True)
        ]

    def restore(
        self, problem: Problem, values: dict[str, Any], arrays: dict[str, np.ndarray]
    ) -> AdversarialSolution:
        like = self._fresh(problem, problem.snapshots, jax.random.key(0))
        like = _whole(like, problem.diffusion)
        if self.n_members > 1:
            like = MeanDrift(stacked([like] * self.n_members))
        drift: AbstractDrift = fill_tree(like, arrays, "drift")
        if values["features"]:
            drift = CorrectedDrift(drift_of(values["features"], arrays, None), drift)
        ending = Ending.of(values)
        return AdversarialSolution(
            problem=problem,
            process=ItoProcess(drift, restored_noise(problem, arrays)),
            outcome=ending.outcome,
            history=record_of(TrainingHistory, "history", arrays),
            n_iter=ending.n_iter,
            seconds=ending.seconds,
            dt_error=ending.dt_error,
        )

    def _split(self, snapshots: Snapshots, streams: Streams) -> tuple[Snapshots, Snapshots]:
        """Rows to learn from and rows for the criterion; all for both where none are held out."""
        if self.hold_out <= 0.0 or min(snapshots.counts) < FEWEST_TO_SPLIT:
            return snapshots, snapshots
        return split_rows(snapshots, self.hold_out, streams.integer(Stream.hold_out))

    def _warm_start(self, problem: Problem, listeners: Sequence[Listener]) -> ItoProcess | None:
        """What was asked for to begin with, and a correction of zero beside it."""
        _check(problem)
        training = self._split(problem.snapshots, problem.streams)[0]
        known = problem if training is problem.snapshots else problem.between(training)
        with jax.default_device(processor()):  # many small steps: a GPU only adds to them
            base = self._base(known, listeners)
        if base is None:
            return None
        weights, rest = eqx.partition(base, eqx.is_array)
        here = eqx.combine(jax.tree.map(lambda leaf: jnp.asarray(np.asarray(leaf)), weights), rest)
        key = problem.streams.key(Stream.correction)
        correction = self._fresh(problem, training, key, correction=True)
        return ItoProcess(CorrectedDrift(here.drift, correction), here.diffusion)

    def _fresh(
        self,
        problem: Problem,
        training: Snapshots,
        key: PRNGKeyArray,
        *,
        correction: bool = False,
    ) -> AbstractDrift:
        metric = _metric(problem)
        return fresh_drift(training, problem.span, self, metric, correction=correction, key=key)

    def _base(self, problem: Problem, listeners: Sequence[Listener]) -> ItoProcess | None:
        """None where a run begins at rest: it was asked for, or coupling comes to nothing."""
        if self.warm_start == Moments.name:
            return Moments(anchor=self.anchor).solve(problem, listeners=listeners).process
        if self.warm_start == Bridge.name:
            return _coupled(problem, listeners)
        return None

    def _trained(
        self,
        problem: Problem,
        start: ItoProcess | None,
        listeners: Sequence[Listener],
        checkpoints: CheckpointFolder | None,
    ) -> AdversarialSolution:
        checkpoint = None
        if checkpoints is not None:
            checkpoint = self._checkpoint(problem, checkpoints)
            listeners = [MetricLog(checkpoints.log), *listeners]
        contests = self._contests(problem, start)
        runs = play(contests, self, listeners=listeners, checkpoint=checkpoint)
        return AdversarialSolution.of(problem, runs)

    def _contests(self, problem: Problem, start: ItoProcess | None) -> list[Contest]:
        """One for every member of the ensemble; they differ by their keys."""
        training, held_out = self._split(problem.snapshots, problem.streams)
        diffusion = problem.diffusion if start is None else start.diffusion
        drifts: list[AbstractDrift | None] = [None]
        if start is not None:
            drifts = list(members_of(start.drift))
        if len(drifts) == 1:
            drifts = drifts * self.n_members
        return [
            prepared(
                training,
                held_out,
                None if drift is None else learner_of(drift),
                diffusion,
                problem.mesh,
                self,
                key=key,
                metric=_metric(problem),
            )
            for drift, key in zip(drifts, self._keys(problem), strict=True)
        ]

    def _keys(self, problem: Problem) -> list[PRNGKeyArray]:
        streams = problem.streams
        if problem.refinement:
            key = streams.key(Stream.refined_training, problem.refinement)
        else:
            key = streams.key(Stream.training)
        return [key, *(jax.random.fold_in(key, m) for m in range(1, self.n_members))]

    def _checkpoint(self, problem: Problem, folder: CheckpointFolder) -> Checkpoint:
        X, t, w = problem.snapshots.to_rows()
        factor = np.asarray(problem.diffusion(jnp.zeros(problem.snapshots.n_dims)))
        seed = problem.streams.seed
        asked = (asdict(self), problem.dt, problem.refinement, seed)
        return folder.of(fingerprint(X, t, w, factor, *asked), problem.refinement)


def _metric(problem: Problem) -> Float[np.ndarray, " n_dims"] | None:
    return problem.scaling.metric if problem.has_potential else None


def _coupled(problem: Problem, listeners: Sequence[Listener]) -> ItoProcess | None:
    """What the bridge solver finds; None where coupling comes to nothing."""
    # The matrices are small; threads that wait for one another take longer than the products.
    with threadpool_limits(1, user_api="blas"):
        try:
            solution = Bridge().solve(problem, listeners=listeners)
        except (FloatingPointError, np.linalg.LinAlgError):
            return None
    return solution.process if solution.outcome.is_good else None


def _check(problem: Problem) -> None:
    if problem.time_varying:
        raise InputError(
            expected="the moments solver for a drift that changes with time",
            found="solver='adversarial'",
            hint="solver='moments', or time_varying=False",
        )


def _whole(drift: AbstractDrift, diffusion: AbstractDiffusion) -> AbstractDrift:
    """The drift as a finished run has it."""
    return learner_of(drift).whole().process(diffusion).drift
