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


@dataclass(frozen=True, eq=False)
class Snapshots:
    """Clouds of points at increasing times, in the user's own units.

    Build one with `from_arrays` or `from_rows`; both check, sort by time and shuffle.

    - `times`: one float per snapshot, increasing.
    - `clouds`: one `(n_samples, n_dims)` array per snapshot; counts may differ.
    - `weights`: one array per snapshot, summing to 1.
    - `names`: one name per coordinate.
    - `space`: of cells, how an AnnData became points; `made_by`: of a forecast, what made it.
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
        """Snapshots from one array of points per time; unsorted times are sorted."""
        times = _checked_times(times, n_clouds=len(clouds))
        arrays = [_checked_cloud(cloud, time) for cloud, time in zip(clouds, times, strict=True)]
        n_dims = _common_dimension(arrays, times)
        given = [None] * len(arrays) if weights is None else list(weights)
        if len(given) != len(arrays):
            raise InputError(
                expected=f"one array of weights for each of {len(arrays)} snapshots",
                found=f"{len(given)}",
                hint="give weights in the same order as the clouds, or none at all",
            )
        masses = [_checked_weights(w, len(x), t) for w, x, t in zip(given, arrays, times, strict=True)]
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
        share: float = 1.0,
        days: Sequence[Any] | None = None,
        missing: str = "refuse",
        names: Sequence[str] | None = None,
        random_state: int = 0,
    ) -> "Snapshots":
        """Snapshots of a panel of days x bins (x coordinates), one a column, at the `times` of the columns.

        The days are forgotten. With `share` a random part of the entries of each snapshot is kept, drawn snapshot by
        snapshot. `days` are labels that show a day that is there twice; NaN is refused, or skipped with
        `missing="skip"`. `PairedSnapshots.from_panel` keeps the days.
        """
        from itofit.snapshots.panel import complete_panel, kept_entries

        panel, at = complete_panel(values, times, days, missing)
        return cls.from_arrays(kept_entries(panel, share, random_state), at, names=names)

    @classmethod
    def from_rows(cls, X: Any, t: Any, weights: Any | None = None, names: Sequence[str] | None = None) -> "Snapshots":
        """Snapshots from a table of points `X` and one time per row `t`."""
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
        values = np.unique(t)
        rows = [np.flatnonzero(t == value) for value in values]
        mass = None if weights is None else _numeric(weights, "weights")
        if mass is not None and mass.shape != t.shape:
            raise InputError(
                expected=f"one weight for each of {len(t)} rows",
                found=f"shape {mass.shape}",
                hint="check the column",
            )
        return cls.from_arrays(
            [X[i] for i in rows],
            values,
            None if mass is None else [mass[i] for i in rows],
            names,
        )

    @property
    def n_dims(self) -> int:
        """Dimension D of the state."""
        return self.clouds[0].shape[1]

    @property
    def counts(self) -> tuple[int, ...]:
        """Number of points of each snapshot."""
        return tuple(len(cloud) for cloud in self.clouds)

    @property
    def effective_counts(self) -> tuple[float, ...]:
        """`1 / sum w^2` for each snapshot: how many equally weighted points it is worth."""
        return tuple(float(1.0 / np.sum(w**2)) for w in self.weights)

    def __len__(self) -> int:
        return len(self.times)

    def __iter__(self) -> Iterator[Snapshot]:
        return (Snapshot(float(t), x, w) for t, x, w in zip(self.times, self.clouds, self.weights, strict=True))

    def __repr__(self) -> str:
        parts = ", ".join(f"t={t:g}: {n}" for t, n in zip(self.times, self.counts, strict=True))
        return f"Snapshots({len(self)} times, {self.n_dims} dims; {parts})"

    def index(self, time: float) -> int | None:
        """Position of the snapshot at `time`, or None."""
        nearest = int(np.argmin(np.abs(self.times - time)))
        return nearest if abs(self.times[nearest] - time) <= time_tolerance(self.times) else None

    def at(self, time: float) -> Snapshot:
        """The snapshot at `time`, which must exist."""
        i = self.index(time)
        if i is None:
            raise InputError(
                expected=f"one of the times {_listed(self.times)}",
                found=f"{time:g}",
                hint="forecast that time instead",
            )
        return Snapshot(float(self.times[i]), self.clouds[i], self.weights[i])

    def select(self, positions: Sequence[int]) -> "Snapshots":
        """The snapshots at these positions."""
        keep = list(positions)
        return replace(
            self,
            times=self.times[keep],
            clouds=tuple(self.clouds[i] for i in keep),
            weights=tuple(self.weights[i] for i in keep),
        )

    def with_clouds(self, clouds: Sequence[np.ndarray]) -> "Snapshots":
        """The same times, weights and names around other points, row for row."""
        return replace(self, clouds=tuple(clouds))

    def thinned(self, first: int, every: int) -> "Snapshots":
        """Every so-manyth point of each snapshot; rows are in no order, so that such parts are independent samples."""
        clouds = [x[first::every] for x in self.clouds]
        weights = [w[first::every] for w in self.weights]
        return Snapshots.from_arrays(clouds, self.times, [w / w.sum() for w in weights], self.names)

    def to_rows(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Points, times and weights, one row per point: the inverse of `from_rows`."""
        t = np.repeat(self.times, self.counts)
        return np.concatenate(self.clouds), t, np.concatenate(self.weights)

    def to_anndata(self, like: Any = None) -> Any:
        """The points as cells of an AnnData, with the extra `anndata`; times are written as those of `like` are."""
        from itofit.snapshots.anndata_file import to_anndata

        return to_anndata(self, like)


def time_tolerance(times: np.ndarray) -> float:
    """How far two times may differ by rounding and still be the same: far below the shortest gap."""
    gaps = np.diff(times)
    return float((1e-9 * gaps.min() if len(gaps) else 0.0) + 4.0 * np.spacing(np.abs(times).max()))


def numeric_times(t: Any) -> np.ndarray:
    """A column of times as floats, or a refusal that shows what is not a number."""
    t = np.asarray(t)
    try:
        if t.dtype.kind in "mM":  # dates and durations would be read as counts of nanoseconds
            raise TypeError
        return t.astype(np.float64)
    except (TypeError, ValueError):
        shown = [str(v) for v in t.ravel() if t.dtype.kind in "mM" or not _is_number(v)][:3]
        raise InputError(
            expected="numeric times",
            found=f"values such as {', '.join(map(repr, shown))}",
            hint="convert the labels to numbers in the unit you want the drift in, e.g. 'D4' to 4.0",
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
        raise InputError(expected="finite times", found=_listed(t), hint="drop the snapshots without a time")
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
    if w.shape != (n_samples,) or not np.all(np.isfinite(w)) or np.any(w < 0) or w.sum() <= 0:
        raise InputError(
            expected=f"{n_samples} finite weights, none negative, not all zero, at t={time:g}",
            found=f"shape {w.shape}" if w.shape != (n_samples,) else "negative, missing or vanishing ones",
            hint="leave the weights out to count every point once",
        )
    total = math.fsum(w)  # exact, so that the order of rows does not matter
    return w if abs(total - 1.0) <= 1e-12 else w / total


def checked_names(names: Sequence[str] | None, n_dims: int) -> tuple[str, ...]:
    """One name for every coordinate, x1, x2, ... where none are given."""
    chosen = tuple(f"x{i + 1}" for i in range(n_dims)) if names is None else tuple(map(str, names))
    if len(chosen) != n_dims:
        raise InputError(expected=f"{n_dims} names", found=f"{len(chosen)}", hint="give one name per coordinate")
    return chosen


def _shuffle(points: np.ndarray, weights: np.ndarray, stream: int) -> tuple[np.ndarray, np.ndarray]:
    canonical = np.lexsort((weights, *points.T[::-1]))
    content = int.from_bytes(hashlib.sha256(points[canonical].tobytes()).digest()[:8], "little")
    order = canonical[np.random.default_rng([20210, stream, content]).permutation(len(points))]
    return points[order], weights[order]


def _listed(values: np.ndarray) -> str:
    shown = ", ".join(f"{v:g}" for v in values[:8])
    return shown + (", ..." if len(values) > 8 else "")
