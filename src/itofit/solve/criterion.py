"""The held-out criterion: root mean square weak residual of fixed cosine probes on rows no player has seen.

    c(g)^2 = mean over observed times and probes of r_n(cos(omega . x + b), g)^2

Noise and probes are fixed, so two drifts are compared on the same footing. It picks the state that is
kept and says when a run has stopped improving.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from itofit.process.diffusion import AbstractDiffusion
from itofit.process.drift import AbstractDrift
from itofit.process.ito import ItoProcess
from itofit.simulate.euler import euler_path
from itofit.snapshots.clouds import Snapshots
from itofit.solve.game import Leg, device_clouds, leg_noise
from itofit.weak.probes import CosineProbe, random_cosines
from itofit.weak.quadrature import trapezoid_weights
from itofit.weak.residual import Cloud, PathRead, weak_residual

_N_PROBES = 64


class HeldOutCriterion(eqx.Module):
    """c(g), a function of the drift."""

    clouds: tuple[Cloud, ...]
    noise: tuple[Float[Array, "_ _ n_dims"], ...]
    cosines: CosineProbe
    diffusion: AbstractDiffusion
    legs: tuple[Leg, ...] = eqx.field(static=True)

    @classmethod
    def on(
        cls,
        snapshots: Snapshots,
        scale: Float[np.ndarray, " n_dims"],
        diffusion: AbstractDiffusion,
        legs: tuple[Leg, ...],
        *,
        key: PRNGKeyArray,
    ) -> "HeldOutCriterion":
        """The criterion on these rows; `scale` is the sd of the data, in which the cosines have their lengths."""
        k_noise, k_probes = jax.random.split(key)
        clouds = device_clouds(snapshots)
        cosines = random_cosines(_N_PROBES, snapshots.n_dims, key=k_probes)
        cosines = eqx.tree_at(lambda c: c.omega, cosines, cosines.omega / jnp.asarray(scale, dtype=float))
        return cls(clouds, leg_noise(legs, clouds, k_noise), cosines, diffusion, legs)

    def __call__(self, drift: AbstractDrift) -> Float[Array, ""]:
        process = ItoProcess(drift, self.diffusion)
        squares = []
        for leg, noise in zip(self.legs, self.noise, strict=True):
            start, steps = self.clouds[leg.start], jnp.asarray(leg.steps, dtype=float)
            path = euler_path(process, start.points, steps, noise)
            for n, end in leg.targets:
                weights, target = trapezoid_weights(steps[:end]), self.clouds[n]

                read = PathRead.of(process, path[: end + 1])

                def residual(probe, target=target, start=start, read=read, weights=weights):
                    return weak_residual(probe, target, start, read, weights)

                squares.append(jnp.mean(jax.lax.map(residual, self.cosines) ** 2))
        return jnp.sqrt(jnp.mean(jnp.stack(squares)))
