"""Panels of days x bins: what the forecasters of volume refuse, each fault named with its row and the remedy."""

from typing import Any

import numpy as np
from jaxtyping import Float

from itofit.errors import InputError


def checked_panel(values: Any, name: str = "values") -> Float[np.ndarray, "n_days n_bins"]:
    """Days x bins in double precision; NaN marks what is missing, and nothing else that is not finite may stand."""
    try:
        panel = np.array(values, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise InputError(
            expected=f"{name} as days x bins of numbers, every day with the same bins",
            found=f"{error}",
            hint="one row a day; fill a half-day with NaN up to the full number of bins, or drop it",
        ) from None
    if panel.ndim != 2 or 0 in panel.shape:
        raise InputError(
            expected=f"{name} as days x bins, at least one of each",
            found=f"shape {panel.shape}",
            hint="one row a day: a flat series becomes values.reshape(n_days, n_bins)",
        )
    _refuse(
        np.isinf(panel), panel, f"{name} finite, or NaN where missing", "NaN for a bin without trades, before its log"
    )
    return panel


def log_volume(volume: Any) -> Float[np.ndarray, "n_days n_bins"]:
    """The logarithm of days x bins of volume; NaN stays missing, and a volume that has no logarithm is refused."""
    panel = checked_panel(volume, "volume")
    _refuse(panel <= 0.0, panel, "volume above 0 before a log", "NaN for a bin without trades, or drop the day")
    return np.log(panel)


def _refuse(wrong: np.ndarray, panel: np.ndarray, expected: str, hint: str) -> None:
    if wrong.any():
        day, column = (int(i) for i in np.argwhere(wrong)[0])
        others = f" and {wrong.sum() - 1} more" if wrong.sum() > 1 else ""
        raise InputError(
            expected=expected,
            found=f"{panel[day, column]:g} in row {day} (day), column {column} (bin){others}",
            hint=hint,
        )
