"""Run folders: a fitted model of any method on disk, written whole or not at all, without pickle.

A folder holds one file of named arrays. `about` in it is JSON: the format, the method, the
parameters of the estimator and what it learned as plain values; everything else is arrays.
"""

import json
import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol, TypeVar, runtime_checkable

import numpy as np

from itofit.arrays import read_arrays, write_arrays
from itofit.errors import InputError
from itofit.snapshots.cells import CellSpace
from itofit.snapshots.clouds import Snapshots, checked_names
from itofit.snapshots.paired import PairedSnapshots
from itofit.solve.solver import AbstractSolver
from itofit.solvers import solver_from, solver_values

FORMAT = 4
MODEL_FILE = "model.npz"

# Every method by the names that its runs may have.
METHODS: dict[str, type[Any]] = {}

Method = TypeVar("Method", bound=type)


def registered(method: Method) -> Method:
    """Let runs of this class be loaded by `load`; for use as a decorator."""
    kind: Any = method
    for name in (kind.method, *kind.aliases):
        METHODS[name] = method
    return method


@runtime_checkable
class Saved(Protocol):
    """A fitted model that can be saved."""

    snapshots_: Snapshots

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Constructor parameters by name."""
        ...

    def _values(self) -> dict[str, Any]: ...

    def _arrays(self) -> dict[str, np.ndarray]: ...


@dataclass(frozen=True, eq=False)
class Run:
    """What a run folder holds: the method, the parameters, what was learned, the snapshots."""

    method: str
    params: dict[str, Any]
    values: dict[str, Any]
    arrays: dict[str, np.ndarray]
    snapshots: Snapshots
    about: dict[str, Any]


def save_run(model: Saved, method: str, path: str | Path, *, overwrite: bool) -> None:
    """Write a fitted model to a run folder, all or nothing."""
    folder = Path(path)
    target = _free(folder, overwrite)
    params = model.get_params(deep=False)
    about = {
        "format": FORMAT,
        "method": method,
        "params": {name: _plain(name, value) for name, value in params.items()},
        "values": model._values(),
    }
    snapshots = model.snapshots_
    X, t, w = snapshots.to_rows()
    arrays = {"X": X, "t": t, "w": w, "names": np.asarray(snapshots.names), **model._arrays()}
    if snapshots.space is not None:
        about["cells"] = snapshots.space.to_json()
        arrays |= snapshots.space.to_arrays()
    if isinstance(snapshots, PairedSnapshots):
        about["pairs"] = True
    folder.mkdir(parents=True, exist_ok=True)
    write_arrays(target, {"about": np.asarray(json.dumps(about)), **arrays})


def load(path: str | Path) -> Any:
    """Read a run folder back, whatever its method.

    Parameters
    ----------
    path : str or path
        The folder given to `save` or to `itofit fit --out`.

    Returns
    -------
    estimator
        A fitted `FokkerPlanckProcess`, or one of the other methods.

    Raises
    ------
    InputError
        Where the folder holds no run, a broken one, or one of another format.

    Examples
    --------
    >>> import tempfile
    >>> from itofit import Persistence, Snapshots, load
    >>> clouds = [[[0.0], [1.0]], [[1.0], [2.0]]]
    >>> model = Persistence().fit(Snapshots.from_arrays(clouds, times=[0.0, 1.0]))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     model.save(folder)
    ...     again = load(folder)
    >>> again
    Persistence()
    """
    run = read_run(path)
    if run.method not in METHODS:
        raise InputError(
            expected=f"a run of one of {', '.join(METHODS)}",
            found=run.method,
            hint="a newer itofit may know it",
        )
    return METHODS[run.method]._restored(run)


def read_run(path: str | Path) -> Run:
    """What a run folder holds, or a refusal that says what is wrong with it."""
    file = Path(path) / MODEL_FILE
    if not file.is_file():
        raise _no_run(Path(path))
    arrays = read_arrays(file, hint="fit again; a truncated or foreign file cannot be repaired")
    about = _about(file, arrays)
    snapshots = _snapshots(about, arrays)
    params = about["params"]
    if "solver" in params:
        params = params | {"solver": solver_from(params["solver"])}
    return Run(about["method"], params, about["values"], arrays, snapshots, about)


def _about(file: Path, arrays: dict[str, np.ndarray]) -> dict[str, Any]:
    """The description in a run, of the format that is written today."""
    try:
        about = json.loads(str(arrays["about"]))
        version = about["format"]
        described = {"method", "params", "values"} <= set(about)
        if not described or not {"X", "t", "w", "names"} <= set(arrays):
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
            hint="fit again, or load it with the itofit that wrote it",
        )
    return about


def _no_run(folder: Path) -> InputError:
    if any(folder.glob("checkpoint*.npz")):
        return InputError(
            expected=f"a run folder with {MODEL_FILE}",
            found="an unfinished run",
            hint="finish it with the same command and --resume",
        )
    return InputError(
        expected=f"a run folder with {MODEL_FILE}",
        found=f"no such file in {folder}",
        hint="the folder given to --out or save()",
    )


def _free(folder: Path, overwrite: bool) -> Path:
    """The file to write, which must not be there yet."""
    if folder.exists() and not folder.is_dir():
        raise InputError(
            expected="a folder to save into",
            found=f"a file at {folder}",
            hint="choose another name",
        )
    target = folder / MODEL_FILE
    if target.exists() and not overwrite:
        raise InputError(
            expected="a folder without a model",
            found=f"{target}",
            hint="another name, or overwrite=True (--overwrite)",
        )
    return target


def _snapshots(about: dict[str, Any], arrays: dict[str, np.ndarray]) -> Snapshots:
    """The snapshots of a run; rows of pairs stay where they are."""
    X = arrays["X"]
    t = arrays["t"]
    w = arrays["w"]
    names = arrays["names"].tolist()
    if about.get("pairs"):
        times = np.unique(t)
        clouds = tuple(X[t == time] for time in times)
        weights = tuple(w[t == time] for time in times)
        snapshots = PairedSnapshots(times, clouds, weights, checked_names(names, X.shape[1]))
    else:
        snapshots = Snapshots.from_rows(X, t, w, names)
    if "cells" not in about:
        return snapshots
    return replace(snapshots, space=CellSpace.restored(about["cells"], arrays))


def _plain(name: str, value: Any) -> Any:
    """A parameter as JSON can hold it."""
    if isinstance(value, AbstractSolver):
        written = solver_values(value)
        options = {key: _plain(key, option) for key, option in written["options"].items()}
        return {"name": written["name"], "options": options}
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
