"""The generator L f = g . grad f + 1/2 tr(S S' hess f), in one forward pass.

Itô's formula, applied layer by layer. If the hidden state u of a network is an Itô process
du = m dt + V dW, then W u + b has drift W m and dispersion W V, and tanh u has

    drift       tanh'(u) m + 1/2 tanh''(u) sum_c V_c^2
    dispersion  tanh'(u) V

Pushed through from x with (m, V) = (g(x), S(x)), the drift of the output is L f(x) and its
dispersion is S' grad f(x). This is the forward-mode Laplacian with the drift folded into the same
column: D + 2 columns in all. With (m, V) = (0, I) it returns the gradient and half the Laplacian.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from itofit.process.network import TanhNetwork

Scalar = Float[Array, ""]
Point = Float[Array, " n_dims"]


class ItoImage(NamedTuple):
    """What a function makes of an Itô process at a point: value, drift (L f) and dispersion."""

    value: Float[Array, " n_out"]
    drift: Float[Array, " n_out"]
    dispersion: Float[Array, "n_noise n_out"]


def ito_push(
    network: TanhNetwork, x: Point, drift: Point, dispersion: Float[Array, "n_dims n_noise"]
) -> ItoImage:
    """The image of X under a network, where dX = drift dt + dispersion dW at x."""
    value = x
    rate = drift
    spread = dispersion.T
    for weight, bias in zip(network.weights[:-1], network.biases[:-1], strict=True):
        rate = weight @ rate
        spread = spread @ weight.T
        value = jnp.tanh(weight @ value + bias)
        slope = 1.0 - value**2
        rate = slope * rate - value * slope * jnp.sum(spread**2, axis=0)
        spread = slope * spread
    weight = network.weights[-1]
    bias = network.biases[-1]
    return ItoImage(weight @ value + bias, weight @ rate, spread @ weight.T)


def second_order(
    f: Callable[[Point], Scalar], x: Point, drift: Point, dispersion: Float[Array, "n_dims n_noise"]
) -> tuple[Scalar, Scalar]:
    """Value and generator of any smooth f: derivatives along g, and twice along columns of S."""

    def along(direction):
        def slope(y):
            return jax.jvp(f, (y,), (direction,))[1]

        return jax.jvp(slope, (x,), (direction,))[1]

    value, transport = jax.jvp(f, (x,), (drift,))
    return value, transport + 0.5 * jnp.sum(jax.vmap(along, in_axes=1)(dispersion))


def sketched(
    dispersion: Float[Array, "n_dims n_noise"], n_sketch: int, x: Point, key: PRNGKeyArray
) -> Float[Array, "n_dims n_sketch"]:
    """S V with random signs V, E[V V'] = I: an unbiased trace with `n_sketch` columns.

    For high dimension. The bits of x are folded into the key, so every point has signs of its own
    and the error averages out.
    """
    bits = jax.lax.bitcast_convert_type(x.astype(jnp.float32), jnp.uint32)
    for word in bits[:2]:
        key = jax.random.fold_in(key, word)
    signs = jax.random.rademacher(key, (dispersion.shape[1], n_sketch), dispersion.dtype)
    return dispersion @ signs / jnp.sqrt(n_sketch)
