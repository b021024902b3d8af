"""The dictionaries a moments fit begins with: affine to aim, and what may be selected after."""

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from itofit.bridge.structures import sparse_for
from itofit.errors import InputError
from itofit.moments.options import MomentsOptions
from itofit.problem import Problem, Stream
from itofit.process.features import (
    Dictionary,
    FunctionFeatures,
    Group,
    affine,
    box_of,
    joined,
    pairs,
    polynomials,
    ridges,
)
from itofit.snapshots.clouds import Snapshots
from itofit.snapshots.scaling import Scaling

_EXAMPLE = "dictionary=lambda x: jnp.stack([1.0, x[0], x[1], x[0] ** 3])"


@dataclass(frozen=True, eq=False)
class Library:
    """The dictionaries of one fit.

    - `aim`: the affine one, or the user's own.
    - `more`: what may come in to find the shape: monomials, and a few tanh features of each subset
      of coordinates; None with the user's own.
    """

    aim: Dictionary
    more: Dictionary | None

    @property
    def whole(self) -> Dictionary:
        """All of them."""
        return self.aim if self.more is None else joined([self.aim, self.more])


def library_for(problem: Problem, options: MomentsOptions) -> Library:
    """The dictionaries for the snapshots of a problem; a user's own, or those of a potential, stand
    for all.
    """
    snapshots = problem.snapshots
    if options.dictionary is not None:
        return Library(_user_dictionary(options.dictionary, snapshots, problem.scaling), None)
    if problem.has_potential:
        return Library(sparse_for(problem).dictionary, None)
    rng = problem.streams.rng(Stream.ridges)
    box = box_of(snapshots)
    clock = None
    if problem.time_varying:
        box = _with_clock(box)
        clock = snapshots.n_dims
    n_inputs = len(box[0])
    count = options.features_for(n_inputs)
    more: list[Dictionary] = []
    if options.polynomials:
        low, high = box
        more.append(polynomials(n_inputs, low, high, clock))
    if count.single:
        singles = [(a,) for a in range(n_inputs)]
        more.append(ridges(n_inputs, singles, count.single, rng))
    if count.pair and n_inputs > 1:
        more.append(
            ridges(
                n_inputs,
                pairs(n_inputs),
                count.pair,
                rng,
            )
        )
    if count.every and n_inputs > 2:
        every = tuple(range(n_inputs))
        more.append(
            ridges(
                n_inputs,
                [every],
                count.every,
                rng,
            )
        )
    return Library(affine(n_inputs, clock), joined(more) if more else None)


def _with_clock(box: tuple[np.ndarray, np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """The clock is a coordinate that never leaves its range by itself."""
    return np.append(box[0], -np.inf), np.append(box[1], np.inf)


def _user_dictionary(
    function: Any,
    snapshots: Snapshots,
    scaling: Scaling,
) -> Dictionary:
    """The user's features over their root mean square, so that priors mean the same."""
    states = jnp.asarray(scaling.restore(np.concatenate(snapshots.clouds)), dtype=float)
    values = _checked_values(function, states)
    size = np.sqrt(np.mean(values**2, axis=0))
    size = np.where(size > 0.0, size, 1.0)
    features = FunctionFeatures(
        function,
        jnp.asarray(scaling.mean, dtype=float),
        jnp.asarray(scaling.sd, dtype=float),
        jnp.asarray(size, dtype=float),
    )
    kinds = ["constant" if np.ptp(column) == 0.0 else "user" for column in values.T]
    return Dictionary(features, tuple(Group(1, kind, ()) for kind in kinds))


def _checked_values(
    function: Any,
    states: Float[Array, "n n_dims"],
) -> Float[np.ndarray, "n n_features"]:
    """The user's features at these states, or a refusal of a function that is none."""
    try:
        rows = jax.vmap(lambda x: jnp.atleast_1d(function(x)))(states)
        values = np.asarray(rows, dtype=np.float64)
    except (TypeError, ValueError, IndexError, AttributeError, KeyError) as error:
        raise InputError(
            expected="dictionary to be a jax function of one state that returns a vector of "
            "features",
            found=f"{type(error).__name__}: {str(error).splitlines()[0]}",
            hint=_EXAMPLE,
        ) from None
    is_finite = bool(np.all(np.isfinite(values)))
    if values.ndim != 2 or values.shape[1] == 0 or not is_finite:
        raise InputError(
            expected="dictionary to return finite features, one vector a state",
            found=f"shape {values.shape[1:]}, finite on the snapshots: {is_finite}",
            hint=_EXAMPLE,
        )
    return values
