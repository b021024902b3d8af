"""Rows in blocks of one size, so that one compiled program serves clouds of all sizes."""

import jax.numpy as jnp
from jaxtyping import Array, Float


def in_blocks(x: Float[Array, "n *row"], size: int) -> list[Float[Array, "_ *row"]]:
    """Blocks of so many rows, the last filled up with its first row; few rows are one block."""
    if len(x) <= size:
        return [x]
    blocks = [x[k : k + size] for k in range(0, len(x), size)]
    missing = size - len(blocks[-1])
    blocks[-1] = jnp.concatenate([blocks[-1], jnp.repeat(blocks[-1][:1], missing, axis=0)])
    return blocks
