"""Criteria by which a run picks the state it returns: fixed probes and fixed noise, so that two
drifts are compared on the same footing.

    held-out      c(g)^2 = mean over observed times and probes of r_n(cos(omega . x + b), g)^2, on
                  rows that neither player had
    chi-squared   c(g) = sum_n r_n' C_n^-1 r_n / number of residuals: 1 is a fit within the noise,
                  and much more a reason for another stage
"""

import abc
import math

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PRNGKeyArray

from itofit.adversarial.game import device_clouds, leg_noise
from itofit.adversarial.learners import AbstractLearner
from itofit.process.noise import AbstractDiffusion
from itofit.simulate.euler import euler_path
from itofit.simulate.legs import Leg
from itofit.snapshots.clouds import Snapshots
from itofit.weak.probes import CosineProbe, random_cosines
from itofit.weak.quadrature import trapezoid_weights
from itofit.weak.residual import Cloud, PathRead, weak_residual
from itofit.weak.ridge_probes import RidgeFamily, best_answer

_N_PROBES = 64
_N_DRAWS = 4


class AbstractCriterion(eqx.Module):
    """What a learner is judged by, and what a richer one must win."""

    @property
    @abc.abstractmethod
    def enough(self) -> float:
        """The value at which nothing is left to explain."""

    @abc.abstractmethod
    def price(self, gain: float) -> float:
        """What a richer drift must win."""

    @abc.abstractmethod
    def price_of_terms(self, n: Int[Array, "*members"]) -> Float[Array, "*members"]:
        """What so many terms fewer may cost."""

    @abc.abstractmethod
    def __call__(self, learner: AbstractLearner) -> Float[Array, ""]:
        """The smaller the better."""


class UnpricedCriterion(AbstractCriterion):
    """A criterion that puts no price on what is learned."""

    @property
    def enough(self) -> float:
        """There is no such value."""
        return 0.0

    def price(self, gain: float) -> float:
        """Anything counts."""
        del gain
        return 0.0

    def price_of_terms(self, n: Int[Array, "*members"]) -> Float[Array, "*members"]:
        """They may cost nothing."""
        return 0.0 * n


class HeldOutCriterion(UnpricedCriterion):
    """c(g), a function of the learner."""

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
        """The criterion on these rows; `scale` is the sd of the data, in which the cosines have
        their lengths.
        """
        k_noise, k_probes = jax.random.split(key)
        clouds = device_clouds(snapshots)
        noise = leg_noise(legs, clouds, k_noise)
        return cls(clouds, noise, fixed_cosines(scale, k_probes), diffusion, legs)

    def __call__(self, learner: AbstractLearner) -> Float[Array, ""]:
        process = learner.process(self.diffusion)
        squares = []
        for leg, noise in zip(self.legs, self.noise, strict=True):
            start = self.clouds[leg.start]
            steps = jnp.asarray(leg.steps, dtype=float)
            path = euler_path(process, start.points, steps, noise)
            for n, end in leg.targets:
                weights = trapezoid_weights(steps[:end])
                target = self.clouds[n]

                read = PathRead.of(process, path[: end + 1])

                def residual(probe, target=target, start=start, read=read, weights=weights):
                    return weak_residual(probe, target, start, read, weights)

                squares.append(jnp.mean(jax.lax.map(residual, self.cosines) ** 2))
        return jnp.sqrt(jnp.mean(jnp.stack(squares)))


def fixed_cosines(scale: Float[np.ndarray, " n_dims"], key: PRNGKeyArray) -> CosineProbe:
    """The cosines of a criterion, for data of these sds."""
    cosines = random_cosines(_N_PROBES, len(scale), key=key)
    return eqx.tree_at(lambda c: c.omega, cosines, cosines.omega / jnp.asarray(scale, dtype=float))


class ChiSquared(AbstractCriterion):
    """c(g) on all rows; every start point is simulated several times, and its mean value counts."""

    clouds: tuple[Cloud, ...]
    noise: tuple[Float[Array, "_ _ n_dims"], ...]
    families: tuple[RidgeFamily, ...]
    diffusion: AbstractDiffusion
    legs: tuple[Leg, ...] = eqx.field(static=True)

    @classmethod
    def on(
        cls,
        snapshots: Snapshots,
        families: tuple[RidgeFamily, ...],
        diffusion: AbstractDiffusion,
        legs: tuple[Leg, ...],
        *,
        key: PRNGKeyArray,
    ) -> "ChiSquared":
        """The criterion on these rows with these test functions, one family for every target."""
        clouds = device_clouds(snapshots)
        repeated = tuple(
            Cloud(jnp.tile(c.points, (_N_DRAWS, 1)), jnp.tile(c.weights, _N_DRAWS)) for c in clouds
        )
        return cls(clouds, leg_noise(legs, repeated, key), families, diffusion, legs)

    @property
    def enough(self) -> float:
        """Two standard deviations above what the noise alone gives."""
        return 1.0 + 2.0 * math.sqrt(2.0 / self.n_residuals)

    def price(self, gain: float) -> float:
        """`gain` units of chi-squared for each coordinate."""
        return gain * self.families[0].centre.shape[-1] / self.n_residuals

    def price_of_terms(self, n: Int[Array, "*members"]) -> Float[Array, "*members"]:
        """Two units of chi-squared each, as in Akaike's criterion."""
        return 2.0 * n / self.n_residuals

    @property
    def n_residuals(self) -> int:
        """Test functions of all targets together."""
        return sum(
            f.centre.shape[-1] + f.bowls.shape[-2] + f.omega.shape[-2] for f in self.families
        )

    def __call__(self, learner: AbstractLearner) -> Float[Array, ""]:
        process = learner.process(self.diffusion)
        total = jnp.zeros(())
        i = 0
        for leg, noise in zip(self.legs, self.noise, strict=True):
            start = self.clouds[leg.start]
            points = jnp.tile(start.points, (_N_DRAWS, 1))
            path = euler_path(process, points, jnp.asarray(leg.steps, dtype=float), noise)
            for n, end in leg.targets:
                propagated = jax.vmap(self.families[i])(path[end]).reshape(
                    _N_DRAWS, len(start.weights), -1
                )
                total += best_answer(
                    self.families[i], self.clouds[n], start, jnp.mean(propagated, axis=0)
                ).chi2
                i += 1
        return total / self.n_residuals
