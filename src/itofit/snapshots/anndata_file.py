"""AnnData: cells in rows, a column of `obs` that says when.

The one file that knows the format (the extra `anndata`). Nothing of the user's object is changed
but by `annotate`, and only the columns that are selected are made dense.
"""

import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Unpack

import numpy as np
import scipy.sparse
from jaxtyping import Float

from itofit.errors import InputError
from itofit.snapshots.cells import CellKeywords, CellSelection, CellSpace, PrincipalAxes
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


def from_anndata(adata: Any, **cells: Unpack[CellKeywords]) -> Snapshots:
    """Snapshots of the cells of an AnnData.

    Parameters
    ----------
    adata : AnnData
        Cells in rows, in memory or backed by a file.
    **cells
        The column of times and the coordinates: `time_key`, `rep`, `genes`, `layer` and `n_pcs`, as
        `CellSelection` describes them.

    Returns
    -------
    Snapshots
        One cloud for every time, which remembers how its cells became points (`space`).

    Raises
    ------
    InputError
        Where a word is unknown, or names something that the AnnData does not have.

    Examples
    --------
    >>> import anndata
    >>> import numpy as np
    >>> from itofit import from_anndata
    >>> adata = anndata.AnnData(np.arange(12.0).reshape(4, 3))
    >>> adata.obs["day"] = ["D0", "D0", "D4", "D4"]
    >>> adata.obsm["X_pca"] = np.array([[0.0, 1.0], [1.0, 0.0], [2.0, 3.0], [3.0, 2.0]])
    >>> from_anndata(adata, time_key="day", rep="X_pca")
    Snapshots(2 times, 2 dims; t=0: 2, t=4: 2)
    """
    return selected_cells(adata, CellSelection.of(cells))


def selected_cells(adata: Any, selection: CellSelection) -> Snapshots:
    """Snapshots of the cells of an AnnData, as a checked selection names them."""
    t = cell_times(adata, selection.time_key)
    space = _space(adata, selection)
    return _clouds(adata, space, cell_points(adata, space), t)


def cells_like(adata: Any, space: CellSpace) -> Snapshots:
    """Other cells in coordinates fixed before: a day that was left out, a second experiment."""
    points = cell_points(adata, space)
    return _clouds(adata, space, points, cell_times(adata, space.time_key))


def _clouds(adata: Any, space: CellSpace, points: np.ndarray, t: np.ndarray) -> Snapshots:
    names = _coordinate_names(adata, space)
    return replace(Snapshots.from_rows(points, t, names=names), space=space)


def _space(adata: Any, selection: CellSelection) -> CellSpace:
    """The coordinates that a selection names, fitted to the cells where they are components."""
    assert selection.time_key is not None
    _check_coordinates(adata, selection)
    if selection.rep is not None:
        return CellSpace(selection.time_key, selection.rep)
    genes = _gene_names(adata, selection.genes, selection.layer)
    space = CellSpace(selection.time_key, genes=genes, layer=selection.layer)
    if selection.n_pcs is None:
        return space
    return replace(space, axes=PrincipalAxes.fit(_expression(adata, space), selection.n_pcs))


def cell_points(adata: Any, space: CellSpace) -> Float[np.ndarray, "n_cells n_dims"]:
    """One row of coordinates for every cell, in the cells' own order."""
    if space.rep is not None:
        _check_rep(adata, space.rep)
        return _dense(adata.obsm[space.rep])
    _gene_names(adata, space.genes, space.layer)
    table = _expression(adata, space)
    return _dense(table) if space.axes is None else space.axes.points(table)


def to_anndata(snapshots: Snapshots, like: Any = None) -> Any:
    """Clouds as cells: times in obs, points where they came from, their origin in uns["itofit"].

    `like` is the AnnData whose kind of times (numbers, labels, time differences) and whose `var`
    are taken over.
    """
    anndata_module()  # refuses where it is not installed
    rows = snapshots.to_rows()
    space = snapshots.space or CellSpace("t", genes=snapshots.names)
    obs = _rows([f"point{i}" for i in range(len(rows.points))])
    if space.rep is not None:
        made = _cells_of_rep(rows.points, space.rep, obs)
    else:
        made = _cells_of_genes(rows.points, space, obs, like)
    t = rows.times if like is None else _times_like(rows.times, like, space.time_key)
    made.obs[space.time_key] = t
    # relative to equal weights, which are not written
    if np.ptp(rows.weights * np.repeat(snapshots.counts, snapshots.counts)) > 1e-9:
        made.obs["w"] = rows.weights
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

    obsm["itofit_drift"], obs["itofit_speed"], and for scvelo (vkey="itofit_drift")
    obsm["itofit_drift_<basis>"], of the fitted coordinates and of every other basis that has
    `arrows`.
    """
    rep = OWN_REP if space.axes is not None else space.rep
    if rep == OWN_REP:
        adata.obsm[OWN_REP] = cell_points(adata, space)
    adata.obsm["itofit_drift"] = drift
    adata.obs["itofit_speed"] = np.linalg.norm(drift, axis=1)
    if rep is not None and rep.startswith("X_"):
        adata.obsm[f"itofit_drift_{rep.removeprefix('X_')}"] = drift
    for basis, arrow in arrows.items():
        adata.obsm[f"itofit_drift_{basis.removeprefix('X_')}"] = arrow
    adata.uns["itofit"] = provenance(space, made_by)


def embedding(adata: Any, basis: str) -> Float[np.ndarray, "n_cells _"]:
    """An embedding of the cells by the name that plotting uses: "umap" is obsm["X_umap"]."""
    key = basis if basis in adata.obsm else f"X_{basis}"
    if key not in adata.obsm:
        raise InputError(
            expected="basis to name an embedding in obsm",
            found=f"{basis!r}, obsm has {_abbreviated(list(adata.obsm)) or 'nothing'}",
            hint="umap, for obsm['X_umap']",
        )
    return _dense(adata.obsm[key])


def provenance(space: CellSpace, made_by: Any) -> dict[str, Any]:
    """What uns["itofit"] holds: plain values and arrays that h5ad can keep."""
    known = {"time_key": space.time_key, "rep": space.rep, "layer": space.layer}
    everything = known | dict(made_by)
    return {name: value for name, value in everything.items() if value is not None}


def read(path: Path, selection: CellSelection) -> Snapshots:
    """Snapshots from an `.h5ad` file, of which only what is selected is read into memory."""
    adata = opened(path)
    try:
        return selected_cells(adata, selection)
    finally:
        adata.file.close()


def opened(path: Path, backed: bool = True) -> Any:
    """The AnnData of a file, left on disk or in memory."""
    anndata = anndata_module()
    try:
        return anndata.read_h5ad(path, backed="r" if backed else None)
    except (OSError, KeyError, ValueError, TypeError, AttributeError) as error:
        raise InputError(
            expected=f"{path.name} to be a complete h5ad file",
            found=str(error).splitlines()[0],
            hint="write it again",
        ) from None


def write(snapshots: Snapshots, path: Path) -> None:
    """Clouds as an h5ad file."""
    to_anndata(snapshots).write_h5ad(path)


def write_cells(adata: Any, path: Path) -> None:
    """An AnnData as an h5ad file, all or nothing."""
    if path.suffix != ".h5ad" or not path.parent.is_dir():
        raise InputError(
            expected="a file name ending in .h5ad, in a folder that exists",
            found=str(path),
            hint="annotated.h5ad",
        )
    with whole_file(path) as partial:
        adata.write_h5ad(partial)


def cell_times(adata: Any, time_key: str | None) -> Float[np.ndarray, " n_cells"]:
    """One time for every cell."""
    columns = [str(name) for name in adata.obs.columns]
    if time_key not in columns:
        raise InputError(
            expected="time_key to name the column of obs that says when a cell was measured",
            found=f"{time_key!r}, with the columns {_abbreviated(columns)}",
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
    match = _LABEL.fullmatch(str(label))
    if match is None:
        raise InputError(
            expected="a time, or a label with a number in it", found=repr(label), hint="2, or 'D2'"
        )
    return float(match[2])


def _from_labels(values: np.ndarray, time_key: str) -> Float[np.ndarray, " n_cells"]:
    """The numbers of labels whose words before and after the number are the same in all."""
    unique, where = np.unique(values.astype(str), return_inverse=True)
    labels = [str(label) for label in unique]
    matches = {label: _LABEL.fullmatch(label) for label in labels}
    readable = [match for match in matches.values() if match is not None]
    words = {(match[1].lower(), match[3].lower()) for match in readable}
    if values.dtype.kind in "bM" or len(readable) < len(labels) or len(words) != 1:
        unreadable = [label for label in labels if matches[label] is None] or labels
        raise InputError(
            expected=f"obs[{time_key!r}] as numbers, time differences, or labels alike but for a "
            "number ('D0', 'D4')",
            found=_abbreviated([repr(label) for label in unreadable]),
            hint=f"adata.obs['time'] = adata.obs[{time_key!r}].map({{{labels[0]!r}: 0.0, ...}})",
        )
    return np.asarray([float(match[2]) for match in readable])[where]


def _check_coordinates(adata: Any, selection: CellSelection) -> None:
    """Refuse coordinates that are named twice or not at all, and an array that is not there."""
    rep = selection.rep
    of_genes = selection.genes is not None or selection.n_pcs is not None
    if (rep is None) != of_genes or (rep is not None and selection.layer is not None):
        raise InputError(
            expected="rep, an array of obsm; or genes, n_pcs or both, with a layer if they are "
            "not to be read from X",
            found=f"rep={rep!r}, genes={_abbreviated(selection.genes or ())!r}, "
            f"n_pcs={selection.n_pcs!r}, layer={selection.layer!r}; "
            f"obsm has {_abbreviated(list(adata.obsm)) or 'nothing'}",
            hint="rep='X_pca', genes=['Mt1', 'Mt2'], or n_pcs=10",
        )
    if rep is not None:
        _check_rep(adata, rep)


def _check_rep(adata: Any, rep: str) -> None:
    if rep not in adata.obsm:
        raise InputError(
            expected="rep to name an array of obsm",
            found=f"{rep!r}, obsm has {_abbreviated(list(adata.obsm)) or 'nothing'}",
            hint="X_pca, or n_pcs=10 for components of the genes",
        )


def _gene_names(adata: Any, genes: Sequence[str] | None, layer: str | None) -> tuple[str, ...]:
    """The genes to read, all where none are named; each must be there once, and the layer too."""
    known = [str(name) for name in adata.var_names]
    names = known if genes is None else list(genes)
    in_var = set(known)
    unknown = [name for name in names if name not in in_var]
    if unknown or not names or len(set(names)) < len(names):
        missing = f"{_abbreviated(unknown)} not among {len(known)} genes"
        raise InputError(
            expected="genes of var_names, each once",
            found=missing if unknown else _abbreviated(names) or "none",
            hint="the spelling and case of adata.var_names; adata.var_names_make_unique() where "
            "names repeat",
        )
    if layer is not None and layer not in adata.layers:
        raise InputError(
            expected="layer to name one of layers",
            found=f"{layer!r}, there are {_abbreviated(list(adata.layers)) or 'none'}",
            hint="None for X",
        )
    return tuple(names)


def _expression(adata: Any, space: CellSpace) -> Any:
    """The genes of a space, sparse where they are."""
    assert space.genes is not None
    everything = list(space.genes) == [str(name) for name in adata.var_names]
    part = adata if everything else adata[:, list(space.genes)]
    part = part.to_memory() if adata.isbacked else part
    return part.X if space.layer is None else part.layers[space.layer]


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


def _cells_of_rep(points: np.ndarray, rep: str, obs: Any) -> Any:
    """An AnnData with points in obsm; without an X, concat would refuse it."""
    X = np.zeros((len(points), 0))
    return anndata_module().AnnData(X=X, obs=obs, obsm={rep: points})


def _cells_of_genes(points: np.ndarray, space: CellSpace, obs: Any, like: Any) -> Any:
    """An AnnData with points as expression, in X or in a layer, and their components beside it."""
    assert space.genes is not None
    table = points if space.axes is None else space.axes.genes(points)
    var = _rows(space.genes)
    if like is not None:
        var = like.var.loc[list(_gene_names(like, space.genes, None))].copy()
    anndata = anndata_module()
    if space.layer is None:
        made = anndata.AnnData(X=table, obs=obs, var=var)
    else:
        made = anndata.AnnData(obs=obs, var=var, layers={space.layer: table})
    if space.axes is not None:
        made.obsm[OWN_REP] = points
        made.varm["itofit_PCs"] = space.axes.axes.T
    return made


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
        written = _labels_like(t, pattern=str(values[0]))
    return pandas.Categorical(written) if column.dtype.name == "category" else written


def _labels_like(t: Float[np.ndarray, " n"], pattern: str) -> np.ndarray:
    """Labels with the words of a pattern around the times."""
    match = _LABEL.fullmatch(pattern)
    assert match is not None
    before = pattern[: match.start(2)]
    after = pattern[match.end(2) :]
    return np.asarray([f"{before}{time:g}{after}" for time in t])


def _dense(table: Any) -> Float[np.ndarray, "n_cells n_dims"]:
    table = table.toarray() if scipy.sparse.issparse(table) else table
    return np.asarray(table, dtype=np.float64)


def _abbreviated(names: Sequence[Any]) -> str:
    """The first few, and how many more."""
    shown = ", ".join(str(name) for name in list(names)[:_SHOWN])
    n_more = len(names) - _SHOWN
    return f"{shown} and {n_more} more" if n_more > 0 else shown


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
