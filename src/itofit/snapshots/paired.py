"""Snapshots whose rows are the same individuals at all times.

The one type that keeps identities, by the user's choice. A panel of days x bins is such data: row i
of every cloud is day i. Where only clouds are wanted, `Snapshots.from_panel` forgets the days. A
solver that knows this type may use which point became which (`moments.pairs`).
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from jaxtyping import Int

from itofit.errors import InputError
from itofit.snapshots.clouds import Snapshots, checked_names
from itofit.snapshots.panel import complete_panel, drawn_rows


@dataclass(frozen=True, eq=False)
class PairedSnapshots(Snapshots):
    """Snapshots in which row i is the same individual at all times; the individuals are shuffled.

    Build one with `from_arrays` or `from_panel`.

    Parameters
    ----------
    times : array of shape (n_times,)
        One time per snapshot, increasing.
    clouds : tuple of arrays of shape (n_samples, n_dims)
        One array of points per snapshot, all of one shape.
    weights : tuple of arrays of shape (n_samples,)
        One array per snapshot, summing to 1, all equal.
    names : tuple of str
        One name per coordinate.
    space : CellSpace, optional
        None, as cells are measured once.
    made_by : mapping, optional
        Of a forecast, what made it.

    Examples
    --------
    >>> from itofit import PairedSnapshots
    >>> masses = [[60.0, 75.0], [61.0, 74.0], [59.5, 77.0]]
    >>> paired = PairedSnapshots.from_panel(masses, times=[0.0, 30.0])
    >>> gains = paired.clouds[1] - paired.clouds[0]
    >>> sorted(gains[:, 0].tolist())
    [13.0, 15.0, 17.5]
    """

    @classmethod
    def from_arrays(
        cls,
        clouds: Sequence[Any],
        times: Sequence[float] | np.ndarray,
        weights: Sequence[Any] | None = None,
        names: Sequence[str] | None = None,
    ) -> "PairedSnapshots":
        """Paired snapshots from one array of points per time, row i of each the same individual.

        Parameters
        ----------
        clouds : sequence of arrays of shape (n_samples, n_dims)
            The points of each snapshot, all of one shape.
        times : sequence of float
            One time for each cloud, in the unit that the drift shall have.
        weights : sequence of arrays of shape (n_samples,), optional
            How much each individual counts, the same at all times.
        names : sequence of str, optional
            One name per coordinate; without them x1, x2, ...

        Returns
        -------
        PairedSnapshots
            Sorted by time, the rows of all clouds shuffled alike.

        Raises
        ------
        InputError
            Where the clouds do not hold the same individuals, and as `Snapshots.from_arrays` does.

        Examples
        --------
        >>> from itofit import PairedSnapshots
        >>> x = [[0.0], [1.0], [2.0]]
        >>> paired = PairedSnapshots.from_arrays([x, x], times=[0.0, 1.0])
        >>> bool((paired.clouds[0] == paired.clouds[1]).all())
        True
        """
        plain = Snapshots.from_arrays(clouds, times, weights, names)  # for its checks
        if weights is None:
            masses = [np.ones(n) for n in plain.counts]
        else:
            masses = [np.asarray(w, float) for w in weights]
        first = masses[0]
        if any(w.shape != first.shape or not np.allclose(w, first) for w in masses):
            raise InputError(
                expected="the same individuals, of the same weights, at all times",
                found=f"counts {', '.join(map(str, plain.counts))}, or weights that differ",
                hint="keep the individuals that were observed at every time, or "
                "Snapshots.from_arrays without pairs",
            )
        order = np.argsort(np.asarray(times, dtype=float), kind="stable")
        w = first / first.sum()
        arrays = tuple(np.asarray(clouds[k], dtype=np.float64) for k in order)
        rows = np.random.default_rng([0, 12]).permutation(len(w))
        return cls(plain.times, arrays, (w,) * len(arrays), plain.names).of(rows)

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
    ) -> "PairedSnapshots":
        """Paired snapshots of a panel of days x bins (x coordinates), a day an individual.

        Parameters
        ----------
        values : array of shape (n_days, n_bins) or (n_days, n_bins, n_dims)
            One row a day, or any other individual observed at fixed times.
        times : sequence of float
            The time of each bin.
        fraction : float, default 1.0
            The part of the days to use, drawn at random.
        days : sequence, optional
            Labels of the rows, in which a day that is there twice shows; without them two equal
            rows do.
        missing : {"refuse", "skip"}, default "refuse"
            Whether NaN is refused, or days that are not complete are left out.
        names : sequence of str, optional
            One name per coordinate.
        random_state : int, default 0
            The seed of the order of the days, and of the draw where `fraction` is below 1.

        Returns
        -------
        PairedSnapshots
            One cloud for every bin, row i of each the same day.

        Raises
        ------
        InputError
            Where the panel has holes, a day twice, or is no table of numbers.

        Examples
        --------
        >>> from itofit import PairedSnapshots
        >>> values = [[1.0, 2.0], [1.5, float("nan")], [0.5, 2.2]]
        >>> PairedSnapshots.from_panel(values, times=[0.0, 0.1], missing="skip").counts
        (2, 2)
        """
        panel, bin_times = complete_panel(values, times, days, missing)
        panel = panel[~np.isnan(panel).any(axis=(1, 2))]
        rng = np.random.default_rng([random_state, 12])
        rows = drawn_rows(len(panel), fraction, rng)
        columns = list(np.moveaxis(panel[rows], 1, 0))
        plain = Snapshots.from_arrays(columns, bin_times)  # for its checks
        clouds = tuple(panel[rows, k] for k in np.argsort(bin_times, kind="stable"))
        return cls(plain.times, clouds, plain.weights, checked_names(names, panel.shape[2]))

    def of(self, rows: Int[np.ndarray, " n_rows"]) -> "PairedSnapshots":
        """Some of the individuals.

        Parameters
        ----------
        rows : integer array of shape (n_rows,)
            Their rows, the same in all clouds.

        Returns
        -------
        PairedSnapshots
            In the order of `rows`, with weights that sum to 1 again.

        Examples
        --------
        >>> import numpy as np
        >>> from itofit import PairedSnapshots
        >>> x = [[0.0], [1.0], [2.0]]
        >>> PairedSnapshots.from_arrays([x, x], times=[0.0, 1.0]).of(np.array([0, 2])).counts
        (2, 2)
        """
        weights = tuple(w[rows] / w[rows].sum() for w in self.weights)
        return replace(self, clouds=tuple(x[rows] for x in self.clouds), weights=weights)

    def thinned(self, first: int, every: int) -> "PairedSnapshots":
        """Every so-manyth individual.

        Parameters
        ----------
        first : int
            The row to begin with.
        every : int
            The distance from one row to the next.

        Returns
        -------
        PairedSnapshots
            About one in `every` of the individuals.

        Examples
        --------
        >>> from itofit import PairedSnapshots
        >>> x = [[float(i)] for i in range(6)]
        >>> PairedSnapshots.from_arrays([x, x], times=[0.0, 1.0]).thinned(0, 3).counts
        (2, 2)
        """
        return self.of(np.arange(self.counts[0])[first::every])
