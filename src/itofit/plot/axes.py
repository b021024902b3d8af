"""Single panels: clouds over each other, a drift field, the history of a fit."""

from typing import TYPE_CHECKING

import numpy as np

from itofit.estimator import FokkerPlanckProcess
from itofit.snapshots.clouds import Snapshot
from itofit.solve.evidence import GaussNewtonHistory
from itofit.solve.outcome import History

if TYPE_CHECKING:
    from matplotlib.axes import Axes

TRUTH, MODEL, MUTED = "#c0392b", "#2c6fbb", "#8a8f98"


def clouds(ax: "Axes", observed: Snapshot, predicted: Snapshot, dims: tuple[int, int] = (0, 1)) -> "Axes":
    """An observed cloud (red) and a predicted one (blue) in two coordinates."""
    i, j = dims
    style = {"s": 6, "alpha": 0.45, "linewidths": 0}
    ax.scatter(observed.points[:, i], observed.points[:, j], color=TRUTH, label="observed", **style)
    ax.scatter(predicted.points[:, i], predicted.points[:, j], color=MODEL, label="predicted", **style)
    return ax


def drift_field(ax: "Axes", model: FokkerPlanckProcess, dims: tuple[int, int] = (0, 1), n: int = 18) -> "Axes":
    """The fitted drift on a grid over the training data; other coordinates are held at their mean."""
    pooled = np.concatenate(model.snapshots_.clouds)
    low, high = np.quantile(pooled, [0.01, 0.99], axis=0)
    i, j = dims
    u, v = np.meshgrid(np.linspace(low[i], high[i], n), np.linspace(low[j], high[j], n))
    states = np.tile(pooled.mean(axis=0), (u.size, 1))
    states[:, i], states[:, j] = u.ravel(), v.ravel()
    g = model.drift(states)
    shown = pooled[np.random.default_rng(0).choice(len(pooled), min(len(pooled), 1500), replace=False)]
    ax.scatter(shown[:, i], shown[:, j], s=4, color=MUTED, alpha=0.3, linewidths=0)
    ax.quiver(u.ravel(), v.ravel(), g[:, i], g[:, j], np.hypot(g[:, i], g[:, j]), cmap="viridis", width=0.004)
    ax.set_title("fitted drift, training points behind", fontsize=10)
    return ax


def loss_history(ax: "Axes", history: History) -> "Axes":
    """Loss against iterations, with the held-out criterion on the same axis."""
    iterations = np.arange(1, len(history.loss) + 1)
    ax.plot(iterations, history.loss, color=MUTED, linewidth=0.6, alpha=0.8, label="loss (sum of critic values)")
    ax.plot(history.evaluated_at, history.criterion, color=MODEL, linewidth=1.6, label="held-out criterion")
    ax.set_xlabel("iteration")
    ax.set_title("training", fontsize=10)
    ax.legend(frameon=False, fontsize=8)
    return ax


def descent(ax: "Axes", history: GaussNewtonHistory) -> "Axes":
    """Chi-squared a residual against Gauss-Newton steps; about 1 is a fit within the noise."""
    steps = np.arange(1, len(history.chi2) + 1)
    ax.axhline(1.0, color=MUTED, linewidth=0.8, linestyle="--")
    for phase, label in enumerate(("means and covariances", "shape", "polish")):
        chosen = history.phase == phase
        if np.any(chosen):
            ax.semilogy(steps[chosen], history.chi2[chosen], marker="o", markersize=3, linewidth=1.0, label=label)
    ax.set_xlabel("step")
    ax.set_title("chi-squared a residual", fontsize=10)
    ax.legend(frameon=False, fontsize=8)
    return ax
