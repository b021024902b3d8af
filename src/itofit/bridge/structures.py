"""The structures a drift may have, and how each is regressed on pinned samples.

smooth    [1, z, cosines of z] of softly bounded z: a Gaussian process, bounded everywhere
sparse    few monomials up to cubes, frozen outside the data: what extrapolates

Of a drift -D grad V with a potential V = w' psi all coordinates are regressed together on w,

    minimise over w   sum_i 1 / r_i  sum_n c_n (u_ni + D_i w' d_i psi(x_n))^2

r_i is what the last regression left of coordinate i. Smooth and sparse are then said of V.
"""

import abc
from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from itofit.bridge.regression import Regression, Strengths, Sums, regressed
from itofit.bridge.selection import Terms, selected
from itofit.problem import Problem, Stream
from itofit.process.clock import Clock
from itofit.process.drift import AbstractLinearDrift, FeatureDrift, PotentialDrift
from itofit.process.features import Dictionary, Group, affine, core_box, joined, polynomials
from itofit.process.fourier import FourierFeatures
from itofit.process.potentials import smooth_terms, sparse_terms

# By how much the weights of two coordinates may differ.
_MOST_UNEVEN = 100.0


class Samples(NamedTuple):
    """Of one gap: what coefficients are multiplied with, the drift that is met, the weights."""

    phi: Float[np.ndarray, "n *n_dims n_features"]
    u: Float[np.ndarray, "n n_dims"]
    c: Float[np.ndarray, " n"]


@dataclass(frozen=True, eq=False)
class AbstractStructure(abc.ABC):
    """A dictionary, and how its coefficients are found."""

    name: ClassVar[str]
    dictionary: Dictionary
    n_outputs: int

    @abc.abstractmethod
    def drift(self, coefficients: np.ndarray, clock: Clock | None) -> AbstractLinearDrift:
        """The drift with these coefficients."""

    @abc.abstractmethod
    def sums(self, samples: Iterable[Samples], before: Regression | None) -> Sums:
        """What a regression needs of the samples of all gaps."""

    @abc.abstractmethod
    def fitted(self, sums: Sums, before: Regression | None) -> Regression:
        """The coefficients for these samples; `before` is the regression of the last pass."""


@dataclass(frozen=True, eq=False)
class AbstractFree(AbstractStructure):
    """Every coordinate of the drift has coefficients of its own."""

    def drift(self, coefficients: np.ndarray, clock: Clock | None) -> FeatureDrift:
        return FeatureDrift(self.dictionary.features, jnp.asarray(coefficients, float), clock)

    def sums(self, samples: Iterable[Samples], before: Regression | None) -> Sums:
        del before
        return Sums.of(*(np.concatenate(column) for column in zip(*samples, strict=True)))


@dataclass(frozen=True, eq=False)
class AbstractPotential(AbstractStructure):
    """All coordinates of the drift come from one potential.

    - `metric`: D, the diagonal.
    """

    metric: Float[np.ndarray, " n_dims"]

    def drift(self, coefficients: np.ndarray, clock: Clock | None) -> PotentialDrift:
        W = jnp.asarray(coefficients, float)
        metric = jnp.asarray(self.metric, float)
        return PotentialDrift(self.dictionary.features, W, metric=metric, clock=clock)

    def sums(self, samples: Iterable[Samples], before: Regression | None) -> Sums:
        gaps = list(samples)
        weights = _even_weights(gaps, before)
        total = None
        for phi, u, c in gaps:
            rows = phi.reshape(-1, phi.shape[-1])
            here = Sums.of(rows, u.reshape(-1, 1), np.outer(c, weights).ravel())
            total = here if total is None else total.plus(here)
        assert total is not None
        return total


def _even_weights(gaps: list[Samples], before: Regression | None) -> Float[np.ndarray, " n_dims"]:
    """1 / r_i, of mean 1."""
    left = np.zeros(gaps[0].u.shape[1])
    for phi, u, c in gaps:
        off = u if before is None else u - phi @ before.coefficients[:, 0]
        left += c @ np.asarray(off, dtype=np.float64) ** 2
    least = max(np.max(left) / _MOST_UNEVEN, 1e-12)
    weights = 1.0 / np.maximum(left, least)
    return weights / np.mean(weights)


@dataclass(frozen=True, eq=False)
class Smooth(AbstractFree):
    """Lines and cosines."""

    name: ClassVar[str] = "smooth"

    @classmethod
    def of(cls, problem: Problem, n_cosines: int) -> "Smooth":
        """For the snapshots of a problem, the clock an input where the drift has one."""
        n_inputs = problem.snapshots.n_dims + problem.time_varying
        rng = problem.streams.rng(Stream.waves)
        features = FourierFeatures.draw(n_inputs, n_cosines, rng)
        lines = [Group(1, "linear", (a,)) for a in range(n_inputs)]
        waves = Group(n_cosines, "wave", tuple(range(n_inputs)))
        groups = (Group(1, "constant", ()), *lines, waves)
        return cls(Dictionary(features, groups), problem.snapshots.n_dims)

    def fitted(self, sums: Sums, before: Regression | None) -> Regression:
        return _regressed_again(self, sums, before)


@dataclass(frozen=True, eq=False)
class Sparse(AbstractFree):
    """Monomials, few of which are chosen."""

    name: ClassVar[str] = "sparse"

    @classmethod
    def of(cls, problem: Problem) -> "Sparse":
        """For the snapshots of a problem."""
        low, high, clock = _box(problem)
        n_inputs = len(low)
        parts = [affine(n_inputs, clock), polynomials(n_inputs, low, high, clock)]
        return cls(joined(parts), problem.snapshots.n_dims)

    def fitted(self, sums: Sums, before: Regression | None) -> Regression:
        del before
        return _selected_anew(self, sums)


@dataclass(frozen=True, eq=False)
class SmoothPotential(AbstractPotential):
    """Lines, bounded products and cosines."""

    name: ClassVar[str] = "smooth"

    @classmethod
    def of(cls, problem: Problem, n_cosines: int) -> "SmoothPotential":
        """For the snapshots of a problem, the clock an input where the potential has one."""
        n_inputs = problem.snapshots.n_dims + problem.time_varying
        rng = problem.streams.rng(Stream.waves)
        metric = problem.scaling.metric
        return cls(smooth_terms(metric, n_inputs, n_cosines, rng), 1, metric)

    def fitted(self, sums: Sums, before: Regression | None) -> Regression:
        return _regressed_again(self, sums, before)


@dataclass(frozen=True, eq=False)
class SparsePotential(AbstractPotential):
    """Monomials, few of which are chosen."""

    name: ClassVar[str] = "sparse"

    @classmethod
    def of(cls, problem: Problem) -> "SparsePotential":
        """For the snapshots of a problem."""
        low, high, _ = _box(problem)
        metric = problem.scaling.metric
        return cls(sparse_terms(metric, low, high), 1, metric)

    def fitted(self, sums: Sums, before: Regression | None) -> Regression:
        del before
        return _selected_anew(self, sums)


def smooth_for(problem: Problem, n_cosines: int) -> Smooth | SmoothPotential:
    """The smooth structure of the drift that a problem asks for."""
    if problem.has_potential:
        return SmoothPotential.of(problem, n_cosines)
    return Smooth.of(problem, n_cosines)


def sparse_for(problem: Problem) -> Sparse | SparsePotential:
    """The sparse structure of the drift that a problem asks for."""
    return SparsePotential.of(problem) if problem.has_potential else Sparse.of(problem)


def _box(problem: Problem) -> tuple[np.ndarray, np.ndarray, int | None]:
    """Where powers are powers, and which input is the clock."""
    low, high = core_box(problem.snapshots)
    if not problem.time_varying:
        return low, high, None
    # The clock is a coordinate that never leaves its range by itself.
    return np.append(low, -np.inf), np.append(high, np.inf), problem.snapshots.n_dims


def _regressed_again(
    structure: AbstractStructure, sums: Sums, before: Regression | None
) -> Regression:
    """All coefficients, from the strengths of the last pass on."""
    if before is not None:
        return regressed(sums, before.strengths)
    groups = structure.dictionary.groups
    held = np.cumsum([group.kind != "constant" for group in groups]) - 1
    numbers = [n if group.kind != "constant" else -1 for n, group in zip(held, groups, strict=True)]
    sizes = [group.size for group in groups]
    return regressed(sums, Strengths.first(np.repeat(numbers, sizes), structure.n_outputs))


def _selected_anew(structure: AbstractStructure, sums: Sums) -> Regression:
    """The coefficients of the terms that these samples choose."""
    W = selected(sums, Terms(structure.dictionary.groups, structure.n_outputs))
    return Regression(W, Strengths.first(np.full(len(W), -1), structure.n_outputs))
