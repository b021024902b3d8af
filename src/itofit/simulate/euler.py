"""Euler-Maruyama over a mesh (the paper's n-step scheme):

    X_{k+1} = X_k + g(X_k) h_k + S(X_k) sqrt(h_k) Z_k

A drift that changes with time is that of the middle of the step, g(X_k, t_k + h_k / 2), which makes
the integral of a push that depends on the time alone exact to second order.
"""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from itofit.process.ito import ItoProcess


def euler_path(
    process: ItoProcess,
    start: Float[Array, "n_samples n_dims"],
    steps: Float[Array, " n_steps"],
    noise: Float[Array, "n_steps n_samples n_dims"],
    begin: float | Float[Array, ""] = 0.0,
) -> Float[Array, "n_steps+1 n_samples n_dims"]:
    """Every node of the chain from the time `begin` on, the start included.

    Each step is checkpointed: differentiating the path keeps the nodes and recomputes what lies
    inside a step, so memory does not grow with the size of the drift's network.
    """

    @jax.checkpoint
    def step(x, now):
        t, h, z = now
        x = jax.vmap(process.at(t).euler_step, in_axes=(0, None, 0))(x, h, z)
        return x, x

    _, nodes = jax.lax.scan(step, start, (step_times(begin, steps), steps, noise))
    return jnp.concatenate([start[None], nodes])


def euler_push(
    process: ItoProcess,
    start: Float[Array, "n_samples n_dims"],
    steps: Float[Array, " n_steps"],
    key: PRNGKeyArray,
    begin: float | Float[Array, ""] = 0.0,
) -> Float[Array, "n_samples n_dims"]:
    """Only the last node, with noise drawn step by step, so that memory does not grow with them."""

    def step(x, now):
        t, h, k = now
        z = jax.random.normal(k, x.shape, x.dtype)
        return jax.vmap(process.at(t).euler_step, in_axes=(0, None, 0))(x, h, z), None

    keys = jax.random.split(key, len(steps))
    end, _ = jax.lax.scan(step, start, (step_times(begin, steps), steps, keys))
    return end


def step_times(
    begin: float | Float[Array, ""], steps: Float[Array, " n_steps"]
) -> Float[Array, " n_steps"]:
    """The middle of each step."""
    return begin + jnp.cumsum(steps) - 0.5 * steps
