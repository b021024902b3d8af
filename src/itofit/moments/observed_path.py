"""Dense snapshots need no simulation: the observed clouds themselves are the path.

From one snapshot to the next, by the trapezoid,

    r(f) = E_s f - E_t f + gap / 2 (E_s + E_t)[g . grad f + 1/2 tr(a f'')]

which is linear in the coefficients of g, and in the entries of a where it is learned and the same
everywhere. In the covariance of `whitening` the start counts with f + gap/2 Lf and the target with
f - gap/2 Lf. How good the trapezoid is shows in a simulation over the same gap (`CorrectedPath`).
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple, Self

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from itofit.moments.residuals import FEWEST_TO_FOLD, N_FOLDS, Residual, Simulated
from itofit.moments.transitions import chunk_size
from itofit.moments.whitening import Spread, Whitening
from itofit.process.features import AbstractFeatures, Dictionary
from itofit.process.ito import ItoProcess
from itofit.process.noise import AbstractDiffusion, FullForm, LearnedDiffusion
from itofit.snapshots.clouds import Snapshots
from itofit.solve.cores import on_cores
from itofit.weak.fixed_probes import AbstractProbes

# Points of a snapshot that its covariance is made of: at least so many, and so many times the
# number of probes.
_FEWEST = 2048
_PER_PROBE = 20
# Chunks of points summed by one task.
_BATCH = 16


class Expectations(NamedTuple):
    """What one snapshot says of the probes of one gap.

    - `value`: E f. `bend`: E 1/2 tr(a f''), for every a.
    - `slope`: E grad f phi', feature by feature, output by output.
    """

    value: Float[np.ndarray, " n_probes"]
    bend: Float[np.ndarray, "n_entries n_probes"]
    slope: Float[np.ndarray, "n_probes n_coefficients"]

    def plus(self, other: "Expectations") -> "Expectations":
        """The sum of two parts of a snapshot."""
        return Expectations(
            self.value + other.value,
            self.bend + other.bend,
            self.slope + other.slope,
        )


@dataclass(frozen=True, eq=False)
class ObservedPath(Residual):
    """The residual of the trapezoid.

    - `observed`: the mean of the probes over every target. `known`: the residual without drift and
      without learned noise. `slopes`: its derivative, ordered feature by feature, output by output.
    - `bends`: the derivative in the entries `pairs` of a learned a; none where the noise is known.
    """

    probes: tuple[AbstractProbes, ...]
    observed: tuple[Float[np.ndarray, " n_probes"], ...]
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
    ) -> "ObservedPath":
        """Take every expectation over the clouds once, for the gaps after these snapshots."""
        pairs = covariance_pairs(diffusion)
        noise = _basis(pairs, snapshots.n_dims) if pairs else diffusion
        features = dictionary.features
        ends = tuple((int(n), int(n) + 1) for n in gaps)
        starts = _expectations(
            snapshots,
            [a for a, _ in ends],
            probes,
            features,
            noise,
        )
        targets = _expectations(
            snapshots,
            [b for _, b in ends],
            probes,
            features,
            noise,
        )
        half_gaps = np.diff(snapshots.times)[list(gaps)] / 2.0
        known = []
        slopes = []
        bends = []
        for start, target, half in zip(starts, targets, half_gaps, strict=True):
            bend = half * (start.bend + target.bend).T
            change = start.value - target.value
            known.append(change if pairs else change + bend[:, 0])
            bends.append(bend[:, : len(pairs)])
            slopes.append(speed * half * (start.slope + target.slope))
        return cls(
            snapshots=snapshots,
            diffusion=diffusion,
            ends=ends,
            probes=probes,
            dictionary=dictionary,
            speed=speed,
            observed=tuple(target.value for target in targets),
            known=tuple(known),
            slopes=tuple(slopes),
            bends=tuple(bends),
            pairs=pairs,
        )

    def __call__(self, v: np.ndarray) -> list[np.ndarray]:
        entries = np.asarray(self._entries(self.noise(v)), dtype=np.float64)
        W = v[: self.n_coefficients]
        rows = zip(self.known, self.slopes, self.bends, strict=True)
        return [known + slope @ W + bend @ entries for known, slope, bend in rows]

    def spreads(self, v: np.ndarray | None) -> list[Spread]:
        process = self.process(np.zeros(self.n_coefficients) if v is None else v)
        count = max(_FEWEST, _PER_PROBE * len(self.known[0]))
        half_gaps = np.diff(self.snapshots.times) / 2.0
        pushes = []
        for probes, (start, target) in zip(self.probes, self.ends, strict=True):
            pushes.append(Push(probes, start, half_gaps[start]))
            pushes.append(Push(probes, target, -half_gaps[start]))

        def pushed(push: Push) -> Array:
            points = jnp.asarray(self.snapshots.clouds[push.snapshot][:count], dtype=float)
            return _pushed(
                push.probes,
                process,
                points,
                jnp.asarray(push.time),
            )

        values = on_cores(pushed, pushes)
        pairs = zip(self.ends, values[::2], values[1::2], strict=True)
        return [self._spread(ends, count, begun, ended) for ends, begun, ended in pairs]

    def jacobian(
        self, v: np.ndarray, whitening: Whitening, columns: Int[np.ndarray, " n_columns"]
    ) -> Float[np.ndarray, "n_rows n_columns"]:
        columns = np.asarray(columns)
        slopes = self._with_noise_slopes(v) if self.pairs else self.slopes
        pairs = zip(whitening.bases, slopes, strict=True)
        return whitening.finish([basis @ slope[:, columns] for basis, slope in pairs])

    def with_noise(self, diffusion: AbstractDiffusion) -> Self:
        return replace(self, diffusion=diffusion)

    def process(self, v: np.ndarray) -> ItoProcess:
        return self.linear_process(v)

    def folds(self) -> Sequence["ObservedPath"]:
        if min(self.snapshots.counts) < FEWEST_TO_FOLD:
            return [self]
        return [self._on(self.snapshots.thinned(k, N_FOLDS)) for k in range(N_FOLDS)]

    def only(self, marks: Bool[np.ndarray, " n_groups"]) -> Self:
        rows = np.repeat(marks, [group.size for group in self.dictionary.groups])
        columns = np.repeat(rows, self.snapshots.n_dims)
        slopes = tuple(slope[:, columns] for slope in self.slopes)
        return replace(self, dictionary=self.dictionary.only(marks), slopes=slopes)

    def _entries(self, diffusion: AbstractDiffusion) -> Float[Array, " n_entries"]:
        """The entries of a, for a noise that is the same everywhere."""
        S = diffusion(jnp.zeros(self.snapshots.n_dims))
        return jnp.asarray([jnp.dot(S[k], S[m]) for k, m in self.pairs])

    def _with_noise_slopes(self, v: np.ndarray) -> list[Float[np.ndarray, "n_probes n_columns"]]:
        """The derivatives in the coefficients and in the parameters of the noise."""
        noise = self.noise(v)
        unmoved = jnp.zeros(self.diffusion.n_parameters)
        by_parameter = jax.jacfwd(lambda u: self._entries(noise.moved(u)))(unmoved)
        entries = np.asarray(by_parameter, dtype=np.float64)
        pairs = zip(self.slopes, self.bends, strict=True)
        return [np.concatenate([slope, bend @ entries], axis=1) for slope, bend in pairs]

    def _on(self, snapshots: Snapshots) -> "ObservedPath":
        """The same question to other snapshots at the same times."""
        gaps = [start for start, _ in self.ends]
        return ObservedPath.over(
            snapshots, self.diffusion, gaps, self.probes, self.dictionary, self.speed
        )

    def _spread(
        self,
        ends: tuple[int, int],
        count: int,
        propagated: Array,
        observed: Array,
    ) -> Spread:
        """From `count` points of either end, spread as the mean over all points is."""
        start, target = ends
        begun = _thin(self.snapshots.weights[start], count, propagated)
        ended = _thin(self.snapshots.weights[target], count, observed)
        return Spread(
            start,
            target,
            begun.weights,
            ended.weights,
            begun.rows,
            ended.rows,
        )


class Push(NamedTuple):
    """Probes that are read on a snapshot, moved on for some time."""

    probes: AbstractProbes
    snapshot: int
    time: float


class Weighted(NamedTuple):
    """Rows, and what each of them counts."""

    weights: Float[np.ndarray, " n"]
    rows: Float[np.ndarray, "n n_columns"]


def _thin(
    whole: Float[np.ndarray, " n_points"],
    count: int,
    values: Array,
) -> Weighted:
    """Values at the first `count` of all points, stretched to the spread of the mean over all."""
    weights = whole[:count] / whole[:count].sum()
    precise = np.asarray(values, dtype=np.float64)
    mean = weights @ precise
    stretch = np.sqrt(np.sum(whole**2) / np.sum(weights**2))
    return Weighted(weights, mean + stretch * (precise - mean))


@dataclass(frozen=True, eq=False)
class CorrectedPath(Residual):
    """The simulated residual with the covariance of the observed path.

    That needs no value of every probe at every end.
    """

    simulated: Simulated
    observed: ObservedPath

    @classmethod
    def of(
        cls,
        simulated: Simulated,
        observed: ObservedPath,
    ) -> "CorrectedPath":
        """Join the two."""
        return cls(
            snapshots=observed.snapshots,
            diffusion=observed.diffusion,
            ends=observed.ends,
            probes=observed.probes,
            dictionary=observed.dictionary,
            speed=observed.speed,
            simulated=simulated,
            observed=observed,
        )

    def __call__(self, v: np.ndarray) -> list[np.ndarray]:
        return self.simulated(v)

    def spreads(self, v: np.ndarray | None) -> list[Spread]:
        return self.observed.spreads(v)

    def jacobian(
        self, v: np.ndarray, whitening: Whitening, columns: Int[np.ndarray, " n_columns"]
    ) -> Float[np.ndarray, "n_rows n_columns"]:
        return self.simulated.jacobian(v, whitening, columns)

    def with_noise(self, diffusion: AbstractDiffusion) -> Self:
        simulated = self.simulated.with_noise(diffusion)
        observed = self.observed.with_noise(diffusion)
        return replace(self, diffusion=diffusion, simulated=simulated, observed=observed)

    def process(self, v: np.ndarray) -> ItoProcess:
        return self.linear_process(v)

    def folds(self) -> Sequence["CorrectedPath"]:
        return [replace(self, simulated=part) for part in self.simulated.folds()]

    def only(self, marks: Bool[np.ndarray, " n_groups"]) -> Self:
        simulated = replace(self.simulated, dictionary=self.dictionary.only(marks))
        return replace(
            self,
            dictionary=simulated.dictionary,
            simulated=simulated,
            observed=self.observed.only(marks),
        )


def covariance_pairs(diffusion: AbstractDiffusion) -> tuple[tuple[int, int], ...]:
    """The entries of a that a learned noise which is the same everywhere has; none for others."""
    if not isinstance(diffusion, LearnedDiffusion) or not diffusion.constant:
        return ()
    n_dims = len(diffusion.form(diffusion.theta, jnp.zeros(1)))
    diagonal = not isinstance(diffusion.form, FullForm)
    return tuple((k, m) for k in range(n_dims) for m in range(k + 1) if k == m or not diagonal)


def _basis(
    pairs: tuple[tuple[int, int], ...],
    n_dims: int,
) -> Float[Array, "n_entries n_dims n_dims"]:
    """The symmetric matrix of every entry."""
    matrices = np.zeros((len(pairs), n_dims, n_dims))
    for matrix, (k, m) in zip(matrices, pairs, strict=True):
        matrix[k, m] = matrix[m, k] = 1.0
    return jnp.asarray(matrices, dtype=float)


class Batch(NamedTuple):
    """Some points of a snapshot with their weights, and the probes that are read there."""

    probes: AbstractProbes
    points: Float[np.ndarray, "n n_dims"]
    weights: Float[np.ndarray, " n"]
    size: int

    def chunks(self) -> Iterator[Weighted]:
        """The points in chunks of `size`; the last is filled up with some that count nothing."""
        for first in range(0, len(self.points), self.size):
            rows = self.points[first : first + self.size]
            x = np.zeros((self.size, self.points.shape[1]), dtype=np.float32)
            w = np.zeros(self.size, dtype=np.float32)
            x[: len(rows)] = rows
            w[: len(rows)] = self.weights[first : first + self.size]
            yield Weighted(w, x)


def _expectations(
    snapshots: Snapshots,
    positions: Sequence[int],
    probes: Sequence[AbstractProbes],
    features: AbstractFeatures,
    noise: AbstractDiffusion | Array,
) -> list[Expectations]:
    """The expectations of every set of probes over its snapshot, all points."""
    batches = []
    owners = []
    for n, (position, read) in enumerate(zip(positions, probes, strict=True)):
        points = snapshots.clouds[position]
        weights = snapshots.weights[position]
        size = chunk_size(len(points))
        for first in range(0, len(points), _BATCH * size):
            rows = slice(first, first + _BATCH * size)
            batches.append(
                Batch(
                    read,
                    points[rows],
                    weights[rows],
                    size,
                )
            )
            owners.append(n)

    def total(batch: Batch) -> Expectations:
        return _summed(batch, features, noise)

    sums: dict[int, Expectations] = {}
    for n, part in zip(owners, on_cores(total, batches), strict=True):
        sums[n] = sums[n].plus(part) if n in sums else part
    return list(sums.values())


def _summed(
    batch: Batch,
    features: AbstractFeatures,
    noise: AbstractDiffusion | Array,
) -> Expectations:
    total = None
    for weights, points in batch.chunks():
        moments = _moments(batch.probes, features, noise, points, weights)
        value, bend, slope = (np.asarray(moment, dtype=np.float64) for moment in moments)
        part = Expectations(value, bend, slope)
        total = part if total is None else total.plus(part)
    assert total is not None
    return total


@eqx.filter_jit
def _moments(
    probes: AbstractProbes,
    features: AbstractFeatures,
    noise: AbstractDiffusion | Array,
    x,
    w,
):
    """E f, E 1/2 tr(a f'') of every a, and E grad f phi', in single precision."""

    def bend(y):
        if isinstance(noise, AbstractDiffusion):
            factor = noise(y)
            return probes.bend(y, factor @ factor.T)[None]
        return jax.vmap(lambda a: probes.bend(y, a))(noise)

    slope = probes.paired(x, w[:, None] * jax.vmap(features)(x))
    by_column = jnp.swapaxes(slope, 1, 2).reshape(len(slope), -1)
    return w @ jax.vmap(probes)(x), jnp.einsum("n,nbp->bp", w, jax.vmap(bend)(x)), by_column


@eqx.filter_jit
def _pushed(
    probes: AbstractProbes,
    process: ItoProcess,
    x: Float[Array, "n n_dims"],
    h: Float[Array, ""],
) -> Float[Array, "n n_probes"]:
    """F + h Lf."""

    def push(y):
        factor = process.diffusion(y)
        value, change = jax.jvp(probes, (y,), (process.drift(y),))
        return value + h * (change + probes.bend(y, factor @ factor.T))

    return jax.vmap(push)(x)
