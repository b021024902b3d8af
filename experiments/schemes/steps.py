"""The schemes, the Brownian increments and areas they are given, and the meshes they run on."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from importlib.util import find_spec

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from itofit import KnownSystem
from itofit.process.ito import ItoProcess
from itofit.simulate.mesh import Mesh

Array = np.ndarray
Run = tuple[str, float]

# Steps of Euler's chain; a scheme with two drift evaluations a step is given steps twice as long.
EULER_STEPS = (0.02, 0.01, 0.005, 0.0025)
# Cells of the reference a step of 0.01: every step of every scheme is a whole number of cells.
CELLS = 48
BATCH = 2000


def euler(process: ItoProcess, x, h, w, area):
    """A step of Euler-Maruyama, given the increment W."""
    del area
    return process.euler_step(x, h, w / jnp.sqrt(h))


def heun(process: ItoProcess, x, h, w, area):
    """A step of Heun, given the increment W."""
    del area
    return process.heun_step(x, h, w / jnp.sqrt(h))


def shark(process: ItoProcess, x, h, w, area):
    """A step of diffrax's ShARK, given the increment W and the space-time area H = int W ds / h - W
    / 2.
    """
    import diffrax

    class Given(diffrax.AbstractPath):
        """The Brownian path of this one step; a plain function is not asked for the area."""

        t0 = 0.0
        t1 = np.inf

        def evaluate(self, t0, t1=None, left=True, use_levy=True):
            return diffrax.SpaceTimeLevyArea(dt=h, W=w, H=area)

    drift = diffrax.ODETerm(lambda t, y, args: process.drift(y))
    noise = diffrax.ControlTerm(lambda t, y, args: process.diffusion(y), Given())
    terms = diffrax.MultiTerm(drift, noise)
    return diffrax.ShARK().step(terms, jnp.zeros_like(h), h, x, None, None, made_jump=False)[0]


@dataclass(frozen=True)
class Scheme:
    """A step for one sample, its drift evaluations, and whether it needs the area H."""

    step: Callable
    evaluations: int
    needs_area: bool = False


SCHEMES = {
    "Euler": Scheme(euler, 1),
    "Heun": Scheme(heun, 2),
    "ShARK": Scheme(shark, 2, needs_area=True),
}


def available() -> list[str]:
    """The schemes that can be run here."""
    return [name for name in SCHEMES if name != "ShARK" or find_spec("diffrax")]


@eqx.filter_jit
def simulate(scheme: Scheme, process: ItoProcess, start, steps, w, area):
    """Every node of a path, given the Brownian increments and areas of its steps."""

    def step(x, given):
        h, increment, step_area = given
        steps_of_all = jax.vmap(scheme.step, in_axes=(None, 0, None, 0, 0))
        x = steps_of_all(process, x, h, increment, step_area)
        return x, x

    return jnp.concatenate([start[None], jax.lax.scan(step, start, (steps, w, area))[1]])


def draw(key, n: int, n_dims: int, steps):
    """Independent W ~ N(0, h) and H ~ N(0, h / 12) of every step."""
    w, area = jax.random.normal(key, (2, len(steps), n, n_dims))
    scale = jnp.sqrt(jnp.asarray(steps))[:, None, None]
    return scale * w, scale * area / np.sqrt(12.0)


@jax.jit
def coarsened(w, area, cell, nodes):
    """W and H over the steps between `nodes` (counted in cells), from those of the cells: the same
    Brownian path.
    """
    zero = jnp.zeros_like(w[:1])
    path = jnp.concatenate([zero, jnp.cumsum(w, 0)])
    integral = jnp.concatenate([zero, jnp.cumsum(cell * (path[:-1] + 0.5 * w + area), 0)])
    start = path[nodes[:-1]]
    grown = jnp.diff(path[nodes], axis=0)
    length = cell * jnp.diff(nodes)[:, None, None]
    return grown, (jnp.diff(integral[nodes], axis=0) / length - start) - 0.5 * grown


def report_times(system: KnownSystem) -> list[float]:
    """The paper's training and test times after 0, in order."""
    return sorted({t for t in (*system.train_times, *system.test_times) if t > 0.0})


def mesh_of(system: KnownSystem, dt: float) -> Mesh:
    """Every gap between the reported times cut into equal steps no longer than `dt`."""
    return Mesh.refine([0.0, *report_times(system)], dt)


def runs(schemes: Iterable[str]) -> list[Run]:
    """Scheme and step of every run of the first part."""
    return [(name, h * SCHEMES[name].evaluations) for name in schemes for h in EULER_STEPS]
