"""The picture of a fit: forecasts over held-out clouds, the drift field and the history."""

from pathlib import Path

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from itofit.estimator import FokkerPlanckProcess
from itofit.plot.axes import clouds, descent, drift_field, loss_history, passes
from itofit.snapshots.clouds import Snapshots
from itofit.solution import BridgeHistory, TrainingHistory
from itofit.whole_file import whole_file


def forecast_figure(model: FokkerPlanckProcess, held_out: Snapshots, title: str = "") -> Figure:
    """One panel a held-out time, then the drift and the history of the fit.

    Parameters
    ----------
    model : FokkerPlanckProcess
        A fitted model of two or more coordinates, of which the first two are drawn.
    held_out : Snapshots
        Clouds that the fit has not met, at the times to forecast.
    title : str
        Over the whole figure; none if empty.

    Returns
    -------
    matplotlib Figure
        Of no window; `save_figure` writes it.

    Examples
    --------
    With a fitted `model`:

    >>> import jax
    >>> from itofit import known_system
    >>> from itofit.plot import forecast_figure
    >>> held_out = known_system("ou").observe(50, [0.6, 2.0], key=jax.random.key(1))
    >>> [ax.get_title() for ax in forecast_figure(model, held_out).axes[:2]]
    ['t = 0.6', 't = 2, beyond the data']
    """
    n = len(held_out)
    figure = Figure(figsize=(3.3 * (n + 2), 3.5), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots(1, n + 2)
    forecast = model.forecast(held_out.times.tolist())
    last = float(model.snapshots_.times[-1])
    for ax, observed, predicted in zip(axes, held_out, forecast, strict=False):
        clouds(ax, observed, predicted)
        beyond = ", beyond the data" if observed.time > last else ""
        ax.set_title(f"t = {observed.time:g}{beyond}", fontsize=10)
    axes[0].legend(frameon=False, fontsize=8)
    drift_field(axes[n], model)
    for ax in axes[: n + 1]:
        ax.set_xlabel(model.snapshots_.names[0])
        ax.set_ylabel(model.snapshots_.names[1])
    history = model.history_
    if isinstance(history, TrainingHistory):
        loss_history(axes[n + 1], history)
    elif isinstance(history, BridgeHistory):
        passes(axes[n + 1], history)
    else:
        descent(axes[n + 1], history)
    if title:
        figure.suptitle(title, fontsize=11)
    return figure


def save_figure(figure: Figure, path: str | Path) -> None:
    """Write a figure to a file, whole or not at all.

    Parameters
    ----------
    figure : matplotlib Figure
        What is drawn.
    path : str or path
        The file; its ending says the format, `.png`, `.pdf` or `.svg`.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> from itofit.plot import save_figure
    >>> from matplotlib.figure import Figure
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     save_figure(Figure(), Path(folder) / "empty.png")
    ...     [file.name for file in Path(folder).iterdir()]
    ['empty.png']
    """
    with whole_file(Path(path)) as partial:
        figure.savefig(partial, dpi=130)
