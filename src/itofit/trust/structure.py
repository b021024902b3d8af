"""Which terms are in the drift is not known for sure: models drawn by their posterior probability.

A model is a set A of unknowns of the linear problem J'J v = J'b with prior precisions lambda.
Against the same model without unknown j, one with it has posterior odds

    t = odds * sqrt(lambda / (lambda + s)) exp(q^2 / (2 (lambda + s)))
    q = j'P b,  s = j'P j,  P = I - J_A C_A J_A'

Unknowns are born at the rate t / (1 + t) and die at the rate 1 / (1 + t): a jump process in
continuous time whose stationary law is the posterior. All rates are read from one table, which a
jump changes by a matrix of rank one.

A candidate's prior is as wide as is needed to notice it: a few of the standard errors that it would
have beside the fitted model, lambda = s / WIDTH. A much wider one would call every effect of two or
three standard errors absent. What is never absent has a wider one. What is in the model keeps the
precision of the fit, unless that holds it back by more than 1 / LOOSE of what the data say: the fit
is allowed to be shrunk, a draw of what could be true is not.
"""

from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int
from scipy.special import expit

from itofit.moments.relevance import EXCLUDED, Posterior

# Prior variance of a candidate, of one that is always there, and the smallest of what is in the
# model, in units of squared standard errors.
WIDTH = 4.0
WIDE = 10.0
LOOSE = 30.0
# No draw has a weaker prior than the constants of a fit.
WEAKEST = 1e-3
_BURN_IN = 5.0
# Jumps a unit of time, at which the process is stopped.
_MOST_JUMPS = 40
# Jumps after which the table is made anew, before rounding errors grow.
_ANEW = 100
# No pivot is smaller.
_SMALLEST = 1e-300


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

    `precision`: of every unknown were it in the model; `log_odds`: of its being there before any
    data.
    """
    table = _swept(jacobian, against, precision, inside)
    models: list[Structure] = []
    clock = -_BURN_IN
    for jump in range(1, _MOST_JUMPS * n_draws + 1):
        rates = expit(_log_ratios(table, precision, inside, log_odds))
        total = float(rates.sum())
        wait = rng.exponential(1.0 / total) if total > 0.0 else np.inf
        while clock + wait > len(models) and len(models) < n_draws:
            models.append(Structure(np.flatnonzero(inside), precision[inside]))
        if len(models) == n_draws:
            return models
        clock += wait
        chosen = int(rng.choice(len(rates), p=rates / total))
        inside = inside ^ (np.arange(len(inside)) == chosen)
        if jump % _ANEW:
            _sweep(table, chosen)
        else:
            table = _swept(jacobian, against, precision, inside)
    last = Structure(np.flatnonzero(inside), precision[inside])
    return models + [last] * (n_draws - len(models))


def loose_precisions(
    jacobian: Float[np.ndarray, "n_rows n_unknowns"],
    information_root: Float[np.ndarray, "n_root n_unknowns"],
    precision: Float[np.ndarray, " n_unknowns"],
    always: Bool[np.ndarray, " n_unknowns"],
) -> Float[np.ndarray, " n_unknowns"]:
    """The precision of every unknown were it in the model, from those of the fit.

    There what is not in the model has `EXCLUDED`. A candidate's standard error is that of
    `jacobian`, noise and all: with that of the information alone, what the data do not show at all
    would have no prior.
    """
    loosest = np.maximum(information(information_root, precision) / LOOSE, WEAKEST)
    known = np.minimum(precision, loosest)
    candidate = information(jacobian, precision) / np.where(always, WIDE, WIDTH)
    return np.where(precision < EXCLUDED, known, candidate)


def information(
    jacobian: Float[np.ndarray, "n_rows n_unknowns"],
    precision: Float[np.ndarray, " n_unknowns"],
) -> Float[np.ndarray, " n_unknowns"]:
    """One over the squared standard error of every unknown beside the rest of the model."""
    inside = np.flatnonzero(precision < EXCLUDED)
    covariance = Posterior(jacobian[:, inside], precision[inside]).covariance()
    cross = jacobian[:, inside].T @ jacobian
    known = np.sum(cross * (covariance @ cross), axis=0)
    beside = np.sum(jacobian**2, axis=0) - known
    beside[inside] = 1.0 / np.diag(covariance) - precision[inside]
    return np.maximum(beside, 1e-6)


def _log_ratios(
    table,
    precision,
    inside,
    log_odds,
) -> Float[np.ndarray, " n_unknowns"]:
    """Log posterior odds of the model with one unknown flipped, for every unknown."""
    pivot = np.minimum(np.diag(table)[:-1], np.where(inside, -_SMALLEST, np.inf))
    last = table[-1, :-1]
    # lambda + s and q; of an unknown in the model, those that it had before it came.
    size = np.where(inside, -1.0 / pivot, np.maximum(pivot, precision))
    size = np.maximum(size, precision)  # which rounding takes off where columns are nearly the same
    with np.errstate(over="ignore", invalid="ignore"):
        q = np.where(inside, last * size, last)
        log_t = log_odds + 0.5 * np.log(precision / size) + 0.5 * q**2 / size
        return np.nan_to_num(np.where(inside, -log_t, log_t), posinf=np.inf, neginf=-np.inf)


def _swept(
    jacobian,
    against,
    precision,
    inside,
) -> Float[np.ndarray, "n n"]:
    """The table J'J + Lambda, bordered by J'b, after a sweep of all that is `inside`.

    It holds, for A the model and B the rest, -C_A and C_A J_A'J_B, J_B'P J_B + Lambda_B, and on the
    border the mean of A and q of B: all that the rates need.
    """
    model = np.flatnonzero(inside)
    rest = np.append(~inside, True)
    table = np.zeros((len(against) + 1, len(against) + 1))
    table[:-1, :-1] = jacobian.T @ jacobian
    table[:-1, -1] = table[-1, :-1] = against
    table[np.arange(len(against)), np.arange(len(against))] += precision
    covariance = Posterior(jacobian[:, model], precision[model]).covariance()
    across = table[np.ix_(model, rest)]
    solved = covariance @ across
    table[np.ix_(rest, rest)] -= across.T @ solved
    table[np.ix_(model, rest)] = solved
    table[np.ix_(rest, model)] = solved.T
    table[np.ix_(model, model)] = -covariance
    return table


def _sweep(
    table: Float[np.ndarray, "n n"],
    k: int,
) -> None:
    """Take unknown k into the model, or out of it (Beaton's sweep operator), in place."""
    pivot = table[k, k]
    row = table[k].copy()
    pivot = np.copysign(max(abs(pivot), _SMALLEST), pivot)
    with np.errstate(over="ignore", invalid="ignore"):
        table -= np.outer(row / pivot, row)
        table[k] = table[:, k] = row / abs(pivot)
    table[k, k] = -1.0 / pivot
