"""parquet: one row a point, a column of times. Needs pyarrow (the extra `parquet`)."""

from pathlib import Path

from itofit.errors import InputError
from itofit.snapshots.clouds import Snapshots
from itofit.snapshots.table import from_columns, to_columns


def read(path: Path, time_key: str | None = None) -> Snapshots:
    """Snapshots from a parquet file."""
    arrow, parquet = _pyarrow()
    try:
        table = parquet.read_table(path)
        columns = {name: table[name].to_pylist() for name in table.column_names}
    except (arrow.ArrowException, OSError, ValueError, KeyError) as error:
        raise InputError(
            expected=f"{path.name} to be a complete parquet file",
            found=str(error),
            hint="write it again",
        ) from None
    return from_columns(columns, time_key, path.name)


def write(snapshots: Snapshots, path: Path) -> None:
    """Write a parquet file."""
    arrow, parquet = _pyarrow()
    parquet.write_table(arrow.table(to_columns(snapshots)), path)


def _pyarrow():
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError:
        raise InputError(
            expected="pyarrow, to read and write parquet",
            found="it is not installed",
            hint="pip install 'itofit[parquet]', or use csv or npz",
        ) from None
    return pyarrow, pyarrow.parquet
