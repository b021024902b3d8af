"""The estimator face: fit, predict, forecast, score, save, load. It holds no mathematics.

A method says how it fits, how it carries a cloud forward, and which values and arrays it needs to
do so after loading. Fitting sets `outcome_`, `seed_` and `seconds_` besides; a `remark` is what
must be said wherever its name is shown.
"""

import abc
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar, Protocol, Self, Unpack, runtime_checkable

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.exceptions import NotFittedError

from itofit.errors import InputError
from itofit.forecast import AUTO, checked_times, start_before, starting_snapshot
from itofit.metrics.distances import sliced_W1
from itofit.metrics.floor import Metric, plain_weights
from itofit.metrics.scorecard import Scorecard, score_snapshots
from itofit.metrics.trivial import persistence_at
from itofit.problem import Streams
from itofit.run_folder import Run, read_run, save_run
from itofit.simulate.systems import KnownSystem
from itofit.snapshots.anndata_file import is_anndata, selected_cells
from itofit.snapshots.cells import CellKeywords, CellSelection
from itofit.snapshots.clouds import Snapshot, Snapshots
from itofit.solution import Outcome
from itofit.solve.checkpoint import CheckpointFolder
from itofit.solve.listeners import Listener, Watch
from itofit.transport.displacement import midpoint_at
from itofit.version import VERSION


class Face(BaseEstimator, abc.ABC):
    """What every method that learns from snapshots can do."""

    method: ClassVar[str]
    aliases: ClassVar[tuple[str, ...]] = ()
    remark: ClassVar[str] = ""

    snapshots_: Snapshots
    outcome_: Outcome
    seed_: int
    seconds_: float

    @abc.abstractmethod
    def _learn(self, snapshots: Snapshots, watch: Watch) -> None:
        """Fit to checked snapshots; set the learned attributes."""

    @abc.abstractmethod
    def _carry(
        self, times: np.ndarray, n_samples: int | None, start: str, first: Snapshot | None
    ) -> Snapshots:
        """Clouds at increasing times; `first` stands in for the first training snapshot."""

    @abc.abstractmethod
    def _notes(self) -> tuple[str, ...]:
        """What a scorecard says of the fit itself."""

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
        checkpoint: str | Path | None = None,
        resume: bool = False,
        listeners: Sequence[Listener] = (),
        **cells: Unpack[CellKeywords],
    ) -> Self:
        """Fit to snapshots.

        Parameters
        ----------
        X : Snapshots, array or AnnData
            What was observed: `Snapshots`, points in rows with their times `t`, or an AnnData. Of
            `PairedSnapshots` the moments solver also tests what each individual became; the others
            do not.
        t : array, optional
            One time for every row of an array `X`.
        checkpoint : path, optional
            A folder in which an adversarial run is saved as it goes. The moments solver is done in
            seconds and keeps none.
        resume : bool
            Continue the run saved in `checkpoint` by the same call, bit for bit.
        listeners : sequence of callables, optional
            Called with a `Progress` after every block of iterations.
        **cells
            Of an AnnData the words of `CellSelection`: `time_key` names the column of obs with the
            times, `rep` an array of obsm, or `genes` the genes to use, from `layer` or X; with
            `n_pcs` so many principal components of them, or of all genes.

        Returns
        -------
        self
            The fitted estimator.

        Examples
        --------
        >>> import numpy as np
        >>> from itofit import Persistence
        >>> Persistence().fit(np.arange(8.0).reshape(8, 1), t=[0, 0, 0, 0, 1, 1, 1, 1])
        Persistence()
        """
        snapshots = _observed(X, t, CellSelection.of(cells))
        _check_motion(snapshots)
        if snapshots.space is not None and getattr(self, "verbose", False):
            sys.stderr.write(f"{counted(snapshots)}\n")
        folder = None if checkpoint is None else CheckpointFolder(Path(checkpoint), resume)
        self._learn(snapshots, Watch(tuple(listeners), folder))
        self._keep(snapshots)
        return self

    def predict(self, time: float, n_samples: int | None = None, start: str = AUTO) -> np.ndarray:
        """A cloud at one time.

        Parameters
        ----------
        time : float
            From the first snapshot on.
        n_samples : int, optional
            Points of the cloud; by default one per start point. Weighted start points are
            resampled, so the rows count equally.
        start : {"auto", "initial", "previous", "bridge", "bridge_ot"}
            Where the cloud starts. "auto": of a judged model the mixture that did best on snapshots
            left out, which is held to both neighbours between snapshots and starts from the last
            one beyond; of others as "initial". "initial": at the first snapshot; "previous": at
            the last one at or before `time`; "bridge": as "previous", and what would be missed at
            the snapshot after is taken off along the way, so that an interpolation is held to both
            (of a judged model as "auto"); "bridge_ot":
            so with half of the cloud, the other half on the straight lines of a transport plan.

        Returns
        -------
        array of shape (n, n_dims)
            Points in rows.

        Examples
        --------
        >>> from itofit import Midpoint, Snapshots
        >>> snapshots = Snapshots.from_arrays([[[0.0], [1.0]], [[2.0], [3.0]]], times=[0.0, 1.0])
        >>> Midpoint().fit(snapshots).predict(0.5).mean()
        np.float64(1.5)
        """
        self._check_fitted()
        cloud = self.forecast([float(time)], n_samples, start)
        if n_samples is None and plain_weights(cloud.weights[0]) is not None:
            cloud = self.forecast([float(time)], self.snapshots_.counts[0], start)
        return cloud.clouds[0]

    def forecast(
        self,
        times: Sequence[float] | np.ndarray,
        n_samples: int | None = None,
        start: str = AUTO,
    ) -> Snapshots:
        """Clouds at any times from the first snapshot on.

        Parameters
        ----------
        times : sequence of float
            In any order; they come back increasing.
        n_samples : int, optional
            Points at each time; by default one per start point.
        start : {"auto", "initial", "previous", "bridge", "bridge_ot"}
            As of `predict`.

        Returns
        -------
        Snapshots
            One cloud a time, so that metrics and plots compare like with like.

        Examples
        --------
        >>> from itofit import Persistence, Snapshots
        >>> snapshots = Snapshots.from_arrays([[[0.0], [1.0]], [[2.0], [3.0]]], times=[0.0, 1.0])
        >>> Persistence().fit(snapshots).forecast([0.5, 2.0]).times
        array([0.5, 2. ])
        """
        self._check_fitted()
        increasing = checked_times(times, float(self.snapshots_.times[0]))
        clouds = self._carry(increasing, n_samples, start, None)
        made_by = {**self._made_by(), "start": start}
        return replace(clouds, space=self.snapshots_.space, made_by=made_by)

    def scorecard(
        self,
        held_out: Snapshots,
        *,
        truth: KnownSystem | None = None,
        start: str = AUTO,
        metrics: dict[str, Metric] | None = None,
    ) -> Scorecard:
        """Score forecasts against held-out clouds, each distance beside its sampling floor.

        Where `held_out` has a cloud at the first training time, the forecast starts from its rows
        and that time is not scored.

        Parameters
        ----------
        held_out : Snapshots
            Clouds that no fit has met.
        truth : KnownSystem, optional
            Gives the floor; without it the floor comes from halves of the held-out clouds.
        start : {"auto", "initial", "previous", "bridge", "bridge_ot"}
            As of `predict`.
        metrics : dict, optional
            Distances by name, instead of the usual ones.

        Returns
        -------
        Scorecard
            Prints as a table with a verdict a time.

        Examples
        --------
        >>> import jax
        >>> from itofit import Persistence, known_system
        >>> system = known_system("ou")
        >>> snapshots = system.observe(60, [0.0, 0.5], key=jax.random.key(0))
        >>> held_out = system.observe(60, [0.5], key=jax.random.key(1))
        >>> card = Persistence().fit(snapshots).scorecard(held_out)
        >>> [score.metric for score in card.scores]
        ['W1', 'sliced_W1', 'coordinate_W1']
        """
        self._check_fitted()
        _check_dimension(held_out, self.snapshots_)
        first = float(self.snapshots_.times[0])
        at_start = held_out.index(first)
        begin = None if at_start is None else held_out.at(first)

        def start_at(time: float) -> Snapshot:
            snapshot = start_before(self.snapshots_, time, starting_snapshot(start))
            return begin if begin is not None and snapshot.time == first else snapshot

        scored = held_out.select([i for i in range(len(held_out)) if i != at_start])
        if len(scored) == 0:
            raise InputError(
                expected="a held-out cloud after the first training time",
                found="none",
                hint="hold out a later time",
            )
        return score_snapshots(
            self._carry(checked_times(scored.times, first), None, start, begin),
            scored,
            persistence=lambda time: persistence_at(self.snapshots_, time),
            midpoint=lambda time: midpoint_at(self.snapshots_, time),
            truth=truth,
            start=start_at,
            metrics=metrics,
            notes=self._notes(),
        )

    def score(self, X: Any, t: Any = None) -> float:
        """How near forecasts are to these points: larger is better, as scikit-learn wants it.

        Parameters
        ----------
        X : Snapshots or array
            Snapshots, or points in rows.
        t : array, optional
            One time for every row of an array `X`.

        Returns
        -------
        float
            Minus the mean sliced W1 over the times after the first.

        Examples
        --------
        >>> from itofit import Persistence, Snapshots
        >>> snapshots = Snapshots.from_arrays([[[0.0], [1.0]], [[0.0], [1.0]]], times=[0.0, 1.0])
        >>> Persistence().fit(snapshots).score(snapshots)
        0.0
        """
        self._check_fitted()
        snapshots = X if isinstance(X, Snapshots) else _from_rows(X, t)
        _check_dimension(snapshots, self.snapshots_)
        later = np.flatnonzero(snapshots.times > self.snapshots_.times[0]).tolist()
        if len(later) == 0:
            raise InputError(
                expected="points after the first training time",
                found="none",
                hint="score later times",
            )
        observed = snapshots.select(later)
        model = self.forecast(observed.times.tolist())
        distances = [
            sliced_W1(a.points, b.points, a.weights, b.weights)
            for a, b in zip(model, observed, strict=True)
        ]
        return -float(np.mean(distances)) + 0.0

    def save(self, path: str | Path, *, overwrite: bool = False) -> None:
        """Write the fitted model to a run folder, all or nothing; no pickle.

        Parameters
        ----------
        path : path
            The folder; it is made where it does not exist.
        overwrite : bool
            Whether a model that is there may be replaced.

        Raises
        ------
        InputError
            Where a model is there already, or a parameter is a function that no file can hold.

        Examples
        --------
        >>> import tempfile
        >>> from itofit import Persistence, Snapshots
        >>> snapshots = Snapshots.from_arrays([[[0.0], [1.0]], [[2.0], [3.0]]], times=[0.0, 1.0])
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     Persistence().fit(snapshots).save(folder)
        """
        self._check_fitted()
        save_run(self, self._name(), path, overwrite=overwrite)

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Read a run folder of this class back; `itofit.load` reads one of any class.

        Parameters
        ----------
        path : path
            The folder given to `save`.

        Returns
        -------
        estimator
            The fitted model.

        Examples
        --------
        >>> import tempfile
        >>> from itofit import Persistence, Snapshots
        >>> snapshots = Snapshots.from_arrays([[[0.0], [1.0]], [[2.0], [3.0]]], times=[0.0, 1.0])
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     Persistence().fit(snapshots).save(folder)
        ...     Persistence.load(folder).predict(1.0).ravel().tolist()
        [2.0, 3.0]
        """
        run = read_run(path)
        if run.method not in (cls.method, *cls.aliases):
            raise InputError(
                expected=f"a run of the method {cls.method!r}",
                found=f"{run.method!r}",
                hint="itofit.load(path), or its own class",
            )
        return cls._restored(run)

    @classmethod
    def _restored(cls, run: Run) -> Self:
        """The fitted model of a run."""
        model = cls(**run.params)
        model._keep(run.snapshots)
        model._restore(run.values, run.arrays)
        return model

    def _keep(self, snapshots: Snapshots) -> None:
        self.snapshots_ = snapshots
        self.n_features_in_ = snapshots.n_dims

    def _name(self) -> str:
        """The method that was used."""
        return getattr(self, "method_", self.method)

    def _made_by(self) -> dict[str, Any]:
        """What is written beside what this model made."""
        return {
            "itofit": VERSION,
            "method": self._name(),
            "remark": self.remark or None,
            "seed": self.seed_,
            "outcome": self.outcome_.name,
            "fitted_times": self.snapshots_.times,
            "fitted_counts": np.asarray(self.snapshots_.counts),
        }

    def _remark(self) -> tuple[str, ...]:
        """What must be said wherever the name of the method is shown."""
        return (f"{self.method}: {self.remark}",) if self.remark else ()

    @property
    def _streams(self) -> Streams:
        """The random streams of this model."""
        return Streams(self.seed_)

    def _check_fitted(self) -> None:
        if not hasattr(self, "snapshots_"):
            raise NotFittedError(
                f"this {type(self).__name__} has not been fitted: call fit(snapshots) first"
            )


@runtime_checkable
class Batched(Protocol):
    """A method that trains several models at once."""

    dt: Any

    @classmethod
    def _learn_batch(cls, models: Sequence[Any], data: Sequence[Snapshots]) -> None:
        """Fit each to its own checked snapshots, in one batch."""
        ...


def counted(snapshots: Snapshots) -> str:
    """Cells at each time, for people to see before a fit."""
    counts = zip(snapshots.times, snapshots.counts, strict=True)
    parts = ", ".join(f"{t:g}: {n}" for t, n in counts)
    key = "time" if snapshots.space is None else snapshots.space.time_key
    return f"cells by {key}: {parts}; {snapshots.n_dims} coordinates"


def fit_together(models: Sequence[Any], data: Sequence[Snapshots]) -> list[Any]:
    """Fit estimators of one method and of equal choices, each to its own snapshots, in one batch.

    Each model is the one it would be by itself, up to round-off; a GPU trains them all in about the
    time of one. Methods that do not train in batches fit one after the other.

    Parameters
    ----------
    models : sequence of estimators
        They may differ in `random_state` and in the size of a known sigma.
    data : sequence of Snapshots
        One for each model, with equal times and counts.

    Returns
    -------
    list of estimators
        The same models, fitted.

    Examples
    --------
    >>> from itofit import Persistence, Snapshots, fit_together
    >>> snapshots = Snapshots.from_arrays([[[0.0], [1.0]], [[2.0], [3.0]]], times=[0.0, 1.0])
    >>> len(fit_together([Persistence(), Persistence()], [snapshots, snapshots]))
    2
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
            expected="estimators of equal choices",
            found="different ones",
            hint="vary random_state and sigma only",
        )
    if any(not np.array_equal(snapshots.times, data[0].times) for snapshots in data):
        raise InputError(
            expected="data sets with the same times",
            found="different ones",
            hint="fit them one by one",
        )
    _check_motion(data[0])
    if isinstance(models[0], Batched):
        _check_batch(models, data)
        type(models[0])._learn_batch(models, data)
    else:
        for model, snapshots in zip(models, data, strict=True):
            model._learn(snapshots, Watch())
    for model, snapshots in zip(models, data, strict=True):
        model._keep(snapshots)
    return list(models)


def check_choices(model: Any, **allowed: Sequence[str]) -> None:
    """Refuse a parameter that is none of the words it may be."""
    for name, words in allowed.items():
        if getattr(model, name) not in words:
            raise InputError(
                expected=f"{name} to be one of {', '.join(words)}",
                found=f"{getattr(model, name)!r}",
                hint=words[0],
            )


def _check_batch(models: Sequence[Any], data: Sequence[Snapshots]) -> None:
    if any(snapshots.counts != data[0].counts for snapshots in data):
        raise InputError(
            expected="the same number of points in each snapshot of every data set fitted together",
            found=", ".join(str(snapshots.counts) for snapshots in data),
            hint="thin them to equal counts, or fit them one after the other",
        )
    if len(models) > 1 and isinstance(models[0].dt, str):
        raise InputError(
            expected="dt given, the same for all", found=f"dt={models[0].dt!r}", hint="dt=0.01"
        )


def _observed(X: Any, t: Any, cells: CellSelection) -> Snapshots:
    """What was given, as snapshots."""
    if isinstance(X, Snapshots) and t is not None:
        raise InputError(
            expected="Snapshots alone, or points with t",
            found="Snapshots and t",
            hint="fit(snapshots)",
        )
    if is_anndata(X):
        if t is not None:
            raise InputError(
                expected="time_key with an AnnData", found="t", hint="fit(adata, time_key='day')"
            )
        return selected_cells(X, cells)
    if cells.named:
        raise InputError(
            expected=f"{', '.join(cells.named)} with an AnnData",
            found=f"{type(X).__name__}",
            hint="leave it out",
        )
    return X if isinstance(X, Snapshots) else _from_rows(X, t)


def _from_rows(X: Any, t: Any) -> Snapshots:
    if t is None:
        raise InputError(
            expected="Snapshots, or points X with times t", found="X alone", hint="fit(X, t)"
        )
    names = [str(c) for c in X.columns] if hasattr(X, "columns") else None
    return Snapshots.from_rows(np.asarray(X), np.asarray(t), names=names)


def _choices(model: Any) -> tuple[Any, ...]:
    """What must agree in estimators fitted together."""
    params = model.get_params(deep=False)
    sigma = params.pop("sigma", None)
    params.pop("random_state", None)
    kind = sigma if isinstance(sigma, str) else "known"
    return type(model), kind, repr(sorted(params.items()))


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
