"""Diffusions S(x): the random part of dX = g(X) dt + S(X) dW, with covariance a = S S'."""

import abc
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from itofit.errors import InputError


class AbstractDiffusion(eqx.Module):
    """The factor S(x) of the noise, one matrix per state."""

    @property
    def constant(self) -> bool:
        """Whether S is the same everywhere."""
        return False

    @property
    def n_parameters(self) -> int:
        """How many numbers of it are to be learned."""
        return 0

    def moved(self, v: Float[Array, " n_parameters"]) -> "AbstractDiffusion":
        """The same with its parameters moved by these, in their units."""
        return self

    @abc.abstractmethod
    def __call__(self, x: Float[Array, " n_dims"]) -> Float[Array, "n_dims n_dims"]:
        """S(x), in units of state per square root of time."""


class ConstantDiffusion(AbstractDiffusion):
    """The same known S everywhere."""

    factor: Float[Array, "n_dims n_dims"]

    @property
    def constant(self) -> bool:
        return True

    def __call__(self, x: Float[Array, " n_dims"]) -> Float[Array, "n_dims n_dims"]:
        return self.factor


class FunctionDiffusion(AbstractDiffusion):
    """S given as a function of one state that returns a matrix, or a vector for its diagonal."""

    function: Callable[[Float[Array, " n_dims"]], Float[Array, "..."]]

    def __call__(self, x: Float[Array, " n_dims"]) -> Float[Array, "n_dims n_dims"]:
        value = self.function(x)
        return jnp.diag(value) if value.ndim == 1 else value


class RescaledDiffusion(AbstractDiffusion):
    """S(x) = diag(sd) inner((x - mean) / sd): a diffusion in standardised units, seen in the user's."""

    inner: AbstractDiffusion
    mean: Float[Array, " n_dims"]
    sd: Float[Array, " n_dims"]

    def __call__(self, x: Float[Array, " n_dims"]) -> Float[Array, "n_dims n_dims"]:
        return self.sd[:, None] * self.inner((x - self.mean) / self.sd)


def diffusion_from_sigma(sigma: Any, n_dims: int) -> AbstractDiffusion:
    """A known diffusion: scalar sigma = sigma I, vector = diagonal, matrix = S, or a function of the state."""
    if callable(sigma):
        function: Callable[..., Any] = sigma
        return FunctionDiffusion(function)
    try:
        value = np.asarray(sigma, dtype=np.float64)
    except (TypeError, ValueError):
        raise InputError(
            expected="sigma as a number, a vector, a matrix or a function of the state",
            found=f"{sigma!r}",
            hint="sigma=1.0",
        ) from None
    if not np.all(np.isfinite(value)) or (value.ndim < 2 and np.any(value < 0)):
        raise InputError(
            expected="sigma finite and not negative",
            found=f"{sigma}",
            hint="0 for a deterministic flow, else a positive scale",
        )
    shapes: dict[int, Any] = {0: (), 1: (n_dims,), 2: (n_dims, n_dims)}
    if value.shape != shapes.get(value.ndim):
        raise InputError(
            expected=f"sigma as a number, {n_dims} numbers (diagonal) or a {n_dims} x {n_dims} matrix",
            found=f"shape {value.shape}",
            hint="give one value per coordinate of the snapshots",
        )
    factor = value if value.ndim == 2 else np.diag(np.broadcast_to(value, (n_dims,)))
    return ConstantDiffusion(jnp.asarray(factor))
