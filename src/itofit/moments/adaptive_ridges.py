"""Adaptive ridges: tanh features whose directions are fitted together with their amplitudes.

    g(x) = speed * (W' phi(x) + sum_u a_u tanh(z_u)),        z_u = omega_u . x + beta_u

Near (omega, beta) this is linear in all unknowns, and the slopes are features as well:

    dg / d omega_ui = speed a_u sech^2(z_u) x_i,        dg / d beta_u = speed a_u sech^2(z_u)

so the Jacobian is that of a linear drift with sech^2(z_u) [x, 1] beside its dictionary, times the
amplitudes a_u.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Self

import jax.numpy as jnp
import numpy as np
from jaxtyping import Bool, Float, Int

from itofit.moments.gauss_newton import SMALL_DECREASE, Run, State, Update, step
from itofit.moments.relevance import ABSENT, CONSTANT, Prior
from itofit.moments.residuals import Residual
from itofit.moments.whitening import Spread, Whitening
from itofit.process.features import (
    AbstractFeatures,
    Dictionary,
    Group,
    Joined,
    OnTrial,
    Ridges,
    RidgeSlopes,
    joined,
)
from itofit.process.ito import ItoProcess
from itofit.process.noise import AbstractDiffusion

# The unit in which slopes and offsets are fitted: the fixed prior of constants is of order 3 there.
UNIT = 0.1
_MOST_ADAPTATIONS = 12

Shape = Float[np.ndarray, "n_ridges n_slots"]


@dataclass(frozen=True, eq=False)
class AdaptiveRidges(Residual):
    """The residual as a function of coefficients and of the shape of the ridges.

    The dictionary ends with the ridges. The unknowns are `[W, theta, shape]`, theta those of a
    learned noise, `shape` being (omega, beta) of every ridge in units of `UNIT`. The ridges of
    `dictionary` stand anywhere; where they are is in the unknowns. `rest` is the dictionary without
    them.
    """

    base: Residual
    rest: Dictionary
    n_ridges: int

    @classmethod
    def of(
        cls,
        base: Residual,
        rest: Dictionary,
        n_ridges: int,
    ) -> "AdaptiveRidges":
        """The same chains and probes with another drift."""
        n_inputs = base.snapshots.n_dims + (base.clock is not None)
        anywhere = ridges_at(np.zeros((n_ridges, n_inputs + 1)))
        return cls(
            snapshots=base.snapshots,
            diffusion=base.diffusion,
            ends=base.ends,
            probes=base.probes,
            dictionary=joined([rest, anywhere]),
            speed=base.speed,
            base=base,
            rest=rest,
            n_ridges=n_ridges,
            clock=base.clock,
        )

    @property
    def n_slots(self) -> int:
        """Unknowns of the shape of one ridge."""
        return self.snapshots.n_dims + (self.clock is not None) + 1

    @property
    def n_linear(self) -> int:
        """Unknowns that are coefficients or of the noise."""
        return self.n_coefficients + self.diffusion.n_parameters

    def shape(self, unknowns: np.ndarray) -> Shape:
        """(omega, beta) of every ridge."""
        return UNIT * unknowns[self.n_linear :].reshape(self.n_ridges, self.n_slots)

    def at(self, unknowns: np.ndarray) -> Residual:
        """The residual of coefficients and noise alone, the ridges where they are now."""
        ridges = ridges_at(self.shape(unknowns))
        return replace(self.base, dictionary=joined([self.rest, ridges]))

    def __call__(self, v: np.ndarray) -> list[np.ndarray]:
        return self.at(v)(v[: self.n_linear])

    def spreads(self, v: np.ndarray | None) -> list[Spread]:
        if v is None:
            return self.base.spreads(None)
        return self.at(v).spreads(v[: self.n_linear])

    def only(self, marks: Bool[np.ndarray, " n_groups"]) -> Self:
        raise NotImplementedError("ridges that adapt are fixed first (`frozen`)")

    def with_noise(self, diffusion: AbstractDiffusion) -> Self:
        return replace(self, diffusion=diffusion, base=self.base.with_noise(diffusion))

    def process(self, v: np.ndarray) -> ItoProcess:
        return self.at(v).process(v[: self.n_linear])

    def folds(self) -> Sequence["AdaptiveRidges"]:
        return [replace(self, base=part) for part in self.base.folds()]

    def jacobian(
        self, v: np.ndarray, whitening: Whitening, columns: Int[np.ndarray, " n_columns"]
    ) -> Float[np.ndarray, "n_rows n_columns"]:
        return self.jacobians(v, whitening, columns, None)[0]

    def jacobians(
        self,
        v: np.ndarray,
        whitening: Whitening,
        columns: np.ndarray,
        tried: Dictionary | None,
    ) -> tuple[np.ndarray, np.ndarray]:
        """These columns of the Jacobian, in ascending order, and those of features on trial."""
        linear = columns[columns < self.n_linear]
        shaped = columns[columns >= self.n_linear] - self.n_linear
        if len(shaped) == 0 and tried is None:
            every = self.at(v).jacobian(v[: self.n_linear], whitening, linear)
            return every, every[:, :0]
        n_dims = self.snapshots.n_dims
        n_known = self.n_coefficients
        slopes = slopes_at(self.shape(v))
        wide = on_trial(self.at(v), [slopes] if tried is None else [slopes, tried])
        n_new = wide.n_coefficients - n_known
        padded = np.concatenate([v[:n_known], np.zeros(n_new), v[n_known : self.n_linear]])
        linear = np.where(linear < n_known, linear, linear + n_new)
        # One coefficient a slope and output; the amplitudes tie the outputs together afterwards.
        apart = n_known + shaped[:, None] * n_dims + np.arange(n_dims)
        beside = np.arange(n_known + slopes.n_features * n_dims, n_known + n_new)
        chosen = np.concatenate([linear, apart.ravel(), beside])
        every = wide.jacobian(padded, whitening, chosen)
        ends = [len(linear), len(linear) + apart.size]
        known, by_output, on_trial_beside = np.split(every, ends, axis=1)
        by_output = by_output.reshape(len(every), len(shaped), n_dims)
        tied = np.einsum("rso,so->rs", by_output, self.amplitudes(v)[shaped // self.n_slots])
        return np.concatenate([known, UNIT * tied], axis=1), on_trial_beside

    def amplitudes(self, v: np.ndarray) -> Float[np.ndarray, "n_ridges n_dims"]:
        """The coefficients of the ridges."""
        return v[: self.n_coefficients].reshape(-1, self.snapshots.n_dims)[-self.n_ridges :]


def adaptive_ridges(
    residual: Residual,
    state: State,
) -> tuple[AdaptiveRidges, State] | None:
    """The residual whose ridges may adapt, each in its coordinates; None where there are none.

    Every ridge is a group of its own and they end the dictionary, as `moments.forward_selection`
    leaves them.
    """
    groups = residual.dictionary.groups
    ridge = np.asarray([group.kind == "ridge" for group in groups])
    if not np.any(ridge):
        return None
    rest = residual.dictionary.only(~ridge)
    ridges = residual.dictionary.only(ridge)
    adaptive = AdaptiveRidges.of(residual, rest, len(ridges.groups))
    shape = shape_of(ridges.features)
    slots = np.full(shape.shape, ABSENT)
    for row, group in zip(slots, ridges.groups, strict=True):
        row[[*group.coordinates, -1]] = CONSTANT
    prior = state.prior.joined(Prior(slots.ravel(), np.zeros(0), np.zeros(0)))
    v = np.concatenate([state.v, shape.ravel() / UNIT])
    return adaptive, replace(state, v=v, prior=prior)


def adapted(
    adaptive: AdaptiveRidges,
    whitening: Whitening,
    state: State,
    run: Run,
) -> State:
    """Gauss-Newton steps in all unknowns, until one gains little."""
    for i in range(_MOST_ADAPTATIONS):
        if run.spent:
            break
        after, decrease = step(
            adaptive,
            whitening,
            state,
            run,
            Update(2),
        )
        state = after or state
        if after is None or (i > 1 and decrease < SMALL_DECREASE):
            break
    return state


def with_ridges_fixed(
    adaptive: AdaptiveRidges,
    whitening: Whitening,
    state: State,
    run: Run,
    threshold: np.ndarray | None = None,
) -> State:
    """One step in coefficients and noise alone; with `threshold`, groups of less evidence leave."""
    if run.spent:
        return state
    n_linear = adaptive.n_linear
    prior = replace(state.prior, group=state.prior.group[:n_linear])
    linear = State(state.v[:n_linear], prior, residuals=state.residuals)
    after = step(adaptive.at(state.v), whitening, linear, run, Update(2, threshold)).state
    linear = after or linear
    v = np.concatenate([linear.v, state.v[n_linear:]])
    prior = replace(linear.prior, group=state.prior.group)
    return State(v, prior, residuals=linear.residuals)


def frozen(
    adaptive: AdaptiveRidges,
    state: State,
) -> tuple[Residual, State]:
    """The same model as a residual of coefficients and noise alone."""
    prior = replace(state.prior, group=state.prior.group[: adaptive.n_linear])
    v = state.v[: adaptive.n_linear]
    return adaptive.at(state.v), State(v, prior, residuals=state.residuals)


def ridges_at(shape: Shape) -> Dictionary:
    """One ridge for every row (omega, beta), each a group of its own."""
    directions = jnp.asarray(shape[:, :-1], dtype=float)
    offsets = jnp.asarray(shape[:, -1], dtype=float)
    coordinates = [tuple(np.flatnonzero(row[:-1]).tolist()) for row in shape]
    groups = tuple(Group(1, "ridge", axes) for axes in coordinates)
    return Dictionary(Ridges(directions, offsets), groups)


def shape_of(features: AbstractFeatures) -> Shape:
    """(omega, beta) of every ridge of a dictionary."""
    parts = features.parts if isinstance(features, Joined) else (features,)
    ridges = [part for part in parts if isinstance(part, Ridges)]
    rows = [np.column_stack([part.directions, part.offsets]) for part in ridges]
    return np.concatenate(rows).astype(np.float64)


def slopes_at(shape: Shape) -> Dictionary:
    """How the ridges change with their shape, slot by slot."""
    directions = jnp.asarray(shape[:, :-1], dtype=float)
    offsets = jnp.asarray(shape[:, -1], dtype=float)
    group = Group(shape.shape[1], "slope", ())
    return Dictionary(RidgeSlopes(directions, offsets), (group,) * len(shape))


def on_trial(
    residual: Residual,
    tried: list[Dictionary],
) -> Residual:
    """The same residual with features beside its dictionary whose coefficients are zero."""
    known = residual.dictionary
    beside = joined(tried)
    features = OnTrial(known.features, beside.features, known.n_features)
    return replace(residual, dictionary=Dictionary(features, known.groups + beside.groups))
