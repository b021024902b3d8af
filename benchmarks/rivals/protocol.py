"""What every adapter does alike: read the question, set its scale, begin, answer or decline.

    serve(fit)        fit(given) -> move,        move(leg) -> points at the end of the leg

What is asked for, its times included, is met by `move` alone. Everything is done in scaled
coordinates, taken from the points given: each coordinate by its mean and standard deviation, time
as s = (t - t_0) / h with h the median gap between snapshots. So evenly spaced snapshots lie at
s = 0, 1, 2, ..., as in the rivals' own examples, and a snapshot that is missing leaves a gap of 2.
This file runs in the rivals' environments: it needs numpy alone.
"""

import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, NoReturn

import numpy as np

CANNOT = 3
SAME_TIME = 1e-9
STARTS = ("previous", "initial")


class Leg(NamedTuple):
    """One way to go: from a snapshot, by its position and time, to a time asked for."""

    position: int
    begin: float
    end: float
    points: np.ndarray
    rng: np.random.Generator


Move = Callable[[Leg], np.ndarray]


@dataclass(frozen=True, eq=False)
class Given:
    """What a fit sees: snapshots in scaled coordinates, and a seed.

    - `times`: (n_times,), from 0; `clouds`: one array (n_samples, n_dims) a time.
    """

    times: np.ndarray
    clouds: tuple[np.ndarray, ...]
    seed: int

    @property
    def n_dims(self) -> int:
        """Coordinates of a point."""
        return self.clouds[0].shape[1]


@dataclass(frozen=True, eq=False)
class Question:
    """Snapshots, and what is asked of them.

    - `asked`: (k,), on the same scale as the times given; `n`: points wanted at each.
    - `starts`: each "previous" (the last snapshot before the time asked for) or "initial" (the
      first).
    - `centre`, `spread`: (n_dims,), of the user's coordinates.
    """

    given: Given
    asked: np.ndarray
    n: int
    starts: tuple[str, ...]
    centre: np.ndarray
    spread: np.ndarray

    def leg(self, start: str, end: float) -> Leg:
        """Points to carry to a time: each of the snapshot once before any of it twice."""
        times = self.given.times
        earlier = np.flatnonzero(times < end - SAME_TIME)
        if len(earlier) == 0:
            decline("no snapshot lies before the first time asked for")
        position = int(earlier[-1]) if start == "previous" else 0
        rank = int(np.searchsorted(np.unique(self.asked), end))
        rng = np.random.default_rng([self.given.seed, STARTS.index(start), rank])
        cloud = self.given.clouds[position]
        n_rounds = -(-self.n // len(cloud))
        rows = np.concatenate([rng.permutation(len(cloud)) for _ in range(n_rounds)])
        return Leg(position, float(times[position]), end, cloud[rows[: self.n]], rng)


def serve(fit: Callable[[Given], Move]) -> None:
    """Answer the question in the file that the first argument names, in the file of the second."""
    question = read(sys.argv[1])
    ways = [[question.leg(start, float(t)) for t in question.asked] for start in question.starts]
    began = time.perf_counter()
    move = fit(question.given)
    clouds = np.array([[move(leg) for leg in legs] for legs in ways])
    seconds = time.perf_counter() - began
    answer(sys.argv[2], question, clouds, seconds)


def read(path: str | Path) -> Question:
    """The question in a file that `benchmarks.rivals.run` wrote."""
    with np.load(path) as file:
        content = dict(file)
    points = content["points"].astype(float)
    times, rank = np.unique(content["times"].astype(float), return_inverse=True)
    if len(times) < 2:
        decline("a fit needs snapshots at two times")
    unit = float(np.median(np.diff(times)))
    centre = points.mean(axis=0)
    deviation = points.std(axis=0)
    spread = np.where(deviation > 0.0, deviation, 1.0)
    scaled = (points - centre) / spread
    return Question(
        given=Given(
            times=(times - times[0]) / unit,
            clouds=tuple(scaled[rank == k] for k in range(len(times))),
            seed=int(content["seed"]),
        ),
        asked=(content["asked"].astype(float) - times[0]) / unit,
        n=int(content["n"]),
        starts=tuple(str(start) for start in content["starts"]),
        centre=centre,
        spread=spread,
    )


def answer(path: str | Path, question: Question, clouds: np.ndarray, seconds: float) -> None:
    """Write clouds (n_starts, k, n, n_dims), scaled, in the user's coordinates."""
    np.savez(path, clouds=clouds * question.spread + question.centre, seconds=seconds)


def decline(sentence: str) -> NoReturn:
    """End with the exit code that means: this method cannot do what is asked."""
    print(sentence, file=sys.stderr)
    raise SystemExit(CANNOT)
