"""Coefficients of a dictionary of the user's own, in the user's units, with standard errors."""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from itofit.errors import InputError
from itofit.moments.solution import MomentsSolution
from itofit.process.features import FunctionFeatures
from itofit.solution import Solution


class Coefficients(NamedTuple):
    """Coefficients of a dictionary.

    Parameters
    ----------
    values : array of shape (n_features, n_dims)
        W of the drift W' phi(x).
    errors : array of shape (n_features, n_dims)
        Their standard errors.
    """

    values: Float[np.ndarray, "n_features n_dims"]
    errors: Float[np.ndarray, "n_features n_dims"]


def dictionary_coefficients(solution: Solution) -> Coefficients:
    """Coefficients of the user's own dictionary; features without evidence are 0."""
    if isinstance(solution, MomentsSolution):
        features = solution.dictionary.features
        if isinstance(features, FunctionFeatures):
            return _in_units(solution, features)
    raise InputError(
        expected="a fit with a dictionary of your own",
        found="one by the solver's features",
        hint="solver=Moments(dictionary=lambda x: jnp.stack([1.0, x[0], x[0] ** 3]))",
    )


def _in_units(solution: MomentsSolution, features: FunctionFeatures) -> Coefficients:
    evidence = solution.terms.evidence
    n_features = len(features.size)
    rows = list(range(n_features) if features.kept is None else features.kept)
    sizes = np.asarray(features.size, dtype=np.float64)[rows, None]
    units = solution.problem.scaling.sd / sizes
    std = evidence.widening * np.sqrt(np.diag(evidence.covariance)).reshape(
        evidence.coefficients.shape
    )
    values = np.zeros((n_features, evidence.coefficients.shape[1]))
    values[rows] = units * evidence.coefficients
    errors = np.zeros_like(values)
    errors[rows] = units * std
    return Coefficients(values, errors)
