"""The tanh network both players use: h_0 = x, h_{i+1} = tanh(W_i h_i + b_i), and a last affine
layer.
"""

from collections.abc import Sequence

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray


class TanhNetwork(eqx.Module):
    """A fully connected tanh network for one sample."""

    weights: tuple[Float[Array, "_ _"], ...]
    biases: tuple[Float[Array, " _"], ...]

    def __call__(self, x: Float[Array, " n_in"]) -> Float[Array, " n_out"]:
        for weight, bias in zip(self.weights[:-1], self.biases[:-1], strict=True):
            x = jnp.tanh(weight @ x + bias)
        return self.weights[-1] @ x + self.biases[-1]


def xavier_network(
    sizes: Sequence[int], *, key: PRNGKeyArray, last_gain: float = 1.0
) -> TanhNetwork:
    """Xavier-normal weights (variance 2 / (n_in + n_out)) and zero biases; `last_gain` scales the
    last layer.
    """
    shapes = list(zip(sizes[1:], sizes[:-1], strict=True))
    keys = jax.random.split(key, len(shapes))
    weights = [
        jnp.sqrt(2.0 / sum(shape)) * jax.random.normal(k, shape)
        for k, shape in zip(keys, shapes, strict=True)
    ]
    weights[-1] = last_gain * weights[-1]
    return TanhNetwork(tuple(weights), tuple(jnp.zeros(n_out) for n_out, _ in shapes))
