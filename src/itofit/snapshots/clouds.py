"""Snapshots: empirical laws p(t_n) = sum_k w_nk delta(x_nk) at times t_0 < t_1 < ... < t_J.

Rows carry no identity. On entry each cloud is put into a canonical order and then shuffled with a
stream of its own, so no code further on can use which row came from whom, and a result does not
depend on the order in which the rows were given.
"""

import hashlib
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float

from itofit.errors import InputError
from itofit.snapshots.cells import CellSpace


class Snapshot(NamedTuple):
    """One cloud: its time, its points and their weights (which sum to 1)."""

    time: float
    points: Float[np.ndarray, "n_samples n_dims"]
    weights: Float[np.ndarray, " n_samples"]


class Rows(NamedTuple):
    """All points of all snapshots in one table, with a time and a weight for each."""

    points: Float[np.ndarray, "n_rows n_dims"]
    times: Float[np.ndarray, " n_rows"]
    weights: Float[np.ndarray, " n_rows"]


@dataclass(frozen=True, eq=False)
class Snapshots:
    """Clouds of points at increasing times, in the user's own units.

    Build one with `from_arrays`, `from_rows` or `from_panel`; all check, sort by time and shuffle,
    so that rows carry no identity. Iterating gives one `Snapshot` (time, points, weights) a time.

    Parameters
    ----------
    times : array of shape (n_times,)
        One time per snapshot, increasing.
    clouds : tuple of arrays of shape (n_samples, n_dims)
        One array of points per snapshot; the numbers of points may differ.
    weights : tuple of arrays of shape (n_samples,)
        One array per snapshot, summing to 1.
    names : tuple of str
        One name per coordinate.
    space : CellSpace, optional
        Of cells, how an AnnData became points.
    made_by : mapping, optional
        Of a forecast, what made it.

    Examples
    --------
    >>> import numpy as np
    >>> from itofit import Snapshots
    >>> x0 = np.array([[0.0, 1.0], [1.0, 0.0]])
    >>> snapshots = Snapshots.from_arrays([x0, x0 + 1.0], times=[0.0, 0.5])
    >>> snapshots
    Snapshots(2 times, 2 dims; t=0: 2, t=0.5: 2)
    >>> [snapshot.time for snapshot in snapshots]
    [0.0, 0.5]
    """

    times: Float[np.ndarray, " n_times"]
    clouds: tuple[Float[np.ndarray, "_ n_dims"], ...]
    weights: tuple[Float[np.ndarray, " _"], ...]
    names: tuple[str, ...]
    space: CellSpace | None = None
    made_by: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def from_arrays(
        cls,
        clouds: Sequence[Any],
        times: Sequence[float] | np.ndarray,
        weights: Sequence[Any] | None = None,
        names: Sequence[str] | None = None,
    ) -> "Snapshots":
        """Snapshots from one array of points per time; unsorted times are sorted.

        Parameters
        ----------
        clouds : sequence of arrays of shape (n_samples, n_dims)
            The points of each snapshot, at least 2, all of one dimension and finite.
        times : sequence of float
            One time for each cloud, in the unit that the drift shall have.
        weights : sequence of arrays of shape (n_samples,), optional
            How much each point counts; divided by their sum. Without them all count the same.
        names : sequence of str, optional
            One name per coordinate; without them x1, x2, ...

        Returns
        -------
        Snapshots
            Sorted by time, the rows of every cloud shuffled.

        Raises
        ------
        InputError
            Where clouds, times and weights do not fit together or hold what is no number.

        Examples
        --------
        >>> from itofit import Snapshots
        >>> Snapshots.from_arrays([[[3.0], [4.0]], [[0.0], [1.0], [2.0]]], times=[1.0, 0.0])
        Snapshots(2 times, 1 dims; t=0: 3, t=1: 2)
        """
        times = _checked_times(times, n_clouds=len(clouds))
        arrays = [_checked_cloud(cloud, time) for cloud, time in zip(clouds, times, strict=True)]
        n_dims = _common_dimension(arrays, times)
        raw_weights = [None] * len(arrays) if weights is None else list(weights)
        if len(raw_weights) != len(arrays):
            raise InputError(
                expected=f"one array of weights for each of {len(arrays)} snapshots",
                found=f"{len(raw_weights)}",
                hint="give weights in the same order as the clouds, or none at all",
            )
        masses = [
            _checked_weights(w, len(x), t)
            for w, x, t in zip(raw_weights, arrays, times, strict=True)
        ]
        order = np.argsort(times, kind="stable")
        shuffled = [_shuffle(arrays[i], masses[i], stream=rank) for rank, i in enumerate(order)]
        return cls(
            times=times[order],
            clouds=tuple(x for x, _ in shuffled),
            weights=tuple(w for _, w in shuffled),
            names=checked_names(names, n_dims),
        )

    @classmethod
    def from_panel(
        cls,
        values: Any,
        times: Any,
        *,
        fraction: float = 1.0,
        days: Sequence[Any] | None = None,
        missing: str = "refuse",
        names: Sequence[str] | None = None,
        random_state: int = 0,
    ) -> "Snapshots":
        """Snapshots of a panel of days x bins (x coordinates): one a bin, the days forgotten.

        `PairedSnapshots.from_panel` keeps the days.

        Parameters
        ----------
        values : array of shape (n_days, n_bins) or (n_days, n_bins, n_dims)
            One row a day, or any other individual observed at fixed times.
        times : sequence of float
            The time of each bin.
        fraction : float, default 1.0
            The part of the entries of each snapshot to use, drawn at random bin by bin.
        days : sequence, optional
            Labels of the rows, in which a day that is there twice shows; without them two equal
            rows do.
        missing : {"refuse", "skip"}, default "refuse"
            Whether NaN is refused, or the entry left out of its snapshot.
        names : sequence of str, optional
            One name per coordinate.
        random_state : int, default 0
            The seed of the draw where `fraction` is below 1.

        Returns
        -------
        Snapshots
            One cloud for every bin, its rows in no order.

        Raises
        ------
        InputError
            Where the panel has holes, a day twice, or is no table of numbers.

        Examples
        --------
        >>> from itofit import Snapshots
        >>> values = [[1.0, 2.0, 4.0], [1.5, 2.5, 3.5], [0.5, 2.2, 3.0], [0.9, 1.9, 3.3]]
        >>> Snapshots.from_panel(values, times=[0.0, 0.1, 0.2], fraction=0.5)
        Snapshots(3 times, 1 dims; t=0: 2, t=0.1: 2, t=0.2: 2)
        """
        from itofit.snapshots.panel import complete_panel, drawn_entries

        panel, bin_times = complete_panel(values, times, days, missing)
        clouds = drawn_entries(panel, fraction, random_state)
        return cls.from_arrays(clouds, bin_times, names=names)

    @classmethod
    def from_rows(
        cls, X: Any, t: Any, weights: Any | None = None, names: Sequence[str] | None = None
    ) -> "Snapshots":
        """Snapshots from a table of points and one time per row.

        Parameters
        ----------
        X : array of shape (n_rows, n_dims)
            The points of all times.
        t : array of shape (n_rows,)
            The time of each row; rows of one time make a snapshot.
        weights : array of shape (n_rows,), optional
            How much each row counts; divided by their sum, snapshot by snapshot.
        names : sequence of str, optional
            One name per coordinate; without them x1, x2, ...

        Returns
        -------
        Snapshots
            One cloud for every value of `t`.

        Raises
        ------
        InputError
            Where points, times and weights do not fit together or hold what is no number.

        Examples
        --------
        >>> from itofit import Snapshots
        >>> Snapshots.from_rows([[0.0], [2.0], [1.0], [3.0]], t=[0, 4, 0, 4], names=["height"])
        Snapshots(2 times, 1 dims; t=0: 2, t=4: 2)
        """
        X = _numeric(X, "points")
        t = numeric_times(t)
        if X.ndim != 2 or t.ndim != 1 or len(X) != len(t):
            raise InputError(
                expected="X of shape (n_rows, n_dims) and t of shape (n_rows,)",
                found=f"X {X.shape} and t {t.shape}",
                hint="pass one time for every row; a single coordinate is X[:, None]",
            )
        if not np.all(np.isfinite(t)):
            raise InputError(
                expected="a finite time for every row",
                found=f"{int(np.sum(~np.isfinite(t)))} missing or infinite times",
                hint="drop those rows",
            )
        mass = None if weights is None else _numeric(weights, "weights")
        if mass is not None and mass.shape != t.shape:
            raise InputError(
                expected=f"one weight for each of {len(t)} rows",
                found=f"shape {mass.shape}",
                hint="check the column",
            )
        times = np.unique(t)
        rows = [np.flatnonzero(t == time) for time in times]
        masses = None if mass is None else [mass[i] for i in rows]
        return cls.from_arrays([X[i] for i in rows], times, masses, names)

    @property
    def n_dims(self) -> int:
        """Dimension D of the state.

        Examples
        --------
        >>> from itofit import Snapshots
        >>> Snapshots.from_arrays([[[0.0, 1.0], [1.0, 0.0]]], times=[0.0]).n_dims
        2
        """
        return self.clouds[0].shape[1]

    @property
    def counts(self) -> tuple[int, ...]:
        """Number of points of each snapshot.

        Examples
        --------
        >>> from itofit import Snapshots
        >>> Snapshots.from_arrays([[[0.0], [1.0]], [[0.0], [1.0], [2.0]]], times=[0.0, 1.0]).counts
        (2, 3)
        """
        return tuple(len(cloud) for cloud in self.clouds)

    @property
    def effective_counts(self) -> tuple[float, ...]:
        """`1 / sum w^2` for each snapshot: how many equally weighted points it is worth.

        Examples
        --------
        >>> from itofit import Snapshots
        >>> x = [[0.0], [1.0], [2.0]]
        >>> Snapshots.from_arrays([x], times=[0.0], weights=[[1.0, 1.0, 2.0]]).effective_counts
        (2.6666666666666665,)
        """
        return tuple(float(1.0 / np.sum(w**2)) for w in self.weights)

    def __len__(self) -> int:
        return len(self.times)

    def __iter__(self) -> Iterator[Snapshot]:
        return (
            Snapshot(float(t), x, w)
            for t, x, w in zip(self.times, self.clouds, self.weights, strict=True)
        )

    def __repr__(self) -> str:
        parts = ", ".join(f"t={t:g}: {n}" for t, n in zip(self.times, self.counts, strict=True))
        return f"Snapshots({len(self)} times, {self.n_dims} dims; {parts})"

    def index(self, time: float) -> int | None:
        """Position of the snapshot at a time.

        Parameters
        ----------
        time : float
            Equal to one of `times` up to rounding.

        Returns
        -------
        int or None
            None where there is no snapshot at that time.

        Examples
        --------
        >>> from itofit import Snapshots
        >>> snapshots = Snapshots.from_arrays([[[0.0], [1.0]]] * 2, times=[0.0, 0.3])
        >>> snapshots.index(0.1 + 0.2)
        1
        """
        nearest = int(np.argmin(np.abs(self.times - time)))
        return nearest if abs(self.times[nearest] - time) <= time_tolerance(self.times) else None

    def at(self, time: float) -> Snapshot:
        """The snapshot at a time.

        Parameters
        ----------
        time : float
            Equal to one of `times` up to rounding.

        Returns
        -------
        Snapshot
            With `time`, `points` of shape (n_samples, n_dims) and `weights` of shape (n_samples,).

        Raises
        ------
        InputError
            Where there is no snapshot at that time.

        Examples
        --------
        >>> from itofit import Snapshots
        >>> snapshots = Snapshots.from_arrays([[[0.0], [1.0]], [[4.0], [4.0]]], times=[0.0, 1.0])
        >>> snapshots.at(1.0).points.tolist()
        [[4.0], [4.0]]
        """
        i = self.index(time)
        if i is None:
            raise InputError(
                expected=f"one of the times {_listed(self.times)}",
                found=f"{time:g}",
                hint="forecast that time instead",
            )
        return Snapshot(float(self.times[i]), self.clouds[i], self.weights[i])

    def select(self, positions: Sequence[int]) -> "Snapshots":
        """The snapshots at these positions.

        Parameters
        ----------
        positions : sequence of int
            Positions among `times`, in increasing order.

        Returns
        -------
        Snapshots
            The same clouds, in the same order of rows.

        Examples
        --------
        >>> from itofit import Snapshots
        >>> snapshots = Snapshots.from_arrays([[[0.0], [1.0]]] * 3, times=[0.0, 1.0, 2.0])
        >>> snapshots.select([0, 2])
        Snapshots(2 times, 1 dims; t=0: 2, t=2: 2)
        """
        positions = list(positions)
        return replace(
            self,
            times=self.times[positions],
            clouds=tuple(self.clouds[i] for i in positions),
            weights=tuple(self.weights[i] for i in positions),
        )

    def with_clouds(self, clouds: Sequence[np.ndarray]) -> "Snapshots":
        """The same times, weights and names around other points.

        Parameters
        ----------
        clouds : sequence of arrays of shape (n_samples, n_dims)
            The new points, row for row in place of the old.

        Returns
        -------
        Snapshots
            Neither checked nor shuffled.

        Examples
        --------
        >>> from itofit import Snapshots
        >>> snapshots = Snapshots.from_arrays([[[1.0], [1.0]]], times=[0.0])
        >>> snapshots.with_clouds([10.0 * x for x in snapshots.clouds]).clouds[0].tolist()
        [[10.0], [10.0]]
        """
        return replace(self, clouds=tuple(clouds))

    def thinned(self, first: int, every: int) -> "Snapshots":
        """Every so-manyth point of each snapshot.

        Rows are in no order, so that parts which differ in `first` are independent samples.

        Parameters
        ----------
        first : int
            The row to begin with.
        every : int
            The distance from one row to the next.

        Returns
        -------
        Snapshots
            About one in `every` of the points.

        Examples
        --------
        >>> from itofit import Snapshots
        >>> x = [[float(i)] for i in range(6)]
        >>> Snapshots.from_arrays([x], times=[0.0]).thinned(1, 2)
        Snapshots(1 times, 1 dims; t=0: 3)
        """
        clouds = [x[first::every] for x in self.clouds]
        weights = [w[first::every] for w in self.weights]
        masses = [w / w.sum() for w in weights]
        return Snapshots.from_arrays(clouds, self.times, masses, self.names)

    def to_rows(self) -> Rows:
        """All points in one table, the inverse of `from_rows`.

        Returns
        -------
        Rows
            `points` of shape (n_rows, n_dims), `times` and `weights` of shape (n_rows,), which can
            be unpacked in this order.

        Examples
        --------
        >>> from itofit import Snapshots
        >>> snapshots = Snapshots.from_arrays([[[0.0], [1.0]], [[2.0], [3.0]]], times=[0.0, 4.0])
        >>> X, t, w = snapshots.to_rows()
        >>> t.tolist()
        [0.0, 0.0, 4.0, 4.0]
        """
        t = np.repeat(self.times, self.counts)
        return Rows(np.concatenate(self.clouds), t, np.concatenate(self.weights))

    def to_anndata(self, like: Any = None) -> Any:
        """The points as cells of an AnnData (the extra `anndata`).

        Parameters
        ----------
        like : AnnData, optional
            Cells whose way of writing times (numbers, labels, time differences) and whose `var`
            are taken over.

        Returns
        -------
        AnnData
            Times in `obs`, points where `space` says they came from (in `X` where it says nothing)
            and what made them in `uns["itofit"]`.

        Examples
        --------
        >>> from itofit import Snapshots
        >>> snapshots = Snapshots.from_arrays([[[0.0], [1.0]]], times=[2.5], names=["Mt1"])
        >>> cells = snapshots.to_anndata()
        >>> cells.obs["t"].tolist(), cells.var_names.tolist()
        ([2.5, 2.5], ['Mt1'])
        """
        from itofit.snapshots.anndata_file import to_anndata

        return to_anndata(self, like)


def time_tolerance(times: np.ndarray) -> float:
    """How far equal times may differ by rounding: far below the shortest gap."""
    gaps = np.diff(times)
    part_of_gap = 1e-9 * gaps.min() if len(gaps) else 0.0
    return float(part_of_gap + 4.0 * np.spacing(np.abs(times).max()))


def numeric_times(t: Any) -> np.ndarray:
    """A column of times as floats, or a refusal that shows what is not a number."""
    t = np.asarray(t)
    try:
        if t.dtype.kind in "mM":  # dates and durations would be read as counts of nanoseconds
            raise TypeError
        return t.astype(np.float64)
    except (TypeError, ValueError):
        dates = t.dtype.kind in "mM"
        shown = [repr(str(value)) for value in t.ravel() if dates or not _is_number(value)][:3]
        raise InputError(
            expected="numeric times",
            found=f"values such as {', '.join(shown)}",
            hint="convert the labels to numbers in the unit you want the drift in, e.g. 'D4' to "
            "4.0",
        ) from None


def _is_number(value: Any) -> bool:
    try:
        float(value)
    except (TypeError, ValueError):
        return False
    return True


def _numeric(values: Any, what: str) -> np.ndarray:
    try:
        return np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError):
        raise InputError(
            expected=f"numeric {what}",
            found="entries that are not numbers, or rows of different length",
            hint="drop or encode those columns first",
        ) from None


def _checked_times(times: Any, n_clouds: int) -> np.ndarray:
    t = numeric_times(times)
    if t.ndim != 1 or len(t) != n_clouds or n_clouds == 0:
        raise InputError(
            expected="one time for each cloud, and at least one cloud",
            found=f"{t.size} times for {n_clouds} clouds",
            hint="pass Snapshots.from_arrays([x0, x1, ...], times=[t0, t1, ...])",
        )
    if not np.all(np.isfinite(t)):
        raise InputError(
            expected="finite times", found=_listed(t), hint="drop the snapshots without a time"
        )
    values, counts = np.unique(t, return_counts=True)
    if np.any(counts > 1):
        raise InputError(
            expected="each time once",
            found=f"{_listed(values[counts > 1])} repeated",
            hint="concatenate the clouds that share a time",
        )
    return t


def _checked_cloud(cloud: Any, time: float) -> np.ndarray:
    x = _numeric(cloud, f"points at t={time:g}")
    if x.ndim != 2 or x.shape[1] == 0:
        raise InputError(
            expected=f"points of shape (n_samples, n_dims) at t={time:g}",
            found=f"shape {x.shape}",
            hint="a single coordinate is x[:, None]",
        )
    if len(x) < 2:
        raise InputError(
            expected=f"at least 2 points at t={time:g}",
            found=f"{len(x)}",
            hint="drop that snapshot or merge it with its neighbour",
        )
    bad = int(np.sum(~np.isfinite(x).all(axis=1)))
    if bad:
        raise InputError(
            expected=f"finite points at t={time:g}",
            found=f"{bad} of {len(x)} rows with NaN or inf",
            hint="drop or impute those rows",
        )
    return x


def _common_dimension(arrays: list[np.ndarray], times: np.ndarray) -> int:
    dims = [x.shape[1] for x in arrays]
    if len(set(dims)) > 1:
        shown = ", ".join(f"t={t:g}: {d}" for t, d in zip(times, dims, strict=True))
        raise InputError(
            expected="clouds of one dimension",
            found=shown,
            hint="keep the coordinates that every snapshot has, in the same order",
        )
    return dims[0]


def _checked_weights(weights: Any | None, n_samples: int, time: float) -> np.ndarray:
    if weights is None:
        return np.full(n_samples, 1.0 / n_samples)
    w = _numeric(weights, f"weights at t={time:g}")
    misshapen = w.shape != (n_samples,)
    if misshapen or not np.all(np.isfinite(w)) or np.any(w < 0) or w.sum() <= 0:
        raise InputError(
            expected=f"{n_samples} finite weights, none negative, not all zero, at t={time:g}",
            found=f"shape {w.shape}" if misshapen else "negative, missing or vanishing ones",
            hint="leave the weights out to count every point once",
        )
    total = math.fsum(w)  # exact, so that the order of rows does not matter
    return w if abs(total - 1.0) <= 1e-12 else w / total


def checked_names(names: Sequence[str] | None, n_dims: int) -> tuple[str, ...]:
    """One name for every coordinate, x1, x2, ... where none are given."""
    if names is None:
        return tuple(f"x{i + 1}" for i in range(n_dims))
    texts = tuple(str(name) for name in names)
    if len(texts) != n_dims:
        raise InputError(
            expected=f"{n_dims} names", found=f"{len(texts)}", hint="give one name per coordinate"
        )
    return texts


def _shuffle(points: np.ndarray, weights: np.ndarray, stream: int) -> tuple[np.ndarray, np.ndarray]:
    canonical = np.lexsort((weights, *points.T[::-1]))
    content = int.from_bytes(hashlib.sha256(points[canonical].tobytes()).digest()[:8], "little")
    order = canonical[np.random.default_rng([20210, stream, content]).permutation(len(points))]
    return points[order], weights[order]


def _listed(values: np.ndarray) -> str:
    shown = ", ".join(f"{v:g}" for v in values[:8])
    return shown + (", ..." if len(values) > 8 else "")
