"""Diffusions S(x): the random part of dX = g(X) dt + S(X) dW, with covariance a = S S'."""

import abc
from collections.abc import Callable

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from itofit.process.noise.forms import AbstractForm
from itofit.snapshots.scaling import Scaling


class AbstractDiffusion(eqx.Module):
    """The factor S(x) of the noise, one matrix per state."""

    @property
    @abc.abstractmethod
    def constant(self) -> bool:
        """Whether S is known to be the same everywhere, so that its slope need not be computed."""

    @property
    @abc.abstractmethod
    def n_parameters(self) -> int:
        """How many numbers of it are to be learned."""

    @abc.abstractmethod
    def moved(self, v: Float[Array, " n_parameters"]) -> "AbstractDiffusion":
        """The same with its parameters moved by these, in their units."""

    @abc.abstractmethod
    def __call__(self, x: Float[Array, " n_dims"]) -> Float[Array, "n_dims n_dims"]:
        """S(x), in units of state per square root of time."""


class KnownDiffusion(AbstractDiffusion):
    """A diffusion of which nothing is to be learned."""

    @property
    def n_parameters(self) -> int:
        return 0

    def moved(self, v: Float[Array, " n_parameters"]) -> "KnownDiffusion":
        del v
        return self


class ConstantDiffusion(KnownDiffusion):
    """The same known S everywhere."""

    factor: Float[Array, "n_dims n_dims"]

    @property
    def constant(self) -> bool:
        return True

    def __call__(self, x: Float[Array, " n_dims"]) -> Float[Array, "n_dims n_dims"]:
        return self.factor


class FunctionDiffusion(KnownDiffusion):
    """S given as a function of one state that returns a matrix, or a vector for its diagonal."""

    function: Callable[[Float[Array, " n_dims"]], Float[Array, "..."]]

    @property
    def constant(self) -> bool:
        return False

    def __call__(self, x: Float[Array, " n_dims"]) -> Float[Array, "n_dims n_dims"]:
        value = self.function(x)
        return jnp.diag(value) if value.ndim == 1 else value


class RescaledDiffusion(KnownDiffusion):
    """S(x) = diag(sd) inner((x - mean) / sd): the noise of mean + sd Z, given that of Z."""

    inner: AbstractDiffusion
    mean: Float[Array, " n_dims"]
    sd: Float[Array, " n_dims"]

    @property
    def constant(self) -> bool:
        return False

    def __call__(self, x: Float[Array, " n_dims"]) -> Float[Array, "n_dims n_dims"]:
        return self.sd[:, None] * self.inner((x - self.mean) / self.sd)


class ScaledDiffusion(KnownDiffusion):
    """A multiple of another diffusion."""

    inner: AbstractDiffusion
    factor: float = eqx.field(static=True)

    @property
    def constant(self) -> bool:
        return False

    def __call__(self, x: Float[Array, " n_dims"]) -> Float[Array, "n_dims n_dims"]:
        return self.factor * self.inner(x)


class LearnedDiffusion(AbstractDiffusion):
    """S(z; theta) of a parametric form at some theta, in standardised units."""

    theta: Float[Array, " n_parameters"]
    form: AbstractForm

    @property
    def constant(self) -> bool:
        return self.form.constant

    @property
    def n_parameters(self) -> int:
        return len(self.theta)

    def moved(self, v: Float[Array, " n_parameters"]) -> "LearnedDiffusion":
        unit = jnp.asarray(self.form.unit(), dtype=self.theta.dtype)
        return LearnedDiffusion(self.theta + unit * v, self.form)

    def multiplied(
        self, axes: Bool[np.ndarray, " n_dims"], factor: float | np.ndarray
    ) -> "LearnedDiffusion":
        """The same with the variances of these coordinates multiplied.

        Of a form whose first parameters are the log scales of its coordinates, or of one scale.
        """
        count = min(self.n_parameters, len(axes))
        shift = np.zeros(self.n_parameters)
        shift[:count] = np.where(axes[:count], 0.5 * np.log(factor), 0.0)
        return LearnedDiffusion(self.theta + jnp.asarray(shift, self.theta.dtype), self.form)

    def __call__(self, x: Float[Array, " n_dims"]) -> Float[Array, "n_dims n_dims"]:
        return self.form(self.theta, x)


def rescaled_diffusion(diffusion: AbstractDiffusion, scaling: Scaling) -> AbstractDiffusion:
    """The noise of X = mean + sd Z, given that of the standardised Z."""
    mean = jnp.asarray(scaling.mean)
    sd = jnp.asarray(scaling.sd)
    if diffusion.constant:
        return ConstantDiffusion(sd[:, None] * diffusion(jnp.zeros_like(mean)))
    return RescaledDiffusion(diffusion, mean, sd)
