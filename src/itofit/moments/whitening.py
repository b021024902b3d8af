"""Whitening: the covariance of the residuals of many probes, and its inverse root.

The residual of transition n is r_n = sum_i w_i F_n(x_i) - sum_j w_j f_n(x_j): the mean over its
start points of F_n(x) = mean of f_n over the chains from x, minus the mean over its target
snapshot. Points are independent, so

    Cov(r_n, r_m) = sum over snapshots s of sum over points i of s of w_i^2 a_n(i) a_m(i)'

with a_n = F_n centred where s is the start of n, -f_n centred where s is its target, and 0
elsewhere. Neighbours are correlated because a snapshot is the target of one transition and the
start of the next. F_n holds the noise of the simulation as it is, antithetic or not. The matrix is
factored block by block, C = L L', so its cost is linear in the number of snapshots where only
neighbours are correlated.

Where row i is the same individual at both ends (`moments.pairs`) what it contributes is one thing,
a_n(i) = F_n(x_i) - f_n(y_i) centred, and belongs to the individual, who is in all transitions.
Given where it was before, a_n(i) has mean zero at the truth, so transitions are uncorrelated and
each is whitened by itself.

At the truth F_n is the mean of f_n given where a chain begins, and no mean given something varies
more than the thing itself. Where chains run away F_n does, and a covariance made of it would
explain every residual. So the variance of F_n is taken for `_WIDEST` times that of f_n at the most,
and where it is not finite it is taken for that of f_n.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Float
from scipy.linalg import solve_triangular

from itofit.errors import InputError

Blocks = dict[tuple[int, int], np.ndarray]
# By snapshot, w_i a(i) of its points.
Contributions = list[tuple[int, np.ndarray]]

# Directions whose variance is below this fraction of the largest are rounding or copies of others.
_SMALLEST = 1e-3
# How many times the variance that is observed, that of what is simulated may be.
_WIDEST = 100.0


class Spread(NamedTuple):
    """What the covariance of one transition is made of: weights and probe values of its two ends.

    `paired`: whether row i is the same individual at both.
    """

    start: int
    target: int
    start_weights: Float[np.ndarray, " n_start"]
    target_weights: Float[np.ndarray, " n_target"]
    propagated: Float[np.ndarray, "n_start n_probes"] | None
    observed: Float[np.ndarray, "n_target n_probes"]
    paired: bool = False


class Whitening(NamedTuple):
    """The map y = L^-1 V r.

    - `bases`: V, the directions kept of each transition's own covariance, or every probe by itself.
    - `factor`: the blocks of L. `by_probe`: whether the bases are diagonal.
    - `certain`: by how much correlations between probes are shrunk; 1 where they are not.
    """

    bases: tuple[Float[np.ndarray, "_ n_probes"], ...]
    factor: Blocks
    by_probe: bool = False
    certain: float = 1.0

    @classmethod
    def of(
        cls,
        spreads: Sequence[Spread],
        max_directions: float | None = 0.2,
    ) -> "Whitening":
        """The full covariance of these transitions.

        Where nothing is propagated yet each is on its own, with the spread of its target for both
        ends; those of pairs are each on their own as well.

        At most the fraction `max_directions` of the effective number of points is kept as
        directions. With None every probe is kept, and what cannot be known of so many correlations
        is shrunk away.
        """
        contributions = [contributions_of(spread) for spread in spreads]
        if max_directions is None:
            n_points = min(_effective(spread) for spread in spreads)
            return cls._shrunk(contributions, n_points)
        bases = []
        for spread, ends in zip(spreads, contributions, strict=True):
            own = np.sum([a.T @ a for _, a in ends], axis=0)
            bases.append(_directions(own, max_directions * _effective(spread)))
        if any(_is_apart(spread) for spread in spreads):
            apart = {(n, n): np.eye(len(basis)) for n, basis in enumerate(bases)}
            return cls(tuple(bases), apart)
        blocks = _covariance(contributions, tuple(bases))
        return cls(tuple(bases), _factored(blocks, len(bases)))

    @classmethod
    def _shrunk(
        cls,
        contributions: list[Contributions],
        n_points: float,
    ) -> "Whitening":
        """Every probe by itself, and of their correlations what so many points can know."""
        bases = tuple(np.diag(1.0 / np.sqrt(_variances(ends))) for ends in contributions)
        blocks = _covariance(contributions, bases)
        certain = 1.0 - _shrinkage(blocks, n_points)
        shrunk = {}
        for (n, m), block in blocks.items():
            shrunk[n, m] = certain * block + (1.0 - certain) * (n == m) * np.eye(*block.shape)
        return cls(bases, _factored(shrunk, len(bases)), by_probe=True, certain=certain)

    def __call__(self, residuals: Sequence[np.ndarray]) -> np.ndarray:
        """Whiten the residuals of all transitions."""
        pairs = zip(self.bases, residuals, strict=True)
        # Who called looks for chains that ran away.
        with np.errstate(over="ignore", invalid="ignore"):
            return self.finish([basis @ residual for basis, residual in pairs])

    def influence(
        self, spreads: Sequence[Spread]
    ) -> dict[int, Float[np.ndarray, "n_rows n_points"]]:
        """By snapshot, what each of its points contributes to the whitened residuals.

        All about their mean. Individuals that are in all snapshots are counted as points of the
        first.
        """
        rows: dict[int, list[np.ndarray | None]] = {}
        for n, spread in enumerate(spreads):
            for snapshot, a in contributions_of(spread):
                rows.setdefault(snapshot, [None] * len(spreads))[n] = self.bases[n] @ a.T
        return {snapshot: self._finish_partial(partial) for snapshot, partial in rows.items()}

    def _finish_partial(self, rows: Sequence[np.ndarray | None]) -> np.ndarray:
        """Whiten what one snapshot contributes, nothing to some of the transitions."""
        n_points = next(row.shape[1] for row in rows if row is not None)
        filled = []
        for basis, row in zip(self.bases, rows, strict=True):
            filled.append(np.zeros((len(basis), n_points)) if row is None else row)
        return self.finish(filled)

    def skewness(self, spreads: Sequence[Spread]) -> Float[np.ndarray, " n_rows"]:
        """Sum of a(i) |a(i)|^2 over the points.

        In |a(i)|^2 are the rows that were whitened together.
        """
        ends = np.cumsum([len(basis) for basis in self.bases])[:-1] if spreads[0].paired else []
        sums = []
        for a in self.influence(spreads).values():
            together = np.split(a, ends)
            cubes = [(rows * np.sum(rows**2, axis=0)).sum(axis=1) for rows in together]
            sums.append(np.concatenate(cubes))
        return np.sum(sums, axis=0)

    def back(self, y: Float[np.ndarray, " n_rows *columns"]) -> list[np.ndarray]:
        """The transposed map: for every transition the probes' weights that read these rows."""
        ends = np.cumsum([0, *[len(basis) for basis in self.bases]])
        done: list[np.ndarray] = [y[a:b] for a, b in zip(ends[:-1], ends[1:], strict=True)]
        for i in reversed(range(len(done))):
            done[i] = solve_triangular(
                self.factor[i, i].T, done[i], lower=False, check_finite=False
            )
            for j in range(i):
                if (i, j) in self.factor:
                    done[j] = done[j] - self.factor[i, j].T @ done[i]
        return [basis.T @ row for basis, row in zip(self.bases, done, strict=True)]

    def finish(self, rows: Sequence[np.ndarray]) -> np.ndarray:
        """Whiten rows that are already in the transitions' own directions."""
        done: list[np.ndarray] = []
        for i, row in enumerate(rows):
            for j in range(i):
                if (i, j) in self.factor:
                    row = row - self.factor[i, j] @ done[j]
            done.append(_solved(self.factor[i, i], row))
        return np.concatenate(done)


def contributions_of(spread: Spread) -> Contributions:
    """(snapshot, w_i a(i)) for both ends of a transition; of pairs (0, w_i a(i)).

    A start that is missing, or that ran to infinity, borrows the spread of the target.
    """
    w = spread.target_weights
    centred = spread.observed - w @ spread.observed
    if not _begins(spread):
        size = np.sqrt(np.sum(spread.start_weights**2) + np.sum(w**2))
        return [(spread.target, -size * np.sqrt(w)[:, None] * centred)]
    w0 = spread.start_weights
    begun = w0[:, None] * _bounded(spread.propagated - w0 @ spread.propagated, w0, w @ centred**2)
    ended = -w[:, None] * centred
    if spread.paired:
        return [(0, begun + ended)]
    return [(spread.start, begun), (spread.target, ended)]


def _begins(spread: Spread) -> bool:
    """Whether anything is known of what is simulated."""
    return spread.propagated is not None and bool(np.all(np.isfinite(spread.propagated)))


def _is_apart(spread: Spread) -> bool:
    """Whether a transition is whitened by itself."""
    return spread.paired or not _begins(spread)


def _bounded(
    centred: Float[np.ndarray, "n_start n_probes"],
    weights: Float[np.ndarray, " n_start"],
    observed: Float[np.ndarray, " n_probes"],
) -> Float[np.ndarray, "n_start n_probes"]:
    """The same, no probe of much more variance than was observed, if anything was."""
    if not np.any(observed > 0.0):
        return centred
    size = np.max(np.abs(centred), axis=0)
    relative = centred / np.where(size > 0.0, size, 1.0)  # whose squares do not overflow
    spread = size * np.sqrt(weights @ relative**2)
    # What is the same in a whole snapshot is bounded by what varies most in it.
    allowed = np.sqrt(_WIDEST * np.maximum(observed, _SMALLEST * observed.max()))
    return centred * np.minimum(1.0, allowed / np.where(spread > 0.0, spread, 1.0))


def _variances(ends: Contributions) -> np.ndarray:
    variances = np.sum([np.sum(a**2, axis=0) for _, a in ends], axis=0)
    return np.maximum(variances, _SMALLEST * variances.max())


def _shrinkage(blocks: Blocks, n_points: float) -> float:
    """The fraction of the correlations that is chance.

    Their expected square without any, over their mean square.
    """
    within = [block for (n, m), block in blocks.items() if n == m]
    squares = [np.sum(block**2) - np.sum(np.diag(block) ** 2) for block in within]
    sizes = [len(block) * (len(block) - 1) for block in within]
    return float(np.clip(sum(sizes) / n_points / max(sum(squares), 1e-12), 0.0, 1.0))


def _effective(spread: Spread) -> float:
    """The effective number of points of the smaller end."""
    begun = float(np.sum(spread.start_weights**2))
    ended = float(np.sum(spread.target_weights**2))
    return 1.0 / max(begun, ended)


def _directions(
    covariance: np.ndarray,
    most: float,
) -> np.ndarray:
    """V with V C V' = I, for the directions of largest variance."""
    variance, directions = np.linalg.eigh(covariance)
    if not variance[-1] > 0.0:
        raise InputError(
            expected="every snapshot after the first to have some spread",
            found="a snapshot whose points are all the same",
            hint="drop it, or look for a column that was filled with one value",
        )
    largest = np.flatnonzero(variance > _SMALLEST * variance[-1])[-max(1, int(most)) :]
    return (directions[:, largest] / np.sqrt(variance[largest])).T


def _covariance(
    contributions: list[Contributions],
    bases: tuple[np.ndarray, ...],
) -> Blocks:
    """The blocks (n, m), m <= n, that are not zero, in the chosen directions."""
    by_snapshot: dict[int, list[tuple[int, np.ndarray]]] = {}
    for n, ends in enumerate(contributions):
        for snapshot, a in ends:
            by_snapshot.setdefault(snapshot, []).append((n, a @ bases[n].T))
    blocks: Blocks = {}
    for members in by_snapshot.values():
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
                factor[i, j] = _solved(factor[j, j], block.T).T
    return factor


def _solved(
    lower: np.ndarray,
    rows: np.ndarray,
) -> np.ndarray:
    """L^-1 rows."""
    return solve_triangular(lower, rows, lower=True, check_finite=False)
