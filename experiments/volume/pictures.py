"""The paper's picture: 100 days at four bins, what came and what RM, KF and ours foretold."""

from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import numpy as np
from matplotlib.axes import Axes
from PIL import Image

from experiments.figures.pictures import Picture, grid
from experiments.volume.data import N_TEST, TEST_BINS, Task
from experiments.volume.forecasts import Forecast, mape
from experiments.volume.methods import DRAWN, N_PATHS, Result
from itofit.plot.axes import MODEL, MUTED, TRUTH
from itofit.whole_file import whole_file


class Style(NamedTuple):
    """The name of a method in the picture, and its line."""

    label: str
    colour: str
    width: float


STYLES = {
    "rolling-all": Style("RM, all days", "#d4a017", 1.6),
    "kalman-matched": Style("KF, after bin 0", "#1e8449", 1.1),
    "moments-clock": Style("ours, median (clock)", MODEL, 1.1),
    "moments-pairs": Style("ours, median (pairs)", "#7d3c98", 1.1),
}
BANDED = "moments-clock"


def picture(task: Task, results: Mapping[str, Result]) -> Picture:
    """One panel a bin; the band is the central 80 % of ours. No data are written beside it."""
    drawn = {
        name: results[name].forecasts["median"]
        for name in DRAWN
        if name in results and results[name].forecasts
    }
    figure, axes = grid(2, 2, 4.7, 2.4, sharex=True, sharey=True)
    numbers = {}
    for k, (ax, b) in enumerate(zip(axes.ravel(), TEST_BINS, strict=True)):
        numbers[f"bin {b}"] = _panel(ax, task, drawn, k)
    for ax in axes[-1]:
        ax.set_xlabel("test day", fontsize=9)
    for ax in axes[:, 0]:
        ax.set_ylabel("shares in 5 minutes", fontsize=9)
    handles, labels = axes[0, 0].get_legend_handles_labels()
    figure.legend(
        handles, labels, loc="outside lower center", ncols=len(labels), frameon=False, fontsize=8
    )
    figure.suptitle(
        f"{task.stock}, group {task.group}: the last {N_TEST} days, logarithmic axis", fontsize=10
    )
    return Picture(
        figure, {"stock": task.stock, "group": task.group, "n_paths": N_PATHS}, {"mape": numbers}
    )


def shrink(path: Path) -> None:
    """Keep 64 colours of a PNG: a third of its size, and the lines are as they were."""
    with Image.open(path) as drawn:
        small = drawn.convert("RGB").quantize(64)
    with whole_file(path) as partial:
        small.save(partial, format="PNG", optimize=True)


def _panel(ax: Axes, task: Task, drawn: Mapping[str, Forecast], k: int) -> dict[str, float]:
    days = np.arange(N_TEST)
    truth = np.exp(task.truth[:, k])
    errors = {}
    if BANDED in drawn:
        low, high = np.exp(drawn[BANDED].quantiles[[0, -1], :, k])
        ax.fill_between(
            days,
            low,
            high,
            color=MODEL,
            alpha=0.13,
            linewidth=0,
            label="ours (clock), central 80 %",
        )
    ax.plot(days, truth, "o", color=TRUTH, markersize=2.4, label="truth")
    for name, forecast in drawn.items():
        style = STYLES[name]
        volume = forecast.volume[:, k]
        ax.plot(days, volume, color=style.colour, linewidth=style.width, label=style.label)
        errors[name] = mape(volume, truth)
    ax.set_yscale("log")
    ax.set_title(f"bin {TEST_BINS[k]}, {5 * TEST_BINS[k]} minutes after the open", fontsize=9)
    ax.tick_params(labelsize=7)
    ax.grid(color=MUTED, alpha=0.2, linewidth=0.5)
    return errors
