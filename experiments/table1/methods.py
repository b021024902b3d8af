"""The methods of the table: a name and how to fit it to the training snapshots of a known system.

`METHODS` are fitted seed by seed; those of `TOGETHER` take the data of all seeds and train them in one batch.
"""

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array

from itofit import (
    Collocation,
    FokkerPlanckProcess,
    KnownSystem,
    Legend,
    Midpoint,
    Persistence,
    PotentialRNN,
    Snapshots,
    fit_together,
)
from itofit.face import Face

# (system, training snapshots, seed, preset, device) -> fitted face
Method = Callable[[KnownSystem, Snapshots, int, str, str], Face]
# (system, training snapshots of every seed, seeds, preset, device, budget of iterations) -> fitted faces
Batch = Callable[[KnownSystem, Sequence[Snapshots], Sequence[int], str, str, int | None], Sequence[Face]]


def oracle_dictionary(name: str, dim: int) -> Callable[[Array], Array]:
    """The functions that hold the true drift of the system `name`, for a fit that only has to find coefficients.

    Affine for Syn-1; affine and the cubes of the first coordinate of each block for Syn-3; affine and the blocks'
    responsibilities for Syn-2, whose field is -(x - mu_2 - share (mu_1 - mu_2)) / 4.
    """
    first, second, sd = jnp.array([12.0, 15.0]), jnp.array([-15.0, -15.0]), 4.0

    def share(block: Array) -> Array:
        return jax.nn.sigmoid((jnp.sum((block - second) ** 2) - jnp.sum((block - first) ** 2)) / (2.0 * sd**2))

    extra: dict[str, Callable[[Array], Array]] = {
        "syn1": lambda x: x[:0],
        "syn2": lambda x: jax.vmap(share)(x.reshape(-1, 2)),
        "syn3": lambda x: x[::2] ** 3,
    }
    if name not in extra:
        raise NotImplementedError(f"no oracle dictionary for {name} at D = {dim}")
    return lambda x: jnp.concatenate([jnp.ones(1), x, extra[name](x)])


def fit_moments(system: KnownSystem, training: Snapshots, seed: int, preset: str, device: str) -> Face:
    """The moment solver with its own dictionary."""
    return _weak(system, seed, preset, device, solver="moments").fit(training)


def fit_oracle(system: KnownSystem, training: Snapshots, seed: int, preset: str, device: str) -> Face:
    """The moment solver with a dictionary that holds the true drift: how well this data can be used at all."""
    options = {"dictionary": oracle_dictionary(system.name, system.n_dims)}
    return _weak(system, seed, preset, device, solver="moments", options=options).fit(training)


def adversarial(**choices: Any) -> Batch:
    """Algorithm 1 of the paper with these choices."""

    def fit(system, data, seeds, preset, device, n_iter):
        how = {"solver": "adversarial", "n_iter": n_iter} | choices
        return fit_together([_weak(system, seed, preset, device, **how) for seed in seeds], data)

    return fit


def rival(kind: type[PotentialRNN] | type[Legend], **choices: Any) -> Batch:
    """One of the paper's rivals with these choices; it knows no preset."""

    def fit(system, data, seeds, preset, device, n_iter):
        del preset
        how = {"dt": system.dt, "device": device} | ({} if n_iter is None else {"n_iter": n_iter}) | choices
        return fit_together([kind(sigma_of(system), **how, random_state=seed) for seed in seeds], data)

    return fit


def fit_collocation(system: KnownSystem, training: Snapshots, seed: int, preset: str, device: str) -> Face:
    """Weak collocation regression."""
    del preset, device
    return Collocation(sigma_of(system), dt=system.dt, random_state=seed).fit(training)


def fit_persistence(system: KnownSystem, training: Snapshots, seed: int, preset: str, device: str) -> Face:
    """The last training snapshot."""
    del system, preset, device
    return Persistence(random_state=seed).fit(training)


def fit_midpoint(system: KnownSystem, training: Snapshots, seed: int, preset: str, device: str) -> Face:
    """Displacement interpolation between the bracketing training snapshots."""
    del system, preset, device
    return Midpoint(random_state=seed).fit(training)


METHODS: dict[str, Method] = {
    "moments": fit_moments,
    "oracle": fit_oracle,
    "collocation": fit_collocation,
    "persistence": fit_persistence,
    "midpoint": fit_midpoint,
}

TOGETHER: dict[str, Batch] = {
    "adversarial": adversarial(),
    "adversarial-warm": adversarial(warm_start="moments"),
    "adversarial-detached": adversarial(gradient="detached"),
    "direct": adversarial(discrepancy="direct"),
    "potential-rnn": rival(PotentialRNN),
    "potential-rnn-initial": rival(PotentialRNN, anchor="initial"),
    "potential-rnn-faithful": rival(PotentialRNN, mode="faithful", n_ramps=300),
    "legend": rival(Legend),
}


# What the paper compares, ours, and the rows that keep everyone honest; the others are variants.
COMPARED = ("persistence", "midpoint", "collocation", "potential-rnn", "legend", "adversarial", "moments", "oracle")


def sigma_of(system: KnownSystem) -> float:
    """The noise of the system, which every method is told; isotropic in all of the paper's systems."""
    return float(system.process.diffusion(jnp.zeros(system.n_dims))[0, 0])


def _weak(system: KnownSystem, seed: int, preset: str, device: str, **how: Any) -> FokkerPlanckProcess:
    return FokkerPlanckProcess(sigma_of(system), dt=system.dt, preset=preset, device=device, random_state=seed, **how)
