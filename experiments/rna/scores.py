"""One-dimensional distances of each gene between a forecast and the held-out day, each beside its
floor:

    W_p^p = integral over u in (0, 1) of |F^-1(u) - G^-1(u)|^p

The floor is what one half of the held-out cells scores against the other, over 20 splits; the
excess is that of as many cells of the forecast over it, on the same half. The value is that of all
cells and has no such ratio.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from experiments.rna.counts import MARKERS
from experiments.rna.preprocess import to_counts
from itofit.metrics.distances import coordinate_W1
from itofit.metrics.floor import Metric, plain_weights, split_half_floor
from itofit.snapshots.clouds import Snapshot
from itofit.snapshots.scaling import Scaling
from itofit.transport.plans import Weights, masses

SHOWN = ("Mt1", "Mt2", "Tdh", "Gsn")
MEAN = "mean of ten"
GENES = (*SHOWN, MEAN)


class Unit(NamedTuple):
    """A distance and the unit it is taken in; `change` leads there from logs, given mean and sd of
    D7.
    """

    title: str
    change: Callable[[np.ndarray, Scaling], np.ndarray]
    metric: Metric


class Distance(NamedTuple):
    """A distance beside its floor; `value` and `excess` are None where there is no forecast, or no
    finite one.
    """

    value: float | None
    floor: float
    floor_sd: float
    excess: float | None


class Score(NamedTuple):
    """One number: the distance of a gene in a unit."""

    gene: str
    unit: str
    value: float | None
    floor: float
    floor_sd: float
    excess: float | None


def coordinate_W2_squared(
    x: np.ndarray, y: np.ndarray, wx: Weights = None, wy: Weights = None
) -> float:
    """Mean over coordinates of the one-dimensional squared W2."""
    return float(np.mean([_line_W2_squared(a, b, wx, wy) for a, b in zip(x.T, y.T, strict=True)]))


def _line_W2_squared(x: np.ndarray, y: np.ndarray, wx: Weights, wy: Weights) -> float:
    quantiles_x = Quantiles.of(x, wx)
    quantiles_y = Quantiles.of(y, wy)
    levels = np.sort(np.concatenate([quantiles_x.mass, quantiles_y.mass]))
    widths = np.diff(levels, prepend=0.0)
    middles = levels - widths / 2.0
    gaps = quantiles_x.at(middles) - quantiles_y.at(middles)
    return float(np.sum(widths * gaps**2))


class Quantiles(NamedTuple):
    """Values in order, and the mass up to each."""

    values: np.ndarray
    mass: np.ndarray

    @classmethod
    def of(cls, x: np.ndarray, weights: Weights) -> "Quantiles":
        """Of weighted numbers."""
        order = np.argsort(x)
        return cls(x[order], np.cumsum(masses(weights, len(x))[order]))

    def at(self, levels: np.ndarray) -> np.ndarray:
        """The values at these levels."""
        last = len(self.mass) - 1
        return self.values[np.minimum(np.searchsorted(self.mass, levels), last)]


UNITS = {
    "W1 log": Unit("W1, log-normalised imputed units", lambda x, d7: x, coordinate_W1),
    "W1 counts": Unit("W1, count units", lambda x, d7: to_counts(x), coordinate_W1),
    "W2^2 log": Unit(
        "squared W2, log-normalised imputed units", lambda x, d7: x, coordinate_W2_squared
    ),
    "W1 D7": Unit(
        "W1, logs in sds of D7 (the published unit)", lambda x, d7: d7.standardise(x), coordinate_W1
    ),
}


def scores(predicted: Snapshot | None, observed: Snapshot, last_day: Scaling) -> list[Score]:
    """Every unit for the shown genes and for the mean over all ten."""
    every = []
    for name, unit in UNITS.items():
        test = _changed(observed, unit, last_day)
        cloud = None if predicted is None else _changed(predicted, unit, last_day)
        if cloud is not None and not np.all(np.isfinite(cloud.points)):
            cloud = None
        for gene in GENES:
            columns = list(range(len(MARKERS))) if gene == MEAN else [MARKERS.index(gene)]
            chosen = None if cloud is None else _chosen(cloud, columns)
            distance = _distance(unit.metric, chosen, _chosen(test, columns))
            every.append(Score(gene, name, *distance))
    return every


def _distance(metric: Metric, cloud: Snapshot | None, test: Snapshot) -> Distance:
    floor = split_half_floor(metric, test, test if cloud is None else cloud)
    if cloud is None:
        return Distance(None, floor.mean, floor.sd, None)
    value = metric(
        cloud.points, test.points, plain_weights(cloud.weights), plain_weights(test.weights)
    )
    return Distance(value, floor.mean, floor.sd, floor.excess)


def _changed(cloud: Snapshot, unit: Unit, last_day: Scaling) -> Snapshot:
    return cloud._replace(points=unit.change(cloud.points, last_day))


def _chosen(cloud: Snapshot, columns: list[int]) -> Snapshot:
    return cloud._replace(points=cloud.points[:, columns])
