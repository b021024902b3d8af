"""Reading and writing snapshots by file name; one module a format."""

from pathlib import Path

from itofit.errors import InputError
from itofit.snapshots import csv_file, npz_file, parquet_file
from itofit.snapshots.clouds import Snapshots

_FORMATS = {".npz": npz_file, ".csv": csv_file, ".parquet": parquet_file}


def read_snapshots(path: str | Path, time_key: str | None = None) -> Snapshots:
    """Snapshots from a `.npz`, `.csv` or `.parquet` file.

    `time_key` names the column of times (csv, parquet: default `t`, or `time`) or the array of times.
    """
    path = Path(path)
    if not path.is_file():
        raise InputError(
            expected="an existing file of snapshots",
            found=f"no file at {path}",
            hint=f"a path ending in {', '.join(_FORMATS)}",
        )
    return _format(path).read(path, time_key)


def write_snapshots(snapshots: Snapshots, path: str | Path) -> None:
    """Write snapshots to a `.npz`, `.csv` or `.parquet` file, all or nothing."""
    path = Path(path)
    format_ = _format(path)
    if not path.parent.is_dir():
        raise InputError(expected="an existing folder", found=f"no folder at {path.parent}", hint="create it first")
    partial = path.with_name(f".{path.stem}.partial{path.suffix}")
    try:
        format_.write(snapshots, partial)
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)


def _format(path: Path):
    if path.suffix.lower() not in _FORMATS:
        raise InputError(
            expected=f"a file name ending in {', '.join(_FORMATS)}",
            found=f"{path.name!r}",
            hint="convert the file; one row a point with a column of times is enough",
        )
    return _FORMATS[path.suffix.lower()]
