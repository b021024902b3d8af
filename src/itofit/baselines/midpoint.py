"""Midpoint: displacement interpolation along an exact transport plan between the bracketing
snapshots.
"""

from itofit.baselines.trivial import TrivialRow
from itofit.errors import InputError
from itofit.run_folder import registered
from itofit.snapshots.clouds import Snapshot
from itofit.transport.displacement import midpoint_at


@registered
class Midpoint(TrivialRow):
    """Mass moves on straight lines at constant speed; undefined beyond the last snapshot.

    Parameters
    ----------
    random_state : int, optional
        Seed of the resampling where a forecast has another number of points; None draws a fresh
        one.

    Examples
    --------
    >>> from itofit import Midpoint, Snapshots
    >>> snapshots = Snapshots.from_arrays([[[0.0], [1.0]], [[4.0], [6.0]]], times=[0.0, 1.0])
    >>> model = Midpoint().fit(snapshots)
    >>> sorted(model.predict(0.5).ravel().tolist())
    [2.0, 3.5]
    """

    method = "midpoint"

    def _row(self, time: float) -> Snapshot:
        row = midpoint_at(self.snapshots_, time)
        if row is None:
            raise InputError(
                expected=f"a time up to the last snapshot (t = {self.snapshots_.times[-1]:g})",
                found=f"t = {time:g}",
                hint="persistence is defined later",
            )
        return row
