"""What the potential recurrent network minimises (Hashimoto, Gifford and Jaakkola, ICML 2016):

    (1 - tau) sum over intervals of transport(chain, snapshot) - tau E[log p(last snapshot)]

The chain is an Euler chain of dX = -grad Psi(X) dt + sigma dW with

    Psi(x) = c sum_k h_k softplus(w_k . x + b_k),   p proportional to exp(-2 Psi / sigma^2)

and the gradient of the log likelihood under the stationary law p is that of contrastive divergence.
"""

from dataclasses import dataclass
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PRNGKeyArray

from itofit.adversarial.game import device_clouds, leg_noise, minibatch
from itofit.process.drift import AutonomousDrift
from itofit.process.ito import ItoProcess
from itofit.process.noise import ConstantDiffusion
from itofit.simulate.euler import euler_path, euler_push
from itofit.simulate.legs import Leg
from itofit.snapshots.clouds import Snapshots
from itofit.transport.sinkhorn import kernel_plan, sinkhorn_divergence, squared_distances
from itofit.weak.residual import Cloud

# The published code: exp(-10 M), 10 alternations, halved up to 10 times where the kernel is not
# finite.
_SHARPNESS = 10.0
_ALTERNATIONS = 10
_HALVINGS = 10
# Steps by which the last snapshot's points are pushed to stand for the model's own law, and their
# length where the pace of that push is ours to choose (in units of the cloud's variance over half
# of sigma squared).
_BURN_IN = 50
_PUSH = 0.02


@dataclass(frozen=True)
class Settings:
    """The choices of a fit.

    `one_by_one` maps over members and rates in turn: a CPU does not thread small batched products.
    """

    faithful: bool
    learn_sigma: bool
    tau: float
    rate: float
    n_pretrain: int
    n_short: int
    n_iter: int
    batch_size: int
    n_points: int
    one_by_one: bool

    @property
    def decay(self) -> float:
        """The a of the published Adagrad."""
        return 0.01 / self.n_points

    @property
    def draw_size(self) -> int | None:
        """Points of each snapshot an iteration; None takes all."""
        return None if self.faithful else self.batch_size

    @property
    def scoring_size(self) -> int | None:
        """Points of each snapshot that compare two models; None takes all."""
        return None if self.faithful else 4 * self.batch_size

    def rates(self, n: int) -> Float[np.ndarray, " n"]:
        """A ladder of step sizes, each half of the one before."""
        return self.rate * 0.5 ** np.arange(n)


class RampPotential(AutonomousDrift):
    """-grad Psi, a layer of sigmoids with the same weights on the way in and out."""

    weights: Float[Array, "n_ramps n_dims"]
    biases: Float[Array, " n_ramps"]
    heights: Float[Array, " n_ramps"]
    speed: Float[Array, ""]

    @classmethod
    def create(
        cls, snapshots: Snapshots, n_ramps: int, speed: float, faithful: bool, key: PRNGKeyArray
    ) -> "RampPotential":
        """A flat potential: ramps of random slopes at height 0.

        They begin near random points of the data; in the published code all near the mean of the
        first snapshot.
        """
        k_slope, k_offset, k_point = jax.random.split(key, 3)
        weights = jax.random.normal(k_slope, (n_ramps, snapshots.n_dims))
        if faithful:
            near = jnp.asarray(snapshots.weights[0] @ snapshots.clouds[0], dtype=float)
        else:
            near = _random_points(snapshots, n_ramps, k_point)
        offsets = jax.random.uniform(k_offset, (n_ramps,), minval=-1.0, maxval=1.0)
        biases = -jnp.sum(weights * near, axis=1) + offsets
        return cls(weights, biases, jnp.zeros(n_ramps), jnp.asarray(speed, dtype=float))

    def potential(self, x: Float[Array, " n_dims"]) -> Float[Array, ""]:
        """Psi(x)."""
        return self.speed * (self.heights @ jax.nn.softplus(self.weights @ x + self.biases))

    def __call__(self, x: Float[Array, " n_dims"]) -> Float[Array, " n_dims"]:
        slopes = self.heights * jax.nn.sigmoid(self.weights @ x + self.biases)
        return -self.speed * (self.weights.T @ slopes)


class PotentialModel(eqx.Module):
    """What is learned: the potential, and the noise where it is not given."""

    potential: RampPotential
    log_sigma: Float[Array, "*members"]

    @property
    def sigma(self) -> Float[Array, "*members"]:
        """The noise."""
        return jnp.exp(self.log_sigma)

    def process(self) -> ItoProcess:
        """The process dX = -grad Psi dt + sigma dW."""
        factor = self.sigma * jnp.eye(self.potential.weights.shape[-1])
        return ItoProcess(self.potential, ConstantDiffusion(factor))

    def log_density(self, x: Float[Array, " n_dims"]) -> Float[Array, ""]:
        """Of the stationary law, up to a constant."""
        return -2.0 * self.potential.potential(x) / self.sigma**2


class Objective(eqx.Module):
    """The data of a fit, and what a model loses on them."""

    clouds: tuple[Cloud, ...]
    legs: tuple[Leg, ...] = eqx.field(static=True)
    weighted: tuple[bool, ...] = eqx.field(static=True)
    span: float = eqx.field(static=True)
    settings: Settings = eqx.field(static=True)

    @classmethod
    def create(cls, standard: Snapshots, legs: tuple[Leg, ...], settings: Settings) -> "Objective":
        """On snapshots in the units of the fit."""
        weighted = tuple(bool(np.ptp(w) > 1e-12) for w in standard.weights)
        span = float(np.ptp(standard.times))
        return cls(device_clouds(standard), legs, weighted, span, settings)

    def mixed(
        self, model: PotentialModel, key: PRNGKeyArray
    ) -> tuple[Float[Array, ""], Float[Array, ""]]:
        """(1 - tau) transport - tau log likelihood, and the transport alone."""
        k_transport, k_contrast = jax.random.split(key)
        tau = self.settings.tau
        transport = self.transport(model, k_transport, self.settings.draw_size)
        if tau == 0.0:
            return transport, transport
        contrast = tau * self._contrast_scale * self.contrast(model, k_contrast)
        return (1.0 - tau) * transport + contrast, transport

    def transport(
        self, model: PotentialModel, key: PRNGKeyArray, size: int | None
    ) -> Float[Array, ""]:
        """The sum over intervals of the transport loss between the chain's end and the snapshot
        observed there, on `size` points of each snapshot.
        """
        k_rows, k_noise, k_match = jax.random.split(key, 3)
        clouds = self._drawn(size, k_rows)
        noises = leg_noise(self.legs, clouds, k_noise)
        process = model.process()
        total = jnp.zeros(())
        for leg, noise in zip(self.legs, noises, strict=True):
            start = clouds[leg.start]
            steps = jnp.asarray(leg.steps, dtype=float)
            path = euler_path(process, start.points, steps, noise)
            for n, end in leg.targets:
                arrived = Cloud(path[end], start.weights)
                total += self._distance(arrived, clouds[n], jax.random.fold_in(k_match, n))
        return total

    def contrast(self, model: PotentialModel, key: PRNGKeyArray) -> Float[Array, ""]:
        """Minus the log likelihood of the last snapshot, up to its constant: contrastive
        divergence.
        """
        k_rows, k_push = jax.random.split(key)
        last = self._last(k_rows)
        here = jax.lax.stop_gradient(model)
        negatives = Cloud(self.pushed(here, last, k_push), last.weights)
        return negatives.expect(model.log_density) - last.expect(model.log_density)

    def stationary_distance(self, model: PotentialModel, key: PRNGKeyArray) -> Float[Array, ""]:
        """How far the model's own law is from the last snapshot."""
        k_rows, k_observed, k_push, k_match = jax.random.split(key, 4)
        last = self._last(k_rows)
        observed = self._last(k_observed)
        pushed = Cloud(self.pushed(model, last, k_push), last.weights)
        return self._distance(pushed, observed, k_match)

    def pushed(
        self, model: PotentialModel, last: Cloud, key: PRNGKeyArray
    ) -> Float[Array, "n n_dims"]:
        """Points of the last snapshot, a while later under the model."""
        pace = self.span / _BURN_IN if self.settings.faithful else _PUSH
        step = 2.0 * pace / model.sigma**2
        return euler_push(model.process(), last.points, jnp.full(_BURN_IN, step), key)

    def _distance(self, simulated: Cloud, observed: Cloud, key: PRNGKeyArray) -> Float[Array, ""]:
        """The transport loss of the mode."""
        if self.settings.faithful:
            return barycentric_loss(simulated.points, observed, key)
        return sinkhorn_divergence(
            simulated.points, observed.points, simulated.weights, observed.weights
        )

    def _drawn(self, size: int | None, key: PRNGKeyArray) -> tuple[Cloud, ...]:
        """Points of every snapshot."""
        keys = jax.random.split(key, len(self.clouds))
        parts = zip(self.clouds, keys, self.weighted, strict=True)
        return tuple(_equal_points(cloud, size, k, weighted) for cloud, k, weighted in parts)

    def _last(self, key: PRNGKeyArray) -> Cloud:
        """Points of the last snapshot."""
        return _equal_points(self.clouds[-1], self.settings.draw_size, key, self.weighted[-1])

    @property
    def _contrast_scale(self) -> float:
        """The published transport is a sum over points, and so is its likelihood."""
        return float(len(self.clouds[-1].weights)) if self.settings.faithful else 1.0


def _random_points(
    snapshots: Snapshots, size: int, key: PRNGKeyArray
) -> Float[Array, "size n_dims"]:
    """Points of all snapshots together, drawn by their weights."""
    points = np.concatenate(snapshots.clouds)
    weights = np.concatenate(snapshots.weights)
    probabilities = jnp.asarray(weights / weights.sum(), dtype=float)
    return jax.random.choice(key, jnp.asarray(points, dtype=float), (size,), p=probabilities)


def _equal_points(cloud: Cloud, size: int | None, key: PRNGKeyArray, weighted: bool) -> Cloud:
    """`size` points (None: as many as there are) that count equally, of a cloud whose points may
    not.
    """
    n = len(cloud.weights)
    size = n if size is None else size
    if weighted and size >= n:
        points = jax.random.choice(key, cloud.points, (n,), p=cloud.weights)
        return Cloud(points, jnp.full(n, 1.0 / n))
    return minibatch(cloud, size, key, weighted=weighted)


class _Attempt(NamedTuple):
    """A plan at one sharpness of the kernel, and how often that was halved before."""

    n_halvings: Int[Array, ""]
    sharpness: Float[Array, ""]
    plan: Float[Array, "n n"]


def barycentric_loss(
    x: Float[Array, "n n_dims"], target: Cloud, key: PRNGKeyArray
) -> Float[Array, ""]:
    """sum_i |x_i - b_i|^2 of the published code, differentiated as it does: -sum_i e_i . dx_i with
    e = b - x.

    b_i is the mean of the targets that the plan sends to i, targets resampled to the number of
    points. Infinite where no plan is finite.
    """
    y = jax.random.choice(key, target.points, (len(x),), p=target.weights)
    plan = _finite_plan(squared_distances(jax.lax.stop_gradient(x), y))
    is_finite = jnp.all(jnp.isfinite(plan))
    error = jnp.where(is_finite, jax.lax.stop_gradient(plan @ y - x), 0.0)
    value = jnp.where(is_finite, jnp.sum(error**2), jnp.inf)
    along = jnp.sum(error * x)
    return value - (along - jax.lax.stop_gradient(along))


def _finite_plan(M: Float[Array, "n n"]) -> Float[Array, "n n"]:
    """The plan for the costs M at the largest sharpness, halved from the published one, at which it
    is finite.
    """

    def plan_at(sharpness):
        return kernel_plan(M, 1.0 / sharpness, _ALTERNATIONS)

    def fails(attempt: _Attempt):
        may_halve = attempt.n_halvings < _HALVINGS
        return may_halve & ~jnp.all(jnp.isfinite(attempt.plan))

    def halved(attempt: _Attempt) -> _Attempt:
        sharpness = attempt.sharpness / 2.0
        return _Attempt(attempt.n_halvings + 1, sharpness, plan_at(sharpness))

    first = _Attempt(jnp.zeros((), int), jnp.asarray(_SHARPNESS), plan_at(_SHARPNESS))
    return jax.lax.while_loop(fails, halved, first).plan
