"""The error of a scheme's law at the reported times, and the seconds that it takes."""

import itertools
import time
from collections.abc import Callable, Iterable

import jax
import jax.numpy as jnp
import numpy as np

from experiments.schemes.linear import Linear, start_of
from experiments.schemes.records import Record
from experiments.schemes.steps import (
    BATCH,
    SCHEMES,
    Array,
    Run,
    draw,
    mesh_of,
    report_times,
    simulate,
)
from itofit import KnownSystem

Errors = dict[str, np.ndarray]


def exact_law_errors(system: KnownSystem, scheme: str, dt: float) -> Errors:
    """Mean and sd error in units of sd at the reported times, without Monte Carlo (Euler and Heun
    on Syn-1).
    """
    linear = Linear.of(system)
    mesh = mesh_of(system, dt)
    means, variances = linear.path(scheme, *start_of(system), mesh.steps)
    nodes = list(mesh.observed[1:])
    truth = [linear.continuous(*start_of(system), t) for t in report_times(system)]
    mean = np.array([m for m, _ in truth])
    sd = np.sqrt([v for _, v in truth])
    none = np.zeros_like(sd)
    return {
        "mean": (means[nodes] - mean) / sd,
        "mean_se": none,
        "sd": np.sqrt(variances[nodes]) / sd - 1.0,
        "sd_se": none,
    }


def paired_errors(x: Array, y: Array) -> Errors:
    """Mean and sd of x less those of y in units of y's sd, the samples (axis 1) being paired, with
    standard errors.
    """
    sd = y.std(1)
    shift = (x - y) / sd[:, None]
    spread = ((x - x.mean(1, keepdims=True)) ** 2 - (y - y.mean(1, keepdims=True)) ** 2) / (
        2.0 * sd[:, None] ** 2
    )
    root_n = np.sqrt(x.shape[1])
    return {
        "mean": shift.mean(1),
        "mean_se": shift.std(1) / root_n,
        "sd": x.std(1) / sd - 1.0,
        "sd_se": spread.std(1) / root_n,
    }


def shark_law_errors(system: KnownSystem, dt: float, n: int, key) -> Errors:
    """ShARK on Syn-1: paired with Heun at the same step, whose own error is exact."""
    mesh = mesh_of(system, dt)
    pairs = []
    for k in jax.random.split(key, max(1, n // BATCH)):
        k0, k1 = jax.random.split(k)
        start = system.sample_initial(min(n, BATCH), k0)
        noise = draw(k1, len(start), system.n_dims, mesh.steps)
        both = [
            simulate(SCHEMES[s], system.process, start, mesh.steps, *noise)
            for s in ("ShARK", "Heun")
        ]
        pairs.append([np.asarray(path[np.array(mesh.observed[1:])]) for path in both])
    x, y = np.concatenate(pairs, axis=2)
    errors = paired_errors(x, y)
    known = exact_law_errors(system, "Heun", dt)
    return errors | {name: errors[name] + known[name] for name in ("mean", "sd")}


def law_records(
    system: KnownSystem, scheme: str, dt: float, errors: Errors, seconds: float
) -> list[Record]:
    """One record a reported time and coordinate."""
    steps = len(mesh_of(system, dt).steps)
    return [
        {
            "part": "law",
            "system": system.name,
            "scheme": scheme,
            "dt": dt,
            "evaluations": SCHEMES[scheme].evaluations * steps,
            "seconds_ratio": seconds,
            "time": t,
            "times": "train" if t in system.train_times else "test",
            "coordinate": c,
            **{name: float(value[i, c]) for name, value in errors.items()},
        }
        for i, t in enumerate(report_times(system))
        for c in range(system.n_dims)
    ]


def seconds_of(
    system: KnownSystem, runs: Iterable[Run], n: int = 5000, repeats: int = 7
) -> dict[Run, float]:
    """Seconds to draw the noise and push n particles through all reported times: the fastest of
    calls taken in turn.
    """
    start = system.sample_initial(n, jax.random.key(0))
    pushes = {run: _push(system, *run) for run in runs}
    taken: dict[Run, list[float]] = {run: [] for run in pushes}
    for i, (run, push) in itertools.product(range(repeats + 1), pushes.items()):
        began = time.perf_counter()
        push(start, jax.random.key(i)).block_until_ready()
        taken[run].append(time.perf_counter() - began)
    return {run: min(several[1:]) for run, several in taken.items()}


def _push(system: KnownSystem, scheme: str, dt: float) -> Callable:
    steps = jnp.asarray(mesh_of(system, dt).steps)
    kind = SCHEMES[scheme]

    def step(x, step_and_key):
        h, key = step_and_key
        z = jax.random.normal(key, (1 + kind.needs_area, *x.shape)) * jnp.sqrt(h)
        area = z[-1] / np.sqrt(12.0)
        steps_of_all = jax.vmap(kind.step, (None, 0, None, 0, 0))
        return steps_of_all(system.process, x, h, z[0], area), None

    def push(start, key):
        keys = jax.random.split(key, len(steps))
        return jax.lax.scan(step, start, (steps, keys))[0]

    return jax.jit(push)
