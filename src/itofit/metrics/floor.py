"""Sampling floors: what a perfect model scores at these sample sizes.

No distance stands alone.

Known system: fresh clouds from the true process, the same start rows, against the same test cloud.
Real data: one half of the held-out cloud against the other.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PRNGKeyArray

from itofit.metrics.distances import coordinate_W1
from itofit.simulate.systems import KnownSystem
from itofit.snapshots.clouds import Snapshot

Metric = Callable[..., float]

N_DRAWS = 20


@dataclass(frozen=True)
class Floor:
    """The score of a perfect model, and how far above it a model scores.

    Parameters
    ----------
    mean : float
        The mean score of a perfect model over draws.
    sd : float
        The standard deviation of that score over draws.
    excess : float
        The mean of the model's own score over the floor.

    Examples
    --------
    >>> from itofit.metrics import Floor
    >>> Floor(mean=0.12, sd=0.03, excess=0.05).excess
    0.05
    """

    mean: float
    sd: float
    excess: float


def system_floor(
    metric: Metric,
    test: Snapshot,
    model: Snapshot,
    truths: Sequence[np.ndarray],
    weights: np.ndarray | None = None,
) -> Floor:
    """Floor from draws of the true process: excess = score(model) - mean score of the draws.

    Parameters
    ----------
    metric : callable
        A distance `metric(x, y, wx, wy)`, say `W1`.
    test : Snapshot
        The held-out cloud.
    model : Snapshot
        The model's cloud at the same time.
    truths : sequence of arrays of shape (n, n_dims)
        Clouds of the true process at that time, each a fresh draw.
    weights : array of shape (n,), optional
        Weights of the points of every draw.

    Returns
    -------
    Floor
        Mean and sd of the scores of the draws, and the model's excess.

    Examples
    --------
    >>> import numpy as np
    >>> from itofit import Snapshots
    >>> from itofit.metrics import W1, system_floor
    >>> test = Snapshots.from_arrays([[[0.0], [1.0]]], times=[1.0]).at(1.0)
    >>> model = Snapshots.from_arrays([[[4.0], [5.0]]], times=[1.0]).at(1.0)
    >>> draws = [np.array([[shift], [1.0 + shift]]) for shift in (0.5, 1.5)]
    >>> system_floor(W1, test, model, draws).excess
    3.0
    """
    w = None if weights is None else plain_weights(weights)
    wt = plain_weights(test.weights)
    scores = [metric(cloud, test.points, w, wt) for cloud in truths]
    value = metric(model.points, test.points, plain_weights(model.weights), wt)
    mean = float(np.mean(scores))
    return Floor(mean, float(np.std(scores, ddof=1)), value - mean)


def truth_draws(
    system: KnownSystem, start: np.ndarray, times: Sequence[float], *, key: PRNGKeyArray
) -> list[list[np.ndarray]]:
    """`N_DRAWS` draws of the true process from the rows `start`: clouds indexed [draw][time]."""
    begin = jnp.asarray(start, dtype=float)
    draws = []
    for k in jax.random.split(key, N_DRAWS):
        clouds = system.push(begin, times, k)
        draws.append([np.asarray(cloud) for cloud in clouds])
    return draws


def split_half_floor(metric: Metric, test: Snapshot, model: Snapshot, *, seed: int = 0) -> Floor:
    """Floor on real data, from halves A and B of the test cloud.

    The floor is score(B, A), the excess score(model, A) - score(B, A), over 20 random splits.

    Parameters
    ----------
    metric : callable
        A distance `metric(x, y, wx, wy)`, say `W1`.
    test : Snapshot
        The held-out cloud.
    model : Snapshot
        The model's cloud at the same time, of which as many points are drawn as a half has.
    seed : int, default 0
        The seed of the splits, which are the same for every model, and of the points drawn.

    Returns
    -------
    Floor
        Mean and sd over the splits, and the model's mean excess, all at half size.

    Examples
    --------
    >>> import numpy as np
    >>> from itofit import Snapshots
    >>> from itofit.metrics import W1, split_half_floor
    >>> x = np.random.default_rng(0).normal(size=(40, 1))
    >>> test = Snapshots.from_arrays([x], times=[1.0]).at(1.0)
    >>> model = Snapshots.from_arrays([x + 5.0], times=[1.0]).at(1.0)
    >>> floor = split_half_floor(W1, test, model)
    >>> 0.0 < floor.mean < 1.0, 4.0 < floor.excess < 5.0
    (True, True)
    """
    # two streams, so that every model meets the same halves
    splits = np.random.default_rng([seed, 0])
    draws = np.random.default_rng([seed, 1])
    m = len(test.points) // 2
    floors = []
    excesses = []
    for _ in range(N_DRAWS):
        order = splits.permutation(len(test.points))
        a = order[:m]
        b = order[m : 2 * m]
        rows = draw_rows(draws, model.weights, m)
        wa = plain_weights(test.weights[a])
        wb = plain_weights(test.weights[b])
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
    """Coordinate W1 between many points of the model and of the truth, from the true initial law.

    Its own floor is what the truth scores in place of the model.

    Parameters
    ----------
    push : callable
        Runs the model: `push(start, times)` gives a cloud for every time, begun at the rows of
        `start` at time 0.
    system : KnownSystem
        The truth.
    times : sequence of float
        Increasing times from 0 on.
    key : PRNGKeyArray
        A jax key for both starts and the noise of the truth.
    n : int, default 20000
        The number of points on either side.

    Returns
    -------
    list of float
        One distance for every time.

    Examples
    --------
    >>> import jax
    >>> from itofit import known_system
    >>> from itofit.metrics import population_error
    >>> standing_still = lambda start, times: [start for _ in times]
    >>> errors = population_error(
    ...     standing_still, known_system("syn1"), [0.1, 0.5], key=jax.random.key(0), n=500
    ... )
    >>> [round(error) for error in errors]
    [1, 4]
    """
    k_model, k_truth, k_noise = jax.random.split(key, 3)
    model = push(np.asarray(system.sample_initial(n, k_model)), times)
    truth = system.push(system.sample_initial(n, k_truth), times, k_noise)
    return [coordinate_W1(np.asarray(a), np.asarray(b)) for a, b in zip(model, truth, strict=True)]


def plain_weights(weights: np.ndarray) -> np.ndarray | None:
    """None for equal weights, so that a metric takes its fast way."""
    return None if np.ptp(weights) < 1e-12 else weights


def draw_rows(rng: np.random.Generator, weights: np.ndarray, size: int) -> np.ndarray:
    """`size` rows in proportion to `weights`; each at most once where equal weights allow that."""
    even = plain_weights(weights) is None
    repeated = not even or size > len(weights)
    return rng.choice(len(weights), size, replace=repeated, p=None if even else weights)
