"""Splitting: once, in the data layer, before any scaling is fitted."""

from dataclasses import replace

import numpy as np

from itofit.errors import InputError
from itofit.snapshots.clouds import Snapshots
from itofit.snapshots.paired import PairedSnapshots

# A snapshot with fewer points has none to spare.
FEWEST_TO_SPLIT = 20


def split_rows(snapshots: Snapshots, fraction: float, seed: int = 0) -> tuple[Snapshots, Snapshots]:
    """Split the rows of every snapshot at random, before any scaling is fitted.

    Of `PairedSnapshots` the individuals are split.

    Parameters
    ----------
    snapshots : Snapshots
        At least 4 points in each, 2 for either part.
    fraction : float
        The part of each snapshot to hold out, between 0 and 1.
    seed : int, default 0
        The seed of the draw.

    Returns
    -------
    training : Snapshots
        What is left to fit.
    held_out : Snapshots
        The `fraction` of each snapshot that no fit shall use.

    Raises
    ------
    InputError
        Where a snapshot has too few points, or a part would have no weight.

    Examples
    --------
    >>> from itofit import Snapshots, split_rows
    >>> x = [[float(i)] for i in range(10)]
    >>> training, held_out = split_rows(Snapshots.from_arrays([x], times=[0.0]), fraction=0.2)
    >>> training.counts, held_out.counts
    ((8,), (2,))
    """
    if not 0.0 < fraction < 1.0:
        raise InputError(
            expected="a fraction between 0 and 1", found=f"{fraction:g}", hint="fraction=0.2"
        )
    if min(snapshots.counts) < 4:
        raise InputError(
            expected="at least 4 points in every snapshot, 2 for each part",
            found=f"{min(snapshots.counts)}",
            hint="fit on all rows and leave a whole time out instead",
        )
    rng = np.random.default_rng(seed)
    if isinstance(snapshots, PairedSnapshots):  # an individual is on the same side at all times
        order = rng.permutation(snapshots.counts[0])
        size = _held_out_size(len(order), fraction)
        return snapshots.of(order[size:]), snapshots.of(order[:size])
    orders = [rng.permutation(n) for n in snapshots.counts]
    sizes = [_held_out_size(n, fraction) for n in snapshots.counts]
    held_out = [order[:size] for order, size in zip(orders, sizes, strict=True)]
    training = [order[size:] for order, size in zip(orders, sizes, strict=True)]
    return _take(snapshots, training), _take(snapshots, held_out)


def _held_out_size(n_points: int, fraction: float) -> int:
    """Two points at least on either side."""
    return int(np.clip(round(fraction * n_points), 2, n_points - 2))


def _take(snapshots: Snapshots, rows: list[np.ndarray]) -> Snapshots:
    masses = [w[i] for w, i in zip(snapshots.weights, rows, strict=True)]
    if any(w.sum() <= 0 for w in masses):
        raise InputError(
            expected="some weight in both parts of every snapshot",
            found="a part whose weights are all zero",
            hint="drop the points of weight zero before splitting",
        )
    clouds = [x[i] for x, i in zip(snapshots.clouds, rows, strict=True)]
    part = Snapshots.from_arrays(clouds, snapshots.times, masses, snapshots.names)
    return replace(part, space=snapshots.space)
