"""Whitening: the covariance of the residuals of many probes, and its inverse root.

The residual of flight n is r_n = sum_i w_i F_n(x_i) - sum_j w_j f_n(x_j): the mean over its start points of
F_n(x) = mean of f_n over the chains from x, minus the mean over its target snapshot. Points are independent, so

    Cov(r_n, r_m) = sum over snapshots s of sum over points i of s of w_i^2 a_n(i) a_m(i)'

with a_n = F_n centred where s is the start of n, -f_n centred where s is its target, and 0 elsewhere. Neighbours
are correlated because a snapshot is the target of one flight and the start of the next. F_n holds the noise of the
simulation as it is, antithetic or not. The matrix is factored block by block, C = L L', so its cost is linear in the
number of snapshots where only neighbours are correlated.

Where row i is the same individual at both ends (`solve.pairs`) what it contributes is one thing, a_n(i) = F_n(x_i) -
f_n(y_i) centred, and belongs to the individual, who is in all flights. Given where it was before, a_n(i) has mean zero
at the truth, so flights are uncorrelated and each is whitened by itself.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Float
from scipy.linalg import solve_triangular

from itofit.errors import InputError

Blocks = dict[tuple[int, int], np.ndarray]

# Directions whose variance is below this share of the largest are rounding error or copies of others.
_SMALLEST = 1e-3


class Spread(NamedTuple):
    """What the covariance of one flight is made of: the weights and probe values of its two ends.

    `paired`: whether row i is the same individual at both.
    """

    start: int
    target: int
    start_weights: Float[np.ndarray, " n_start"]
    target_weights: Float[np.ndarray, " n_target"]
    flown: Float[np.ndarray, "n_start n_probes"] | None
    seen: Float[np.ndarray, "n_target n_probes"]
    paired: bool = False


class Whitening(NamedTuple):
    """The map y = L^-1 V r, with V the directions kept of each flight's own covariance, or every probe by itself.

    `by_probe` says that the bases are diagonal.
    """

    bases: tuple[Float[np.ndarray, "_ n_probes"], ...]
    factor: Blocks
    by_probe: bool = False

    @classmethod
    def of(cls, spreads: Sequence[Spread], share: float | None = 0.2) -> "Whitening":
        """The full covariance; without flown values, each flight on its own with the spread of its target for both.

        Flights of pairs are each on their own as well.

        At most `share` of the effective number of points is kept as directions. With None every probe is kept, and
        what cannot be known of so many correlations is shrunk away.
        """
        contributions = [contributions_of(spread) for spread in spreads]
        if share is None:
            bases = tuple(np.diag(1.0 / np.sqrt(_variances(parts))) for parts in contributions)
            blocks = _covariance(contributions, bases)
            kept = 1.0 - _shrinkage(blocks, min(_effective(spread) for spread in spreads))
            whole = {
                at: kept * block + (1.0 - kept) * (at[0] == at[1]) * np.eye(*block.shape)
                for at, block in blocks.items()
            }
            return cls(bases, _factored(whole, len(bases)), by_probe=True)
        bases = tuple(
            _directions(np.sum([a.T @ a for _, a in parts], axis=0), share * _effective(spread))
            for spread, parts in zip(spreads, contributions, strict=True)
        )
        if any(spread.flown is None or spread.paired for spread in spreads):
            return cls(bases, {(n, n): np.eye(len(basis)) for n, basis in enumerate(bases)})
        return cls(bases, _factored(_covariance(contributions, bases), len(bases)))

    def __call__(self, residuals: Sequence[np.ndarray]) -> np.ndarray:
        """Whiten the residuals of all flights."""
        with np.errstate(over="ignore", invalid="ignore"):  # chains that ran away are seen by who asked
            return self.finish([basis @ r for basis, r in zip(self.bases, residuals, strict=True)])

    def influence(self, spreads: Sequence[Spread]) -> dict[int, Float[np.ndarray, "n_rows n_points"]]:
        """By snapshot, what each of its points contributes to the whitened residuals, about their mean.

        Individuals that are in all snapshots are counted as points of the first.
        """
        found: dict[int, list[np.ndarray | None]] = {}
        for n, spread in enumerate(spreads):
            for snapshot, a in contributions_of(spread):
                found.setdefault(snapshot, [None] * len(spreads))[n] = self.bases[n] @ a.T
        whole = {}
        for snapshot, rows in found.items():
            count = next(row.shape[1] for row in rows if row is not None)
            filled = [
                np.zeros((len(basis), count)) if row is None else row
                for basis, row in zip(self.bases, rows, strict=True)
            ]
            whole[snapshot] = self.finish(filled)
        return whole

    def skewness(self, spreads: Sequence[Spread]) -> Float[np.ndarray, " n_rows"]:
        """Sum of a(i) |a(i)|^2 over the points, with the rows in |a(i)|^2 that were whitened together."""
        ends = np.cumsum([len(basis) for basis in self.bases])[:-1] if spreads[0].paired else []
        found = [np.split(a, ends) for a in self.influence(spreads).values()]
        sums = [np.concatenate([(a * np.sum(a**2, axis=0)).sum(axis=1) for a in parts]) for parts in found]
        return np.sum(sums, axis=0)

    def back(self, y: Float[np.ndarray, " n_rows *some"]) -> list[np.ndarray]:
        """The transposed map: for every flight the probes' weights that read these rows."""
        ends = np.cumsum([0, *[len(basis) for basis in self.bases]])
        done: list[np.ndarray] = [y[a:b] for a, b in zip(ends[:-1], ends[1:], strict=True)]
        for i in reversed(range(len(done))):
            done[i] = solve_triangular(self.factor[i, i].T, done[i], lower=False, check_finite=False)
            for j in range(i):
                if (i, j) in self.factor:
                    done[j] = done[j] - self.factor[i, j].T @ done[i]
        return [basis.T @ row for basis, row in zip(self.bases, done, strict=True)]

    def finish(self, rows: Sequence[np.ndarray]) -> np.ndarray:
        """Whiten rows that are already in the flights' own directions."""
        done: list[np.ndarray] = []
        for i, row in enumerate(rows):
            for j in range(i):
                if (i, j) in self.factor:
                    row = row - self.factor[i, j] @ done[j]
            done.append(solve_triangular(self.factor[i, i], row, lower=True, check_finite=False))
        return np.concatenate(done)


def contributions_of(spread: Spread) -> list[tuple[int, np.ndarray]]:
    """(snapshot, w_i a(i)) for both ends of a flight, or (0, w_i a(i)) for individuals that are at both.

    A missing start borrows the spread of the target.
    """
    w, f = spread.target_weights, spread.seen
    centred = f - w @ f
    if spread.flown is None:
        size = np.sqrt(np.sum(spread.start_weights**2) + np.sum(w**2))
        return [(spread.target, -size * np.sqrt(w)[:, None] * centred)]
    w0, flown = spread.start_weights, spread.flown
    begun, ended = w0[:, None] * (flown - w0 @ flown), -w[:, None] * centred
    return [(0, begun + ended)] if spread.paired else [(spread.start, begun), (spread.target, ended)]


def _variances(parts: list[tuple[int, np.ndarray]]) -> np.ndarray:
    found = np.sum([np.sum(a**2, axis=0) for _, a in parts], axis=0)
    return np.maximum(found, _SMALLEST * found.max())


def _shrinkage(blocks: Blocks, count: float) -> float:
    """The share of the correlations that is chance: their expected square without any, over their mean square."""
    squares = [np.sum(block**2) - np.sum(np.diag(block) ** 2) for (n, m), block in blocks.items() if n == m]
    sizes = [len(block) * (len(block) - 1) for (n, m), block in blocks.items() if n == m]
    return float(np.clip(sum(sizes) / count / max(sum(squares), 1e-12), 0.0, 1.0))


def _effective(spread: Spread) -> float:
    return 1.0 / max(float(np.sum(spread.start_weights**2)), float(np.sum(spread.target_weights**2)))


def _directions(covariance: np.ndarray, most: float) -> np.ndarray:
    """V with V C V' = I, for the directions of largest variance."""
    variance, directions = np.linalg.eigh(covariance)
    if not variance[-1] > 0.0:
        raise InputError(
            expected="every snapshot after the first to have some spread",
            found="a snapshot whose points are all the same",
            hint="drop it, or look for a column that was filled with one value",
        )
    kept = np.flatnonzero(variance > _SMALLEST * variance[-1])[-max(1, int(most)) :]
    return (directions[:, kept] / np.sqrt(variance[kept])).T


def _covariance(contributions: list[list[tuple[int, np.ndarray]]], bases: tuple[np.ndarray, ...]) -> Blocks:
    """The blocks (n, m), m <= n, that are not zero, in the kept directions."""
    at: dict[int, list[tuple[int, np.ndarray]]] = {}
    for n, parts in enumerate(contributions):
        for snapshot, a in parts:
            at.setdefault(snapshot, []).append((n, a @ bases[n].T))
    blocks: Blocks = {}
    for members in at.values():
        for n, a in members:
            for m, b in members:
                if m <= n:
                    blocks[n, m] = blocks.get((n, m), 0.0) + a.T @ b
    return blocks


def _factored(blocks: Blocks, count: int) -> Blocks:
    """L of C = L L', row by row; a block without correlation and without fill stays absent."""
    factor: Blocks = {}
    for i in range(count):
        for j in range(i + 1):
            block = blocks.get((i, j))
            for k in range(j):
                if (i, k) in factor and (j, k) in factor:
                    product = factor[i, k] @ factor[j, k].T
                    block = -product if block is None else block - product
            if block is None:
                continue
            if i == j:
                factor[i, i] = np.linalg.cholesky(block + 1e-6 * np.eye(len(block)))
            else:
                factor[i, j] = solve_triangular(factor[j, j], block.T, lower=True, check_finite=False).T
    return factor
