"""Fixed test functions in a snapshot's own units, z = (x - centre) / width:

    first two moments   z_a, z_a z_b                      far-sighted: they see where a distant cloud is
    cosines             cos(omega_m . z + phase_m)        sharp: they see its shape

and the covariance of the residuals they give.
"""

import abc
from itertools import combinations

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

Point = Float[Array, " n_dims"]


class AbstractProbes(eqx.Module):
    """Many test functions of one state."""

    @abc.abstractmethod
    def __call__(self, x: Point) -> Float[Array, " n_probes"]:
        """f_m(x)."""


class MomentProbes(AbstractProbes):
    """Means and covariances: z_a and z_a z_b for the pairs (a, b)."""

    centre: Point
    width: Point
    pairs: tuple[tuple[int, int], ...] = eqx.field(static=True)

    def __call__(self, x: Point) -> Float[Array, " n_probes"]:
        z = (x - self.centre) / self.width
        rows, columns = np.asarray(self.pairs, dtype=int).reshape(-1, 2).T
        return jnp.concatenate([z, z[rows] * z[columns]])


class CosineProbes(AbstractProbes):
    """cos(omega_m . z + phase_m)."""

    centre: Point
    width: Point
    omega: Float[Array, "n_probes n_dims"]
    phase: Float[Array, " n_probes"]

    def __call__(self, x: Point) -> Float[Array, " n_probes"]:
        return jnp.cos(self.omega @ ((x - self.centre) / self.width) + self.phase)


class JoinedProbes(AbstractProbes):
    """Several kinds of probes, one after the other."""

    parts: tuple[AbstractProbes, ...]

    def __call__(self, x: Point) -> Float[Array, " n_probes"]:
        return jnp.concatenate([part(x) for part in self.parts])


def moment_pairs(n_dims: int, most: int, rng: np.random.Generator) -> tuple[tuple[int, int], ...]:
    """Every square and every product of two coordinates; of the products a random choice where they are too many."""
    squares = [(a, a) for a in range(n_dims)]
    products = list(combinations(range(n_dims), 2))
    if len(products) > most:
        products = [products[i] for i in sorted(rng.choice(len(products), most, replace=False))]
    return tuple(squares + products)


def random_frequencies(
    n_dims: int,
    n_single: int,
    n_pair: int,
    n_all: int,
    rng: np.random.Generator,
    shortest: float = 0.4,
    longest: float = 3.0,
) -> tuple[Float[np.ndarray, "n_probes n_dims"], Float[np.ndarray, " n_probes"]]:
    """Frequencies of cosines of one coordinate, of each pair and of all, and their phases.

    1 / |omega| is log-uniform between `shortest` and `longest`.
    """
    subsets = [(a,) for a in range(n_dims) for _ in range(n_single)]
    subsets += [pair for pair in combinations(range(n_dims), 2) for _ in range(n_pair)]
    subsets += [tuple(range(n_dims))] * n_all
    omega = np.zeros((len(subsets), n_dims))
    for row, subset in zip(omega, subsets, strict=True):
        direction = rng.standard_normal(len(subset))
        row[list(subset)] = direction / np.linalg.norm(direction)
    lengths = np.exp(rng.uniform(np.log(shortest), np.log(longest), len(subsets)))
    return omega / lengths[:, None], rng.uniform(0.0, 2.0 * np.pi, len(subsets))
