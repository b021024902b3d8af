"""The methods of the comparison, and what must be known when their rows are read."""

import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from experiments.rna.methods import DRIFT
from experiments.volume.classical import constant, kalman, kalman_of_five, regression, resample, rolling
from experiments.volume.data import DT, TEST_BINS, TRAIN_BINS, Task
from experiments.volume.forecasts import LEVELS, Forecast
from itofit import FitWarning, FokkerPlanckProcess, InputError, Outcome, PairedSnapshots, Snapshots
from itofit.cli.main import load_run
from itofit.face import MODEL_FILE
from itofit.metrics.floor import split_half_floor
from itofit.metrics.transport import coordinate_W1
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
OURS: dict[str, dict[str, Any]] = {
    "moments": {"solver": "moments"},
    "moments-clock": {"solver": "moments", "time_varying": True},
    "moments-pairs": {"solver": "moments"},
    "moments-pairs-clock": {"solver": "moments", "time_varying": True},
    "moments-clock-quiet": {"solver": "moments", "time_varying": True, "sigma": 0.3},
    "moments-clock-loud": {"solver": "moments", "time_varying": True, "sigma": 3.0},
    "adversarial": {"solver": "adversarial", "options": DRIFT},
}
PAIRED = ("moments-pairs", "moments-pairs-clock")
METHODS = (*CLASSICAL, *OURS)
DEFAULT = tuple(name for name in METHODS if name not in ("moments-clock-quiet", "moments-clock-loud", "adversarial"))
DRAWN = ("rolling-all", "kalman-matched", "moments-clock", "moments-pairs")
NO_PAIRS = "skipped: the entries are dropped bin by bin, and hardly a day is left whole: no pairs"
REMARKS = {
    "truth": "what came, for its slope",
    "constant": "an oracle, of the test days themselves: the best that a forecast without news of the day can score",
    "resample": "an oracle of bins ours never sees: a random training day's volume at the bin",
    "regression": "an oracle of bins ours never sees: log volume of the bin on that of bin 0, over training days",
    "rolling-20": "sees the bin itself on past days, test days too",
    "rolling-all": "sees the bin itself on past days, test days too",
    "rolling-log": "sees the bin itself on past days, test days too; mean of logs",
    "kalman-static": "fitted to all bins of training days, not to five; forecast at the close before; median",
    "kalman-dynamic": "as kalman-static, but a bin is foretold from all bins before it, of the day itself too; median",
    "kalman-matched": "as kalman-static, but having seen the day's bin 0, as ours has; median",
    "kalman-matched-5": "sees the five training bins, of test days bin 0 only, and interpolates; median",
    "moments-pairs": "knows which value of one bin and which of the next are of the same day",
    "moments-pairs-clock": "as moments-pairs, the drift changing with the time of day",
    "moments-clock": "the drift may change with the time of day",
    "moments-clock-quiet": "as moments-clock, the noise held at 0.3",
    "moments-clock-loud": "as moments-clock, the noise held at 3",
    "adversarial": "three hidden layers of 64",
}


@dataclass(frozen=True, eq=False)
class Made:
    """What a method gave: its forecasts by kind, none where it could not.

    - `sigma`: of a process the noise.
    - `training_W1`, `training_floor`: its clouds at the training bins, from the first, against those of the training
      days, in logs; and halves of these against each other. Means over bins, at half size.
    """

    forecasts: dict[str, Forecast]
    outcome: str
    seconds: float
    sigma: float | None = None
    training_W1: float | None = None
    training_floor: float | None = None


def made(method: str, task: Task, device: str = "auto", folder: Path | None = None) -> Made:
    """Fit a method to the training days and forecast the test days; a fit of ours is kept in `folder`."""
    began = time.perf_counter()
    if method in PAIRED and np.isnan(task.train[:, list(TRAIN_BINS)]).any():
        return Made({}, NO_PAIRS, 0.0)
    if method in CLASSICAL:
        return _checked({"median": CLASSICAL[method](task)}, "done", time.perf_counter() - began)
    model = fitted(method, task, device, folder)
    try:
        forecasts, fit = forecasts_of(model, task), training_fit(model)
    except InputError as fault:  # a process that runs to infinity has no forecast
        return Made({}, f"{model.outcome_.name}: {fault}", model.seconds_)
    sigma = float(np.mean(model.diffusion(task.first[:, None])))
    return _checked(forecasts, model.outcome_.name, model.seconds_, sigma, *fit)


def fitted(method: str, task: Task, device: str, folder: Path | None) -> ProcessFace:
    """A process of ours: the one that is kept, or one fitted to the training bins of the training days."""
    if folder is not None and (folder / MODEL_FILE).exists():
        return load_run(folder)
    kind = PairedSnapshots if method in PAIRED else Snapshots
    times, days = DT * np.asarray(TRAIN_BINS), task.dates[: len(task.train)]
    snapshots = kind.from_panel(task.train[:, list(TRAIN_BINS)], times, days=days, missing="skip", names=["log volume"])
    model = FokkerPlanckProcess(**{"sigma": "learn"} | OURS[method], dt=DT, device=device, random_state=task.seed)
    with warnings.catch_warnings(action="ignore", category=FitWarning):
        model.fit(snapshots)
    if model.outcome_ is Outcome.interrupted:
        raise KeyboardInterrupt  # a fit cut short is no record
    if folder is not None:
        model.save(folder)
    return model


def forecasts_of(model: ProcessFace, task: Task) -> dict[str, Forecast]:
    """From bin 0 of every test day: one path, the mean (of volume, and of its log) and the median of many."""
    laws = [model.predict_from(task.first[:, None], 0.0, DT * b, N_PATHS) for b in TEST_BINS]
    draws = np.concatenate([law.draws for law in laws], axis=-1)
    quantiles = np.concatenate([law.quantile(LEVELS) for law in laws], axis=-1)
    single, median = draws[:, 0], np.median(draws, axis=1)
    return {
        "single path": Forecast(np.exp(single), single, quantiles),
        "mean": Forecast(np.exp(draws).mean(axis=1), draws.mean(axis=1), quantiles),
        "median": Forecast(np.exp(median), median, quantiles),
    }


def training_fit(model: ProcessFace) -> tuple[float, float]:
    """How far the marginals that were fitted are missed, and the floor of that."""
    later = model.snapshots_.select(range(1, len(model.snapshots_)))
    clouds = model.forecast(later.times)
    floors = [split_half_floor(coordinate_W1, *both) for both in zip(later, clouds, strict=True)]
    return float(np.mean([each.mean + each.excess for each in floors])), float(np.mean([each.mean for each in floors]))


def _checked(forecasts: dict[str, Forecast], outcome: str, seconds: float, *of_process: float) -> Made:
    if not all(forecast.is_finite for forecast in forecasts.values()):
        return Made({}, f"{outcome}: forecasts that are not finite", seconds)
    return Made(forecasts, outcome, seconds, *of_process)
