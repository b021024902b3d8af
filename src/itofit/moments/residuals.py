"""Residuals of many probes at once, E f(simulated) - E f(observed), and their Jacobian.

    r_n(f) = sum_i w_i f(X_i) - sum_j w_j f(x_j)

for every transition n: X_i are the ends of the chains from its start, x_j the points of its target.
"""

import abc
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, Self

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from itofit.moments.pairs import PairProbes
from itofit.moments.transitions import Chunk, Cut, DrivenChains, TransitionBatch
from itofit.moments.whitening import Spread, Whitening
from itofit.process.clock import Clock
from itofit.process.drift import AbstractLinearDrift, linear_drift
from itofit.process.features import Dictionary
from itofit.process.ito import ItoProcess
from itofit.process.noise import AbstractDiffusion
from itofit.simulate.sensitivity import Sensitivities, chain_adjoints
from itofit.snapshots.clouds import Snapshots
from itofit.solve.cores import on_cores
from itofit.weak.fixed_probes import AbstractPathProbes, AbstractProbes

# Parts of the start points whose Jacobians are compared, and points below which they are not.
N_FOLDS = 4
FEWEST_TO_FOLD = 40
# Points a chunk where no array of sensitivities limits them.
_CHUNK = 64
# Points at which probes are read at once.
_READ = 1024
# Transitions below which the points of each are shared by two tasks.
_FEW_TRANSITIONS = 8
# Columns of a Jacobian are filled up to a power of two from here on.
_FEWEST_COLUMNS = 32
# Rows of a Jacobian are filled up to a multiple of this.
_ROWS = 32


@dataclass(frozen=True, eq=False)
class Residual(abc.ABC):
    """y(v) of one phase and its Jacobian.

    Unknowns are the coefficients, an `(n_features, n_outputs)` array, flattened, and after them the
    parameters of a noise that is learned, counted from those of `diffusion`; where they are left
    out the noise is as it is.

    - `ends`: the snapshots (start, target) of every transition. `probes`: what is read at its
      target.
    - `speed`: the drift is speed * W' phi(x), with a `clock` speed * W' phi(x, tau).
    - `metric`: of a drift with a potential, -speed * D grad (w' psi)(x), the diagonal of D.
    """

    snapshots: Snapshots
    diffusion: AbstractDiffusion
    ends: tuple[tuple[int, int], ...]
    probes: tuple[AbstractPathProbes, ...]
    dictionary: Dictionary
    speed: float
    clock: Clock | None = field(kw_only=True, default=None)
    metric: Float[np.ndarray, " n_dims"] | None = field(kw_only=True, default=None)

    @abc.abstractmethod
    def __call__(self, v: np.ndarray) -> list[np.ndarray]:
        """The residual r_n of every transition: what comes of its start, less its target."""

    @abc.abstractmethod
    def spreads(self, v: np.ndarray | None) -> list[Spread]:
        """What the covariance is made of; with None, before anything can be simulated."""

    @abc.abstractmethod
    def jacobian(
        self, v: np.ndarray, whitening: Whitening, columns: Int[np.ndarray, " n_columns"]
    ) -> Float[np.ndarray, "n_rows n_columns"]:
        """These columns of the Jacobian dy / dv."""

    @abc.abstractmethod
    def folds(self) -> Sequence["Residual"]:
        """The same over independent parts of the start points; the whole where they are too few."""

    @abc.abstractmethod
    def only(self, marks: Bool[np.ndarray, " n_groups"]) -> Self:
        """The same with the features of the marked groups alone."""

    @abc.abstractmethod
    def with_noise(self, diffusion: AbstractDiffusion) -> Self:
        """The same with another noise, from which parameters of a learned one are counted."""

    @abc.abstractmethod
    def process(self, v: np.ndarray) -> ItoProcess:
        """The process with these unknowns."""

    @property
    def n_coefficients(self) -> int:
        """Unknowns of the drift."""
        return self.dictionary.n_features * self.n_outputs

    @property
    def n_outputs(self) -> int:
        """Functions that are combined of the features: coordinates of the drift, or a potential."""
        return self.snapshots.n_dims if self.metric is None else 1

    def drift(self, v: np.ndarray) -> AbstractLinearDrift:
        """The drift with these unknowns."""
        W = self.speed * v[: self.n_coefficients].reshape(-1, self.n_outputs)
        coefficients = jnp.asarray(W, dtype=float)
        return linear_drift(self.dictionary.features, coefficients, self.metric, self.clock)

    def noise(self, v: np.ndarray) -> AbstractDiffusion:
        """The diffusion with these unknowns."""
        parameters = v[self.n_coefficients :]
        if len(parameters) == 0:
            return self.diffusion
        return self.diffusion.moved(jnp.asarray(parameters, dtype=float))

    def linear_process(self, v: np.ndarray) -> ItoProcess:
        """The process where the unknowns are coefficients and parameters of the noise alone."""
        return ItoProcess(self.drift(v), self.noise(v))


class Reading(NamedTuple):
    """Some chunks of a transition, and the probes that are read at their ends."""

    transition: TransitionBatch
    probes: Any
    chunks: Sequence[Chunk]


# What is read of one chunk of a transition under its probes.
Work = Callable[[TransitionBatch, Any, Chunk], Array]


@dataclass(frozen=True, eq=False)
class Simulated(Residual):
    """The residual of chains simulated from snapshot to snapshot.

    - `observed`: the mean of the probes over the target of every transition.
    - `n_jacobian`: start points used for the Jacobian.
    - `step_bias`: what long steps add to the means of the probes; it is taken off.
    """

    transitions: tuple[TransitionBatch, ...]
    observed: tuple[np.ndarray, ...]
    n_jacobian: int
    step_bias: tuple[np.ndarray, ...] | None = None

    def __call__(self, v: np.ndarray) -> list[np.ndarray]:
        process = self.process(v)
        means = self._means(lambda transition, chunk: transition.end(process, chunk))
        residuals = [mean - seen for mean, seen in zip(means, self.observed, strict=True)]
        if self.step_bias is None:
            return residuals
        return [r - bias for r, bias in zip(residuals, self.step_bias, strict=True)]

    def without_step_bias(self, process: ItoProcess, cut: Cut) -> Self:
        """The same without what long steps add to it, as that is for this process.

        It is extrapolated from steps so cut; of chains that run to infinity it is not known, and
        nothing changes.
        """
        long = self._means(lambda transition, chunk: transition.end(process, chunk))
        short = self._means(lambda transition, chunk: transition.finer_end(process, chunk, cut))
        more = cut.n_parts / (cut.n_parts - 1)
        with np.errstate(invalid="ignore"):
            bias = tuple(more * (a - b) for a, b in zip(long, short, strict=True))
        known = bool(np.all(np.isfinite(np.concatenate(bias))))
        return replace(self, step_bias=bias) if known else self

    def spreads(self, v: np.ndarray | None) -> list[Spread]:
        propagated: list[np.ndarray | None] = [None] * len(self.transitions)
        if v is not None:
            propagated = list(self._propagated(v))
        rows = zip(self.transitions, propagated, self.probes, strict=True)
        return [self._spread(batch, values, probes) for batch, values, probes in rows]

    def jacobian(
        self, v: np.ndarray, whitening: Whitening, columns: Int[np.ndarray, " n_columns"]
    ) -> Float[np.ndarray, "n_rows n_columns"]:
        if not whitening.by_probe:
            return whitening.finish(self.slopes(v, whitening.bases, columns))
        scales = [np.diag(basis) for basis in whitening.bases]
        return whitening.finish(self._sparse_slopes(v, scales, columns))

    def only(self, marks: Bool[np.ndarray, " n_groups"]) -> Self:
        return replace(self, dictionary=self.dictionary.only(marks))

    def with_noise(self, diffusion: AbstractDiffusion) -> Self:
        return replace(self, diffusion=diffusion)

    def process(self, v: np.ndarray) -> ItoProcess:
        return self.linear_process(v)

    def folds(self) -> Sequence["Simulated"]:
        if any(len(transition.weights) < FEWEST_TO_FOLD for transition in self.transitions):
            return [self]
        return [self._fold(k) for k in range(N_FOLDS)]

    def slopes(
        self,
        v: np.ndarray,
        directions: Sequence[np.ndarray],
        columns: Int[np.ndarray, " n_columns"],
    ) -> list[np.ndarray]:
        """These columns of the derivatives of the residuals along directions of their probes.

        They come by sensitivities or by adjoints, whichever is cheaper.
        """
        columns = np.asarray(columns)
        of_drift = columns[columns < self.n_coefficients]
        of_noise = columns[columns >= self.n_coefficients] - self.n_coefficients
        n_noise = self.diffusion.n_parameters
        n_rows = [len(rows) for rows in directions]
        directions = [_with_empty_rows(rows) for rows in directions]
        if self._adjoints_are_cheaper(max(len(rows) for rows in directions)):
            every = self._summed(self._by_adjoints(v, directions), _CHUNK)
            first = of_drift
        else:
            padded = _filled_up(of_drift, self.n_coefficients)
            every = self._summed(self._by_sensitivities(v, directions, padded))
            first = of_drift if padded is None else slice(len(of_drift))
        order = _order(columns, self.n_coefficients)
        slopes = []
        for count, filled in zip(n_rows, every, strict=True):
            rows = filled[:count]
            noisy = rows[:, rows.shape[1] - n_noise :][:, of_noise]
            chosen = np.concatenate([self.speed * rows[:, first], noisy], axis=1)
            slopes.append(chosen[:, order])
        return slopes

    def _means(
        self,
        ends: Callable[[TransitionBatch, Chunk], Array],
    ) -> list[Float[np.ndarray, " n_probes"]]:
        """The mean of the probes over the chains of every transition that end there."""

        def work(transition: TransitionBatch, probes: Any, chunk: Chunk) -> Array:
            return _mean_of(probes, ends(transition, chunk), chunk.start, chunk.weights)

        return [np.sum(means, axis=0) for means in self._by_transition(work)]

    def _propagated(self, v: np.ndarray) -> list[Float[np.ndarray, "n_points n_probes"]]:
        """The mean of the probes over the chains from every start point."""
        process = self.process(v)

        def work(transition: TransitionBatch, probes: Any, chunk: Chunk) -> Array:
            return _values_of(probes, transition.end(process, chunk), chunk.start)

        values = self._by_transition(work)
        pairs = zip(self.transitions, values, strict=True)
        return [_mean_of_draws(transition, pieces) for transition, pieces in pairs]

    def _spread(
        self,
        transition: TransitionBatch,
        propagated: np.ndarray | None,
        probes: AbstractPathProbes,
    ) -> Spread:
        return Spread(
            start=transition.start,
            target=transition.target,
            start_weights=transition.weights,
            target_weights=self.snapshots.weights[transition.target],
            propagated=propagated,
            observed=_observed(probes, self.snapshots, transition),
            paired=isinstance(probes, PairProbes),
        )

    def _fold(self, k: int) -> "Simulated":
        """The k-th part of the start points; of pairs with what its individuals have become."""
        transitions = tuple(batch.fold(k, N_FOLDS) for batch in self.transitions)
        n_jacobian = -(-self.n_jacobian // N_FOLDS)
        part = replace(self, transitions=transitions, n_jacobian=n_jacobian)
        if not any(isinstance(probes, PairProbes) for probes in self.probes):
            return part
        observed = []
        for batch, probes in zip(transitions, self.probes, strict=True):
            values = _observed(probes, self.snapshots, batch)
            observed.append(batch.weights @ values[k::N_FOLDS])
        return replace(part, observed=tuple(observed))

    def _by_adjoints(
        self,
        v: np.ndarray,
        directions: Sequence[np.ndarray],
    ) -> Work:
        drift = self.drift(v)
        diffusion = self.noise(v)
        rows = self._by_target(directions)

        def work(transition: TransitionBatch, probes: Any, chunk: Chunk) -> Array:
            chains = transition.driven(drift, diffusion, chunk)
            return _adjoint_slopes(probes, rows[transition.target], chunk.weights, chains)

        return work

    def _by_sensitivities(
        self,
        v: np.ndarray,
        directions: Sequence[np.ndarray],
        columns: Int[Array, " n_columns"] | None,
    ) -> Work:
        drift = self.drift(v)
        diffusion = self.noise(v)
        rows = self._by_target(directions)

        def work(transition: TransitionBatch, probes: Any, chunk: Chunk) -> Array:
            chains = transition.sensitivity(drift, diffusion, chunk)
            ends = Ends(chains, chunk.start, chunk.weights)
            return _slopes(probes, rows[transition.target], ends, columns)

        return work

    def _by_target(self, arrays: Sequence[np.ndarray]) -> dict[int, Array]:
        """What belongs to every transition, by its target."""
        pairs = zip(self.transitions, arrays, strict=True)
        return {batch.target: jnp.asarray(array, dtype=float) for batch, array in pairs}

    def _sparse_slopes(
        self,
        v: np.ndarray,
        scales: Sequence[np.ndarray],
        columns: np.ndarray,
    ) -> list[np.ndarray]:
        """The same probe by probe, each of which depends on few coordinates."""
        drift = self.drift(v)
        diffusion = self.noise(v)
        scale = self._by_target(scales)
        chosen = jnp.asarray(columns)
        touched = {}
        for transition, probes in zip(self.transitions, self.probes, strict=True):
            assert isinstance(probes, AbstractProbes)  # `check_pairs` refuses others
            touched[transition.target] = _rows_by_coordinate(probes.support())

        def work(transition: TransitionBatch, probes: Any, chunk: Chunk) -> Array:
            chains = transition.sensitivity(drift, diffusion, chunk)
            by_feature = jnp.swapaxes(self.speed * chains.by_drift, 2, 3)
            by_column = by_feature.reshape(*chains.end.shape, -1)
            slopes = jnp.concatenate([by_column, chains.by_noise], axis=2)[:, :, chosen]
            return _slopes_by_probe(
                probes,
                touched[transition.target],
                scale[transition.target],
                chains.end,
                slopes,
                chunk.weights,
            )

        return self._summed(work, _CHUNK)

    def _summed(
        self,
        work: Work,
        size: int | None = None,
    ) -> list[np.ndarray]:
        """`work` summed over the points of every transition.

        Few sums are alive at once, since each may be large.
        """
        n_tasks = 2 if len(self.transitions) < _FEW_TRANSITIONS else 1
        readings = []
        owners = []
        for n, (transition, probes) in enumerate(zip(self.transitions, self.probes, strict=True)):
            n_features = self.dictionary.n_features
            chunks = transition.jacobian_chunks(self.n_jacobian, n_features, size)
            for k in range(min(n_tasks, len(chunks))):
                readings.append(Reading(transition, probes, chunks[k::n_tasks]))
                owners.append(n)

        def total(reading: Reading) -> Array:
            first, *others = reading.chunks
            sums = work(reading.transition, reading.probes, first)
            for chunk in others:
                sums = sums + work(reading.transition, reading.probes, chunk)
            return sums

        totals: dict[int, np.ndarray] = {}
        for n, sums in zip(owners, on_cores(total, readings), strict=True):
            precise = np.asarray(sums, dtype=np.float64)
            totals[n] = totals[n] + precise if n in totals else precise
        return list(totals.values())

    def _adjoints_are_cheaper(self, n_rows: int) -> bool:
        """By the products a particle.

        Sensitivities take D^2 (D + F) a step and then R D^2 F; adjoints take R D (D + F) a step.
        """
        n_dims = self.snapshots.n_dims
        n_features = self.dictionary.n_features
        n_steps = max(transition.n_steps for transition in self.transitions)
        forwards = n_dims**2 * (n_steps * (n_dims + n_features) + n_rows * n_features)
        return n_steps * n_rows * n_dims * (n_dims + n_features) < forwards

    def _by_transition(self, work: Work) -> list[list[np.ndarray]]:
        """`work` of every chunk of every transition, in double precision from here on."""
        readings = []
        for transition, probes in zip(self.transitions, self.probes, strict=True):
            readings += [Reading(transition, probes, [chunk]) for chunk in transition.chains()]

        def read(reading: Reading) -> Array:
            return work(reading.transition, reading.probes, reading.chunks[0])

        answers = iter(on_cores(read, readings))
        rows = []
        for transition in self.transitions:
            pieces = [next(answers) for _ in transition.starts]
            rows.append([np.asarray(piece, dtype=np.float64) for piece in pieces])
        return rows


def _mean_of_draws(
    transition: TransitionBatch,
    pieces: list[np.ndarray],
) -> Float[np.ndarray, "n_points n_probes"]:
    count = len(transition.weights)
    chains = np.concatenate(pieces)[: transition.n_draws * count]
    return chains.reshape(transition.n_draws, count, -1).mean(axis=0)


def observed_means(
    snapshots: Snapshots,
    transitions: Sequence[TransitionBatch],
    probes: Sequence[AbstractPathProbes],
) -> tuple[Float[np.ndarray, " n_probes"], ...]:
    """The mean of the probes over the target of every transition."""
    means = []
    for transition, read in zip(transitions, probes, strict=True):
        weights = snapshots.weights[transition.target]
        means.append(weights @ _observed(read, snapshots, transition))
    return tuple(means)


def _observed(
    probes: AbstractPathProbes,
    snapshots: Snapshots,
    transition: TransitionBatch,
) -> Float[np.ndarray, "n_target n_probes"]:
    """F_m at every row of the target; where it began matters to pairs alone."""
    began = transition.start if isinstance(probes, PairProbes) else transition.target
    return probe_values(probes, snapshots.clouds[transition.target], snapshots.clouds[began])


def probe_values(
    probes: AbstractPathProbes,
    ends: np.ndarray,
    starts: np.ndarray,
) -> Float[np.ndarray, "n n_probes"]:
    """f_m at every row, in chunks of one size."""
    values = []
    for first in range(0, len(ends), _READ):
        rows = slice(first, first + _READ)
        count = len(ends[rows])
        chunk = np.zeros((2, _READ, ends.shape[1]), dtype=np.float32)
        chunk[0, :count] = ends[rows]
        chunk[1, :count] = starts[rows]
        read = _values_of(probes, jnp.asarray(chunk[0]), jnp.asarray(chunk[1]))
        values.append(np.asarray(read)[:count])
    return np.concatenate(values).astype(np.float64)


@eqx.filter_jit
def _values_of(
    probes: AbstractPathProbes,
    ends: Float[Array, "n n_dims"],
    starts: Float[Array, "n n_dims"],
) -> Float[Array, "n n_probes"]:
    return jax.vmap(lambda end, start: probes.given(start)(end))(ends, starts)


@eqx.filter_jit
def _mean_of(
    probes: AbstractPathProbes,
    ends: Float[Array, "n n_dims"],
    starts: Float[Array, "n n_dims"],
    weights: Float[Array, " n"],
) -> Float[Array, " n_probes"]:
    # A point that counts nothing may be anything.
    return weights @ jnp.where(weights[:, None] > 0, _values_of(probes, ends, starts), 0.0)


def _gradients(
    probes: AbstractPathProbes,
    ends,
    starts,
) -> Float[Array, "n n_probes n_dims"]:
    """How f_m change with the end; the start does not move."""
    return jax.vmap(lambda end, start: jax.jacfwd(probes.given(start))(end))(ends, starts)


@eqx.filter_jit
def _slopes_by_probe(
    probes: AbstractProbes,
    touched: Int[Array, "n_dims most"],
    scale: Float[Array, " n_probes"],
    ends: Float[Array, "n n_dims"],
    slopes: Float[Array, "n n_dims n_columns"],
    weights: Float[Array, " n"],
) -> Float[Array, "n_rows n_columns"]:
    """sum_i w_i scale grad f(x_i)' dx_i / dv, coordinate by coordinate over the probes it is in."""
    n_dims = ends.shape[1]
    n_columns = slopes.shape[2]
    gradients = jax.vmap(jax.jacfwd(probes))(ends) * (weights[:, None] * scale)[:, :, None]
    picked = gradients[:, touched, np.arange(n_dims)[:, None]]
    products = jnp.einsum("nis,nip->isp", picked, slopes)
    empty = jnp.zeros((len(scale), n_columns))
    return empty.at[touched.ravel()].add(products.reshape(touched.size, -1), mode="drop")


def _rows_by_coordinate(
    support: Bool[np.ndarray, "n_probes n_dims"],
) -> Int[np.ndarray, "n_dims most"]:
    """For each coordinate the probes that depend on it, then a row that does not exist."""
    members = [np.flatnonzero(column) for column in support.T]
    rows = np.full((len(members), max(map(len, members))), len(support))
    for row, probes in zip(rows, members, strict=True):
        row[: len(probes)] = probes
    return rows


@eqx.filter_jit
def _adjoint_slopes(
    probes: AbstractPathProbes,
    directions: Float[Array, "n_rows n_probes"],
    weights: Float[Array, " n"],
    chains: DrivenChains,
) -> Float[Array, "n_rows n_columns"]:
    """The same as `_slopes` of all columns, by adjoints."""

    def slopes_at(ends):
        gradients = _gradients(probes, ends, chains.start)
        along = jnp.einsum("rm,nmi->nri", directions, gradients)
        return along * weights[:, None, None]

    by_drift, by_noise = chain_adjoints(
        chains.drift,
        chains.diffusion,
        chains.start,
        chains.times,
        chains.steps,
        chains.noise,
        chains.n_taken,
        slopes_at,
    )
    by_column = jnp.swapaxes(by_drift, 1, 2).reshape(len(directions), -1)
    return jnp.concatenate([by_column, by_noise], axis=1)


class Ends(NamedTuple):
    """The ends of some chains and what moves them, where they began, and what they count."""

    chains: Sensitivities
    starts: Float[Array, "n n_dims"]
    weights: Float[Array, " n"]


@eqx.filter_jit
def _slopes(
    probes: AbstractPathProbes,
    directions: Float[Array, "n_rows n_probes"],
    ends: Ends,
    columns: Int[Array, " n_columns"] | None,
) -> Float[Array, "n_rows n_columns_and_noise"]:
    """sum_i w_i V grad f(x_i)' dx_i / dv.

    First coefficients, feature by feature and output by output, all of them with None; then noise.
    """
    by_drift = ends.chains.by_drift
    n, n_dims, n_outputs, _ = by_drift.shape
    n_rows = len(directions)
    gradients = _gradients(probes, ends.chains.end, ends.starts)
    along = jnp.einsum("rm,nmi->nir", directions, gradients) * ends.weights[:, None, None]
    noise = jnp.einsum("nir,nip->rp", along, ends.chains.by_noise)
    if columns is not None:
        picked = by_drift[:, :, columns % n_outputs, columns // n_outputs]
        return jnp.concatenate([jnp.einsum("nir,nip->rp", along, picked), noise], axis=1)
    total = jnp.einsum("nir,nip->rp", along, by_drift.reshape(n, n_dims, -1))
    by_output = total.reshape(n_rows, n_outputs, -1)
    by_column = jnp.swapaxes(by_output, 1, 2).reshape(n_rows, -1)
    return jnp.concatenate([by_column, noise], axis=1)


def _order(
    columns: Int[np.ndarray, " n_columns"],
    n_coefficients: int,
) -> Int[np.ndarray, " n_columns"]:
    """Where every column is once those of the noise stand after the others."""
    noise_last = np.argsort(columns >= n_coefficients, kind="stable")
    return np.argsort(noise_last, kind="stable")


def _with_empty_rows(
    directions: Float[np.ndarray, "n_rows n_probes"],
) -> Float[np.ndarray, "n_filled n_probes"]:
    """Rows of zeros up to a whole number of blocks, so that few sizes compile."""
    return np.pad(directions, ((0, -len(directions) % _ROWS), (0, 0)))


def _filled_up(
    columns: Int[np.ndarray, " n_columns"],
    n_all: int,
) -> Int[Array, " n_padded"] | None:
    """The columns and the first again and again up to a power of two, so that few sizes compile.

    None where it is rather all of them.
    """
    size = max(_FEWEST_COLUMNS, 1 << (max(len(columns), 1) - 1).bit_length())
    if size > n_all // 2:
        return None
    zeros = np.zeros(size - len(columns), dtype=columns.dtype)
    return jnp.asarray(np.concatenate([columns, zeros]))
