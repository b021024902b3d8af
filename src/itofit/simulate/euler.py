"""Euler-Maruyama over a mesh: X_{k+1} = X_k + g(X_k) h_k + S(X_k) sqrt(h_k) Z_k  (the paper's n-step scheme)."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from itofit.process.ito import ItoProcess


def euler_path(
    process: ItoProcess,
    start: Float[Array, "n_samples n_dims"],
    steps: Float[Array, " n_steps"],
    noise: Float[Array, "n_steps n_samples n_dims"],
) -> Float[Array, "n_steps+1 n_samples n_dims"]:
    """Every node of the chain, the start included.

    Each step is checkpointed: differentiating the path keeps the nodes and recomputes what lies
    inside a step, so memory does not grow with the size of the drift's network.
    """

    @jax.checkpoint
    def step(x, h_and_z):
        h, z = h_and_z
        x = jax.vmap(process.euler_step, in_axes=(0, None, 0))(x, h, z)
        return x, x

    _, nodes = jax.lax.scan(step, start, (steps, noise))
    return jnp.concatenate([start[None], nodes])


def euler_push(
    process: ItoProcess,
    start: Float[Array, "n_samples n_dims"],
    steps: Float[Array, " n_steps"],
    key: PRNGKeyArray,
) -> Float[Array, "n_samples n_dims"]:
    """Only the last node, with noise drawn step by step: memory independent of the number of steps."""

    def step(x, h_and_key):
        h, k = h_and_key
        z = jax.random.normal(k, x.shape, x.dtype)
        return jax.vmap(process.euler_step, in_axes=(0, None, 0))(x, h, z), None

    return jax.lax.scan(step, start, (steps, jax.random.split(key, len(steps))))[0]
