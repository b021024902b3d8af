"""Rolling mean over days, one bin at a time: with L the window

    forecast[t, i] = mean of values[t - l, i] over l = 1..L, the missing days left out

on the values themselves or on their logarithms (then the exponential of the mean). Nothing is
learned.
"""

from typing import Any

import numpy as np
from jaxtyping import Float
from numpy.lib.stride_tricks import sliding_window_view

from itofit.baselines.counts import is_count
from itofit.errors import InputError
from itofit.snapshots.panel import checked_panel, log_volume

Panel = Float[np.ndarray, "n_days n_bins"]


def rolling_mean(values: Any, window: int | None = None, log: bool = False) -> Panel:
    """Forecast of every bin of every day from the days before it.

    Parameters
    ----------
    values : array of shape (n_days, n_bins)
        NaN where missing. A last row of NaN gives the forecast of a day not yet observed.
    window : int, optional
        Days to look back; None takes all of them.
    log : bool
        Average logarithms (a geometric mean), which one day of heavy trading moves less.

    Returns
    -------
    array of shape (n_days, n_bins)
        The forecasts; NaN where the window holds no value.

    Raises
    ------
    InputError
        If `values` is no panel, if with `log` a value is not above 0, or if `window` is no whole
        number from 1 on.

    Examples
    --------
    >>> from itofit.baselines import rolling_mean
    >>> rolling_mean([[1.0, 8.0], [3.0, 2.0], [5.0, 4.0]], window=2)
    array([[nan, nan],
           [ 1.,  8.],
           [ 2.,  5.]])
    """
    if window is not None and not is_count(window, 1):
        raise InputError(
            expected="window as a whole number of days from 1 on, or None",
            found=f"{window!r}",
            hint="20",
        )
    panel = log_volume(values) if log else checked_panel(values)
    length = len(panel) if window is None else min(int(window), len(panel))
    means = _means_before(panel, length)
    return np.exp(means) if log else means


def _means_before(panel: Panel, length: int) -> Panel:
    """Means over what was observed in the `length` rows before each row."""
    observed = ~np.isnan(panel)
    counts = _sums_before(observed.astype(np.float64), length)
    sums = _sums_before(np.where(observed, panel, 0.0), length)
    nothing = np.full(panel.shape, np.nan)
    return np.divide(sums, counts, out=nothing, where=counts > 0.0)


def _sums_before(panel: Panel, length: int) -> Panel:
    """Sums over the `length` rows before each; differences of running sums would lose digits."""
    padded = np.concatenate([np.zeros((length, panel.shape[1])), panel])
    return sliding_window_view(padded, length, axis=0)[:-1].sum(axis=-1)
