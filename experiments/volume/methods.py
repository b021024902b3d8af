"""The methods of the comparison, and what must be known when their rows are read."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from experiments.rna.methods import THREE_LAYERS
from experiments.volume.classical import (
    constant,
    kalman,
    kalman_of_five,
    regression,
    resample,
    rolling,
)
from experiments.volume.data import DT, TEST_BINS, TRAIN_BINS, Task
from experiments.volume.forecasts import LEVELS, Forecast
from itofit import (
    Adversarial,
    FokkerPlanckProcess,
    InputError,
    Moments,
    PairedSnapshots,
    Snapshots,
)
from itofit.metrics.distances import coordinate_W1
from itofit.metrics.floor import split_half_floor
from itofit.process_face import ProcessFace

N_PATHS = 500

CLASSICAL: dict[str, Callable[[Task], Forecast]] = {
    "truth": lambda task: Forecast(np.exp(task.truth), task.truth),
    "constant": constant,
    "resample": resample,
    "regression": regression,
    "rolling-20": lambda task: rolling(task, 20),
    "rolling-all": lambda task: rolling(task),
    "rolling-log": lambda task: rolling(task, log=True),
    "kalman-static": lambda task: kalman(task, "static"),
    "kalman-dynamic": lambda task: kalman(task, "dynamic"),
    "kalman-matched": lambda task: kalman(task, "matched"),
    "kalman-matched-5": kalman_of_five,
}


@dataclass(frozen=True)
class Ours:
    """A process of ours; `pairs`: whether it is told which values are of the same day."""

    solver: Moments | Adversarial = Moments()
    time_varying: bool = False
    sigma: float | str = "learn"
    pairs: bool = False


OURS = {
    "moments": Ours(),
    "moments-clock": Ours(time_varying=True),
    "moments-pairs": Ours(pairs=True),
    "moments-pairs-clock": Ours(time_varying=True, pairs=True),
    "moments-clock-quiet": Ours(time_varying=True, sigma=0.3),
    "moments-clock-loud": Ours(time_varying=True, sigma=3.0),
    "adversarial": Ours(THREE_LAYERS),
}
METHODS = (*CLASSICAL, *OURS)
DEFAULT = tuple(
    name
    for name in METHODS
    if name not in ("moments-clock-quiet", "moments-clock-loud", "adversarial")
)
DRAWN = ("rolling-all", "kalman-matched", "moments-clock", "moments-pairs")
NO_PAIRS = "skipped: the entries are dropped bin by bin, and hardly a day is left whole: no pairs"
REMARKS = {
    "truth": "what came, for its slope",
    "constant": "an oracle, of the test days themselves: the best that a forecast without news of "
    "the day can score",
    "resample": "an oracle of bins ours never sees: a random training day's volume at the bin",
    "regression": "an oracle of bins ours never sees: log volume of the bin on that of bin 0, over "
    "training days",
    "rolling-20": "sees the bin itself on past days, test days too",
    "rolling-all": "sees the bin itself on past days, test days too",
    "rolling-log": "sees the bin itself on past days, test days too; mean of logs",
    "kalman-static": "fitted to all bins of training days, not to five; forecast at the close "
    "before; median",
    "kalman-dynamic": "as kalman-static, but a bin is foretold from all bins before it, of the day "
    "itself too; median",
    "kalman-matched": "as kalman-static, but having seen the day's bin 0, as ours has; median",
    "kalman-matched-5": "sees the five training bins, of test days bin 0 only, and interpolates; "
    "median",
    "moments-pairs": "knows which value of one bin and which of the next are of the same day",
    "moments-pairs-clock": "as moments-pairs, the drift changing with the time of day",
    "moments-clock": "the drift may change with the time of day",
    "moments-clock-quiet": "as moments-clock, the noise held at 0.3",
    "moments-clock-loud": "as moments-clock, the noise held at 3",
    "adversarial": "three hidden layers of 64",
}


@dataclass(frozen=True, eq=False)
class Result:
    """What a method gave: its forecasts by kind, none where it could not.

    - `sigma`: of a process the noise.
    - `training_W1`, `training_floor`: its clouds at the training bins, from the first, against
      those of the training days, in logs; and halves of these against each other. Means over bins,
      at half size.
    """

    forecasts: dict[str, Forecast]
    outcome: str
    seconds: float
    sigma: float | None = None
    training_W1: float | None = None
    training_floor: float | None = None

    def checked(self) -> "Result":
        """The result without its forecasts where one of them is not finite."""
        if all(forecast.is_finite for forecast in self.forecasts.values()):
            return self
        return Result({}, f"{self.outcome}: forecasts that are not finite", self.seconds)


class TrainingFit(NamedTuple):
    """How far the marginals that were fitted are missed, and the floor of that."""

    W1: float
    floor: float


def classical_result(method: str, task: Task) -> Result:
    """What a method that is not ours gives for the test days."""
    began = time.perf_counter()
    forecast = CLASSICAL[method](task)
    return Result({"median": forecast}, "done", time.perf_counter() - began).checked()


def process_result(model: ProcessFace, task: Task) -> Result:
    """What a fitted process gives for the test days."""
    outcome = model.outcome_.name
    try:
        forecasts = forecasts_of(model, task)
        fit = training_fit(model)
    except InputError as fault:  # a process that runs to infinity has no forecast
        return Result({}, f"{outcome}: {fault}", model.seconds_)
    sigma = float(np.mean(model.diffusion(task.first[:, None])))
    return Result(forecasts, outcome, model.seconds_, sigma, fit.W1, fit.floor).checked()


def lacks_pairs(method: str, task: Task) -> bool:
    """Whether a method asks for pairs that the task does not have."""
    return OURS[method].pairs and bool(np.isnan(task.train[:, list(TRAIN_BINS)]).any())


def fitted(method: str, task: Task, device: str) -> ProcessFace:
    """A process of ours, fitted to the training bins of the training days."""
    ours = OURS[method]
    kind = PairedSnapshots if ours.pairs else Snapshots
    snapshots = kind.from_panel(
        task.train[:, list(TRAIN_BINS)],
        DT * np.asarray(TRAIN_BINS),
        days=task.dates[: len(task.train)],
        missing="skip",
        names=["log volume"],
    )
    model = FokkerPlanckProcess(
        ours.sigma,
        dt=DT,
        solver=ours.solver,
        time_varying=ours.time_varying,
        device=device,
        random_state=task.seed,
    )
    model.fit(snapshots)
    return model


def forecasts_of(model: ProcessFace, task: Task) -> dict[str, Forecast]:
    """From bin 0 of every test day: one path, the mean (of volume, and of its log) and the median
    of many.
    """
    laws = [model.predict_from(task.first[:, None], 0.0, DT * b, N_PATHS) for b in TEST_BINS]
    draws = np.concatenate([law.draws for law in laws], axis=-1)
    quantiles = np.concatenate([law.quantile(LEVELS) for law in laws], axis=-1)
    single = draws[:, 0]
    median = np.median(draws, axis=1)
    return {
        "single path": Forecast(np.exp(single), single, quantiles),
        "mean": Forecast(np.exp(draws).mean(axis=1), draws.mean(axis=1), quantiles),
        "median": Forecast(np.exp(median), median, quantiles),
    }


def training_fit(model: ProcessFace) -> TrainingFit:
    """The distance of the process to the training bins after the first."""
    later = model.snapshots_.select(range(1, len(model.snapshots_)))
    clouds = model.forecast(later.times)
    floors = [
        split_half_floor(coordinate_W1, observed, cloud)
        for observed, cloud in zip(later, clouds, strict=True)
    ]
    return TrainingFit(
        W1=float(np.mean([floor.mean + floor.excess for floor in floors])),
        floor=float(np.mean([floor.mean for floor in floors])),
    )
