"""What csv and parquet have in common: named columns, one the time, perhaps one the weight `w`."""

from collections.abc import Mapping
from typing import Any

from itofit.errors import InputError
from itofit.snapshots.clouds import Snapshots


def from_columns(columns: Mapping[str, Any], time_key: str | None, file_name: str) -> Snapshots:
    """Snapshots from a table held as a mapping of column names to values."""
    key = time_key or next((name for name in ("t", "time") if name in columns), "t")
    if key not in columns:
        raise InputError(
            expected=f"a column of times named {key!r} in {file_name}",
            found=f"columns {list(columns)}",
            hint="name the column with --time-key (time_key=)",
        )
    names = [name for name in columns if name not in (key, "w")]
    if not names:
        raise InputError(
            expected=f"at least one coordinate beside {key!r}",
            found="no other column",
            hint="check the separator",
        )
    coordinates = [_numbers(columns[name], name) for name in names]
    weights = _numbers(columns["w"], "w") if "w" in columns else None
    rows = [list(point) for point in zip(*coordinates, strict=True)]
    return Snapshots.from_rows(rows, columns[key], weights, names)


def to_columns(snapshots: Snapshots) -> dict[str, Any]:
    """The inverse of `from_columns`."""
    if len({"t", "w", *snapshots.names}) < 2 + snapshots.n_dims:
        raise InputError(
            expected="coordinates with names of their own, other than t and w",
            found=", ".join(snapshots.names),
            hint="rename them, or write npz",
        )
    X, t, w = snapshots.to_rows()
    coordinates = {name: X[:, i] for i, name in enumerate(snapshots.names)}
    return {"t": t, "w": w} | coordinates


def _numbers(values: Any, name: str) -> list[float]:
    numbers = []
    for row, value in enumerate(values):
        try:
            numbers.append(float(value))
        except (TypeError, ValueError):
            raise InputError(
                expected=f"numbers in column {name!r}",
                found=f"{value!r} in row {row + 1}",
                hint="drop that column, or encode it as numbers",
            ) from None
    return numbers
