"""Probes: the paper's test functions f, each for one sample, with their generator."""

import abc
from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from itofit.process.network import TanhNetwork, xavier_network
from itofit.weak.generator import ito_push, second_order

Scalar = Float[Array, ""]
Point = Float[Array, " n_dims"]


class AbstractProbe(eqx.Module):
    """A smooth function f of one state."""

    @abc.abstractmethod
    def __call__(self, x: Point) -> Scalar:
        """f(x)."""

    @abc.abstractmethod
    def generator(
        self, x: Point, drift: Point, dispersion: Float[Array, "n_dims n_noise"]
    ) -> Scalar:
        """L f(x) for a process with this drift and dispersion at x."""


class NetworkProbe(AbstractProbe):
    """f(x) = network(x), a tanh network with one output."""

    network: TanhNetwork

    def __call__(self, x: Point) -> Scalar:
        return self.network(x)[0]

    def generator(
        self, x: Point, drift: Point, dispersion: Float[Array, "n_dims n_noise"]
    ) -> Scalar:
        return ito_push(self.network, x, drift, dispersion).drift[0]


class CosineProbe(AbstractProbe):
    """f(x) = cos(omega . x + phase), with L f in closed form."""

    omega: Point
    phase: Scalar

    def __call__(self, x: Point) -> Scalar:
        return jnp.cos(self.omega @ x + self.phase)

    def generator(
        self, x: Point, drift: Point, dispersion: Float[Array, "n_dims n_noise"]
    ) -> Scalar:
        angle = self.omega @ x + self.phase
        curvature = jnp.sum((self.omega @ dispersion) ** 2)
        return -jnp.sin(angle) * (self.omega @ drift) - 0.5 * jnp.cos(angle) * curvature


class FunctionProbe(AbstractProbe):
    """f given as a function of one state."""

    function: Callable[[Point], Scalar]

    def __call__(self, x: Point) -> Scalar:
        return self.function(x)

    def generator(
        self, x: Point, drift: Point, dispersion: Float[Array, "n_dims n_noise"]
    ) -> Scalar:
        _, generator = second_order(self.function, x, drift, dispersion)
        return generator


class SpectralNetwork(eqx.Module):
    """The weights of a probe before normalisation, and the directions its layers stretch most.

    `probe()` divides every weight matrix by its largest singular value, so that |grad f| <= 1 (tanh
    is 1-Lipschitz). That value is u' W v for the singular vectors u, v, which power iteration
    follows as the weights move: call `sharpened` after every update. It lags behind weights that
    are trained, and the bound holds only as far as it has converged.
    """

    raw: TanhNetwork
    directions: tuple[Float[Array, " _"], ...]

    @classmethod
    def create(cls, n_dims: int, *, width: int, depth: int, key: PRNGKeyArray) -> "SpectralNetwork":
        """Xavier weights, `depth` hidden layers of `width` units, one output."""
        k_weights, k_directions = jax.random.split(key)
        raw = xavier_network([n_dims, *[width] * depth, 1], key=k_weights)
        keys = jax.random.split(k_directions, len(raw.weights))
        directions = [
            jax.random.normal(k, (w.shape[1],)) for k, w in zip(keys, raw.weights, strict=True)
        ]
        return cls(raw, tuple(directions)).sharpened(n_iterations=30)

    def sharpened(self, n_iterations: int = 1) -> "SpectralNetwork":
        """Power iterations v <- W'W v / |W'W v| on every layer."""
        directions = self.directions
        for _ in range(n_iterations):
            directions = [
                _unit(w.T @ (w @ v)) for w, v in zip(self.raw.weights, directions, strict=True)
            ]
        return SpectralNetwork(self.raw, tuple(jax.lax.stop_gradient(v) for v in directions))

    def norms(self) -> list[Scalar]:
        """The product u' W v of every layer, its largest singular value once v has converged."""
        norms = []
        for w, direction in zip(self.raw.weights, self.directions, strict=True):
            v = jax.lax.stop_gradient(direction)
            u = jax.lax.stop_gradient(_unit(w @ v))
            norms.append(u @ (w @ v))
        return norms

    def probe(self) -> NetworkProbe:
        """The normalised probe."""
        weights = [w / norm for w, norm in zip(self.raw.weights, self.norms(), strict=True)]
        return NetworkProbe(TanhNetwork(tuple(weights), self.raw.biases))


def _unit(v: Float[Array, " n"]) -> Float[Array, " n"]:
    return v / (jnp.linalg.norm(v) + 1e-12)


def random_cosines(n_probes: int, n_dims: int, *, key: PRNGKeyArray) -> CosineProbe:
    """Stacked cosines in isotropic directions, 1 / |omega| log-uniform between 0.4 and 3."""
    k_direction, k_length, k_phase = jax.random.split(key, 3)
    direction = jax.random.normal(k_direction, (n_probes, n_dims))
    direction = direction / jnp.linalg.norm(direction, axis=1, keepdims=True)
    low = jnp.log(0.4)
    high = jnp.log(3.0)
    length = jnp.exp(jax.random.uniform(k_length, (n_probes, 1), minval=low, maxval=high))
    phase = jax.random.uniform(k_phase, (n_probes,), maxval=2.0 * jnp.pi)
    return jax.vmap(CosineProbe)(direction / length, phase)
