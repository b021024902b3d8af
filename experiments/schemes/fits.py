"""The affine drift of Syn-1 that makes the residual of f(x) = x vanish, without sampling noise, and
its forecasts.
"""

import itertools
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import scipy.optimize

from experiments.schemes.linear import Linear, law_of, start_of, steps_between
from experiments.schemes.quadrature import RULES, rules_on
from experiments.schemes.records import Record
from experiments.schemes.residuals import DATA, GaussianNodes, intervals
from experiments.schemes.steps import Array
from itofit import KnownSystem


@dataclass(frozen=True)
class Fit:
    """How Syn-1's affine drift is fitted to exact means."""

    data: str
    anchor: str
    path: str
    rule: str


def mean_residuals(fit: Fit, system: KnownSystem, a: Array, mu: Array) -> Array:
    """r(x) of every interval between training times (rows) and coordinate, for the drift -a (x -
    mu).
    """
    linear = Linear(a, mu, 0.0)
    rows = []
    for s, t in intervals(system.train_times, fit.anchor):
        steps = steps_between(s, t, system.dt)
        start, target = (law_of(fit.data, system, u)[0] for u in (s, t))
        nodes = GaussianNodes.read(linear, fit.path, (start, 0.0 * start), steps, fit.rule)
        rows.append(target - start - RULES[fit.rule](steps) @ nodes.drift)
    return np.array(rows)


def fitted(fit: Fit, system: KnownSystem) -> tuple[Array, Array]:
    """The coefficients (a, mu) with all residuals zero: two equations and two unknowns a
    coordinate.
    """
    truth = Linear.of(system)
    n = system.n_dims
    solved = scipy.optimize.root(
        lambda p: mean_residuals(fit, system, p[:n], p[n:]).ravel(),
        np.concatenate([truth.a, truth.mu]),
        tol=1e-13,
    )
    assert np.abs(solved.fun).max() < 1e-9, solved.message
    return solved.x[:n], solved.x[n:]


def forecast_errors(fit: Fit, system: KnownSystem, a: Array, mu: Array) -> Array:
    """Error of the mean at the test times (rows): the fitted drift on its own path less the law of
    the data.
    """
    linear = Linear(a, mu, 0.0)
    start = start_of(system)
    rows = []
    for t in system.test_times:
        means, _ = linear.path(fit.path, *start, steps_between(0.0, t, system.dt))
        rows.append(means[-1] - law_of(fit.data, system, t)[0])
    return np.array(rows)


def fit_records(system: KnownSystem) -> Iterator[Record]:
    """Coefficients and forecast errors of every fit."""
    every = itertools.product(DATA, ("previous", "initial"), ("Euler", "Heun"), RULES)
    fits = [Fit(*choices) for choices in every]
    for fit in [fit for fit in fits if fit.rule in rules_on(fit.path, np.ones(2))]:
        a, mu = fitted(fit, system)
        errors = forecast_errors(fit, system, a, mu)
        for c, (i, t) in itertools.product(range(system.n_dims), enumerate(system.test_times)):
            yield {
                "part": "fit",
                "system": system.name,
                **vars(fit),
                "coordinate": c,
                "a": float(a[c]),
                "mu": float(mu[c]),
                "time": t,
                "error": float(errors[i, c]),
            }
