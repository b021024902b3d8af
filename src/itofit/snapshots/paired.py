"""Snapshots whose rows are the same individuals at all times: the one type that keeps identities, by the user's choice.

A panel of days x bins is such data: row i of every cloud is day i. Where only clouds are wanted, `Snapshots.from_panel`
forgets the days. A solver that knows this type may use which point became which (`solve.pairs`).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from itofit.snapshots.clouds import Snapshots, checked_names
from itofit.snapshots.panel import check_share, complete_panel


@dataclass(frozen=True, eq=False)
class PairedSnapshots(Snapshots):
    """Clouds of equal counts and weights; row i is the same individual in all of them, in no order."""

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
