"""Splitting: once, in the data layer, before any scaling is fitted."""

from dataclasses import replace

import numpy as np

from itofit.errors import InputError
from itofit.snapshots.clouds import Snapshots
from itofit.snapshots.paired import PairedSnapshots

# A snapshot with fewer points has none to spare.
FEWEST_TO_SPLIT = 20


def split_rows(snapshots: Snapshots, fraction: float, seed: int = 0) -> tuple[Snapshots, Snapshots]:
    """Split the rows of every snapshot; returns (kept, held out) with `fraction` of each held out.

    Of `PairedSnapshots` the individuals are split. Both parts keep at least 2 points, so a snapshot needs 4.
    """
    if not 0.0 < fraction < 1.0:
        raise InputError(expected="a fraction between 0 and 1", found=f"{fraction:g}", hint="fraction=0.2")
    if min(snapshots.counts) < 4:
        raise InputError(
            expected="at least 4 points in every snapshot, 2 for each part",
            found=f"{min(snapshots.counts)}",
            hint="fit on all rows and leave a whole time out instead",
        )
    rng = np.random.default_rng(seed)
    if isinstance(snapshots, PairedSnapshots):  # an individual is on one side at all times
        order = rng.permutation(snapshots.counts[0])
        size = int(np.clip(round(fraction * len(order)), 2, len(order) - 2))
        return snapshots.of(order[size:]), snapshots.of(order[:size])
    rows = [rng.permutation(n) for n in snapshots.counts]
    sizes = [int(np.clip(round(fraction * n), 2, n - 2)) for n in snapshots.counts]
    held_out = [order[:size] for order, size in zip(rows, sizes, strict=True)]
    kept = [order[size:] for order, size in zip(rows, sizes, strict=True)]
    return _take(snapshots, kept), _take(snapshots, held_out)


def _take(snapshots: Snapshots, rows: list[np.ndarray]) -> Snapshots:
    masses = [w[i] for w, i in zip(snapshots.weights, rows, strict=True)]
    if any(w.sum() <= 0 for w in masses):
        raise InputError(
            expected="some weight in both parts of every snapshot",
            found="a part whose weights are all zero",
            hint="drop the points of weight zero before splitting",
        )
    clouds = [x[i] for x, i in zip(snapshots.clouds, rows, strict=True)]
    return replace(Snapshots.from_arrays(clouds, snapshots.times, masses, snapshots.names), space=snapshots.space)
