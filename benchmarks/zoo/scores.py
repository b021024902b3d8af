"""The score of a forecast on a trial: exact W1 at equal sizes, and the floor beside it.

Of a known law the forecast has as many points as the cloud asked for, and the floor is what fresh
clouds of the law score against it, 20 of them. Of data, forecast and floor are held against halves
of the cloud asked for, 20 splits. A task that asks for several times has their mean.
"""

import zlib
from dataclasses import dataclass

import numpy as np
from benchmarks.zoo.rows import Fitted, Question
from benchmarks.zoo.task import Trial

from itofit.metrics import W1, W2, split_half_floor
from itofit.metrics.floor import N_DRAWS
from itofit.snapshots.clouds import Snapshot

# Exact transport is cubic in the number of points: no more are compared.
MOST_POINTS = 500


@dataclass(frozen=True)
class Score:
    """Distances of one forecast, means over the times asked for.

    - `W1`: at equal sizes. `W2`: of the same clouds, of data at full size up to 1000 points.
    - `full`: W1 of all points asked for; None unless wanted.
    """

    W1: float
    W2: float
    full: float | None = None


@dataclass(frozen=True)
class Floor:
    """What a perfect model scores: mean and sd over 20 draws."""

    floor: float
    floor_sd: float


def question(trial: Trial, starts: tuple[str, ...], *, full: bool = False) -> Question:
    """What a row is asked on a trial: the largest cloud of all that will be compared."""
    times = tuple(float(time) for time in trial.asked.times)
    most = max(trial.asked.counts) if full else max(len(test.points) for test in _tests(trial))
    return Question(times, most, starts)


def scored(trial: Trial, fitted: Fitted, asked: Question, start: str, *, full: bool) -> Score:
    """The score of a fitted row from one start; a forecast that is not finite is refused."""
    clouds = [np.asarray(cloud) for cloud in fitted.clouds(asked, start)]
    if not all(np.all(np.isfinite(cloud)) for cloud in clouds):
        raise FloatingPointError("the forecast is not finite")
    near = _near_data if trial.fresh is None else _near_law
    pairs = list(zip(clouds, _tests(trial), strict=True))
    whole = zip(clouds, trial.asked.clouds, strict=True)
    return Score(
        W1=float(np.mean([near(cloud, test) for cloud, test in pairs])),
        W2=float(np.mean([W2(_first(cloud, test), test.points) for cloud, test in pairs])),
        full=float(np.mean([W1(cloud, points) for cloud, points in whole])) if full else None,
    )


def floor(trial: Trial) -> Floor:
    """What a perfect model scores on a trial."""
    tests = _tests(trial)
    if trial.fresh is None:
        halves = [split_half_floor(W1, test, test) for test in tests]
        variance = np.sum([half.sd**2 for half in halves]) / len(halves) ** 2
        return Floor(float(np.mean([half.mean for half in halves])), float(np.sqrt(variance)))
    most = max(len(test.points) for test in tests)
    # Of every trial by itself; and fixed, so that all rows have the same floor.
    rng = np.random.default_rng(zlib.crc32(tests[0].points.tobytes()))
    # One simulation for all draws: particles are independent.
    particles = trial.fresh(rng, N_DRAWS * most)
    draws = particles.reshape(len(tests), N_DRAWS, most, -1)
    truths = [
        np.mean([_near_law(draws[k, i], test) for k, test in enumerate(tests)])
        for i in range(N_DRAWS)
    ]
    return Floor(float(np.mean(truths)), float(np.std(truths, ddof=1)))


def _tests(trial: Trial) -> list[Snapshot]:
    """The clouds asked for, as many points of each as are compared."""
    most = 2 * MOST_POINTS if trial.fresh is None else MOST_POINTS
    return [
        Snapshot(cloud.time, cloud.points[:most], _normalised(cloud.weights[:most]))
        for cloud in trial.asked
    ]


def _normalised(weights: np.ndarray) -> np.ndarray:
    return weights / np.sum(weights)


def _first(cloud: np.ndarray, test: Snapshot) -> np.ndarray:
    return cloud[: len(test.points)]


def _near_law(cloud: np.ndarray, test: Snapshot) -> float:
    return W1(_first(cloud, test), test.points)


def _near_data(cloud: np.ndarray, test: Snapshot) -> float:
    points = _first(cloud, test)
    model = Snapshot(test.time, points, np.full(len(points), 1.0 / len(points)))
    half = split_half_floor(W1, test, model)
    return half.mean + half.excess
