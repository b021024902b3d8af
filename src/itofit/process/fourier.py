"""Smooth features that stop growing far from the data: lines and cosines of softly bounded inputs.

    phi(x) = [1, z, sqrt(2 / n) cos(omega_j . z + beta_j)],    z = bound tanh((x - m) / (s bound))

Frequencies come in pairs with phases a quarter of a turn apart, so that a ridge on the cosines is a
Gaussian process whose kernel is a mixture of Gaussian bells, of length scales log-uniform between
.7 and 3 (times sqrt(D / 3) in more than three dimensions). They are quasi-random: scrambled Sobol
points, so that two seeds give nearly the same kernel.
"""

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int
from scipy.stats import norm, qmc

from itofit.process.features import AbstractFeatures, Point
from itofit.process.waves import cosine, sine

_BOUND = 4.0
_SHORTEST = 0.7
_LONGEST = 3.0


class FourierFeatures(AbstractFeatures):
    """[1, z, cosines of z], z softly bounded about `centre` in units of `width`.

    `subset` are the features that count, None for all.
    """

    centre: Point
    width: Point
    directions: Float[Array, "n_cosines n_dims"]
    offsets: Float[Array, " n_cosines"]
    subset: tuple[int, ...] | None = eqx.field(static=True, default=None)

    @classmethod
    def draw(cls, n_dims: int, n_cosines: int, rng: np.random.Generator) -> "FourierFeatures":
        """Features of standardised inputs."""
        n_pairs = (n_cosines + 1) // 2
        sobol = qmc.Sobol(n_dims + 2, rng=rng)
        uniform = sobol.random_base2(int(np.ceil(np.log2(max(2, n_pairs)))))[:n_pairs]
        uniform = np.clip(uniform, 1e-6, 1.0 - 1e-6)
        scale = _SHORTEST * (_LONGEST / _SHORTEST) ** uniform[:, -2]
        scale = scale * max(1.0, np.sqrt(n_dims / 3.0))
        directions = norm.ppf(uniform[:, :n_dims]) / scale[:, None]
        phase = 2.0 * np.pi * uniform[:, -1]
        offsets = np.stack([phase, phase - 0.5 * np.pi], axis=1).ravel()
        return cls(
            jnp.zeros(n_dims),
            jnp.ones(n_dims),
            jnp.asarray(np.repeat(directions, 2, axis=0)[:n_cosines], dtype=float),
            jnp.asarray(offsets[:n_cosines], dtype=float),
        )

    def in_units(self, centre: np.ndarray, width: np.ndarray) -> "FourierFeatures":
        """The same functions of (x - centre) / width."""
        return FourierFeatures(
            jnp.asarray(centre, dtype=float),
            jnp.asarray(width, dtype=float),
            self.directions,
            self.offsets,
            self.subset,
        )

    @property
    def n_all(self) -> int:
        """Features before any is left out."""
        return 1 + len(self.centre) + len(self.offsets)

    def __call__(self, x: Point) -> Float[Array, " n_features"]:
        z = self._bounded(x)
        waves = self._height * cosine(self.directions @ z + self.offsets)
        phi = jnp.concatenate([jnp.ones(1, z.dtype), z, waves])
        return phi if self.subset is None else phi[np.asarray(self.subset, dtype=int)]

    def slope(
        self, x: Point, coefficients: Float[Array, "n_features n_outputs"]
    ) -> Float[Array, "n_outputs n_dims"]:
        if self.subset is not None:
            every = jnp.zeros((self.n_all, coefficients.shape[1]), coefficients.dtype)
            coefficients = every.at[np.asarray(self.subset, dtype=int)].set(coefficients)
        n_dims = len(x)
        z = self._bounded(x)
        falls = -self._height * sine(self.directions @ z + self.offsets)
        outer = coefficients[1 + n_dims :, :, None] * self.directions[:, None, :]
        waves = (falls @ outer.reshape(len(falls), -1)).reshape(outer.shape[1:])
        return (coefficients[1 : 1 + n_dims].T + waves) * (1.0 - (z / _BOUND) ** 2) / self.width

    def only(self, index: Int[np.ndarray, " n_kept"]) -> "FourierFeatures":
        before = index if self.subset is None else np.asarray(self.subset, dtype=int)[index]
        subset = tuple(int(i) for i in before)
        return FourierFeatures(self.centre, self.width, self.directions, self.offsets, subset)

    @property
    def _height(self) -> float:
        return float(np.sqrt(2.0 / max(1, len(self.offsets))))

    def _bounded(self, x: Point) -> Point:
        return _BOUND * jnp.tanh((x - self.centre) / (self.width * _BOUND))
