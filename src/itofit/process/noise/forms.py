"""Forms of a diffusion to be learned: S(z; theta), of which a = S S' is what the data can say.

    scalar      sigma I                     multiplicative    diag(sigma_i x_i)
    diagonal    diag(sigma_i)               network           diag(sigma_i exp(net_i(x)))
    full        a lower triangle            network-full      a lower triangle moved by a network

All scales are exp(theta), so that none is ever negative. Forms are written in standardised units z
= (x - mean) / sd, in which S_z = diag(1 / sd) S(x).
"""

import abc
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

# Hidden units of a network.
_WIDTH = 16
# Units of a log scale, of an entry beside the diagonal, and of the weights of a network. A fixed
# weak prior of the moments solver makes each uncertain by 30 of its units.
LOG_UNIT = 0.1
_ENTRY_UNIT = 0.03
_WEIGHT_UNIT = 0.01


class AbstractForm(eqx.Module):
    """S(z; theta) in standardised units."""

    @property
    @abc.abstractmethod
    def constant(self) -> bool:
        """Whether S is the same everywhere."""

    @abc.abstractmethod
    def unit(self) -> Float[np.ndarray, " n_parameters"]:
        """By how much a parameter is likely to move, of order a thirtieth of what is not known of
        it.
        """

    @abc.abstractmethod
    def __call__(
        self, theta: Float[Array, " n_parameters"], z: Float[Array, " n_dims"]
    ) -> Float[Array, "d d"]:
        """S."""


class ScalarForm(AbstractForm):
    """The same sigma for all coordinates, in the user's units."""

    sd: Float[Array, " n_dims"]

    @property
    def constant(self) -> bool:
        return True

    def unit(self):
        return np.asarray([LOG_UNIT])

    def __call__(self, theta, z):
        return jnp.diag(jnp.exp(theta[0]) / self.sd)


class DiagonalForm(AbstractForm):
    """One sigma a coordinate."""

    n_dims: int = eqx.field(static=True)

    @property
    def constant(self) -> bool:
        return True

    def unit(self):
        return np.full(self.n_dims, LOG_UNIT)

    def __call__(self, theta, z):
        return jnp.diag(jnp.exp(theta))


class FullForm(AbstractForm):
    """diag(exp theta_i) (I + N) with N below the diagonal."""

    n_dims: int = eqx.field(static=True)

    @property
    def constant(self) -> bool:
        return True

    def unit(self):
        return _triangle_units(self.n_dims)

    def __call__(self, theta, z):
        return _triangle(theta, self.n_dims)


class MultiplicativeForm(AbstractForm):
    """diag(sigma_i x_i), in the user's units."""

    mean: Float[Array, " n_dims"]
    sd: Float[Array, " n_dims"]

    @property
    def constant(self) -> bool:
        return False

    def unit(self):
        return np.full(len(self.sd), LOG_UNIT)

    def __call__(self, theta, z):
        return jnp.diag(jnp.exp(theta) * (self.mean / self.sd + z))


class NetworkForm(AbstractForm):
    """The entries of a diagonal or of a triangle, moved by a network of one tanh layer."""

    n_dims: int = eqx.field(static=True)
    full: bool = eqx.field(static=True)

    @property
    def constant(self) -> bool:
        return False

    @property
    def n_entries(self) -> int:
        """Entries of S that the network moves."""
        return self.n_dims * (self.n_dims + 1) // 2 if self.full else self.n_dims

    def unit(self):
        entries = _triangle_units(self.n_dims) if self.full else np.full(self.n_dims, LOG_UNIT)
        n_weights = _WIDTH * (self.n_dims + 1 + self.n_entries)
        return np.concatenate([entries, np.full(n_weights, _WEIGHT_UNIT)])

    def start(self, entries: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """Theta of a network whose hidden units are drawn and whose output is zero."""
        hidden = rng.standard_normal(_WIDTH * (self.n_dims + 1))
        return np.concatenate([entries, hidden, np.zeros(_WIDTH * self.n_entries)])

    def __call__(self, theta, z):
        ends = np.cumsum([self.n_entries, _WIDTH * self.n_dims, _WIDTH])
        resting, weight, bias, out = jnp.split(theta, ends)
        hidden = jnp.tanh(weight.reshape(_WIDTH, self.n_dims) @ z + bias)
        entries = resting + out.reshape(self.n_entries, _WIDTH) @ hidden
        return _triangle(entries, self.n_dims) if self.full else jnp.diag(jnp.exp(entries))


class FunctionForm(AbstractForm):
    """The user's own function of a state and of parameters, in the user's units."""

    function: Callable[[Any, Any], Any]
    mean: Float[Array, " n_dims"]
    sd: Float[Array, " n_dims"]
    size: tuple[float, ...] = eqx.field(static=True)

    @property
    def constant(self) -> bool:
        return False

    def unit(self):
        return LOG_UNIT * np.asarray(self.size)

    def __call__(self, theta, z):
        S = self.function(self.mean + self.sd * z, theta)
        S = jnp.diag(S) if S.ndim == 1 else S
        return S / self.sd[:, None]


def _triangle_units(n_dims: int) -> np.ndarray:
    n_below = n_dims * (n_dims - 1) // 2
    return np.append(np.full(n_dims, LOG_UNIT), np.full(n_below, _ENTRY_UNIT))


def _triangle(theta: Float[Array, " n"], n_dims: int) -> Float[Array, "n_dims n_dims"]:
    below = jnp.eye(n_dims).at[np.tril_indices(n_dims, -1)].set(theta[n_dims:])
    return jnp.exp(theta[:n_dims])[:, None] * below
