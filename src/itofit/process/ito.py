"""The Itô process dX = g(X) dt + S(X) dW, whose drift may change with time: g(X, t)."""

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from itofit.process.diffusion import AbstractDiffusion, ConstantDiffusion, RescaledDiffusion
from itofit.process.drift import AbstractDrift, RescaledDrift
from itofit.snapshots.scaling import Scaling


class ItoProcess(eqx.Module):
    """A drift and a diffusion, joined."""

    drift: AbstractDrift
    diffusion: AbstractDiffusion

    def at(self, time: Float[Array, ""] | float) -> "ItoProcess":
        """The process as it is at this time."""
        return ItoProcess(self.drift.at(time), self.diffusion)

    def euler_step(
        self, x: Float[Array, " n_dims"], dt: Float[Array, ""] | float, noise: Float[Array, " n_dims"]
    ) -> Float[Array, " n_dims"]:
        """One step of Euler-Maruyama: x + g(x) dt + S(x) sqrt(dt) z with z standard normal."""
        return x + self.drift(x) * dt + self.diffusion(x) @ noise * jnp.sqrt(dt)

    def heun_step(
        self, x: Float[Array, " n_dims"], dt: Float[Array, ""] | float, noise: Float[Array, " n_dims"]
    ) -> Float[Array, " n_dims"]:
        """A step with the drift averaged over both ends: of second weak order where S is constant."""
        drift, kick = self.drift(x), self.diffusion(x) @ noise * jnp.sqrt(dt)
        return x + 0.5 * dt * (drift + self.drift(x + drift * dt + kick)) + kick


def rescaled(process: ItoProcess, scaling: Scaling) -> ItoProcess:
    """The process X = mean + sd Z, given the process of the standardised Z."""
    mean, sd = jnp.asarray(scaling.mean), jnp.asarray(scaling.sd)
    diffusion = process.diffusion
    moved = (
        ConstantDiffusion(sd[:, None] * diffusion(jnp.zeros_like(mean)))
        if diffusion.constant
        else RescaledDiffusion(diffusion, mean, sd)
    )
    return ItoProcess(RescaledDrift(process.drift, mean, sd), moved)
