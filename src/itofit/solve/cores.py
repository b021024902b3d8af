"""Work shared by the cores of a CPU: XLA runs a loop of small steps on one of them only."""

import functools
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

import jax
import jax.numpy as jnp

Item = TypeVar("Item")
Answer = TypeVar("Answer")


def on_cores(function: Callable[[Item], Answer], items: Sequence[Item]) -> list[Answer]:
    """`function(item)` for every item; on a CPU by one thread a core."""
    if not on_cpu() or len(items) < 2:
        return [function(item) for item in items]
    device = _device()

    def work(item):
        with jax.default_device(device):
            return jax.block_until_ready(function(item))

    return list(_pool().map(work, items))


def on_cpu() -> bool:
    """Whether what runs now runs on a CPU."""
    return _device().platform == "cpu"


def _device() -> Any:
    """The device of the caller's `jax.default_device`, which threads do not inherit."""
    return jnp.zeros(()).devices().pop()


@functools.cache
def _pool() -> ThreadPoolExecutor:
    allowed = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return ThreadPoolExecutor(allowed, thread_name_prefix="itofit")
