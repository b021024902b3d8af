"""Snapshots whose rows are the same individuals at all times: the one type that keeps identities, by the user's choice.

A panel of days x bins is such data: row i of every cloud is day i. Where only clouds are wanted, `Snapshots.from_panel`
forgets the days. A solver that knows this type may use which point became which (`solve.pairs`).
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from jaxtyping import Int

from itofit.errors import InputError
from itofit.snapshots.clouds import Snapshots, checked_names
from itofit.snapshots.panel import check_share, complete_panel


@dataclass(frozen=True, eq=False)
class PairedSnapshots(Snapshots):
    """Clouds of equal counts and weights; row i is the same individual in all of them, in no order."""

    @classmethod
    def from_arrays(
        cls,
        clouds: Sequence[Any],
        times: Sequence[float] | np.ndarray,
        weights: Sequence[Any] | None = None,
        names: Sequence[str] | None = None,
    ) -> "PairedSnapshots":
        """From one array of points per time, row i of each the same individual; all are shuffled alike."""
        plain = Snapshots.from_arrays(clouds, times, weights, names)  # for its checks
        masses = [np.ones(n) for n in plain.counts] if weights is None else [np.asarray(w, float) for w in weights]
        if any(w.shape != masses[0].shape or not np.allclose(w, masses[0]) for w in masses):
            raise InputError(
                expected="the same individuals, of the same weights, at all times",
                found=f"counts {', '.join(map(str, plain.counts))}, or weights that differ",
                hint="keep the individuals that were seen at every time, or Snapshots.from_arrays without pairs",
            )
        order, w = np.argsort(np.asarray(times, dtype=float), kind="stable"), masses[0] / masses[0].sum()
        arrays = tuple(np.asarray(clouds[k], dtype=np.float64) for k in order)
        rows = np.random.default_rng([0, 12]).permutation(len(w))
        return cls(plain.times, arrays, (w,) * len(arrays), plain.names).of(rows)

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
    ) -> "PairedSnapshots":
        """Of a panel of days x bins (x coordinates), or of a random `share` of its days.

        With `missing="skip"` days that are not complete are left out.
        """
        check_share(share)
        panel, at = complete_panel(values, times, days, missing)
        panel, order = panel[~np.isnan(panel).any(axis=(1, 2))], np.argsort(at, kind="stable")
        rows = np.random.default_rng([random_state, 12]).permutation(len(panel))[: max(1, round(share * len(panel)))]
        plain = Snapshots.from_arrays(list(np.moveaxis(panel[rows], 1, 0)), at)  # for its checks
        clouds = tuple(panel[rows, k] for k in order)
        return cls(plain.times, clouds, plain.weights, checked_names(names, panel.shape[2]))

    def of(self, rows: Int[np.ndarray, " n_rows"]) -> "PairedSnapshots":
        """These individuals."""
        weights = tuple(w[rows] / w[rows].sum() for w in self.weights)
        return replace(self, clouds=tuple(x[rows] for x in self.clouds), weights=weights)

    def thinned(self, first: int, every: int) -> "PairedSnapshots":
        """Every so-manyth individual."""
        return self.of(np.arange(self.counts[0])[first::every])
