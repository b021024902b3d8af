"""Single panels: clouds over each other, marginal densities, a vector field, the history of a fit."""

from collections.abc import Callable, Sequence

import numpy as np
from matplotlib.axes import Axes

from itofit.errors import InputError
from itofit.estimator import FokkerPlanckProcess
from itofit.snapshots.clouds import Snapshot
from itofit.solve.evidence import GaussNewtonHistory
from itofit.solve.outcome import History
from itofit.trust.identifiability import Identifiability

TRUTH, MODEL, MUTED = "#c0392b", "#2c6fbb", "#8a8f98"


def clouds(ax: Axes, observed: Snapshot, predicted: Snapshot, dims: tuple[int, int] = (0, 1)) -> Axes:
    """An observed cloud (red) and a predicted one (blue) in two coordinates."""
    i, j = _checked_dims(dims, observed.points.shape[1])
    style = {"s": 6, "alpha": 0.45, "linewidths": 0}
    ax.scatter(observed.points[:, i], observed.points[:, j], color=TRUTH, label="observed", **style)
    ax.scatter(predicted.points[:, i], predicted.points[:, j], color=MODEL, label="predicted", **style)
    return ax


def marginals(ax: Axes, observed: Snapshot, predicted: Snapshot, dim: int = 0, bins: int = 40) -> Axes:
    """Densities of one coordinate of an observed cloud (red) and a predicted one (blue), weights respected."""
    _checked_dims((dim,), observed.points.shape[1])
    x, y = observed.points[:, dim], predicted.points[:, dim]
    edges = np.histogram_bin_edges(np.concatenate([x, y]), bins)
    style = {"bins": edges, "density": True, "histtype": "stepfilled", "alpha": 0.45}
    ax.hist(x, weights=observed.weights, color=TRUTH, label="observed", **style)
    ax.hist(y, weights=predicted.weights, color=MODEL, label="predicted", **style)
    ax.set_ylabel("density")
    return ax


def vector_field(
    ax: Axes,
    field: Callable[[np.ndarray], np.ndarray],
    low: Sequence[float] | np.ndarray,
    high: Sequence[float] | np.ndarray,
    *,
    dims: tuple[int, int] = (0, 1),
    at: Sequence[float] | np.ndarray | None = None,
    n: int = 18,
    fastest: float | None = None,
) -> Axes:
    """Arrows of a field, a function of rows of states, on an n x n grid over the box from `low` to `high`.

    Coordinates other than `dims` are held at the state `at`, by default the middle of the box. `fastest` is the speed
    whose arrow is one cell long: panels that are to be compared take the same one, else it is the largest on the grid.
    """
    low, high = np.asarray(low, dtype=np.float64), np.asarray(high, dtype=np.float64)
    i, j = _checked_dims(dims, len(low))
    u, v = np.meshgrid(np.linspace(low[i], high[i], n), np.linspace(low[j], high[j], n))
    states = np.tile((low + high) / 2.0 if at is None else np.asarray(at, dtype=np.float64), (u.size, 1))
    states[:, i], states[:, j] = u.ravel(), v.ravel()
    g = np.asarray(field(states))
    speed = np.hypot(g[:, i], g[:, j])
    fastest = float(np.max(speed)) if fastest is None else fastest
    # Directions are those of the axes' own units; lengths are in cells, so that unequal units do not stretch them.
    style = {"angles": "xy", "scale_units": "width", "scale": n * max(fastest, 1e-12), "width": 0.005}
    # The yellow end of the colours cannot be seen on white.
    ax.quiver(u.ravel(), v.ravel(), g[:, i], g[:, j], speed, cmap="viridis", clim=(0.0, 1.3 * fastest), **style)
    return ax


def drift_field(ax: Axes, model: FokkerPlanckProcess, dims: tuple[int, int] = (0, 1), n: int = 18) -> Axes:
    """The fitted drift on a grid over the training data; other coordinates are held at their mean."""
    _over_training_points(ax, model, model.drift, dims, n)
    ax.set_title("fitted drift, training points behind", fontsize=10)
    return ax


def _over_training_points(ax: Axes, model: FokkerPlanckProcess, field, dims: tuple[int, int], n: int) -> None:
    pooled = np.concatenate(model.snapshots_.clouds)
    i, j = _checked_dims(dims, pooled.shape[1])
    low, high = np.quantile(pooled, [0.01, 0.99], axis=0)
    shown = pooled[np.random.default_rng(0).choice(len(pooled), min(len(pooled), 1500), replace=False)]
    ax.scatter(shown[:, i], shown[:, j], s=4, color=MUTED, alpha=0.3, linewidths=0)
    vector_field(ax, field, low, high, dims=dims, at=pooled.mean(axis=0), n=n)


def loss_history(ax: Axes, history: History) -> Axes:
    """Loss against iterations, with the criterion on the same axis."""
    iterations = np.arange(1, len(history.loss) + 1)
    ax.plot(iterations, history.loss, color=MUTED, linewidth=0.6, alpha=0.8, label="loss (the adversary's values)")
    ax.plot(history.evaluated_at, history.criterion, color=MODEL, linewidth=1.6, label="criterion")
    ax.set_xlabel("iteration")
    ax.set_title("training", fontsize=10)
    ax.legend(frameon=False, fontsize=8)
    return ax


def descent(ax: Axes, history: GaussNewtonHistory) -> Axes:
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


def _checked_dims(dims: Sequence[int], n_dims: int) -> Sequence[int]:
    if not all(0 <= dim < n_dims for dim in dims):
        raise InputError(
            expected=f"coordinates from 0 to {n_dims - 1}",
            found=", ".join(str(dim) for dim in dims),
            hint="coordinates are counted from 0",
        )
    return dims


def undetermined_field(
    ax: Axes, model: FokkerPlanckProcess, found: Identifiability, which: int = 0, dims: tuple[int, int] = (0, 1)
) -> Axes:
    """A field that the snapshots do not determine, over the training points; 0 is the one of most variance."""
    _over_training_points(ax, model, lambda x: found.field(x, which), dims, 18)
    ax.set_title(f"least determined: +-{found.remaining[which]:.2g} sd a unit of time", fontsize=10)
    return ax
