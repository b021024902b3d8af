"""Monomials phi_b(x) = prod_k x_k^{a_bk}: a dictionary in which a polynomial drift is linear."""

import functools
import itertools
from collections import Counter
from collections.abc import Sequence

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from itofit.errors import InputError


class Monomials(eqx.Module):
    """Products of coordinates, for one sample.

    - `terms`: one sorted tuple of coordinates per monomial, repeated as often as they count: `()`
      is 1, `(0,)` is x0 and `(0, 0, 1)` is x0^2 x1.
    """

    terms: tuple[tuple[int, ...], ...] = eqx.field(static=True)

    def __check_init__(self):
        wrong = [
            term for term in self.terms if term != tuple(sorted(term)) or min(term, default=0) < 0
        ]
        if wrong:
            raise InputError(
                expected="terms as sorted tuples of coordinates from 0 on",
                found=f"{wrong[0]}",
                hint="(0, 0, 1)",
            )

    @classmethod
    def up_to(cls, n_dims: int, degree: int) -> "Monomials":
        """Every monomial of total degree at most `degree`, by degree and then lexicographically."""
        degrees = range(degree + 1)
        return cls(
            tuple(
                t
                for d in degrees
                for t in itertools.combinations_with_replacement(range(n_dims), d)
            )
        )

    def __call__(self, x: Float[Array, " n_dims"]) -> Float[Array, " n_features"]:
        """phi(x)."""
        padded = jnp.append(x, 1.0)
        index = self._index(len(x))
        # Products with unit vectors instead of padded[k]: the gradient of a gather is a scatter.
        unit = np.eye(len(padded), dtype=padded.dtype)
        picked = [jnp.matmul(padded, unit[:, k], precision="highest") for k in index]
        return functools.reduce(jnp.multiply, picked)

    def rows(self, x: Float[np.ndarray, "n n_dims"]) -> Float[np.ndarray, "n n_features"]:
        """The monomials at every row, in double precision whatever jax computes in."""
        padded = np.column_stack([x, np.ones(len(x))])
        index = self._index(x.shape[1])
        value = padded[:, index[0]]
        for factor in index[1:]:
            value *= padded[:, factor]
        return value

    def names(self, coordinates: Sequence[str]) -> list[str]:
        """One name per monomial, such as `1`, `x0` and `x0^2 x1`."""
        return [_name(term, coordinates) for term in self.terms]

    def change_of_units(
        self, mean: Float[np.ndarray, " n_dims"], sd: Float[np.ndarray, " n_dims"]
    ) -> Float[np.ndarray, "n_features n_features"]:
        """The matrix T of phi(mean + sd z) = T' phi(z); every divisor of a term must be a term, as
        in `up_to`.
        """
        position = {term: b for b, term in enumerate(self.terms)}
        matrix = np.zeros((len(self.terms), len(self.terms)))
        for column, term in enumerate(self.terms):
            for mask in itertools.product((False, True), repeat=len(term)):
                chosen = tuple(itertools.compress(term, mask))
                rest = tuple(k for k, mark in zip(term, mask, strict=True) if not mark)
                matrix[position[chosen], column] += np.prod(sd[list(chosen)]) * np.prod(
                    mean[list(rest)]
                )
        return matrix

    def _index(self, filler: int) -> Int[np.ndarray, "length n_features"]:
        """Which coordinate each factor is; short terms are filled up with the position `filler` of
        a constant 1.
        """
        length = max([1, *map(len, self.terms)])
        rows = [[*term, *[filler] * (length - len(term))] for term in self.terms]
        return np.array(rows, dtype=int).T


def _name(term: tuple[int, ...], coordinates: Sequence[str]) -> str:
    powers = Counter(coordinates[k] for k in term)
    return (
        " ".join(name if power == 1 else f"{name}^{power}" for name, power in powers.items()) or "1"
    )
