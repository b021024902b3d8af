"""Drifts g(x): the deterministic part of dX = g(X) dt + S(X) dW, each for one sample."""

import abc
from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from itofit.process.features import AbstractFeatures
from itofit.process.network import TanhNetwork, xavier_network


class AbstractDrift(eqx.Module):
    """A vector field on the state space."""

    @abc.abstractmethod
    def __call__(self, x: Float[Array, " n_dims"]) -> Float[Array, " n_dims"]:
        """g(x), in units of state per unit of time."""


class NetworkDrift(AbstractDrift):
    """g(x) = c (A x + b + network(x)): a tanh network with an affine skip, in units of speed c."""

    network: TanhNetwork
    matrix: Float[Array, "n_dims n_dims"]
    offset: Float[Array, " n_dims"]
    speed: float = eqx.field(static=True)

    def __call__(self, x: Float[Array, " n_dims"]) -> Float[Array, " n_dims"]:
        return self.speed * (self.matrix @ x + self.offset + self.network(x))

    @classmethod
    def create(
        cls, n_dims: int, *, width: int, depth: int, speed: float, last_gain: float, key: PRNGKeyArray
    ) -> "NetworkDrift":
        """A fresh drift: `depth` hidden layers of `width` units, the skip at zero."""
        network = xavier_network([n_dims, *[width] * depth, n_dims], key=key, last_gain=last_gain)
        return cls(network, jnp.zeros((n_dims, n_dims)), jnp.zeros(n_dims), float(speed))


class PlainNetworkDrift(AbstractDrift):
    """g(x) = network(x): what the paper trains, in raw units and without a skip."""

    network: TanhNetwork

    def __call__(self, x: Float[Array, " n_dims"]) -> Float[Array, " n_dims"]:
        return self.network(x)


class GradientDrift(AbstractDrift):
    """g(x) = -grad potential(x): a drift without rotation."""

    potential: Callable[[Float[Array, " n_dims"]], Float[Array, ""]]

    def __call__(self, x: Float[Array, " n_dims"]) -> Float[Array, " n_dims"]:
        return -jax.grad(self.potential)(x)


class FeatureDrift(AbstractDrift):
    """g(x) = W' phi(x): linear in the unknown coefficients W of a dictionary phi."""

    features: AbstractFeatures | Callable[[Float[Array, " n_dims"]], Float[Array, " n_features"]]
    coefficients: Float[Array, "n_features n_dims"]

    def __call__(self, x: Float[Array, " n_dims"]) -> Float[Array, " n_dims"]:
        return self.features(x) @ self.coefficients


class FunctionDrift(AbstractDrift):
    """g given as a function of one state."""

    function: Callable[[Float[Array, " n_dims"]], Float[Array, " n_dims"]]

    def __call__(self, x: Float[Array, " n_dims"]) -> Float[Array, " n_dims"]:
        return self.function(x)


class RescaledDrift(AbstractDrift):
    """g(x) = sd * inner((x - mean) / sd): a drift learned in standardised units, seen in the user's."""

    inner: AbstractDrift
    mean: Float[Array, " n_dims"]
    sd: Float[Array, " n_dims"]

    def __call__(self, x: Float[Array, " n_dims"]) -> Float[Array, " n_dims"]:
        return self.sd * self.inner((x - self.mean) / self.sd)
