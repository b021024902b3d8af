"""Judging: snapshots are left out, one at a time, and every way to forecast them is tried.

    interior snapshots      bridges of a fit without them            -> weights between snapshots
    the last ones           paths of a fit to those before           -> weights after the last

A fit sees the other snapshots only, its scaling too.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np
from jaxtyping import Float

from itofit.bridge.solution import PassLog
from itofit.errors import InputError
from itofit.judge.processes import each
from itofit.judge.stacking import Energies, stacked
from itofit.problem import Problem, Stream
from itofit.process.ito import ItoProcess
from itofit.snapshots.clouds import Snapshot, Snapshots
from itofit.snapshots.scaling import Scaling
from itofit.solution import Judgement
from itofit.ways import FLOW, LINES, REST, Ways, ways_of

# Points of a forecast and of a snapshot left out that are compared.
_MOST_POINTS = 400
# Snapshots left out at the most: interior ones, and at the end.
MOST_INTERIOR = 3
MOST_LAST = 2
# What the ways that learn nothing count before judging, where all candidates but the polished one
# together count about one; and which part of a candidate's is that of its flow.
_TRIVIAL = {LINES: 0.25, REST: 0.06}
_OF_FLOW = 0.5
# Votes that a snapshot between others has on what comes after the last, and the other way round.
_OTHER_KIND = 0.2
# A forecast may leave the data by so many of their widths.
_FAR = 10.0

# A fit: the processes of all structures, by name; the log is told of its passes.
Fit = Callable[[Problem, PassLog], dict[str, ItoProcess]]


@dataclass(frozen=True, eq=False)
class LeftOut:
    """A snapshot left out, and the others."""

    snapshot: Snapshot
    rest: Problem
    beyond: bool


@dataclass(frozen=True, eq=False)
class Trial:
    """What is done with a snapshot left out: it can be pickled where its fit can."""

    fit: Fit
    ways: list[str]

    def __call__(self, fold: LeftOut, log: PassLog) -> Energies | None:
        """None for what cannot be fitted without this snapshot, and is not judged by it."""
        try:
            return _energies(fold, Ways(fold.rest, self.fit(fold.rest, log)), self.ways)
        except (FloatingPointError, np.linalg.LinAlgError):
            return None


@dataclass(frozen=True, eq=False)
class Verdict:
    """Weights of the ways, and how each did."""

    between: dict[str, float]
    beyond: dict[str, float]
    judgements: tuple[Judgement, ...]


def folds_of(problem: Problem) -> list[LeftOut]:
    """The snapshots to leave out: interior ones spread over time, and the last."""
    count = len(problem.observed)
    interior = np.arange(1, count - 1)
    if len(interior) > MOST_INTERIOR:
        places = np.linspace(0, len(interior) - 1, MOST_INTERIOR).round().astype(int)
        interior = interior[places]
    n_last = 0 if count < 3 else (MOST_LAST if count >= 5 else 1)
    folds = [_left_out(problem, int(k), range(count), beyond=False) for k in interior]
    folds += [
        _left_out(problem, k, range(k + 1), beyond=True) for k in range(count - n_last, count)
    ]
    return [fold for fold in folds if fold is not None]


def judged(
    problem: Problem, fit: Fit, believed: dict[str, float], log: PassLog, *, jobs: int = 1
) -> Verdict:
    """The weights that would have forecast the snapshots left out best; `jobs` processes judge.

    `believed` has what every candidate counts before that.
    """
    ways = ways_of(list(believed))
    energies = []
    judgements = []
    folds = folds_of(problem)
    for fold, found in zip(folds, each(Trial(fit, ways), folds, log, jobs), strict=True):
        if found is None:
            continue
        energies.append(found)
        single = np.eye(len(ways))
        scores = {way: found.distance(single[i]) for i, way in enumerate(ways)}
        judgements.append(Judgement(fold.snapshot.time, fold.beyond, scores))
    prior = prior_of(believed)
    last = np.asarray([judgement.beyond for judgement in judgements], dtype=bool)
    votes = [np.where(last == beyond, 1.0, _OTHER_KIND) for beyond in (False, True)]
    between, after = (stacked(energies, counts, prior) for counts in votes)
    return Verdict(
        between=dict(zip(ways, between.tolist(), strict=True)),
        beyond=dict(zip(ways, after.tolist(), strict=True)),
        judgements=tuple(judgements),
    )


def prior_of(believed: dict[str, float]) -> Float[np.ndarray, " n_ways"]:
    """What all ways count where nothing is left out."""
    counts = dict(_TRIVIAL)
    for name, count in believed.items():
        counts[name] = (1.0 - _OF_FLOW) * count
        counts[name + FLOW] = _OF_FLOW * count
    prior = np.asarray([counts[way] for way in ways_of(list(believed))])
    return prior / np.sum(prior)


def _left_out(problem: Problem, k: int, among: range, *, beyond: bool) -> LeftOut | None:
    """None where the others cannot be fitted, say since a coordinate varies in this one alone."""
    observed = problem.observed
    rest = observed.select([i for i in among if i != k])
    time = float(observed.times[k])
    try:
        scaling = Scaling.fit_core(rest)
    except InputError:
        return None
    posed = Problem.pose(
        rest,
        problem.sigma,
        _step(problem, rest),
        scaling=scaling,
        streams=problem.streams,
        time_varying=problem.time_varying,
        drift=problem.drift,
    )
    return LeftOut(observed.at(time), posed, beyond)


def _step(problem: Problem, rest: Snapshots) -> float | Literal["auto"]:
    """The user's own step, where the gaps are not shorter."""
    if not problem.step_given:
        return "auto"
    return min(problem.dt, float(np.max(np.diff(rest.times))))


def _energies(fold: LeftOut, ways: Ways, names: list[str]) -> Energies:
    rng = fold.rest.streams.rng(Stream.judging)
    n = len(fold.snapshot.points)
    rows = rng.permutation(n)[:_MOST_POINTS]
    truth = fold.snapshot.points[rows]
    weights = fold.snapshot.weights[rows] / np.sum(fold.snapshot.weights[rows])
    clouds = []
    for name in names:
        clouds.append(_tame(_forecast(ways, name, fold.snapshot.time, truth), truth))
    return Energies.of(clouds, truth, weights)


def _forecast(ways: Ways, name: str, time: float, truth: np.ndarray) -> np.ndarray:
    """The cloud of a way; one that runs to infinity is nowhere."""
    try:
        return ways.cloud(name, time, _MOST_POINTS).points
    except InputError:
        return np.full_like(truth, np.nan)


def _tame(cloud: np.ndarray, truth: np.ndarray) -> np.ndarray:
    """A cloud that ran away is judged by where it left the surroundings of the data."""
    middle = np.median(truth, axis=0)
    width = np.maximum(np.ptp(truth, axis=0), 1e-12)
    within = np.nan_to_num(cloud, nan=np.inf, posinf=np.inf, neginf=-np.inf)
    return np.clip(within, middle - _FAR * width, middle + _FAR * width)
