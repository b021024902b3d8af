"""The terms of a solution fitted anew: none comes in and none leaves."""

from dataclasses import replace
from typing import NamedTuple

import numpy as np

from itofit.moments.adaptive_ridges import AdaptiveRidges, adaptive_ridges, frozen
from itofit.moments.evidence import Evidence, evidence_at
from itofit.moments.gauss_newton import SMALL_DECREASE, State, can_be_squared
from itofit.moments.linearised import Terms
from itofit.moments.probing import Probing
from itofit.moments.relevance import Posterior, Prior
from itofit.moments.residuals import Residual
from itofit.moments.whitening import Whitening
from itofit.process.features import MANY_DIMS
from itofit.process.ito import ItoProcess

# Steps of a refit, each with a covariance of its own, and how far along its direction one goes.
_MOST_STEPS = 8
_FRACTIONS = (1.0, 0.5, 0.25, 0.125)


class Refit(NamedTuple):
    """A process fitted anew, and what the linear algebra says there."""

    process: ItoProcess
    evidence: Evidence


def refit(
    probing: Probing,
    terms: Terms,
) -> Refit | None:
    """The terms of a solution fitted to another problem, say one with another sigma.

    Gauss-Newton from that solution under its prior, ridges adapting; None where its chains run to
    infinity.
    """
    residual = probing.on_path(terms.path, terms.dictionary, terms.evidence.gaps)
    state = _start(probing, terms)
    residual = probing.without_step_bias(residual, residual.process(state.v))
    if terms.path == "simulated" and probing.snapshots.n_dims <= MANY_DIMS:
        residual, state = adaptive_ridges(residual, state) or (residual, state)
    state = replace(state, residuals=residual(state.v))
    if not can_be_squared(*state.read(residual)):
        return None
    for _ in range(_MOST_STEPS):
        lower = _lowered(residual, probing.whitening(residual, state.v), state)
        if lower is None:
            break
        state = lower
    if isinstance(residual, AdaptiveRidges):
        residual, state = frozen(residual, state)
    whitening = probing.whitening(residual, state.v)
    evidence = evidence_at(residual, state, whitening)
    return None if evidence is None else Refit(residual.process(state.v), evidence)


def _start(probing: Probing, terms: Terms) -> State:
    """The solution these terms are from, every group with the precision it had."""
    evidence = terms.evidence
    groups = terms.dictionary.groups
    first = np.cumsum([0, *(group.size for group in groups)])[:-1]
    chosen = first[[group.kind != "constant" for group in groups]]
    prior = Prior.over(groups, probing.n_outputs)
    prior = replace(prior, precision=evidence.precision[chosen].ravel())
    return State(evidence.coefficients.ravel() / probing.speed, prior)


def _lowered(
    residual: Residual,
    whitening: Whitening,
    state: State,
) -> State | None:
    """A Gauss-Newton step, halved until the objective falls; None where there is little to gain."""
    columns = np.flatnonzero(state.prior.alive)
    v = state.v
    y = whitening(state.read(residual))
    J = residual.jacobian(v, whitening, columns)
    if not can_be_squared(y, J):
        return None
    precision = state.prior.diagonal[columns]
    slope = J.T @ y + precision * v[columns]
    move = Posterior(J, precision).solve(slope)
    before = 0.5 * float(y @ y + precision @ v[columns] ** 2)
    if not 0.5 * float(slope @ move) > SMALL_DECREASE * max(before, 1.0):
        return None
    for fraction in _FRACTIONS:
        candidate = v.copy()
        candidate[columns] -= fraction * move
        residuals = residual(candidate)
        with np.errstate(over="ignore", invalid="ignore"):
            squares = np.sum(whitening(residuals) ** 2)
            after = 0.5 * float(squares + precision @ candidate[columns] ** 2)
        if after < before:
            return State(candidate, state.prior, residuals=residuals)
    return None
