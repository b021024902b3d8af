"""The weak residual of the Fokker-Planck equation (Prop. 1 and 2):

    r(f) = E f(X_t) - E f(X_s) - sum_k w_k E[L f(X_k)]

with X_k the Euler chain started from the cloud observed at s and w_k the trapezoid weights. Prop. 1
takes for s the snapshot before t, Prop. 2 the first one; the formula is the same.
"""

from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from itofit.process.ito import ItoProcess
from itofit.weak.probes import AbstractProbe

Scalar = Float[Array, ""]


class Cloud(eqx.Module):
    """An empirical law: points with weights that sum to 1."""

    points: Float[Array, "n_samples n_dims"]
    weights: Float[Array, " n_samples"]

    def expect(self, f) -> Scalar:
        """E f(X) for a function of one sample."""
        return self.weights @ jax.vmap(f)(self.points)


def weak_residual(
    probe: AbstractProbe,
    target: Cloud,
    start: Cloud,
    path: "PathRead",
    quadrature: Float[Array, " n_nodes"],
) -> Scalar:
    """r(f) for one probe, with the chain from `start` read at the nodes of the quadrature."""
    transported = integral_of_generator(probe, path, start.weights, quadrature)
    return target.expect(probe) - start.expect(probe) - transported


def direct_residual(probe: AbstractProbe, target: Cloud, simulated: Cloud) -> Scalar:
    """E f(X_t) - E f of the simulated cloud: the residual without the weak form (an ablation)."""
    return target.expect(probe) - simulated.expect(probe)


class PathRead(eqx.Module):
    """A path at some nodes, with the drift g(X_k) there and the dispersion S(x) as a function."""

    points: Float[Array, "n_nodes n_samples n_dims"]
    drifts: Float[Array, "n_nodes n_samples n_dims"]
    dispersion: Callable[[Float[Array, " n_dims"]], Float[Array, "n_dims n_noise"]]

    @classmethod
    def of(
        cls, process: ItoProcess, points: Float[Array, "n_nodes n_samples n_dims"], dispersion=None
    ) -> "PathRead":
        """Read the process at these points; a `dispersion` for a stochastic trace replaces S(x)."""
        drifts = jax.vmap(jax.vmap(process.drift))(points)
        return cls(points, drifts, dispersion or process.diffusion)

    @classmethod
    def carried(
        cls,
        process: ItoProcess,
        path: Float[Array, "_ n_samples n_dims"],
        steps: Float[Array, " n_steps"],
        nodes: Int[Array, " n_nodes"],
        dispersion=None,
    ) -> "PathRead":
        """Read the chain at some nodes with the drift that carried it there and on from there.

        During a step the chain has the drift of the step's beginning: half of a node's weight
        belongs to the step before it, half to the step after (docs/theory/weak_form.md, section 3).
        """
        none = jnp.zeros(1, steps.dtype)
        before = jnp.concatenate([none, steps])[nodes]
        after = jnp.concatenate([steps, none])[nodes]
        fraction = (after / (before + after))[:, None, None]
        drift = jax.vmap(jax.vmap(process.drift))
        here = drift(path[nodes])
        earlier = drift(path[jnp.maximum(nodes - 1, 0)])
        carrying = fraction * here + (1.0 - fraction) * earlier
        return cls(path[nodes], carrying, dispersion or process.diffusion)


def integral_of_generator(
    probe: AbstractProbe,
    path: PathRead,
    weights: Float[Array, " n_samples"],
    quadrature: Float[Array, " n_nodes"],
) -> Scalar:
    """sum_k w_k E[L f(X_k)], a few nodes at a time so that memory stays bounded."""
    n_nodes, n_samples, n_dims = path.points.shape

    def generator(x, drift):
        return probe.generator(x, drift, path.dispersion(x))

    def integral(points, drifts, w):
        flat = jax.vmap(generator)(points.reshape(-1, n_dims), drifts.reshape(-1, n_dims))
        return w @ (flat.reshape(len(w), n_samples) @ weights)

    per_pass = max(1, points_a_pass(n_dims) // n_samples)
    if n_nodes <= per_pass:
        return integral(path.points, path.drifts, quadrature)
    blocks = (
        _in_blocks(path.points, per_pass, "edge"),
        _in_blocks(path.drifts, per_pass, "edge"),
        _in_blocks(quadrature, per_pass, "constant"),
    )
    step = jax.checkpoint(lambda total, block: (total + integral(*block), None))
    return jax.lax.scan(step, jnp.zeros((), path.points.dtype), blocks)[0]


def _in_blocks(
    array: Float[Array, "n_nodes ..."], size: int, mode: str
) -> Float[Array, "n_blocks size ..."]:
    """Cut the first axis into blocks, the last filled up: with its last node (`edge`), or zeros."""
    padding = [(0, -len(array) % size)] + [(0, 0)] * (array.ndim - 1)
    return jnp.pad(array, padding, mode=mode).reshape(-1, size, *array.shape[1:])


def points_a_pass(n_dims: int) -> int:
    """Points of a batched pass through a probe: what fits a CPU's cache, or fills a GPU."""
    columns = 16_384 if jax.default_backend() == "cpu" else 4_194_304
    return columns // (n_dims + 2)
