"""Tables in Markdown: the tasks, the leaderboard, scores by task, and what failed."""

from collections.abc import Sequence
from pathlib import Path

from benchmarks.zoo.leaderboard import (
    Case,
    Figures,
    Results,
    geometric_mean,
    leaderboard,
    ratio_of_truth,
    spread_of_truth,
)
from benchmarks.zoo.plan import REAL
from benchmarks.zoo.registry import TASKS
from benchmarks.zoo.rows import TRIVIAL

_NONE = "-"

_LEADERBOARD_NOTE = (
    "Ratios are W1 over that of the best trivial row of the same task and seed; below 1 is better "
    "than all of them. Failed fits have no ratio: they are left out of means and counted beside. "
    "Well: no failure, and at most 1.05 times the best trivial row or within 2 sd of the floor."
)
_TASKS_NOTE = (
    "Floor and best trivial row: W1, geometric mean over seeds. Methods: the ratio to the best "
    "trivial row, geometric mean over seeds; ° within 2 sd of the floor; the number of seeds that "
    "failed beside it."
)


def listing(tasks: Sequence[str], data: Path | None) -> str:
    """The tasks, one a line: name, family, what is asked, dimensions, snapshots, points, remark."""
    lines = [("task", "family", "asks", "D", "snapshots", "points", "remark")]
    for name in tasks:
        task = TASKS[name]
        lines.append((name, task.family, task.asks, *_sizes(name, data), task.remark))
    widths = [max(len(line[k]) for line in lines) for k in range(len(lines[0]))]
    return "\n".join(
        "  ".join(word.ljust(width) for word, width in zip(line, widths, strict=True)).rstrip()
        for line in lines
    )


def _sizes(name: str, data: Path | None) -> list[str]:
    """Dimensions, snapshots given + asked for, points of a snapshot."""
    if TASKS[name].family == REAL and data is None:
        return [_NONE, _NONE, "--data"]
    trial = TASKS[name].trial(0, data)
    counts = (*trial.given.counts, *trial.asked.counts)
    points = f"{min(counts)}" if min(counts) == max(counts) else f"{min(counts)}-{max(counts)}"
    return [f"{trial.given.n_dims}", f"{len(trial.given)}+{len(trial.asked)}", points]


def report(results: Results) -> str:
    """Everything in words: the leaderboard, scores by task, failures."""
    parts = [leaderboard_table(results), task_table(results), failure_table(results)]
    return "\n\n".join(part for part in parts if part)


def leaderboard_table(results: Results) -> str:
    """A line a method, the six figures across."""
    head = (
        "method",
        "tasks",
        "failures",
        "well",
        "ratio",
        "ratio where the law moves",
        "worst ratio",
        "spread over seeds, median and worst",
        "seconds, median and worst",
    )
    rows = [_line(figures) for figures in leaderboard(results)]
    truth = f"A perfect model would have the ratio {_number(ratio_of_truth(results))}"
    spread = spread_of_truth(results)
    truth += "." if spread is None else f" and the median spread {_number(spread)}."
    return f"{_markdown(head, rows)}\n\n{_LEADERBOARD_NOTE} {truth}"


def _line(figures: Figures) -> tuple[str, ...]:
    worst = _NONE if figures.worst is None else f"{figures.worst:.2f} ({figures.worst_task})"
    return (
        figures.method,
        f"{figures.n_tasks}",
        f"{figures.failures} of {figures.n_fits}",
        f"{100.0 * figures.fraction_well:.0f} %",
        _number(figures.ratio),
        _number(figures.ratio_moving),
        worst,
        f"{_number(figures.spread)}, {_number(figures.worst_spread)}",
        f"{_number(figures.seconds, 1)}, {_number(figures.worst_seconds, 0)}",
    )


def task_table(results: Results) -> str:
    """A line a task, methods that learn across."""
    methods = [method for method in results.cases if method not in TRIVIAL]
    rows = []
    for task in results.tasks:
        cells = [_cell(results.cases[method].get(task)) for method in methods]
        rows.append((task, TASKS[task].asks, *_yardstick(results, task), *cells))
    head = ("task", "asks", "floor", "best trivial row", *methods)
    return f"{_markdown(head, rows)}\n\n{_TASKS_NOTE}"


def _yardstick(results: Results, task: str) -> tuple[str, str]:
    sticks = [stick for (name, _), stick in results.yardsticks.items() if name == task]
    if not sticks:
        return _NONE, _NONE
    names = sorted({stick.row for stick in sticks})
    best = geometric_mean(stick.W1 for stick in sticks)
    floor = geometric_mean(stick.floor for stick in sticks)
    return f"{floor:.3g}", f"{best:.3g} {' or '.join(names)}"


def _cell(case: Case | None) -> str:
    if case is None:
        return ""
    failures = f"{len(case.failures)} failed" if case.failures else ""
    ratio = "" if case.ratio is None else f"{case.ratio:.2f}{'°' if case.at_floor else ''}"
    return ", ".join(word for word in (ratio, failures) if word)


def failure_table(results: Results) -> str:
    """What failed and why; nothing where all is well."""
    rows = [
        (case.task, method, ", ".join(map(str, seeds)), why)
        for method, cases in results.cases.items()
        for case in cases.values()
        for why, seeds in _by_reason(case).items()
    ]
    return _markdown(("task", "method", "seeds", "failure"), rows) if rows else ""


def _by_reason(case: Case) -> dict[str, list[int]]:
    reasons: dict[str, list[int]] = {}
    for seed, why in case.failures.items():
        reasons.setdefault(" ".join(why.split()), []).append(seed)
    return reasons


def _number(value: float | None, digits: int = 2) -> str:
    return _NONE if value is None else f"{value:.{digits}f}"


def _markdown(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)
