"""Syn-1 is linear: the law of a path by its mean and variance, without sampling."""

from dataclasses import dataclass

import jax.numpy as jnp
import numpy as np

from experiments.schemes.steps import Array
from itofit import KnownSystem
from itofit.simulate.mesh import Mesh


@dataclass(frozen=True)
class Linear:
    """dX = -a (X - mu) dt + sigma dW in every coordinate."""

    a: Array
    mu: Array
    sigma: float

    @classmethod
    def of(cls, system: KnownSystem) -> "Linear":
        """Syn-1's coefficients."""
        assert system.linear is not None
        return cls(np.diag(system.linear.matrix), system.linear.fixed_point, sigma_of(system))

    def factors(self, scheme: str, h: float) -> tuple[Array, Array | float]:
        """What a step multiplies X - mu and sigma W by."""
        z = self.a * h
        return (1.0 - z, 1.0) if scheme == "Euler" else (1.0 - z + 0.5 * z**2, 1.0 - 0.5 * z)

    def path(self, scheme: str, mean: Array, var: Array, steps: Array) -> tuple[Array, Array]:
        """Mean and variance at every node."""
        means = [mean]
        variances = [var]
        for h in steps:
            flow, kick = self.factors(scheme, h)
            means.append(self.mu + flow * (means[-1] - self.mu))
            variances.append(flow**2 * variances[-1] + h * (self.sigma * kick) ** 2)
        return np.array(means), np.array(variances)

    def continuous(self, mean: Array, var: Array, t: float) -> tuple[Array, Array]:
        """Mean and variance after a time t."""
        flow = np.exp(-self.a * t)
        rest = self.sigma**2 / (2.0 * self.a)
        return self.mu + flow * (mean - self.mu), rest + flow**2 * (var - rest)


def sigma_of(system: KnownSystem) -> float:
    """The sigma of S = sigma I."""
    return float(system.process.diffusion(jnp.zeros(system.n_dims))[0, 0])


def start_of(system: KnownSystem) -> tuple[Array, Array]:
    """Mean and variance of the initial law."""
    return np.zeros(system.n_dims), np.diag(system.initial_cov).copy()


def steps_between(s: float, t: float, dt: float) -> Array:
    """Equal steps of length `dt` from s to t."""
    return Mesh.refine([s, t], dt).steps


def law_of(data: str, system: KnownSystem, t: float) -> tuple[Array, Array]:
    """Mean and variance of Syn-1 at t: of the Euler chain with the system's step, or in continuous
    time.
    """
    linear = Linear.of(system)
    start = start_of(system)
    if data == "continuous" or t == 0.0:
        return linear.continuous(*start, t)
    means, variances = linear.path("Euler", *start, steps_between(0.0, t, system.dt))
    return means[-1], variances[-1]
