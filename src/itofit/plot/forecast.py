"""The picture of a fit: forecasts over held-out clouds, the drift field and the history."""

from pathlib import Path

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from itofit.estimator import FokkerPlanckProcess
from itofit.plot.axes import clouds, descent, drift_field, loss_history
from itofit.snapshots.clouds import Snapshots
from itofit.solve.outcome import History
from itofit.whole_file import whole_file


def forecast_figure(model: FokkerPlanckProcess, held_out: Snapshots, title: str = "") -> Figure:
    """One panel a held-out time, then the drift and the training history; needs two or more coordinates."""
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
    if isinstance(history, History):
        loss_history(axes[n + 1], history)
    else:
        descent(axes[n + 1], history)
    if title:
        figure.suptitle(title, fontsize=11)
    return figure


def save_figure(figure: Figure, path: str | Path) -> None:
    """Write a figure to a file, whole or not at all."""
    with whole_file(Path(path)) as partial:
        figure.savefig(partial, dpi=130)
