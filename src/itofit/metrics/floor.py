"""Sampling floors: what a perfect model scores at these sample sizes, so that no distance stands alone.

Known system: fresh clouds from the true process, the same start rows, against the same test cloud.
Real data: one half of the held-out cloud against the other.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PRNGKeyArray

from itofit.metrics.transport import coordinate_W1
from itofit.simulate.systems import KnownSystem
from itofit.snapshots.clouds import Snapshot

Metric = Callable[..., float]

N_DRAWS = 20


@dataclass(frozen=True)
class Floor:
    """The score of a perfect model: mean and sd over draws; `excess` is the model's own mean excess over it."""

    mean: float
    sd: float
    excess: float


def system_floor(
    metric: Metric, test: Snapshot, model: Snapshot, truths: Sequence[np.ndarray], weights: np.ndarray | None = None
) -> Floor:
    """Floor from draws of the true process at the time of `test`; excess = score(model) - floor."""
    w = None if weights is None else plain_weights(weights)
    scores = [metric(cloud, test.points, w, plain_weights(test.weights)) for cloud in truths]
    value = metric(model.points, test.points, plain_weights(model.weights), plain_weights(test.weights))
    mean = float(np.mean(scores))
    return Floor(mean, float(np.std(scores, ddof=1)), value - mean)


def truth_draws(system: KnownSystem, start: np.ndarray, times: Sequence[float], *, key: PRNGKeyArray):
    """`N_DRAWS` clouds of the true process at each time, all grown from the rows `start`; indexed [draw][time]."""
    keys = jax.random.split(key, N_DRAWS)
    return [[np.asarray(x) for x in system.push(jnp.asarray(start, dtype=float), times, k)] for k in keys]


def split_half_floor(metric: Metric, test: Snapshot, model: Snapshot, *, seed: int = 0) -> Floor:
    """Floor on real data: halves A, B of the test cloud, score(B, A) against score(model, A), paired over splits."""
    # two streams, so that every model meets the same halves
    splits, draws = (np.random.default_rng([seed, stream]) for stream in range(2))
    m = len(test.points) // 2
    floors, excesses = [], []
    for _ in range(N_DRAWS):
        order = splits.permutation(len(test.points))
        a, b = order[:m], order[m : 2 * m]
        rows = draw_rows(draws, model.weights, m)
        wa, wb = plain_weights(test.weights[a]), plain_weights(test.weights[b])
        floors.append(metric(test.points[b], test.points[a], wb, wa))
        excesses.append(metric(model.points[rows], test.points[a], None, wa) - floors[-1])
    return Floor(float(np.mean(floors)), float(np.std(floors, ddof=1)), float(np.mean(excesses)))


def population_error(
    push: Callable[[np.ndarray, Sequence[float]], Sequence[np.ndarray]],
    system: KnownSystem,
    times: Sequence[float],
    *,
    key: PRNGKeyArray,
    n: int = 20_000,
) -> list[float]:
    """Coordinate W1 between `n` points of the model and `n` of the truth at each time, from the true initial law.

    `push(start, times)` runs the model. Its own floor is a draw of the truth pushed twice.
    """
    k0, k1, k2 = jax.random.split(key, 3)
    model = push(np.asarray(system.sample_initial(n, k0)), times)
    truth = system.push(system.sample_initial(n, k1), times, k2)
    return [coordinate_W1(np.asarray(a), np.asarray(b)) for a, b in zip(model, truth, strict=True)]


def plain_weights(weights: np.ndarray) -> np.ndarray | None:
    """None for equal weights, so that a metric takes its fast way."""
    return None if np.ptp(weights) < 1e-12 else weights


def draw_rows(rng: np.random.Generator, weights: np.ndarray, size: int) -> np.ndarray:
    """`size` row numbers in proportion to `weights`; each at most once where all weigh the same and suffice."""
    even = plain_weights(weights) is None
    return rng.choice(len(weights), size, replace=not even or size > len(weights), p=None if even else weights)
