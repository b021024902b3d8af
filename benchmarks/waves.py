"""Cosines of single precision: the library's against the polynomial of `process/waves.py`.

    python -m benchmarks.waves [--size 200000]

Nanoseconds a value on one core, each the best of five times of fifty calls, and the ratio.
"""

import argparse
import os
import time
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np

from itofit.process.waves import cosine

_CALLS = 50
_TIMES = 5


def nanoseconds(function: Callable, x: jax.Array) -> float:
    """A value, compiled before."""
    compiled = jax.jit(function)
    compiled(x).block_until_ready()
    best = np.inf
    for _ in range(_TIMES):
        began = time.perf_counter()
        for _ in range(_CALLS):
            compiled(x).block_until_ready()
        best = min(best, time.perf_counter() - began)
    return 1e9 * best / (_CALLS * x.size)


def main() -> None:
    """Both, and their ratio."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--size", type=int, default=200_000)
    args = parser.parse_args()
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    x = jnp.asarray(3.0 * np.random.default_rng(0).standard_normal(args.size), dtype=jnp.float32)
    library = nanoseconds(jnp.cos, x)
    ours = nanoseconds(cosine, x)
    print(f"{'jnp.cos':<10}{library:>8.2f} ns")
    print(f"{'cosine':<10}{ours:>8.2f} ns")
    print(f"{'ratio':<10}{library / ours:>8.1f}")


if __name__ == "__main__":
    main()
