"""Displacement interpolation: points move on straight lines along an exact plan.

x(s) = (1 - s) x_i + s y_j        with mass P_ij,    s from 0 to 1, beyond 1 a continuation
"""

import numpy as np

from itofit.snapshots.clouds import Snapshot, Snapshots
from itofit.transport.plans import transport_plan

# Exact transport is cubic in the number of points: larger clouds are coupled through this many.
_MAX_POINTS = 2000


def midpoint_at(snapshots: Snapshots, time: float) -> Snapshot | None:
    """The displacement interpolation between the bracketing snapshots; None beyond the last."""
    times = snapshots.times
    after = int(np.searchsorted(times, time))
    if after >= len(times) or after == 0:
        i = snapshots.index(time)
        return None if i is None else Snapshot(time, snapshots.clouds[i], snapshots.weights[i])
    return _on_lines(snapshots, after, time)


def continued_at(snapshots: Snapshots, time: float) -> Snapshot:
    """The displacement interpolation; beyond the last snapshot the lines of the last gap go on."""
    between = midpoint_at(snapshots, time)
    return _on_lines(snapshots, len(snapshots) - 1, time) if between is None else between


def _on_lines(snapshots: Snapshots, after: int, time: float) -> Snapshot:
    """Points at `time` on the lines between the snapshot `after` and the one before it."""
    times = snapshots.times
    fraction = (time - times[after - 1]) / (times[after] - times[after - 1])
    x, wx = _thinned(snapshots.clouds[after - 1], snapshots.weights[after - 1])
    y, wy = _thinned(snapshots.clouds[after], snapshots.weights[after])
    plan = transport_plan(x, y, wx, wy)
    i, j = np.nonzero(plan > 1e-15)
    mass = plan[i, j]
    points = (1.0 - fraction) * x[i] + fraction * y[j]
    return Snapshot(time, points, mass / mass.sum())


def _thinned(points: np.ndarray, weights: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    if len(points) <= _MAX_POINTS:
        return points, weights
    rows = np.random.default_rng(0).choice(len(points), _MAX_POINTS, p=weights)
    return points[rows], np.full(_MAX_POINTS, 1.0 / _MAX_POINTS)
