"""Persistence: the last training snapshot at or before t, unchanged."""

from itofit.baselines.trivial import TrivialRow
from itofit.metrics.trivial import persistence_at
from itofit.snapshots.clouds import Snapshot


class Persistence(TrivialRow):
    """Nothing moves: the forecast is the last snapshot seen."""

    method = "persistence"

    def _row(self, time: float) -> Snapshot:
        return persistence_at(self.snapshots_, time)
