"""Reading and writing snapshots by file name; one module a format."""

from pathlib import Path
from types import ModuleType
from typing import Unpack

from itofit.errors import InputError
from itofit.snapshots import anndata_file, csv_file, npz_file, parquet_file
from itofit.snapshots.cells import CellCoordinates, CellSelection
from itofit.snapshots.clouds import Snapshots
from itofit.whole_file import whole_file

_FORMATS = {".npz": npz_file, ".csv": csv_file, ".parquet": parquet_file, ".h5ad": anndata_file}


def read_snapshots(
    path: str | Path, time_key: str | None = None, **cells: Unpack[CellCoordinates]
) -> Snapshots:
    """Snapshots from a `.npz`, `.csv`, `.parquet` or `.h5ad` file.

    Parameters
    ----------
    path : str or Path
        The file; the ending of its name says its format.
    time_key : str, optional
        The column of times (csv, parquet: without it `t`, or `time`), the array of times (npz:
        `t`, or `times`), or the column of obs (h5ad, where it must be given).
    **cells
        Of an h5ad file, the coordinates: `rep`, `genes`, `layer` and `n_pcs`, as `CellSelection`
        describes them. Of other files all columns are coordinates.

    Returns
    -------
    Snapshots
        One cloud for every time in the file.

    Raises
    ------
    InputError
        Where there is no such file, it is damaged, or lacks what is named.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> from itofit import read_snapshots
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder) / "points.csv"
    ...     _ = path.write_text("day,height\\n0,1.0\\n0,1.2\\n4,2.1\\n4,2.0\\n")
    ...     read_snapshots(path, time_key="day")
    Snapshots(2 times, 1 dims; t=0: 2, t=4: 2)
    """
    path = Path(path)
    if not path.is_file():
        raise InputError(
            expected="an existing file of snapshots",
            found=f"no file at {path}",
            hint=f"a path ending in {', '.join(_FORMATS)}",
        )
    selection = CellSelection.of({"time_key": time_key, **cells})
    file_format = _format(path)
    if file_format is anndata_file:
        return anndata_file.read(path, selection)
    coordinates = [word for word in selection.named if word != "time_key"]
    if coordinates:
        raise InputError(
            expected=f"{', '.join(coordinates)} with an .h5ad file",
            found=f"{path.name!r}",
            hint="leave it out: all columns are used",
        )
    return file_format.read(path, time_key)


def write_snapshots(snapshots: Snapshots, path: str | Path) -> None:
    """Write snapshots to a `.npz`, `.csv`, `.parquet` or `.h5ad` file, all or nothing.

    Parameters
    ----------
    snapshots : Snapshots
        The clouds to write, with their times, weights and names.
    path : str or Path
        The file, in a folder that exists; the ending of its name says its format.

    Raises
    ------
    InputError
        Where the ending is unknown, or there is no such folder.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> from itofit import Snapshots, read_snapshots, write_snapshots
    >>> snapshots = Snapshots.from_arrays([[[0.0], [1.0]], [[2.0], [3.0]]], times=[0.0, 0.5])
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder) / "points.npz"
    ...     write_snapshots(snapshots, path)
    ...     read_snapshots(path)
    Snapshots(2 times, 1 dims; t=0: 2, t=0.5: 2)
    """
    path = Path(path)
    file_format = _format(path)
    if not path.parent.is_dir():
        raise InputError(
            expected="an existing folder",
            found=f"no folder at {path.parent}",
            hint="create it first",
        )
    with whole_file(path) as partial:
        file_format.write(snapshots, partial)


def _format(path: Path) -> ModuleType:
    if path.suffix.lower() not in _FORMATS:
        raise InputError(
            expected=f"a file name ending in {', '.join(_FORMATS)}",
            found=f"{path.name!r}",
            hint="convert the file; one row a point with a column of times is enough",
        )
    return _FORMATS[path.suffix.lower()]
