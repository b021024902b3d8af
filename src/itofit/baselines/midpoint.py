"""Midpoint: displacement interpolation along an exact transport plan between the bracketing snapshots."""

from itofit.baselines.trivial import TrivialRow
from itofit.errors import InputError
from itofit.metrics.trivial import midpoint_at
from itofit.snapshots.clouds import Snapshot


class Midpoint(TrivialRow):
    """Mass moves on straight lines at constant speed; undefined beyond the last snapshot."""

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
