"""Bridges: clouds between two snapshots, told by the process and held to both of them.

    x(t) + s (y - x(t_1)),    s = (t - t_0) / (t_1 - t_0)

x is a path of the process from the snapshot at t_0, y the point of the snapshot at t_1 to which an
exact transport plan sends its end. What the process misses at t_1 is taken off along the way. Of a
process at rest this is the transport midpoint; of the true one nothing is taken off but the noise
of finite clouds.
"""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Float

from itofit.snapshots.clouds import Snapshot
from itofit.transport.plans import transport_plan

# Exact transport is cubic in the number of points: no more paths than this are sent to no more
# points.
_MAX_POINTS = 2000


def bridged(
    clouds: Sequence[Float[np.ndarray, "n n_dims"]],
    end: Float[np.ndarray, "n n_dims"],
    weights: Float[np.ndarray, " n"],
    target: Snapshot,
    fractions: Sequence[float],
) -> tuple[list[Float[np.ndarray, "_ n_dims"]], Float[np.ndarray, " _"]]:
    """Clouds of paths that end at `end`, bent to end in `target`, and the weights of their points.

    `fractions` are the s of the clouds. A path that the plan parts between several points of
    `target` is there several times.
    """
    ends, end_weights = _coupled(end, weights)
    targets, target_weights = _coupled(target.points, target.weights)
    plan = transport_plan(ends, targets, end_weights, target_weights)
    i, j = np.nonzero(plan > 1e-15)
    missed = targets[j] - ends[i]
    mass = plan[i, j] / plan[i, j].sum()
    bent = [cloud[i] + s * missed for cloud, s in zip(clouds, fractions, strict=True)]
    return bent, mass


def _coupled(points: np.ndarray, weights: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """All points, or as many as can be coupled, which are a sample: rows are in no order."""
    w = weights[:_MAX_POINTS]
    return points[:_MAX_POINTS], w / w.sum()
