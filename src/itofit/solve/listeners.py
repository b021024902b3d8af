"""Listeners: what looks on while a run goes. The loop calls them with a `Progress`; they never touch the run."""

import json
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path


@dataclass(frozen=True)
class Progress:
    """Where a run stands after a block of iterations; `rate` is iterations per second of this session."""

    n_done: int
    n_total: int
    rate: float
    loss: float
    residuals: tuple[float, ...]
    criterion: float
    best_criterion: float
    slope: float

    @property
    def seconds_left(self) -> float:
        """Time to the iteration budget at this rate; a plateau may end the run earlier."""
        return (self.n_total - self.n_done) / max(self.rate, 1e-9)


Listener = Callable[[Progress], None]


class MetricLog:
    """Appends every `Progress` as one line of JSON to a file."""

    def __init__(self, path: str | Path):
        self.path = Path(path)

    def __call__(self, progress: Progress) -> None:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(asdict(progress)) + "\n")


class ProgressBar:
    """A bar on stderr with rate, loss, criterion and time left; plain lines where rich is missing or not a terminal."""

    def __init__(self, label: str = "fit"):
        self.label = label
        self._bar = None
        self._task = None
        self._shown = 0

    def __enter__(self) -> "ProgressBar":
        if sys.stderr.isatty():
            self._bar = _rich_bar()
        if self._bar is not None:
            self._bar.start()
            self._task = self._bar.add_task(self.label, total=None)
        return self

    def __exit__(self, *_) -> None:
        if self._bar is not None:
            self._bar.stop()

    def __call__(self, progress: Progress) -> None:
        told = (
            f"loss {progress.loss:.4f}  criterion {progress.criterion:.4f} (best {progress.best_criterion:.4f})  "
            f"{progress.rate:.1f} it/s  {progress.seconds_left:.0f} s left"
        )
        if self._bar is not None and self._task is not None:
            self._bar.update(self._task, completed=progress.n_done, total=progress.n_total, told=told)
        elif progress.n_done * 10 // progress.n_total > self._shown:
            self._shown = progress.n_done * 10 // progress.n_total
            sys.stderr.write(f"{self.label} {progress.n_done}/{progress.n_total}  {told}\n")


def _rich_bar():
    try:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
    except ImportError:
        return None
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[told]}"),
    )
    bar = Progress(*columns, console=Console(stderr=True), transient=True)
    add_task = bar.add_task
    bar.add_task = lambda *args, **kwargs: add_task(*args, told="compiling", **kwargs)
    return bar
