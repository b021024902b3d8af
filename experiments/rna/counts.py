"""Counts of molecules, one row a cell and one column a gene, with the day of every cell."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from itofit import InputError
from itofit.arrays import read_arrays

FILE = "klein_counts.npz"
DAYS = (0, 2, 4, 7)
MARKERS = ("Krt8", "Krt18", "Tdh", "Tagln", "Mt1", "Dppa5a", "Mt2", "Gsn", "Lgals1", "Pou5f1")
SUBSET = "subset-normalised"
FULL = "full data"

# A marker that fewer cells of a day show has no law there to speak of.
_FEWEST_CELLS = 2


@dataclass(frozen=True, eq=False)
class Counts:
    """Counts (an array or a sparse matrix), the names of the genes, a day for each cell, and what
    to call the data.
    """

    values: Any
    genes: tuple[str, ...]
    day: np.ndarray
    label: str

    def of(self, day: int) -> np.ndarray:
        """The counts of one day."""
        rows = self.values[np.flatnonzero(self.day == day)]
        return np.asarray(rows.toarray() if hasattr(rows, "toarray") else rows, dtype=np.float64)

    def columns(self, genes: tuple[str, ...]) -> list[int]:
        """Where these genes are."""
        place = {gene: i for i, gene in enumerate(self.genes)}
        return [place[gene] for gene in genes]


def load_counts(folder: Path, full: bool = False) -> Counts:
    """The counts of a folder, checked; with `full` the whole data set."""
    if not folder.is_dir():
        raise InputError(expected="a folder of data", found=f"none at {folder}", hint="--data DIR")
    return _checked(_full(folder) if full else _subset(folder))


def _subset(folder: Path) -> Counts:
    path = folder / FILE
    if not path.is_file():
        raise InputError(
            expected=f"{FILE} in {folder}",
            found="no such file",
            hint="another --data DIR, or --full to fetch all",
        )
    arrays = read_arrays(path, hint="another copy of it")
    missing = [name for name in ("counts", "genes", "day") if name not in arrays]
    if missing:
        raise InputError(
            expected=f"counts, genes and day in {path}",
            found=f"no {', '.join(missing)}",
            hint="another file",
        )
    return Counts(
        arrays["counts"], tuple(map(str, arrays["genes"])), arrays["day"].astype(int), SUBSET
    )


def _full(folder: Path) -> Counts:
    from itofit.datasets import klein2015  # needs the extra `anndata`

    cells = klein2015(folder)
    day = np.asarray(cells.obs["day"], dtype=float).astype(int)
    return Counts(cells.X.tocsr(), tuple(map(str, cells.var_names)), day, FULL)


def _checked(counts: Counts) -> Counts:
    n_cells, n_genes = counts.values.shape
    n_days = len(counts.day)
    n_names = len(counts.genes)
    if (n_cells, n_genes) != (n_days, n_names):
        raise InputError(
            expected="a row for each day and a column for each gene",
            found=f"{n_cells} x {n_genes} counts, {n_days} days and {n_names} genes",
            hint="one row a cell",
        )
    missing = [gene for gene in MARKERS if gene not in counts.genes]
    if missing:
        raise InputError(
            expected=f"the ten markers {', '.join(MARKERS)}",
            found=f"no {', '.join(missing)}",
            hint="other genes",
        )
    columns = counts.columns(MARKERS)
    for day in DAYS:
        unseen = np.sum(counts.of(day)[:, columns] > 0, axis=0) < _FEWEST_CELLS
        if np.any(unseen):
            raise InputError(
                expected=f"every marker in {_FEWEST_CELLS} or more cells of day {day}",
                found=f"fewer with {', '.join(np.asarray(MARKERS)[unseen])}",
                hint="more cells",
            )
    return counts
