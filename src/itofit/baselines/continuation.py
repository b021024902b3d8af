"""Continuation: points go on along the straight lines of the last two snapshots' transport plan."""

from itofit.baselines.trivial import TrivialRow
from itofit.run_folder import registered
from itofit.snapshots.clouds import Snapshot
from itofit.transport.displacement import continued_at


@registered
class Continuation(TrivialRow):
    """Mass moves on straight lines and keeps its last speed beyond the last snapshot.

    Parameters
    ----------
    random_state : int, optional
        Seed of the resampling where a forecast has another number of points; None draws a fresh
        one.

    Examples
    --------
    >>> from itofit import Continuation, Snapshots
    >>> snapshots = Snapshots.from_arrays([[[0.0], [1.0]], [[4.0], [6.0]]], times=[0.0, 1.0])
    >>> model = Continuation().fit(snapshots)
    >>> sorted(model.predict(2.0).ravel().tolist())
    [8.0, 11.0]
    """

    method = "continuation"

    def _row(self, time: float) -> Snapshot:
        return continued_at(self.snapshots_, time)
