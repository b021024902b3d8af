"""Cells as points: x = (expression - mean) W', or an array or genes as they are.

A `CellSelection` is what a user names of an AnnData: the column of times and the coordinates. A
`CellSpace` is what became of it, with all that is needed for the way back. It travels with the
snapshots into a fit and out of a forecast, so that other cells can be read alike and clouds written
as cells again. Neither knows anything of anndata itself.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, TypedDict

import numpy as np
from jaxtyping import Float
from sklearn.decomposition import PCA

from itofit.errors import InputError


class CellCoordinates(TypedDict, total=False):
    """The words of a `CellSelection` that name the coordinates."""

    rep: str | None
    genes: Sequence[str] | None
    layer: str | None
    n_pcs: int | None


class CellKeywords(CellCoordinates, total=False):
    """The words of a `CellSelection`, as keywords of every function that takes an AnnData."""

    time_key: str | None


@dataclass(frozen=True)
class CellSelection:
    """What to read of an AnnData: the column of times, and the coordinates of a cell.

    Functions that take an AnnData take these as plain keywords, `fit(adata, time_key="day",
    rep="X_pca")`. Coordinates are either an array of `obsm` (`rep`), or genes as they are
    (`genes`), or principal components of genes (`n_pcs`).

    Parameters
    ----------
    time_key : str, optional
        The column of `obs` that says when a cell was measured: numbers, labels such as "D4" or
        "day 4", categories of these, or time differences, which are read in days.
    rep : str, optional
        The array of `obsm` whose columns are the coordinates, say "X_pca".
    genes : tuple of str, optional
        Names of `var` that are the coordinates, or of which `n_pcs` takes components.
    layer : str, optional
        The layer that genes are read from; without it, `X`.
    n_pcs : int, optional
        So many principal components of `genes` (of all genes where none are named), fitted on the
        cells that are read.

    Examples
    --------
    >>> from itofit.snapshots import CellSelection
    >>> CellSelection(time_key="day", n_pcs=10)
    CellSelection(time_key='day', rep=None, genes=None, layer=None, n_pcs=10)
    """

    time_key: str | None = None
    rep: str | None = None
    genes: tuple[str, ...] | None = None
    layer: str | None = None
    n_pcs: int | None = None

    @classmethod
    def of(cls, cells: Mapping[str, Any]) -> "CellSelection":
        """The selection that keywords make.

        Parameters
        ----------
        cells : mapping
            Values by the names of the parameters of `CellSelection`.

        Returns
        -------
        CellSelection
            With None for every word that is not given.

        Raises
        ------
        InputError
            Where a word is none of these, or its value not of its type. Whether the value names
            something that exists is checked when cells are read.

        Examples
        --------
        >>> from itofit.snapshots import CellSelection
        >>> CellSelection.of({"time_key": "day", "genes": ["Mt1", "Mt2"]}).genes
        ('Mt1', 'Mt2')
        """
        accepted = [field.name for field in fields(cls)]
        unknown = [word for word in cells if word not in accepted]
        if unknown:
            raise InputError(
                expected=f"keywords among {', '.join(accepted)}",
                found=", ".join(unknown),
                hint="time_key='day', rep='X_pca'",
            )
        return cls(
            time_key=_text("time_key", cells.get("time_key"), hint="time_key='day'"),
            rep=_text("rep", cells.get("rep"), hint="rep='X_pca'"),
            genes=_names_of_genes(cells.get("genes")),
            layer=_text("layer", cells.get("layer"), hint="layer='imputed', or nothing for X"),
            n_pcs=_whole("n_pcs", cells.get("n_pcs"), hint="n_pcs=10"),
        )

    @property
    def named(self) -> dict[str, Any]:
        """The words that were given, with their values.

        Examples
        --------
        >>> from itofit.snapshots import CellSelection
        >>> CellSelection(time_key="day", n_pcs=10).named
        {'time_key': 'day', 'n_pcs': 10}
        """
        words = {field.name: getattr(self, field.name) for field in fields(self)}
        return {word: value for word, value in words.items() if value is not None}


@dataclass(frozen=True, eq=False)
class PrincipalAxes:
    """Principal components of expression: z = (x - mean) W', and back x = mean + z W."""

    mean: Float[np.ndarray, " n_genes"]
    axes: Float[np.ndarray, "n_pcs n_genes"]

    @classmethod
    def fit(cls, table: Any, n_pcs: int) -> "PrincipalAxes":
        """The first components of cells in rows, dense or sparse; every cell counts the same."""
        most = min(table.shape) - 1
        if not 1 <= n_pcs <= most:
            raise InputError(
                expected=f"n_pcs as a whole number from 1 to {most}, below the number of cells "
                "and of genes",
                found=f"{n_pcs!r}",
                hint="n_pcs=10",
            )
        # the exact solver of scikit-learn that takes sparse tables as they are
        pca = PCA(int(n_pcs), svd_solver="arpack", random_state=0).fit(table)
        mean = np.asarray(pca.mean_, dtype=np.float64)
        return cls(mean, np.asarray(pca.components_, dtype=np.float64))

    def points(self, table: Any) -> Float[np.ndarray, "n n_pcs"]:
        """Coordinates of cells; a sparse table stays sparse."""
        return np.asarray(table @ self.axes.T, dtype=np.float64) - self.mean @ self.axes.T

    def genes(self, points: Float[np.ndarray, "n n_pcs"]) -> Float[np.ndarray, "n n_genes"]:
        """Expression of points, as far as the components hold it."""
        return self.mean + points @ self.axes


@dataclass(frozen=True, eq=False)
class CellSpace:
    """How cells became points.

    - `time_key`: the column of obs with the times.
    - `rep`: the array of obsm that was taken; or
    - `genes`, from `layer` or X, with `axes` where the coordinates are components of them.
    """

    time_key: str
    rep: str | None = None
    genes: tuple[str, ...] | None = None
    layer: str | None = None
    axes: PrincipalAxes | None = None

    def to_json(self) -> dict[str, Any]:
        """All but the arrays."""
        return {
            "time_key": self.time_key,
            "rep": self.rep,
            "genes": self.genes,
            "layer": self.layer,
        }

    def to_arrays(self) -> dict[str, np.ndarray]:
        """The arrays, by name."""
        if self.axes is None:
            return {}
        return {"pca.mean": self.axes.mean, "pca.axes": self.axes.axes}

    @classmethod
    def restored(cls, values: dict[str, Any], arrays: dict[str, np.ndarray]) -> "CellSpace":
        """The inverse of `to_json` and `to_arrays`."""
        axes = None
        if "pca.mean" in arrays:
            axes = PrincipalAxes(arrays["pca.mean"], arrays["pca.axes"])
        genes = None if values["genes"] is None else tuple(values["genes"])
        return cls(values["time_key"], values["rep"], genes, values["layer"], axes)


def _text(word: str, value: Any, hint: str) -> str | None:
    if value is not None and not isinstance(value, str):
        raise InputError(expected=f"{word} as text", found=repr(value), hint=hint)
    return value


def _whole(word: str, value: Any, hint: str) -> int | None:
    if value is None:
        return None
    if not isinstance(value, int | np.integer) or isinstance(value, bool):
        raise InputError(expected=f"{word} as a whole number", found=repr(value), hint=hint)
    return int(value)


def _names_of_genes(genes: Any) -> tuple[str, ...] | None:
    """Names of genes; a single name may stand alone."""
    if genes is None:
        return None
    if not isinstance(genes, Iterable):
        raise InputError(
            expected="genes as a list of names", found=repr(genes), hint="genes=['Mt1', 'Mt2']"
        )
    return (genes,) if isinstance(genes, str) else tuple(str(gene) for gene in genes)
