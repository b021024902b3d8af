"""AnnData: cells in rows, a column of `obs` that says when. The one file that knows the format (the extra `anndata`).

Nothing of the user's object is changed, and only the columns that are asked for are made dense.
"""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse
from jaxtyping import Float

from itofit.errors import InputError
from itofit.snapshots.clouds import Snapshots

_SHOWN = 8  # values or names that a message shows
# A word, a number, a word: "D4", "day 4.5", "E8.5", "36h".
_LABEL = re.compile(r"\s*(\D*?)\s*([-+]?\d+(?:\.\d+)?)\s*(\D*?)\s*")
_DAY = np.timedelta64(1, "D")


def is_anndata(X: Any) -> bool:
    """Whether this is an AnnData, without importing anndata."""
    return all(hasattr(X, name) for name in ("obs", "obsm", "var_names", "layers"))


def from_anndata(
    adata: Any,
    time_key: str | None = None,
    rep: str | None = None,
    genes: Sequence[str] | None = None,
    layer: str | None = None,
) -> Snapshots:
    """Snapshots of the cells of an AnnData.

    - `time_key`: the column of `obs` with the times: numbers, labels such as "D4" or "day 4", categories of these, or
      time differences, which are read in days.
    - `rep`: the array of `obsm` to use, say "X_pca"; or `genes`: names of `var`, read from `X` or from `layer`.
    """
    t = cell_times(adata, time_key)
    points, names = _cells(adata, rep, genes, layer)
    return Snapshots.from_rows(points, t, names=names)


def read(
    path: Path,
    time_key: str | None = None,
    rep: str | None = None,
    genes: Sequence[str] | None = None,
    layer: str | None = None,
) -> Snapshots:
    """Snapshots from an `.h5ad` file, of which only what is asked for is read into memory."""
    anndata = _anndata()
    try:
        adata = anndata.read_h5ad(path, backed="r")
    except (OSError, KeyError, ValueError, TypeError, AttributeError) as error:
        raise InputError(
            expected=f"{path.name} to be a complete h5ad file", found=str(error).splitlines()[0], hint="write it again"
        ) from None
    try:
        return from_anndata(adata, time_key, rep, genes, layer)
    finally:
        adata.file.close()


def write(snapshots: Snapshots, path: Path) -> None:
    """Clouds as an h5ad file: points in X, times in obs["t"], weights in obs["w"]."""
    anndata = _anndata()
    X, t, w = snapshots.to_rows()
    made = anndata.AnnData(X)
    made.obs_names, made.var_names = [f"point{i}" for i in range(len(X))], list(snapshots.names)
    made.obs["t"], made.obs["w"] = t, w
    made.write_h5ad(path)


def cell_times(adata: Any, time_key: str | None) -> Float[np.ndarray, " n_cells"]:
    """One time for every cell."""
    columns = [str(name) for name in adata.obs.columns]
    if time_key not in columns:
        raise InputError(
            expected="time_key to name the column of obs that says when a cell was measured",
            found=f"{time_key!r}, with the columns {_some(columns)}",
            hint="time_key='day'",
        )
    column = adata.obs[time_key]
    missing = np.asarray(column.isna())
    if missing.any():
        raise InputError(
            expected=f"a time for every cell in obs[{time_key!r}]",
            found=f"{int(missing.sum())} of {len(missing)} cells without one",
            hint=f"adata[adata.obs[{time_key!r}].notna()]",
        )
    values = np.asarray(column)
    if values.dtype.kind in "iuf":
        return values.astype(np.float64)
    if values.dtype.kind == "m":
        return values / _DAY
    return _from_labels(values, time_key)


def _from_labels(values: np.ndarray, time_key: str) -> Float[np.ndarray, " n_cells"]:
    """Numbers, or numbers between one word before and one after that are the same in all labels."""
    unique, where = np.unique(values.astype(str), return_inverse=True)
    labels = [str(label) for label in unique]
    found = [_LABEL.fullmatch(label) for label in labels]
    words = {(m[1].lower(), m[3].lower()) for m in found if m}
    if values.dtype.kind in "bM" or any(m is None for m in found) or len(words) != 1:
        odd = [label for label, m in zip(labels, found, strict=True) if m is None] or labels
        raise InputError(
            expected=f"obs[{time_key!r}] as numbers, time differences, or labels alike but for a number ('D0', 'D4')",
            found=_some([repr(label) for label in odd]),
            hint=f"adata.obs['time'] = adata.obs[{time_key!r}].map({{{labels[0]!r}: 0.0, ...}})",
        )
    return np.asarray([float(m[2]) for m in found if m])[where]


def _cells(
    adata: Any, rep: str | None, genes: Sequence[str] | None, layer: str | None
) -> tuple[Float[np.ndarray, "n_cells n_dims"], list[str]]:
    """The points and the names of their coordinates."""
    if (rep is None) == (genes is None) or (rep is not None and layer is not None):
        raise InputError(
            expected="rep, an array of obsm; or genes, with a layer if they are not to be read from X",
            found=f"rep={rep!r}, genes={_some(genes or [])!r}, layer={layer!r}; obsm has {_some(list(adata.obsm))}",
            hint="rep='X_pca', or genes=['Mt1', 'Mt2']",
        )
    if rep is not None:
        if rep not in adata.obsm:
            raise InputError(
                expected="rep to name an array of obsm",
                found=f"{rep!r}, obsm has {_some(list(adata.obsm))}",
                hint="X_pca",
            )
        table = adata.obsm[rep]
        named = [str(name) for name in table.columns] if hasattr(table, "columns") else None
        points = _dense(table)
        return points, named or [f"{rep.removeprefix('X_')}{i + 1}" for i in range(points.shape[1])]
    names = [genes] if isinstance(genes, str) else [str(gene) for gene in genes or ()]
    known = {str(name) for name in adata.var_names}
    unknown = [name for name in names if name not in known]
    if unknown or not names or len(set(names)) < len(names):
        raise InputError(
            expected="genes of var_names, each once",
            found=f"{_some(unknown)} not among {len(known)} genes" if unknown else _some(names) or "none",
            hint="the spelling and case of adata.var_names",
        )
    if layer is not None and layer not in adata.layers:
        raise InputError(
            expected="layer to name one of layers",
            found=f"{layer!r}, there are {_some(list(adata.layers))}",
            hint="None for X",
        )
    some = adata[:, names]
    some = some.to_memory() if adata.isbacked else some
    return _dense(some.X if layer is None else some.layers[layer]), names


def _dense(table: Any) -> Float[np.ndarray, "n_cells n_dims"]:
    table = table.toarray() if scipy.sparse.issparse(table) else table
    return np.asarray(table, dtype=np.float64)


def _some(names: Sequence[Any]) -> str:
    """The first few, and how many more."""
    shown = ", ".join(str(name) for name in list(names)[:_SHOWN])
    return shown + (f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else "")


def _anndata():
    try:
        import anndata
    except ImportError:
        raise InputError(
            expected="anndata, to read and write h5ad",
            found="it is not installed",
            hint="pip install 'itofit[anndata]', or use csv or npz",
        ) from None
    return anndata
