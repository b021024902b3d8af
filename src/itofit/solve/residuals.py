"""Residuals of many probes at once, E f(simulated) - E f(seen), flight by flight, and their Jacobian."""

import abc
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Self

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from itofit.process.clock import Clock
from itofit.process.diffusion import AbstractDiffusion
from itofit.process.drift import FeatureDrift
from itofit.process.features import Dictionary
from itofit.process.ito import ItoProcess
from itofit.simulate.sensitivity import chain_adjoints
from itofit.snapshots.clouds import Snapshots
from itofit.solve.flights import Flight, on_cores
from itofit.solve.pairs import PairProbes
from itofit.solve.whitening import Spread, Whitening
from itofit.weak.fixed_probes import AbstractPathProbes, AbstractProbes

# Parts of the start points whose Jacobians are compared, and points below which they are not.
N_FOLDS, FEWEST_TO_FOLD = 4, 40


@dataclass(frozen=True, eq=False)
class Residual(abc.ABC):
    """y(v) of one phase and its Jacobian.

    Unknowns are the coefficients, an `(n_features, n_dims)` array, flattened, and after them the parameters of a noise
    that is learned, counted from those of `diffusion`; where they are left out the noise is as it is.

    - `ends`: the snapshots (start, target) of every flight. `probes`: what is read at its target.
    - `speed`: the drift is speed * W' phi(x), with a `clock` speed * W' phi(x, tau).
    """

    snapshots: Snapshots
    diffusion: AbstractDiffusion
    ends: tuple[tuple[int, int], ...]
    probes: tuple[AbstractPathProbes, ...]
    dictionary: Dictionary
    speed: float
    clock: Clock | None = field(kw_only=True, default=None)

    @abc.abstractmethod
    def __call__(self, v: np.ndarray) -> list[np.ndarray]:
        """The residual r_n of every flight: what the drift makes of the start minus what is seen."""

    @abc.abstractmethod
    def spreads(self, v: np.ndarray | None) -> list[Spread]:
        """What the covariance is made of; with None, before anything can be simulated."""

    @abc.abstractmethod
    def jacobian(
        self, v: np.ndarray, whitening: Whitening, columns: Int[np.ndarray, " n_columns"]
    ) -> Float[np.ndarray, "n_rows n_columns"]:
        """These columns of the Jacobian dy / dv."""

    def folds(self) -> Sequence["Residual"]:
        """The same over independent parts of the start points; the whole where they are too few."""
        return [self]

    def only(self, marks: Bool[np.ndarray, " n_groups"]) -> Self:
        """The same with the features of the marked groups alone."""
        return replace(self, dictionary=self.dictionary.only(marks))

    @property
    def n_coefficients(self) -> int:
        """Unknowns of the drift."""
        return self.dictionary.n_features * self.snapshots.n_dims

    def process(self, v: np.ndarray) -> ItoProcess:
        """The process with these unknowns."""
        return ItoProcess(self.drift(v), self.noise(v))

    def drift(self, v: np.ndarray) -> FeatureDrift:
        """The drift with these unknowns."""
        W = self.speed * v[: self.n_coefficients].reshape(-1, self.snapshots.n_dims)
        return FeatureDrift(self.dictionary.features, jnp.asarray(W, dtype=float), self.clock)

    def noise(self, v: np.ndarray) -> AbstractDiffusion:
        """The diffusion with these unknowns."""
        parameters = v[self.n_coefficients :]
        return self.diffusion.moved(jnp.asarray(parameters, dtype=float)) if len(parameters) else self.diffusion


@dataclass(frozen=True, eq=False)
class Simulated(Residual):
    """The residual of chains simulated from snapshot to snapshot.

    - `seen`: the mean of the probes over every flight's target.
    - `n_jacobian`: start points used for the Jacobian.
    """

    flights: tuple[Flight, ...]
    seen: tuple[np.ndarray, ...]
    n_jacobian: int

    @classmethod
    def between(cls, snapshots, diffusion, flights, probes, dictionary, speed, n_jacobian, clock=None) -> "Simulated":
        """Read the probes on the target of every flight."""
        ends = tuple((flight.start, flight.target) for flight in flights)
        seen = tuple(snapshots.weights[at[1]] @ _seen(p, snapshots, *at) for p, at in zip(probes, ends, strict=True))
        return cls(snapshots, diffusion, ends, probes, dictionary, speed, flights, seen, n_jacobian, clock=clock)

    def __call__(self, v: np.ndarray) -> list[np.ndarray]:
        process = self.process(v)

        def work(flight, probes, start, noise, weights):
            return _mean_of(probes, flight.end(process, start, noise), start, weights)

        found = self._by_flight(work, [flight.chains() for flight in self.flights])
        return [np.sum(pieces, axis=0) - mean for pieces, mean in zip(found, self.seen, strict=True)]

    def spreads(self, v: np.ndarray | None) -> list[Spread]:
        flown: list[np.ndarray | None] = [None] * len(self.flights)
        if v is not None:
            process = self.process(v)

            def work(flight, probes, start, noise, weights):
                return _values_of(probes, flight.end(process, start, noise), start)

            found = self._by_flight(work, [flight.chains() for flight in self.flights])
            flown = [_mean_of_draws(flight, pieces) for flight, pieces in zip(self.flights, found, strict=True)]
        weights = self.snapshots.weights
        rows = zip(self.ends, self.flights, flown, self.probes, strict=True)
        return [
            Spread(*at, f.weights, weights[at[1]], values, _seen(p, self.snapshots, *at), isinstance(p, PairProbes))
            for at, f, values, p in rows
        ]

    def jacobian(
        self, v: np.ndarray, whitening: Whitening, columns: Int[np.ndarray, " n_columns"]
    ) -> Float[np.ndarray, "n_rows n_columns"]:
        if not whitening.by_probe:
            return whitening.finish(self.slopes(v, whitening.bases, columns))
        return whitening.finish(self._sparse_slopes(v, [np.diag(basis) for basis in whitening.bases], columns))

    def folds(self) -> Sequence["Simulated"]:
        if any(len(flight.weights) < FEWEST_TO_FOLD for flight in self.flights):
            return [self]
        n_jacobian = -(-self.n_jacobian // N_FOLDS)
        parts = [tuple(flight.fold(k, N_FOLDS) for flight in self.flights) for k in range(N_FOLDS)]
        found = [replace(self, flights=flights, n_jacobian=n_jacobian) for flights in parts]
        if not any(isinstance(probes, PairProbes) for probes in self.probes):
            return found
        return [replace(part, seen=self._seen_by(part.flights, k)) for k, part in enumerate(found)]

    def _seen_by(self, flights: tuple[Flight, ...], k: int) -> tuple[np.ndarray, ...]:
        """What the individuals of the k-th fold have become."""
        rows = zip(flights, self.probes, strict=True)
        return tuple(f.weights @ _seen(p, self.snapshots, f.start, f.target)[k::N_FOLDS] for f, p in rows)

    def slopes(
        self, v: np.ndarray, directions: Sequence[np.ndarray], columns: Int[np.ndarray, " n_columns"]
    ) -> list[np.ndarray]:
        """These columns of the derivative of each flight's residual along directions of its probes, the cheaper way."""
        g, diffusion = self.drift(v), self.noise(v)
        count, columns = self.n_coefficients, np.asarray(columns)
        drift, noisy = columns[columns < count], columns[columns >= count] - count
        rows = {f.target: jnp.asarray(V, dtype=float) for f, V in zip(self.flights, directions, strict=True)}
        backwards = self._adjoints_are_cheaper(max(len(V) for V in directions))
        asked = None if backwards else _filled_up(drift, count)

        def work(flight, probes, start, noise, weights):
            if backwards:
                chain = g, diffusion, start, flight.times, flight.steps, noise, jnp.asarray(flight.n_steps)
                return _adjoint_slopes(probes, rows[flight.target], weights, chain, start)
            end, moved, kicked = flight.sensitivity(g, diffusion, start, noise)
            return _slopes(probes, rows[flight.target], end, start, moved, kicked, weights, asked)

        found = self._summed(work, 64 if backwards else None)
        first = slice(len(drift)) if asked is not None else drift
        kicks = [row[:, row.shape[1] - diffusion.n_parameters :][:, noisy] for row in found]
        return [
            np.concatenate([self.speed * row[:, first], kick], axis=1)[:, _order(columns, count)]
            for row, kick in zip(found, kicks, strict=True)
        ]

    def _sparse_slopes(self, v: np.ndarray, scales: Sequence[np.ndarray], columns: np.ndarray) -> list[np.ndarray]:
        """The same probe by probe, each of which depends on few coordinates."""
        g, diffusion = self.drift(v), self.noise(v)
        alone = [p for p in self.probes if isinstance(p, AbstractProbes)]  # `check_pairs` refuses others
        touched = {f.target: _rows_by_coordinate(p.support()) for f, p in zip(self.flights, alone, strict=True)}
        scale = {f.target: jnp.asarray(s, dtype=float) for f, s in zip(self.flights, scales, strict=True)}
        chosen = jnp.asarray(columns)

        def work(flight, probes, start, noise, weights):
            end, moved, kicked = flight.sensitivity(g, diffusion, start, noise)
            by_column = jnp.swapaxes(self.speed * moved, 2, 3).reshape(*end.shape, -1)
            moved = jnp.concatenate([by_column, kicked], axis=2)[:, :, chosen]
            return _slopes_by_probe(probes, touched[flight.target], scale[flight.target], end, moved, weights)

        return self._summed(work, 64)

    def _summed(self, work, size: int | None = None) -> list[np.ndarray]:
        """`work` summed over the points of every flight; few sums are alive at once, since each may be large."""
        n_features, split = self.dictionary.n_features, 2 if len(self.flights) < 8 else 1
        items, owner = [], []
        for n, (flight, probes) in enumerate(zip(self.flights, self.probes, strict=True)):
            parts = flight.parts(self.n_jacobian, n_features, size)
            for some in (parts[i::split] for i in range(min(split, len(parts)))):
                items.append((flight, probes, some))
                owner.append(n)

        def total(flight, probes, parts):
            found = work(flight, probes, *parts[0])
            for part in parts[1:]:
                found = found + work(flight, probes, *part)
            return found

        sums: list[np.ndarray | None] = [None] * len(self.flights)
        for n, found in zip(owner, on_cores(total, items), strict=True):
            found = np.asarray(found, dtype=np.float64)
            sums[n] = found if sums[n] is None else sums[n] + found
        return [row for row in sums if row is not None]

    def _adjoints_are_cheaper(self, n_rows: int) -> bool:
        """Products a particle: sensitivities D^2 (D + F) a step and then R D^2 F; adjoints R D (D + F) a step."""
        n_dims, n_features = self.snapshots.n_dims, self.dictionary.n_features
        n_steps = max(flight.n_steps for flight in self.flights)
        forwards = n_dims**2 * (n_steps * (n_dims + n_features) + n_rows * n_features)
        return n_steps * n_rows * n_dims * (n_dims + n_features) < forwards

    def _by_flight(self, work, chunks) -> list[list[np.ndarray]]:
        """`work(flight, probes, *chunk)` for every chunk of every flight, in double precision from here on."""
        items = [
            (flight, probes, *chunk)
            for flight, probes, some in zip(self.flights, self.probes, chunks, strict=True)
            for chunk in some
        ]
        found = iter(on_cores(work, items))
        return [[np.asarray(next(found), dtype=np.float64) for _ in some] for some in chunks]


def _mean_of_draws(flight: Flight, pieces: list[np.ndarray]) -> Float[np.ndarray, "n_points n_probes"]:
    count = len(flight.weights)
    return np.concatenate(pieces)[: flight.n_draws * count].reshape(flight.n_draws, count, -1).mean(axis=0)


def _seen(
    probes: AbstractPathProbes, snapshots: Snapshots, start: int, target: int
) -> Float[np.ndarray, "n_target n_probes"]:
    """F_m at every row of the target; where it began is asked only of pairs."""
    began = start if isinstance(probes, PairProbes) else target
    return probe_values(probes, snapshots.clouds[target], snapshots.clouds[began])


def probe_values(probes: AbstractPathProbes, ends: np.ndarray, starts: np.ndarray) -> Float[np.ndarray, "n n_probes"]:
    """f_m at every row, in chunks of one size."""
    size = 1024
    found = []
    for at in range(0, len(ends), size):
        chunk = np.zeros((2, size, ends.shape[1]), dtype=np.float32)
        count = len(ends[at : at + size])
        chunk[:, :count] = ends[at : at + size], starts[at : at + size]
        found.append(np.asarray(_values_of(probes, *map(jnp.asarray, chunk)))[:count])
    return np.concatenate(found).astype(np.float64)


@eqx.filter_jit
def _values_of(
    probes: AbstractPathProbes, ends: Float[Array, "n n_dims"], starts: Float[Array, "n n_dims"]
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


def _gradients(probes: AbstractPathProbes, ends, starts) -> Float[Array, "n n_probes n_dims"]:
    """How f_m change with the end; the start does not move."""
    return jax.vmap(lambda end, start: jax.jacfwd(probes.given(start))(end))(ends, starts)


@eqx.filter_jit
def _slopes_by_probe(probes: AbstractProbes, touched, scale, ends, moved, weights) -> Float[Array, "n_rows n_columns"]:
    """sum_i w_i scale grad f(x_i)' dx_i / dv, coordinate by coordinate of x over the probes that it is in."""
    n_dims, n_columns = ends.shape[1], moved.shape[2]
    gradients = jax.vmap(jax.jacfwd(probes))(ends) * (weights[:, None] * scale)[:, :, None]
    picked = gradients[:, touched, np.arange(n_dims)[:, None]]
    products = jnp.einsum("nis,nip->isp", picked, moved)
    return jnp.zeros((len(scale), n_columns)).at[touched.ravel()].add(products.reshape(touched.size, -1), mode="drop")


def _rows_by_coordinate(support: Bool[np.ndarray, "n_probes n_dims"]) -> Int[np.ndarray, "n_dims most"]:
    """For each coordinate the probes that depend on it, filled up with a row that does not exist."""
    found = [np.flatnonzero(column) for column in support.T]
    rows = np.full((len(found), max(map(len, found))), len(support))
    for row, members in zip(rows, found, strict=True):
        row[: len(members)] = members
    return rows


@eqx.filter_jit
def _adjoint_slopes(probes: AbstractPathProbes, directions, weights, chain, starts) -> Float[Array, "n_rows n_columns"]:
    """The same by adjoints."""

    def slopes_at(ends):
        gradients = jnp.einsum("rm,nmi->nri", directions, _gradients(probes, ends, starts))
        return gradients * weights[:, None, None]

    found, kicked = chain_adjoints(*chain, slopes_at=slopes_at)
    return jnp.concatenate([jnp.swapaxes(found, 1, 2).reshape(len(directions), -1), kicked], axis=1)


@eqx.filter_jit
def _slopes(
    probes: AbstractPathProbes, directions, ends, starts, moved, kicked, weights, columns
) -> Float[Array, "n_rows n_columns"]:
    """sum_i w_i V grad f(x_i)' dx_i / dv: coefficients feature by feature, output by output, all with None; noise."""
    n, n_dims = ends.shape
    gradients = jnp.einsum("rm,nmi->nir", directions, _gradients(probes, ends, starts)) * weights[:, None, None]
    noise = jnp.einsum("nir,nip->rp", gradients, kicked)
    if columns is not None:
        picked = moved[:, :, columns % n_dims, columns // n_dims]
        return jnp.concatenate([jnp.einsum("nir,nip->rp", gradients, picked), noise], axis=1)
    total = jnp.einsum("nir,nip->rp", gradients, moved.reshape(n, n_dims, -1))
    by_column = jnp.swapaxes(total.reshape(len(directions), n_dims, -1), 1, 2).reshape(len(directions), -1)
    return jnp.concatenate([by_column, noise], axis=1)


def _order(columns: Int[np.ndarray, " n_columns"], n_coefficients: int) -> Int[np.ndarray, " n_columns"]:
    """Where every column is once those of the noise stand after the others."""
    return np.argsort(np.argsort(columns >= n_coefficients, kind="stable"), kind="stable")


def _filled_up(columns: Int[np.ndarray, " n_columns"], n_all: int) -> Int[Array, " n_asked"] | None:
    """The columns and the first again and again up to a power of two, so that few sizes compile; None: rather all."""
    size = max(32, 1 << (max(len(columns), 1) - 1).bit_length())
    if size > n_all // 2:
        return None
    return jnp.asarray(np.concatenate([columns, np.zeros(size - len(columns), dtype=columns.dtype)]))
