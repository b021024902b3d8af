"""Fitted models of the batched methods in run folders, so that a fit made on one machine can be scored on another."""

import json
from pathlib import Path
from typing import NamedTuple

from experiments.table1.records import Fit
from itofit.cli.main import load_run
from itofit.face import Face

_ABOUT = "table1.json"


class Made(NamedTuple):
    """A fitted model: the seconds of the run, how many fits shared it, and where it was."""

    model: Face
    seconds: float
    together: int
    device: str


def keep(runs: Path, fit: Fit, made: Made) -> None:
    """Save a fit; what is said about it last, so that a folder cut short does not count as one."""
    folder = _folder(runs, fit)
    made.model.save(folder, overwrite=True)
    (folder / _ABOUT).write_text(json.dumps(made._asdict() | {"model": None}))


def kept(runs: Path, fit: Fit) -> Made | None:
    """The fit of this name, if it is there."""
    folder = _folder(runs, fit)
    if not (folder / _ABOUT).exists():
        return None
    about = json.loads((folder / _ABOUT).read_text())
    return Made(**about | {"model": load_run(folder)})


def _folder(runs: Path, fit: Fit) -> Path:
    return runs / "-".join(str(part) for part in fit)
