"""Drifts g(x): the deterministic part of dX = g(X) dt + S(X) dW, each for one sample."""

import abc
import dataclasses
from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from itofit.process.clock import Clock
from itofit.process.features import AbstractFeatures, affine, joined, polynomials
from itofit.process.monomials import Monomials
from itofit.process.network import TanhNetwork, xavier_network

# What a growing drift computes at each level.
_PARTS = ("affine", "affine", "polynomials", "network")
# Coefficients of an orthonormal basis can take longer strides than weights inside a network, few of them the longest.
_STRIDES = {"affine": 20.0, "polynomials": 10.0, "network": 10.0, "all": 0.0}
# Coefficients below this, in units of the drift's speed, count as no coefficient.
_NEXT_TO_NOTHING = 0.01
# And below this it is a zero that has been through the change of basis and back in float32.
_ROUNDING = 1e-5


class AbstractDrift(eqx.Module):
    """A vector field on the state space."""

    @abc.abstractmethod
    def __call__(self, x: Float[Array, " n_dims"]) -> Float[Array, " n_dims"]:
        """g(x), in units of state per unit of time."""

    @property
    def varies(self) -> bool:
        """Whether the drift changes with time."""
        return False

    def at(self, time: Float[Array, ""] | float) -> "AbstractDrift":
        """The drift at this time, as a function of the state alone."""
        del time
        return self

    @property
    def n_levels(self) -> int:
        """In how many stages the drift may grow while it is trained."""
        return 1

    def begun(self, level: int) -> "AbstractDrift":
        """What this stage begins with, when this is the best of those before it."""
        del level
        return self

    def at_level(self, level: int) -> "AbstractDrift":
        """The same weights, computing what belongs to this stage."""
        del level
        return self

    def whole(self) -> "AbstractDrift":
        """The same weights, computing all there is: drifts of all stages alike."""
        return self

    def pace(self) -> "AbstractDrift":
        """How fast each weight may move, relative to the learning rate."""
        return jax.tree.map(lambda leaf: 1.0, eqx.filter(self, eqx.is_inexact_array))

    def sparse_pull(self) -> "AbstractDrift":
        """The slope of a prior that would rather have few terms; nothing for drifts without terms."""
        return jax.tree.map(jnp.zeros_like, eqx.filter(self, eqx.is_inexact_array))

    def thinned(self, now: Bool[Array, ""]) -> "AbstractDrift":
        """Without the terms that the prior has pulled to nothing, if it is time."""
        del now
        return self

    @property
    def n_terms(self) -> Int[Array, ""]:
        """How many terms there are; 0 for drifts without terms."""
        return jnp.zeros((), int)


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


class GrowingDrift(AbstractDrift):
    """g(x) = c (W' phi(x) + network(x)), which begins small and takes in more, level by level.

    Level 0: every coordinate moves by itself, g_i = c (w_i + W_ii x_i); 1: affine; 2: affine and polynomials; 3: affine
    and the network. What a level leaves out is zero, and not computed: `parts` says what is.

    - `features`: phi = [1, x, products, cubes], the higher powers frozen outside a box.
    - `coefficients`: what is trained, in a basis B in which B' phi is orthonormal over the data and whose first 1 + D
      entries span the affine functions: W = kept * (B coefficients).
    - `kept`: 1, or 0 for a term that has left.
    """

    features: AbstractFeatures
    basis: Float[Array, "n_features n_features"]
    coefficients: Float[Array, "n_features n_dims"]
    kept: Float[Array, "n_features n_dims"]
    network: TanhNetwork
    speed: float = eqx.field(static=True)
    parts: str = eqx.field(static=True, default="affine")

    def __call__(self, x: Float[Array, " n_dims"]) -> Float[Array, " n_dims"]:
        if self.parts in ("affine", "network"):
            value = self.terms[0] + x @ self.terms[1 : 1 + len(x)]
        else:
            value = self.features(x) @ self.terms
        return self.speed * (value + self.network(x) if self.parts in ("network", "all") else value)

    @property
    def terms(self) -> Float[Array, "n_features n_dims"]:
        """W, the coefficients of the monomials."""
        return self.kept * (self.basis @ self.coefficients)

    @property
    def n_levels(self) -> int:
        """Coordinate by coordinate, affine, with polynomials, with the network instead."""
        return len(_PARTS)

    def begun(self, level: int) -> "GrowingDrift":
        """With every term again, those that had left at zero; the network begins at the affine function nearest to it.

        Nearest in the mean square over the data, where the basis is orthonormal: the polynomials' share is left out.
        """
        coefficients = jnp.linalg.inv(self.basis) @ self.terms
        if _PARTS[level] == "network":
            coefficients = jnp.where(self._is_affine[:, None], coefficients, 0.0)
        return eqx.tree_at(lambda g: (g.coefficients, g.kept), self, (coefficients, jnp.ones_like(self.kept)))

    def at_level(self, level: int) -> "GrowingDrift":
        """Computing what the level takes in."""
        return dataclasses.replace(self, parts=_PARTS[level])

    def whole(self) -> "GrowingDrift":
        """Computing polynomials and network, one of which is zero."""
        return dataclasses.replace(self, parts="all")

    def pace(self) -> "GrowingDrift":
        """Coefficients take longer strides than the network's weights."""
        still = jax.tree.map(lambda leaf: 0.0, eqx.filter(self, eqx.is_inexact_array))
        network = jax.tree.map(lambda leaf: 1.0 if self.parts == "network" else 0.0, still.network)
        moving = self._is_affine | (self.parts == "polynomials")
        stride = jnp.where(moving, _STRIDES[self.parts], 0.0)[:, None]
        return eqx.tree_at(lambda g: (g.coefficients, g.network), still, (stride, network))

    def sparse_pull(self) -> "GrowingDrift":
        """Of sum log(1 + (W / s)^2) over all terms but the constant: heavy-tailed, so that large terms feel little."""
        nothing = jax.tree.map(jnp.zeros_like, eqx.filter(self, eqx.is_inexact_array))
        if self.parts == "network":  # it would take over what leaves
            return nothing
        W = self.terms.at[0].set(0.0)
        pull = self.basis.T @ (self.kept * 2.0 * W / (W**2 + _NEXT_TO_NOTHING**2))
        return eqx.tree_at(lambda g: g.coefficients, nothing, pull)

    def thinned(self, now: Bool[Array, ""]) -> "GrowingDrift":
        """Without the terms below the prior's scale; the constant stays."""
        if self.parts == "network":
            return self
        large = jnp.abs(self.terms) > _NEXT_TO_NOTHING
        kept = self.kept * jnp.where(now, large.at[0].set(True).astype(self.kept.dtype), 1.0)
        return eqx.tree_at(lambda g: g.kept, self, kept)

    @property
    def n_terms(self) -> Int[Array, ""]:
        """Those that are not zero, up to rounding in the change of basis."""
        return jnp.sum(jnp.abs(self.terms) > _ROUNDING)

    @property
    def _is_affine(self) -> Bool[Array, " n_features"]:
        return jnp.arange(len(self.coefficients)) <= self.coefficients.shape[1]

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
        key: PRNGKeyArray,
    ) -> "GrowingDrift":
        """The zero drift, with the basis of these weighted points and the network's last layer at zero."""
        n_dims = points.shape[1]
        dictionary = joined([affine(n_dims), polynomials(n_dims, *box)])
        # The points lie inside the box, so that the frozen monomials are plain ones here.
        phi = Monomials(tuple(group.coordinates for group in dictionary.groups)).rows(points)
        gram = (phi * weights[:, None]).T @ phi / np.sum(weights)
        factor = np.linalg.cholesky(gram + 1e-6 * np.diag(np.diag(gram)))
        network = xavier_network([n_dims, *[width] * depth, n_dims], key=key, last_gain=0.0)
        # Triangular to the last bit: affine functions have no polynomial terms, which are counted.
        basis = jnp.asarray(np.triu(np.linalg.inv(factor).T), dtype=float)
        nothing, alone = jnp.zeros((phi.shape[1], n_dims)), jnp.eye(phi.shape[1], n_dims, k=-1).at[0].set(1.0)
        return cls(dictionary.features, basis, nothing, alone, network, float(speed))


class CorrectedDrift(AbstractDrift):
    """g(x) = base(x) + correction(x): only the correction is trained."""

    base: AbstractDrift
    correction: AbstractDrift

    def __call__(self, x: Float[Array, " n_dims"]) -> Float[Array, " n_dims"]:
        # Gradients in the weights of the base would be thrown away, and cost as much as those of the correction.
        weights, rest = eqx.partition(self.base, eqx.is_array)
        base = eqx.combine(jax.lax.stop_gradient(weights), rest)
        return base(x) + self.correction(x)

    @property
    def n_levels(self) -> int:
        """Those of the correction."""
        return self.correction.n_levels

    def begun(self, level: int) -> "CorrectedDrift":
        """With the correction of that stage."""
        return CorrectedDrift(self.base, self.correction.begun(level))

    def at_level(self, level: int) -> "CorrectedDrift":
        """With the correction at that stage."""
        return CorrectedDrift(self.base, self.correction.at_level(level))

    def whole(self) -> "CorrectedDrift":
        """With the whole correction."""
        return CorrectedDrift(self.base, self.correction.whole())

    def pace(self) -> "CorrectedDrift":
        """The correction's; the base stays."""
        still = jax.tree.map(lambda leaf: 0.0, eqx.filter(self, eqx.is_inexact_array))
        return eqx.tree_at(lambda g: g.correction, still, self.correction.pace())

    def sparse_pull(self) -> "CorrectedDrift":
        """The correction's."""
        nothing = jax.tree.map(jnp.zeros_like, eqx.filter(self, eqx.is_inexact_array))
        return eqx.tree_at(lambda g: g.correction, nothing, self.correction.sparse_pull())

    def thinned(self, now: Bool[Array, ""]) -> "CorrectedDrift":
        """With the correction thinned."""
        return CorrectedDrift(self.base, self.correction.thinned(now))

    @property
    def n_terms(self) -> Int[Array, ""]:
        """The correction's."""
        return self.correction.n_terms


class MeanDrift(AbstractDrift):
    """g(x) = mean of the members of an ensemble, which are stacked along the first axis of their arrays."""

    members: AbstractDrift

    def __call__(self, x: Float[Array, " n_dims"]) -> Float[Array, " n_dims"]:
        return jnp.mean(eqx.filter_vmap(lambda member: member(x))(self.members), axis=0)


def members_of(drift: AbstractDrift) -> list[AbstractDrift]:
    """The members of the mean drift of an ensemble, or the drift alone."""
    if isinstance(drift, CorrectedDrift):
        return [CorrectedDrift(drift.base, part) for part in members_of(drift.correction)]
    if not isinstance(drift, MeanDrift):
        return [drift]
    count = len(jax.tree.leaves(eqx.filter(drift.members, eqx.is_array))[0])
    pick = lambda m: jax.tree.map(lambda leaf: leaf[m] if eqx.is_array(leaf) else leaf, drift.members)  # noqa: E731
    return [pick(m) for m in range(count)]


class GradientDrift(AbstractDrift):
    """g(x) = -grad potential(x): a drift without rotation."""

    potential: Callable[[Float[Array, " n_dims"]], Float[Array, ""]]

    def __call__(self, x: Float[Array, " n_dims"]) -> Float[Array, " n_dims"]:
        return -jax.grad(self.potential)(x)


class FeatureDrift(AbstractDrift):
    """g(x) = W' phi(x), or W' phi(x, tau(t)) with a clock: linear in the coefficients W of a dictionary phi."""

    features: AbstractFeatures | Callable[[Float[Array, " n_inputs"]], Float[Array, " n_features"]]
    coefficients: Float[Array, "n_features n_dims"]
    clock: Clock | None = None

    def __call__(self, x: Float[Array, " n_dims"]) -> Float[Array, " n_dims"]:
        return self.phi(x) @ self.coefficients

    def phi(self, x: Float[Array, " n_dims"]) -> Float[Array, " n_features"]:
        """The features at this state, now."""
        return self.features(self._inputs(x))

    def slope(self, x: Float[Array, " n_dims"]) -> Float[Array, "n_dims n_dims"]:
        """Dg / dx; the features must know their own slopes."""
        assert isinstance(self.features, AbstractFeatures)
        return self.features.slope(self._inputs(x), self.coefficients)[:, : len(x)]

    @property
    def varies(self) -> bool:
        """With a clock."""
        return self.clock is not None

    def at(self, time: Float[Array, ""] | float) -> "FeatureDrift":
        """With the clock at this time."""
        if self.clock is None:
            return self
        return FeatureDrift(self.features, self.coefficients, self.clock.at(time))

    def _inputs(self, x: Float[Array, " n_dims"]) -> Float[Array, " n_inputs"]:
        return x if self.clock is None else jnp.append(x, self.clock.reading)


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

    @property
    def varies(self) -> bool:
        """Where the inner one does."""
        return self.inner.varies

    def at(self, time: Float[Array, ""] | float) -> "RescaledDrift":
        """With the inner one at this time."""
        return RescaledDrift(self.inner.at(time), self.mean, self.sd)
