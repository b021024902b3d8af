"""The best few columns of a linear problem.

    minimise over sets S and c    |J_S c - b|^2 + price |S|

which keeps a column where its squared z-score is above `price`. The search goes by one column in,
one out, or one for another, whichever gains most, from no column and from all; then from the best
set less each pair of its columns, until none of these ends lower. All gains of one round are known
from A = (J_S'J_S)^-1, with c = A J_S'b, q = J'(b - J_S c), B = A J_S'J and
s_k = |J_k|^2 - J_k'J_S B_k:

    k in           q_k^2 / s_k - price
    j out          price - c_j^2 / A_jj
    k for j        (q_k + B_jk c_j / A_jj)^2 / (s_k + B_jk^2 / A_jj) - c_j^2 / A_jj
"""

from collections.abc import Iterable
from itertools import combinations, islice
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int

# A column this close to the span of others, by its squared length, says nothing that they do not.
_DISTINCT = 1e-8
# Gains below this are rounding.
_NOTHING = 1e-9
_MOST_PAIRS = 500
_MOST_MOVES = 200


class _Problem(NamedTuple):
    """J'J and J'b for columns of length one."""

    gram: Float[np.ndarray, "n n"]
    against: Float[np.ndarray, " n"]
    price: float

    def solved(self, inside: list[int]) -> tuple[np.ndarray, np.ndarray]:
        """A and c."""
        A = np.linalg.inv(self.gram[np.ix_(inside, inside)])
        return A, A @ self.against[inside]

    def cost(self, inside: list[int]) -> float:
        """What is minimised, less |b|^2."""
        return self.price * len(inside) - float(self.against[inside] @ self.solved(inside)[1])


def best_subset(
    jacobian: Float[np.ndarray, "n_rows n_columns"],
    b: Float[np.ndarray, " n_rows"],
    price: float,
    hints: Iterable[Int[np.ndarray, " n_hint"]] = (),
) -> Int[np.ndarray, " n_chosen"]:
    """The columns chosen, in order; `hints` are sets the search begins from besides its own."""
    length = np.linalg.norm(jacobian, axis=0)
    scaled = jacobian / np.where(length > 0.0, length, 1.0)
    problem = _Problem(scaled.T @ scaled, scaled.T @ b, price)
    starts: list[list[int]] = [[], *([int(j) for j in hint] for hint in hints)]
    if jacobian.shape[1] < jacobian.shape[0]:
        starts.append(list(range(jacobian.shape[1])))
    ends = [_descended(problem, start) for start in starts if _distinct(problem, start)]
    best = min(ends, key=problem.cost)
    while True:
        ends = [_descended(problem, less) for less in _less_a_pair(problem, best)]
        lowest = min(ends, key=problem.cost, default=best)
        if problem.cost(lowest) > problem.cost(best) - _NOTHING:
            return np.asarray(sorted(best), dtype=int)
        best = lowest


def _distinct(
    problem: _Problem,
    inside: list[int],
) -> bool:
    if not inside:
        return True
    smallest = np.linalg.eigvalsh(problem.gram[np.ix_(inside, inside)])[0]
    return float(smallest) > _DISTINCT


def _less_a_pair(
    problem: _Problem,
    inside: list[int],
) -> Iterable[list[int]]:
    """The set without two of its columns, the weakest first."""
    A, c = problem.solved(inside)
    weakest = [inside[j] for j in np.argsort(c**2 / np.diag(A))]
    pairs = sorted(combinations(range(len(inside)), 2), key=sum)
    for i, j in islice(pairs, _MOST_PAIRS):
        yield [p for p in inside if p not in (weakest[i], weakest[j])]


def _descended(
    problem: _Problem,
    inside: list[int],
) -> list[int]:
    """One move after the other, the best each time, until none gains."""
    for _ in range(_MOST_MOVES):
        gain, move = _best_move(problem, inside)
        if gain <= _NOTHING:
            break
        inside = move
    return inside


def _best_move(
    problem: _Problem,
    inside: list[int],
) -> tuple[float, list[int]]:
    gram, against, price = problem
    A, c = problem.solved(inside)
    B = A @ gram[inside]
    q = against - c @ gram[inside]
    s = np.diag(gram) - np.sum(gram[inside] * B, axis=0)
    loss = c**2 / np.diag(A)
    weight = 1.0 / np.diag(A)
    enter = _ratio(q, s) - price
    leave = price - loss
    swapped = _ratio(q + B * (c * weight)[:, None], s + B**2 * weight[:, None])
    swap = swapped - loss[:, None]
    enter[inside] = -np.inf
    swap[:, inside] = -np.inf
    gains = [float(np.max(x, initial=-np.inf)) for x in (enter, leave, swap)]
    best = max(gains)
    if best == gains[0]:
        return best, [*inside, int(np.argmax(enter))]
    if best == gains[1]:
        return best, _without(inside, int(np.argmax(leave)))
    j, k = divmod(int(np.argmax(swap)), len(gram))
    return best, [*_without(inside, j), k]


def _without(
    inside: list[int],
    j: int,
) -> list[int]:
    return inside[:j] + inside[j + 1 :]


def _ratio(
    q: np.ndarray,
    s: np.ndarray,
) -> np.ndarray:
    return np.where(s > _DISTINCT, q**2 / np.maximum(s, _DISTINCT), 0.0)
