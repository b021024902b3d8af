"""The drift of pinned paths regressed on features, strengths of the prior by the evidence.

    minimise over w   1/2 s^-2 sum_i c_i (u_i - w' phi(x_i))^2 + 1/2 w' Lambda w,     every output

s^2 and the precisions of every group of features are those of largest evidence (MacKay's updates).
The weights c_i say how many observed points a draw is worth.
"""

from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int
from scipy.linalg import cho_factor, cho_solve

_LEAST = 1e-6
_MOST = 1e8
_UPDATES = 3
# What single precision leaves uncertain of a diagonal.
_ROUNDING = 1e-6
# By how much a precision may change in an update.
_FACTOR = 10.0


@dataclass(frozen=True, eq=False)
class Strengths:
    """Precision of every group of features for every output, and the noise about the regression.

    - `group`: the group of every feature; -1 for the constant, which is not held back.
    """

    group: Int[np.ndarray, " n_features"]
    precision: Float[np.ndarray, "n_groups n_outputs"]
    noise: Float[np.ndarray, " n_outputs"]

    @classmethod
    def first(cls, group: np.ndarray, n_outputs: int) -> "Strengths":
        """All of order one."""
        n_groups = max(int(group.max()) + 1, 1)
        return cls(group, np.ones((n_groups, n_outputs)), np.ones(n_outputs))

    def diagonal(self, output: int) -> Float[np.ndarray, " n_features"]:
        """Lambda of an output."""
        every = np.append(self.precision[:, output], _LEAST)
        return every[self.group]


@dataclass(frozen=True, eq=False)
class Sums:
    """What a regression needs of its samples: sums of c phi phi', c phi u', c u^2 and c."""

    gram: Float[np.ndarray, "n_features n_features"]
    cross: Float[np.ndarray, "n_features n_outputs"]
    squares: Float[np.ndarray, " n_outputs"]
    count: float

    @classmethod
    def of(
        cls,
        phi: Float[np.ndarray, "n_samples n_features"],
        u: Float[np.ndarray, "n_samples n_outputs"],
        c: Float[np.ndarray, " n_samples"],
    ) -> "Sums":
        """Of these samples; products in their precision, sums of order one."""
        weighted = phi * c[:, None]
        gram = np.asarray(phi.T @ weighted, dtype=np.float64)
        cross = np.asarray(weighted.T @ u, dtype=np.float64)
        squares = np.asarray(np.sum(c[:, None] * u**2, axis=0), dtype=np.float64)
        return cls(gram, cross, squares, float(np.sum(c, dtype=np.float64)))

    @property
    def is_finite(self) -> bool:
        """Whether all of them are."""
        return all(np.all(np.isfinite(s)) for s in (self.gram, self.cross, self.squares))

    def plus(self, other: "Sums") -> "Sums":
        """Of the samples of both."""
        return Sums(
            self.gram + other.gram,
            self.cross + other.cross,
            self.squares + other.squares,
            self.count + other.count,
        )

    def mixed(self, other: "Sums", fraction: float) -> "Sums":
        """So many parts of the other."""
        old = 1.0 - fraction
        return Sums(
            old * self.gram + fraction * other.gram,
            old * self.cross + fraction * other.cross,
            old * self.squares + fraction * other.squares,
            old * self.count + fraction * other.count,
        )


@dataclass(frozen=True, eq=False)
class Regression:
    """Coefficients, and the strengths they were found under."""

    coefficients: Float[np.ndarray, "n_features n_outputs"]
    strengths: Strengths


def regressed(sums: Sums, strengths: Strengths) -> Regression:
    """The posterior mean after some updates of the strengths."""
    n_features, n_outputs = sums.cross.shape
    W = np.zeros((n_features, n_outputs))
    for output in range(n_outputs):
        for _ in range(_UPDATES):
            strengths = _updated(sums, strengths, output)
        W[:, output] = _posterior(sums, strengths, output).mean
    return Regression(W, strengths)


def factored(matrix: np.ndarray):
    """The Cholesky factor; where rounding took the rank, of a diagonal raised by as much."""
    try:
        return cho_factor(matrix, lower=True, check_finite=False)
    except np.linalg.LinAlgError:
        raised = matrix + _ROUNDING * np.diag(np.diag(matrix))
        return cho_factor(raised, lower=True, check_finite=False)


class _Posterior(NamedTuple):
    mean: Float[np.ndarray, " n_features"]
    variance: Float[np.ndarray, " n_features"]


def _posterior(sums: Sums, strengths: Strengths, output: int) -> _Posterior:
    noise = strengths.noise[output]
    matrix = sums.gram / noise + np.diag(strengths.diagonal(output))
    factor = factored(matrix)
    w = cho_solve(factor, sums.cross[:, output] / noise, check_finite=False)
    root = np.linalg.inv(np.tril(factor[0]))
    return _Posterior(w, np.sum(root**2, axis=0))


def _updated(sums: Sums, strengths: Strengths, output: int) -> Strengths:
    """MacKay: lambda_g <- gamma_g / |w_g|^2,  s^2 <- squares about the fit / (count - gamma)."""
    w, variance = _posterior(sums, strengths, output)
    gamma = 1.0 - strengths.diagonal(output) * variance
    precision = strengths.precision.copy()
    for g in range(len(precision)):
        members = strengths.group == g
        wanted = (np.sum(gamma[members]) + 1e-9) / max(float(w[members] @ w[members]), 1e-14)
        old = precision[g, output]
        low = max(_LEAST, old / _FACTOR)
        precision[g, output] = np.clip(wanted, low, min(_MOST, old * _FACTOR))
    about = sums.squares[output] - 2.0 * w @ sums.cross[:, output] + w @ sums.gram @ w
    noise = strengths.noise.copy()
    free = max(sums.count - float(np.sum(gamma)), 0.1 * sums.count)
    noise[output] = max(about / free, 1e-6 * sums.squares[output] / sums.count, 1e-12)
    return replace(strengths, precision=precision, noise=noise)
