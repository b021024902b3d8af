"""The weak residual of Syn-1's true drift for functions of one coordinate: exact, as all nodes are
normal.
"""

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from experiments.schemes.linear import Linear, law_of, steps_between
from experiments.schemes.quadrature import RULES, delayed, held, rules_on
from experiments.schemes.records import Record
from experiments.schemes.steps import Array
from itofit import KnownSystem

# The law a residual is held against: that of the Euler chain with the system's step, or that in
# continuous time.
DATA = ("discrete", "continuous")


@dataclass(frozen=True)
class Probe:
    """A function of one coordinate with its first two derivatives."""

    value: Callable[[Array], Array]
    slope: Callable[[Array], Array]
    curvature: Callable[[Array], Array]


def _cosine(omega: float) -> Probe:
    return Probe(
        lambda x: np.cos(omega * x),
        lambda x: -omega * np.sin(omega * x),
        lambda x: -(omega**2) * np.cos(omega * x),
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
    return np.sqrt(
        expect(lambda x: probe.value(x) ** 2, mean, var) - expect(probe.value, mean, var) ** 2
    )


@dataclass(frozen=True)
class GaussianNodes:
    """A path with normal nodes: moments of X_k, mean of the drift read there and its covariance
    with X_k.
    """

    mean: Array
    var: Array
    drift: Array
    cov: Array

    @classmethod
    def read(
        cls, linear: Linear, path: str, start: tuple[Array, Array], steps: Array, rule: str
    ) -> "GaussianNodes":
        """The path of a scheme from a normal start, with its drift as the rule reads it."""
        mean, var = linear.path(path, *start, steps)
        drift = -linear.a * (mean - linear.mu)
        cov = -linear.a * var
        if rule == "chain":
            flow = np.array([linear.factors(path, h)[0] for h in (steps[0], *steps)])
            lagged = -linear.a * flow * delayed(var)
            drift = held(drift, delayed(drift), steps)
            cov = held(cov, lagged, steps)
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


def exact_residuals(system: KnownSystem) -> Iterator[Record]:
    """Residuals of Syn-1's true drift between training times, in units of the sd of f at the later
    one.
    """
    linear = Linear.of(system)
    for data, anchor, path in itertools.product(DATA, ("previous", "initial"), ("Euler", "Heun")):
        for s, t in intervals(system.train_times, anchor):
            steps = steps_between(s, t, system.dt)
            target = law_of(data, system, t)
            for rule in rules_on(path, steps):
                nodes = GaussianNodes.read(linear, path, law_of(data, system, s), steps, rule)
                for name, probe in PROBES.items():
                    r = gaussian_residual(probe, linear, nodes, target, RULES[rule](steps))
                    yield from residual_records(
                        system,
                        Choice(data, anchor, path, rule, name),
                        (s, t),
                        r / spread(probe, *target),
                        np.zeros_like(r),
                    )


class Choice(NamedTuple):
    """What a residual is of: the law it is held against, where it begins, its path, rule and f."""

    data: str
    anchor: str
    path: str
    rule: str
    probe: str


def residual_records(
    system: KnownSystem,
    choice: Choice,
    interval: tuple[float, float],
    values: Array,
    errors: Array,
) -> list[Record]:
    """One record a coordinate."""
    return [
        {
            "part": "quadrature",
            "system": system.name,
            **choice._asdict(),
            "from": interval[0],
            "to": interval[1],
            "coordinate": c,
            "residual": float(r),
            "se": float(error),
        }
        for c, (r, error) in enumerate(zip(values, errors, strict=True))
    ]
