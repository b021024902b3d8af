"""The zoo in one picture: tasks down, methods across, coloured by the ratio to the trivial rows."""

from pathlib import Path

import numpy as np
from benchmarks.zoo.leaderboard import Results, is_second
from benchmarks.zoo.registry import TASKS

# Colours end at four times better or worse.
_MOST = 2.0
_INCHES_A_TASK = 0.2
_INCHES_A_METHOD = 0.85
_FAILED = "0.85"


def draw(results: Results, path: Path) -> None:
    """Draw the first starts of all methods; blue is better than every trivial row, red worse."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    tasks = results.tasks
    methods = [method for method in results.cases if not is_second(method)]
    ratios = _ratios(results, tasks, methods)
    size = 3.2 + _INCHES_A_METHOD * len(methods), 1.8 + _INCHES_A_TASK * len(tasks)
    figure, axes = pyplot.subplots(figsize=size, layout="constrained")
    shades = matplotlib.colormaps["RdBu_r"].with_extremes(bad="white")
    image = axes.imshow(np.log2(ratios), cmap=shades, vmin=-_MOST, vmax=_MOST, aspect="auto")
    _write_cells(axes, results, tasks, methods)
    axes.set_xticks(range(len(methods)), methods, rotation=40, ha="left", rotation_mode="anchor")
    axes.xaxis.tick_top()
    axes.set_yticks(range(len(tasks)), tasks, fontsize=7)
    axes.tick_params(length=0)
    _part_families(axes, tasks)
    bar = figure.colorbar(image, ax=axes, orientation="horizontal", fraction=0.02, pad=0.01)
    bar.set_ticks([-2, -1, 0, 1, 2], labels=["1/4", "1/2", "1", "2", "4"])
    bar.set_label("W1 over that of the best trivial row;  x failed,  ° within 2 sd of the floor")
    figure.savefig(path, dpi=150)
    pyplot.close(figure)


def _ratios(results: Results, tasks: list[str], methods: list[str]) -> np.ndarray:
    """Tasks by methods; NaN where there is none."""
    table = np.full((len(tasks), len(methods)), np.nan)
    for j, method in enumerate(methods):
        for i, task in enumerate(tasks):
            case = results.cases[method].get(task)
            if case is not None and case.ratio is not None:
                table[i, j] = case.ratio
    return table


def _write_cells(axes, results: Results, tasks: list[str], methods: list[str]) -> None:
    from matplotlib.patches import Rectangle

    for j, method in enumerate(methods):
        for i, task in enumerate(tasks):
            case = results.cases[method].get(task)
            if case is None:
                continue
            if case.ratio is None:
                axes.add_patch(Rectangle((j - 0.5, i - 0.5), 1.0, 1.0, color=_FAILED))
            number = "" if case.ratio is None else f"{case.ratio:.2f}"
            marks = ("°" if case.at_floor else "") + (" x" * bool(case.failures))
            strong = case.ratio is not None and abs(np.log2(case.ratio)) > 0.7 * _MOST
            colour = "white" if strong else "black"
            axes.text(j, i, number + marks, ha="center", va="center", fontsize=6.5, color=colour)


def _part_families(axes, tasks: list[str]) -> None:
    for i in range(1, len(tasks)):
        if TASKS[tasks[i]].family != TASKS[tasks[i - 1]].family:
            axes.axhline(i - 0.5, color="black", linewidth=0.6)
