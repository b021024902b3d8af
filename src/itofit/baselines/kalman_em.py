"""EM as a climb of the log-likelihood, plain or two steps at a time with a leap after them: with
slope = first - start and bend = second - 2 first + start

    start + |slope| / |bend| slope           Aitken, of a single number
    start - 2 alpha slope + alpha^2 bend     SQUAREM, of a vector, with alpha = -|slope| / |bend|

A step takes the parameters to better ones, and says the log-likelihood (the level) before it.
"""

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from itofit.baselines.kalman_steps import Theta

Step = Callable[[Theta], tuple[Theta, float]]

_STILL = 1e-8  # a second difference below this is rounding, and nothing to extrapolate from


class Climb(NamedTuple):
    """Where EM ended; `levels` are the log-likelihoods before its steps."""

    theta: Theta
    levels: list[float]
    n_steps: int
    converged: bool


def plain_em(step: Step, theta: Theta, n_iter: int, tolerance: float) -> Climb:
    """Plain EM: the log-likelihood never falls."""
    levels = []
    gap = math.inf
    while len(levels) < n_iter and gap >= tolerance:  # NaN ends it
        improved, level = step(theta)
        gap = _distance(theta, improved)
        theta = improved
        levels.append(level)
    return Climb(theta, levels, len(levels), gap < tolerance)


def accelerated_em(step: Step, theta: Theta, n_iter: int, tolerance: float) -> Climb:
    """EM two steps at a time, then a leap; where a leap has lost likelihood, the second of the
    steps stands.
    """
    levels = []
    n_steps = 0
    safe = theta
    least_level = -math.inf
    gap = math.inf
    while n_steps < n_iter and gap >= tolerance:  # NaN ends it
        first, level = step(theta)
        n_steps += 1
        if not level >= least_level and theta is not safe:
            theta = safe
            continue
        levels.append(level)
        if n_steps == n_iter:
            return Climb(first, levels, n_steps, False)
        second, least_level = step(first)
        n_steps += 1
        levels.append(least_level)
        gap = _distance(first, second)
        theta = leap(theta, first, second)
        safe = second
    return Climb(safe, levels, n_steps, gap < tolerance)


def leap(start: Theta, first: Theta, second: Theta) -> Theta:
    """Where two steps point: SQUAREM for phi, Aitken's formula for each number; V0 stays a
    covariance as it is.
    """
    ahead = Theta(*map(_aitken, start, first, second))
    return ahead._replace(
        q_eta=ahead.q_eta if ahead.q_eta > 0.0 else second.q_eta,
        q_mu=ahead.q_mu if ahead.q_mu > 0.0 else second.q_mu,
        r=ahead.r if ahead.r > 0.0 else second.r,
        phi=_squarem(start.phi, first.phi, second.phi),
        V0=second.V0,
    )


def _aitken(start: np.ndarray, first: np.ndarray, second: np.ndarray) -> np.ndarray:
    slope = first - start
    bend = second - 2.0 * first + start
    bent = np.abs(bend) > _STILL
    factor = np.abs(slope) / np.where(bent, np.abs(bend), 1.0)
    return np.where(bent, start + factor * slope, second)


def _squarem(start: np.ndarray, first: np.ndarray, second: np.ndarray) -> np.ndarray:
    slope = first - start
    bend = second - 2.0 * first + start
    size = np.linalg.norm(bend)
    if size <= _STILL:
        return second
    alpha = -np.linalg.norm(slope) / size
    return start - 2.0 * alpha * slope + alpha**2 * bend


def _distance(here: Theta, there: Theta) -> float:
    squares = [float(np.sum((a - b) ** 2)) for a, b in zip(here, there, strict=True)]
    return math.sqrt(sum(squares))
