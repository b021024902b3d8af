"""AnnData: cells in rows, a column of `obs` that says when. The one file that knows the format (the extra `anndata`).

Nothing of the user's object is changed but by `annotate`, and only the columns that are asked for are made dense.
"""

import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse
from jaxtyping import Float

from itofit.errors import InputError
from itofit.snapshots.cells import CellSpace, PrincipalAxes
from itofit.snapshots.clouds import Snapshots
from itofit.whole_file import whole_file

_SHOWN = 8  # values or names that a message shows
# A word, a number, a word: "D4", "day 4.5", "E8.5", "36h".
_LABEL = re.compile(r"\s*(\D*?)\s*([-+]?\d+(?:\.\d+)?)\s*(\D*?)\s*")
_DAY = np.timedelta64(1, "D")
# Coordinates that a fit made itself, in obsm.
OWN_REP = "X_itofit_pca"


def is_anndata(X: Any) -> bool:
    """Whether this is an AnnData, without importing anndata."""
    return all(hasattr(X, name) for name in ("obs", "obsm", "var_names", "layers"))


def from_anndata(
    adata: Any,
    time_key: str | None = None,
    rep: str | None = None,
    genes: Sequence[str] | None = None,
    layer: str | None = None,
    n_pcs: int | None = None,
) -> Snapshots:
    """Snapshots of the cells of an AnnData.

    - `time_key`: the column of `obs` with the times: numbers, labels such as "D4" or "day 4", categories of these, or
      time differences, which are read in days.
    - `rep`: the array of `obsm` to use, say "X_pca"; or `genes`: names of `var`, read from `X` or from `layer`.
    - `n_pcs`: so many principal components of `genes` (of all genes where none are named), fitted on these cells.
    """
    t = cell_times(adata, time_key)
    assert time_key is not None
    _check_coordinates(adata, rep, genes, layer, n_pcs)
    names = None if rep is not None else _gene_names(adata, genes, layer)
    space = CellSpace(time_key, rep, names, None if rep is not None else layer)
    if n_pcs is not None:
        space = replace(space, axes=PrincipalAxes.fit(_expression(adata, space), n_pcs))
    points, labels = cell_points(adata, space), _coordinate_names(adata, space)
    return replace(Snapshots.from_rows(points, t, names=labels), space=space)


def cells_like(adata: Any, space: CellSpace) -> Snapshots:
    """Other cells in coordinates that were fixed before: a day that was left out, a second experiment."""
    points, t = cell_points(adata, space), cell_times(adata, space.time_key)
    return replace(Snapshots.from_rows(points, t, names=_coordinate_names(adata, space)), space=space)


def cell_points(adata: Any, space: CellSpace) -> Float[np.ndarray, "n_cells n_dims"]:
    """One row of coordinates for every cell, in the cells' own order."""
    if space.rep is not None:
        _check_coordinates(adata, space.rep, None, None, None)
        return _dense(adata.obsm[space.rep])
    _gene_names(adata, space.genes, space.layer)
    table = _expression(adata, space)
    return _dense(table) if space.axes is None else space.axes.points(table)


def to_anndata(snapshots: Snapshots, like: Any = None) -> Any:
    """Clouds as cells: the times in obs, the points where they came from, and what made them in uns["itofit"].

    `like` is the AnnData whose kind of times (numbers, labels, time differences) and whose `var` are taken over.
    """
    anndata = anndata_module()
    points, t, w = snapshots.to_rows()
    space = snapshots.space or CellSpace("t", genes=snapshots.names)
    made = anndata.AnnData(obs=_rows([f"point{i}" for i in range(len(points))]), **_parts(points, space, like))
    made.obs[space.time_key] = t if like is None else _times_like(t, like, space.time_key)
    if np.ptp(w * np.repeat(snapshots.counts, snapshots.counts)) > 1e-9:
        made.obs["w"] = w
    made.uns["itofit"] = provenance(space, snapshots.made_by)
    return made


def annotate(
    adata: Any,
    space: CellSpace,
    drift: Float[np.ndarray, "n_cells n_dims"],
    made_by: dict[str, Any],
    arrows: dict[str, Float[np.ndarray, "n_cells _"]],
) -> None:
    """Write a drift at the cells into their AnnData, under the names that plotting reads.

    obsm["itofit_drift"], obs["itofit_speed"], and for scvelo (vkey="itofit_drift") obsm["itofit_drift_<basis>"], of the
    fitted coordinates and of every other basis that has `arrows`.
    """
    rep = OWN_REP if space.axes is not None else space.rep
    if rep == OWN_REP:
        adata.obsm[OWN_REP] = cell_points(adata, space)
    adata.obsm["itofit_drift"] = drift
    adata.obs["itofit_speed"] = np.linalg.norm(drift, axis=1)
    if rep is not None and rep.startswith("X_"):
        adata.obsm[f"itofit_drift_{rep.removeprefix('X_')}"] = drift
    for basis, found in arrows.items():
        adata.obsm[f"itofit_drift_{basis.removeprefix('X_')}"] = found
    adata.uns["itofit"] = provenance(space, made_by)


def embedding(adata: Any, basis: str) -> Float[np.ndarray, "n_cells _"]:
    """An embedding of the cells by the name that plotting uses: "umap" is obsm["X_umap"]."""
    key = basis if basis in adata.obsm else f"X_{basis}"
    if key not in adata.obsm:
        raise InputError(
            expected="basis to name an embedding in obsm",
            found=f"{basis!r}, obsm has {_some(list(adata.obsm)) or 'nothing'}",
            hint="umap, for obsm['X_umap']",
        )
    return _dense(adata.obsm[key])


def provenance(space: CellSpace, made_by: Any) -> dict[str, Any]:
    """What uns["itofit"] holds: plain values and arrays that h5ad can keep."""
    known = {"time_key": space.time_key, "rep": space.rep, "layer": space.layer}
    return {name: value for name, value in {**known, **made_by}.items() if value is not None}


def read(
    path: Path,
    time_key: str | None = None,
    rep: str | None = None,
    genes: Sequence[str] | None = None,
    layer: str | None = None,
    n_pcs: int | None = None,
) -> Snapshots:
    """Snapshots from an `.h5ad` file, of which only what is asked for is read into memory."""
    adata = opened(path)
    try:
        return from_anndata(adata, time_key, rep, genes, layer, n_pcs)
    finally:
        adata.file.close()


def opened(path: Path, backed: bool = True) -> Any:
    """The AnnData of a file, left on disk or in memory."""
    anndata = anndata_module()
    try:
        return anndata.read_h5ad(path, backed="r" if backed else None)
    except (OSError, KeyError, ValueError, TypeError, AttributeError) as error:
        raise InputError(
            expected=f"{path.name} to be a complete h5ad file", found=str(error).splitlines()[0], hint="write it again"
        ) from None


def write(snapshots: Snapshots, path: Path) -> None:
    """Clouds as an h5ad file."""
    to_anndata(snapshots).write_h5ad(path)


def write_cells(adata: Any, path: Path) -> None:
    """An AnnData as an h5ad file, all or nothing."""
    if path.suffix != ".h5ad" or not path.parent.is_dir():
        raise InputError(
            expected="a file name ending in .h5ad, in a folder that exists", found=str(path), hint="annotated.h5ad"
        )
    with whole_file(path) as partial:
        adata.write_h5ad(partial)


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


def label_time(label: float | str) -> float:
    """One time, as a number or as a label such as "D4"."""
    found = _LABEL.fullmatch(str(label))
    if found is None:
        raise InputError(expected="a time, or a label with a number in it", found=repr(label), hint="2, or 'D2'")
    return float(found[2])


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


def _check_coordinates(
    adata: Any, rep: str | None, genes: Sequence[str] | None, layer: str | None, n_pcs: int | None
) -> None:
    """Refuse coordinates that are named twice or not at all, and an array that is not there."""
    of_genes = genes is not None or n_pcs is not None
    if (rep is None) != of_genes or (rep is not None and layer is not None):
        raise InputError(
            expected="rep, an array of obsm; or genes, n_pcs or both, with a layer if they are not to be read from X",
            found=f"rep={rep!r}, genes={_some(genes or [])!r}, n_pcs={n_pcs!r}, layer={layer!r}; "
            f"obsm has {_some(list(adata.obsm)) or 'nothing'}",
            hint="rep='X_pca', genes=['Mt1', 'Mt2'], or n_pcs=10",
        )
    if rep is not None and rep not in adata.obsm:
        raise InputError(
            expected="rep to name an array of obsm",
            found=f"{rep!r}, obsm has {_some(list(adata.obsm)) or 'nothing'}",
            hint="X_pca, or n_pcs=10 for components of the genes",
        )


def _gene_names(adata: Any, genes: Sequence[str] | None, layer: str | None) -> tuple[str, ...]:
    """The genes to read, all where none are named; each must be there once, and so must the layer."""
    known = [str(name) for name in adata.var_names]
    names = known if genes is None else [genes] if isinstance(genes, str) else [str(gene) for gene in genes]
    unknown = [name for name in names if name not in set(known)]
    if unknown or not names or len(set(names)) < len(names):
        raise InputError(
            expected="genes of var_names, each once",
            found=f"{_some(unknown)} not among {len(known)} genes" if unknown else _some(names) or "none",
            hint="the spelling and case of adata.var_names; adata.var_names_make_unique() where names repeat",
        )
    if layer is not None and layer not in adata.layers:
        raise InputError(
            expected="layer to name one of layers",
            found=f"{layer!r}, there are {_some(list(adata.layers)) or 'none'}",
            hint="None for X",
        )
    return tuple(names)


def _expression(adata: Any, space: CellSpace) -> Any:
    """The genes of a space, sparse where they are."""
    assert space.genes is not None
    everything = list(space.genes) == [str(name) for name in adata.var_names]
    some = adata if everything else adata[:, list(space.genes)]
    some = some.to_memory() if adata.isbacked else some
    return some.X if space.layer is None else some.layers[space.layer]


def _coordinate_names(adata: Any, space: CellSpace) -> list[str]:
    if space.axes is not None:
        return [f"PC{i + 1}" for i in range(len(space.axes.axes))]
    if space.genes is not None:
        return list(space.genes)
    assert space.rep is not None
    table = adata.obsm[space.rep]
    if hasattr(table, "columns"):
        return [str(name) for name in table.columns]
    return [f"{space.rep.removeprefix('X_')}{i + 1}" for i in range(table.shape[1])]


def _parts(points: np.ndarray, space: CellSpace, like: Any) -> dict[str, Any]:
    """The arrays of an AnnData that hold these points."""
    if space.rep is not None:
        return {"X": np.zeros((len(points), 0)), "obsm": {space.rep: points}}  # without X, concat refuses it
    assert space.genes is not None
    var = _rows(space.genes) if like is None else like.var.loc[list(_gene_names(like, space.genes, None))].copy()
    table = points if space.axes is None else space.axes.genes(points)
    parts: dict[str, Any] = {"var": var}
    parts |= {"X": table} if space.layer is None else {"layers": {space.layer: table}}
    if space.axes is not None:
        parts |= {"obsm": {OWN_REP: points}, "varm": {"itofit_PCs": space.axes.axes.T}}
    return parts


def _rows(names: Sequence[str]) -> Any:
    """An empty table with these row names."""
    import pandas

    return pandas.DataFrame(index=pandas.Index(names))


def _times_like(t: Float[np.ndarray, " n"], like: Any, time_key: str) -> Any:
    """Times as the column of `like` writes them."""
    import pandas

    cell_times(like, time_key)  # refuses a column that is missing or cannot be read
    column = like.obs[time_key]
    values = np.asarray(column)
    if values.dtype.kind in "iuf":
        whole = values.dtype.kind != "f" and bool(np.all(t == np.round(t)))
        written = t.astype(values.dtype if whole else np.float64)
    elif values.dtype.kind == "m":
        written = pandas.to_timedelta(t, unit="D")
    else:
        pattern = str(values[0])
        found = _LABEL.fullmatch(pattern)
        assert found is not None
        written = np.asarray([pattern[: found.start(2)] + f"{time:g}" + pattern[found.end(2) :] for time in t])
    return pandas.Categorical(written) if column.dtype.name == "category" else written


def _dense(table: Any) -> Float[np.ndarray, "n_cells n_dims"]:
    table = table.toarray() if scipy.sparse.issparse(table) else table
    return np.asarray(table, dtype=np.float64)


def _some(names: Sequence[Any]) -> str:
    """The first few, and how many more."""
    shown = ", ".join(str(name) for name in list(names)[:_SHOWN])
    return shown + (f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else "")


def anndata_module() -> Any:
    """The package anndata, or a refusal that says how to get it."""
    try:
        import anndata
    except ImportError:
        raise InputError(
            expected="anndata, to hold cells and genes",
            found="it is not installed",
            hint="pip install 'itofit[anndata]', or use csv or npz",
        ) from None
    return anndata
