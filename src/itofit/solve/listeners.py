"""Listeners: what looks on while a run goes; called with a `Progress`, they never touch the run."""

import json
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

from itofit.errors import InputError
from itofit.solve.checkpoint import CheckpointFolder


@dataclass(frozen=True)
class Progress:
    """Where a run stands after a block of iterations; `rate` is iterations a second, now."""

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


@dataclass(frozen=True)
class Watch:
    """What looks on at a fit, and where its runs are saved as they go."""

    listeners: tuple[Listener, ...] = ()
    checkpoints: CheckpointFolder | None = None

    def refuse_checkpoints(self, method: str) -> None:
        """For a method whose runs cannot be continued."""
        if self.checkpoints is not None:
            raise InputError(
                expected="a method whose runs can be continued, where a checkpoint is given",
                found=method,
                hint="leave checkpoint out, or solver='adversarial'",
            )


class MetricLog:
    """Appends every `Progress` as one line of JSON to a file."""

    def __init__(self, path: str | Path):
        self.path = Path(path)

    def __call__(self, progress: Progress) -> None:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(asdict(progress)) + "\n")


class ProgressBar:
    """A bar on stderr with rate, loss, criterion and time left.

    Plain lines where rich is missing, or where stderr is no terminal. A `remark` is said first.
    """

    def __init__(self, label: str = "fit", remark: str | None = None):
        self.label = label
        self.remark = remark
        self._bar = None
        self._task = None
        self._n_done = 0
        self._tenths = 0

    def __enter__(self) -> "ProgressBar":
        if self.remark is not None:
            sys.stderr.write(f"{self.remark}\n")
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
        status = (
            f"loss {progress.loss:.4f}  criterion {progress.criterion:.4f} "
            f"(best {progress.best_criterion:.4f})  {progress.rate:.1f} it/s  "
            f"{progress.seconds_left:.0f} s left"
        )
        if self._bar is not None and self._task is not None:
            self._bar.update(
                self._task, completed=progress.n_done, total=progress.n_total, status=status
            )
            return
        if progress.n_done < self._n_done:  # another run has begun, with a shorter step say
            self._tenths = 0
        self._n_done = progress.n_done
        tenths = progress.n_done * 10 // progress.n_total
        if tenths > self._tenths:
            self._tenths = tenths
            sys.stderr.write(f"{self.label} {progress.n_done}/{progress.n_total}  {status}\n")


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
        TextColumn("{task.fields[status]}"),
    )
    bar = Progress(*columns, console=Console(stderr=True), transient=True)
    add_task = bar.add_task
    bar.add_task = lambda *args, **kwargs: add_task(*args, status="compiling", **kwargs)
    return bar
