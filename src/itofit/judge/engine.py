"""The candidates of a fit: a smooth drift and a sparse one, both polished, and one with a clock.

fitted(problem)              all of them
fitted_again(rest, names)    those that are still in question, on other snapshots
"""

import contextlib
from dataclasses import dataclass, replace

import jax.numpy as jnp
import numpy as np

from itofit.bridge.iteration import Pass
from itofit.bridge.misses import worst_miss
from itofit.bridge.solution import PassLog, bridge_solution
from itofit.bridge.solver import Bridge
from itofit.bridge.structures import Smooth, Sparse, smooth_for, sparse_for
from itofit.moments.phases import STAYING
from itofit.moments.polishing import Start, polished, polished_process
from itofit.moments.solution import MomentsSolution
from itofit.moments.solver import Moments
from itofit.moments.valley import at_the_small_end
from itofit.problem import Problem, Stream
from itofit.process.drift import AbstractDrift, AbstractLinearDrift
from itofit.process.features import Dictionary, Joined
from itofit.process.ito import ItoProcess
from itofit.process.noise import LEARN, LearnedDiffusion, MultiplicativeForm, proportional_noise
from itofit.solution import Solution

POLISHED = "polished"
REFINED = "smooth polished"
CLOCKED = "in time"
CONFINED = "potential"
# What candidates count before judging. A polished one counts this part of all others together
# where chi-squared is what it should be, and half of that where it is larger by this factor less
# one.
_BELIEVED = {Smooth.name: 0.75, Sparse.name: 0.12, CLOCKED: 0.06, CONFINED: 0.4}
_POLISHED_SHARE = {POLISHED: 0.85, REFINED: 0.6}
_HALF_BELIEVED = 1.5
# What is left of this where a process misses a snapshot that it was fitted to and none can judge.
_MISSING = 0.01
# Coordinates up to which few terms, and a smooth drift, are polished; up to which a drift with a
# potential is a candidate, whose terms are as many as there are pairs of them.
_MOST_DIMS = 20
_MOST_DIMS_SMOOTH = 10
_MOST_DIMS_CONFINED = 10
_MOST_DIMS_WITH_CLOCK = 15
# Points a snapshot that are polished on; all of them only where chi-squared allows the terms.
_FEW_POINTS = 500
# Coefficients of a smooth drift up to which it has error bars.
_MOST_WITH_ERRORS = 1000
# What polishes: terms, a smooth drift.
POLISHER = Moments(n_draws=4, n_iter=40)
REFINER = Moments(n_draws=2, n_iter=16)
_POLISHERS = {POLISHED: POLISHER, REFINED: REFINER}
# In judging: points that a pass looks at; points, draws and steps of a polish.
_POINTS_A_PASS = 256
_FEWER_POINTS = 256
_FEW_DRAWS = 2
_FEW_STEPS = 10
_FEW_STEPS_SMOOTH = 8


@dataclass(frozen=True, eq=False)
class Candidates:
    """Fits of one problem.

    - `polished`: by name; those whose polish broke down, or would take too long, are missing.
    - `is_whole`: whether the one that explains the snapshots was polished on all points.
    """

    ends: dict[str, Pass]
    polished: dict[str, MomentsSolution]
    is_whole: bool

    @property
    def processes(self) -> dict[str, ItoProcess]:
        """By name; a sparse drift is one only where its terms could not be polished."""
        found = {name: end.process for name, end in self.ends.items()}
        if REFINED in self.polished:
            found[REFINED] = self.polished[REFINED].process
        if POLISHED in self.polished:
            terms = found.pop(Sparse.name).drift
            found[POLISHED] = _in_terms_of(terms, self.polished[POLISHED].process)
        return found

    @property
    def believed(self) -> dict[str, float]:
        """What every process counts before judging, a polished one by its chi-squared."""
        return {
            name: self._believed(name) if name in self.polished else _BELIEVED[name]
            for name in self.processes
        }

    def met(self, problem: Problem) -> dict[str, float]:
        """The same where nothing can be left out: what misses its own snapshots hardly counts."""
        return {
            name: count * (1.0 if worst_miss(problem, self.processes[name]) is None else _MISSING)
            for name, count in self.believed.items()
        }

    def _believed(self, name: str) -> float:
        """The odds of a polished process against the others, which count about one."""
        excess = _excess(self.polished[name])
        if np.isinf(excess):
            return _BELIEVED[Sparse.name]
        beyond = max(excess - 1.0, 0.0) / _HALF_BELIEVED
        share = _POLISHED_SHARE[name] / (1.0 + beyond**2)
        return share / (1.0 - share)

    @property
    def traits(self) -> "Traits":
        """What judging does not ask again."""
        refined = self.polished.get(REFINED)
        from_refined = refined is not None and not refined.doubts()
        return Traits(tuple(self.processes), self._proportional, from_refined)

    @property
    def _proportional(self) -> bool:
        if POLISHED not in self.polished:
            return False
        diffusion = self.polished[POLISHED].process.diffusion
        return isinstance(diffusion, LearnedDiffusion) and isinstance(
            diffusion.form, MultiplicativeForm
        )

    @property
    def explained(self) -> str | None:
        """The polished process that explains the snapshots: of few terms, else the smooth one."""
        if not self.is_whole:
            return None
        if POLISHED in self.polished and not self.polished[POLISHED].doubts():
            return POLISHED
        refined = self.polished.get(REFINED)
        if refined is None or refined.doubts():
            return None
        assert refined.evidence is not None
        return REFINED if refined.evidence.coefficients.size <= _MOST_WITH_ERRORS else None

    def why(self, name: str) -> str:
        """Why this one is the process of the fit."""
        terms = self._said_of_terms
        if name != self.explained:
            return f"which counts most in forecasts: {terms}"
        if name == POLISHED:
            return f"since {terms}"
        own = _excess(self.polished[REFINED])
        return f"since its chi-squared is {own:.2g} times its mean; {terms}"

    @property
    def _said_of_terms(self) -> str:
        """What chi-squared says of few terms."""
        if POLISHED not in self.polished:
            return "few terms could not be fitted"
        excess = _excess(self.polished[POLISHED])
        found = "cannot be judged" if np.isinf(excess) else f"is {excess:.2g} times its mean"
        noise = "noise in proportion to the state" if self._proportional else "the noise as asked"
        evidence = self.polished[POLISHED].evidence
        n_terms = 0 if evidence is None else int(np.sum(evidence.alive))
        return f"chi-squared of {n_terms} terms and {noise} {found}"

    def solution(self, problem: Problem, name: str, log: PassLog) -> Solution:
        """The solution that one of them is."""
        if name == self.explained:
            return at_the_small_end(self.polished[name], _POLISHERS[name])
        if name in self.polished:
            start = self.ends[Sparse.name if name == POLISHED else Smooth.name]
            own = bridge_solution(problem, name, start, log)
            own = replace(own, process=self.polished[name].process)
        else:
            own = bridge_solution(problem, name, self.ends[name], log)
        doubts = [tuple(one.doubts()) for one in self.polished.values()]
        return replace(own, contradictions=(*own.contradictions, *(doubts[-1] if doubts else ())))


@dataclass(frozen=True)
class Traits:
    """What is known of the candidates of all snapshots when some are left out.

    - `proportional`: whether the noise of the polished process is in proportion to the state.
    - `from_refined`: whether the polished smooth drift explains the snapshots; a sparse one then
      begins there.
    """

    names: tuple[str, ...]
    proportional: bool
    from_refined: bool


@dataclass(frozen=True, eq=False)
class Engine:
    """How candidates are found."""

    bridge: Bridge

    @property
    def n_passes(self) -> int:
        """Passes of a smooth and a sparse fit."""
        return self.bridge.n_passes + max(1, self.bridge.n_passes // 2)

    def thinning(self, problem: Problem) -> str:
        """What is not looked at of large snapshots, in words; nothing of small ones."""
        most = max(problem.snapshots.counts)
        if most <= min(self.bridge.n_points, _FEW_POINTS):
            return ""
        return (
            f"of up to {most} points a snapshot a pass looks at {self.bridge.n_points}, drawn "
            f"anew, a polish first at {_FEW_POINTS}; fits without a snapshot at {_POINTS_A_PASS}"
        )

    def fitted(self, problem: Problem, log: PassLog) -> Candidates:
        """All candidates."""
        ends = self._smooth_ends(problem, log)
        few = thinned(problem, _FEW_POINTS)
        refined = self._refined(few, ends[Smooth.name], log)
        start = ends[Smooth.name]
        if refined is not None and not refined.doubts():
            start = start.at(refined.process)
        sparse = self._sparse_end(problem, start, log)
        terms = None
        if sparse is not None:
            ends[Sparse.name] = sparse
            terms = self._few_terms(problem, few, ends, log)
        found = {POLISHED: terms, REFINED: refined}
        polished = {name: one for name, one in found.items() if one is not None}
        return self._on_all_points(problem, few, Candidates(ends, polished, is_whole=True), log)

    def fitted_again(self, rest: Problem, before: "Traits", log: PassLog) -> dict[str, ItoProcess]:
        """The processes of candidates for other snapshots, with fewer points and draws."""
        n_passes = max(4, 2 * self.bridge.n_passes // 3)
        n_points = min(_POINTS_A_PASS, self.bridge.n_points)
        quicker = Engine(replace(self.bridge, n_passes=n_passes, n_points=n_points))
        ends = quicker._smooth_ends(rest, log)
        smooth = ends[Smooth.name]
        processes = {name: end.process for name, end in ends.items()}
        if REFINED in before.names:
            start = self._smooth_start(rest, smooth)
            solver = Moments(n_draws=_FEW_DRAWS, n_iter=_FEW_STEPS_SMOOTH)
            refined = polished_process(thinned(rest, _FEWER_POINTS), solver, start)
            if refined is not None:
                processes[REFINED] = refined
                smooth = smooth.at(refined) if before.from_refined else smooth
        if before.proportional:
            smooth = _with_proportional_noise(rest, ends[Smooth.name])
        sparse = quicker._sparse_end(rest, smooth, log)
        if sparse is not None:
            processes[Sparse.name] = sparse.process
            if POLISHED in before.names:
                processes[POLISHED] = _polished_again(rest, sparse.process)
        # What did not come about here is judged as the drift that always does.
        return {name: processes.get(name, processes[Smooth.name]) for name in before.names}

    def _smooth_ends(self, problem: Problem, log: PassLog) -> dict[str, Pass]:
        """The smooth drift, and those of more and of less freedom that begin at it."""
        smooth = self.bridge.smooth(problem, log)
        ends = {Smooth.name: smooth}
        if not problem.time_varying:
            with contextlib.suppress(FloatingPointError, np.linalg.LinAlgError):
                ends[CLOCKED] = self.bridge.clocked(problem, smooth, log)
        # In one coordinate every drift has a potential.
        if not problem.has_potential and 1 < problem.snapshots.n_dims <= _MOST_DIMS_CONFINED:
            with contextlib.suppress(FloatingPointError, np.linalg.LinAlgError):
                ends[CONFINED] = self.bridge.confined(problem, smooth, log)
        return ends

    def _sparse_end(self, problem: Problem, smooth: Pass, log: PassLog) -> Pass | None:
        """A sparse drift, from a smooth one; None where its flow runs away at once."""
        try:
            return self.bridge.sparse(problem, smooth, log)
        except (FloatingPointError, np.linalg.LinAlgError):
            return None

    def _smooth_start(self, problem: Problem, smooth: Pass) -> Start:
        """The smooth drift where it is polished, under the prior that its passes found."""
        dictionary = smooth_for(problem, self.bridge.n_features).dictionary
        precision = smooth.regression.strengths.precision
        return Start(smooth.process, dictionary, precision, STAYING)

    def _refined(self, few: Problem, smooth: Pass, log: PassLog) -> MomentsSolution | None:
        """The smooth drift, polished."""
        if not _may_be_polished(few, _MOST_DIMS_SMOOTH):
            return None
        return polished(few, REFINER, self._smooth_start(few, smooth), log.listeners)

    def _few_terms(
        self, problem: Problem, few: Problem, ends: dict[str, Pass], log: PassLog
    ) -> MomentsSolution | None:
        """The sparse drift, polished, with the noise that is asked for or the one that fits."""
        if not _may_be_polished(few, _MOST_DIMS):
            return None
        end = _polish(few, ends[Sparse.name], log)
        if end is not None and _may_be_proportional(problem):
            return self._proportional(few, end, ends, log)
        return end

    def _proportional(
        self,
        few: Problem,
        plain: MomentsSolution,
        ends: dict[str, Pass],
        log: PassLog,
    ) -> MomentsSolution:
        """The polish with noise in proportion to the state, where that says more with fewer terms.

        Terms can make up for noise of the wrong kind between the snapshots, and not after them. The
        sparse end is then that of this noise, too. A polished smooth drift makes up for noise
        that is not: it is no start here.
        """
        smooth = _with_proportional_noise(few, ends[Smooth.name])
        sparse = self._sparse_end(few, smooth, log)
        other = None if sparse is None else _polish(few, sparse, log)
        if sparse is None or other is None or not _charged(other) < _charged(plain):
            return plain
        ends[Sparse.name] = sparse
        return other

    def _on_all_points(
        self, problem: Problem, few: Problem, candidates: Candidates, log: PassLog
    ) -> Candidates:
        """What explains few points of every snapshot, polished again on all of them."""
        name = candidates.explained
        if few is problem or name is None:
            return replace(candidates, is_whole=few is problem)
        before = candidates.polished[name]
        start = Start(before.process, before.dictionary)
        solver = POLISHER
        if name == REFINED:
            smooth = self._smooth_start(problem, candidates.ends[Smooth.name])
            start = replace(smooth, process=before.process)
            solver = REFINER
        whole = polished(problem, solver, start, log.listeners)
        if whole is None:
            return replace(candidates, is_whole=False)
        after = replace(candidates, polished=candidates.polished | {name: whole})
        # All points may contradict few terms where the smooth drift still explains the few points.
        if after.explained in (None, name):
            return after
        return self._on_all_points(problem, few, after, log)


def _polished_again(rest: Problem, sparse: ItoProcess) -> ItoProcess:
    """A polish for judging, by fewer points and draws; the sparse process where it fails."""
    few = thinned(rest, _FEWER_POINTS)
    solver = Moments(n_draws=_FEW_DRAWS, n_iter=_FEW_STEPS)
    after = polished_process(few, solver, Start(sparse, _terms_of(few, sparse)))
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
    start = Start(sparse.process, _terms_of(problem, sparse.process))
    return polished(problem, POLISHER, start, log.listeners)


def _may_be_polished(problem: Problem, most: int) -> bool:
    """Whether chains and their slopes are quick enough in so many coordinates."""
    most = min(most, _MOST_DIMS_WITH_CLOCK) if problem.time_varying else most
    return problem.snapshots.n_dims <= most


def _may_be_proportional(problem: Problem) -> bool:
    """Whether any noise may be learned, and all coordinates are positive."""
    is_open = isinstance(problem.sigma, str) and problem.sigma == LEARN
    return is_open and all(np.all(x > 0.0) for x in problem.observed.clouds)


def _with_proportional_noise(problem: Problem, end: Pass) -> Pass:
    process = end.process
    noise = proportional_noise(process.diffusion, problem.scaling)
    return replace(end, process=ItoProcess(process.drift, noise))


def _charged(solution: MomentsSolution) -> float:
    """Chi-squared, and what Schwarz's criterion charges for what the drift and the noise take."""
    evidence = solution.evidence
    assert evidence is not None
    n_rows = float(np.sum(evidence.n_rows))
    return float(np.sum(evidence.chi2 + np.log(n_rows) * evidence.n_determined))


def _excess(solution: MomentsSolution) -> float:
    """Of chi-squared; infinite where nothing can be judged."""
    assert solution.evidence is not None
    return float(np.nan_to_num(solution.evidence.excess, nan=np.inf))
