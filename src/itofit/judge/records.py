"""A selection as plain values and arrays, and back: what a run folder holds of it."""

from dataclasses import asdict
from typing import Any

import numpy as np

from itofit.problem import Problem
from itofit.process.drift import AbstractLinearDrift
from itofit.process.ito import ItoProcess
from itofit.solution import Judgement, Selection
from itofit.solve.records import (
    drift_arrays,
    drift_of,
    drift_values,
    noise_arrays,
    restored_noise,
)

_PREFIX = "candidate."


def selection_values(selection: Selection) -> dict[str, Any]:
    """What JSON can hold of it."""
    return {
        "between": selection.between,
        "beyond": selection.beyond,
        "chosen": selection.chosen,
        "why": selection.why,
        "thinning": selection.thinning,
        "judgements": [asdict(judgement) for judgement in selection.judgements],
        "candidates": {
            name: drift_values(_drift(process)) for name, process in selection.processes.items()
        },
        "changing": [name for name, one in selection.processes.items() if one.drift.varies],
    }


def selection_arrays(selection: Selection) -> dict[str, np.ndarray]:
    """The arrays of its processes."""
    arrays = {}
    for name, process in selection.processes.items():
        own = drift_arrays(_drift(process)) | noise_arrays(process.diffusion)
        arrays |= {f"{_PREFIX}{name}.{key}": array for key, array in own.items()}
    return arrays


def selection_from(
    problem: Problem, values: dict[str, Any] | None, arrays: dict[str, np.ndarray]
) -> Selection | None:
    """The selection of these values and arrays; None where nothing was judged."""
    if values is None:
        return None
    processes = {}
    for name, features in values["candidates"].items():
        prefix = f"{_PREFIX}{name}."
        own = {k.removeprefix(prefix): v for k, v in arrays.items() if k.startswith(prefix)}
        asked = problem.with_clock() if name in values["changing"] else problem
        drift = drift_of(features, own, asked.clock)
        processes[name] = ItoProcess(drift, restored_noise(problem, own))
    judgements = tuple(Judgement(**judgement) for judgement in values["judgements"])
    return Selection(
        processes,
        values["between"],
        values["beyond"],
        judgements,
        values["chosen"],
        values["why"],
        values["thinning"],
    )


def _drift(process: ItoProcess) -> AbstractLinearDrift:
    assert isinstance(process.drift, AbstractLinearDrift)
    return process.drift
