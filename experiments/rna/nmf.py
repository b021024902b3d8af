"""Non-negative factors of a matrix of which only some entries are observed, by multiplicative
updates:

    min over A, B >= eps of |M (X - A B)|^2,
    A <- A (M X) B' / ((M A B) B' + eps),    B <- B A' (M X) / (A' (M A B) + eps)

with products of M entry by entry. The full product A B is the answer: observed entries are
smoothed, the others imputed. With more factors than rows, as published, observed entries are all
but reproduced, and the others are led by the random start.
"""

import numpy as np

N_FACTORS = 400
N_UPDATES = 500
EPS = 1e-5

Factors = tuple[np.ndarray, np.ndarray]


def completed(
    X: np.ndarray,
    observed: np.ndarray,
    seed: int,
    n_factors: int = N_FACTORS,
    n_updates: int = N_UPDATES,
) -> np.ndarray:
    """A B after so many updates from the start of this seed; values of X that are not observed do
    not matter.
    """
    X = np.where(observed, X, 0.0)
    A, B = updated(X, observed, first_factors(X, n_factors, seed), n_updates)
    return A @ B


def first_factors(X: np.ndarray, n_factors: int, seed: int, eps: float = EPS) -> Factors:
    """A uniform on [0, 1], B by least squares and cut at eps."""
    A = np.maximum(np.random.default_rng(seed).uniform(size=(len(X), n_factors)), eps)
    return A, np.maximum(np.linalg.lstsq(A, X, rcond=None)[0], eps)


def updated(
    X: np.ndarray, observed: np.ndarray, factors: Factors, n_updates: int, eps: float = EPS
) -> Factors:
    """The factors after so many updates of A, then B."""
    M = np.asarray(observed, dtype=np.float64)
    A, B = factors
    X = M * X
    for _ in range(n_updates):
        A = np.maximum(A * (X @ B.T) / ((M * (A @ B)) @ B.T + eps), eps)
        B = np.maximum(B * (A.T @ X) / (A.T @ (M * (A @ B)) + eps), eps)
    return A, B


def objective(X: np.ndarray, observed: np.ndarray, factors: Factors) -> float:
    """|M (X - A B)|^2."""
    A, B = factors
    return float(np.sum(np.where(observed, X - A @ B, 0.0) ** 2))
