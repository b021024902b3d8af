"""Parts of a solution as plain values and named arrays, and back: what a run folder holds of it."""

from dataclasses import dataclass, fields
from typing import Any, TypeVar

import jax.numpy as jnp
import numpy as np

from itofit.problem import Problem
from itofit.process.clock import Clock
from itofit.process.drift import AbstractLinearDrift, PotentialDrift, linear_drift
from itofit.process.feature_records import described, rebuilt
from itofit.process.features import AbstractFeatures
from itofit.process.noise import (
    AbstractDiffusion,
    LearnedDiffusion,
    MultiplicativeForm,
    proportional_noise,
)
from itofit.solution import Outcome, Solution

Record = TypeVar("Record")

# Marks a noise in proportion to the state, which a judged fit may find where any may be learned.
_PROPORTIONAL = "noise.proportional"


@dataclass(frozen=True, eq=False)
class Ending:
    """How a run ended, as every solution says it."""

    outcome: Outcome
    n_iter: int
    seconds: float
    dt_error: float

    @classmethod
    def of(cls, values: dict[str, Any]) -> "Ending":
        """From what `ending_values` gave."""
        return cls(
            Outcome[values["outcome"]], values["n_iter"], values["seconds"], values["dt_error"]
        )


def ending_values(solution: Solution) -> dict[str, Any]:
    """How the run ended, as plain values."""
    return {
        "outcome": solution.outcome.name,
        "n_iter": solution.n_iter,
        "seconds": solution.seconds,
        "dt_error": solution.dt_error,
    }


def record_arrays(prefix: str, record: Any) -> dict[str, np.ndarray]:
    """The fields of a dataclass of arrays."""
    return {
        f"{prefix}.{field.name}": np.asarray(getattr(record, field.name))
        for field in fields(record)
    }


def record_of(kind: type[Record], prefix: str, arrays: dict[str, np.ndarray]) -> Record:
    """A dataclass of arrays read back field by field."""
    names = [field.name for field in fields(kind)]  # pyright: ignore[reportArgumentType]
    return kind(**{name: arrays[f"{prefix}.{name}"] for name in names})


def drift_values(drift: AbstractLinearDrift) -> list[dict[str, Any]]:
    """The dictionary of a drift, as plain values."""
    assert isinstance(drift.features, AbstractFeatures)
    return described(drift.features)[0]


def drift_arrays(drift: AbstractLinearDrift) -> dict[str, np.ndarray]:
    """The arrays of a drift and of its dictionary."""
    assert isinstance(drift.features, AbstractFeatures)
    arrays = {f"features.{k}": v for k, v in described(drift.features)[1].items()}
    if isinstance(drift, PotentialDrift):
        arrays["features.metric"] = np.asarray(drift.metric)
    return arrays | {"features.coefficients": np.asarray(drift.coefficients)}


def drift_of(
    values: list[dict[str, Any]], arrays: dict[str, np.ndarray], clock: Clock | None
) -> AbstractLinearDrift:
    """The drift of these values and arrays."""
    prefix = "features."
    inside = {k.removeprefix(prefix): v for k, v in arrays.items() if k.startswith(prefix)}
    features = rebuilt(values, inside)
    coefficients = jnp.asarray(inside["coefficients"])
    return linear_drift(features, coefficients, inside.get("metric"), clock)


def noise_arrays(diffusion: AbstractDiffusion) -> dict[str, np.ndarray]:
    """The parameters of a noise that was learned."""
    if not isinstance(diffusion, LearnedDiffusion):
        return {}
    theta = {"noise.theta": np.asarray(diffusion.theta)}
    if not isinstance(diffusion.form, MultiplicativeForm):
        return theta
    return theta | {_PROPORTIONAL: np.asarray(1)}


def restored_noise(problem: Problem, arrays: dict[str, np.ndarray]) -> AbstractDiffusion:
    """The noise of a problem with the parameters that were learned."""
    if not isinstance(problem.diffusion, LearnedDiffusion):
        return problem.diffusion
    theta = jnp.asarray(arrays["noise.theta"], dtype=float)
    form = problem.diffusion.form
    if _PROPORTIONAL in arrays:
        form = proportional_noise(problem.diffusion, problem.scaling).form
    return LearnedDiffusion(theta, form)
