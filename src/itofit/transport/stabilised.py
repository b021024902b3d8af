"""Entropic plans of clouds that may be far apart, in single precision:

    P_ij = a_i b_j exp((f_i + g_j - C_ij) / eps),        row sums a, column sums b

eps cools from the largest cost to 1, the temperature at which costs are given. At every temperature
f and g are updated by logarithms, where nothing underflows, and then by products with the kernel
exp((f + g - C) / eps), whose column sums are b and which therefore cannot be empty. Logarithms cost
an exponential an entry, products do not.

Points of weight 0 take no part: a cloud may be filled up with them to the size of another.
"""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

Points = Float[Array, "n n_dims"]
Weights = Float[Array, " n"]
Costs = Float[Array, "n m"]

_COOLING = 0.25
_STAGES_AT_REST = 4
_PRODUCTS = 10
# Coldest temperature as a part of the mean cost: below, single precision has no digits left, and
# the plan is that of exact transport to this part of its cost.
COLDEST = 1e-5
_NOTHING = -1e30
_LARGEST_FACTOR = 1e12


def whitened_costs(x: Points, y: Float[Array, "m n_dims"]) -> Costs:
    """|x_i - y_j|^2 / 2, by differences: near points keep their digits."""
    return 0.5 * jnp.sum((x[:, None, :] - y[None, :, :]) ** 2, axis=-1)


def conditional_plan(C: Costs, a: Weights, b: Float[Array, " m"]) -> Costs:
    """P(j | i): the rows of the entropic plan at temperature 1, each with the sum 1."""
    log_a = jnp.where(a > 0, jnp.log(jnp.maximum(a, 1e-37)), _NOTHING)
    log_b = jnp.where(b > 0, jnp.log(jnp.maximum(b, 1e-37)), _NOTHING)
    takes_part = (a > 0)[:, None] & (b > 0)
    coldest = jnp.maximum(1.0, COLDEST * (a @ C @ b))
    hottest = jnp.maximum(coldest, jnp.max(jnp.where(takes_part, C, 0.0)))

    def stage(state):
        eps, n_rests, f, g = state
        f, g = _by_logarithms(C, log_a, log_b, eps, g)
        kernel = jnp.exp((f[:, None] + g - C) / eps + log_a[:, None] + log_b)
        u, v = _by_products(kernel, a, b)
        f = f + eps * jnp.log(u)
        g = g + eps * jnp.log(v)
        return jnp.maximum(coldest, _COOLING * eps), n_rests + (eps <= coldest), f, g

    start = (hottest, 0, jnp.zeros(len(a), C.dtype), jnp.zeros(len(b), C.dtype))
    eps, _, f, g = jax.lax.while_loop(lambda s: s[1] < _STAGES_AT_REST, stage, start)
    f, g = _by_logarithms(C, log_a, log_b, eps, g)
    return jax.nn.softmax((g - C) / eps + log_b, axis=1)


def _by_logarithms(
    C: Costs,
    log_a: Weights,
    log_b: Float[Array, " m"],
    eps: Float[Array, ""],
    g: Float[Array, " m"],
) -> tuple[Weights, Float[Array, " m"]]:
    f = -eps * jax.nn.logsumexp((g - C) / eps + log_b, axis=1)
    g = -eps * jax.nn.logsumexp((f[:, None] - C) / eps + log_a[:, None], axis=0)
    return f, g


def _by_products(
    kernel: Costs, a: Weights, b: Float[Array, " m"]
) -> tuple[Weights, Float[Array, " m"]]:
    """Factors of the rows and columns of a kernel that bring its sums to a and b."""

    def factor(wanted, total):
        ratio = wanted / jnp.maximum(total, 1e-37)
        clipped = jnp.clip(ratio, 1.0 / _LARGEST_FACTOR, _LARGEST_FACTOR)
        return jnp.where(wanted > 0, clipped, 1.0)

    def alternate(_, uv):
        u = factor(a, kernel @ uv[1])
        return u, factor(b, u @ kernel)

    return jax.lax.fori_loop(0, _PRODUCTS, alternate, (jnp.ones_like(a), jnp.ones_like(b)))
