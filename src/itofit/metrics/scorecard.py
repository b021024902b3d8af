"""The scorecard: per held-out time and metric the score, its floor, the excess, the trivial rows and a verdict."""

import math
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import jax
import numpy as np
from jaxtyping import PRNGKeyArray

from itofit.metrics.floor import (
    Floor,
    Metric,
    draw_rows,
    plain_weights,
    split_half_floor,
    system_floor,
    truth_draws,
)
from itofit.metrics.transport import W1, coordinate_W1, sliced_W1
from itofit.simulate.systems import KnownSystem
from itofit.snapshots.clouds import Snapshot, Snapshots

METRICS: dict[str, Metric] = {"W1": W1, "sliced_W1": sliced_W1, "coordinate_W1": coordinate_W1}

# Exact transport is cubic in the number of points: larger clouds are scored on this many of them.
MAX_POINTS = 2000

Row = Callable[[float], Snapshot | None]


@dataclass(frozen=True)
class Score:
    """One number with what it must be read against.

    - `value`: the full-size distance; `floor`, `floor_sd`, `excess`: see `floor_kind`.
    - `floor_kind`: `system` (draws of the truth at the model's size) or `split-half` (halves of the held-out
      cloud, so floor and excess are at half size while `value` is not).
    - `persistence`, `midpoint`: the same distance for the trivial rows; None where one is undefined.
    """

    time: float
    metric: str
    value: float
    floor: float
    floor_sd: float
    excess: float
    floor_kind: str
    n_model: int
    n_test: int
    persistence: float | None
    midpoint: float | None

    @property
    def at_floor(self) -> bool:
        """Whether the excess lies within 2 sd of the floor."""
        return self.excess <= 2.0 * self.floor_sd

    @property
    def loses_to_persistence(self) -> bool:
        """Whether doing nothing scores better."""
        return self.persistence is not None and self.value > self.persistence * (1.0 + 1e-9)


@dataclass(frozen=True, eq=False)
class Scorecard:
    """Scores for every held-out time; prints as a table, followed by `notes` on the fit."""

    scores: tuple[Score, ...]
    notes: tuple[str, ...] = ()

    def at(self, time: float) -> dict[str, Score]:
        """The scores at one time, by metric."""
        return {s.metric: s for s in self.scores if math.isclose(s.time, time, rel_tol=1e-12)}

    @property
    def times(self) -> list[float]:
        """The scored times."""
        return sorted({s.time for s in self.scores})

    def verdict(self, time: float) -> str:
        """`at the floor` when every metric is, else `above the floor`, or `worse than persistence` where it failed."""
        failed = [s for s in self.at(time).values() if not s.at_floor]
        if not failed:
            return "at the floor"
        return "worse than persistence" if any(s.loses_to_persistence for s in failed) else "above the floor"

    def to_records(self) -> list[dict[str, Any]]:
        """One plain dictionary a score, for JSON."""
        return [{**asdict(s), "verdict": self.verdict(s.time)} for s in self.scores]

    def __str__(self) -> str:
        numbers = f"{'score':>9}{'floor':>9}{'+-sd':>8}{'excess':>9}{'persist.':>10}{'midpoint':>10}"
        lines = [f"{'time':>8}  {'metric':<14}{numbers}  verdict"]
        for time in self.times:
            for i, s in enumerate(self.at(time).values()):
                lead, verdict = (f"{time:>8g}", self.verdict(time)) if i == 0 else (" " * 8, "")
                lines.append(
                    f"{lead}  {s.metric:<14}{s.value:>9.4f}{s.floor:>9.4f}{s.floor_sd:>8.4f}{s.excess:>9.4f}"
                    f"{_shown(s.persistence):>10}{_shown(s.midpoint):>10}  {verdict}"
                )
        return "\n".join(line.rstrip() for line in [*lines, self._footnote(), *self.notes])

    def _footnote(self) -> str:
        if any(s.floor_kind == "split-half" for s in self.scores):
            return (
                "floor: one half of the held-out cloud against the other; floor and excess are at half size, the score "
                "at full size"
            )
        return "floor: what the true process scores from the same start rows, mean and sd over 20 draws"


def score_snapshots(
    model: Snapshots,
    held_out: Snapshots,
    *,
    persistence: Row,
    midpoint: Row,
    truth: KnownSystem | None = None,
    start: Callable[[float], Snapshot] | None = None,
    seed: int = 0,
    metrics: dict[str, Metric] | None = None,
    notes: tuple[str, ...] = (),
) -> Scorecard:
    """Score the model's clouds against the held-out ones at the same times.

    With a known `truth`, `start(time)` is the snapshot from which the model grew its cloud at `time`.
    """
    tests = [_thinned(snapshot, seed) for snapshot in held_out]
    models = [_thinned(snapshot, seed) for snapshot in model]
    draws = None
    if truth is not None and start is not None:
        draws = [
            _truth_at(
                truth, start(test.time), test.time, len(cloud.points), jax.random.fold_in(jax.random.key(seed), i)
            )
            for i, (test, cloud) in enumerate(zip(tests, models, strict=True))
        ]
    scores: list[Score] = []
    for i, (test, cloud) in enumerate(zip(tests, models, strict=True)):
        idle, middle = persistence(test.time), midpoint(test.time)
        for name, metric in (metrics or METRICS).items():
            floor = (
                split_half_floor(metric, test, cloud, seed=seed)
                if draws is None
                else system_floor(metric, test, cloud, *draws[i])
            )
            scores.append(_score(name, metric, test, cloud, floor, idle, middle, known=draws is not None, seed=seed))
    return Scorecard(tuple(scores), notes)


def _score(name, metric, test, cloud, floor: Floor, idle, middle, *, known: bool, seed: int) -> Score:
    def against(row: Snapshot | None) -> float | None:
        if row is None:
            return None
        row = _thinned(row, seed)
        return metric(row.points, test.points, plain_weights(row.weights), plain_weights(test.weights))

    value = against(cloud)
    assert value is not None
    return Score(
        time=test.time,
        metric=name,
        value=value,
        floor=floor.mean,
        floor_sd=floor.sd,
        excess=floor.excess,
        floor_kind="system" if known else "split-half",
        n_model=len(cloud.points),
        n_test=len(test.points),
        persistence=against(idle),
        midpoint=against(middle),
    )


def _truth_at(
    truth: KnownSystem, begin: Snapshot, time: float, n: int, key: PRNGKeyArray
) -> tuple[list[np.ndarray], np.ndarray]:
    """Draws of the true process at `time` from the model's own start, and the weights of their points."""
    draws = truth_draws(truth, begin.points[:n], [time - begin.time], key=key)
    return [clouds[0] for clouds in draws], begin.weights[:n]


def _thinned(snapshot: Snapshot, seed: int) -> Snapshot:
    if len(snapshot.points) <= MAX_POINTS:
        return snapshot
    rows = draw_rows(np.random.default_rng(seed), snapshot.weights, MAX_POINTS)
    return Snapshot(snapshot.time, snapshot.points[rows], np.full(MAX_POINTS, 1.0 / MAX_POINTS))


def _shown(value: float | None) -> str:
    return "-" if value is None else f"{value:.4f}"
