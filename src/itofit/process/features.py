"""Dictionaries phi for drifts linear in their unknowns, g(x) = W' phi(x).

    phi(x) = [1, x, monomials of low order, tanh(omega_j . x + beta_j), ...]

Features come in groups that live or die together: every monomial is one, and so are the tanh
features of one coordinate, of one pair of coordinates, or of all of them.
"""

import abc
import functools
from collections import Counter
from collections.abc import Callable, Sequence
from itertools import combinations, combinations_with_replacement
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from itofit.process.monomials import Monomials
from itofit.snapshots.clouds import Snapshots

Point = Float[Array, " n_dims"]

# Above this pairs of coordinates are too many to be features of their own.
MANY_DIMS = 16
# Quantiles that bound the core of a coordinate.
_CORE = (0.005, 0.995)


class AbstractFeatures(eqx.Module):
    """A dictionary phi of one state that knows the slope of a drift made of it."""

    @abc.abstractmethod
    def __call__(self, x: Point) -> Float[Array, " n_features"]:
        """phi(x)."""

    @abc.abstractmethod
    def slope(
        self, x: Point, coefficients: Float[Array, "n_features n_outputs"]
    ) -> Float[Array, "n_outputs n_dims"]:
        """d(W' phi(x)) / dx.

        Written as phi'(x) times a matrix that does not depend on x, so that over a batch of points
        it is one matrix product, an order of magnitude faster than automatic differentiation column
        by column.
        """

    @abc.abstractmethod
    def only(self, index: Int[np.ndarray, " n_kept"]) -> "AbstractFeatures":
        """The dictionary of these features alone."""


class FunctionFeatures(AbstractFeatures):
    """A dictionary given as a function of one state in the user's units: phi(z) = function(mean +
    sd z) / size.

    `kept` are the features that count, None for all.
    """

    function: Callable[[Point], Float[Array, " n_all"]]
    mean: Point
    sd: Point
    size: Float[Array, " n_all"]
    kept: tuple[int, ...] | None = eqx.field(static=True, default=None)

    def __call__(self, x: Point) -> Float[Array, " n_features"]:
        value = jnp.atleast_1d(self.function(self.mean + self.sd * x)) / self.size
        return value if self.kept is None else value[np.asarray(self.kept, dtype=int)]

    def slope(
        self, x: Point, coefficients: Float[Array, "n_features n_outputs"]
    ) -> Float[Array, "n_outputs n_dims"]:
        return jax.jacfwd(lambda y: self(y) @ coefficients)(x)

    def only(self, index: Int[np.ndarray, " n_kept"]) -> "FunctionFeatures":
        before = index if self.kept is None else np.asarray(self.kept, dtype=int)[index]
        return FunctionFeatures(
            self.function, self.mean, self.sd, self.size, tuple(int(i) for i in before)
        )


class Ridges(AbstractFeatures):
    """phi_j(x) = tanh(omega_j . x + beta_j)."""

    directions: Float[Array, "n_features n_dims"]
    offsets: Float[Array, " n_features"]

    def __call__(self, x: Point) -> Float[Array, " n_features"]:
        return jnp.tanh(self.directions @ x + self.offsets)

    def slope(
        self, x: Point, coefficients: Float[Array, "n_features n_outputs"]
    ) -> Float[Array, "n_outputs n_dims"]:
        outer = coefficients[:, :, None] * self.directions[:, None, :]
        bell = 1.0 - self(x) ** 2
        return (bell @ outer.reshape(len(bell), -1)).reshape(outer.shape[1:])

    def only(self, index: Int[np.ndarray, " n_kept"]) -> "Ridges":
        return Ridges(self.directions[index], self.offsets[index])


class RidgeSlopes(AbstractFeatures):
    """sech^2(omega_u . x + beta_u) [x, 1], ridge by ridge: how ridges change with their directions
    and offsets.

    `kept` are the features that count, None for all.
    """

    directions: Float[Array, "n_ridges n_dims"]
    offsets: Float[Array, " n_ridges"]
    kept: tuple[int, ...] | None = eqx.field(static=True, default=None)

    def __call__(self, x: Point) -> Float[Array, " n_features"]:
        bell = 1.0 - jnp.tanh(self.directions @ x + self.offsets) ** 2
        every = jnp.outer(bell, jnp.append(x, 1.0)).ravel()
        return every if self.kept is None else every[np.asarray(self.kept, dtype=int)]

    def slope(
        self, x: Point, coefficients: Float[Array, "n_features n_outputs"]
    ) -> Float[Array, "n_outputs n_dims"]:
        if self.kept is not None:
            every = jnp.zeros(
                (len(self.offsets) * (len(x) + 1), coefficients.shape[1]), coefficients.dtype
            )
            coefficients = every.at[np.asarray(self.kept, dtype=int)].set(coefficients)
        by_ridge = coefficients.reshape(len(self.offsets), len(x) + 1, -1)
        height = jnp.tanh(self.directions @ x + self.offsets)
        bell = 1.0 - height**2
        across = jnp.einsum("uio,i->uo", by_ridge, jnp.append(x, 1.0))
        adapted = jnp.einsum("u,uo,uj->oj", -2.0 * height * bell, across, self.directions)
        return adapted + jnp.einsum("u,ujo->oj", bell, by_ridge[:, :-1])

    def only(self, index: Int[np.ndarray, " n_kept"]) -> "RidgeSlopes":
        before = index if self.kept is None else np.asarray(self.kept, dtype=int)[index]
        return RidgeSlopes(self.directions, self.offsets, tuple(int(i) for i in before))


class OnTrial(AbstractFeatures):
    """A dictionary and features that are only tried beside it: their coefficients are zero,
    whatever they are.
    """

    known: AbstractFeatures
    tried: AbstractFeatures
    n_known: int = eqx.field(static=True)

    def __call__(self, x: Point) -> Float[Array, " n_features"]:
        return jnp.concatenate([self.known(x), self.tried(x)])

    def slope(
        self, x: Point, coefficients: Float[Array, "n_features n_outputs"]
    ) -> Float[Array, "n_outputs n_dims"]:
        return self.known.slope(x, coefficients[: self.n_known])

    def only(self, index: Int[np.ndarray, " n_kept"]) -> AbstractFeatures:
        raise NotImplementedError("features on trial are not part of a model")


class ClippedMonomials(AbstractFeatures):
    """Monomials of clip(x, low, high): frozen outside a box, so that high powers cannot run away
    there.
    """

    terms: tuple[tuple[int, ...], ...] = eqx.field(static=True)
    low: Point
    high: Point

    def __call__(self, x: Point) -> Float[Array, " n_features"]:
        return Monomials(self.terms)(jnp.clip(x, self.low, self.high))

    def slope(
        self, x: Point, coefficients: Float[Array, "n_features n_outputs"]
    ) -> Float[Array, "n_outputs n_dims"]:
        slopes = _slopes_of(self.terms)
        n_lower = len(slopes.lower)
        matrix = jnp.zeros((n_lower, coefficients.shape[1], len(x)), coefficients.dtype)
        matrix = matrix.at[slopes.rows, :, slopes.inputs].add(
            slopes.counts[:, None] * coefficients[slopes.columns]
        )
        inside = (x > self.low) & (x < self.high)
        phi = Monomials(slopes.lower)(jnp.clip(x, self.low, self.high))
        return (phi @ matrix.reshape(n_lower, -1)).reshape(matrix.shape[1:]) * inside

    def only(self, index: Int[np.ndarray, " n_kept"]) -> "ClippedMonomials":
        return ClippedMonomials(tuple(self.terms[i] for i in index), self.low, self.high)


class _MonomialSlopes(NamedTuple):
    """d phi_f / dx_i = n phi_l, slope by slope: the terms `lower`, then l, f, i and n."""

    lower: tuple[tuple[int, ...], ...]
    rows: Int[np.ndarray, " n_slopes"]
    columns: Int[np.ndarray, " n_slopes"]
    inputs: Int[np.ndarray, " n_slopes"]
    counts: Float[np.ndarray, " n_slopes"]


@functools.cache
def _slopes_of(terms: tuple[tuple[int, ...], ...]) -> _MonomialSlopes:
    slopes = [
        (f, i, n, _without(term, i))
        for f, term in enumerate(terms)
        for i, n in Counter(term).items()
    ]
    lower = tuple(sorted({term for *_, term in slopes} | {()}, key=lambda t: (len(t), t)))
    position = {term: k for k, term in enumerate(lower)}
    return _MonomialSlopes(
        lower,
        rows=np.asarray([position[term] for *_, term in slopes], dtype=int),
        columns=np.asarray([f for f, *_ in slopes], dtype=int),
        inputs=np.asarray([i for _, i, *_ in slopes], dtype=int),
        counts=np.asarray([n for _, _, n, _ in slopes], dtype=np.float32),
    )


def _without(term: tuple[int, ...], coordinate: int) -> tuple[int, ...]:
    at = term.index(coordinate)
    return term[:at] + term[at + 1 :]


class Joined(AbstractFeatures):
    """Several dictionaries, one after the other."""

    parts: tuple[AbstractFeatures, ...]
    sizes: tuple[int, ...] = eqx.field(static=True)

    def __call__(self, x: Point) -> Float[Array, " n_features"]:
        return jnp.concatenate([part(x) for part in self.parts])

    def slope(
        self, x: Point, coefficients: Float[Array, "n_features n_outputs"]
    ) -> Float[Array, "n_outputs n_dims"]:
        ends = np.cumsum((0, *self.sizes))
        return sum(
            (
                part.slope(x, coefficients[a:b])
                for part, a, b in zip(self.parts, ends[:-1], ends[1:], strict=True)
            ),
            start=jnp.zeros((coefficients.shape[1], len(x)), x.dtype),
        )

    def only(self, index: Int[np.ndarray, " n_kept"]) -> "Joined":
        ends = np.cumsum((0, *self.sizes))
        parts = []
        sizes = []
        for part, a, b in zip(self.parts, ends[:-1], ends[1:], strict=True):
            within = index[(index >= a) & (index < b)] - a
            if len(within):
                parts.append(part.only(within))
                sizes.append(len(within))
        return Joined(tuple(parts), tuple(sizes))


class Group(NamedTuple):
    """Features that live or die together: how many, their kind, and what they are functions of."""

    size: int
    kind: str
    coordinates: tuple[int, ...]


class Dictionary(NamedTuple):
    """Features with their groups, in order."""

    features: AbstractFeatures
    groups: tuple[Group, ...]

    @property
    def n_features(self) -> int:
        """Length of phi(x)."""
        return sum(group.size for group in self.groups)

    def only(self, mask: Sequence[bool] | np.ndarray) -> "Dictionary":
        """The groups marked true."""
        marked = np.repeat(np.asarray(mask, dtype=bool), [group.size for group in self.groups])
        groups = tuple(group for group, mark in zip(self.groups, mask, strict=True) if mark)
        return Dictionary(self.features.only(np.flatnonzero(marked)), groups)


def affine(n_dims: int, clock: int | None = None) -> Dictionary:
    """[1, x]; `clock` is the coordinate that is the time, where there is one."""
    everywhere = np.full(n_dims, np.inf)
    return joined([monomials([(), *[(a,) for a in range(n_dims)]], -everywhere, everywhere, clock)])


def polynomials(
    n_dims: int, low: np.ndarray, high: np.ndarray, clock: int | None = None
) -> Dictionary:
    """Products of two coordinates and cubes; all cubics in few dimensions, only powers in many."""
    if n_dims > MANY_DIMS:
        return monomials(
            [(a,) * power for power in (2, 3) for a in range(n_dims)], low, high, clock
        )
    terms = list(combinations_with_replacement(range(n_dims), 2))
    cubes = [(a, a, a) for a in range(n_dims)]
    terms += list(combinations_with_replacement(range(n_dims), 3)) if n_dims <= 4 else cubes
    return monomials(terms, low, high, clock)


def ridges(
    n_dims: int,
    subsets: Sequence[tuple[int, ...]],
    n_each: int,
    rng: np.random.Generator,
    slope: float = 1.2,
) -> Dictionary:
    """`n_each` random tanh features of every subset of coordinates."""
    directions = []
    groups = []
    for subset in subsets:
        block = np.zeros((n_each, n_dims))
        block[:, subset] = (
            slope * rng.standard_normal((n_each, len(subset))) * (1.2 if len(subset) == 1 else 1.0)
        )
        if len(subset) > 2:
            block *= np.sqrt(2.0 / len(subset))
        directions.append(block)
        groups.append(Group(n_each, "ridge", tuple(subset)))
    omega = np.concatenate(directions)
    beta = rng.standard_normal(len(omega))
    return Dictionary(Ridges(jnp.asarray(omega, float), jnp.asarray(beta, float)), tuple(groups))


def joined(parts: Sequence[Dictionary]) -> Dictionary:
    """One dictionary after the other."""
    flat: list[tuple[AbstractFeatures, int]] = []
    for part in parts:
        inner = part.features
        flat += (
            zip(inner.parts, inner.sizes, strict=True)
            if isinstance(inner, Joined)
            else [(inner, part.n_features)]
        )
    features = Joined(tuple(f for f, _ in flat), tuple(n for _, n in flat))
    return Dictionary(features, tuple(g for part in parts for g in part.groups))


def pairs(n_dims: int) -> list[tuple[int, ...]]:
    """Every pair of coordinates."""
    return list(combinations(range(n_dims), 2))


def monomials(
    terms: Sequence[tuple[int, ...]], low: np.ndarray, high: np.ndarray, clock: int | None = None
) -> Dictionary:
    """These products of coordinates, each a group of its own, frozen outside the box; those with
    the clock by kind.
    """
    kinds = ("constant", "linear", "monomial", "monomial")
    groups = [Group(1, "time" if clock in t else kinds[len(t)], tuple(t)) for t in terms]
    features = ClippedMonomials(
        tuple(map(tuple, terms)), jnp.asarray(low, dtype=float), jnp.asarray(high, dtype=float)
    )
    return Dictionary(features, tuple(groups))


def core_box(snapshots: Snapshots) -> tuple[np.ndarray, np.ndarray]:
    """The range of all but the outermost points of every coordinate, and a quarter of it on either
    side.
    """
    low, high = np.quantile(np.concatenate(snapshots.clouds), _CORE, axis=0)
    margin = (high - low) / 4.0
    return low - margin, high + margin


def box_of(snapshots: Snapshots) -> tuple[np.ndarray, np.ndarray]:
    """The range of the data and a quarter of it on either side; high powers stop there."""
    low = np.min([x.min(axis=0) for x in snapshots.clouds], axis=0)
    high = np.max([x.max(axis=0) for x in snapshots.clouds], axis=0)
    margin = (high - low) / 4.0
    return low - margin, high + margin
