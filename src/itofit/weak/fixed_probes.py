"""Fixed test functions in a snapshot's own units, z = (x - centre) / width:

    first two moments   z_a, z_a z_b                  far-sighted: where a distant cloud is
    cosines             cos(omega_m . z + phase_m)    sharp: its shape

and the covariance of the residuals they give.
"""

import abc
from collections.abc import Callable
from itertools import combinations

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from itofit.process.waves import cosine, sine

Point = Float[Array, " n_dims"]


class AbstractPathProbes(eqx.Module):
    """Many test functions of the end of a path, which may depend on where it began."""

    @abc.abstractmethod
    def given(self, start: Point) -> Callable[[Point], Float[Array, " n_probes"]]:
        """f_m as functions of the end of a path from `start`."""


class AbstractProbes(AbstractPathProbes):
    """Many test functions of one state."""

    def given(self, start: Point) -> Callable[[Point], Float[Array, " n_probes"]]:
        return self

    @abc.abstractmethod
    def __call__(self, x: Point) -> Float[Array, " n_probes"]:
        """f_m(x)."""

    @abc.abstractmethod
    def support(self) -> Bool[np.ndarray, "n_probes n_dims"]:
        """Which coordinates each f_m depends on."""

    @abc.abstractmethod
    def bend(
        self, x: Point, covariance: Float[Array, "n_dims n_dims"]
    ) -> Float[Array, " n_probes"]:
        """1/2 tr(a f_m''(x)): what noise of covariance a adds to f_m in a unit of time."""

    @abc.abstractmethod
    def paired(
        self, points: Float[Array, "n n_dims"], phi: Float[Array, "n n_features"]
    ) -> Float[Array, "n_probes n_dims n_features"]:
        """sum_i grad f_m(x_i) phi(x_i)', by products of matrices of n rows, no larger array."""


class MomentProbes(AbstractProbes):
    """Means and covariances: z_a and z_a z_b for the pairs (a, b)."""

    centre: Point
    width: Point
    pairs: tuple[tuple[int, int], ...] = eqx.field(static=True)

    def __call__(self, x: Point) -> Float[Array, " n_probes"]:
        z = (x - self.centre) / self.width
        rows, columns = self._columns()
        return jnp.concatenate([z, z[rows] * z[columns]])

    def support(self) -> Bool[np.ndarray, "n_probes n_dims"]:
        unit = np.eye(len(self.centre), dtype=bool)
        rows, columns = self._columns()
        return np.concatenate([unit, unit[rows] | unit[columns]])

    def bend(
        self, x: Point, covariance: Float[Array, "n_dims n_dims"]
    ) -> Float[Array, " n_probes"]:
        rows, columns = self._columns()
        scaled = covariance / (self.width[:, None] * self.width)
        return jnp.concatenate([jnp.zeros_like(x), scaled[rows, columns]])

    def paired(
        self, points: Float[Array, "n n_dims"], phi: Float[Array, "n n_features"]
    ) -> Float[Array, "n_probes n_dims n_features"]:
        rows, columns = self._columns()
        z = (points - self.centre) / self.width
        unit = jnp.diag(1.0 / self.width)[:, :, None]
        phi_sum = jnp.sum(phi, axis=0)
        z_phi = (z.T @ phi)[:, None, :]
        products = unit[rows] * z_phi[columns] + unit[columns] * z_phi[rows]
        return jnp.concatenate([unit * phi_sum, products])

    def _columns(self) -> Int[np.ndarray, "2 n_pairs"]:
        return np.asarray(self.pairs, dtype=int).reshape(-1, 2).T


class CosineProbes(AbstractProbes):
    """cos(omega_m . z + phase_m)."""

    centre: Point
    width: Point
    omega: Float[Array, "n_probes n_dims"]
    phase: Float[Array, " n_probes"]

    def __call__(self, x: Point) -> Float[Array, " n_probes"]:
        return cosine(self.omega @ ((x - self.centre) / self.width) + self.phase)

    def support(self) -> Bool[np.ndarray, "n_probes n_dims"]:
        return np.asarray(self.omega) != 0.0

    def bend(
        self, x: Point, covariance: Float[Array, "n_dims n_dims"]
    ) -> Float[Array, " n_probes"]:
        omega = self.omega / self.width
        return -0.5 * self(x) * jnp.sum((omega @ covariance) * omega, axis=1)

    def paired(
        self, points: Float[Array, "n n_dims"], phi: Float[Array, "n n_features"]
    ) -> Float[Array, "n_probes n_dims n_features"]:
        angles = ((points - self.centre) / self.width) @ self.omega.T + self.phase
        sin_phi = sine(angles).T @ phi
        return -(self.omega / self.width)[:, :, None] * sin_phi[:, None, :]


class JoinedProbes(AbstractProbes):
    """Several kinds of probes, one after the other."""

    parts: tuple[AbstractProbes, ...]

    def __call__(self, x: Point) -> Float[Array, " n_probes"]:
        return jnp.concatenate([part(x) for part in self.parts])

    def support(self) -> Bool[np.ndarray, "n_probes n_dims"]:
        return np.concatenate([part.support() for part in self.parts])

    def bend(
        self, x: Point, covariance: Float[Array, "n_dims n_dims"]
    ) -> Float[Array, " n_probes"]:
        return jnp.concatenate([part.bend(x, covariance) for part in self.parts])

    def paired(
        self, points: Float[Array, "n n_dims"], phi: Float[Array, "n n_features"]
    ) -> Float[Array, "n_probes n_dims n_features"]:
        return jnp.concatenate([part.paired(points, phi) for part in self.parts])


def units_of(x: Float[np.ndarray, "n n_dims"], w: Float[np.ndarray, " n"]) -> tuple[Point, Point]:
    """Centre and width of a cloud: its mean and sd, the latter never 0."""
    mean = w @ x
    sd = np.sqrt(w @ (x - mean) ** 2)
    width = np.maximum(sd, 1e-6 * sd.max() + 1e-12)
    return jnp.asarray(mean, dtype=float), jnp.asarray(width, dtype=float)


def moment_pairs(n_dims: int, most: int, rng: np.random.Generator) -> tuple[tuple[int, int], ...]:
    """Every square, and every product of two coordinates or a random choice of `most` of them."""
    squares = [(a, a) for a in range(n_dims)]
    products = list(combinations(range(n_dims), 2))
    if len(products) > most:
        drawn = rng.choice(len(products), most, replace=False)
        products = [products[i] for i in sorted(drawn)]
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
