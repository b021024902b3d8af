"""Which terms are in the drift is not known for sure: models drawn by their posterior probability.

A model is a set A of unknowns of the linear problem J'J v = J'b with prior precisions lambda. Against the same model
without unknown j, one with it has posterior odds

    t = odds * sqrt(lambda / (lambda + s)) exp(q^2 / (2 (lambda + s))),    q = j'P b,  s = j'P j,  P = I - J_A C_A J_A'

Unknowns are born at the rate t / (1 + t) and die at the rate 1 / (1 + t): a jump process in continuous time whose
stationary law is the posterior. All rates come from one linear problem a jump.

A newcomer's prior is as wide as is needed to notice it: a few of the standard errors that it would have beside the
fitted model, lambda = s / WIDTH. A much wider one would call every effect of two or three standard errors absent. What
is never absent has a wider one. What is in the model keeps the precision of the fit, unless that holds it back by more
than 1 / LOOSE of what the data say: the fit is allowed to be shrunk, a draw of what could be true is not.
"""

from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int
from scipy.special import expit

from itofit.solve.relevance import GONE, Posterior

# Prior variance of a newcomer, of one that is always there, and the smallest of what is in the model, in units of
# squared standard errors.
WIDTH, WIDE, LOOSE = 4.0, 20.0, 30.0
# No draw has a weaker prior than the constants of a fit.
WEAKEST = 1e-3
_BURN_IN = 5.0
# Jumps a unit of time, at which the process is stopped.
_MOST_JUMPS = 40


class Structure(NamedTuple):
    """A model: the unknowns in it and their prior precisions."""

    inside: Int[np.ndarray, " n_inside"]
    precision: Float[np.ndarray, " n_inside"]


def draw_structures(
    jacobian: Float[np.ndarray, "n_rows n_unknowns"],
    against: Float[np.ndarray, " n_unknowns"],
    precision: Float[np.ndarray, " n_unknowns"],
    inside: Bool[np.ndarray, " n_unknowns"],
    log_odds: Float[np.ndarray, " n_unknowns"],
    n_draws: int,
    rng: np.random.Generator,
) -> list[Structure]:
    """Models after one unit of time each, from the one of the unknowns `inside`.

    `precision`: of every unknown were it in the model; `log_odds`: of its being there before seeing data.
    """
    gram, found, clock = jacobian.T @ jacobian, [], -_BURN_IN
    for _ in range(_MOST_JUMPS * n_draws):
        flips = _log_ratios(jacobian, gram, against, precision, inside, log_odds)
        rates = expit(flips)
        total = float(rates.sum())
        wait = rng.exponential(1.0 / total) if total > 0.0 else np.inf
        while clock + wait > len(found) and len(found) < n_draws:
            found.append(Structure(np.flatnonzero(inside), precision[inside]))
        if len(found) == n_draws:
            return found
        clock += wait
        chosen = int(rng.choice(len(rates), p=rates / total))
        inside = inside ^ (np.arange(len(inside)) == chosen)
    last = Structure(np.flatnonzero(inside), precision[inside])
    return found + [last] * (n_draws - len(found))


def loose_precisions(
    jacobian: Float[np.ndarray, "n_rows n_unknowns"],
    signal: Float[np.ndarray, "n_signal n_unknowns"],
    precision: Float[np.ndarray, " n_unknowns"],
    always: Bool[np.ndarray, " n_unknowns"],
) -> Float[np.ndarray, " n_unknowns"]:
    """The precision of every unknown were it in the model, from those of the fit; what is not in it has `GONE`.

    A newcomer's standard error is that of `jacobian`, noise and all: with that of the signal, what the data do not see
    at all would have no prior.
    """
    known = np.minimum(precision, np.maximum(information(signal, precision) / LOOSE, WEAKEST))
    return np.where(precision < GONE, known, information(jacobian, precision) / np.where(always, WIDE, WIDTH))


def information(
    jacobian: Float[np.ndarray, "n_rows n_unknowns"], precision: Float[np.ndarray, " n_unknowns"]
) -> Float[np.ndarray, " n_unknowns"]:
    """What the data say of every unknown beside the rest of the fitted model: one over its squared standard error."""
    inside = np.flatnonzero(precision < GONE)
    covariance = Posterior(jacobian[:, inside], precision[inside]).covariance()
    cross = jacobian[:, inside].T @ jacobian
    found = np.sum(jacobian**2, axis=0) - np.sum(cross * (covariance @ cross), axis=0)
    found[inside] = 1.0 / np.diag(covariance) - precision[inside]
    return np.maximum(found, 1e-6)


def _log_ratios(jacobian, gram, against, precision, inside, log_odds) -> Float[np.ndarray, " n_unknowns"]:
    """Log posterior odds of the model with one unknown flipped, for every unknown."""
    at = np.flatnonzero(inside)
    posterior = Posterior(jacobian[:, at], precision[at])
    covariance, mean, cross = posterior.covariance(), posterior.solve(against[at]), gram[at]
    q = against - mean @ cross
    s = np.maximum(np.diag(gram) - np.sum(cross * (covariance @ cross), axis=0), 1e-12)
    born = log_odds + 0.5 * np.log(precision / (precision + s)) + 0.5 * q**2 / (precision + s)
    spread = np.diag(covariance)
    born[at] = -log_odds[at] - 0.5 * mean**2 / spread - 0.5 * np.log(precision[at] * spread)
    return born
