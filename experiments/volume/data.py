"""The panel of a stock, its training and test days, and the two groups of what is observed of the
training days.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from itofit import InputError
from itofit.baselines import log_volume
from itofit.snapshots.panel import complete_panel

FILE = "volume_5min.npz"
TRAIN_BINS = (0, 2, 7, 10, 22)
TEST_BINS = (1, 9, 13, 21)
N_TEST = 100
DT = 0.02
GROUPS = {"A": 1.0, "B": 0.5}  # the fraction of the entries that is observed
_FEWEST_DAYS = N_TEST + 20


class Panel(NamedTuple):
    """Log volume of all days and bins, and the dates of the days."""

    log: Float[np.ndarray, "n_days n_bins"]
    dates: tuple[str, ...]


@dataclass(frozen=True, eq=False)
class Task:
    """One stock as one group observes it.

    - `log`: log volume, days x bins; of training days NaN where an entry was dropped, the last 100
      days complete.
    - `dates`: of the days.
    """

    stock: str
    group: str
    seed: int
    log: Float[np.ndarray, "n_days n_bins"]
    dates: tuple[str, ...]

    @property
    def train(self) -> Float[np.ndarray, "n_train n_bins"]:
        """The training days: all that anything is fitted to."""
        return self.log[:-N_TEST]

    @property
    def first(self) -> Float[np.ndarray, " n_test"]:
        """Bin 0 of the test days, from which a forecast may start."""
        return self.log[-N_TEST:, 0]

    @property
    def truth(self) -> Float[np.ndarray, "n_test n_out"]:
        """What is to be foretold."""
        return self.log[-N_TEST:, list(TEST_BINS)]


def read_panel(folder: Path, stock: str) -> Panel:
    """The panel of a stock; what cannot be used is refused."""
    places = [folder / "intraday_volume" / FILE, folder / FILE]
    path = next((place for place in places if place.is_file()), None)
    if path is None:
        raise InputError(
            expected=f"intraday_volume/{FILE} in --data",
            found=f"no file at {places[0]}",
            hint="the folder of data sets",
        )
    with np.load(path) as arrays:
        stocks = sorted(name.removesuffix("_volume") for name in arrays if name.endswith("_volume"))
        if stock not in stocks:
            raise InputError(
                expected=f"a stock of {FILE}: {', '.join(stocks)}",
                found=stock,
                hint="--stock with one of these",
            )
        volume = arrays[f"{stock}_volume"]
        dates = tuple(str(day) for day in arrays[f"{stock}_dates"])
    if volume.ndim != 2 or volume.shape[0] < _FEWEST_DAYS or volume.shape[1] <= max(TRAIN_BINS):
        n_bins = max(TRAIN_BINS) + 1
        raise InputError(
            expected=f"at least {_FEWEST_DAYS} days of at least {n_bins} bins of {stock}",
            found=f"shape {volume.shape}",
            hint="one row a day",
        )
    # Refuses half-days, and days that are there twice.
    complete_panel(volume, np.arange(volume.shape[1]), dates)
    return Panel(log_volume(volume), dates)


def task_of(stock: str, group: str, seed: int, panel: Panel) -> Task:
    """The task of a group: of every bin a part of the training days' entries, drawn bin by bin."""
    observed = panel.log.copy()
    n_train = len(observed) - N_TEST
    rng = np.random.default_rng([seed, 9])
    n_observed = round(GROUPS[group] * n_train)
    for column in observed[:n_train].T:
        column[rng.permutation(n_train)[n_observed:]] = np.nan
    return Task(stock, group, seed, observed, panel.dates)
