"""A task: snapshots, the times given to a fit, the times asked for, and the truth if it is known.

    trial = TASKS["double_well"].trial(seed)        trial.given -> fit -> forecast -> trial.asked

A trial is all that a row of the table meets. The clouds asked for are in another object than those
given: nothing fitted can see them, scaling and choice of model included.
"""

import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import numpy as np
from benchmarks.zoo.sde import Law

from itofit import Snapshots

INTERPOLATE = "interpolate"
FORECAST = "forecast"

Clouds = list[np.ndarray]
Spoil = Callable[[np.random.Generator, Clouds], Clouds]


@dataclass(frozen=True, eq=False)
class Trial:
    """One drawing of a task.

    - `given`: what a fit sees. `asked`: the clouds at the times left out.
    - `fresh`: further particles of the truth, (rng, n) -> (n_asked, n, n_dims); None for data.
    """

    given: Snapshots
    asked: Snapshots
    fresh: Callable[[np.random.Generator, int], np.ndarray] | None = None


class Task(Protocol):
    """What every task says of itself.

    - `asks`: "interpolate" (an interior time is left out) or "forecast" (the last ones are).
    - `still`: whether the law hardly moves, so that persistence is right.
    - `remark`: what must be known when its numbers are read.
    """

    name: str
    family: str
    asks: str
    still: bool
    remark: str

    def trial(self, seed: int, data: Path | None = None) -> Trial:
        """The drawing of a seed; real data are the same for all seeds, from the folder `data`."""
        ...


@dataclass(frozen=True, eq=False)
class KnownTask:
    """Snapshots of a law that can be drawn from.

    - `times`: of all snapshots; `asked`: those of them that are left out.
    - `counts`: points a snapshot, one number or one a time.
    - `spoil`: what happens to the clouds given, outliers or a batch effect; those asked for are as
      the law has them.
    """

    name: str
    family: str
    asks: str
    law: Law
    times: tuple[float, ...]
    asked: tuple[float, ...]
    counts: int | tuple[int, ...]
    spoil: Spoil | None = None
    still: bool = False
    remark: str = ""

    def trial(self, seed: int, data: Path | None = None) -> Trial:
        """Independent particles for every snapshot: each is observed once."""
        del data
        rng = np.random.default_rng([zlib.crc32(self.name.encode()), seed])
        clouds = self._observed(rng)
        is_asked = [time in self.asked for time in self.times]
        given = [cloud for cloud, left_out in zip(clouds, is_asked, strict=True) if not left_out]
        asked = [cloud for cloud, left_out in zip(clouds, is_asked, strict=True) if left_out]
        if self.spoil is not None:
            given = self.spoil(rng, given)
        given_times = [time for time in self.times if time not in self.asked]
        return Trial(
            Snapshots.from_arrays(given, given_times),
            Snapshots.from_arrays(asked, list(self.asked)),
            self._fresh,
        )

    def _observed(self, rng: np.random.Generator) -> Clouds:
        counts = self.counts
        sizes = [counts] * len(self.times) if isinstance(counts, int) else list(counts)
        paths = self.law.sample(rng, sum(sizes), self.times)
        ends = np.cumsum(sizes)
        return [paths[k, ends[k] - sizes[k] : ends[k]] for k in range(len(sizes))]

    def _fresh(self, rng: np.random.Generator, n: int) -> np.ndarray:
        """By the very chain that was observed: its steps depend on all of the times."""
        paths = self.law.sample(rng, n, self.times)
        return paths[[self.times.index(time) for time in self.asked]]


def interior(times: Sequence[float], position: int) -> tuple[float, ...]:
    """The one time left out of an interpolation."""
    if not 0 < position < len(times) - 1:
        raise ValueError(f"no interior time at {position} of {len(times)}")
    return (times[position],)
