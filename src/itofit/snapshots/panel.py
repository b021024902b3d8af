"""Panels: one row a day (or any other individual observed at fixed times), one column a bin.

Read as snapshots, column k is the cloud at time t_k and the days are forgotten; `PairedSnapshots`
keeps them. What cannot be read is refused with its row and the remedy.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from jaxtyping import Bool, Float, Int

from itofit.errors import InputError
from itofit.snapshots.clouds import numeric_times


def checked_panel(values: Any, name: str = "values") -> Float[np.ndarray, "n_days n_bins"]:
    """Days x bins in double precision; NaN marks what is missing, and infinities are refused."""
    try:
        panel = np.array(values, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise InputError(
            expected=f"{name} as days x bins of numbers, every day with the same bins",
            found=f"{error}",
            hint="one row a day; fill a half-day with NaN up to the full number of bins, or drop "
            "it",
        ) from None
    if panel.ndim != 2 or 0 in panel.shape:
        raise InputError(
            expected=f"{name} as days x bins, at least one of each",
            found=f"shape {panel.shape}",
            hint="one row a day: a flat series becomes values.reshape(n_days, n_bins)",
        )
    _refuse(
        np.isinf(panel),
        panel,
        f"{name} finite, or NaN where missing",
        "NaN for a bin without trades, before its log",
    )
    return panel


def log_volume(volume: Any) -> Float[np.ndarray, "n_days n_bins"]:
    """The logarithm of days x bins of volume; NaN stays missing, what is not above 0 is refused."""
    panel = checked_panel(volume, "volume")
    _refuse(
        panel <= 0.0,
        panel,
        "volume above 0 before a log",
        "NaN for a bin without trades, or drop the day",
    )
    return np.log(panel)


def complete_panel(
    values: Any, times: Any, days: Sequence[Any] | None = None, missing: str = "refuse"
) -> tuple[Float[np.ndarray, "n_days n_bins n_dims"], Float[np.ndarray, " n_bins"]]:
    """The panel and its times, every fault but those of `missing="skip"` refused.

    `days` are labels, in which a day that is there twice shows; without them two equal rows do.
    """
    panel = _panel_of_states(values)
    bin_times = np.atleast_1d(numeric_times(times))
    if bin_times.shape != (panel.shape[1],):
        raise InputError(
            expected=f"one time for each of {panel.shape[1]} columns",
            found=f"{bin_times.size}",
            hint="times of the chosen columns: values[:, [0, 2, 7]] with [0.0, 0.04, 0.14]",
        )
    if missing not in ("refuse", "skip"):
        raise InputError(expected="missing to be refuse or skip", found=f"{missing!r}", hint="skip")
    _refuse_twice(panel, days)
    if missing == "refuse":
        _refuse_holes(np.any(np.isnan(panel), axis=2))
    return panel, bin_times


def _panel_of_states(values: Any) -> Float[np.ndarray, "n_days n_bins n_dims"]:
    array = np.asarray(values) if not isinstance(values, list | tuple) else None
    if array is not None and array.ndim == 3:
        return np.stack([checked_panel(array[:, :, d]) for d in range(array.shape[2])], axis=2)
    return checked_panel(values)[:, :, None]


def _refuse_holes(holes: Bool[np.ndarray, "n_days n_bins"]) -> None:
    """Name the first day that is not complete; a day whose last bins are missing may be half."""
    incomplete = holes.any(axis=1)
    if not incomplete.any():
        return
    day = int(np.argmax(incomplete))
    n_bins = holes.shape[1]
    n_observed = int(np.sum(~holes[day]))
    half = holes[day, -1] and not holes[day, :n_observed].any()
    raise InputError(
        expected="every bin of every day",
        found=f"{'a half-day? ' if half else ''}row {day} has {n_observed} of {n_bins} bins "
        f"({int(incomplete.sum())} such rows)",
        hint="drop those rows, or missing='skip' to use the bins they have",
    )


def _refuse_twice(panel: np.ndarray, days: Sequence[Any] | None) -> None:
    rows = list(days) if days is not None else [row.tobytes() for row in panel]
    if len(rows) != len(panel):
        raise InputError(
            expected=f"one label for each of {len(panel)} rows",
            found=f"{len(rows)}",
            hint="the dates of the rows",
        )
    first: dict[Any, int] = {}
    for i, label in enumerate(rows):
        if label in first and not (days is None and np.isnan(panel[i]).all()):
            name = f" ({label})" if days is not None else ""
            raise InputError(
                expected="every day once",
                found=f"rows {first[label]} and {i} are the same day{name}",
                hint="drop one of them",
            )
        first.setdefault(label, i)


def drawn_rows(
    n_rows: int, fraction: float, rng: np.random.Generator
) -> Int[np.ndarray, " n_drawn"]:
    """A random part of the rows, at least one, in random order."""
    if not isinstance(fraction, int | float) or not 0.0 < fraction <= 1.0:
        raise InputError(
            expected="fraction above 0 and at most 1", found=f"{fraction!r}", hint="0.5"
        )
    return rng.permutation(n_rows)[: max(1, round(fraction * n_rows))]


def drawn_entries(
    panel: Float[np.ndarray, "n_days n_bins n_dims"], fraction: float, seed: int
) -> list[Float[np.ndarray, "_ n_dims"]]:
    """One cloud a bin, of a random part of what was observed: drawn bin by bin, pairs are lost."""
    rng = np.random.default_rng([seed, 11])
    clouds = []
    for column in np.moveaxis(panel, 1, 0):
        observed = column[~np.isnan(column).any(axis=1)]
        clouds.append(observed[drawn_rows(len(observed), fraction, rng)])
    return clouds


def _refuse(wrong: np.ndarray, panel: np.ndarray, expected: str, hint: str) -> None:
    if wrong.any():
        day, column = np.argwhere(wrong)[0]
        n_wrong = int(wrong.sum())
        others = f" and {n_wrong - 1} more" if n_wrong > 1 else ""
        raise InputError(
            expected=expected,
            found=f"{panel[day, column]:g} in row {day} (day), column {column} (bin){others}",
            hint=hint,
        )
