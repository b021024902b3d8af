"""Which terms are in the drift is not known for sure: models drawn by their posterior probability.

A model is a set A of unknowns of the linear problem y = J v - b with prior precisions lambda. Against the same model
without unknown j, one with it has posterior odds

    t = odds * sqrt(lambda / (lambda + s)) exp(q^2 / (2 (lambda + s))),    q = j'P b,  s = j'P j,  P = I - J_A C_A J_A'

Unknowns are born at the rate t / (1 + t) and die at the rate 1 / (1 + t): a jump process in continuous time whose
stationary law is the posterior. All rates come from one linear problem a jump.

A newcomer's prior is as wide as is needed to notice it: a few of the standard errors that it would have beside the
fitted model, lambda = s / WIDTH. A much wider one would call every effect of two or three standard errors absent.
"""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int
from scipy.special import expit

from itofit.solve.relevance import GONE, Posterior

# Prior variance of a newcomer in units of its squared standard error.
WIDTH = 8.0
_BURN_IN = 5.0
# Jumps a unit of time, at which the process is stopped.
_MOST_JUMPS = 40


class Structure(NamedTuple):
    """A model: the unknowns in it and their prior precisions."""

    inside: Int[np.ndarray, " n_inside"]
    precision: Float[np.ndarray, " n_inside"]


def draw_structures(
    jacobian: Float[np.ndarray, "n_rows n_unknowns"],
    b: Float[np.ndarray, " n_rows"],
    precision: Float[np.ndarray, " n_unknowns"],
    log_odds: Float[np.ndarray, " n_unknowns"],
    n_draws: int,
    rng: np.random.Generator,
) -> list[Structure]:
    """Models after one unit of time each, from the one whose precisions are below `GONE`.

    `log_odds` are those of every unknown before seeing data.
    """
    gram, against = jacobian.T @ jacobian, jacobian.T @ b
    inside, found, clock = precision < GONE, [], -_BURN_IN
    used = np.where(inside, precision, _information(jacobian, gram, precision) / WIDTH)
    for _ in range(_MOST_JUMPS * n_draws):
        flips = _log_ratios(jacobian, gram, against, b, used, inside, log_odds)
        rates = expit(flips)
        total = float(rates.sum())
        wait = rng.exponential(1.0 / total) if total > 0.0 else np.inf
        while clock + wait > len(found) and len(found) < n_draws:
            found.append(Structure(np.flatnonzero(inside), used[inside]))
        if len(found) == n_draws:
            return found
        clock += wait
        chosen = int(rng.choice(len(rates), p=rates / total))
        inside = inside ^ (np.arange(len(inside)) == chosen)
    last = Structure(np.flatnonzero(inside), used[inside])
    return found + [last] * (n_draws - len(found))


def _information(jacobian, gram, precision) -> Float[np.ndarray, " n_unknowns"]:
    """What the data say of every unknown beside the fitted model: one over its squared standard error."""
    inside = np.flatnonzero(precision < GONE)
    covariance, cross = Posterior(jacobian[:, inside], precision[inside]).covariance(), gram[inside]
    return np.maximum(np.diag(gram) - np.sum(cross * (covariance @ cross), axis=0), 1e-6)


def _log_ratios(jacobian, gram, against, b, precision, inside, log_odds) -> Float[np.ndarray, " n_unknowns"]:
    """Log posterior odds of the model with one unknown flipped, for every unknown."""
    at = np.flatnonzero(inside)
    posterior = Posterior(jacobian[:, at], precision[at])
    covariance, mean, cross = posterior.covariance(), posterior.mean(b), gram[at]
    q = against - mean @ cross
    s = np.maximum(np.diag(gram) - np.sum(cross * (covariance @ cross), axis=0), 1e-12)
    born = log_odds + 0.5 * np.log(precision / (precision + s)) + 0.5 * q**2 / (precision + s)
    spread = np.diag(covariance)
    born[at] = -log_odds[at] - 0.5 * mean**2 / spread - 0.5 * np.log(precision[at] * spread)
    return born
