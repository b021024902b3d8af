"""Whole numbers among the choices of a method: n >= least."""

from typing import Any

import numpy as np


def is_count(value: Any, least: int) -> bool:
    """Whether a value is a whole number from `least` on; a bool is none."""
    if isinstance(value, bool) or not isinstance(value, int | np.integer):
        return False
    return bool(value >= least)
