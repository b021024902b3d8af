"""The weak residual of the Fokker-Planck equation (Prop. 1 and 2):

    r(f) = E f(X_t) - E f(X_s) - sum_k w_k E[L f(X_k)]

with X_k the Euler chain started from the cloud seen at s and w_k the trapezoid weights. Prop. 1 takes
for s the snapshot before t, Prop. 2 the first one; the formula is the same.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from itofit.process.ito import ItoProcess
from itofit.weak.probes import AbstractProbe

Scalar = Float[Array, ""]

# Points of one batched pass through a probe. A few thousand keep every layer inside the cache of a CPU core.
_POINTS_A_PASS = 4096


class Cloud(eqx.Module):
    """An empirical law: points with weights that sum to 1."""

    points: Float[Array, "n_samples n_dims"]
    weights: Float[Array, " n_samples"]

    def expect(self, f) -> Scalar:
        """E f(X) for a function of one sample."""
        return self.weights @ jax.vmap(f)(self.points)


def weak_residual(
    probe: AbstractProbe,
    process: ItoProcess,
    target: Cloud,
    start: Cloud,
    nodes: Float[Array, "n_nodes n_samples n_dims"],
    quadrature: Float[Array, " n_nodes"],
    dispersion=None,
) -> Scalar:
    """r(f) for one probe; `nodes` is the chain from `start` at the nodes where the quadrature reads it.

    `dispersion` replaces the process's own S(x), for a stochastic trace.
    """
    transported = integral_of_generator(probe, process, nodes, start.weights, quadrature, dispersion)
    return target.expect(probe) - start.expect(probe) - transported


def direct_residual(probe: AbstractProbe, target: Cloud, simulated: Cloud) -> Scalar:
    """E f(X_t) - E f of the simulated cloud: the same discrepancy without the weak form (an ablation)."""
    return target.expect(probe) - simulated.expect(probe)


def integral_of_generator(
    probe: AbstractProbe,
    process: ItoProcess,
    nodes: Float[Array, "n_nodes n_samples n_dims"],
    weights: Float[Array, " n_samples"],
    quadrature: Float[Array, " n_nodes"],
    dispersion=None,
) -> Scalar:
    """sum_k w_k E[L f(X_k)], a few nodes at a time; what a pass computes is recomputed for gradients."""
    noise = process.diffusion if dispersion is None else dispersion

    def generator(x):
        return probe.generator(x, process.drift(x), noise(x))

    @jax.checkpoint
    def passed(total, some):
        points, w = some
        return total + w @ (jax.vmap(jax.vmap(generator))(points) @ weights), None

    per_pass = max(1, _POINTS_A_PASS // nodes.shape[1])
    total, rest = jnp.zeros((), nodes.dtype), len(nodes) % per_pass
    whole = len(nodes) - rest
    if whole:
        blocks = (nodes[:whole].reshape(-1, per_pass, *nodes.shape[1:]), quadrature[:whole].reshape(-1, per_pass))
        total, _ = jax.lax.scan(passed, total, blocks)
    if rest:
        total, _ = passed(total, (nodes[whole:], quadrature[whole:]))
    return total
