"""Which scheme and which quadrature? The error of the simulated law, of the weak form and of a fit, at equal cost.

    python -m experiments.schemes --system syn1 syn3 --json schemes.json

- law: Euler-Maruyama, Heun and ShARK (an additive-noise Runge-Kutta scheme of diffrax, left out where diffrax is
  not installed) against continuous time. Cost is the number of drift evaluations along a path.
- quadrature: the weak residual of the true drift under four rules in time, against the law of the Euler chain with
  the system's step and against the law in continuous time.
- fit: the affine drift of Syn-1 that makes the residual of f(x) = x vanish, without sampling noise.

Between its nodes the Euler chain is an Ito process whose drift g(X_k) stands still, so

    E f(X_K) - E f(X_0) = sum_k int_{t_k}^{t_{k+1}} E[g(X_k) . grad f(X_s) + tr(a hess f(X_s)) / 2] ds.

The rule called `chain` is the trapezoid rule for these integrals; it is exact for f of degree 2 and additive noise.
On Syn-1 all is exact but ShARK's law; on Syn-3 all schemes and the reference share one Brownian path.
"""

import argparse
import itertools
import json
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import scipy.optimize

from itofit import InputError, KnownSystem, known_system
from itofit.process.ito import ItoProcess
from itofit.simulate.mesh import Mesh

Array = np.ndarray
Record = dict[str, Any]
Run = tuple[str, float]
Errors = dict[str, np.ndarray]

# Steps of Euler's chain; a scheme with two drift evaluations a step is given steps twice as long.
EULER_STEPS = (0.02, 0.01, 0.005, 0.0025)
# Cells of the reference a step of 0.01: every step of every scheme is a whole number of cells.
CELLS = 48
BATCH = 2000
# The law a residual is held against: that of the Euler chain with the system's step, or that in continuous time.
DATA = ("discrete", "continuous")


def euler(process: ItoProcess, x, h, w, area):
    """A step of Euler-Maruyama, given the increment W."""
    del area
    return process.euler_step(x, h, w / jnp.sqrt(h))


def heun(process: ItoProcess, x, h, w, area):
    """A step of Heun, given the increment W."""
    del area
    return process.heun_step(x, h, w / jnp.sqrt(h))


def shark(process: ItoProcess, x, h, w, area):
    """A step of diffrax's ShARK, given the increment W and the space-time area H = int W ds / h - W / 2."""
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


SCHEMES = {"Euler": Scheme(euler, 1), "Heun": Scheme(heun, 2), "ShARK": Scheme(shark, 2, needs_area=True)}


def available() -> list[str]:
    """The schemes that can be run here."""
    return [name for name in SCHEMES if name != "ShARK" or find_spec("diffrax")]


@eqx.filter_jit
def simulate(scheme: Scheme, process: ItoProcess, start, steps, w, area):
    """Every node of a path, given the Brownian increments and areas of its steps."""

    def step(x, some):
        x = jax.vmap(scheme.step, in_axes=(None, 0, None, 0, 0))(process, x, *some)
        return x, x

    return jnp.concatenate([start[None], jax.lax.scan(step, start, (steps, w, area))[1]])


def draw(key, n: int, n_dims: int, steps):
    """Independent W ~ N(0, h) and H ~ N(0, h / 12) of every step."""
    w, area = jax.random.normal(key, (2, len(steps), n, n_dims))
    scale = jnp.sqrt(jnp.asarray(steps))[:, None, None]
    return scale * w, scale * area / np.sqrt(12.0)


@jax.jit
def coarsened(w, area, cell, nodes):
    """W and H over the steps between `nodes` (counted in cells), from those of the cells: the same Brownian path."""
    zero = jnp.zeros_like(w[:1])
    path = jnp.concatenate([zero, jnp.cumsum(w, 0)])
    integral = jnp.concatenate([zero, jnp.cumsum(cell * (path[:-1] + 0.5 * w + area), 0)])
    start, grown, length = path[nodes[:-1]], jnp.diff(path[nodes], axis=0), cell * jnp.diff(nodes)[:, None, None]
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


@dataclass(frozen=True)
class Linear:
    """dX = -a (X - mu) dt + sigma dW in every coordinate."""

    a: Array
    mu: Array
    sigma: float

    @classmethod
    def of(cls, system: KnownSystem) -> "Linear":
        """Syn-1's coefficients."""
        assert system.linear is not None
        return cls(np.diag(system.linear.matrix), system.linear.fixed_point, sigma_of(system))

    def factors(self, scheme: str, h: float) -> tuple[Array, Array | float]:
        """What a step multiplies X - mu and sigma W by."""
        z = self.a * h
        return (1.0 - z, 1.0) if scheme == "Euler" else (1.0 - z + 0.5 * z**2, 1.0 - 0.5 * z)

    def path(self, scheme: str, mean: Array, var: Array, steps: Array) -> tuple[Array, Array]:
        """Mean and variance at every node."""
        means, variances = [mean], [var]
        for h in steps:
            flow, kick = self.factors(scheme, h)
            means.append(self.mu + flow * (means[-1] - self.mu))
            variances.append(flow**2 * variances[-1] + h * (self.sigma * kick) ** 2)
        return np.array(means), np.array(variances)

    def continuous(self, mean: Array, var: Array, t: float) -> tuple[Array, Array]:
        """Mean and variance after a time t."""
        flow, rest = np.exp(-self.a * t), self.sigma**2 / (2.0 * self.a)
        return self.mu + flow * (mean - self.mu), rest + flow**2 * (var - rest)


def sigma_of(system: KnownSystem) -> float:
    """The sigma of S = sigma I."""
    return float(system.process.diffusion(jnp.zeros(system.n_dims))[0, 0])


def start_of(system: KnownSystem) -> tuple[Array, Array]:
    """Mean and variance of the initial law."""
    return np.zeros(system.n_dims), np.diag(system.initial_cov).copy()


def exact_law_errors(system: KnownSystem, scheme: str, dt: float) -> Errors:
    """Mean and sd error in units of sd at the reported times, without Monte Carlo (Euler and Heun on Syn-1)."""
    linear, mesh = Linear.of(system), mesh_of(system, dt)
    means, variances = linear.path(scheme, *start_of(system), mesh.steps)
    nodes = list(mesh.observed[1:])
    truth = [linear.continuous(*start_of(system), t) for t in report_times(system)]
    mean, sd = np.array([m for m, _ in truth]), np.sqrt([v for _, v in truth])
    none = np.zeros_like(sd)
    return {
        "mean": (means[nodes] - mean) / sd,
        "mean_se": none,
        "sd": np.sqrt(variances[nodes]) / sd - 1.0,
        "sd_se": none,
    }


def paired_errors(x: Array, y: Array) -> Errors:
    """Mean and sd of x less those of y in units of y's sd, the samples (axis 1) being paired, with standard errors."""
    sd = y.std(1)
    shift = (x - y) / sd[:, None]
    spread = ((x - x.mean(1, keepdims=True)) ** 2 - (y - y.mean(1, keepdims=True)) ** 2) / (2.0 * sd[:, None] ** 2)
    root_n = np.sqrt(x.shape[1])
    return {
        "mean": shift.mean(1),
        "mean_se": shift.std(1) / root_n,
        "sd": x.std(1) / sd - 1.0,
        "sd_se": spread.std(1) / root_n,
    }


def shark_law_errors(system: KnownSystem, dt: float, n: int, key) -> Errors:
    """ShARK on Syn-1: paired with Heun at the same step, whose own error is exact."""
    mesh, pairs = mesh_of(system, dt), []
    for k in jax.random.split(key, max(1, n // BATCH)):
        k0, k1 = jax.random.split(k)
        start = system.sample_initial(min(n, BATCH), k0)
        noise = draw(k1, len(start), system.n_dims, mesh.steps)
        both = [simulate(SCHEMES[s], system.process, start, mesh.steps, *noise) for s in ("ShARK", "Heun")]
        pairs.append([np.asarray(path[np.array(mesh.observed[1:])]) for path in both])
    x, y = np.concatenate(pairs, axis=2)
    errors, known = paired_errors(x, y), exact_law_errors(system, "Heun", dt)
    return errors | {name: errors[name] + known[name] for name in ("mean", "sd")}


@dataclass(frozen=True)
class Refined:
    """Paths of several schemes, and the reference (Heun on cells of 0.01 / 48), all on one Brownian path."""

    paths: dict[Run, Array]
    increments: Array
    reference: Array


def refined_paths(system: KnownSystem, which: Sequence[Run], n: int, key) -> Refined:
    """All nodes of `which`, the increments of Euler's chain at the system's step, the reference at reported times."""
    cell = 0.01 / CELLS
    k0, k1 = jax.random.split(key)
    fine, start = mesh_of(system, cell), system.sample_initial(n, k0)
    w, area = draw(k1, n, system.n_dims, fine.steps)

    def noise(mesh):
        return coarsened(w, area, cell, np.rint(mesh.times / cell).astype(int))

    paths = {}
    for name, dt in which:
        mesh = mesh_of(system, dt)
        paths[name, dt] = np.asarray(simulate(SCHEMES[name], system.process, start, mesh.steps, *noise(mesh)))
    reference = simulate(SCHEMES["Heun"], system.process, start, fine.steps, w, area)[np.array(fine.observed)]
    return Refined(paths, np.asarray(noise(mesh_of(system, system.dt))[0]), np.asarray(reference))


def law_records(system: KnownSystem, scheme: str, dt: float, errors: Errors, seconds: float) -> list[Record]:
    """One record a reported time and coordinate."""
    steps = len(mesh_of(system, dt).steps)
    return [
        {
            "part": "law",
            "system": system.name,
            "scheme": scheme,
            "dt": dt,
            "evaluations": SCHEMES[scheme].evaluations * steps,
            "seconds_ratio": seconds,
            "time": t,
            "times": "train" if t in system.train_times else "test",
            "coordinate": c,
            **{name: float(value[i, c]) for name, value in errors.items()},
        }
        for i, t in enumerate(report_times(system))
        for c in range(system.n_dims)
    ]


def seconds_of(system: KnownSystem, which: Iterable[Run], n: int = 5000, repeats: int = 7) -> dict[Run, float]:
    """Seconds to draw the noise and push n particles through all reported times: the fastest of calls taken in turn."""
    start = system.sample_initial(n, jax.random.key(0))
    pushes = {run: _push(system, *run) for run in which}
    taken: dict[Run, list[float]] = {run: [] for run in pushes}
    for i, (run, push) in itertools.product(range(repeats + 1), pushes.items()):
        began = time.perf_counter()
        push(start, jax.random.key(i)).block_until_ready()
        taken[run].append(time.perf_counter() - began)
    return {run: min(several[1:]) for run, several in taken.items()}


def _push(system: KnownSystem, scheme: str, dt: float) -> Callable:
    steps, kind = jnp.asarray(mesh_of(system, dt).steps), SCHEMES[scheme]

    def step(x, some):
        h, key = some
        z = jax.random.normal(key, (1 + kind.needs_area, *x.shape)) * jnp.sqrt(h)
        return jax.vmap(kind.step, (None, 0, None, 0, 0))(system.process, x, h, z[0], z[-1] / np.sqrt(12.0)), None

    return jax.jit(lambda start, key: jax.lax.scan(step, start, (steps, jax.random.split(key, len(steps))))[0])


def before_and_after(steps: Array) -> tuple[Array, Array]:
    """The lengths of the steps that end and that begin at every node."""
    return np.concatenate([[0.0], steps]), np.concatenate([steps, [0.0]])


def left_weights(steps: Array) -> Array:
    """The left-point rule."""
    return before_and_after(steps)[1]


def trapezoid_weights(steps: Array) -> Array:
    """Half of each step for both of its ends."""
    before, after = before_and_after(steps)
    return 0.5 * (before + after)


def simpson_weights(steps: Array) -> Array:
    """h/3 (1, 4, 2, 4, ..., 4, 1), for an even number of equal steps."""
    steps = np.asarray(steps)
    if len(steps) % 2 or not len(steps) or not np.allclose(steps, steps[0]):
        raise InputError(
            expected="an even number of equal steps",
            found=f"{len(steps)} steps from {min(steps, default=0):g} to {max(steps, default=0):g}",
            hint="the trapezoid rule takes any steps",
        )
    pattern = np.full(len(steps) + 1, 2.0)
    pattern[1::2], pattern[[0, -1]] = 4.0, 1.0
    return pattern * steps[0] / 3.0


RULES: dict[str, Callable[[Array], Array]] = {
    "left": left_weights,
    "trapezoid": trapezoid_weights,
    "Simpson": simpson_weights,
    "chain": trapezoid_weights,
}


def held(now: Array, lagged: Array, steps: Array) -> Array:
    """The chain rule's reading at node k: (h_{k-1} lagged_k + h_k now_k) / (h_{k-1} + h_k)."""
    before, after = (h.reshape(-1, *[1] * (now.ndim - 1)) for h in before_and_after(steps))
    return (before * lagged + after * now) / (before + after)


def delayed(values: Array) -> Array:
    """The value one node earlier; the first node, which has none, repeats its own."""
    return np.concatenate([values[:1], values[:-1]])


def rules_on(path: str, steps: Array) -> list[str]:
    """The rules that apply: `chain` to an Euler path, Simpson to an even number of steps."""
    left_out = {"chain"} if path != "Euler" else set()
    left_out |= {"Simpson"} if len(steps) % 2 else set()
    return [rule for rule in RULES if rule not in left_out]


@dataclass(frozen=True)
class Probe:
    """A function of one coordinate with its first two derivatives."""

    value: Callable[[Array], Array]
    slope: Callable[[Array], Array]
    curvature: Callable[[Array], Array]


def _cosine(omega: float) -> Probe:
    return Probe(
        lambda x: np.cos(omega * x), lambda x: -omega * np.sin(omega * x), lambda x: -(omega**2) * np.cos(omega * x)
    )


PROBES = {
    "x": Probe(lambda x: x, np.ones_like, np.zeros_like),
    "x^2": Probe(np.square, lambda x: 2.0 * x, lambda x: np.full_like(x, 2.0)),
    "cos x": _cosine(1.0),
    "cos 2x": _cosine(2.0),
}

# 48 points are exact for polynomials and, for cos 2x and a sd up to 1, exact to rounding.
_POINTS, _WEIGHTS = np.polynomial.hermite_e.hermegauss(48)
_WEIGHTS = _WEIGHTS / _WEIGHTS.sum()


def expect(f: Callable[[Array], Array], mean: Array, var: Array) -> Array:
    """E f(X) for a normal X."""
    return f(np.asarray(mean)[..., None] + np.sqrt(var)[..., None] * _POINTS) @ _WEIGHTS


def spread(probe: Probe, mean: Array, var: Array) -> Array:
    """The sd of f(X) for a normal X."""
    return np.sqrt(expect(lambda x: probe.value(x) ** 2, mean, var) - expect(probe.value, mean, var) ** 2)


@dataclass(frozen=True)
class GaussianNodes:
    """A path with normal nodes: moments of X_k, mean of the drift read there and its covariance with X_k."""

    mean: Array
    var: Array
    drift: Array
    cov: Array

    @classmethod
    def read(cls, linear: Linear, path: str, start: tuple[Array, Array], steps: Array, rule: str) -> "GaussianNodes":
        """The path of a scheme from a normal start, with its drift as the rule reads it."""
        mean, var = linear.path(path, *start, steps)
        drift, cov = -linear.a * (mean - linear.mu), -linear.a * var
        if rule == "chain":
            flow = np.array([linear.factors(path, h)[0] for h in (steps[0], *steps)])
            lagged = -linear.a * flow * delayed(var)
            drift, cov = held(drift, delayed(drift), steps), held(cov, lagged, steps)
        return cls(mean, var, drift, cov)

    def generator(self, probe: Probe, sigma: float) -> Array:
        """E L f(X_k) at every node, by E[f'(X) D] = E f'(X) E D + E f''(X) Cov(X, D)."""
        slope, curvature = (expect(f, self.mean, self.var) for f in (probe.slope, probe.curvature))
        return self.drift * slope + (self.cov + 0.5 * sigma**2) * curvature


def gaussian_residual(
    probe: Probe, linear: Linear, nodes: GaussianNodes, target: tuple[Array, Array], weights: Array
) -> Array:
    """r(f) of every coordinate, from the path's first node to the target's law."""
    begun = expect(probe.value, nodes.mean[0], nodes.var[0])
    return expect(probe.value, *target) - begun - weights @ nodes.generator(probe, linear.sigma)


def intervals(times: Sequence[float], anchor: str) -> list[tuple[float, float]]:
    """From every snapshot to the next, or from the first to every other."""
    return [(times[i] if anchor == "previous" else times[0], t) for i, t in enumerate(times[1:])]


def steps_between(s: float, t: float, dt: float) -> Array:
    """Equal steps of length `dt` from s to t."""
    return Mesh.refine([s, t], dt).steps


def law_of(data: str, system: KnownSystem, t: float) -> tuple[Array, Array]:
    """Mean and variance of Syn-1 at t: of the Euler chain with the system's step, or in continuous time."""
    linear, start = Linear.of(system), start_of(system)
    if data == "continuous" or t == 0.0:
        return linear.continuous(*start, t)
    means, variances = linear.path("Euler", *start, steps_between(0.0, t, system.dt))
    return means[-1], variances[-1]


def exact_residuals(system: KnownSystem) -> Iterator[Record]:
    """Residuals of Syn-1's true drift between training times, in units of the sd of f at the later one."""
    linear = Linear.of(system)
    for data, anchor, path in itertools.product(DATA, ("previous", "initial"), ("Euler", "Heun")):
        for s, t in intervals(system.train_times, anchor):
            steps, target = steps_between(s, t, system.dt), law_of(data, system, t)
            for rule in rules_on(path, steps):
                nodes = GaussianNodes.read(linear, path, law_of(data, system, s), steps, rule)
                for name, probe in PROBES.items():
                    r = gaussian_residual(probe, linear, nodes, target, RULES[rule](steps))
                    yield from _residual_records(
                        system, (data, anchor, path, rule, name), (s, t), r / spread(probe, *target), np.zeros_like(r)
                    )


def _residual_records(system: KnownSystem, which, interval, values: Array, errors: Array) -> list[Record]:
    names = dict(zip(("data", "anchor", "path", "rule", "probe"), which, strict=True))
    between = {"from": interval[0], "to": interval[1]}
    return [
        {
            "part": "quadrature",
            "system": system.name,
            **names,
            **between,
            "coordinate": c,
            "residual": float(r),
            "se": e,
        }
        for c, (r, e) in enumerate(zip(values, map(float, errors), strict=True))
    ]


def mean_zero(probe: Probe, x: Array, drift: Array, kicks: Array, h: Array, sigma: float) -> Array:
    """Sum over the steps of f'(X_k + h g_k / 2) S dW_k + f''(X_k) ((S dW_k)^2 - S^2 h) / 2: nearly all of the noise."""
    ahead = probe.slope(x[:-1] + 0.5 * h * drift[:-1])
    return (ahead * kicks + 0.5 * probe.curvature(x[:-1]) * (kicks**2 - sigma**2 * h)).sum(0)


def sampled_residuals(system: KnownSystem, refined: Refined) -> Iterator[tuple[tuple, Array]]:
    """Per sample, from 0 to every time an even number of steps away: terms whose mean is r(f), and f(X_t)."""
    sigma, mesh = sigma_of(system), mesh_of(system, system.dt)
    reached = [(i, node) for i, node in enumerate(mesh.observed) if node and node % 2 == 0]
    drifts = {path: _drifts(system.process, refined.paths[path, system.dt]) for path in ("Euler", "Heun")}
    for path, (name, probe), (i, node) in itertools.product(drifts, PROBES.items(), reached):
        steps, x, now = mesh.steps[:node], refined.paths[path, system.dt][: node + 1], drifts[path][: node + 1]
        noise = mean_zero(probe, x, now, sigma * refined.increments[:node], steps[:, None, None], sigma)
        targets = (refined.paths["Euler", system.dt][node], refined.reference[i])
        for rule in rules_on(path, steps):
            drift = held(now, delayed(now), steps) if rule == "chain" else now
            generator = probe.slope(x) * drift + 0.5 * sigma**2 * probe.curvature(x)
            known = probe.value(x[0]) + np.tensordot(RULES[rule](steps), generator, 1) + noise
            for data, target in zip(DATA, map(probe.value, targets), strict=True):
                yield (data, path, rule, name, float(mesh.times[node])), np.stack([target - known, target])


def _drifts(process: ItoProcess, path: Array) -> Array:
    return np.asarray(jax.vmap(jax.vmap(process.drift))(jnp.asarray(path)))


def monte_carlo(system: KnownSystem, schemes: list[str], n: int, key) -> tuple[dict[Run, Errors], list[Record]]:
    """Errors of the law for every run, and the residuals, from n particles in batches."""
    which = [*runs(schemes), ("Heun", 2 * 0.01 / CELLS)]
    seen, sums, n_batches = [], {}, max(1, n // BATCH)
    size = min(n, BATCH)
    for k in jax.random.split(key, n_batches):
        refined = refined_paths(system, which, size, k)
        at_times = [refined.paths[run][np.array(mesh_of(system, run[1]).observed)] for run in which]
        seen.append([*at_times, refined.reference])
        for name, terms in sampled_residuals(system, refined):
            new = np.array([terms.sum(1), (terms**2).sum(1)])
            sums[name] = sums.get(name, 0.0) + new
    *laws, reference = np.concatenate(seen, axis=2)[:, 1:]
    errors = {run: paired_errors(x, reference) for run, x in zip(which, laws, strict=True)}
    records = []
    for (data, path, rule, name, t), total in sums.items():
        (r, mean), (r_square, square) = total / (n_batches * size)
        sd, se = np.sqrt(square - mean**2), np.sqrt(np.maximum(r_square - r**2, 0.0) / (n_batches * size))
        records += _residual_records(system, (data, "initial", path, rule, name), (0.0, t), r / sd, se / sd)
    return errors, records


@dataclass(frozen=True)
class Fit:
    """How Syn-1's affine drift is fitted to exact means."""

    data: str
    anchor: str
    path: str
    rule: str


def mean_residuals(fit: Fit, system: KnownSystem, a: Array, mu: Array) -> Array:
    """r(x) of every interval between training times (rows) and coordinate, for the drift -a (x - mu)."""
    linear, rows = Linear(a, mu, 0.0), []
    for s, t in intervals(system.train_times, fit.anchor):
        steps = steps_between(s, t, system.dt)
        start, target = (law_of(fit.data, system, u)[0] for u in (s, t))
        nodes = GaussianNodes.read(linear, fit.path, (start, 0.0 * start), steps, fit.rule)
        rows.append(target - start - RULES[fit.rule](steps) @ nodes.drift)
    return np.array(rows)


def fitted(fit: Fit, system: KnownSystem) -> tuple[Array, Array]:
    """The coefficients (a, mu) with all residuals zero: two equations and two unknowns a coordinate."""
    truth = Linear.of(system)
    n = system.n_dims
    solved = scipy.optimize.root(
        lambda p: mean_residuals(fit, system, p[:n], p[n:]).ravel(), np.concatenate([truth.a, truth.mu]), tol=1e-13
    )
    assert np.abs(solved.fun).max() < 1e-9, solved.message
    return solved.x[:n], solved.x[n:]


def forecast_errors(fit: Fit, system: KnownSystem, a: Array, mu: Array) -> Array:
    """Error of the mean at the test times (rows): the fitted drift on its own path less the law of the data."""
    linear, start = Linear(a, mu, 0.0), start_of(system)
    rows = []
    for t in system.test_times:
        means, _ = linear.path(fit.path, *start, steps_between(0.0, t, system.dt))
        rows.append(means[-1] - law_of(fit.data, system, t)[0])
    return np.array(rows)


def fit_records(system: KnownSystem) -> Iterator[Record]:
    """Coefficients and forecast errors of every fit."""
    every = itertools.product(DATA, ("previous", "initial"), ("Euler", "Heun"), RULES)
    for fit in (Fit(*which) for which in every if which[3] in rules_on(which[2], np.ones(2))):
        a, mu = fitted(fit, system)
        errors = forecast_errors(fit, system, a, mu)
        for c, (i, t) in itertools.product(range(system.n_dims), enumerate(system.test_times)):
            found = {"coordinate": c, "a": float(a[c]), "mu": float(mu[c]), "time": t, "error": float(errors[i, c])}
            yield {"part": "fit", "system": system.name, **vars(fit), **found}


def study(system: KnownSystem, n: int, seed: int) -> list[Record]:
    """All records of one system."""
    key, schemes = jax.random.key(seed), available()
    if system.linear is not None:
        errors = {}
        for i, (scheme, dt) in enumerate(runs(schemes)):
            sampled = scheme == "ShARK"
            k = jax.random.fold_in(key, i)
            errors[scheme, dt] = shark_law_errors(system, dt, n, k) if sampled else exact_law_errors(system, scheme, dt)
        others = [*exact_residuals(system), *fit_records(system)]
    else:
        errors, others = monte_carlo(system, schemes, n, key)
    seconds = seconds_of(system, errors)
    laws = []
    for (scheme, dt), found in errors.items():
        laws += law_records(system, scheme, dt, found, seconds[scheme, dt] / seconds["Euler", system.dt])
    return laws + others


def law_table(records: list[Record]) -> str:
    """The worst error over times and coordinates of every scheme and step, with its standard error."""
    lines = ["scheme  dt        evals  time  mean train          mean test           sd train            sd test"]
    for (scheme, dt), rows in _grouped(records, "scheme", "dt"):
        cells = []
        for what, times in itertools.product(("mean", "sd"), ("train", "test")):
            worst = max((r for r in rows if r["times"] == times), key=lambda r: abs(r[what]))
            se = worst[f"{what}_se"]
            cells.append(f"{abs(worst[what]):.3e}" + (f" ({se:.0e})" if se else ""))
        first = rows[0]
        cost = f"{first['evaluations']:<6d} {first['seconds_ratio']:<5.2f}"
        lines.append(f"{scheme:<7} {dt:<9.3g} {cost} " + " ".join(f"{c:<19}" for c in cells))
    return "\n".join(line.rstrip() for line in lines)


def quadrature_table(records: list[Record]) -> str:
    """The worst residual over intervals and coordinates: a row a path and rule, a column a law and f."""
    columns = list(itertools.product(DATA, PROBES))
    lines = []
    for (anchor,), some in _grouped(records, "anchor"):
        head = " ".join(f"{data[:4]} {name:<7}" for data, name in columns)
        lines.append(f"anchor {anchor:<10} {head} max se")
        for (path, rule), rows in _grouped(some, "path", "rule"):
            worst = [max(abs(r["residual"]) for r in rows if (r["data"], r["probe"]) == column) for column in columns]
            se = max(r["se"] for r in rows)
            lines.append(f"{path:<6} {rule:<10} " + " ".join(f"{w:<12.3e}" for w in worst) + f" {se:.0e}")
    return "\n".join(lines)


def fit_table(records: list[Record]) -> str:
    """Coefficients of both coordinates, and the worst error of the forecast mean at every test time."""
    times = sorted({r["time"] for r in records})
    lines = [
        "data       anchor   path  rule      a1     mu1    a2     mu2     " + " ".join(f"t={t:<7g}" for t in times)
    ]
    for which, rows in _grouped(records, "data", "anchor", "path", "rule"):
        coefficients = [next(r[name] for r in rows if r["coordinate"] == c) for c in (0, 1) for name in ("a", "mu")]
        errors = [max(abs(r["error"]) for r in rows if r["time"] == t) for t in times]
        left = "{:<10} {:<8} {:<5} {:<9} ".format(*which)
        lines.append(left + " ".join(f"{v:<6.4f}" for v in coefficients) + " " + " ".join(f"{e:.3e}" for e in errors))
    return "\n".join(line.rstrip() for line in lines)


def _grouped(records: list[Record], *names: str) -> list[tuple[tuple, list]]:
    groups: dict[tuple, list] = {}
    for record in records:
        groups.setdefault(tuple(record[name] for name in names), []).append(record)
    return list(groups.items())


TABLES = {"law": law_table, "quadrature": quadrature_table, "fit": fit_table}


def main(argv: Sequence[str] | None = None) -> None:
    """Run the studies, print the tables, write the records."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--system", nargs="+", choices=("syn1", "syn3"), default=["syn1", "syn3"])
    parser.add_argument("--n-particles", type=int, default=20_000, help=f"in batches of {BATCH}")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", type=Path)
    args = parser.parse_args(argv)
    if "ShARK" not in available():
        print("diffrax is not installed: ShARK is left out")
    records = []
    with jax.enable_x64(True):
        for name in args.system:
            found = study(known_system(name), args.n_particles, args.seed)
            records += [{**r, "n_particles": args.n_particles, "seed": args.seed} for r in found]
            for (part,), some in _grouped(found, "part"):
                print(f"\n{name}, {part}\n{TABLES[part](some)}", flush=True)
    if args.json:
        args.json.write_text(json.dumps(records, indent=1))


if __name__ == "__main__":
    main()
