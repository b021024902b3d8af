"""A network drift fitted to a known one by least squares, where the known process goes:

minimise over w   sum over points x of the simulated clouds   |g_w(x) - g(x)|^2
"""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, PRNGKeyArray

from itofit.process.drift import AbstractDrift
from itofit.process.ito import ItoProcess
from itofit.simulate.euler import euler_path
from itofit.simulate.mesh import Mesh
from itofit.snapshots.clouds import Snapshots

_N_CHAINS, _N_NODES, _N_STEPS, _RATE = 512, 40, 1500, 3e-3


def imitate(
    drift: AbstractDrift, teacher: ItoProcess, snapshots: Snapshots, mesh: Mesh, *, key: PRNGKeyArray
) -> AbstractDrift:
    """`drift` trained to equal the teacher's on its own clouds and on the snapshots."""
    k_noise, k_batch = jax.random.split(key)
    start = jnp.asarray(snapshots.clouds[0][:_N_CHAINS], dtype=float)
    steps = jnp.asarray(mesh.steps, dtype=float)
    noise = jax.random.normal(k_noise, (len(steps), *start.shape))
    nodes = np.unique(np.linspace(0, len(steps), _N_NODES).astype(int))
    simulated = _path(teacher, start, steps, noise)[nodes].reshape(-1, snapshots.n_dims)
    seen = jnp.asarray(np.concatenate(snapshots.clouds), dtype=float)
    points = jnp.concatenate([simulated[jnp.all(jnp.isfinite(simulated), axis=1)], seen])
    return _trained(drift, points, jax.vmap(teacher.drift)(points), k_batch)


@eqx.filter_jit
def _path(teacher, start, steps, noise):
    return euler_path(teacher, start, steps, noise)


@eqx.filter_jit
def _trained(drift: AbstractDrift, points: Array, wanted: Array, key: PRNGKeyArray) -> AbstractDrift:
    weights, static = eqx.partition(drift, eqx.is_inexact_array)
    scale = jnp.mean(wanted**2)
    optimiser = optax.adam(optax.cosine_decay_schedule(_RATE, _N_STEPS))

    def step(carry, k):
        weights, memory = carry
        rows = jax.random.randint(k, (512,), 0, len(points))

        def loss(weights):
            found = jax.vmap(eqx.combine(weights, static))(points[rows])
            return jnp.mean((found - wanted[rows]) ** 2) / scale

        slope = jax.grad(loss)(weights)
        updates, memory = optimiser.update(slope, memory)
        return (eqx.apply_updates(weights, updates), memory), None

    (weights, _), _ = jax.lax.scan(step, (weights, optimiser.init(weights)), jax.random.split(key, _N_STEPS))
    return eqx.combine(weights, static)
