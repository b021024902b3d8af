"""The candidates of a fit: a smooth drift, a sparse one, and the sparse one polished.

fitted(problem)              all of them
fitted_again(rest, names)    those that are still in question, on other snapshots
"""

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass, replace

import jax.numpy as jnp
import numpy as np

from itofit.bridge.iteration import Pass
from itofit.bridge.solution import PassLog, bridge_solution
from itofit.bridge.solver import Bridge
from itofit.bridge.structures import Smooth, Sparse, sparse_for
from itofit.moments.polishing import polished, polished_process
from itofit.moments.solution import MomentsSolution
from itofit.moments.solver import Moments
from itofit.problem import Problem, Stream
from itofit.process.drift import AbstractDrift, AbstractLinearDrift
from itofit.process.features import Dictionary, Joined
from itofit.process.ito import ItoProcess
from itofit.process.noise import LEARN, LearnedDiffusion, MultiplicativeForm, proportional_noise
from itofit.solution import Solution

POLISHED = "polished"
CLOCKED = "in time"
CONFINED = "potential"
# What candidates count before judging. The polished one counts six sevenths of all where
# chi-squared is what it should be, and half of that where it is larger by this factor less one.
_BELIEVED = {Smooth.name: 0.75, Sparse.name: 0.12, CLOCKED: 0.06, CONFINED: 0.06}
_POLISHED_SHARE = 0.85
_HALF_BELIEVED = 3.0
# Noise in proportion to the state must lower the excess of chi-squared by this factor.
_BETTER = 0.8
# Whether a drift with a potential is a candidate where the drift may be any.
_POTENTIAL_TOO = False
# Coordinates up to which terms are polished.
_MOST_DIMS = 20
_MOST_DIMS_WITH_CLOCK = 15
# Points a snapshot that are polished on; all of them only where chi-squared allows the terms.
_FEW_POINTS = 500
# What polishes.
POLISHER = Moments(n_draws=4, n_iter=40)
# In judging: points that a pass looks at; points, draws and steps of a polish.
_POINTS_A_PASS = 256
_FEWER_POINTS = 300
_FEW_DRAWS = 2
_FEW_STEPS = 12


@dataclass(frozen=True, eq=False)
class Candidates:
    """Fits of one problem.

    - `polished`: None where polishing broke down, or would take too long.
    - `is_whole`: whether it was polished on all points.
    """

    ends: dict[str, Pass]
    polished: MomentsSolution | None
    is_whole: bool

    @property
    def processes(self) -> dict[str, ItoProcess]:
        """By name."""
        found = {name: end.process for name, end in self.ends.items()}
        if self.polished is None:
            return found
        terms = found[Sparse.name].drift
        return found | {POLISHED: _in_terms_of(terms, self.polished.process)}

    @property
    def believed(self) -> dict[str, float]:
        """What every process counts before judging, the polished one by its chi-squared."""
        return {
            name: self._polished_believed if name == POLISHED else _BELIEVED[name]
            for name in self.processes
        }

    @property
    def _polished_believed(self) -> float:
        """The odds of the polished process against the others, which count about one."""
        assert self.polished is not None
        assert self.polished.evidence is not None
        excess = self.polished.evidence.excess
        if np.isnan(excess):
            return _BELIEVED[Sparse.name]
        beyond = max(excess - 1.0, 0.0) / _HALF_BELIEVED
        share = _POLISHED_SHARE / (1.0 + beyond**2)
        return share / (1.0 - share)

    @property
    def proportional(self) -> bool:
        """Whether the noise of the polished process is proportional to the state."""
        if self.polished is None:
            return False
        diffusion = self.polished.process.diffusion
        return isinstance(diffusion, LearnedDiffusion) and isinstance(
            diffusion.form, MultiplicativeForm
        )

    @property
    def explained(self) -> bool:
        """Whether the snapshots are explained by the polished process."""
        return self.polished is not None and self.is_whole and not self.polished.doubts()

    def why(self, name: str) -> str:
        """Why this one is the process of the fit."""
        if self.polished is None:
            return "which counts most in forecasts: fewer terms could not be fitted"
        excess = _excess(self.polished)
        found = "cannot be judged" if np.isinf(excess) else f"is {excess:.2g} times its mean"
        noise = "noise in proportion to the state" if self.proportional else "the noise as asked"
        if name == POLISHED and self.explained:
            n_terms = int(np.sum(self.polished.evidence.alive)) if self.polished.evidence else 0
            return f"since chi-squared of its {n_terms} terms and {noise} {found}"
        return f"which counts most in forecasts: chi-squared of few terms {found}"

    def solution(self, problem: Problem, name: str, log: PassLog) -> Solution:
        """The solution that one of them is."""
        if name == POLISHED:
            assert self.polished is not None
            if self.is_whole:
                return self.polished
            own = bridge_solution(problem, POLISHED, self.ends[Sparse.name], log)
            own = replace(own, process=self.polished.process)
        else:
            own = bridge_solution(problem, name, self.ends[name], log)
        doubts = () if self.polished is None else tuple(self.polished.doubts())
        return replace(own, contradictions=(*own.contradictions, *doubts))


@dataclass(frozen=True, eq=False)
class Engine:
    """How candidates are found."""

    bridge: Bridge

    @property
    def n_passes(self) -> int:
        """Passes of a smooth and a sparse fit."""
        return self.bridge.n_passes + max(1, self.bridge.n_passes // 2)

    def fitted(self, problem: Problem, log: PassLog) -> Candidates:
        """All candidates."""
        ends = self._coupled(problem, log)
        few = thinned(problem, _FEW_POINTS)
        most = _MOST_DIMS_WITH_CLOCK if problem.time_varying else _MOST_DIMS
        if problem.snapshots.n_dims > most or Sparse.name not in ends:
            return Candidates(ends, None, is_whole=True)
        end = _polish(few, ends[Sparse.name], log)
        if end is not None and end.doubts() and _may_be_proportional(problem):
            end = self._proportional(few, end, ends, log)
        if few is problem or end is None or end.doubts():
            return Candidates(ends, end, is_whole=few is problem)
        solver = end.solver
        assert isinstance(solver, Moments)
        whole = polished(problem, solver, end.process, end.dictionary, log.listeners)
        return Candidates(ends, end if whole is None else whole, is_whole=whole is not None)

    def fitted_again(
        self, rest: Problem, names: Sequence[str], log: PassLog, *, proportional: bool
    ) -> dict[str, ItoProcess]:
        """The processes of these names for other snapshots, with fewer points and draws.

        Whether the noise of few terms is `proportional` to the state is not asked again.
        """
        n_passes = max(4, 2 * self.bridge.n_passes // 3)
        n_points = min(_POINTS_A_PASS, self.bridge.n_points)
        quicker = replace(self.bridge, n_passes=n_passes, n_points=n_points)
        ends = Engine(quicker)._coupled(rest, log, proportional=proportional)
        processes = {name: end.process for name, end in ends.items()}
        if POLISHED in names and Sparse.name in ends:
            processes[POLISHED] = _polished_again(rest, ends[Sparse.name].process)
        # What did not come about here is judged as the drift that always does.
        return {name: processes.get(name, processes[Smooth.name]) for name in names}

    def _proportional(
        self, few: Problem, plain: MomentsSolution, ends: dict[str, Pass], log: PassLog
    ) -> MomentsSolution:
        """The polish with noise in proportion to the state, where chi-squared asks for it.

        The sparse end is then that of this noise, too.
        """
        try:
            sparse = self.bridge.sparse(few, _with_proportional_noise(few, ends[Smooth.name]), log)
        except (FloatingPointError, np.linalg.LinAlgError):
            return plain
        other = _polish(few, sparse, log)
        if other is None or not _excess(other) < _BETTER * _excess(plain):
            return plain
        ends[Sparse.name] = sparse
        return other

    def _coupled(
        self, problem: Problem, log: PassLog, *, proportional: bool = False
    ) -> dict[str, Pass]:
        """The smooth drift, and a sparse one unless its flow runs away at once."""
        ends = {Smooth.name: self.bridge.smooth(problem, log)}
        if not problem.time_varying:
            with contextlib.suppress(FloatingPointError, np.linalg.LinAlgError):
                ends[CLOCKED] = self.bridge.clocked(problem, ends[Smooth.name], log)
        if _POTENTIAL_TOO and not problem.has_potential:
            with contextlib.suppress(FloatingPointError, np.linalg.LinAlgError):
                ends[CONFINED] = self.bridge.confined(problem, ends[Smooth.name], log)
        start = ends[Smooth.name]
        if proportional:
            start = _with_proportional_noise(problem, start)
        with contextlib.suppress(FloatingPointError, np.linalg.LinAlgError):
            ends[Sparse.name] = self.bridge.sparse(problem, start, log)
        return ends


def _polished_again(rest: Problem, sparse: ItoProcess) -> ItoProcess:
    """A polish for judging, by fewer points and draws; the sparse process where it fails."""
    few = thinned(rest, _FEWER_POINTS)
    solver = Moments(n_draws=_FEW_DRAWS, n_iter=_FEW_STEPS)
    after = polished_process(few, solver, sparse, _terms_of(few, sparse))
    return sparse if after is None else _in_terms_of(sparse.drift, after)


def _in_terms_of(every: AbstractDrift, process: ItoProcess) -> ItoProcess:
    """The same process with coefficients of 0 for the terms that left: one program serves all."""
    drift = process.drift
    assert isinstance(every, AbstractLinearDrift)
    assert isinstance(drift, AbstractLinearDrift)
    terms = _monomials(every)
    kept = [terms.index(term) for term in _monomials(drift)]
    W = np.zeros(every.coefficients.shape)
    W[kept] = np.asarray(drift.coefficients)
    return ItoProcess(every.with_coefficients(jnp.asarray(W, dtype=float)), process.diffusion)


def _monomials(drift: AbstractLinearDrift) -> list[tuple[int, ...]]:
    features = drift.features
    parts = features.parts if isinstance(features, Joined) else (features,)
    return [term for part in parts for term in getattr(part, "terms", ())]


def _terms_of(problem: Problem, sparse: ItoProcess) -> Dictionary:
    """The possible terms; powers are frozen outside the box that the start was fitted in."""
    features = getattr(sparse.drift, "features", None)
    return sparse_for(problem).dictionary._replace(features=features)


def thinned(problem: Problem, most: int) -> Problem:
    """The problem with at most so many points a snapshot; the same where none has more."""
    snapshots = problem.snapshots
    if max(snapshots.counts) <= most:
        return problem
    rng = problem.streams.rng(Stream.thinning)
    rows = [rng.permutation(n)[:most] for n in snapshots.counts]
    clouds = [x[chosen] for x, chosen in zip(snapshots.clouds, rows, strict=True)]
    weights = [w[chosen] for w, chosen in zip(snapshots.weights, rows, strict=True)]
    few = type(snapshots).from_arrays(clouds, snapshots.times, weights, snapshots.names)
    return problem.between(few)


def _polish(problem: Problem, sparse: Pass, log: PassLog) -> MomentsSolution | None:
    dictionary = _terms_of(problem, sparse.process)
    return polished(problem, POLISHER, sparse.process, dictionary, log.listeners)


def _may_be_proportional(problem: Problem) -> bool:
    """Whether any noise may be learned, and all coordinates are positive."""
    is_open = isinstance(problem.sigma, str) and problem.sigma == LEARN
    return is_open and all(np.all(x > 0.0) for x in problem.observed.clouds)


def _with_proportional_noise(problem: Problem, end: Pass) -> Pass:
    process = end.process
    noise = proportional_noise(process.diffusion, problem.scaling)
    return replace(end, process=ItoProcess(process.drift, noise))


def _excess(solution: MomentsSolution) -> float:
    """Of chi-squared; infinite where nothing can be judged."""
    assert solution.evidence is not None
    return float(np.nan_to_num(solution.evidence.excess, nan=np.inf))
