"""The Itô process dX = g(X) dt + S(X) dW, whose drift may change with time: g(X, t)."""

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from itofit.process.drift import AbstractDrift, RescaledDrift
from itofit.process.noise import AbstractDiffusion, rescaled_diffusion
from itofit.snapshots.scaling import Scaling


class ItoProcess(eqx.Module):
    """A drift and a diffusion, joined: dX = g(X) dt + S(X) dW.

    Parameters
    ----------
    drift : AbstractDrift
        g, a function of one state, in units of state per unit of time.
    diffusion : AbstractDiffusion
        S, a function of one state that returns a matrix, in units of state per square root of time.

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> from itofit import ItoProcess
    >>> from itofit.process import FunctionDrift, diffusion_from_sigma
    >>> process = ItoProcess(FunctionDrift(lambda x: -x), diffusion_from_sigma(0.5, 2))
    >>> x = process.euler_step(jnp.array([1.0, 2.0]), 0.25, jnp.array([1.0, 0.0]))
    >>> [float(value) for value in x]
    [1.0, 1.5]
    """

    drift: AbstractDrift
    diffusion: AbstractDiffusion

    def at(self, time: Float[Array, ""] | float) -> "ItoProcess":
        """The process as it is at this time.

        Parameters
        ----------
        time : float
            In the units of the snapshots.

        Returns
        -------
        ItoProcess
            The same, with a drift that is a function of the state alone.
        """
        return ItoProcess(self.drift.at(time), self.diffusion)

    def euler_step(
        self,
        x: Float[Array, " n_dims"],
        dt: Float[Array, ""] | float,
        noise: Float[Array, " n_dims"],
    ) -> Float[Array, " n_dims"]:
        """One step of Euler-Maruyama: x + g(x) dt + S(x) sqrt(dt) z.

        Parameters
        ----------
        x : array of shape (n_dims,)
            The state before the step.
        dt : float
            Length of the step.
        noise : array of shape (n_dims,)
            z, standard normal.

        Returns
        -------
        array of shape (n_dims,)
            The state after the step.
        """
        return x + self.drift(x) * dt + self.diffusion(x) @ noise * jnp.sqrt(dt)

    def heun_step(
        self,
        x: Float[Array, " n_dims"],
        dt: Float[Array, ""] | float,
        noise: Float[Array, " n_dims"],
    ) -> Float[Array, " n_dims"]:
        """A step with the drift averaged over both ends: of second weak order where S is constant.

        Parameters
        ----------
        x : array of shape (n_dims,)
            The state before the step.
        dt : float
            Length of the step.
        noise : array of shape (n_dims,)
            z, standard normal.

        Returns
        -------
        array of shape (n_dims,)
            The state after the step.
        """
        drift = self.drift(x)
        kick = self.diffusion(x) @ noise * jnp.sqrt(dt)
        return x + 0.5 * dt * (drift + self.drift(x + drift * dt + kick)) + kick


def rescaled(process: ItoProcess, scaling: Scaling) -> ItoProcess:
    """The process X = mean + sd Z, given the process of the standardised Z."""
    mean = jnp.asarray(scaling.mean)
    sd = jnp.asarray(scaling.sd)
    diffusion = rescaled_diffusion(process.diffusion, scaling)
    return ItoProcess(RescaledDrift(process.drift, mean, sd), diffusion)
