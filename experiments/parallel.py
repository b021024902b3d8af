"""Independent fits in several processes, each on one core."""

import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import get_context
from typing import Any


def made(work: Callable[..., Any], tasks: Sequence[tuple[Any, ...]], n_jobs: int) -> Iterator[Any]:
    """`work(*task)` of every task, as they are done; with one job here, on all cores."""
    if n_jobs == 1:
        yield from (work(*task) for task in tasks)
        return
    context = get_context("spawn")
    cores = context.Queue()
    for core in range(n_jobs):
        cores.put(core)
    with ProcessPoolExecutor(n_jobs, context, initializer=_take_core, initargs=(cores,)) as pool:
        for future in as_completed([pool.submit(work, *task) for task in tasks]):
            yield future.result()


def _take_core(cores) -> None:
    os.sched_setaffinity(0, {cores.get()})
