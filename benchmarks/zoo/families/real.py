"""Data of cells and of one published simulation, the same for all seeds.

    TASKS["emt_2"].trial(0, Path("../shared/data"))

Files, times and licences are in the README of the folder of data. Whatever is fitted before a task
begins, and on what, is in its remark.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from benchmarks.zoo.task import FORECAST, INTERPOLATE, Trial

from itofit import InputError, Snapshots
from itofit.arrays import read_arrays

_EB = "embryoid_body/eb_100pcs.npz"
_EB_TIMES = (0.0, 1.0, 2.0, 3.0, 4.0)
_EMT = "emt_a549/emt_3d.npz"
_EMT_TIMES = (0.0, 1 / 3, 1.0, 3.0, 7.0)
_IPSC = "ipsc_bifurcation/ipsc_4d.npz"
_IPSC_TIMES = (0.0, 1.0, 1.5, 2.0, 2.5, 3.0, 4.0, 5.0)
_LARRY_2D = "larry_2d/mouse_hematopoiesis_2d.npz"
_LARRY_FATES = "larry_fates/larry_fates.npz"
_LARRY_DAYS = (2.0, 4.0, 6.0)
_LARRY_MOST = 3000
_KLEIN = "klein2015_mesc/klein_counts.npz"
_KLEIN_TASKS = {2: 1, 7: 2}
"""The paper's task that leaves a day out."""


@dataclass(frozen=True)
class RealTask:
    """A task of data that were observed; `read` makes its trial from the file in the folder."""

    name: str
    asks: str
    file: str
    read: Callable[[Path], Trial]
    remark: str = ""
    family: str = "real"
    still: bool = False

    def trial(self, seed: int, data: Path | None = None) -> Trial:
        """The clouds given and asked for, whatever the seed."""
        del seed
        return self.read(self.path(data))

    def path(self, data: Path | None) -> Path:
        """Its file; a folder without it is refused."""
        if data is None:
            raise InputError(
                expected=f"the folder of data that {self.name} is in",
                found="none",
                hint="--data DIR",
            )
        path = data / self.file
        if not path.is_file():
            raise InputError(
                expected=f"{self.file} in --data",
                found=f"no file at {path}",
                hint="--data DIR, the folder of data sets",
            )
        return path


def _arrays(path: Path) -> dict[str, Any]:
    return read_arrays(path, hint="another copy of it")


def _split(clouds: list[np.ndarray], times: tuple[float, ...], position: int) -> Trial:
    """One cloud left out."""
    rest = [k for k in range(len(times)) if k != position]
    given = Snapshots.from_arrays([clouds[k] for k in rest], [times[k] for k in rest])
    return Trial(given, Snapshots.from_arrays([clouds[position]], [times[position]]))


def _clouds(path: Path, n_times: int) -> list[np.ndarray]:
    arrays = _arrays(path)
    return [arrays[f"t{k}"].astype(np.float64) for k in range(n_times)]


def _left_out(times: tuple[float, ...], position: int) -> Callable[[Path], Trial]:
    return lambda path: _split(_clouds(path, len(times)), times, position)


def _components(n_dims: int, position: int) -> Callable[[Path], Trial]:
    """The first principal components as they are."""

    def read(path: Path) -> Trial:
        clouds = [cloud[:, :n_dims] for cloud in _clouds(path, len(_EB_TIMES))]
        return _split(clouds, _EB_TIMES, position)

    return read


def _published_components(position: int) -> Callable[[Path], Trial]:
    """Five components, each of mean 0 and sd 1 over all times."""

    def read(path: Path) -> Trial:
        clouds = [cloud[:, :5] for cloud in _clouds(path, len(_EB_TIMES))]
        together = np.concatenate(clouds)
        scaled = [(cloud - together.mean(axis=0)) / together.std(axis=0) for cloud in clouds]
        return _split(scaled, _EB_TIMES, position)

    return read


def _larry_2d(path: Path) -> Trial:
    arrays = _arrays(path)
    clouds = [arrays["X"][arrays["t"] == code] for code in range(len(_LARRY_DAYS))]
    return _split(clouds, _LARRY_DAYS, 1)


def _larry_fates(path: Path) -> Trial:
    arrays = _arrays(path)
    rng = np.random.default_rng(0)
    clouds = [_thinned(rng, arrays["X"][arrays["day"] == day]) for day in _LARRY_DAYS]
    return _split(clouds, _LARRY_DAYS, 1)


def _thinned(rng: np.random.Generator, cloud: np.ndarray) -> np.ndarray:
    return cloud[np.sort(rng.choice(len(cloud), _LARRY_MOST, replace=False))]


def _klein(day: int) -> Callable[[Path], Trial]:
    """Ten markers in logs, in units of the last day given."""

    def read(path: Path) -> Trial:
        from experiments.rna.counts import MARKERS, load_counts
        from experiments.rna.tasks import CLOCKS, TASKS, Clouds

        clouds = Clouds(load_counts(path.parent), TASKS[_KLEIN_TASKS[day]])
        left_out = clouds.unit.standardise(clouds.by_day[day])
        asked = Snapshots.from_arrays([left_out], [float(day)], names=MARKERS)
        return Trial(clouds.training(CLOCKS["days"]), asked)

    return read


def _predators(path: Path) -> Snapshots:
    arrays = _arrays(path)
    return Snapshots.from_arrays(list(arrays["Xs"]), arrays["dts"].astype(np.float64))


def _predators_beyond(path: Path) -> Trial:
    everything = _predators(path)
    clouds = list(everything.clouds)
    times = everything.times
    given = Snapshots.from_arrays(clouds[:-1], times[:-1])
    return Trial(given, Snapshots.from_arrays(clouds[-1:], times[-1:]))


def _predators_between(path: Path) -> Trial:
    given = _predators_beyond(path.with_name("lv.npz")).given
    return Trial(given, _predators(path))


def _interior_tasks(name: str, file: str, times: tuple[float, ...]) -> Iterable[RealTask]:
    """A task for every interior time."""
    return (
        RealTask(f"{name}_{k}", INTERPOLATE, file, _left_out(times, k))
        for k in range(1, len(times) - 1)
    )


_SCALED = "scaled by mean and sd over all times, the one left out too: the published protocol"
_COMPONENTS = "principal components were fitted on all times, the one left out too"
_EMBEDDING = "embedding fitted on all days, the one left out too; mass grows and is ignored"
_MARKERS = "subset-normalised; imputed day by day, in units of the last day given"

TASKS: tuple[RealTask, ...] = (
    *(RealTask(f"eb5_{k}", INTERPOLATE, _EB, _published_components(k), _SCALED) for k in (1, 2, 3)),
    *(
        RealTask(f"eb{n_dims}_{k}", INTERPOLATE, _EB, _components(n_dims, k), _COMPONENTS)
        for n_dims in (20, 50)
        for k in (1, 2, 3)
    ),
    *_interior_tasks("emt", _EMT, _EMT_TIMES),
    *_interior_tasks("ipsc", _IPSC, _IPSC_TIMES),
    RealTask("larry2d_1", INTERPOLATE, _LARRY_2D, _larry_2d, _EMBEDDING),
    RealTask(
        "larry_fates_1", INTERPOLATE, _LARRY_FATES, _larry_fates, f"{_EMBEDDING}; 3000 cells a day"
    ),
    RealTask("klein_d2", INTERPOLATE, _KLEIN, _klein(2), _MARKERS),
    RealTask("klein_d7", FORECAST, _KLEIN, _klein(7), _MARKERS),
    RealTask(
        "lv_interp",
        INTERPOLATE,
        "lotka_volterra/lv_interp_val.npz",
        _predators_between,
        "nine mid-times, none of them given",
    ),
    RealTask(
        "lv_forecast",
        FORECAST,
        "lotka_volterra/lv.npz",
        _predators_beyond,
        "simulated; published as data",
    ),
)
