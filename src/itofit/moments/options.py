"""The options of the moments solver, and what follows from them by dimension.

docs/decisions/0005-moments-solver.md says how the defaults were chosen.
"""

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

from itofit.errors import InputError
from itofit.process.features import MANY_DIMS
from itofit.simulate.legs import ANCHORS
from itofit.solve.options import check_choice, check_count

PATHS = ("auto", "simulated", "observed")


class Counts(NamedTuple):
    """How many functions there are of each coordinate, of each pair and of all coordinates."""

    single: int
    pair: int
    every: int


@dataclass(frozen=True)
class MomentsOptions:
    """What the moments solver can be told; `Moments` documents each."""

    anchor: str = "previous"
    path: str = "auto"
    n_single: int | None = None
    n_pair: int | None = None
    n_all: int | None = None
    polynomials: bool = True
    n_draws: int = 6
    max_directions: float = 0.2
    threshold: float | None = None
    n_iter: int = 300
    dictionary: Any = None

    def __post_init__(self):
        check_choice("anchor", self.anchor, ANCHORS)
        check_choice("path", self.path, PATHS)
        if self.path == "observed" and self.anchor == "initial":
            raise InputError(
                expected="anchor='previous' with path='observed'",
                found="anchor='initial'",
                hint="path='auto'",
            )
        for name in ("n_draws", "n_iter"):
            check_count(name, getattr(self, name), 1, "leave it out")
        for name in ("n_single", "n_pair", "n_all"):
            if getattr(self, name) is not None:
                check_count(name, getattr(self, name), 0, "16")
        self._check_numbers()

    def _check_numbers(self) -> None:
        if not isinstance(self.max_directions, int | float) or not 0.0 < self.max_directions <= 1.0:
            raise InputError(
                expected="max_directions above 0 and at most 1",
                found=f"{self.max_directions!r}",
                hint="0.2",
            )
        if self.threshold is not None and not isinstance(self.threshold, int | float):
            raise InputError(
                expected="threshold to be a number",
                found=f"{self.threshold!r}",
                hint="leave it out",
            )

    def features_for(self, n_dims: int) -> Counts:
        """Tanh features drawn for the drift.

        Parameters
        ----------
        n_dims : int
            Coordinates, the time among them where the drift changes with it.

        Returns
        -------
        Counts
            Of each coordinate, of each pair and of all.
        """
        default = _features_for(n_dims)
        return Counts(
            default.single if self.n_single is None else self.n_single,
            default.pair if self.n_pair is None else self.n_pair,
            default.every if self.n_all is None else self.n_all,
        )

    def allows_clock(self, n_dims: int) -> bool:
        """Whether the drift may change with time.

        Parameters
        ----------
        n_dims : int
            Coordinates.

        Returns
        -------
        bool
            Not with a dictionary of the user's own, on the observed path, or in many dimensions.
        """
        return self.dictionary is None and self.path != "observed" and n_dims < MANY_DIMS

    def threshold_for(self, n_choices: int) -> float:
        """The log Bayes factor a group must have to stay.

        Parameters
        ----------
        n_choices : int
            Groups times outputs that it is one of.

        Returns
        -------
        float
            `threshold`, or the log of that number.
        """
        return math.log(max(2, n_choices)) if self.threshold is None else self.threshold


def _features_for(n_dims: int) -> Counts:
    if n_dims > MANY_DIMS:
        return Counts(0, 0, 0)
    return Counts(
        _within(96 // n_dims, 8, 32),
        _within(192 // _n_pairs(n_dims), 3, 64),
        16 if n_dims > 2 else 0,
    )


def cosines_for(n_dims: int) -> Counts:
    """Cosine probes at every target of a simulation."""
    if n_dims > MANY_DIMS:
        return Counts(6, 0, 0)
    return Counts(
        24 if n_dims <= 2 else 16,
        _within(400 // _n_pairs(n_dims), 8, 48),
        200 if n_dims > 2 else 0,
    )


def cosines_for_dense(n_dims: int, n_gaps: int) -> Counts:
    """The same for dense snapshots, of which there are many: fewer probes each."""
    count = cosines_for(n_dims)
    fraction = max(0.25, min(1.0, 10.0 / n_gaps))
    pair = min(count.pair, 8) if n_dims > 2 else count.pair
    return Counts(
        max(6, int(fraction * count.single)),
        int(fraction * pair),
        int(fraction * min(count.every, 60)),
    )


def _n_pairs(n_dims: int) -> int:
    return max(1, n_dims * (n_dims - 1) // 2)


def _within(
    value: int,
    smallest: int,
    largest: int,
) -> int:
    return min(max(value, smallest), largest)
