"""Reading and writing snapshots by file name; one module a format."""

from collections.abc import Sequence
from pathlib import Path

from itofit.errors import InputError
from itofit.snapshots import anndata_file, csv_file, npz_file, parquet_file
from itofit.snapshots.clouds import Snapshots
from itofit.whole_file import whole_file

_FORMATS = {".npz": npz_file, ".csv": csv_file, ".parquet": parquet_file, ".h5ad": anndata_file}


def read_snapshots(
    path: str | Path,
    time_key: str | None = None,
    *,
    rep: str | None = None,
    genes: Sequence[str] | None = None,
    layer: str | None = None,
    n_pcs: int | None = None,
) -> Snapshots:
    """Snapshots from a `.npz`, `.csv`, `.parquet` or `.h5ad` file.

    `time_key` names the column of times (csv, parquet: default `t`, or `time`) or the array of times. Of an h5ad file
    `rep` names an array of obsm, or `genes` (of a `layer`) the columns to use, or `n_pcs` how many components of them.
    """
    path = Path(path)
    if not path.is_file():
        raise InputError(
            expected="an existing file of snapshots",
            found=f"no file at {path}",
            hint=f"a path ending in {', '.join(_FORMATS)}",
        )
    asked = {"rep": rep, "genes": genes, "layer": layer, "n_pcs": n_pcs}
    chosen = {name: value for name, value in asked.items() if value is not None}
    if _format(path) is not anndata_file and chosen:
        raise InputError(
            expected=f"{', '.join(chosen)} with an .h5ad file",
            found=f"{path.name!r}",
            hint="leave it out: all columns are used",
        )
    return _format(path).read(path, time_key, **chosen)


def write_snapshots(snapshots: Snapshots, path: str | Path) -> None:
    """Write snapshots to a `.npz`, `.csv`, `.parquet` or `.h5ad` file, all or nothing."""
    path = Path(path)
    format_ = _format(path)
    if not path.parent.is_dir():
        raise InputError(expected="an existing folder", found=f"no folder at {path.parent}", hint="create it first")
    with whole_file(path) as partial:
        format_.write(snapshots, partial)


def _format(path: Path):
    if path.suffix.lower() not in _FORMATS:
        raise InputError(
            expected=f"a file name ending in {', '.join(_FORMATS)}",
            found=f"{path.name!r}",
            hint="convert the file; one row a point with a column of times is enough",
        )
    return _FORMATS[path.suffix.lower()]
