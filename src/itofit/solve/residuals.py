"""Residuals of many probes at once, E f(simulated) - E f(seen), flight by flight, and their Jacobian."""

import abc
from dataclasses import dataclass, replace

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from itofit.process.diffusion import AbstractDiffusion
from itofit.process.drift import FeatureDrift
from itofit.process.features import Dictionary
from itofit.process.ito import ItoProcess
from itofit.snapshots.clouds import Snapshots
from itofit.solve.flights import Flight, on_cores
from itofit.solve.whitening import Spread, Whitening
from itofit.weak.fixed_probes import AbstractProbes


@dataclass(frozen=True, eq=False)
class Residual(abc.ABC):
    """y(W) of one phase and its Jacobian; coefficients are `(n_features, n_dims)` arrays, flattened.

    - `ends`: the snapshots (start, target) of every flight. `probes`: what is read at its target.
    - `speed`: the drift is speed * W' phi(x).
    """

    snapshots: Snapshots
    diffusion: AbstractDiffusion
    ends: tuple[tuple[int, int], ...]
    probes: tuple[AbstractProbes, ...]
    dictionary: Dictionary
    speed: float

    @abc.abstractmethod
    def __call__(self, v: np.ndarray) -> list[np.ndarray]:
        """The residual r_n of every flight: what the drift makes of the start minus what is seen."""

    @abc.abstractmethod
    def spreads(self, v: np.ndarray | None) -> list[Spread]:
        """What the covariance is made of; with None, before anything can be simulated."""

    @abc.abstractmethod
    def jacobian(self, v: np.ndarray, whitening: Whitening) -> Float[np.ndarray, "n_rows n_coefficients"]:
        """The Jacobian dy / dv."""

    def only(self, marks: Bool[np.ndarray, " n_groups"]) -> "Residual":
        """The same with the features of the marked groups alone."""
        return replace(self, dictionary=self.dictionary.only(marks))

    def process(self, v: np.ndarray) -> ItoProcess:
        """The process with these coefficients."""
        return ItoProcess(FeatureDrift(self.dictionary.features, self._coefficients(v)), self.diffusion)

    def _coefficients(self, v: np.ndarray) -> Float[Array, "n_features n_dims"]:
        return jnp.asarray(self.speed * v.reshape(-1, self.snapshots.n_dims), dtype=float)


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
    def between(cls, snapshots, diffusion, flights, probes, dictionary, speed, n_jacobian) -> "Simulated":
        """Read the probes on the target of every flight."""
        ends = tuple((flight.start, flight.target) for flight in flights)
        seen = tuple(
            snapshots.weights[n] @ probe_values(p, snapshots.clouds[n]) for p, (_, n) in zip(probes, ends, strict=True)
        )
        return cls(snapshots, diffusion, ends, probes, dictionary, speed, flights, seen, n_jacobian)

    def __call__(self, v: np.ndarray) -> list[np.ndarray]:
        process = self.process(v)

        def work(flight, probes, start, noise, weights):
            return _mean_of(probes, flight.end(process, start, noise), weights)

        found = self._by_flight(work, [flight.chains() for flight in self.flights])
        return [np.sum(pieces, axis=0) - mean for pieces, mean in zip(found, self.seen, strict=True)]

    def spreads(self, v: np.ndarray | None) -> list[Spread]:
        flown: list[np.ndarray | None] = [None] * len(self.flights)
        if v is not None:
            process = self.process(v)

            def work(flight, probes, start, noise, weights):
                return _values_of(probes, flight.end(process, start, noise))

            found = self._by_flight(work, [flight.chains() for flight in self.flights])
            flown = [_mean_of_draws(flight, pieces) for flight, pieces in zip(self.flights, found, strict=True)]
        weights, clouds = self.snapshots.weights, self.snapshots.clouds
        return [
            Spread(f.start, f.target, f.weights, weights[f.target], values, probe_values(probes, clouds[f.target]))
            for f, values, probes in zip(self.flights, flown, self.probes, strict=True)
        ]

    def jacobian(self, v: np.ndarray, whitening: Whitening) -> Float[np.ndarray, "n_rows n_coefficients"]:
        features, coefficients = self.dictionary.features, self._coefficients(v)
        directions = {f.target: jnp.asarray(V, dtype=float) for f, V in zip(self.flights, whitening.bases, strict=True)}

        def work(flight, probes, start, noise, weights):
            end, moved = flight.sensitivity(features, coefficients, self.diffusion, start, noise)
            return _slopes(probes, directions[flight.target], end, moved, weights)

        parts = [flight.parts(self.n_jacobian, self.dictionary.n_features) for flight in self.flights]
        rows = [np.sum(pieces, axis=0) for pieces in self._by_flight(work, parts)]
        return whitening.finish([self.speed * row.reshape(len(row), -1) for row in rows])

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


def probe_values(probes: AbstractProbes, points: np.ndarray) -> Float[np.ndarray, "n n_probes"]:
    """f_m at every row, in chunks of one size."""
    size = 1024
    found = []
    for at in range(0, len(points), size):
        chunk = np.zeros((size, points.shape[1]), dtype=np.float32)
        rows = points[at : at + size]
        chunk[: len(rows)] = rows
        found.append(np.asarray(_values_of(probes, jnp.asarray(chunk)))[: len(rows)])
    return np.concatenate(found).astype(np.float64)


@eqx.filter_jit
def _values_of(probes: AbstractProbes, points: Float[Array, "n n_dims"]) -> Float[Array, "n n_probes"]:
    return jax.vmap(probes)(points)


@eqx.filter_jit
def _mean_of(probes: AbstractProbes, points: Float[Array, "n n_dims"], weights: Float[Array, " n"]) -> Array:
    # A point that counts nothing may be anything.
    values = jnp.where(weights[:, None] > 0, jax.vmap(probes)(points), 0.0)
    return weights @ values


@eqx.filter_jit
def _slopes(probes: AbstractProbes, directions, ends, moved, weights) -> Float[Array, "n_rows n_features n_dims"]:
    """sum_i w_i V grad f(x_i)' dx_i / dW, ordered feature by feature, output by output."""
    n, n_dims = ends.shape
    gradients = jnp.einsum("rm,nmi->nir", directions, jax.vmap(jax.jacfwd(probes))(ends))
    total = jnp.einsum("nir,nip->rp", gradients * weights[:, None, None], moved.reshape(n, n_dims, -1))
    return jnp.swapaxes(total.reshape(len(directions), n_dims, -1), 1, 2)
