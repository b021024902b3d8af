"""Rolling mean over days, one bin at a time: with L the window

    forecast[t, i] = mean of values[t - l, i] over l = 1..L, the missing days left out

on the values themselves or on their logarithms (then the exponential of the mean). Nothing is learned.
"""

from typing import Any

import numpy as np
from jaxtyping import Float
from numpy.lib.stride_tricks import sliding_window_view

from itofit.errors import InputError
from itofit.snapshots.panel import checked_panel, log_volume


def rolling_mean(values: Any, window: int | None = None, log: bool = False) -> Float[np.ndarray, "n_days n_bins"]:
    """Forecast of every bin of every day from the days before it; NaN where the window holds no value.

    - `values`: days x bins, NaN where missing. A last row of NaN gives the forecast of a day not yet seen.
    - `window`: days to look back; None takes all of them.
    - `log`: average logarithms (a geometric mean), which one day of heavy trading moves less.
    """
    if window is not None and (isinstance(window, bool) or not isinstance(window, int | np.integer) or window < 1):
        raise InputError(expected="window as a whole number of days from 1 on, or None", found=f"{window!r}", hint="20")
    panel = log_volume(values) if log else checked_panel(values)
    length = len(panel) if window is None else min(int(window), len(panel))
    seen = ~np.isnan(panel)
    counts = _sums_before(seen.astype(np.float64), length)
    sums = _sums_before(np.where(seen, panel, 0.0), length)
    means = np.divide(sums, counts, out=np.full(panel.shape, np.nan), where=counts > 0.0)
    return np.exp(means) if log else means


def _sums_before(panel: Float[np.ndarray, "n_days n_bins"], length: int) -> Float[np.ndarray, "n_days n_bins"]:
    """Sums over the `length` rows before each row; differences of running sums would lose digits."""
    padded = np.concatenate([np.zeros((length, panel.shape[1])), panel])
    return sliding_window_view(padded, length, axis=0)[:-1].sum(axis=-1)
