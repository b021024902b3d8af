"""Data, floors and scores of one fit.

Reading B: t0 = 0 and x0 is known. Reading A: t0 is the first snapshot after 0, and earlier times
are not scored. Training and test particles are independent. Where the paper follows one set of
particles both parts do, Syn-2 takes fresh ones at every time, the start rows included; rows are
shuffled after the split.

A distance compares the model, grown from the test start rows, with the test cloud; its floor is
what the truth, grown from the same rows, scores against the same cloud. The critic's floor comes
from 5 draws instead of 20: each is a training of its own. `population` compares large clouds from
the true initial law, its floor the truth with the same start and the same true cloud, over 5 draws.
Floors do not depend on the method and are made once per case.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PRNGKeyArray

from itofit import InputError, KnownSystem, Snapshots
from itofit.face import Face
from itofit.metrics import W1, coordinate_W1, critic_distance, population_error, sliced_W1
from itofit.metrics.floor import Metric, draw_rows, plain_weights, truth_draws
from itofit.snapshots.clouds import Snapshot

DISTANCES: dict[str, Metric] = {
    "W1": W1,
    "sliced_W1": sliced_W1,
    "coordinate_W1": coordinate_W1,
    "critic": critic_distance,
}
METRICS = (*DISTANCES, "population")
READINGS = {"A": 1, "B": 0}  # position of t0 among the training times

Push = Callable[[np.ndarray, Sequence[float]], Sequence[np.ndarray]]

# A method's own keys grow from key(seed); the data must not share their streams.
_DATA_KEYS = 1_000_000


@dataclass(frozen=True)
class Sizes:
    """Points a time and draws a floor; `draws` and `critic_draws` are at most the 20 of
    `truth_draws`.
    """

    n_train: int = 1200
    n_test: int = 800
    n_population: int = 20_000
    draws: int = 20
    critic_draws: int = 5
    population_draws: int = 5


class Level(NamedTuple):
    """A floor: mean and sd over draws of the truth."""

    mean: float
    sd: float


class Score(NamedTuple):
    """One number of a fit; `value` is None where the method says nothing about that time."""

    time: float
    metric: str
    value: float | None
    floor: Level


def test_times(system: KnownSystem, reading: str) -> list[float]:
    """The times that are scored under this reading."""
    return [t for t in system.test_times if t > system.train_times[READINGS[reading]]]


@dataclass(frozen=True)
class Case:
    """What every method of one system, reading and seed shares: data and floors."""

    system: KnownSystem
    reading: str
    seed: int
    sizes: Sizes
    metrics: tuple[str, ...] = METRICS

    @cached_property
    def training(self) -> Snapshots:
        """The training snapshots from t0 on: those of reading A are the later ones of reading B."""
        every = self.system.observe(self.sizes.n_train, self.system.train_times, key=self.key(0))
        return every.select(range(READINGS[self.reading], len(every)))

    @cached_property
    def start(self) -> Snapshot:
        """The test rows at t0, from which models and truth are grown."""
        return self._held_out.at(self.system.train_times[READINGS[self.reading]])

    @cached_property
    def tests(self) -> Snapshots:
        """The test clouds."""
        positions = [self._held_out.index(t) for t in test_times(self.system, self.reading)]
        return self._held_out.select([i for i in positions if i is not None])

    @cached_property
    def _held_out(self) -> Snapshots:
        # Both possible t0 are in the grid, so that both readings are scored on the same test
        # clouds.
        grid = sorted({*self.system.train_times[:2], *self.system.test_times})
        return self.system.observe(self.sizes.n_test, grid, key=self.key(1))

    @cached_property
    def floors(self) -> dict[tuple[float, str], Level]:
        """Floor by time and metric."""
        lags = [t - self.start.time for t in self.times]
        draws = truth_draws(self.system, self.start.points, lags, key=self.key(2))
        scores: dict[tuple[float, str], list[float]] = {}
        for i, test in enumerate(self.tests):
            for name, metric in self._distances.items():
                n_draws = self.sizes.critic_draws if name == "critic" else self.sizes.draws
                scores[test.time, name] = [
                    metric(clouds[i], test.points) for clouds in draws[:n_draws]
                ]
        if "population" in self.metrics:
            errors = [self.population(self._truth(k)) for k in range(self.sizes.population_draws)]
            scores |= {(t, "population"): [e[i] for e in errors] for i, t in enumerate(self.times)}
        return {
            cell: Level(float(np.mean(s)), float(np.std(s, ddof=1))) for cell, s in scores.items()
        }

    def population(self, push: Push) -> list[float]:
        """Population errors of `push` at the test times; NaN where it gives NaN."""
        n = self.sizes.n_population
        return population_error(push, self.system, self.times, key=self.key(3), n=n)

    def key(self, purpose: int) -> PRNGKeyArray:
        """A key for one purpose, of this seed."""
        return jax.random.fold_in(jax.random.key(_DATA_KEYS + self.seed), purpose)

    @property
    def times(self) -> list[float]:
        """The test times."""
        return self.tests.times.tolist()

    @property
    def _distances(self) -> dict[str, Metric]:
        return {name: DISTANCES[name] for name in self.metrics if name in DISTANCES}

    def _truth(self, draw: int) -> Push:
        key = jax.random.fold_in(self.key(4), draw)

        def push(start: np.ndarray, times: Sequence[float]) -> list[np.ndarray]:
            return [
                np.asarray(x) for x in self.system.push(jnp.asarray(start, dtype=float), times, key)
            ]

        return push

    def score(self, model: Face) -> list[Score]:
        """Every asked metric at every test time."""
        scores: list[Score] = []
        for test, cloud in zip(self.tests, carried(model, self.times, self.start), strict=True):
            for name, metric in self._distances.items():
                value = None
                if cloud is not None:
                    value = _distance(metric, _thinned(cloud, len(test.points)), test)
                scores.append(Score(test.time, name, value, self.floors[test.time, name]))
        if "population" in self.metrics:
            errors = self.population(lambda start, times: self._grown(model, start, times))
            for time, error in zip(self.times, errors, strict=True):
                value = error if np.isfinite(error) else None
                scores.append(Score(time, "population", value, self.floors[time, "population"]))
        return scores

    def _grown(self, model: Face, start: np.ndarray, times: Sequence[float]) -> list[np.ndarray]:
        """The model's clouds from rows of the initial law, which the truth carries to t0; NaN where
        undefined.
        """
        rows = self.system.push(jnp.asarray(start, dtype=float), [self.start.time], self.key(5))[0]
        first = Snapshot(
            self.start.time, np.asarray(rows, dtype=np.float64), np.full(len(rows), 1.0 / len(rows))
        )
        nothing = np.full(start.shape, np.nan)
        return [nothing if c is None else _even(c) for c in carried(model, times, first)]


def carried(model: Face, times: Sequence[float], first: Snapshot) -> list[Snapshot | None]:
    """The model's clouds grown from `first`, as `Face.scorecard` grows them; None where the model
    refuses a time.
    """

    def at(wanted: Sequence[float]) -> list[Snapshot | None]:
        return list(model._carry(np.asarray(wanted, dtype=np.float64), None, "initial", first))

    try:
        return at(times)
    except InputError:
        if len(times) == 1:
            return [None]
        return [cloud for time in times for cloud in carried(model, [time], first)]


def _distance(metric: Metric, cloud: Snapshot, test: Snapshot) -> float:
    return metric(
        cloud.points, test.points, plain_weights(cloud.weights), plain_weights(test.weights)
    )


def _thinned(cloud: Snapshot, n: int) -> Snapshot:
    """At most `n` points: a forecast made of training rows is read at the size the floor was made
    for.
    """
    if len(cloud.points) <= n:
        return cloud
    rows = draw_rows(np.random.default_rng(0), cloud.weights, n)
    return Snapshot(cloud.time, cloud.points[rows], np.full(n, 1.0 / n))


def _even(cloud: Snapshot) -> np.ndarray:
    """Points that count equally."""
    if plain_weights(cloud.weights) is None:
        return cloud.points
    return cloud.points[draw_rows(np.random.default_rng(0), cloud.weights, len(cloud.points))]
