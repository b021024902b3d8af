"""Errors of the law and weak residuals by Monte Carlo, where no law is known: all schemes on one
Brownian path.
"""

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from experiments.schemes.law import Errors, paired_errors
from experiments.schemes.linear import sigma_of
from experiments.schemes.quadrature import RULES, delayed, held, rules_on
from experiments.schemes.records import Record
from experiments.schemes.residuals import DATA, PROBES, Choice, Probe, residual_records
from experiments.schemes.steps import (
    BATCH,
    CELLS,
    SCHEMES,
    Array,
    Run,
    coarsened,
    draw,
    mesh_of,
    runs,
    simulate,
)
from itofit import KnownSystem
from itofit.process.ito import ItoProcess


@dataclass(frozen=True)
class Refined:
    """Paths of several schemes, and the reference (Heun on cells of 0.01 / 48), all on one Brownian
    path.
    """

    paths: dict[Run, Array]
    increments: Array
    reference: Array


class Sampled(NamedTuple):
    """What sampled residuals from time 0 to `time` are of."""

    data: str
    path: str
    rule: str
    probe: str
    time: float


def refined_paths(system: KnownSystem, every: Sequence[Run], n: int, key) -> Refined:
    """All nodes of every run, the increments of Euler's chain at the system's step, the reference
    at reported times.
    """
    cell = 0.01 / CELLS
    k0, k1 = jax.random.split(key)
    fine = mesh_of(system, cell)
    start = system.sample_initial(n, k0)
    w, area = draw(k1, n, system.n_dims, fine.steps)

    def noise(mesh):
        return coarsened(w, area, cell, np.rint(mesh.times / cell).astype(int))

    paths = {}
    for name, dt in every:
        mesh = mesh_of(system, dt)
        paths[name, dt] = np.asarray(
            simulate(SCHEMES[name], system.process, start, mesh.steps, *noise(mesh))
        )
    reference = simulate(SCHEMES["Heun"], system.process, start, fine.steps, w, area)[
        np.array(fine.observed)
    ]
    return Refined(paths, np.asarray(noise(mesh_of(system, system.dt))[0]), np.asarray(reference))


def mean_zero(probe: Probe, x: Array, drift: Array, kicks: Array, h: Array, sigma: float) -> Array:
    """Sum over the steps of f'(X_k + h g_k / 2) S dW_k + f''(X_k) ((S dW_k)^2 - S^2 h) / 2: nearly
    all of the noise.
    """
    ahead = probe.slope(x[:-1] + 0.5 * h * drift[:-1])
    return (ahead * kicks + 0.5 * probe.curvature(x[:-1]) * (kicks**2 - sigma**2 * h)).sum(0)


def sampled_residuals(system: KnownSystem, refined: Refined) -> Iterator[tuple[Sampled, Array]]:
    """Per sample, from 0 to every time an even number of steps away: terms whose mean is r(f), and
    f(X_t).
    """
    sigma = sigma_of(system)
    mesh = mesh_of(system, system.dt)
    reached = [(i, node) for i, node in enumerate(mesh.observed) if node and node % 2 == 0]
    drifts = {
        path: _drifts(system.process, refined.paths[path, system.dt]) for path in ("Euler", "Heun")
    }
    for path, (name, probe), (i, node) in itertools.product(drifts, PROBES.items(), reached):
        steps = mesh.steps[:node]
        x = refined.paths[path, system.dt][: node + 1]
        now = drifts[path][: node + 1]
        noise = mean_zero(
            probe, x, now, sigma * refined.increments[:node], steps[:, None, None], sigma
        )
        targets = (refined.paths["Euler", system.dt][node], refined.reference[i])
        for rule in rules_on(path, steps):
            drift = held(now, delayed(now), steps) if rule == "chain" else now
            generator = probe.slope(x) * drift + 0.5 * sigma**2 * probe.curvature(x)
            known = probe.value(x[0]) + np.tensordot(RULES[rule](steps), generator, 1) + noise
            for data, target in zip(DATA, map(probe.value, targets), strict=True):
                time = float(mesh.times[node])
                yield Sampled(data, path, rule, name, time), np.stack([target - known, target])


def _drifts(process: ItoProcess, path: Array) -> Array:
    return np.asarray(jax.vmap(jax.vmap(process.drift))(jnp.asarray(path)))


def monte_carlo(
    system: KnownSystem, schemes: list[str], n: int, key
) -> tuple[dict[Run, Errors], list[Record]]:
    """Errors of the law for every run, and the residuals, from n particles in batches."""
    every = [*runs(schemes), ("Heun", 2 * 0.01 / CELLS)]
    clouds = []
    sums: dict[Sampled, Array | float] = {}
    n_batches = max(1, n // BATCH)
    size = min(n, BATCH)
    for k in jax.random.split(key, n_batches):
        refined = refined_paths(system, every, size, k)
        at_times = [
            refined.paths[scheme, dt][np.array(mesh_of(system, dt).observed)]
            for scheme, dt in every
        ]
        clouds.append([*at_times, refined.reference])
        for sampled, terms in sampled_residuals(system, refined):
            new = np.array([terms.sum(1), (terms**2).sum(1)])
            sums[sampled] = sums.get(sampled, 0.0) + new
    *laws, reference = np.concatenate(clouds, axis=2)[:, 1:]
    errors = {run: paired_errors(x, reference) for run, x in zip(every, laws, strict=True)}
    records = []
    for sampled, total in sums.items():
        (r, mean), (r_square, square) = total / (n_batches * size)
        sd = np.sqrt(square - mean**2)
        se = np.sqrt(np.maximum(r_square - r**2, 0.0) / (n_batches * size))
        choice = Choice(sampled.data, "initial", sampled.path, sampled.rule, sampled.probe)
        records += residual_records(system, choice, (0.0, sampled.time), r / sd, se / sd)
    return errors, records
