"""The methods of the table: a name and how to fit it to the training snapshots of a known system."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array

from itofit import FokkerPlanckProcess, KnownSystem, Midpoint, Persistence, Snapshots
from itofit.face import Face

# (system, training snapshots, seed, preset, device) -> fitted face
Method = Callable[[KnownSystem, Snapshots, int, str, str], Face]


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


def fit_adversarial(system: KnownSystem, training: Snapshots, seed: int, preset: str, device: str) -> Face:
    """Algorithm 1 of the paper."""
    return _weak(system, seed, preset, device, solver="adversarial").fit(training)


def fit_collocation(system: KnownSystem, training: Snapshots, seed: int, preset: str, device: str) -> Face:
    """Weak collocation regression."""
    del preset, device
    from itofit.baselines import Collocation

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
    "adversarial": fit_adversarial,
    "collocation": fit_collocation,
    "persistence": fit_persistence,
    "midpoint": fit_midpoint,
}


def sigma_of(system: KnownSystem) -> float:
    """The noise of the system, which every method is told; isotropic in all of the paper's systems."""
    return float(system.process.diffusion(jnp.zeros(system.n_dims))[0, 0])


def _weak(system: KnownSystem, seed: int, preset: str, device: str, **how: Any) -> FokkerPlanckProcess:
    return FokkerPlanckProcess(sigma_of(system), dt=system.dt, preset=preset, device=device, random_state=seed, **how)
