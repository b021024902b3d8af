"""The rows every score is printed beside: persistence and the transport midpoint, as functions of the snapshots."""

import numpy as np

from itofit.metrics.transport import transport_plan
from itofit.snapshots.clouds import Snapshot, Snapshots, time_tolerance

# Exact transport is cubic in the number of points: larger clouds are coupled through this many of them.
_MAX_POINTS = 2000


def persistence_at(snapshots: Snapshots, time: float) -> Snapshot:
    """The last snapshot at or before `time`, unchanged."""
    earlier = np.flatnonzero(snapshots.times <= time + time_tolerance(snapshots.times))
    i = int(earlier[-1]) if len(earlier) else 0
    return Snapshot(time, snapshots.clouds[i], snapshots.weights[i])


def midpoint_at(snapshots: Snapshots, time: float) -> Snapshot | None:
    """Displacement interpolation along an exact plan between the bracketing snapshots; None beyond the last."""
    times = snapshots.times
    after = int(np.searchsorted(times, time))
    if after >= len(times) or after == 0:
        i = snapshots.index(time)
        return None if i is None else Snapshot(time, snapshots.clouds[i], snapshots.weights[i])
    fraction = (time - times[after - 1]) / (times[after] - times[after - 1])
    (x, wx), (y, wy) = (_thinned(snapshots.clouds[i], snapshots.weights[i]) for i in (after - 1, after))
    plan = transport_plan(x, y, wx, wy)
    i, j = np.nonzero(plan > 1e-15)
    mass = plan[i, j]
    return Snapshot(time, (1.0 - fraction) * x[i] + fraction * y[j], mass / mass.sum())


def _thinned(points: np.ndarray, weights: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    if len(points) <= _MAX_POINTS:
        return points, weights
    rows = np.random.default_rng(0).choice(len(points), _MAX_POINTS, p=weights)
    return points[rows], np.full(_MAX_POINTS, 1.0 / _MAX_POINTS)
