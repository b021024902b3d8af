"""Does the process pass through the snapshots it was fitted to?

    X_n  ->  g, S  ->  X at t_{n+1},        its mean and sd against those of the next snapshot

coordinate by coordinate. Noise that is learned of what flows miss covers any miss; the marginal it
leads to then shows it.
"""

from typing import NamedTuple

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from itofit.problem import Problem, Stream
from itofit.process.features import core_box
from itofit.process.ito import ItoProcess
from itofit.simulate.euler import euler_push

# Points of a snapshot that are pushed on.
_MOST_POINTS = 512
# Sds by which a mean may be missed, the factor by which an sd may, and how many standard errors
# both may be off besides.
_MEAN = 0.5
_FACTOR = 2.0
_ERRORS = 5.0
# No sd is taken for less than this part of that of the data, nor points for further from them.
_NARROWEST = 0.1
_MARGIN = 10.0


class Miss(NamedTuple):
    """How far a coordinate of a snapshot is missed: its mean in sds, the factor of its sd."""

    time: float
    name: str
    mean: float
    factor: float

    def __str__(self) -> str:
        return (
            f"the process misses the snapshot at t = {self.time:g} that it was fitted to: the mean "
            f"of {self.name} by {self.mean:.2g} sd, its sd by a factor of {self.factor:.2g}; look "
            "for a snapshot that does not belong with the others"
        )


def worst_miss(problem: Problem, process: ItoProcess) -> Miss | None:
    """The coordinate and snapshot that a process misses most; None where it misses none."""
    snapshots = problem.snapshots
    low, high = core_box(snapshots)
    size = -1.0
    worst = None
    for n in range(len(snapshots) - 1):
        x, a = _pushed(problem, process, n)
        y = snapshots.clouds[n + 1]
        b = snapshots.weights[n + 1]
        # A far point is a point of the border.
        x, y = (np.clip(cloud, low - _MARGIN, high + _MARGIN) for cloud in (x, y))
        mean, factor = _missed(x, a, y, b)
        error = _ERRORS * np.sqrt(np.sum(a**2) + np.sum(b**2))
        of_mean = np.abs(mean) / (_MEAN + error)
        beyond = np.maximum(of_mean, np.abs(np.log(factor)) / (np.log(_FACTOR) + error))
        d = int(np.argmax(beyond))
        if beyond[d] > size:
            size = float(beyond[d])
            time = float(problem.observed.times[n + 1])
            name = problem.observed.names[d]
            worst = Miss(time, name, float(np.abs(mean[d])), float(factor[d]))
    return worst if size > 1.0 else None


def _missed(
    x: Float[np.ndarray, "n n_dims"],
    a: Float[np.ndarray, " n"],
    y: Float[np.ndarray, "m n_dims"],
    b: Float[np.ndarray, " m"],
) -> tuple[Float[np.ndarray, " n_dims"], Float[np.ndarray, " n_dims"]]:
    """By coordinate the difference of the means in sds of y, and the ratio of the sds."""
    sd_x = np.maximum(np.sqrt(a @ (x - a @ x) ** 2), _NARROWEST)
    sd_y = np.maximum(np.sqrt(b @ (y - b @ y) ** 2), _NARROWEST)
    return (a @ x - b @ y) / sd_y, sd_x / sd_y


def _pushed(
    problem: Problem, process: ItoProcess, n: int
) -> tuple[Float[np.ndarray, "n n_dims"], Float[np.ndarray, " n"]]:
    """The points of a snapshot at the time of the next, and their weights."""
    snapshots = problem.snapshots
    gaps = [problem.mesh.between(k, k + 1).steps for k in range(len(snapshots) - 1)]
    # Steps of no length at the end: one program serves all gaps.
    steps = np.zeros(max(len(gap) for gap in gaps))
    steps[: len(gaps[n])] = gaps[n]
    size = min(max(snapshots.counts), _MOST_POINTS)
    rng = problem.streams.rng(Stream.misses, n)
    # A snapshot of fewer points is pushed several times.
    rows = np.resize(rng.permutation(snapshots.counts[n]), size)
    weights = snapshots.weights[n][rows]
    ends = _push(
        process,
        jnp.asarray(snapshots.clouds[n][rows], dtype=float),
        jnp.asarray(steps, dtype=float),
        problem.streams.key(Stream.misses, n),
        jnp.asarray(snapshots.times[n], dtype=float),
    )
    points = np.nan_to_num(np.asarray(ends, dtype=np.float64), nan=np.inf)
    return points, weights / weights.sum()


@eqx.filter_jit
def _push(
    process: ItoProcess,
    start: Float[Array, "n n_dims"],
    steps: Float[Array, " n_steps"],
    key: PRNGKeyArray,
    begin: Float[Array, ""],
) -> Float[Array, "n n_dims"]:
    return euler_push(process, start, steps, key, begin)
