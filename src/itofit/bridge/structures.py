"""The structures a drift may have, and how each is regressed on pinned samples.

smooth    [1, z, cosines of z] of softly bounded z: a Gaussian process, bounded everywhere
sparse    few monomials up to cubes, frozen outside the data: what extrapolates
"""

import abc
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from itofit.bridge.regression import Regression, Strengths, Sums, regressed
from itofit.bridge.selection import Terms, selected
from itofit.problem import Problem, Stream
from itofit.process.features import Dictionary, Group, affine, core_box, joined, polynomials
from itofit.process.fourier import FourierFeatures


@dataclass(frozen=True, eq=False)
class AbstractStructure(abc.ABC):
    """A dictionary, and how its coefficients are found."""

    name: ClassVar[str]
    dictionary: Dictionary
    n_outputs: int

    @abc.abstractmethod
    def fitted(self, sums: Sums, before: Regression | None) -> Regression:
        """The coefficients for these samples; `before` is the regression of the last pass."""


@dataclass(frozen=True, eq=False)
class Smooth(AbstractStructure):
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
        strengths = Strengths.first(self._numbers(), self.n_outputs)
        return regressed(sums, strengths if before is None else before.strengths)

    def _numbers(self) -> np.ndarray:
        """The group of every feature, -1 for the constant."""
        sizes = [group.size for group in self.dictionary.groups]
        return np.repeat(np.arange(len(sizes)) - 1, sizes)


@dataclass(frozen=True, eq=False)
class Sparse(AbstractStructure):
    """Monomials, few of which are chosen."""

    name: ClassVar[str] = "sparse"

    @classmethod
    def of(cls, problem: Problem) -> "Sparse":
        """For the snapshots of a problem."""
        n_dims = problem.snapshots.n_dims
        low, high = core_box(problem.snapshots)
        clock = None
        if problem.time_varying:
            clock = n_dims
            # The clock is a coordinate that never leaves its range by itself.
            low = np.append(low, -np.inf)
            high = np.append(high, np.inf)
        n_inputs = len(low)
        parts = [affine(n_inputs, clock), polynomials(n_inputs, low, high, clock)]
        return cls(joined(parts), n_dims)

    def fitted(self, sums: Sums, before: Regression | None) -> Regression:
        del before
        W = selected(sums, Terms(self.dictionary.groups, self.n_outputs))
        strengths = Strengths.first(np.full(len(W), -1), self.n_outputs)
        return Regression(W, strengths)
