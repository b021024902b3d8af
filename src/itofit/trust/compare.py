"""Which of several models describes held-out snapshots best, where the data can tell at all."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np

from itofit.errors import InputError
from itofit.metrics.floor import Metric
from itofit.metrics.scorecard import METRICS, Scorecard
from itofit.simulate.systems import KnownSystem
from itofit.snapshots.clouds import Snapshots


@runtime_checkable
class Scored(Protocol):
    """A fitted model."""

    def scorecard(
        self,
        held_out: Snapshots,
        *,
        truth: KnownSystem | None,
        start: str,
        metrics: dict[str, Metric] | None,
    ) -> Scorecard:
        """Scores against held-out snapshots."""
        ...


@dataclass(frozen=True)
class Row:
    """One model of a comparison.

    Parameters
    ----------
    name : str
        Of the model.
    score : float
        Its mean score over the held-out times.
    floor : float
        The mean of the sampling floors: what a perfect model would score.
    sd : float
        The standard deviation of the mean score from sampling.
    rank : int
        From 1 on; models that cannot be told apart have the same.
    at_floor : bool
        Whether a perfect model would do no better.
    """

    name: str
    score: float
    floor: float
    sd: float
    rank: int
    at_floor: bool


@dataclass(frozen=True)
class Comparison:
    """Models from the best to the worst; prints as a table.

    Parameters
    ----------
    metric : str
        The distance they were scored by.
    rows : tuple of Row
        One a model, the best first.

    Examples
    --------
    >>> from itofit.trust.compare import Comparison, Row
    >>> rows = (Row("mine", 0.11, 0.1, 0.02, 1, True), Row("other", 0.3, 0.1, 0.02, 2, False))
    >>> print(Comparison("W1", rows))
    rank  model             W1    floor    +-sd
       1  mine          0.1100   0.1000  0.0200  at the floor
       2  other         0.3000   0.1000  0.0200
    """

    metric: str
    rows: tuple[Row, ...]

    def to_records(self) -> list[dict[str, Any]]:
        """One plain dictionary a model, for JSON."""
        return [asdict(row) for row in self.rows]

    def __str__(self) -> str:
        width = max(5, *(len(row.name) for row in self.rows))
        lines = [f"{'rank':>4}  {'model':<{width}}{self.metric:>15}{'floor':>9}{'+-sd':>8}"]
        for row in self.rows:
            begin = f"{row.rank:>4}  {row.name:<{width}}"
            note = "  at the floor" if row.at_floor else ""
            lines.append(f"{begin}{row.score:>15.4f}{row.floor:>9.4f}{row.sd:>8.4f}{note}")
        ranks = {row.rank for row in self.rows}
        if len(ranks) < len(self.rows):
            lines.append("models of one rank cannot be told apart by these snapshots")
        return "\n".join(lines)


def compare(
    models: Mapping[str, Scored],
    held_out: Snapshots,
    *,
    metric: str = "sliced_W1",
    truth: KnownSystem | None = None,
    start: str = "initial",
) -> Comparison:
    """Rank fitted models by their mean score on held-out snapshots.

    A model takes the next rank only if it is worse than the first of the last rank by more than 2
    sds of the sampling noise of both, and models at the floor share the first: what is inside the
    noise is not ranked.

    Parameters
    ----------
    models : dict of str to fitted model
        By name; everything with a method `scorecard`.
    held_out : Snapshots
        Snapshots that no model was fitted to.
    metric : {"W1", "sliced_W1", "coordinate_W1"}
        The distance they are ranked by.
    truth : KnownSystem, optional
        The true process, where it is known: sampling floors are then its own.
    start : {"initial", "previous", "bridge", "bridge_ot"}
        Where the forecasts that are scored start.

    Returns
    -------
    Comparison
        One row a model, the best first; prints as a table.

    Raises
    ------
    InputError
        Where there is no model, or no such metric.

    Examples
    --------
    >>> from itofit import Scorecard, Snapshots, compare
    >>> from itofit.metrics import Score
    >>> class Fitted:
    ...     def __init__(self, value):
    ...         self.value = value
    ...     def scorecard(self, held_out, *, truth, start, metrics):
    ...         excess = self.value - 0.1
    ...         score = Score(1.0, "W1", self.value, 0.1, 0.02, excess, "system", 9, 9, None, None)
    ...         return Scorecard((score,))
    >>> held_out = Snapshots.from_arrays([[[0.0], [1.0]]], [1.0])
    >>> table = compare({"far": Fitted(0.3), "near": Fitted(0.11)}, held_out, metric="W1")
    >>> [(row.name, row.rank) for row in table.rows]
    [('near', 1), ('far', 2)]
    """
    if not models:
        raise InputError(
            expected="one model or more by name",
            found="none",
            hint="compare({'mine': model}, held_out)",
        )
    if metric not in METRICS:
        raise InputError(
            expected=f"metric to be one of {', '.join(METRICS)}",
            found=f"{metric!r}",
            hint="sliced_W1",
        )
    chosen = {metric: METRICS[metric]}
    means = {}
    for name, model in models.items():
        card = model.scorecard(held_out, truth=truth, start=start, metrics=chosen)
        means[name] = _means(card)
    return Comparison(metric, _ranked(means))


class MeanScore(NamedTuple):
    """Mean score and floor over times, the sd of the mean, and whether it is at the floor."""

    score: float
    floor: float
    sd: float
    at_floor: bool

    def is_worse_than(self, other: "MeanScore") -> bool:
        """Whether the difference is more than 2 sds of the sampling noise of both."""
        return self.score - other.score > 2.0 * float(np.hypot(self.sd, other.sd))


def _ranked(means: dict[str, MeanScore]) -> tuple[Row, ...]:
    order = sorted(means, key=lambda name: means[name].score)
    leader = means[order[0]]
    rank = 1
    rows = []
    for place, name in enumerate(order, start=1):
        mean = means[name]
        if mean.is_worse_than(leader) and not mean.at_floor:
            leader = mean
            rank = place
        rows.append(
            Row(
                name,
                mean.score,
                mean.floor,
                mean.sd,
                rank,
                mean.at_floor,
            )
        )
    return tuple(rows)


def _means(card: Scorecard) -> MeanScore:
    """Over all times; a score within 2 sds of the floor is at the floor."""
    scores = card.scores
    variance = sum(score.floor_sd**2 for score in scores)
    sd = float(np.sqrt(variance)) / len(scores)
    excess = float(np.mean([score.excess for score in scores]))
    value = float(np.mean([score.value for score in scores]))
    floor = float(np.mean([score.floor for score in scores]))
    return MeanScore(value, floor, sd, excess <= 2.0 * sd)
