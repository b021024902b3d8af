"""Drifts g(x): the deterministic part of dX = g(X) dt + S(X) dW, each for one sample.

A drift that changes with time is g(x, t); `at(t)` is the function of the state it is then.
"""

import abc
import dataclasses
from collections.abc import Callable, Sequence
from typing import Any, Self

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from itofit.errors import InputError
from itofit.process.clock import Clock
from itofit.process.features import AbstractFeatures, affine, joined, polynomials
from itofit.process.monomials import Monomials
from itofit.process.network import TanhNetwork, xavier_network


class AbstractDrift(eqx.Module):
    """A vector field on the state space."""

    @abc.abstractmethod
    def __call__(self, x: Float[Array, " n_dims"]) -> Float[Array, " n_dims"]:
        """g(x), in units of state per unit of time."""

    @property
    @abc.abstractmethod
    def varies(self) -> bool:
        """Whether the drift changes with time."""

    @abc.abstractmethod
    def at(self, time: Float[Array, ""] | float) -> "AbstractDrift":
        """The drift at this time, as a function of the state alone."""


class AutonomousDrift(AbstractDrift):
    """A drift that is the same at all times."""

    @property
    def varies(self) -> bool:
        return False

    def at(self, time: Float[Array, ""] | float) -> "AutonomousDrift":
        del time
        return self


class NetworkDrift(AutonomousDrift):
    """g(x) = c (A x + b + network(x)): a tanh network with an affine skip, in units of speed c."""

    network: TanhNetwork
    matrix: Float[Array, "n_dims n_dims"]
    offset: Float[Array, " n_dims"]
    speed: float = eqx.field(static=True)

    def __call__(self, x: Float[Array, " n_dims"]) -> Float[Array, " n_dims"]:
        return self.speed * (self.matrix @ x + self.offset + self.network(x))

    @classmethod
    def create(
        cls,
        n_dims: int,
        *,
        width: int,
        depth: int,
        speed: float,
        last_gain: float,
        key: PRNGKeyArray,
    ) -> "NetworkDrift":
        """A fresh drift: `depth` hidden layers of `width` units, the skip at zero."""
        network = xavier_network([n_dims, *[width] * depth, n_dims], key=key, last_gain=last_gain)
        return cls(network, jnp.zeros((n_dims, n_dims)), jnp.zeros(n_dims), float(speed))


class PlainNetworkDrift(AutonomousDrift):
    """g(x) = network(x): what the paper trains, in raw units and without a skip."""

    network: TanhNetwork

    def __call__(self, x: Float[Array, " n_dims"]) -> Float[Array, " n_dims"]:
        return self.network(x)


class StagedDrift(AutonomousDrift):
    """g(x) = c (W' phi(x) + network(x)), of which only some parts may be computed.

    - `features`: phi = [1, x, products, cubes], the higher powers frozen outside a box.
    - `low`, `high`: a box outside which the whole drift is frozen, infinite where nothing is.
    - `coefficients`: of a basis B in which B' phi is orthonormal over the data and whose first 1 +
      D entries span the affine functions: W = mask * (B coefficients).
    - `mask`: 1, or 0 for a term that is left out.
    - `parts`: what is computed: the `affine` terms alone, all `polynomials`, affine terms and the
      `network`, or `all` of it. What is left out is known to be zero.
    """

    features: AbstractFeatures
    basis: Float[Array, "n_features n_features"]
    coefficients: Float[Array, "n_features n_dims"]
    mask: Float[Array, "n_features n_dims"]
    network: TanhNetwork
    low: Float[Array, " n_dims"]
    high: Float[Array, " n_dims"]
    speed: float = eqx.field(static=True)
    parts: str = eqx.field(static=True, default="affine")

    def __call__(self, x: Float[Array, " n_dims"]) -> Float[Array, " n_dims"]:
        x = jnp.clip(x, self.low, self.high)
        if self.parts in ("affine", "network"):
            value = self.terms[0] + x @ self.terms[1 : 1 + len(x)]
        else:
            value = self.features(x) @ self.terms
        return self.speed * (value + self.network(x) if self.parts in ("network", "all") else value)

    @property
    def terms(self) -> Float[Array, "n_features n_dims"]:
        """W, the coefficients of the monomials."""
        return self.mask * (self.basis @ self.coefficients)

    @classmethod
    def create(
        cls,
        points: Float[np.ndarray, "n n_dims"],
        weights: Float[np.ndarray, " n"],
        box: tuple[np.ndarray, np.ndarray],
        *,
        width: int,
        depth: int,
        speed: float,
        bounded: bool = False,
        key: PRNGKeyArray,
    ) -> "StagedDrift":
        """The zero drift, every coordinate by itself: g_i = c (w_i + W_ii x_i).

        The basis is that of these weighted points, and the network's last layer is at zero. Of a
        `bounded` one all parts are frozen outside the box, not the powers alone.
        """
        n_dims = points.shape[1]
        dictionary = joined([affine(n_dims), polynomials(n_dims, *box)])
        # The points lie inside the box, so that the frozen monomials are plain ones here.
        phi = Monomials(tuple(group.coordinates for group in dictionary.groups)).rows(points)
        gram = (phi * weights[:, None]).T @ phi / np.sum(weights)
        factor = np.linalg.cholesky(gram + 1e-6 * np.diag(np.diag(gram)))
        network = xavier_network([n_dims, *[width] * depth, n_dims], key=key, last_gain=0.0)
        # Triangular to the last bit: affine functions have no polynomial terms, which are counted.
        basis = jnp.asarray(np.triu(np.linalg.inv(factor).T), dtype=float)
        zero = jnp.zeros((phi.shape[1], n_dims))
        diagonal = jnp.eye(phi.shape[1], n_dims, k=-1).at[0].set(1.0)
        low, high = box if bounded else (np.full(n_dims, -np.inf), np.full(n_dims, np.inf))
        return cls(
            dictionary.features,
            basis,
            zero,
            diagonal,
            network,
            jnp.asarray(low, dtype=float),
            jnp.asarray(high, dtype=float),
            float(speed),
        )


class CorrectedDrift(AbstractDrift):
    """g(x) = base(x) + correction(x)."""

    base: AbstractDrift
    correction: AbstractDrift

    def __call__(self, x: Float[Array, " n_dims"]) -> Float[Array, " n_dims"]:
        return self.base(x) + self.correction(x)

    @property
    def varies(self) -> bool:
        return self.base.varies or self.correction.varies

    def at(self, time: Float[Array, ""] | float) -> "CorrectedDrift":
        return CorrectedDrift(self.base.at(time), self.correction.at(time))


class MeanDrift(AbstractDrift):
    """g(x) = mean of the members of an ensemble, which are `stacked`."""

    members: AbstractDrift

    def __call__(self, x: Float[Array, " n_dims"]) -> Float[Array, " n_dims"]:
        return jnp.mean(eqx.filter_vmap(lambda member: member(x))(self.members), axis=0)

    @property
    def varies(self) -> bool:
        return self.members.varies

    def at(self, time: Float[Array, ""] | float) -> "MeanDrift":
        return MeanDrift(eqx.filter_vmap(lambda member: member.at(time))(self.members))


def stacked(trees: Sequence[Any]) -> Any:
    """Trees of equal structure as one, their arrays stacked along a first axis of members."""
    return jax.tree.map(
        lambda *leaves: jnp.stack(leaves) if eqx.is_array(leaves[0]) else leaves[0], *trees
    )


def members_of(drift: AbstractDrift) -> list[AbstractDrift]:
    """The members of the mean drift of an ensemble, or the drift alone."""
    if isinstance(drift, CorrectedDrift):
        return [CorrectedDrift(drift.base, part) for part in members_of(drift.correction)]
    if not isinstance(drift, MeanDrift):
        return [drift]
    arrays, rest = eqx.partition(drift.members, eqx.is_array)
    n_members = len(jax.tree.leaves(arrays)[0])
    return [
        eqx.combine(jax.tree.map(lambda leaf, m=m: leaf[m], arrays), rest) for m in range(n_members)
    ]


class GradientDrift(AutonomousDrift):
    """g(x) = -grad potential(x): a drift without rotation."""

    potential: Callable[[Float[Array, " n_dims"]], Float[Array, ""]]

    def __call__(self, x: Float[Array, " n_dims"]) -> Float[Array, " n_dims"]:
        return -jax.grad(self.potential)(x)


class AbstractLinearDrift(AbstractDrift):
    """A drift that is linear in the coefficients of a dictionary, whose inputs are the state and,
    with a clock, the time.
    """

    features: eqx.AbstractVar[AbstractFeatures | Callable[[Array], Array]]
    coefficients: eqx.AbstractVar[Float[Array, "n_features n_outputs"]]
    clock: eqx.AbstractVar[Clock | None]

    @abc.abstractmethod
    def phi(self, x: Float[Array, " n_dims"]) -> Float[Array, "*n_dims n_features"]:
        """What the coefficients are multiplied with at this state, now.

        The same for every coordinate of the drift, or a row for each.
        """

    @abc.abstractmethod
    def slope(self, x: Float[Array, " n_dims"]) -> Float[Array, "n_dims n_dims"]:
        """The Jacobian dg / dx; the features must know their own slopes."""

    @property
    def varies(self) -> bool:
        return self.clock is not None

    def at(self, time: Float[Array, ""] | float) -> Self:
        if self.clock is None:
            return self
        return dataclasses.replace(self, clock=self.clock.at(time))

    def with_coefficients(self, coefficients: Float[Array, "n_features n_outputs"]) -> Self:
        """The same with other coefficients."""
        return dataclasses.replace(self, coefficients=coefficients)

    def inputs(self, x: Float[Array, " n_dims"]) -> Float[Array, " n_inputs"]:
        """What the features are functions of."""
        return x if self.clock is None else jnp.append(x, self.clock.reading)


class FeatureDrift(AbstractLinearDrift):
    """g(x) = W' phi(x), or W' phi(x, tau(t)) with a clock: linear in the coefficients W of a
    dictionary phi.
    """

    features: AbstractFeatures | Callable[[Float[Array, " n_inputs"]], Float[Array, " n_features"]]
    coefficients: Float[Array, "n_features n_dims"]
    clock: Clock | None = None

    def __call__(self, x: Float[Array, " n_dims"]) -> Float[Array, " n_dims"]:
        return self.phi(x) @ self.coefficients

    def phi(self, x: Float[Array, " n_dims"]) -> Float[Array, " n_features"]:
        return self.features(self.inputs(x))

    def slope(self, x: Float[Array, " n_dims"]) -> Float[Array, "n_dims n_dims"]:
        assert isinstance(self.features, AbstractFeatures)
        return self.features.slope(self.inputs(x), self.coefficients)[:, : len(x)]


class PotentialDrift(AbstractLinearDrift):
    """g(x) = -D grad V(x) with one potential V = w' psi(x), or w' psi(x, tau(t)) with a clock.

    - `metric`: the diagonal of D. In units z = (x - m) / sd a drift -grad U of the user's units is
      -D grad V with D in the proportions of 1 / sd^2.
    """

    features: AbstractFeatures
    coefficients: Float[Array, "n_features 1"]
    metric: Float[Array, " n_dims"]
    clock: Clock | None = None

    def __call__(self, x: Float[Array, " n_dims"]) -> Float[Array, " n_dims"]:
        return -self.metric * self.features.slope(self.inputs(x), self.coefficients)[0, : len(x)]

    def potential(self, x: Float[Array, " n_dims"]) -> Float[Array, ""]:
        """V(x), up to a constant."""
        return self.features(self.inputs(x)) @ self.coefficients[:, 0]

    def phi(self, x: Float[Array, " n_dims"]) -> Float[Array, "n_dims n_features"]:
        slopes = jax.jacfwd(self.features)(self.inputs(x))
        return -self.metric[:, None] * slopes.T[: len(x)]

    def slope(self, x: Float[Array, " n_dims"]) -> Float[Array, "n_dims n_dims"]:
        return jax.jacfwd(self)(x)


def linear_drift(
    features: AbstractFeatures,
    coefficients: Float[Array, "n_features n_outputs"],
    metric: Float[Array | np.ndarray, " n_dims"] | None,
    clock: Clock | None,
) -> AbstractLinearDrift:
    """The free drift of these features, or with a metric that of a potential."""
    if metric is None:
        return FeatureDrift(features, coefficients, clock)
    D = jnp.asarray(metric, dtype=float)
    return PotentialDrift(features, coefficients, metric=D, clock=clock)


class PotentialNetworkDrift(AutonomousDrift):
    """g(x) = -D grad V(x), V(x) = c (x'A x / 2 + b.x + network(x)): a tanh network with a quadratic
    skip, in units of speed c.

    - `metric`: the diagonal of D, as in `PotentialDrift`.
    """

    network: TanhNetwork
    matrix: Float[Array, "n_dims n_dims"]
    offset: Float[Array, " n_dims"]
    metric: tuple[float, ...] = eqx.field(static=True)
    speed: float = eqx.field(static=True)

    def __call__(self, x: Float[Array, " n_dims"]) -> Float[Array, " n_dims"]:
        return -jnp.asarray(self.metric, x.dtype) * jax.grad(self.potential)(x)

    def potential(self, x: Float[Array, " n_dims"]) -> Float[Array, ""]:
        """V(x), up to a constant."""
        return self.speed * (0.5 * x @ self.matrix @ x + self.offset @ x + self.network(x)[0])

    @classmethod
    def create(
        cls,
        metric: Float[np.ndarray, " n_dims"],
        *,
        width: int,
        depth: int,
        speed: float,
        last_gain: float,
        key: PRNGKeyArray,
    ) -> "PotentialNetworkDrift":
        """A fresh drift: `depth` hidden layers of `width` units, the skip at zero."""
        n_dims = len(metric)
        network = xavier_network([n_dims, *[width] * depth, 1], key=key, last_gain=last_gain)
        zero = jnp.zeros((n_dims, n_dims))
        proportions = tuple(float(d) for d in metric)
        return cls(network, zero, jnp.zeros(n_dims), proportions, float(speed))


def potential_of(drift: AbstractDrift) -> Callable[[Float[Array, " n_dims"]], Float[Array, ""]]:
    """The potential of a drift that has one, of a mean or a sum of such drifts as well."""
    if isinstance(drift, PotentialDrift | PotentialNetworkDrift):
        return drift.potential
    if isinstance(drift, CorrectedDrift):
        base, correction = (potential_of(part) for part in (drift.base, drift.correction))
        return lambda x: base(x) + correction(x)
    if isinstance(drift, MeanDrift):
        members = [potential_of(member) for member in members_of(drift)]
        return lambda x: jnp.mean(jnp.stack([member(x) for member in members]))
    raise InputError(
        expected="a drift that has a potential",
        found="a free one, which may rotate",
        hint="drift='potential'",
    )


class FunctionDrift(AutonomousDrift):
    """g given as a function of one state."""

    function: Callable[[Float[Array, " n_dims"]], Float[Array, " n_dims"]]

    def __call__(self, x: Float[Array, " n_dims"]) -> Float[Array, " n_dims"]:
        return self.function(x)


class RescaledDrift(AbstractDrift):
    """g(x) = sd * inner((x - mean) / sd): the drift of mean + sd Z where that of Z is `inner`."""

    inner: AbstractDrift
    mean: Float[Array, " n_dims"]
    sd: Float[Array, " n_dims"]

    def __call__(self, x: Float[Array, " n_dims"]) -> Float[Array, " n_dims"]:
        return self.sd * self.inner((x - self.mean) / self.sd)

    @property
    def varies(self) -> bool:
        return self.inner.varies

    def at(self, time: Float[Array, ""] | float) -> "RescaledDrift":
        return RescaledDrift(self.inner.at(time), self.mean, self.sd)
