"""Persistence: the last training snapshot at or before t, unchanged."""

from itofit.baselines.trivial import TrivialRow
from itofit.metrics.trivial import persistence_at
from itofit.run_folder import registered
from itofit.snapshots.clouds import Snapshot


@registered
class Persistence(TrivialRow):
    """Nothing moves: the forecast is the last snapshot observed.

    Parameters
    ----------
    random_state : int, optional
        Seed of the resampling where a forecast has another number of points; None draws a fresh
        one.

    Examples
    --------
    >>> from itofit import Persistence, Snapshots
    >>> snapshots = Snapshots.from_arrays([[[0.0], [1.0]], [[4.0], [5.0]]], times=[0.0, 1.0])
    >>> model = Persistence().fit(snapshots)
    >>> sorted(model.predict(0.9).ravel().tolist())
    [0.0, 1.0]
    >>> sorted(model.predict(3.0).ravel().tolist())
    [4.0, 5.0]
    """

    method = "persistence"

    def _row(self, time: float) -> Snapshot:
        return persistence_at(self.snapshots_, time)
