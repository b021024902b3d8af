"""Pinned paths: a process tied to the points of the snapshot before and of the one after.

Along the flow m' = g(m) from x, to first order in what the noise adds (delta = X - m),

    d delta = A delta du + S dW,    A = g'(m),      P_u = Var delta_u,   R_u = d delta_T / d delta_u

so that given X_T = y, with e = y - m_T,

    X_u ~ N(m_u + P_u R_u' P_T^-1 e,  P_u - P_u R_u' P_T^-1 R_u P_u)
    its drift there is  g(m_u) + A delta_u + S S' R_u' (P_T - R_u P_u R_u')^-1 (e - R_u delta_u)

Pairs (x, y) are drawn from the entropic plan of cost e' P_T^-1 e / 2. All is exact for linear
drifts; in many dimensions A is taken for zero, which leaves the Brownian bridge about the flow.
"""

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from itofit.process.drift import AbstractLinearDrift
from itofit.process.ito import ItoProcess
from itofit.simulate.blocks import in_blocks
from itofit.transport.stabilised import conditional_plan, whitened_costs

# Dimensions up to which the slope of the drift bends the pins.
MOST_LINEARISED = 8
N_STEPS = 10
# Points whose flows are followed at once.
_BLOCK = 256
# Part of its trace that is added to a covariance before it is factored.
_JITTER = 1e-5


class Span(NamedTuple):
    """The time of a snapshot, and the time to the next."""

    begin: Float[Array, ""]
    length: Float[Array, ""]


class Gap(NamedTuple):
    """Two neighbouring snapshots: points and weights of both, the time of the first, the gap."""

    x: Float[Array, "n n_dims"]
    x_weights: Float[Array, " n"]
    y: Float[Array, "m n_dims"]
    y_weights: Float[Array, " m"]
    begin: Float[Array, ""]
    length: Float[Array, ""]

    @property
    def span(self) -> Span:
        """When it is."""
        return Span(self.begin, self.length)


class Box(NamedTuple):
    """Where flows stay."""

    low: Float[Array, " n_dims"]
    high: Float[Array, " n_dims"]


class Pinned(NamedTuple):
    """Draws of pinned paths.

    - `points`, `times`: where a path is. `drift`: its forward drift there. `weights`: of draws.
    - `start`, `missed`: of the pair, where it began and what the flow misses at its end.
    - `spread`: the mean of P_T over the start points.
    """

    points: Float[Array, "n_samples n_dims"]
    times: Float[Array, " n_samples"]
    drift: Float[Array, "n_samples n_dims"]
    weights: Float[Array, " n_samples"]
    start: Float[Array, "n_samples n_dims"]
    missed: Float[Array, "n_samples n_dims"]
    spread: Float[Array, "n_dims n_dims"]


class Draws(NamedTuple):
    """Random numbers of a gap: for every draw two uniform ones, and normal ones."""

    partner: Float[Array, "n n_draws"]
    when: Float[Array, "n n_draws"]
    z: Float[Array, "n n_draws n_dims"]

    @classmethod
    def fresh(cls, rng: np.random.Generator, n: int, n_draws: int, n_dims: int) -> "Draws":
        """For so many points."""
        partner, when = rng.uniform(size=(2, n, n_draws))
        z = rng.standard_normal((n, n_draws, n_dims))
        return cls(*(jnp.asarray(numbers, dtype=float) for numbers in (partner, when, z)))


class Flow(NamedTuple):
    """The flow from every start point, step by step: its place, and the velocity there.

    - `noise`: S S' at the start.
    """

    place: Float[Array, "n n_places n_dims"]
    velocity: Float[Array, "n n_steps n_dims"]
    noise: Float[Array, "n n_dims n_dims"]


class Linear(NamedTuple):
    """What the noise adds to first order: at every step the slope A, and P and R."""

    slope: Float[Array, "n n_steps n_dims n_dims"]
    variance: Float[Array, "n n_places n_dims n_dims"]
    onward: Float[Array, "n n_steps n_dims n_dims"]


class _Pairs(NamedTuple):
    """For draws of every start point: the step, what the flow misses, standard normal numbers."""

    step: Int[Array, "n n_draws"]
    missed: Float[Array, "n n_draws n_dims"]
    z: Float[Array, "n n_draws n_dims"]


def pinned(process: ItoProcess, gap: Gap, box: Box, draws: Draws, linearised: bool) -> Pinned:
    """Places on the pinned paths of every start point, stratified in time.

    In two programs: what follows the flow serves all drifts. Flows are followed in blocks, so that
    one program serves all sizes.
    """
    about = [_flowing(process, x, gap.span, box, linearised) for x in in_blocks(gap.x, _BLOCK)]
    flow, linear = jax.tree.map(lambda *parts: jnp.concatenate(parts)[: len(gap.x)], *about)
    return _pinned_about(flow, linear, gap, draws)


@eqx.filter_jit
def _flowing(
    process: ItoProcess, starts: Float[Array, "n n_dims"], span: Span, box: Box, linearised: bool
) -> tuple[Flow, Linear | None]:
    """The flow from every start point, and what the noise adds where that is asked for."""
    noise = jax.vmap(lambda x: _covariance(process, x))(starts)
    place, velocity = jax.vmap(lambda x: _flow(process, x, span, box))(starts)
    flow = Flow(place, velocity, noise)
    if not linearised:
        return flow, None
    return flow, jax.vmap(lambda x, a: _linear(process, x, a, span))(place, noise)


@jax.jit
def _pinned_about(flow: Flow, linear: Linear | None, gap: Gap, draws: Draws) -> Pinned:
    ends = flow.place[:, -1]
    if linear is None:
        spread = gap.length * jnp.tensordot(gap.x_weights, flow.noise, 1)
        root = _root(spread)
        costs = whitened_costs(_solved(root, ends), _solved(root, gap.y))
        pairs = _pairs(costs, gap, ends, draws)
        points, drift = _on_plain_pins(flow, root, gap.length, pairs)
    else:
        last = linear.variance[:, -1]
        spread = jnp.tensordot(gap.x_weights, last, 1)
        pairs = _pairs(_costs(ends, jax.vmap(_root)(last), gap.y), gap, ends, draws)
        of_point = jax.vmap(_on_linear_pin, in_axes=(None, None, 0, 0, 0))
        points, drift = jax.vmap(of_point)(flow, linear, *pairs)
    n_draws, n_dims = pairs.missed.shape[1:]
    return Pinned(
        points.reshape(-1, n_dims),
        gap.begin + gap.length * pairs.step.ravel() / N_STEPS,
        drift.reshape(-1, n_dims),
        jnp.repeat(gap.x_weights / n_draws, n_draws),
        jnp.repeat(gap.x, n_draws, axis=0),
        pairs.missed.reshape(-1, n_dims),
        spread,
    )


def _covariance(process: ItoProcess, x: Float[Array, " n_dims"]) -> Float[Array, "n_dims n_dims"]:
    factor = process.diffusion(x)
    return factor @ factor.T


def _flow(
    process: ItoProcess, x: Float[Array, " n_dims"], span: Span, box: Box
) -> tuple[Float[Array, "n_places n_dims"], Float[Array, "n_steps n_dims"]]:
    """Places and velocities of midpoint steps."""
    h = span.length / N_STEPS

    def step(place, k):
        now = span.begin + k * h
        velocity = process.drift.at(now)(place)
        middle = process.drift.at(now + 0.5 * h)(place + 0.5 * h * velocity)
        return jnp.clip(place + h * middle, box.low, box.high), (place, velocity)

    end, (place, velocity) = jax.lax.scan(step, x, jnp.arange(N_STEPS))
    return jnp.concatenate([place, end[None]]), velocity


def _linear(
    process: ItoProcess,
    place: Float[Array, "n_places n_dims"],
    noise: Float[Array, "n_dims n_dims"],
    span: Span,
) -> Linear:
    h = span.length / N_STEPS
    eye = jnp.eye(len(noise), dtype=noise.dtype)

    def slope_at(k):
        drift = process.drift.at(span.begin + k * h)
        assert isinstance(drift, AbstractLinearDrift)
        return drift.slope(place[k])

    slope = jax.vmap(slope_at)(jnp.arange(N_STEPS + 1))
    middle = 0.5 * (slope[:-1] + slope[1:])
    M = eye + h * middle @ (eye + 0.5 * h * middle)

    def grow(P, m):
        after = m @ (P + 0.5 * h * noise) @ m.T + 0.5 * h * noise
        return after, after

    _, variance = jax.lax.scan(grow, jnp.zeros_like(noise), M)
    _, onward = jax.lax.scan(lambda R, m: (R @ m, R @ m), eye, M, reverse=True)
    return Linear(slope[:-1], jnp.concatenate([jnp.zeros_like(noise)[None], variance]), onward)


def _root(covariance: Float[Array, "n_dims n_dims"]) -> Float[Array, "n_dims n_dims"]:
    """The Cholesky factor of a covariance, which may have lost its rank."""
    size = jnp.trace(covariance) / len(covariance)
    eye = jnp.eye(len(covariance), dtype=covariance.dtype)
    return jnp.linalg.cholesky(covariance + (_JITTER * size + 1e-20) * eye)


def _solved(
    root: Float[Array, "n_dims n_dims"], rows: Float[Array, "n n_dims"]
) -> Float[Array, "n n_dims"]:
    """root^-1 x of every row x."""
    return jax.scipy.linalg.solve_triangular(root, rows.T, lower=True).T


def _costs(
    ends: Float[Array, "n n_dims"],
    roots: Float[Array, "n n_dims n_dims"],
    y: Float[Array, "m n_dims"],
) -> Float[Array, "n m"]:
    """E' P^-1 e / 2 of every pair."""
    eye = jnp.eye(y.shape[1], dtype=y.dtype)
    inverse = jax.vmap(lambda root: _solved(root, eye).T)(roots)
    here = jnp.einsum("nij,nj->ni", inverse, ends)
    there = jnp.einsum("nij,mj->nmi", inverse, y)
    return 0.5 * jnp.sum((there - here[:, None]) ** 2, axis=-1)


def _pairs(
    costs: Float[Array, "n m"], gap: Gap, ends: Float[Array, "n n_dims"], draws: Draws
) -> _Pairs:
    plan = conditional_plan(costs, gap.x_weights, gap.y_weights)
    after = _drawn(plan, draws.partner)
    n_draws = draws.when.shape[1]
    strata = (jnp.arange(n_draws) + draws.when) / n_draws
    step = jnp.minimum((strata * N_STEPS).astype(int), N_STEPS - 1)
    return _Pairs(step, gap.y[after] - ends[:, None], draws.z)


def _drawn(plan: Float[Array, "n m"], level: Float[Array, "n n_draws"]) -> Int[Array, "n n_draws"]:
    """Columns drawn from every row of a plan."""
    sums = jnp.cumsum(plan, axis=1)
    places = jax.vmap(jnp.searchsorted)(sums, level * sums[:, -1:])
    return jnp.minimum(places, plan.shape[1] - 1)


def _on_plain_pins(
    flow: Flow,
    root: Float[Array, "n_dims n_dims"],
    length: Float[Array, ""],
    pairs: _Pairs,
) -> tuple[Float[Array, "n n_draws n_dims"], Float[Array, "n n_draws n_dims"]]:
    """Brownian bridges about the flow; `root` is that of the noise of the whole gap."""
    done = pairs.step[..., None] / N_STEPS
    delta = done * pairs.missed + jnp.sqrt(done * (1.0 - done)) * (pairs.z @ root.T)
    place = jnp.take_along_axis(flow.place, pairs.step[..., None], axis=1)
    velocity = jnp.take_along_axis(flow.velocity, pairs.step[..., None], axis=1)
    return place + delta, velocity + (pairs.missed - delta) / (length * (1.0 - done))


def _on_linear_pin(
    flow: Flow,
    linear: Linear,
    k: Int[Array, ""],
    missed: Float[Array, " n_dims"],
    z: Float[Array, " n_dims"],
) -> tuple[Float[Array, " n_dims"], Float[Array, " n_dims"]]:
    """Where a pinned path from one start point is at step k, and its drift there."""
    P = linear.variance[k]
    R = linear.onward[k]
    last = linear.variance[-1]
    gain = _inverse_times(last, R @ P).T
    delta = gain @ missed + _root(P - gain @ R @ P) @ z
    rest = last - R @ P @ R.T
    pull = flow.noise @ R.T @ _inverse_times(rest, (missed - R @ delta)[:, None])[:, 0]
    return flow.place[k] + delta, flow.velocity[k] + linear.slope[k] @ delta + pull


def _inverse_times(
    covariance: Float[Array, "n_dims n_dims"], rows: Float[Array, "n_dims n"]
) -> Float[Array, "n_dims n"]:
    return jax.scipy.linalg.cho_solve((_root(covariance), True), rows)
