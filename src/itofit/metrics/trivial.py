"""Persistence, the row every score is printed beside: nothing moves."""

import numpy as np

from itofit.snapshots.clouds import Snapshot, Snapshots, time_tolerance


def persistence_at(snapshots: Snapshots, time: float) -> Snapshot:
    """The last snapshot at or before `time`, unchanged."""
    earlier = np.flatnonzero(snapshots.times <= time + time_tolerance(snapshots.times))
    i = int(earlier[-1]) if len(earlier) else 0
    return Snapshot(time, snapshots.clouds[i], snapshots.weights[i])
