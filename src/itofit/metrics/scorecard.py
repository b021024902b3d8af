"""The scorecard: for every held-out time and metric the score beside what it is read against.

That is its floor, the excess over it, the rows `persistence` and `midpoint`, and a verdict.
"""

import math
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

import jax
import numpy as np
from jaxtyping import PRNGKeyArray

from itofit.metrics.distances import W1, coordinate_W1, sliced_W1
from itofit.metrics.floor import (
    Metric,
    draw_rows,
    plain_weights,
    split_half_floor,
    system_floor,
    truth_draws,
)
from itofit.simulate.systems import KnownSystem
from itofit.snapshots.clouds import Snapshot, Snapshots

METRICS: dict[str, Metric] = {"W1": W1, "sliced_W1": sliced_W1, "coordinate_W1": coordinate_W1}

# Exact transport is cubic in the number of points: larger clouds are scored on this many of them.
MAX_POINTS = 2000

Row = Callable[[float], Snapshot | None]

_HEAD = (
    f"{'time':>8}  {'metric':<14}{'score':>9}{'floor':>9}{'+-sd':>8}{'excess':>9}"
    f"{'persist.':>10}{'midpoint':>10}  verdict"
)


@dataclass(frozen=True)
class Score:
    """One number with what it must be read against.

    Parameters
    ----------
    time : float
        The held-out time.
    metric : str
        The name of the distance.
    value : float
        The distance of the model's cloud from the held-out one, at full size.
    floor : float
        What a perfect model scores, in the mean.
    floor_sd : float
        The standard deviation of that score.
    excess : float
        The model's score over the floor.
    floor_kind : {"system", "split-half"}
        Draws of the truth at the model's size; or halves of the held-out cloud, so that floor and
        excess are at half size while `value` is not.
    n_model : int
        The number of the model's points that were scored.
    n_test : int
        The number of held-out points that were scored.
    persistence : float or None
        The same distance for the last snapshot before, unchanged; None where it is undefined.
    midpoint : float or None
        The same distance for the transport midpoint; None where it is undefined.

    Examples
    --------
    >>> from itofit.metrics import Score
    >>> score = Score(
    ...     time=1.0, metric="W1", value=0.5, floor=0.4, floor_sd=0.06, excess=0.1,
    ...     floor_kind="system", n_model=100, n_test=100, persistence=0.9, midpoint=None,
    ... )
    >>> score.at_floor, score.loses_to_persistence
    (True, False)
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
        """Whether the excess lies within 2 sd of the floor.

        Examples
        --------
        >>> from dataclasses import replace
        >>> from itofit.metrics import Score
        >>> score = Score(1.0, "W1", 0.5, 0.4, 0.06, 0.1, "system", 100, 100, 0.9, None)
        >>> score.at_floor, replace(score, excess=0.2).at_floor
        (True, False)
        """
        return self.excess <= 2.0 * self.floor_sd

    @property
    def loses_to_persistence(self) -> bool:
        """Whether doing nothing scores better.

        Examples
        --------
        >>> from dataclasses import replace
        >>> from itofit.metrics import Score
        >>> score = Score(1.0, "W1", 0.5, 0.4, 0.06, 0.1, "system", 100, 100, 0.9, None)
        >>> replace(score, value=1.2).loses_to_persistence
        True
        """
        return self.persistence is not None and self.value > self.persistence * (1.0 + 1e-9)


@dataclass(frozen=True, eq=False)
class Scorecard:
    """Scores for every held-out time; prints as a table.

    Parameters
    ----------
    scores : tuple of Score
        One for every held-out time and metric.
    notes : tuple of str, optional
        Remarks on the fit, printed below the table.

    Examples
    --------
    >>> from itofit import Scorecard
    >>> from itofit.metrics import Score
    >>> card = Scorecard((Score(1.0, "W1", 0.5, 0.4, 0.06, 0.1, "system", 100, 100, 0.9, None),))
    >>> print(card)  # doctest: +NORMALIZE_WHITESPACE
        time  metric            score    floor    +-sd   excess  persist.  midpoint  verdict
           1  W1               0.5000   0.4000  0.0600   0.1000    0.9000         -  at the floor
    floor: what the true process scores from the same start rows, mean and sd over 20 draws
    """

    scores: tuple[Score, ...]
    notes: tuple[str, ...] = ()

    def at(self, time: float) -> dict[str, Score]:
        """The scores at a time.

        Parameters
        ----------
        time : float
            A held-out time.

        Returns
        -------
        dict of str to Score
            One score for every metric, by its name; empty where the time was not scored.

        Examples
        --------
        >>> from itofit import Scorecard
        >>> from itofit.metrics import Score
        >>> score = Score(1.0, "W1", 0.5, 0.4, 0.06, 0.1, "system", 100, 100, 0.9, None)
        >>> Scorecard((score,)).at(1.0)["W1"].value
        0.5
        """
        return {s.metric: s for s in self.scores if math.isclose(s.time, time, rel_tol=1e-12)}

    @property
    def times(self) -> list[float]:
        """The scored times, increasing.

        Examples
        --------
        >>> from itofit import Scorecard
        >>> from itofit.metrics import Score
        >>> score = Score(1.0, "W1", 0.5, 0.4, 0.06, 0.1, "system", 100, 100, 0.9, None)
        >>> Scorecard((score,)).times
        [1.0]
        """
        return sorted({s.time for s in self.scores})

    def verdict(self, time: float) -> str:
        """The scores of a time in words.

        Parameters
        ----------
        time : float
            A held-out time.

        Returns
        -------
        str
            "at the floor" where every metric is; else "worse than persistence" where a metric above
            its floor loses to that row, and "above the floor" where none does.

        Examples
        --------
        >>> from itofit import Scorecard
        >>> from itofit.metrics import Score
        >>> score = Score(1.0, "W1", 0.5, 0.4, 0.06, 0.1, "system", 100, 100, 0.9, None)
        >>> Scorecard((score,)).verdict(1.0)
        'at the floor'
        """
        above = [s for s in self.at(time).values() if not s.at_floor]
        if not above:
            return "at the floor"
        loses = any(s.loses_to_persistence for s in above)
        return "worse than persistence" if loses else "above the floor"

    def to_records(self) -> list[dict[str, Any]]:
        """One plain dictionary a score, for JSON.

        Returns
        -------
        list of dict
            The fields of each score, and the verdict of its time.

        Examples
        --------
        >>> from itofit import Scorecard
        >>> from itofit.metrics import Score
        >>> score = Score(1.0, "W1", 0.5, 0.4, 0.06, 0.1, "system", 100, 100, 0.9, None)
        >>> Scorecard((score,)).to_records()[0]["verdict"]
        'at the floor'
        """
        return [{**asdict(s), "verdict": self.verdict(s.time)} for s in self.scores]

    def __str__(self) -> str:
        lines = [_HEAD]
        for time in self.times:
            first, *others = [_line(score) for score in self.at(time).values()]
            lines.append(f"{time:>8g}  {first}  {self.verdict(time)}")
            lines += [f"{'':>8}  {line}" for line in others]
        return "\n".join(line.rstrip() for line in [*lines, self._footnote(), *self.notes])

    def _footnote(self) -> str:
        if any(s.floor_kind == "split-half" for s in self.scores):
            return (
                "floor: one half of the held-out cloud against the other; floor and excess are at "
                "half size, the score at full size"
            )
        return (
            "floor: what the true process scores from the same start rows, mean and sd over 20 "
            "draws"
        )


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

    With a known `truth`, `start(time)` is the snapshot from which the model pushed its cloud to
    `time`.
    """
    scores: list[Score] = []
    for i, (test, cloud) in enumerate(zip(held_out, model, strict=True)):
        clouds = _Clouds(
            test=_thinned(test, seed),
            model=_thinned(cloud, seed),
            persistence=_thinned_row(persistence(test.time), seed),
            midpoint=_thinned_row(midpoint(test.time), seed),
        )
        draws = None
        if truth is not None and start is not None:
            key = jax.random.fold_in(jax.random.key(seed), i)
            draws = _truth_at(truth, start(test.time), test.time, len(clouds.model.points), key)
        for name, metric in (metrics or METRICS).items():
            scores.append(_score(name, metric, clouds, draws, seed))
    return Scorecard(tuple(scores), notes)


class _Clouds(NamedTuple):
    """What is scored at a time, and the held-out cloud that it is scored against."""

    test: Snapshot
    model: Snapshot
    persistence: Snapshot | None
    midpoint: Snapshot | None


class _Draws(NamedTuple):
    """Clouds of the true process, and the weights that the points of each have."""

    clouds: list[np.ndarray]
    weights: np.ndarray


def _score(name: str, metric: Metric, clouds: _Clouds, draws: _Draws | None, seed: int) -> Score:
    if draws is None:
        floor = split_half_floor(metric, clouds.test, clouds.model, seed=seed)
    else:
        floor = system_floor(metric, clouds.test, clouds.model, draws.clouds, draws.weights)
    return Score(
        time=clouds.test.time,
        metric=name,
        value=_distance(metric, clouds.model, clouds.test),
        floor=floor.mean,
        floor_sd=floor.sd,
        excess=floor.excess,
        floor_kind="split-half" if draws is None else "system",
        n_model=len(clouds.model.points),
        n_test=len(clouds.test.points),
        persistence=_row_distance(metric, clouds.persistence, clouds.test),
        midpoint=_row_distance(metric, clouds.midpoint, clouds.test),
    )


def _distance(metric: Metric, cloud: Snapshot, test: Snapshot) -> float:
    w = plain_weights(cloud.weights)
    return metric(cloud.points, test.points, w, plain_weights(test.weights))


def _row_distance(metric: Metric, row: Snapshot | None, test: Snapshot) -> float | None:
    return None if row is None else _distance(metric, row, test)


def _truth_at(
    truth: KnownSystem, begin: Snapshot, time: float, n: int, key: PRNGKeyArray
) -> _Draws:
    """Draws of the true process at `time` from the first `n` rows of the model's own start."""
    draws = truth_draws(truth, begin.points[:n], [time - begin.time], key=key)
    return _Draws([clouds[0] for clouds in draws], begin.weights[:n])


def _thinned(snapshot: Snapshot, seed: int) -> Snapshot:
    if len(snapshot.points) <= MAX_POINTS:
        return snapshot
    rows = draw_rows(np.random.default_rng(seed), snapshot.weights, MAX_POINTS)
    return Snapshot(snapshot.time, snapshot.points[rows], np.full(MAX_POINTS, 1.0 / MAX_POINTS))


def _thinned_row(row: Snapshot | None, seed: int) -> Snapshot | None:
    return None if row is None else _thinned(row, seed)


def _line(score: Score) -> str:
    return (
        f"{score.metric:<14}{score.value:>9.4f}{score.floor:>9.4f}{score.floor_sd:>8.4f}"
        f"{score.excess:>9.4f}{_shown(score.persistence):>10}{_shown(score.midpoint):>10}"
    )


def _shown(value: float | None) -> str:
    return "-" if value is None else f"{value:.4f}"
