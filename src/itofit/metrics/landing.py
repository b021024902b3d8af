"""Landing: a cloud between two snapshots, told by the process and held to both of them.

    x(t) + s (y - x(t_1)),    s = (t - t_0) / (t_1 - t_0)

x is a path of the process from the snapshot at t_0, y the point of the snapshot at t_1 to which an exact transport plan
sends its end. What the process misses at t_1 is taken off along the way. Of a process at rest this is the transport
midpoint; of the true one nothing is taken off but the noise of finite clouds.
"""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Float

from itofit.metrics.transport import transport_plan
from itofit.snapshots.clouds import Snapshot

# Exact transport is cubic in the number of points: no more paths than this are sent to no more points.
_MAX_POINTS = 2000


def landed(
    clouds: Sequence[Float[np.ndarray, "n n_dims"]],
    end: Float[np.ndarray, "n n_dims"],
    weights: Float[np.ndarray, " n"],
    target: Snapshot,
    shares: Sequence[float],
) -> tuple[list[Float[np.ndarray, "_ n_dims"]], Float[np.ndarray, " _"]]:
    """The clouds of paths that end at `end`, moved so that they land in `target`, and the weights of their points.

    A path that the plan parts between several points of `target` is there several times.
    """
    paths, seen = _some(weights), _some(target.weights)
    w = weights[paths] / weights[paths].sum()
    plan = transport_plan(end[paths], target.points[seen], w, target.weights[seen] / target.weights[seen].sum())
    i, j = np.nonzero(plan > 1e-15)
    missed = target.points[seen][j] - end[paths][i]
    mass = plan[i, j] / plan[i, j].sum()
    return [cloud[paths][i] + share * missed for cloud, share in zip(clouds, shares, strict=True)], mass


def _some(weights: np.ndarray) -> np.ndarray:
    """All rows, or as many as can be coupled; rows are in no order."""
    return np.arange(min(len(weights), _MAX_POINTS))
