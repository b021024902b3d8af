"""Terms of a potential V(x) = w' psi(x), of which a drift is the gradient.

    smooth   [x_a, x_a x_b, cosines],  products and cosines such that all gradients are bounded
    sparse   monomials of degree 1 to 4; outside a box every power goes on as its tangent

    x_a x_b  as  f((x_a + x_b) / sqrt 2) - f((x_a - x_b) / sqrt 2),    f(u) = 16 log cosh(u / 4)
    cosines  of  z = 4 tanh(x / 4), divided by their slope, so that all have a drift of order one

D is the metric of the drift -D grad V. f is u^2 / 2 near the data, of slope 4 tanh(u / 4).
"""

import functools
from collections import Counter
from collections.abc import Sequence
from itertools import combinations, combinations_with_replacement

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from itofit.process.features import (
    MANY_DIMS,
    AbstractFeatures,
    Dictionary,
    Group,
    Point,
    joined,
)
from itofit.process.fourier import FourierFeatures
from itofit.process.waves import cosine, sine

_BOUND = 4.0
# Dimensions up to which all monomials of degree 4 are terms.
_FEW_DIMS = 4
# The least slope that a cosine is divided by, in the mean over cosines.
_LEAST_SLOPE = 1e-3


class SmoothTerms(AbstractFeatures):
    """Lines, bounded products, and cosines of bounded inputs, each times its height.

    A product is f(plus . x) - f(minus . x).
    """

    lines: Float[Array, "n_lines n_inputs"]
    plus: Float[Array, "n_products n_inputs"]
    minus: Float[Array, "n_products n_inputs"]
    directions: Float[Array, "n_cosines n_inputs"]
    offsets: Float[Array, " n_cosines"]
    heights: Float[Array, " n_features"]

    def __call__(self, x: Point) -> Float[Array, " n_features"]:
        products = _bowl(self.plus @ x) - _bowl(self.minus @ x)
        waves = cosine(self.directions @ _bounded(x) + self.offsets)
        return self.heights * jnp.concatenate([self.lines @ x, products, waves])

    def slope(
        self, x: Point, coefficients: Float[Array, "n_features n_outputs"]
    ) -> Float[Array, "n_outputs n_inputs"]:
        z = _bounded(x)
        w = coefficients.T * self.heights
        first = len(self.lines)
        last = first + len(self.plus)
        products = w[:, first:last]
        rises = (products * _bounded(self.plus @ x)) @ self.plus
        falls = (products * _bounded(self.minus @ x)) @ self.minus
        turns = (w[:, last:] * sine(self.directions @ z + self.offsets)) @ self.directions
        return w[:, :first] @ self.lines + rises - falls - turns * (1.0 - (z / _BOUND) ** 2)

    def only(self, index: Int[np.ndarray, " n_kept"]) -> "SmoothTerms":
        first = len(self.lines)
        last = first + len(self.plus)
        products = index[(index >= first) & (index < last)] - first
        waves = index[index >= last] - last
        return SmoothTerms(
            self.lines[index[index < first]],
            self.plus[products],
            self.minus[products],
            self.directions[waves],
            self.offsets[waves],
            self.heights[index],
        )


class TangentMonomials(AbstractFeatures):
    """Monomials, each times its height, whose powers go on as their tangents outside a box."""

    terms: tuple[tuple[int, ...], ...] = eqx.field(static=True)
    low: Point
    high: Point
    heights: Float[Array, " n_features"]

    def __call__(self, x: Point) -> Float[Array, " n_features"]:
        inside = jnp.clip(x, self.low, self.high)
        beyond = jnp.where(x == inside, 0.0, x - inside)
        powers = [jnp.ones_like(x), x]
        for k in range(2, 1 + max((len(term) for term in self.terms), default=1)):
            powers.append(inside**k + k * inside ** (k - 1) * beyond)
        table = jnp.stack(powers)
        # Products with unit vectors: the gradient of a gather is a scatter.
        unit = np.eye(len(powers), dtype=table.dtype)
        degrees = [[term.count(a) for term in self.terms] for a in range(len(x))]
        picked = [unit[degree] @ table[:, a] for a, degree in enumerate(degrees) if any(degree)]
        return self.heights * functools.reduce(jnp.multiply, picked)

    def slope(
        self, x: Point, coefficients: Float[Array, "n_features n_outputs"]
    ) -> Float[Array, "n_outputs n_inputs"]:
        return jax.jacrev(lambda y: self(y) @ coefficients)(x)

    def only(self, index: Int[np.ndarray, " n_kept"]) -> "TangentMonomials":
        terms = tuple(self.terms[i] for i in index)
        return TangentMonomials(terms, self.low, self.high, self.heights[index])


def smooth_terms(
    metric: Float[np.ndarray, " n_dims"],
    n_inputs: int,
    n_cosines: int,
    rng: np.random.Generator,
) -> Dictionary:
    """Terms of a smooth potential; inputs after the coordinates, the clock, have no drift."""
    n_dims = len(metric)
    size = np.append(metric, np.ones(n_inputs - n_dims))
    lines = np.eye(n_inputs)[:n_dims]
    products = _products(n_dims, n_inputs)
    plus, minus = _sides(products, n_inputs)
    waves = FourierFeatures.draw(n_inputs, n_cosines, rng)
    slopes = np.linalg.norm(np.asarray(waves.directions)[:, :n_dims] * metric, axis=1)
    slopes = np.maximum(slopes, _LEAST_SLOPE * np.mean(slopes))
    heights = np.concatenate([
        1.0 / metric,
        [1.0 / np.sqrt(np.prod(size[list(pair)])) for pair in products],
        np.sqrt(2.0 * n_dims / n_cosines) / slopes,
    ])  # fmt: skip
    features = SmoothTerms(
        jnp.asarray(lines, dtype=float),
        jnp.asarray(plus, dtype=float),
        jnp.asarray(minus, dtype=float),
        waves.directions,
        waves.offsets,
        jnp.asarray(heights, dtype=float),
    )
    pushes = [Group(1, "constant", (a,)) for a in range(n_dims)]
    pulls = [Group(1, "linear", pair) for pair in products]
    return Dictionary(features, (*pushes, *pulls, Group(n_cosines, "wave", tuple(range(n_inputs)))))


def sparse_terms(
    metric: Float[np.ndarray, " n_dims"],
    low: Float[np.ndarray, " n_inputs"],
    high: Float[np.ndarray, " n_inputs"],
) -> Dictionary:
    """Monomials of degree 1 to 4, those above 2 with tangents outside the box.

    All of them in few dimensions, only powers in many. What follows the coordinates is the clock.
    """
    n_dims = len(metric)
    n_inputs = len(low)
    everywhere = np.full(n_inputs, np.inf)
    lines = [(a,) for a in range(n_dims)]
    lower = [*lines, *_products(n_dims, n_inputs)]
    return joined([
        _monomials(lower, metric, -everywhere, everywhere),
        _monomials(_higher(n_dims, n_inputs), metric, low, high),
    ])  # fmt: skip


def _higher(n_dims: int, n_inputs: int) -> list[tuple[int, ...]]:
    if n_inputs <= _FEW_DIMS:
        every = [t for k in (3, 4) for t in combinations_with_replacement(range(n_inputs), k)]
        return [term for term in every if min(term) < n_dims]
    terms = [(a,) * power for power in (3, 4) for a in range(n_dims)]
    if n_inputs <= MANY_DIMS:
        others = [(a, b) for a in range(n_dims) for b in range(n_inputs) if a != b]
        terms += [tuple(sorted((a, a, b))) for a, b in others]
    return terms


def _products(n_dims: int, n_inputs: int) -> list[tuple[int, ...]]:
    """Squares and pairs, in many dimensions squares and those with the clock."""
    squares = [(a, a) for a in range(n_dims)]
    last = n_inputs if n_inputs <= MANY_DIMS else n_dims
    pairs = [pair for pair in combinations(range(last), 2) if last <= MANY_DIMS]
    clocked = [(a, b) for a in range(n_dims) for b in range(n_dims, n_inputs)]
    return [*squares, *dict.fromkeys([*(p for p in pairs if p[0] < n_dims), *clocked])]


def _sides(
    products: Sequence[tuple[int, ...]], n_inputs: int
) -> tuple[Float[np.ndarray, "n_products n_inputs"], Float[np.ndarray, "n_products n_inputs"]]:
    """The directions whose bowls are added and taken off: of a square the axis and none."""
    eye = np.eye(n_inputs)
    plus = np.asarray([(eye[a] + eye[b]) / (2.0 if a == b else np.sqrt(2.0)) for a, b in products])
    minus = np.asarray([(eye[a] - eye[b]) / np.sqrt(2.0) for a, b in products])
    return plus, minus


def _monomials(
    terms: Sequence[tuple[int, ...]], metric: np.ndarray, low: np.ndarray, high: np.ndarray
) -> Dictionary:
    """These terms, of heights at which their drift is of order one."""
    n_dims = len(metric)
    size = np.append(metric, np.ones(len(low) - n_dims))
    groups = []
    heights = []
    for term in terms:
        moved = [a for a in term if a < n_dims]
        count = Counter(moved).most_common(1)[0][1]
        heights.append(1.0 / (count * np.exp(np.mean(np.log(size[moved])))))
        kind = ("constant", "linear", "monomial", "monomial")[len(term) - 1]
        groups.append(Group(1, "time" if len(moved) < len(term) else kind, tuple(term)))
    features = TangentMonomials(
        tuple(map(tuple, terms)),
        jnp.asarray(low, dtype=float),
        jnp.asarray(high, dtype=float),
        jnp.asarray(heights, dtype=float),
    )
    return Dictionary(features, tuple(groups))


def _bounded(u: Array) -> Array:
    return _BOUND * jnp.tanh(u / _BOUND)


def _bowl(u: Array) -> Array:
    """16 log cosh(u / 4)."""
    size = jnp.abs(u) / _BOUND
    return _BOUND**2 * (size + jnp.log1p(jnp.exp(-2.0 * size)) - np.log(2.0))
