"""Jobs in processes of their own, so that a fit past its budget can be ended.

    for job, records in finished(jobs, n_jobs=2, budget=300.0): ...

With several jobs at a time each has one core. The budget is the fit's alone: not importing, drawing
the trial or scoring.
"""

import os
import signal
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from multiprocessing import get_context
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess

from benchmarks.zoo.jobs import FITTING, SCORING, Job, Record, failed, work

_STARTING = "starting"
# Seconds to import and draw a trial, and to forecast and score.
_ASIDE = 300.0
_THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")

Work = Callable[[Connection, Job], None]


@dataclass(eq=False)
class _Running:
    """A process at work: the rows it still has to do, and when it will have taken too long."""

    job: Job
    process: BaseProcess
    pipe: Connection
    cores: set[int]
    budget: float
    rows: list[str]
    stage: str = _STARTING
    deadline: float = field(default_factory=lambda: time.monotonic() + _ASIDE)
    records: list[Record] = field(default_factory=list)

    def listen(self) -> None:
        """Take in what the process says; silence past the deadline is a failure."""
        if not self.pipe.poll():
            self._fail(_LATE[self.stage].format(self.budget), self._limit())
            return
        try:
            message = self.pipe.recv()
        except EOFError:
            self.process.join()
            self._fail(f"the process died with exit code {self.process.exitcode}")
            return
        if isinstance(message, list):
            self.records += message
            self.rows.pop(0)
            message = _STARTING
        self.stage = message
        self.deadline = time.monotonic() + self._limit()

    def end(self) -> None:
        """End the process and what it started; one that is done is only waited for."""
        if self.process.is_alive():
            self.process.kill()
        # It may have ended, or have no group of its own yet.
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.join()
        self.pipe.close()

    def _limit(self) -> float:
        return self.budget if self.stage == FITTING else _ASIDE

    def _fail(self, why: str, seconds: float | None = None) -> None:
        for row in self.rows:
            self.records += failed(self.job, row, why, len(self.cores), seconds)
        self.rows = []


_LATE = {
    _STARTING: "could not begin in time",
    FITTING: "past its budget of {:g} s",
    SCORING: "could not be scored in time",
}


def finished(
    jobs: Sequence[Job], n_jobs: int, budget: float, work: Work = work
) -> Iterator[tuple[Job, list[Record]]]:
    """Jobs and their records, in the order in which they end."""
    waiting = deque(jobs)
    free = _cores(n_jobs)
    running: list[_Running] = []
    try:
        while waiting or running:
            while waiting and free:
                running.append(_begun(waiting.popleft(), free.pop(), budget, work))
            _hear(running)
            for done in [process for process in running if not process.rows]:
                running.remove(done)
                done.end()
                free.append(done.cores)
                yield done.job, done.records
    finally:
        for process in running:
            process.end()


def _cores(n_jobs: int) -> list[set[int]]:
    """The cores of every job at work: all of them for a single one."""
    cores = sorted(os.sched_getaffinity(0))
    return [set(cores)] if n_jobs == 1 else [{cores[k % len(cores)]} for k in range(n_jobs)]


def _hear(running: Sequence[_Running]) -> None:
    """Wait until a process speaks or is late."""
    earliest = min(process.deadline for process in running)
    ready = wait([process.pipe for process in running], max(earliest - time.monotonic(), 0.0))
    for process in running:
        if process.pipe in ready or time.monotonic() >= process.deadline:
            process.listen()


def _begun(job: Job, cores: set[int], budget: float, work: Work) -> _Running:
    context = get_context("spawn")
    ours, theirs = context.Pipe(duplex=False)
    process = context.Process(target=work, args=(theirs, job))
    with _only(cores):
        process.start()
    theirs.close()
    return _Running(job, process, ours, cores, budget, list(job.rows))


@contextmanager
def _only(cores: set[int]) -> Iterator[None]:
    """What starts here has these cores and as many threads: libraries count when they load."""
    before = os.sched_getaffinity(0)
    environment = {name: os.environ.get(name) for name in _THREADS}
    os.sched_setaffinity(0, cores)
    os.environ.update(dict.fromkeys(_THREADS, str(len(cores))))
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)
        for name, value in environment.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
