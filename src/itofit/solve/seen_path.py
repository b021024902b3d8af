"""Dense snapshots need no simulation: the observed clouds themselves are the path.

From one snapshot to the next, by the trapezoid,

    r(f) = E_s f - E_t f + gap / 2 (E_s + E_t)[g . grad f + 1/2 tr(a f'')]

which is linear in the coefficients of g, and in the entries of a where it is learned and the same everywhere. In the
covariance of `whitening` the start counts with f + gap/2 Lf and the target with f - gap/2 Lf. How good the trapezoid is
shows in a simulation over the same gap (`Corrected`).
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Self

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from itofit.process.diffusion import AbstractDiffusion
from itofit.process.features import AbstractFeatures, Dictionary
from itofit.process.ito import ItoProcess
from itofit.process.noise import FullForm, LearnedDiffusion
from itofit.snapshots.clouds import Snapshots
from itofit.solve.flights import chunk_size, on_cores
from itofit.solve.residuals import FEWEST_TO_FOLD, N_FOLDS, Residual, Simulated
from itofit.solve.whitening import Spread, Whitening
from itofit.weak.fixed_probes import AbstractProbes

# Points of a snapshot that its covariance is made of: at least so many, and so many times the number of probes.
_FEWEST, _PER_PROBE = 2048, 20
# Chunks of points summed by one task.
_BATCH = 16


@dataclass(frozen=True, eq=False)
class SeenPath(Residual):
    """The residual of the trapezoid.

    - `seen`: the mean of the probes over every target. `known`: the residual without drift and without learned noise.
      `slopes`: its derivative, ordered feature by feature, output by output.
    - `bends`: the derivative in the entries `pairs` of a learned a; none where the noise is known.
    """

    probes: tuple[AbstractProbes, ...]
    seen: tuple[Float[np.ndarray, " n_probes"], ...]
    known: tuple[Float[np.ndarray, " n_probes"], ...]
    slopes: tuple[Float[np.ndarray, "n_probes n_coefficients"], ...]
    bends: tuple[Float[np.ndarray, "n_probes n_entries"], ...]
    pairs: tuple[tuple[int, int], ...]

    @classmethod
    def over(
        cls,
        snapshots: Snapshots,
        diffusion: AbstractDiffusion,
        gaps: Sequence[int],
        probes: tuple[AbstractProbes, ...],
        dictionary: Dictionary,
        speed: float,
    ) -> "SeenPath":
        """Take every expectation over the clouds once, for the gaps after these snapshots."""
        ends = tuple((int(n), int(n) + 1) for n in gaps)
        pairs = covariance_pairs(diffusion)
        noise = _basis(pairs, snapshots.n_dims) if pairs else diffusion
        starts = _expectations(snapshots, [a for a, _ in ends], probes, dictionary.features, noise)
        targets = _expectations(snapshots, [b for _, b in ends], probes, dictionary.features, noise)
        half = np.diff(snapshots.times)[list(gaps)] / 2.0
        seen, known, slopes, bends = tuple(f for f, _, _ in targets), [], [], []
        for (f0, bend0, slope0), (f1, bend1, slope1), h in zip(starts, targets, half, strict=True):
            bend = h * (bend0 + bend1).T
            known.append(f0 - f1 if pairs else f0 - f1 + bend[:, 0])
            bends.append(bend[:, : len(pairs)])
            slopes.append(speed * h * (slope0 + slope1))
        parts = (snapshots, diffusion, ends, probes, dictionary, speed)
        return cls(*parts, seen, tuple(known), tuple(slopes), tuple(bends), pairs)

    def __call__(self, v: np.ndarray) -> list[np.ndarray]:
        entries, W = np.asarray(self._entries(self.noise(v)), dtype=np.float64), v[: self.n_coefficients]
        rows = zip(self.known, self.slopes, self.bends, strict=True)
        return [known + slope @ W + bend @ entries for known, slope, bend in rows]

    def _entries(self, diffusion: AbstractDiffusion) -> Float[Array, " n_entries"]:
        """The entries of a, for a noise that is the same everywhere."""
        S = diffusion(jnp.zeros(self.snapshots.n_dims))
        return jnp.asarray([jnp.dot(S[k], S[m]) for k, m in self.pairs])

    def spreads(self, v: np.ndarray | None) -> list[Spread]:
        process = self.process(np.zeros(self.n_coefficients) if v is None else v)
        count = max(_FEWEST, _PER_PROBE * len(self.known[0]))
        half = np.diff(self.snapshots.times) / 2.0
        items = [
            (probes, n, sign * half[ends[0]])
            for probes, ends in zip(self.probes, self.ends, strict=True)
            for n, sign in zip(ends, (1.0, -1.0), strict=True)
        ]

        def work(probes, n, h):
            return _pushed(probes, process, jnp.asarray(self.snapshots.clouds[n][:count], dtype=float), jnp.asarray(h))

        found = on_cores(work, items)
        return [
            Spread(*ends, *self._thin(ends, count, found[2 * n], found[2 * n + 1])) for n, ends in enumerate(self.ends)
        ]

    def jacobian(
        self, v: np.ndarray, whitening: Whitening, columns: Int[np.ndarray, " n_columns"]
    ) -> Float[np.ndarray, "n_rows n_columns"]:
        columns = np.asarray(columns)
        if not self.pairs:
            pairs = zip(whitening.bases, self.slopes, strict=True)
            return whitening.finish([basis @ slope[:, columns] for basis, slope in pairs])
        unmoved, now = jnp.zeros(self.diffusion.n_parameters), self.noise(v)
        turn = np.asarray(jax.jacfwd(lambda u: self._entries(now.moved(u)))(unmoved), dtype=np.float64)
        every = [
            np.concatenate([slope, bend @ turn], axis=1) for slope, bend in zip(self.slopes, self.bends, strict=True)
        ]
        return whitening.finish(
            [basis @ slope[:, columns] for basis, slope in zip(whitening.bases, every, strict=True)]
        )

    def folds(self) -> Sequence["SeenPath"]:
        if min(self.snapshots.counts) < FEWEST_TO_FOLD:
            return [self]
        parts = (self.diffusion, [a for a, _ in self.ends], self.probes, self.dictionary, self.speed)
        return [SeenPath.over(self.snapshots.thinned(k, N_FOLDS), *parts) for k in range(N_FOLDS)]

    def only(self, marks: Bool[np.ndarray, " n_groups"]) -> Self:
        rows = np.repeat(marks, [group.size for group in self.dictionary.groups])
        columns = np.repeat(rows, self.snapshots.n_dims)
        slopes = tuple(slope[:, columns] for slope in self.slopes)
        return replace(self, dictionary=self.dictionary.only(marks), slopes=slopes)

    def _thin(self, ends, count: int, flown, seen):
        """Weights and values of the points the covariance is made of, spread as the mean over all points is."""
        weights, values = [], []
        for n, value in zip(ends, (flown, seen), strict=True):
            whole = self.snapshots.weights[n]
            w = whole[:count] / whole[:count].sum()
            value = np.asarray(value, dtype=np.float64)
            mean = w @ value
            weights.append(w)
            values.append(mean + np.sqrt(np.sum(whole**2) / np.sum(w**2)) * (value - mean))
        return *weights, *values


@dataclass(frozen=True, eq=False)
class Corrected(Residual):
    """The simulated residual with the covariance of the seen path, which needs no value of every probe at every end."""

    simulated: Simulated
    seen: SeenPath

    @classmethod
    def of(cls, simulated: Simulated, seen: SeenPath) -> "Corrected":
        """Join the two."""
        return cls(seen.snapshots, seen.diffusion, seen.ends, seen.probes, seen.dictionary, seen.speed, simulated, seen)

    def __call__(self, v: np.ndarray) -> list[np.ndarray]:
        return self.simulated(v)

    def spreads(self, v: np.ndarray | None) -> list[Spread]:
        return self.seen.spreads(v)

    def jacobian(
        self, v: np.ndarray, whitening: Whitening, columns: Int[np.ndarray, " n_columns"]
    ) -> Float[np.ndarray, "n_rows n_columns"]:
        return self.simulated.jacobian(v, whitening, columns)

    def folds(self) -> Sequence["Corrected"]:
        return [replace(self, simulated=part) for part in self.simulated.folds()]

    def only(self, marks: Bool[np.ndarray, " n_groups"]) -> Self:
        simulated = replace(self.simulated, dictionary=self.dictionary.only(marks))
        return replace(self, dictionary=simulated.dictionary, simulated=simulated, seen=self.seen.only(marks))


def covariance_pairs(diffusion: AbstractDiffusion) -> tuple[tuple[int, int], ...]:
    """The entries of a that a learned noise which is the same everywhere has; none for others."""
    if not isinstance(diffusion, LearnedDiffusion) or not diffusion.constant:
        return ()
    n_dims = len(diffusion.form(diffusion.theta, jnp.zeros(1)))
    diagonal = not isinstance(diffusion.form, FullForm)
    return tuple((k, m) for k in range(n_dims) for m in range(k + 1) if k == m or not diagonal)


def _basis(pairs: tuple[tuple[int, int], ...], n_dims: int) -> Float[Array, "n_entries n_dims n_dims"]:
    """The symmetric matrix of every entry."""
    found = np.zeros((len(pairs), n_dims, n_dims))
    for matrix, (k, m) in zip(found, pairs, strict=True):
        matrix[k, m] = matrix[m, k] = 1.0
    return jnp.asarray(found, dtype=float)


def _expectations(snapshots: Snapshots, which: list[int], probes, features, diffusion) -> list[tuple[np.ndarray, ...]]:
    """E f, E 1/2 tr(a f'') of every a, and E grad f phi' over one snapshot for each set of probes, all points."""
    items, owner = [], []
    for n, (position, some) in enumerate(zip(which, probes, strict=True)):
        points, weights = snapshots.clouds[position], snapshots.weights[position]
        size = chunk_size(len(points))
        for at in range(0, len(points), _BATCH * size):
            part = slice(at, at + _BATCH * size)
            items.append((some, features, diffusion, points[part], weights[part], size))
            owner.append(n)
    sums: list[list[np.ndarray]] = [[] for _ in which]
    for n, found in zip(owner, on_cores(_summed, items), strict=True):
        sums[n] = [a + b for a, b in zip(sums[n], found, strict=True)] if sums[n] else list(found)
    return [tuple(some) for some in sums]


def _summed(probes, features, diffusion, points, weights, size: int) -> tuple[np.ndarray, ...]:
    total: list[np.ndarray] = []
    for at in range(0, len(points), size):
        x, w = np.zeros((size, points.shape[1]), dtype=np.float32), np.zeros(size, dtype=np.float32)
        rows = points[at : at + size]
        x[: len(rows)], w[: len(rows)] = rows, weights[at : at + size]
        found = [np.asarray(a, dtype=np.float64) for a in _moments(probes, features, diffusion, x, w)]
        total = [a + b for a, b in zip(total, found, strict=True)] if total else found
    return tuple(total)


@eqx.filter_jit
def _moments(probes: AbstractProbes, features: AbstractFeatures, noise: AbstractDiffusion | Array, x, w):
    def bend(y):
        if isinstance(noise, AbstractDiffusion):
            factor = noise(y)
            return probes.bend(y, factor @ factor.T)[None]
        return jax.vmap(lambda a: probes.bend(y, a))(noise)

    slope = probes.paired(x, w[:, None] * jax.vmap(features)(x))
    by_column = jnp.swapaxes(slope, 1, 2).reshape(len(slope), -1)
    return w @ jax.vmap(probes)(x), jnp.einsum("n,nbp->bp", w, jax.vmap(bend)(x)), by_column


@eqx.filter_jit
def _pushed(probes: AbstractProbes, process: ItoProcess, x: Float[Array, "n n_dims"], h) -> Float[Array, "n n_probes"]:
    """F + h Lf."""

    def push(y):
        factor = process.diffusion(y)
        value, change = jax.jvp(probes, (y,), (process.drift(y),))
        return value + h * (change + probes.bend(y, factor @ factor.T))

    return jax.vmap(push)(x)
