"""Dictionaries as plain values and arrays, and back: what a file must hold to build them again."""

from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np

from itofit.errors import InputError
from itofit.process.features import AbstractFeatures, ClippedMonomials, Joined, Ridges
from itofit.process.fourier import FourierFeatures
from itofit.process.potentials import SmoothTerms, TangentMonomials

_MONOMIALS = ("low", "high")
_RIDGES = ("directions", "offsets")
_TANGENTS = ("low", "high", "heights")
_SMOOTH = ("lines", "plus", "minus", "directions", "offsets", "heights")
_WAVES = ("centre", "width", "directions", "offsets")


def described(features: AbstractFeatures) -> tuple[list[dict[str, Any]], dict[str, np.ndarray]]:
    """What a file must hold to build the dictionary again: plain values and arrays."""
    values = []
    arrays = {}
    for i, part in enumerate(features.parts if isinstance(features, Joined) else (features,)):
        if isinstance(part, ClippedMonomials):
            values.append({"kind": "monomials", "terms": [list(term) for term in part.terms]})
            names = _MONOMIALS
        elif isinstance(part, Ridges):
            values.append({"kind": "ridges"})
            names = _RIDGES
        elif isinstance(part, TangentMonomials):
            values.append({"kind": "tangents", "terms": [list(term) for term in part.terms]})
            names = _TANGENTS
        elif isinstance(part, SmoothTerms):
            values.append({"kind": "smooth"})
            names = _SMOOTH
        elif isinstance(part, FourierFeatures):
            subset = None if part.subset is None else list(part.subset)
            values.append({"kind": "waves", "subset": subset})
            names = _WAVES
        else:
            raise InputError(
                expected="a dictionary of monomials, tanh features and cosines, which can be "
                "written without code",
                found="a function",
                hint="keep the model in memory",
            )
        arrays |= {f"{i}.{name}": np.asarray(getattr(part, name)) for name in names}
    return values, arrays


def rebuilt(values: Sequence[dict[str, Any]], arrays: dict[str, np.ndarray]) -> AbstractFeatures:
    """The dictionary that `described` described."""
    parts: list[AbstractFeatures] = []
    sizes = []
    for i, value in enumerate(values):

        def array(name: str, i: int = i):
            return jnp.asarray(arrays[f"{i}.{name}"])

        if value["kind"] == "monomials":
            terms = tuple(tuple(term) for term in value["terms"])
            parts.append(ClippedMonomials(terms, array("low"), array("high")))
            sizes.append(len(terms))
        elif value["kind"] == "ridges":
            parts.append(Ridges(array("directions"), array("offsets")))
            sizes.append(len(array("offsets")))
        elif value["kind"] == "tangents":
            terms = tuple(tuple(term) for term in value["terms"])
            parts.append(TangentMonomials(terms, *(array(name) for name in _TANGENTS)))
            sizes.append(len(terms))
        elif value["kind"] == "smooth":
            parts.append(SmoothTerms(*(array(name) for name in _SMOOTH)))
            sizes.append(len(array("heights")))
        else:
            subset = None if value["subset"] is None else tuple(value["subset"])
            waves = FourierFeatures(
                array("centre"), array("width"), array("directions"), array("offsets"), subset
            )
            parts.append(waves)
            sizes.append(waves.n_all if subset is None else len(subset))
    return Joined(tuple(parts), tuple(sizes))
