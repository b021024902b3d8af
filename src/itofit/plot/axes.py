"""Single panels: clouds over each other, marginal densities, vector fields, histories of fits."""

import functools
from collections.abc import Callable, Sequence

import numpy as np
from matplotlib.axes import Axes

from itofit.errors import InputError
from itofit.estimator import FokkerPlanckProcess
from itofit.snapshots.clouds import Snapshot
from itofit.solution import BridgeHistory, GaussNewtonHistory, Phase, TrainingHistory
from itofit.trust.identifiability import Identifiability

TRUTH = "#c0392b"
MODEL = "#2c6fbb"
MUTED = "#8a8f98"

_MOST_SHOWN = 1500


def clouds(
    ax: Axes, observed: Snapshot, predicted: Snapshot, dims: tuple[int, int] = (0, 1)
) -> Axes:
    """An observed cloud (red) and a predicted one (blue) in two coordinates.

    Parameters
    ----------
    ax : matplotlib Axes
        What is drawn on.
    observed, predicted : Snapshot
        The two clouds; they may differ in their numbers of points.
    dims : tuple of int
        The coordinates across and up, counted from 0.

    Returns
    -------
    matplotlib Axes
        The axis that was given.

    Examples
    --------
    >>> from itofit import Snapshots
    >>> from itofit.plot import clouds
    >>> from matplotlib.figure import Figure
    >>> corners = [[0.0, 0.0], [1.0, 0.0], [0.0, 1.0]]
    >>> before, after = Snapshots.from_arrays([corners, corners], times=[0.0, 1.0])
    >>> ax = clouds(Figure().subplots(), before, after)
    >>> [dots.get_label() for dots in ax.collections]
    ['observed', 'predicted']
    """
    i, j = _checked_dims(dims, observed.points.shape[1])
    scatter = functools.partial(ax.scatter, s=6, alpha=0.45, linewidths=0)
    scatter(observed.points[:, i], observed.points[:, j], color=TRUTH, label="observed")
    scatter(predicted.points[:, i], predicted.points[:, j], color=MODEL, label="predicted")
    return ax


def marginals(
    ax: Axes, observed: Snapshot, predicted: Snapshot, dim: int = 0, bins: int = 40
) -> Axes:
    """Densities of one coordinate of an observed cloud (red) and a predicted one (blue).

    Both have the same bins, and points count by their weights.

    Parameters
    ----------
    ax : matplotlib Axes
        What is drawn on.
    observed, predicted : Snapshot
        The two clouds; they may differ in their numbers of points.
    dim : int
        The coordinate, counted from 0.
    bins : int
        Bins over both clouds together.

    Returns
    -------
    matplotlib Axes
        The axis that was given.

    Examples
    --------
    >>> from itofit import Snapshots
    >>> from itofit.plot import marginals
    >>> from matplotlib.figure import Figure
    >>> before, after = Snapshots.from_arrays([[[0.0], [1.0]], [[1.0], [2.0]]], times=[0.0, 1.0])
    >>> ax = marginals(Figure().subplots(), before, after, bins=4)
    >>> ax.get_ylabel()
    'density'
    """
    _checked_dims((dim,), observed.points.shape[1])
    x = observed.points[:, dim]
    y = predicted.points[:, dim]
    edges = np.histogram_bin_edges(np.concatenate([x, y]), bins).tolist()
    hist = functools.partial(ax.hist, bins=edges, density=True, histtype="stepfilled", alpha=0.45)
    hist(x, weights=observed.weights, color=TRUTH, label="observed")
    hist(y, weights=predicted.weights, color=MODEL, label="predicted")
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
    """Arrows of a field on an n x n grid over a box.

    Parameters
    ----------
    ax : matplotlib Axes
        What is drawn on.
    field : callable
        A function of rows of states, `(n_states, n_dims)`, that returns their velocities.
    low, high : array of shape (n_dims,)
        Two opposite corners of the box.
    dims : tuple of int
        The coordinates across and up, counted from 0.
    at : array of shape (n_dims,), optional
        Where the other coordinates are held; by default in the middle of the box.
    n : int
        Arrows along each side of the grid.
    fastest : float, optional
        The speed whose arrow is one cell long, by default the largest on the grid. Panels that are
        to be compared take the same.

    Returns
    -------
    matplotlib Axes
        The axis that was given.

    Examples
    --------
    >>> from itofit.plot import vector_field
    >>> from matplotlib.figure import Figure
    >>> ax = vector_field(Figure().subplots(), lambda x: -x, [-1.0, -1.0], [1.0, 1.0], n=5)
    >>> ax.collections[0].get_offsets().shape
    (25, 2)
    """
    low = np.asarray(low, dtype=np.float64)
    high = np.asarray(high, dtype=np.float64)
    i, j = _checked_dims(dims, len(low))
    held = (low + high) / 2.0 if at is None else np.asarray(at, dtype=np.float64)
    across, up = np.meshgrid(np.linspace(low[i], high[i], n), np.linspace(low[j], high[j], n))
    states = np.tile(held, (across.size, 1))
    states[:, i] = across.ravel()
    states[:, j] = up.ravel()
    g = np.asarray(field(states))
    speed = np.hypot(g[:, i], g[:, j])
    fastest = float(np.max(speed)) if fastest is None else fastest
    ax.quiver(
        states[:, i],
        states[:, j],
        g[:, i],
        g[:, j],
        speed,
        # Directions are those of the axes' own units; lengths are in cells, so that unequal units
        # do not stretch them.
        angles="xy",
        scale_units="width",
        scale=n * max(fastest, 1e-12),
        width=0.005,
        # The yellow end of the colours is invisible on white.
        cmap="viridis",
        clim=(0.0, 1.3 * fastest),
    )
    return ax


def drift_field(
    ax: Axes, model: FokkerPlanckProcess, dims: tuple[int, int] = (0, 1), n: int = 18
) -> Axes:
    """The fitted drift on a grid over the training points.

    Coordinates other than `dims` are held at their mean.

    Parameters
    ----------
    ax : matplotlib Axes
        What is drawn on.
    model : FokkerPlanckProcess
        A fitted model whose drift is the same at all times.
    dims : tuple of int
        The coordinates across and up, counted from 0.
    n : int
        Arrows along each side of the grid.

    Returns
    -------
    matplotlib Axes
        The axis that was given.

    Examples
    --------
    With a fitted `model`:

    >>> from itofit.plot import drift_field
    >>> from matplotlib.figure import Figure
    >>> drift_field(Figure().subplots(), model, n=5).get_title()
    'fitted drift, training points behind'
    """
    _over_training_points(ax, model, model.drift, dims, n)
    ax.set_title("fitted drift, training points behind", fontsize=10)
    return ax


def undetermined_field(
    ax: Axes,
    model: FokkerPlanckProcess,
    identifiability: Identifiability,
    which: int = 0,
    dims: tuple[int, int] = (0, 1),
) -> Axes:
    """A field that the snapshots do not determine, over the training points.

    Drifts that differ by a multiple of it fit about as well.

    Parameters
    ----------
    ax : matplotlib Axes
        What is drawn on.
    model : FokkerPlanckProcess
        A fitted model.
    identifiability : Identifiability
        What `model.identifiability()` returned.
    which : int
        Which of the undetermined fields; 0 is that of the largest remaining variance.
    dims : tuple of int
        The coordinates across and up, counted from 0.

    Returns
    -------
    matplotlib Axes
        The axis that was given.

    Examples
    --------
    With a fitted `model`:

    >>> from itofit.plot import undetermined_field
    >>> from matplotlib.figure import Figure
    >>> ax = undetermined_field(Figure().subplots(), model, model.identifiability())
    >>> ax.get_title().startswith("least determined: +-")
    True
    """
    _over_training_points(ax, model, lambda x: identifiability.field(x, which), dims, 18)
    remaining = identifiability.remaining[which]
    ax.set_title(f"least determined: +-{remaining:.2g} sd a unit of time", fontsize=10)
    return ax


def loss_history(ax: Axes, history: TrainingHistory) -> Axes:
    """The loss of an adversarial run against iterations, with the criterion on the same axis.

    Parameters
    ----------
    ax : matplotlib Axes
        What is drawn on.
    history : TrainingHistory
        `history_` of a model fitted by the adversarial solver.

    Returns
    -------
    matplotlib Axes
        The axis that was given.

    Examples
    --------
    >>> import numpy as np
    >>> from itofit.plot import loss_history
    >>> from itofit.solution import TrainingHistory
    >>> from matplotlib.figure import Figure
    >>> history = TrainingHistory(
    ...     loss=np.array([3.0, 2.0, 1.0, 0.5]),
    ...     residuals=np.ones((4, 1)),
    ...     evaluated_at=np.array([2, 4]),
    ...     criterion=np.array([0.4, 0.1]),
    ...     slope=np.ones(2),
    ... )
    >>> [line.get_label() for line in loss_history(Figure().subplots(), history).lines]
    ["loss (the adversary's values)", 'criterion']
    """
    iterations = np.arange(1, len(history.loss) + 1)
    ax.plot(
        iterations,
        history.loss,
        color=MUTED,
        linewidth=0.6,
        alpha=0.8,
        label="loss (the adversary's values)",
    )
    ax.plot(history.evaluated_at, history.criterion, color=MODEL, linewidth=1.6, label="criterion")
    ax.set_xlabel("iteration")
    ax.set_title("training", fontsize=10)
    ax.legend(frameon=False, fontsize=8)
    return ax


def passes(ax: Axes, history: BridgeHistory) -> Axes:
    """What the flow misses at the next snapshot against passes of the bridge solver.

    Squares over those that its noise explains: about 1 is a process that explains its snapshots.

    Parameters
    ----------
    ax : matplotlib Axes
        What is drawn on.
    history : BridgeHistory
        `history_` of a model fitted by the bridge solver.

    Returns
    -------
    matplotlib Axes
        The axis that was given.

    Examples
    --------
    >>> import numpy as np
    >>> from itofit.plot import passes
    >>> from itofit.solution import BridgeHistory
    >>> from matplotlib.figure import Figure
    >>> len(passes(Figure().subplots(), BridgeHistory(np.array([4.0, 2.0, 1.0]))).lines)
    2
    """
    ax.axhline(1.0, color=MUTED, linewidth=0.8, linestyle="--")
    ax.semilogy(np.arange(1, len(history.missed) + 1), history.missed, color=MODEL, linewidth=1.6)
    ax.set_xlabel("pass")
    ax.set_title("missed, over what the noise explains", fontsize=10)
    return ax


def descent(ax: Axes, history: GaussNewtonHistory) -> Axes:
    """Chi-squared a residual against Gauss-Newton steps, one curve a phase of the fit.

    About 1 is a fit within the noise.

    Parameters
    ----------
    ax : matplotlib Axes
        What is drawn on.
    history : GaussNewtonHistory
        `history_` of a model fitted by the moments solver.

    Returns
    -------
    matplotlib Axes
        The axis that was given.

    Examples
    --------
    >>> import numpy as np
    >>> from itofit.plot import descent
    >>> from itofit.solution import GaussNewtonHistory
    >>> from matplotlib.figure import Figure
    >>> history = GaussNewtonHistory(
    ...     phase=np.array([0, 0, 1]),
    ...     temperature=np.ones(3),
    ...     objective=np.array([90.0, 30.0, 10.0]),
    ...     chi2=np.array([9.0, 3.0, 1.0]),
    ...     n_groups=np.array([2, 2, 3]),
    ... )
    >>> ax = descent(Figure().subplots(), history)
    >>> [text.get_text() for text in ax.get_legend().get_texts()]
    ['means and covariances', 'forward selection']
    """
    steps = np.arange(1, len(history.chi2) + 1)
    ax.axhline(1.0, color=MUTED, linewidth=0.8, linestyle="--")
    curve = functools.partial(ax.semilogy, marker="o", markersize=3, linewidth=1.0)
    for phase in Phase:
        chosen = history.phase == phase
        if np.any(chosen):
            curve(steps[chosen], history.chi2[chosen], label=phase.label)
    ax.set_xlabel("step")
    ax.set_title("chi-squared a residual", fontsize=10)
    ax.legend(frameon=False, fontsize=8)
    return ax


def _over_training_points(
    ax: Axes,
    model: FokkerPlanckProcess,
    field: Callable[[np.ndarray], np.ndarray],
    dims: tuple[int, int],
    n: int,
) -> None:
    pooled = np.concatenate(model.snapshots_.clouds)
    i, j = _checked_dims(dims, pooled.shape[1])
    low, high = np.quantile(pooled, [0.01, 0.99], axis=0)
    n_shown = min(len(pooled), _MOST_SHOWN)
    shown = pooled[np.random.default_rng(0).choice(len(pooled), n_shown, replace=False)]
    ax.scatter(shown[:, i], shown[:, j], s=4, color=MUTED, alpha=0.3, linewidths=0)
    vector_field(ax, field, low, high, dims=dims, at=pooled.mean(axis=0), n=n)


def _checked_dims(dims: Sequence[int], n_dims: int) -> Sequence[int]:
    if not all(0 <= dim < n_dims for dim in dims):
        raise InputError(
            expected=f"coordinates from 0 to {n_dims - 1}",
            found=", ".join(str(dim) for dim in dims),
            hint="coordinates are counted from 0",
        )
    return dims
