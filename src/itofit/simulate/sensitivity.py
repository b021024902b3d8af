"""How the end of an Euler chain moves with the coefficients of its drift and of its noise.

For g(x) = c W' phi(x) and the chain X_{k+1} = step(X_k) = X_k + g(X_k) h_k + S(X_k) sqrt(h_k) Z_k,

    dX_K / dW_fo   = c sum_k h_k (M_{K-1} ... M_{k+1})_{. o} phi_f(X_k)
    dX_K / dtheta  = sum_k sqrt(h_k) M_{K-1} ... M_{k+1} (dS / dtheta)(X_k) Z_k
    M_k            = d step / dx at X_k

It is the derivative of the chain as it is, so no Itô correction is due.

Of a drift with a potential, g(x) = -c D grad (w' psi)(x), whose phi is a row for every coordinate,

    dX_K / dw_f    = c sum_k h_k sum_o (M_{K-1} ... M_{k+1})_{. o} phi_of(X_k)

The products are built from the last step backwards, D x D a particle. Carrying dX/dW forwards
instead costs D times more. Steps are taken in blocks of fixed length and a block is one batched
matrix product; a chain that does not fill its last block is filled up with steps of length zero, so
one compilation serves all chains.

Where R slopes u_r at the end are wanted and the chain is shorter than D, it is cheaper to carry
them backwards, lambda_r <- lambda_r M_k, and to sum h_k lambda_ro phi_f over steps and particles:
R D (D + F) a step and particle.
"""

from collections.abc import Callable
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PRNGKeyArray

from itofit.process.drift import AbstractLinearDrift
from itofit.process.ito import ItoProcess
from itofit.process.noise import AbstractDiffusion

# Steps a block: long enough for a matrix product, short enough to waste little.
BLOCK = 20


class Sensitivities(NamedTuple):
    """The end of a chain and what moves it.

    - `by_drift`: dX_K / dW per unit of speed, `[particle, i, o, f]`.
    - `by_noise`: dX_K / dtheta in units of theta.
    """

    end: Float[Array, "n n_dims"]
    by_drift: Float[Array, "n n_dims n_outputs n_features"]
    by_noise: Float[Array, "n n_dims n_parameters"]


@eqx.filter_jit
def chain_ends(
    process: ItoProcess,
    start: Float[Array, "n n_dims"],
    times: Float[Array, " n_steps"],
    steps: Float[Array, " n_steps"],
    noise: Float[Array, "n_steps n n_dims"],
    n_taken: Int[Array, ""],
    heun: bool = False,
) -> Float[Array, "n n_dims"]:
    """The chain of Euler or of Heun after `n_taken` of the steps, whose middles are `times`."""

    def step(k, x):
        now = process.at(times[k])
        move = now.heun_step if heun else now.euler_step
        return jax.vmap(move, in_axes=(0, None, 0))(x, steps[k], noise[k])

    return jax.lax.fori_loop(0, n_taken, step, start)


@eqx.filter_jit
def finer_ends(
    process: ItoProcess,
    start: Float[Array, "n n_dims"],
    times: Float[Array, " n_steps"],
    steps: Float[Array, " n_steps"],
    noise: Float[Array, "n_steps n n_dims"],
    n_taken: Int[Array, ""],
    key: PRNGKeyArray,
    n_parts: int,
) -> Float[Array, "n n_dims"]:
    """The chain of Euler with every step cut into `n_parts`, driven by the same Brownian motion.

    `noise` is that of the whole steps. That of the parts is drawn on the way, given their sum:

        z_j = Z / sqrt(m) + e_j - mean(e),        e_1 ... e_m ~ N(0, I)
    """

    def step(k, x):
        h = steps[k] / n_parts
        inside = jax.random.normal(jax.random.fold_in(key, k), (n_parts, *x.shape), x.dtype)
        parts = noise[k] / jnp.sqrt(n_parts) + inside - inside.mean(axis=0)

        def part(j, y):
            now = process.at(times[k] + (j + 0.5 - 0.5 * n_parts) * h)
            return jax.vmap(now.euler_step, in_axes=(0, None, 0))(y, h, parts[j])

        return jax.lax.fori_loop(0, n_parts, part, x)

    return jax.lax.fori_loop(0, n_taken, step, start)


@eqx.filter_jit
def chain_sensitivities(
    drift: AbstractLinearDrift,
    diffusion: AbstractDiffusion,
    start: Float[Array, "n n_dims"],
    times: Float[Array, " n_steps"],
    steps: Float[Array, " n_steps"],
    noise: Float[Array, "n_steps n n_dims"],
    n_blocks: Int[Array, ""],
    block: int = BLOCK,
) -> Sensitivities:
    """The chain after `n_blocks` blocks of `block` steps, and what moves it."""
    n, n_dims = start.shape
    slope_at = _step_slope(drift, diffusion)
    end, nodes = _nodes(ItoProcess(drift, diffusion), start, times, steps, noise, n_blocks * block)

    def backward(i, carry):
        flow, total, kicked = carry
        at = (n_blocks - 1 - i) * block
        x, t, h, z = (
            jax.lax.dynamic_slice_in_dim(a, at, block) for a in (nodes, times, steps, noise)
        )
        slopes = jax.vmap(jax.vmap(slope_at, in_axes=(0, None, None, 0)))(x, t, h, z)
        flow, flows = jax.lax.scan(lambda m, s: (_times(m, s), m), flow, slopes, reverse=True)
        weighted = jnp.moveaxis(flows * h[:, None, None, None], 1, 0)
        phi = jnp.moveaxis(jax.vmap(lambda y, now: jax.vmap(drift.at(now).phi)(y))(x, t), 1, 0)
        if diffusion.n_parameters:
            kicks = jax.vmap(jax.vmap(_kick(diffusion), in_axes=(0, None, 0)))(x, h, z)
            kicked = kicked + jnp.einsum("bnio,bnop->nip", flows, kicks)
        return flow, total + _moved(weighted, phi), kicked

    identity = jnp.broadcast_to(jnp.eye(n_dims, dtype=start.dtype), (n, n_dims, n_dims))
    n_features, n_outputs = drift.coefficients.shape
    empty = jnp.zeros((n, n_dims, n_outputs, n_features), start.dtype)
    unmoved = jnp.zeros((n, n_dims, diffusion.n_parameters), start.dtype)
    _, total, kicked = jax.lax.fori_loop(0, n_blocks, backward, (identity, empty, unmoved))
    return Sensitivities(end, total, kicked)


def chain_adjoints(
    drift: AbstractLinearDrift,
    diffusion: AbstractDiffusion,
    start: Float[Array, "n n_dims"],
    times: Float[Array, " n_steps"],
    steps: Float[Array, " n_steps"],
    noise: Float[Array, "n_steps n n_dims"],
    n_taken: Int[Array, ""],
    slopes_at: Callable[[Float[Array, "n n_dims"]], Float[Array, "n n_rows n_dims"]],
) -> tuple[Float[Array, "n_rows n_outputs n_features"], Float[Array, "n_rows n_parameters"]]:
    """Sums over particles of u_r' dX_K / dW and of u_r' dX_K / dtheta, u_r = `slopes_at(X_K)`.

    The first is per unit of speed, the second in units of theta.
    """
    slope_at = _step_slope(drift, diffusion)
    end, nodes = _nodes(ItoProcess(drift, diffusion), start, times, steps, noise, n_taken)

    def backward(i, carry):
        adjoint, total, kicked = carry
        k = n_taken - 1 - i
        phi = jax.vmap(drift.at(times[k]).phi)(nodes[k])
        total = total + steps[k] * _gathered(adjoint, phi)
        slopes = jax.vmap(slope_at, in_axes=(0, None, None, 0))
        slope = slopes(nodes[k], times[k], steps[k], noise[k])
        if diffusion.n_parameters:
            kicks = jax.vmap(_kick(diffusion), in_axes=(0, None, 0))(nodes[k], steps[k], noise[k])
            kicked = kicked + jnp.einsum("nro,nop->rp", adjoint, kicks)
        return adjoint @ slope, total, kicked

    adjoint = slopes_at(end)
    n_features, n_outputs = drift.coefficients.shape
    empty = jnp.zeros((adjoint.shape[1], n_outputs, n_features), start.dtype)
    unmoved = jnp.zeros((adjoint.shape[1], diffusion.n_parameters), start.dtype)
    return jax.lax.fori_loop(0, n_taken, backward, (adjoint, empty, unmoved))[1:]


def _moved(
    flows: Float[Array, "n block n_dims n_dims"], phi: Float[Array, "n block *n_dims n_features"]
) -> Float[Array, "n n_dims n_outputs n_features"]:
    """What the steps of a block add to dX / dW."""
    n, block, n_dims, _ = flows.shape
    if phi.ndim == 4:  # a potential: one output, a row of phi for every coordinate
        across = jnp.swapaxes(flows, 1, 2).reshape(n, n_dims, block * n_dims)
        return (across @ phi.reshape(n, block * n_dims, -1))[:, :, None]
    moved = jnp.einsum("nbi,nbf->nif", flows.reshape(n, block, n_dims * n_dims), phi)
    return moved.reshape(n, n_dims, n_dims, -1)


def _gathered(
    adjoint: Float[Array, "n n_rows n_dims"], phi: Float[Array, "n *n_dims n_features"]
) -> Float[Array, "n_rows n_outputs n_features"]:
    """What a step adds to the slopes in the coefficients."""
    if phi.ndim == 3:
        return jnp.einsum("nro,nof->rf", adjoint, phi)[:, None]
    return jnp.einsum("nro,nf->rof", adjoint, phi)


def _step_slope(drift: AbstractLinearDrift, diffusion: AbstractDiffusion):
    """M = d step / dx, as a function of the state, the time, the step and the noise."""

    def slope_at(x, t, h, z):
        slope = jnp.eye(len(x), dtype=x.dtype) + h * drift.at(t).slope(x)
        if diffusion.constant:
            return slope
        return slope + jnp.sqrt(h) * jax.jacfwd(lambda y: diffusion(y) @ z)(x)

    return slope_at


def _kick(diffusion: AbstractDiffusion):
    """The derivative d step / d theta, as a function of the state, the step and the noise."""
    unmoved = jnp.zeros(diffusion.n_parameters)

    def kick_at(x, h, z):
        return jnp.sqrt(h) * jax.jacfwd(lambda v: diffusion.moved(v)(x) @ z)(unmoved)

    return kick_at


def _nodes(process: ItoProcess, start, times, steps, noise, n_taken) -> tuple[Array, Array]:
    """The end of the chain after `n_taken` steps and the nodes before it."""

    def forward(k, carry):
        x, nodes = carry
        step = jax.vmap(process.at(times[k]).euler_step, in_axes=(0, None, 0))
        return step(x, steps[k], noise[k]), nodes.at[k].set(x)

    return jax.lax.fori_loop(0, n_taken, forward, (start, jnp.zeros_like(noise)))


def _times(a: Float[Array, "n d d"], b: Float[Array, "n d d"]) -> Float[Array, "n d d"]:
    # Written out for few dimensions: a batch of tiny matrix products costs more in calls than in
    # arithmetic.
    if a.shape[-1] <= 4:
        return jnp.sum(a[:, :, :, None] * b[:, None, :, :], axis=2)
    return a @ b
