"""Work on several local processes, the same as in this one: answers come in the order of the items.

    answers_k = work(item_k, log)

An item and the work travel pickled; an answer comes back with the passes its log was told of. A
process that breaks down is no reason to fail: what it did not answer is done here.
"""

import multiprocessing
import pickle
import signal
import warnings
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

import jax
from threadpoolctl import threadpool_limits

from itofit.bridge.solution import PassLog
from itofit.compiled import keep_compiled
from itofit.errors import FitWarning, InputError
from itofit.solve.cores import on_cpu

Item = TypeVar("Item")
Answer = TypeVar("Answer")
Work = Callable[[Item, PassLog], Answer]


@dataclass(frozen=True)
class Surroundings:
    """What a process takes over from the one that began it, besides its environment."""

    x64: bool
    platforms: str | None
    compiled: str | None

    @classmethod
    def here(cls) -> "Surroundings":
        """Those of this process."""
        values = jax.config.values
        return cls(
            x64=values["jax_enable_x64"],
            platforms="cpu" if on_cpu() else values["jax_platforms"],
            compiled=values["jax_compilation_cache_dir"],
        )

    def enter(self) -> None:
        """Make them those of this process, which leaves Ctrl-C to the one that began it."""
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        jax.config.update("jax_enable_x64", self.x64)
        jax.config.update("jax_platforms", self.platforms)
        keep_compiled()
        if self.compiled is not None:
            jax.config.update("jax_compilation_cache_dir", self.compiled)


def each(work: Work, items: Sequence[Item], log: PassLog, jobs: int) -> list[Answer]:
    """`work(item, log)` of every item, by so many processes where there are several items."""
    n_processes = min(jobs, len(items))
    if n_processes < 2:
        return [work(item, log) for item in items]
    _check_travels(work, items)
    with _pool(n_processes) as pool:
        futures = [pool.submit(_answered, work, item) for item in items]
        return [
            _heard(future, work, item, log) for future, item in zip(futures, items, strict=True)
        ]


def _heard(future: Future, work: Work, item: Item, log: PassLog) -> Any:
    """The answer of a process, or where it broke down our own."""
    try:
        answer, missed = future.result()
    except BrokenProcessPool:
        warnings.warn(
            "a process of judging ended before its time, say for want of memory: its part is done "
            "in this one; jobs=1 begins none, and a script needs `if __name__ == '__main__':`",
            FitWarning,
            stacklevel=2,
        )
        return work(item, log)
    for one in missed:
        log.note(one)
    return answer


def _answered(work: Work, item: object) -> tuple[Any, list[float]]:
    """In the other process: the answer, and what the passes missed."""
    log = PassLog(0, ())
    with threadpool_limits(1, user_api="blas"):
        answer = work(item, log)
    return answer, log.missed


@contextmanager
def _pool(n_processes: int) -> Iterator[ProcessPoolExecutor]:
    """Processes that end with the block, at once where it is left by an exception."""
    before = multiprocessing.active_children()
    pool = ProcessPoolExecutor(
        n_processes,
        mp_context=multiprocessing.get_context("spawn"),
        initializer=Surroundings.here().enter,
    )
    try:
        yield pool
    except BaseException:
        for process in multiprocessing.active_children():
            if process not in before:
                process.terminate()
        pool.shutdown(wait=False, cancel_futures=True)
        raise
    pool.shutdown()


def _check_travels(work: Work, items: Sequence[Item]) -> None:
    """Refuse what cannot be pickled, before any process is begun."""
    try:
        pickle.dumps((work, items))
    except (pickle.PicklingError, AttributeError, TypeError) as error:
        raise InputError(
            expected="what another process can be given where jobs is above 1",
            found=str(error).splitlines()[0],
            hint="jobs=1, or a sigma that is a function of a module, not a lambda",
        ) from None
