"""Quadrature in time: the integral of F(u) du over a mesh by the trapezoid rule.

On all nodes, or without bias on a random few.
"""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PRNGKeyArray


def trapezoid_weights(steps: Float[Array, " n_steps"]) -> Float[Array, " n_steps+1"]:
    """Weights w_k with sum_k w_k F_k the trapezoid rule: half of each step for both of its ends."""
    zero = jnp.zeros(1, steps.dtype)
    return 0.5 * (jnp.concatenate([steps, zero]) + jnp.concatenate([zero, steps]))


def stratified_nodes(
    weights: Float[Array, " n_nodes"], n_strata: int, key: PRNGKeyArray
) -> tuple[Int[Array, " n_strata"], Float[Array, " n_strata"]]:
    """Random nodes k_i and weights v_i with E[sum_i v_i F(k_i)] = sum_k w_k F(k), for every F.

    The line of cumulated weight is cut into equal strata; each gives one uniform point, which falls
    on node k with probability in proportion to w_k.
    """
    edges = jnp.cumsum(weights)
    jitter = jax.random.uniform(key, (n_strata,), weights.dtype)
    u = (jnp.arange(n_strata) + jitter) / n_strata
    nodes = jnp.searchsorted(edges, u * edges[-1], side="right")
    return jnp.minimum(nodes, len(weights) - 1), jnp.full(n_strata, edges[-1] / n_strata)
