"""Entropic transport between two clouds, in jax: with M_ij = |x_i - y_j|^2

    P = argmin over plans of <P, M> + eps sum_ij P_ij log(P_ij / (a_i b_j)).

`kernel_plan` alternates on the Gibbs kernel exp(-M / eps) as often as it is told, as published code
does; far clouds underflow there. `sinkhorn_divergence` works with logarithms, where nothing does,
and takes off the bias of eps:

    S(x, y) = OT(x, y) - OT(x, x) / 2 - OT(y, y) / 2.
"""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

Points = Float[Array, "n n_dims"]
Weights = Float[Array, " n"]
Costs = Float[Array, "n m"]

# Each alternation has this part of the eps before it, until the final eps is reached.
_COOLING = 0.7


def squared_distances(x: Points, y: Float[Array, "m n_dims"]) -> Costs:
    """|x_i - y_j|^2, by products about the middle of y; nothing is below 0 by rounding."""
    middle = jnp.mean(y, axis=0)
    x = x - middle
    y = y - middle
    cross = x @ y.T
    squares = jnp.sum(x**2, axis=1)[:, None] + jnp.sum(y**2, axis=1)
    return jnp.maximum(squares - 2.0 * cross, 0.0)


def kernel_plan(M: Costs, eps: Float[Array, ""] | float, n_alternations: int) -> Costs:
    """The plan after alternations between marginals of ones, each row divided by its sum."""
    K = jnp.exp(-M / eps)

    def alternate(_, r):
        return 1.0 / (K @ (1.0 / (r @ K)))

    r = jax.lax.fori_loop(0, n_alternations - 1, alternate, jnp.ones(len(M), M.dtype))
    c = 1.0 / (r @ K)
    plan = (1.0 / (K @ c))[:, None] * K * c
    return plan / jnp.sum(plan, axis=1, keepdims=True)


def transport_cost(
    x: Points,
    y: Float[Array, "m n_dims"],
    a: Weights,
    b: Float[Array, " m"],
    eps: Float[Array, ""],
    n_alternations: int,
) -> Float[Array, ""]:
    """OT(x, y) from its dual, differentiated at its plan, as the envelope theorem allows."""
    M = squared_distances(x, y)
    f, g = jax.lax.stop_gradient(potentials(M, a, b, eps, n_alternations))
    plan = jnp.exp((f[:, None] + g - M) / eps + jnp.log(a)[:, None] + jnp.log(b))
    return a @ f + b @ g - eps * (jnp.sum(plan) - 1.0)


def potentials(
    M: Costs, a: Weights, b: Float[Array, " m"], eps: Float[Array, ""], n_alternations: int
) -> tuple[Weights, Float[Array, " m"]]:
    """The dual potentials f, g of the plan a_i b_j exp((f_i + g_j - M_ij) / eps).

    Alternations begin at a large eps and cool down to the one that is wanted.
    """
    log_a = jnp.log(a)
    log_b = jnp.log(b)
    hot = jnp.maximum(jnp.max(M), eps)

    def soft_min(values, eps, axis):
        return -eps * jax.nn.logsumexp(values, axis=axis)

    def alternate(k, fg):
        f, g = fg
        now = jnp.maximum(eps, hot * _COOLING**k)
        f = soft_min((g - M) / now + log_b, now, 1)
        g = soft_min((f[:, None] - M) / now + log_a[:, None], now, 0)
        return f, g

    start = (jnp.zeros(len(a), M.dtype), jnp.zeros(len(b), M.dtype))
    return jax.lax.fori_loop(0, n_alternations, alternate, start)


def sinkhorn_divergence(
    x: Points,
    y: Float[Array, "m n_dims"],
    a: Weights,
    b: Float[Array, " m"],
    *,
    blur: float = 0.01,
    n_alternations: int = 40,
) -> Float[Array, ""]:
    """S(x, y), with eps `blur` times the mean cost between the clouds; the gradient is in x."""
    eps = jax.lax.stop_gradient(blur * (a @ squared_distances(x, y) @ b))
    observed = jax.lax.stop_gradient(transport_cost(y, y, b, b, eps, n_alternations))
    cross = transport_cost(x, y, a, b, eps, n_alternations)
    own = transport_cost(x, x, a, a, eps, n_alternations)
    return cross - 0.5 * own - 0.5 * observed
