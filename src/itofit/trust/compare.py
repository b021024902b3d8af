"""Which of several models describes held-out snapshots best, where the data can tell at all."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Protocol, runtime_checkable

import numpy as np

from itofit.errors import InputError
from itofit.metrics.scorecard import METRICS, Scorecard
from itofit.snapshots.clouds import Snapshots


@runtime_checkable
class Scored(Protocol):
    """A fitted model."""

    def scorecard(self, held_out: Snapshots, **how: Any) -> Scorecard:
        """Scores against held-out snapshots."""
        ...


@dataclass(frozen=True)
class Row:
    """One model: its mean score and floor over the held-out times, and the sd of both from sampling.

    `rank` is shared by models that cannot be told apart; `at_floor` says that a perfect model does no better.
    """

    name: str
    score: float
    floor: float
    sd: float
    rank: int
    at_floor: bool


@dataclass(frozen=True)
class Comparison:
    """Models from the best to the worst; prints as a table."""

    metric: str
    rows: tuple[Row, ...]

    def to_records(self) -> list[dict[str, Any]]:
        """One plain dictionary a model, for JSON."""
        return [asdict(row) for row in self.rows]

    def __str__(self) -> str:
        width = max(5, *(len(row.name) for row in self.rows))
        lines = [f"{'rank':>4}  {'model':<{width}}{self.metric:>15}{'floor':>9}{'+-sd':>8}"]
        for row in self.rows:
            note = "  at the floor" if row.at_floor else ""
            lines.append(f"{row.rank:>4}  {row.name:<{width}}{row.score:>15.4f}{row.floor:>9.4f}{row.sd:>8.4f}{note}")
        tied = any(a.rank == b.rank for a, b in zip(self.rows, self.rows[1:], strict=False))
        return "\n".join([*lines, "models of one rank cannot be told apart by these snapshots"] if tied else lines)


def compare(models: Mapping[str, Scored], held_out: Snapshots, *, metric: str = "sliced_W1", **how: Any) -> Comparison:
    """Rank fitted models by their mean score on held-out snapshots; `how` goes to `scorecard`.

    A model takes the next rank only if it is worse than the first of the last rank by more than 2 sds of the sampling
    noise of both, and models at the floor share the first: what is inside the noise is not ranked.
    """
    if not models:
        raise InputError(expected="one model or more by name", found="none", hint="compare({'mine': model}, held_out)")
    if metric not in METRICS:
        raise InputError(expected=f"metric to be one of {', '.join(METRICS)}", found=f"{metric!r}", hint="sliced_W1")
    cards = {
        name: _means(model.scorecard(held_out, metrics={metric: METRICS[metric]}, **how))
        for name, model in models.items()
    }
    order = sorted(cards, key=lambda name: cards[name][0])
    rows, leader, rank = [], cards[order[0]], 1
    for place, name in enumerate(order, start=1):
        score, floor, sd, at_floor = cards[name]
        if score - leader[0] > 2.0 * np.hypot(sd, leader[2]) and not at_floor:
            leader, rank = cards[name], place
        rows.append(Row(name, score, floor, sd, rank, at_floor))
    return Comparison(metric, tuple(rows))


def _means(card: Scorecard) -> tuple[float, float, float, bool]:
    """Mean score and floor over times, the sd of the mean, and whether the score is within 2 of them of the floor."""
    count = len(card.scores)
    sd = float(np.sqrt(sum(s.floor_sd**2 for s in card.scores))) / count
    excess = float(np.mean([s.excess for s in card.scores]))
    score, floor = (float(np.mean([getattr(s, name) for s in card.scores])) for name in ("value", "floor"))
    return score, floor, sd, excess <= 2.0 * sd
