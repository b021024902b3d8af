"""The dictionaries a moments fit begins with: affine to aim, and what may come in as the drift grows."""

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from itofit.errors import InputError
from itofit.process.features import (
    Dictionary,
    FunctionFeatures,
    Group,
    affine,
    joined,
    pairs,
    polynomials,
    ridges,
)
from itofit.snapshots.clouds import Snapshots
from itofit.snapshots.scaling import Scaling
from itofit.solve.options import MomentsOptions


@dataclass(frozen=True, eq=False)
class Library:
    """The dictionaries of one fit.

    - `aim`: the affine one, or the user's own.
    - `more`: what may come in to find the shape: monomials, and a few tanh features of each subset of coordinates;
      None with the user's own.
    - `clock`: which of their inputs is the time, if any.
    """

    aim: Dictionary
    more: Dictionary | None
    clock: int | None = None


def library_for(snapshots: Snapshots, scaling: Scaling, options: MomentsOptions, seed: int) -> Library:
    """The dictionaries for standardised snapshots; a user's own replaces them all."""
    if options.dictionary is not None:
        return Library(_user_dictionary(options.dictionary, snapshots, scaling), None)
    rng = np.random.default_rng([seed, 1])
    clock, box = (snapshots.n_dims, _with_clock(box_of(snapshots))) if options.clock else (None, box_of(snapshots))
    n_inputs = len(box[0])
    n_single, n_pair, n_all = options.features_for(n_inputs)
    parts = [polynomials(n_inputs, *box, clock)] if options.polynomials else []
    parts += [ridges(n_inputs, [(a,) for a in range(n_inputs)], n_single, rng)] if n_single else []
    parts += [ridges(n_inputs, pairs(n_inputs), n_pair, rng)] if n_pair and n_inputs > 1 else []
    parts += [ridges(n_inputs, [tuple(range(n_inputs))], n_all, rng)] if n_all and n_inputs > 2 else []
    return Library(affine(n_inputs, clock), joined(parts) if parts else None, clock)


def box_of(snapshots: Snapshots) -> tuple[np.ndarray, np.ndarray]:
    """The range of the data and a quarter of it on either side, outside which high powers are frozen."""
    low = np.min([x.min(axis=0) for x in snapshots.clouds], axis=0)
    high = np.max([x.max(axis=0) for x in snapshots.clouds], axis=0)
    return low - (high - low) / 4.0, high + (high - low) / 4.0


def _with_clock(box: tuple[np.ndarray, np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """The clock is a coordinate that never leaves its range by itself."""
    return np.append(box[0], -np.inf), np.append(box[1], np.inf)


def _user_dictionary(function: Any, snapshots: Snapshots, scaling: Scaling) -> Dictionary:
    """The user's features divided by their root mean square over the snapshots, so that priors mean the same."""
    mean, sd = jnp.asarray(scaling.mean, dtype=float), jnp.asarray(scaling.sd, dtype=float)
    states = jnp.asarray(scaling.restore(np.concatenate(snapshots.clouds)), dtype=float)
    try:
        values = np.asarray(jax.vmap(lambda x: jnp.atleast_1d(function(x)))(states), dtype=np.float64)
    except (TypeError, ValueError, IndexError, AttributeError, KeyError) as error:
        raise InputError(
            expected="dictionary to be a jax function of one state that returns a vector of features",
            found=f"{type(error).__name__}: {str(error).splitlines()[0]}",
            hint="dictionary=lambda x: jnp.stack([1.0, x[0], x[1], x[0] ** 3])",
        ) from None
    if values.ndim != 2 or values.shape[1] == 0 or not np.all(np.isfinite(values)):
        raise InputError(
            expected="dictionary to return finite features, one vector a state",
            found=f"shape {values.shape[1:]}, finite on the snapshots: {bool(np.all(np.isfinite(values)))}",
            hint="dictionary=lambda x: jnp.stack([1.0, x[0], x[1], x[0] ** 3])",
        )
    size = np.sqrt(np.mean(values**2, axis=0))
    size = np.where(size > 0.0, size, 1.0)
    features = FunctionFeatures(function, mean, sd, jnp.asarray(size, dtype=float))
    groups = [Group(1, "constant" if np.ptp(column) == 0.0 else "user", ()) for column in values.T]
    return Dictionary(features, tuple(groups))
