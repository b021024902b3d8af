"""The pictures of a task: densities of genes on the held-out day, pairs of genes day by day, losses
of the games.

Each is a PNG and a JSON of the numbers it shows, of the first seed.
"""

import csv
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from scipy.stats import gaussian_kde

from experiments.figures.pictures import Picture, Settings, grid, write
from experiments.rna.counts import MARKERS
from experiments.rna.scores import SHOWN
from experiments.rna.tasks import Clock, Clouds
from itofit.face import Face
from itofit.metrics.floor import draw_rows, plain_weights
from itofit.plot import loss_history
from itofit.plot.axes import MODEL, MUTED, TRUTH
from itofit.snapshots.clouds import Snapshot
from itofit.solution import TrainingHistory

REFERENCE = "hashimoto2016_D4_corr.csv"
REFERENCE_DAY = 4
PAIRS = (("Mt1", "Mt2"), ("Krt8", "Krt18"))
CORRELATED_DAYS = (2, 4, 7)
GAMES = ("fpp", "fpp-paper")

# Colour and dash of a method, the same in every picture; what was observed is red.
STYLES: dict[str, tuple[str, str]] = {
    "fpp": (MODEL, "-"),
    "fpp-paper": (MODEL, ":"),
    "moments": ("#1e8449", "-"),
    "moments-clock": ("#1e8449", ":"),
    "potential-rnn": ("#d68910", "--"),
    "legend": ("#7d3c98", "--"),
    "persistence": (MUTED, "-."),
    "midpoint": ("black", ":"),
}
_N_GRID = 400


@dataclass(frozen=True, eq=False)
class Drawn:
    """What the pictures of one task and clock are made of."""

    name: str
    clouds: Clouds
    clock: Clock
    models: Mapping[str, Face]
    reference: Mapping[tuple[str, str], float]

    @property
    def title(self) -> str:
        """What every picture says at its top."""
        return f"{self.clouds.task}; {self.clouds.counts.label}"

    @cached_property
    def held_out(self) -> dict[str, Snapshot | None]:
        """Forecasts of the held-out day by method."""
        return {name: self.at(name, self.clouds.task.held_out) for name in self.models}

    def at(self, method: str, day: int) -> Snapshot | None:
        """What a method forecasts for a day, from day 0."""
        return self.clouds.predicted(self.models[method], self.clock, day)


def draw(drawn: Drawn, settings: Settings, out: Path) -> list[Path]:
    """All pictures of a task; the files written."""
    pictures = {f"densities-{drawn.name}": densities(drawn)}
    pictures |= {
        f"correlations-{drawn.name}-{method}": correlations(drawn, method)
        for method in drawn.models
    }
    if any(method in GAMES for method in drawn.models):
        pictures[f"losses-{drawn.name}"] = losses(drawn)
    return [
        path for name, picture in pictures.items() for path in write(picture, name, settings, out)
    ]


def densities(drawn: Drawn) -> Picture:
    """One panel a gene: the held-out day as observed, filled, and as each method forecasts it."""
    observed = drawn.clouds.observed(drawn.clouds.task.held_out)
    predicted = {name: cloud for name, cloud in drawn.held_out.items() if cloud is not None}
    figure, axes = grid(2, 2, 4.6, 3.0)
    for ax, gene in zip(axes.flat, SHOWN, strict=True):
        density_panel(ax, gene, observed, predicted)
    for ax in axes[:, 0]:
        ax.set_ylabel("density", fontsize=9)
    for ax in axes[-1]:
        ax.set_xlabel("ln(1 + normalised count), zeros imputed", fontsize=9)
    _legend_below(figure, axes[0][0])
    figure.suptitle(drawn.title, fontsize=10)
    return Picture(figure, _settings(drawn), {"means": _means(observed, predicted)})


def density_panel(
    ax: Axes, gene: str, observed: Snapshot, predicted: Mapping[str, Snapshot]
) -> Axes:
    """Kernel densities over what was observed and a range of it to either side at most."""
    column = MARKERS.index(gene)
    x = _range(column, observed, predicted)
    density = _density(observed, column, x)
    ax.fill_between(x, density, color=TRUTH, alpha=0.25, linewidth=0)
    ax.plot(x, density, color=TRUTH, linewidth=1.2, label="observed")
    highest = [density.max()]
    for name, cloud in predicted.items():
        colour, dash = STYLES[name]
        y = _density(cloud, column, x)
        ax.plot(x, y, dash, color=colour, linewidth=1.4, label=name)
        highest.append(y.max())
    # A peak of one method that is far above the rest must not flatten them.
    ax.set_ylim(0.0, 1.08 * min(max(highest), 3.0 * density.max()))
    ax.set_xlim(x[0], x[-1])
    ax.set_title(gene, fontsize=10)
    ax.tick_params(labelsize=7)
    return ax


def correlations(drawn: Drawn, method: str) -> Picture:
    """Pairs of genes on three days, observed and forecast from day 0."""
    figure, axes = grid(len(PAIRS), len(CORRELATED_DAYS), 3.3, 3.0, sharex="row", sharey="row")
    numbers = []
    for line, pair in zip(axes, PAIRS, strict=True):
        for ax, day in zip(line, CORRELATED_DAYS, strict=True):
            numbers.append(correlation_panel(ax, drawn, method, pair, day))
            ax.set_xlabel(pair[0], fontsize=9)
        line[0].set_ylabel(pair[1], fontsize=9)
        _limit(line, pair, drawn.clouds)
    _legend_below(figure, axes[0][0], markerscale=1.5)
    figure.suptitle(f"{method}: {drawn.title}", fontsize=10)
    return Picture(figure, _settings(drawn) | {"method": method}, {"correlations": numbers})


def correlation_panel(
    ax: Axes, drawn: Drawn, method: str, pair: tuple[str, str], day: int
) -> dict[str, Any]:
    """One pair on one day; its correlation coefficients."""
    observed = drawn.clouds.observed(day)
    predicted = drawn.at(method, day)
    columns = (MARKERS.index(pair[0]), MARKERS.index(pair[1]))
    if predicted is not None:
        # As many points as there are cells, so that the larger cloud does not look the wider one.
        rows = draw_rows(np.random.default_rng(0), predicted.weights, len(observed.points))
        ax.scatter(
            *predicted.points[rows][:, columns].T,
            s=7,
            alpha=0.6,
            linewidths=0,
            color=MODEL,
            label="forecast",
        )
    # Rings, so that a forecast that repeats the cells is seen inside them.
    ax.scatter(
        *observed.points[:, columns].T,
        s=14,
        facecolors="none",
        edgecolors=TRUTH,
        linewidths=0.6,
        alpha=0.8,
        label="observed",
    )
    numbers = {
        "pair": list(pair),
        "day": day,
        "in_sample": day in drawn.clouds.task.training,
        "observed": pearson(observed, columns),
        "forecast": None if predicted is None else pearson(predicted, columns),
        "reference_2016": drawn.reference.get(pair) if day == REFERENCE_DAY else None,
    }
    ax.set_title(_correlation_title(numbers), fontsize=8)
    ax.tick_params(labelsize=7)
    return numbers


def _correlation_title(numbers: dict[str, Any]) -> str:
    kind = "in sample" if numbers["in_sample"] else "held out"
    title = f"D{numbers['day']}, {kind}\nr: observed {numbers['observed']:.2f}, "
    forecast = numbers["forecast"]
    title += "no forecast" if forecast is None else f"forecast {forecast:.2f}"
    reference = numbers["reference_2016"]
    return title if reference is None else f"{title}; all cells {reference:.2f}"


def losses(drawn: Drawn) -> Picture:
    """Loss against iterations of the games."""
    games = {name: drawn.models[name].history_ for name in GAMES if name in drawn.models}
    figure, axes = grid(1, len(games), 4.8, 3.2)
    for ax, (name, history) in zip(axes[0], games.items(), strict=True):
        loss_history(ax, history)
        ax.set_title(name, fontsize=10)
        ax.tick_params(labelsize=7)
    figure.suptitle(drawn.title, fontsize=10)
    ends = {name: _ends(history) for name, history in games.items()}
    return Picture(figure, _settings(drawn), {"losses": ends})


def read_reference(folder: Path) -> dict[tuple[str, str], float]:
    """Published day-4 correlations of all cells by pair, where the file is there."""
    path = folder / REFERENCE
    if not path.is_file():
        return {}
    with path.open(newline="") as file:
        rows = list(csv.DictReader(file))
    return {
        (row["gene"], other): float(row[other]) for row in rows for other in row if other != "gene"
    }


def pearson(cloud: Snapshot, columns: tuple[int, int]) -> float:
    """The correlation coefficient of two coordinates, weights respected; it is 0 where one does not
    vary.
    """
    c = np.cov(cloud.points[:, columns].T, aweights=cloud.weights)
    return float(c[0, 1] / max(np.sqrt(c[0, 0] * c[1, 1]), np.finfo(float).tiny))


def _density(cloud: Snapshot, column: int, x: np.ndarray) -> np.ndarray:
    return gaussian_kde(cloud.points[:, column], weights=plain_weights(cloud.weights))(x)


def _range(column: int, observed: Snapshot, predicted: Mapping[str, Snapshot]) -> np.ndarray:
    low = np.min(observed.points[:, column])
    high = np.max(observed.points[:, column])
    width = high - low
    ends = [np.quantile(cloud.points[:, column], [0.01, 0.99]) for cloud in predicted.values()]
    lowest = max(min([low, *(end[0] for end in ends)]), low - width)
    highest = min(max([high, *(end[1] for end in ends)]), high + width)
    return np.linspace(lowest - 0.1 * width, highest + 0.1 * width, _N_GRID)


def _limit(line: Any, pair: tuple[str, str], data: Clouds) -> None:
    """Axes from what was observed on any day: a few runaway points must not shrink the rest."""
    columns = [MARKERS.index(gene) for gene in pair]
    points = np.concatenate(list(data.by_day.values()))[:, columns]
    margin = 0.1 * np.ptp(points, axis=0)
    low = points.min(axis=0) - margin
    high = points.max(axis=0) + margin
    line[0].set_xlim(low[0], high[0])
    line[0].set_ylim(low[1], high[1])


def _legend_below(figure: Figure, ax: Axes, markerscale: float | None = None) -> None:
    handles, labels = ax.get_legend_handles_labels()
    figure.legend(
        handles,
        labels,
        loc="outside lower center",
        ncols=min(len(labels), 4),
        frameon=False,
        fontsize=8,
        markerscale=markerscale,
    )


def _settings(drawn: Drawn) -> dict[str, Any]:
    """What the picture was made with; iterations where a method counts them."""
    n_iter = {name: getattr(model, "n_iter_", None) for name, model in drawn.models.items()}
    return {
        "data": drawn.clouds.counts.label,
        "task": str(drawn.clouds.task),
        "dt": drawn.clock.dt,
        "n_iter": n_iter,
    }


def _means(observed: Snapshot, predicted: Mapping[str, Snapshot]) -> dict[str, dict[str, float]]:
    """Mean of each shown gene, for the record."""
    return {
        name: {gene: float(cloud.weights @ cloud.points[:, MARKERS.index(gene)]) for gene in SHOWN}
        for name, cloud in {"observed": observed, **predicted}.items()
    }


def _ends(history: TrainingHistory) -> dict[str, Any]:
    """Where a game stood at its end."""
    return {
        "n_iter": len(history.loss),
        "loss": float(history.loss[-1]),
        "criterion": float(history.criterion[-1]),
    }
