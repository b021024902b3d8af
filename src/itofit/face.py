"""The estimator face: fit, predict, forecast, scorecard, score, save, load. It holds no mathematics.

A method gives four things: how it fits, how it carries a cloud forward, and which values and arrays it must
keep to do so after loading. Fitting sets `outcome_`, `seed_` and `seconds_` besides; a `remark` is what must be said
wherever its name is shown.
"""

import abc
import json
import re
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar, Self

import jax
import numpy as np
from sklearn.base import BaseEstimator
from sklearn.exceptions import NotFittedError

from itofit.arrays import read_arrays, write_arrays
from itofit.errors import InputError
from itofit.forecast import checked_times, grown_from, start_before
from itofit.metrics.floor import Metric, plain_weights
from itofit.metrics.scorecard import Scorecard, score_snapshots
from itofit.metrics.transport import sliced_W1
from itofit.metrics.trivial import midpoint_at, persistence_at
from itofit.simulate.systems import KnownSystem
from itofit.snapshots.anndata_file import from_anndata, is_anndata
from itofit.snapshots.cells import CellSpace
from itofit.snapshots.clouds import Snapshot, Snapshots, checked_names
from itofit.snapshots.paired import PairedSnapshots
from itofit.solve.outcome import Outcome
from itofit.version import VERSION

FORMAT = 2
MODEL_FILE = "model.npz"


class Face(BaseEstimator, abc.ABC):
    """What every method that learns from snapshots can do."""

    method: ClassVar[str]
    aliases: ClassVar[tuple[str, ...]] = ()
    remark: ClassVar[str] = ""
    batched: ClassVar[bool] = False

    outcome_: Outcome
    seed_: int
    seconds_: float

    @abc.abstractmethod
    def _learn(self, snapshots: Snapshots, **how: Any) -> None:
        """Fit to checked snapshots; set the learned attributes."""

    @classmethod
    def _learn_together(cls, models: Sequence[Any], data: Sequence[Snapshots]) -> None:
        """Fit each to its own checked snapshots; in one batch where a method can."""
        for model, snapshots in zip(models, data, strict=True):
            model._learn(snapshots)

    @abc.abstractmethod
    def _carry(self, times: np.ndarray, n_samples: int | None, start: str, first: Snapshot | None) -> Snapshots:
        """Clouds at increasing times; `first` stands in for the first training snapshot where one is given."""

    @abc.abstractmethod
    def _values(self) -> dict[str, Any]:
        """Learned values that JSON can hold."""

    @abc.abstractmethod
    def _arrays(self) -> dict[str, np.ndarray]:
        """Learned arrays."""

    @abc.abstractmethod
    def _restore(self, values: dict[str, Any], arrays: dict[str, np.ndarray]) -> None:
        """Set the learned attributes from what `_values` and `_arrays` gave."""

    def fit(
        self,
        X: Any,
        t: Any = None,
        *,
        time_key: str | None = None,
        rep: str | None = None,
        genes: Sequence[str] | None = None,
        layer: str | None = None,
        n_pcs: int | None = None,
    ) -> Self:
        """Fit to `Snapshots`, to points `X` with one time per row `t`, or to an AnnData.

        Of an AnnData, `time_key` names the column of obs with the times, and `rep` an array of obsm, or `genes` the
        genes to use, from `layer` or X; with `n_pcs` so many principal components of them, or of all genes.
        """
        return self._fit(X, t, {"time_key": time_key, "rep": rep, "genes": genes, "layer": layer, "n_pcs": n_pcs})

    def _fit(self, X: Any, t: Any, cells: dict[str, Any], **how: Any) -> Self:
        snapshots = _observed(X, t, cells)
        _check_motion(snapshots)
        if snapshots.space is not None and getattr(self, "verbose", False):
            sys.stderr.write(f"{counted(snapshots)}\n")
        self._learn(snapshots, **how)
        self.snapshots_ = snapshots
        self.n_features_in_ = snapshots.n_dims
        return self

    def predict(self, time: float, n_samples: int | None = None, start: str = "initial") -> np.ndarray:
        """A cloud at one time, as an array; without `n_samples` one point per start point.

        `start="initial"` grows it from the first snapshot, `"previous"` from the last one at or before `time`;
        `"between"` does so too and takes off along the way what would be missed at the snapshot after, so that an
        interpolation is held to both; `"hedged"` does so with half of the cloud and moves the other half along the
        straight lines of a transport plan. Weighted start points are resampled, so the rows count equally.
        """
        self._check_fitted()
        found = self.forecast([float(time)], n_samples, start)
        if n_samples is None and plain_weights(found.weights[0]) is not None:
            found = self.forecast([float(time)], self.snapshots_.counts[0], start)
        return found.clouds[0]

    def forecast(
        self, times: Sequence[float] | np.ndarray, n_samples: int | None = None, start: str = "initial"
    ) -> Snapshots:
        """Clouds at any times from the first snapshot on, as `Snapshots`."""
        self._check_fitted()
        wanted = checked_times(times, float(self.snapshots_.times[0]))
        found = self._carry(wanted, n_samples, start, None)
        return replace(found, space=self.snapshots_.space, made_by={**self._made_by(), "start": start})

    def _made_by(self) -> dict[str, Any]:
        """What is written beside what this model made."""
        return {
            "itofit": VERSION,
            "method": getattr(self, "solver_", self.method),
            "remark": self.remark or None,
            "seed": self.seed_,
            "outcome": self.outcome_.name,
            "fitted_times": self.snapshots_.times,
            "fitted_counts": np.asarray(self.snapshots_.counts),
        }

    def scorecard(
        self,
        held_out: Snapshots,
        *,
        truth: KnownSystem | None = None,
        start: str = "initial",
        metrics: dict[str, Metric] | None = None,
    ) -> Scorecard:
        """Score forecasts against held-out clouds, each distance beside its sampling floor.

        Where `held_out` has a cloud at the first training time, the forecast starts from its rows and that time is
        not scored. With `truth` the floor comes from the known system, else from halves of the held-out clouds.
        """
        self._check_fitted()
        _check_dimension(held_out, self.snapshots_)
        first = float(self.snapshots_.times[0])
        at_start = held_out.index(first)
        begin = None if at_start is None else held_out.at(first)

        def begun_at(time: float) -> Snapshot:
            found = start_before(self.snapshots_, time, grown_from(start))
            return begin if begin is not None and found.time == first else found

        scored = held_out.select([i for i in range(len(held_out)) if i != at_start])
        if len(scored) == 0:
            raise InputError(
                expected="a held-out cloud after the first training time",
                found="none",
                hint="hold out a later time",
            )
        model = self._carry(checked_times(scored.times, first), None, start, begin)
        return score_snapshots(
            model,
            scored,
            persistence=lambda time: persistence_at(self.snapshots_, time),
            midpoint=lambda time: midpoint_at(self.snapshots_, time),
            truth=truth,
            start=begun_at,
            metrics=metrics,
            notes=self._notes(),
        )

    def _notes(self) -> tuple[str, ...]:
        """What a scorecard says of the fit itself."""
        return (f"{self.method}: {self.remark}",) if self.remark else ()

    def score(self, X: Any, t: Any = None) -> float:
        """Minus the mean sliced W1 between forecasts and these points: larger is better, as scikit-learn wants."""
        self._check_fitted()
        snapshots = X if isinstance(X, Snapshots) else _from_rows(X, t)
        _check_dimension(snapshots, self.snapshots_)
        later = snapshots.select(np.flatnonzero(snapshots.times > self.snapshots_.times[0]).tolist())
        if len(later) == 0:
            raise InputError(expected="points after the first training time", found="none", hint="score later times")
        model = self.forecast(later.times.tolist())
        pairs = zip(model, later, strict=True)
        return -float(np.mean([sliced_W1(a.points, b.points, a.weights, b.weights) for a, b in pairs]))

    def save(self, path: str | Path, *, overwrite: bool = False) -> None:
        """Write the fitted model to a run folder, all or nothing; no pickle."""
        self._check_fitted()
        folder = Path(path)
        if folder.exists() and not folder.is_dir():
            raise InputError(expected="a folder to save into", found=f"a file at {folder}", hint="choose another name")
        target = folder / MODEL_FILE
        if target.exists() and not overwrite:
            raise InputError(
                expected="a folder without a model",
                found=f"{target}",
                hint="another name, or overwrite=True (--overwrite)",
            )
        params = {name: _plain(name, value) for name, value in self.get_params(deep=False).items()}
        name = getattr(self, "solver_", self.method)
        space = self.snapshots_.space
        about = {"format": FORMAT, "method": name, "params": params, "values": self._values()}
        about |= {} if space is None else {"cells": space.to_json()}
        about |= {"pairs": True} if isinstance(self.snapshots_, PairedSnapshots) else {}
        X, t, w = self.snapshots_.to_rows()
        arrays = {"X": X, "t": t, "w": w, "names": np.asarray(self.snapshots_.names), **self._arrays()}
        arrays |= {} if space is None else space.to_arrays()
        folder.mkdir(parents=True, exist_ok=True)
        write_arrays(target, {"about": np.asarray(json.dumps(about)), **arrays})

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Read a run folder back; never unpickles."""
        about, arrays = read_run(path)
        if about["method"] not in (cls.method, *cls.aliases):
            raise InputError(
                expected=f"a run of the method {cls.method!r}",
                found=f"{about['method']!r}",
                hint="load it with its own class",
            )
        model = cls(**about["params"])
        snapshots = _restored(about, arrays)
        space = CellSpace.restored(about["cells"], arrays) if "cells" in about else None
        model.snapshots_ = replace(snapshots, space=space)
        model.n_features_in_ = model.snapshots_.n_dims
        model._restore(about["values"], arrays)
        return model

    def _check_fitted(self) -> None:
        if not hasattr(self, "snapshots_"):
            raise NotFittedError(f"this {type(self).__name__} has not been fitted: call fit(snapshots) first")


def _restored(about: dict[str, Any], arrays: dict[str, np.ndarray]) -> Snapshots:
    """The snapshots of a run folder; rows of pairs stay where they are."""
    X, t, w, names = arrays["X"], arrays["t"], arrays["w"], arrays["names"].tolist()
    if not about.get("pairs"):
        return Snapshots.from_rows(X, t, w, names)
    times = np.unique(t)
    clouds, weights = (tuple(a[t == time] for time in times) for a in (X, w))
    return PairedSnapshots(times, clouds, weights, checked_names(names, X.shape[1]))


def counted(snapshots: Snapshots) -> str:
    """Cells at each time, for people to see before a fit."""
    parts = ", ".join(f"{t:g}: {n}" for t, n in zip(snapshots.times, snapshots.counts, strict=True))
    key = "time" if snapshots.space is None else snapshots.space.time_key
    return f"cells by {key}: {parts}; {snapshots.n_dims} coordinates"


def fit_together(models: Sequence[Any], data: Sequence[Snapshots]) -> list[Any]:
    """Fit estimators of one method and of equal choices, each to its own snapshots, in one batched run.

    They may differ in `random_state` and in the size of a known sigma. The data sets need equal times and counts. Each
    model is the one it would be by itself, up to round-off; a GPU trains them all in about the time of one. Methods
    that do not train in batches fit one after the other.
    """
    if not models or len(models) != len(data):
        raise InputError(
            expected="as many data sets as estimators",
            found=f"{len(models)} estimators and {len(data)} data sets",
            hint="one data set each",
        )
    choices = [_choices(model) for model in models]
    if any(choice != choices[0] for choice in choices):
        raise InputError(
            expected="estimators of equal choices", found="different ones", hint="vary random_state and sigma only"
        )
    if any(not np.array_equal(snapshots.times, data[0].times) for snapshots in data):
        raise InputError(expected="data sets with the same times", found="different ones", hint="fit them one by one")
    if models[0].batched and any(snapshots.counts != data[0].counts for snapshots in data):
        raise InputError(
            expected="the same number of points in each snapshot of every data set fitted together",
            found=", ".join(str(snapshots.counts) for snapshots in data),
            hint="thin them to equal counts, or fit them one after the other",
        )
    if models[0].batched and len(models) > 1 and isinstance(models[0].dt, str):
        raise InputError(expected="dt given, the same for all", found=f"dt={models[0].dt!r}", hint="dt=0.01")
    _check_motion(data[0])
    type(models[0])._learn_together(models, data)
    for model, snapshots in zip(models, data, strict=True):
        model.snapshots_, model.n_features_in_ = snapshots, snapshots.n_dims
    return list(models)


def read_run(path: str | Path) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """The description and the arrays of a run folder, or a refusal that says what is wrong with it."""
    file = Path(path) / MODEL_FILE
    if not file.is_file():
        unfinished = any(Path(path).glob("checkpoint*.npz"))
        raise InputError(
            expected=f"a run folder with {MODEL_FILE}",
            found="an unfinished run" if unfinished else f"no such file in {path}",
            hint="finish it with the same command and --resume"
            if unfinished
            else "the folder given to --out or save()",
        )
    arrays = read_arrays(file, hint="fit again; a truncated or foreign file cannot be repaired")
    try:
        about = json.loads(str(arrays["about"]))
        version = about["format"]
        if not {"X", "t", "w", "names"} <= set(arrays) or not {"method", "params", "values"} <= set(about):
            raise KeyError
    except (KeyError, TypeError, json.JSONDecodeError):
        raise InputError(
            expected=f"{file} to be written by itofit",
            found="something else",
            hint="the folder given to --out or save()",
        ) from None
    if version != FORMAT:
        raise InputError(
            expected=f"run format {FORMAT}",
            found=f"format {version}",
            hint="load it with the itofit that wrote it",
        )
    return about, arrays


def check_choices(model: Any, **allowed: Sequence[str]) -> None:
    """Refuse a parameter that is none of the words it may be."""
    for name, words in allowed.items():
        if getattr(model, name) not in words:
            raise InputError(
                expected=f"{name} to be one of {', '.join(words)}", found=f"{getattr(model, name)!r}", hint=words[0]
            )


def seed_of(random_state: int | np.integer | None) -> int:
    """The seed a model uses: the one given, or a fresh one."""
    if random_state is None:
        return int(np.random.SeedSequence().generate_state(1)[0])
    if isinstance(random_state, bool) or not isinstance(random_state, int | np.integer) or random_state < 0:
        raise InputError(
            expected="random_state to be a whole number from 0 on, or None",
            found=f"{random_state!r}",
            hint="0",
        )
    return int(random_state)


def device_named(name: str) -> Any:
    """The device to run on: `auto` takes jax's default, `cpu` and `gpu` must exist."""
    if name not in ("auto", "cpu", "gpu"):
        raise InputError(expected="device to be auto, cpu or gpu", found=f"{name!r}", hint="auto")
    if name == "auto":
        return jax.devices()[0]
    try:
        return jax.devices(name)[0]
    except RuntimeError:
        found = ", ".join(str(d) for d in jax.devices())
        raise InputError(
            expected=f"a {name} that jax can see",
            found=found,
            hint="pip install 'itofit[gpu]', or device='cpu'",
        ) from None


def processor() -> Any:
    """The CPU, where jax has been left one beside its accelerator; else the default device."""
    try:
        return jax.devices("cpu")[0]
    except RuntimeError:
        return jax.devices()[0]


def _observed(X: Any, t: Any, cells: dict[str, Any]) -> Snapshots:
    """What was given, as snapshots."""
    if isinstance(X, Snapshots) and t is not None:
        raise InputError(expected="Snapshots alone, or points with t", found="Snapshots and t", hint="fit(snapshots)")
    if is_anndata(X):
        if t is not None:
            raise InputError(expected="time_key with an AnnData", found="t", hint="fit(adata, time_key='day')")
        return from_anndata(X, **cells)
    asked = [name for name, value in cells.items() if value is not None]
    if asked:
        raise InputError(
            expected=f"{', '.join(asked)} with an AnnData", found=f"{type(X).__name__}", hint="leave it out"
        )
    return X if isinstance(X, Snapshots) else _from_rows(X, t)


def _from_rows(X: Any, t: Any) -> Snapshots:
    if t is None:
        raise InputError(expected="Snapshots, or points X with times t", found="X alone", hint="fit(X, t)")
    names = [str(c) for c in X.columns] if hasattr(X, "columns") else None
    return Snapshots.from_rows(np.asarray(X), np.asarray(t), names=names)


def _choices(model: Any) -> tuple[Any, ...]:
    """What must agree in estimators fitted together."""
    params = model.get_params(deep=False)
    sigma = params.pop("sigma", None)
    params.pop("random_state", None)
    return type(model), sigma if isinstance(sigma, str) else "known", repr(sorted(params.items()))


def _check_motion(snapshots: Snapshots) -> None:
    if len(snapshots) < 2:
        raise InputError(
            expected="at least 2 snapshots, at different times",
            found=f"{len(snapshots)}",
            hint="add a cloud at another time; one cloud does not show any motion",
        )


def _check_dimension(snapshots: Snapshots, fitted: Snapshots) -> None:
    if snapshots.n_dims != fitted.n_dims:
        raise InputError(
            expected=f"{fitted.n_dims} coordinates, as fitted",
            found=f"{snapshots.n_dims}",
            hint="the same columns in the same order",
        )


def _plain(name: str, value: Any) -> Any:
    if isinstance(value, np.ndarray | np.generic):
        return value.tolist()
    if hasattr(value, "tolist") and not isinstance(value, str):
        return np.asarray(value).tolist()
    if isinstance(value, tuple):
        return list(value)
    if value is None or isinstance(value, bool | int | float | str | list | dict):
        return value
    shown = re.sub(r"\s+at 0x[0-9a-f]+", "", repr(value))
    raise InputError(
        expected=f"{name} to be a number, text or array, so that it can be written without code",
        found=shown,
        hint="keep the model in memory, or give an array",
    )
