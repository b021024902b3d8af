"""Cells as points: x = (expression - mean) W', or an array or genes as they are; and what is needed for the way back.

A `CellSpace` says which column of an AnnData holds the times and what the coordinates are. It travels with the
snapshots into a fit and out of a forecast, so that other cells can be read alike and clouds written as cells again.
It knows nothing of anndata itself.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float
from sklearn.decomposition import PCA

from itofit.errors import InputError


@dataclass(frozen=True, eq=False)
class PrincipalAxes:
    """Principal components of expression: z = (x - mean) W', and back x = mean + z W."""

    mean: Float[np.ndarray, " n_genes"]
    axes: Float[np.ndarray, "n_pcs n_genes"]

    @classmethod
    def fit(cls, table: Any, n_pcs: int) -> "PrincipalAxes":
        """The first components of cells in rows, dense or sparse; every cell counts the same."""
        most = min(table.shape) - 1
        if isinstance(n_pcs, bool) or not isinstance(n_pcs, int | np.integer) or not 1 <= n_pcs <= most:
            raise InputError(
                expected=f"n_pcs as a whole number from 1 to {most}, below the number of cells and of genes",
                found=f"{n_pcs!r}",
                hint="n_pcs=10",
            )
        # the exact solver of scikit-learn that takes sparse tables as they are
        found = PCA(int(n_pcs), svd_solver="arpack", random_state=0).fit(table)
        return cls(np.asarray(found.mean_, dtype=np.float64), np.asarray(found.components_, dtype=np.float64))

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
    - `rep`: the array of obsm that was taken; or `genes`, from `layer` or X, with `axes` where these are components.
    """

    time_key: str
    rep: str | None = None
    genes: tuple[str, ...] | None = None
    layer: str | None = None
    axes: PrincipalAxes | None = None

    def to_json(self) -> dict[str, Any]:
        """All but the arrays."""
        return {"time_key": self.time_key, "rep": self.rep, "genes": self.genes, "layer": self.layer}

    def to_arrays(self) -> dict[str, np.ndarray]:
        """The arrays, by name."""
        return {} if self.axes is None else {"pca.mean": self.axes.mean, "pca.axes": self.axes.axes}

    @classmethod
    def restored(cls, values: dict[str, Any], arrays: dict[str, np.ndarray]) -> "CellSpace":
        """The inverse of `to_json` and `to_arrays`."""
        axes = PrincipalAxes(arrays["pca.mean"], arrays["pca.axes"]) if "pca.mean" in arrays else None
        genes = None if values["genes"] is None else tuple(values["genes"])
        return cls(**values | {"genes": genes, "axes": axes})
