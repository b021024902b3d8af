"""Ridges that turn: tanh features whose directions are fitted together with their amplitudes.

    g(x) = speed * (W' phi(x) + sum_u a_u tanh(z_u)),        z_u = omega_u . x + beta_u

Near (omega, beta) this is linear in all unknowns, and the slopes are features as well:

    dg / d omega_ui = speed a_u sech^2(z_u) x_i,        dg / d beta_u = speed a_u sech^2(z_u)

so the Jacobian is that of a linear drift with sech^2(z_u) [x, 1] beside its dictionary, times the amplitudes a_u.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, Int

from itofit.process.features import AbstractFeatures, Dictionary, Group, Joined, OnTrial, Ridges, RidgeSlopes, joined
from itofit.process.ito import ItoProcess
from itofit.solve.gauss_newton import DAMPING, SMALL_DECREASE, Run, State, step
from itofit.solve.relevance import ABSENT, CONSTANT, Prior
from itofit.solve.residuals import Residual
from itofit.solve.whitening import Spread, Whitening

# Slopes and offsets are fitted in this unit, in which the fixed prior of the constants makes them of order 3.
UNIT = 0.1
_MOST_TURNS = 12

Shape = Float[np.ndarray, "n_ridges n_slots"]


@dataclass(frozen=True, eq=False)
class Turning(Residual):
    """The residual as a function of the coefficients of a dictionary that ends with ridges, and of their shape.

    The unknowns are `[W, theta, shape]`, theta those of a learned noise, `shape` being (omega, beta) of every ridge in
    units of `UNIT`. The ridges of `dictionary` stand anywhere; where they are is in the unknowns. `rest` is the
    dictionary without them.
    """

    base: Residual
    rest: Dictionary
    n_ridges: int

    @classmethod
    def of(cls, base: Residual, rest: Dictionary, n_ridges: int) -> "Turning":
        """The same chains and probes with another drift."""
        n_inputs = base.snapshots.n_dims + (base.clock is not None)
        anywhere = ridges_at(np.zeros((n_ridges, n_inputs + 1)))
        parts = (base.snapshots, base.diffusion, base.ends, base.probes, joined([rest, anywhere]), base.speed)
        return cls(*parts, base, rest, n_ridges, clock=base.clock)

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
        """The residual with the ridges where they are now, a function of coefficients and noise alone."""
        return replace(self.base, dictionary=joined([self.rest, ridges_at(self.shape(unknowns))]))

    def __call__(self, v: np.ndarray) -> list[np.ndarray]:
        return self.at(v)(v[: self.n_linear])

    def spreads(self, v: np.ndarray | None) -> list[Spread]:
        return self.base.spreads(None) if v is None else self.at(v).spreads(v[: self.n_linear])

    def process(self, v: np.ndarray) -> ItoProcess:
        return self.at(v).process(v[: self.n_linear])

    def folds(self) -> Sequence["Turning"]:
        return [replace(self, base=part) for part in self.base.folds()]

    def jacobian(
        self, v: np.ndarray, whitening: Whitening, columns: Int[np.ndarray, " n_columns"]
    ) -> Float[np.ndarray, "n_rows n_columns"]:
        return self.jacobians(v, whitening, columns, None)[0]

    def jacobians(
        self, v: np.ndarray, whitening: Whitening, columns: np.ndarray, tried: Dictionary | None
    ) -> tuple[np.ndarray, np.ndarray]:
        """These columns of the Jacobian, in ascending order, and all those of features that are tried beside it."""
        n_dims, n_linear, n_known, shape = self.snapshots.n_dims, self.n_linear, self.n_coefficients, self.shape(v)
        linear, shaped = columns[columns < n_linear], columns[columns >= n_linear] - n_linear
        if len(shaped) == 0 and tried is None:
            found = self.at(v).jacobian(v[:n_linear], whitening, linear)
            return found, found[:, :0]
        # One coefficient a slope and output; the amplitudes tie the outputs together afterwards.
        apart = n_known + shaped[:, None] * n_dims + np.arange(n_dims)
        slopes = slopes_at(shape)
        wide = on_trial(self.at(v), [slopes] if tried is None else [slopes, tried])
        n_wide, first = wide.n_coefficients, n_known + slopes.n_features * n_dims
        padded = np.concatenate([v[:n_known], np.zeros(n_wide - n_known), v[n_known:n_linear]])
        linear = np.where(linear < n_known, linear, linear + n_wide - n_known)
        found = wide.jacobian(padded, whitening, np.concatenate([linear, apart.ravel(), np.arange(first, n_wide)]))
        known, by_output, beside = np.split(found, [len(linear), len(linear) + apart.size], axis=1)
        amplitude = v[:n_known].reshape(-1, n_dims)[-self.n_ridges :][shaped // self.n_slots]
        tied = np.einsum("rso,so->rs", by_output.reshape(len(found), len(shaped), n_dims), amplitude)
        return np.concatenate([known, UNIT * tied], axis=1), beside


def turning_ridges(residual: Residual, state: State) -> tuple[Turning, State] | None:
    """The residual whose ridges may turn, each in the coordinates it is a function of; None where there are none.

    Every ridge is a group of its own and they end the dictionary, as `solve.growth` leaves them.
    """
    groups = residual.dictionary.groups
    ridge = np.asarray([group.kind == "ridge" for group in groups])
    if not np.any(ridge):
        return None
    turning = Turning.of(residual, residual.dictionary.only(~ridge), int(np.sum(ridge)))
    shape = shape_of(residual.dictionary.only(ridge).features)
    slots = np.full(shape.shape, ABSENT)
    for row, group in zip(slots, (group for group in groups if group.kind == "ridge"), strict=True):
        row[[*group.coordinates, -1]] = CONSTANT
    prior = state.prior.joined(Prior(slots.ravel(), np.zeros(0), np.zeros(0)))
    return turning, replace(state, v=np.concatenate([state.v, shape.ravel() / UNIT]), prior=prior)


def turned(turning: Turning, whitening: Whitening, state: State, run: Run, phase: int) -> State:
    """Gauss-Newton steps in all unknowns, until one gains little."""
    for i in range(_MOST_TURNS):
        if run.spent:
            break
        moved, decrease = step(turning, whitening, state, 1.0, phase, run, 2)
        state = moved or state
        if moved is None or (i > 1 and decrease < SMALL_DECREASE):
            break
    return state


def still(
    turning: Turning, whitening: Whitening, state: State, run: Run, phase: int, threshold: np.ndarray | None = None
) -> State:
    """One step in coefficients and noise alone; with `threshold`, groups that have less evidence leave."""
    if run.spent:
        return state
    now, n_linear = turning.at(state.v), turning.n_linear
    prior = replace(state.prior, group=state.prior.group[:n_linear])
    linear = State(state.v[:n_linear], prior, DAMPING[1], state.residuals)
    linear = step(now, whitening, linear, 1.0, phase, run, 2, threshold)[0] or linear
    v, prior = np.concatenate([linear.v, state.v[n_linear:]]), replace(linear.prior, group=state.prior.group)
    return State(v, prior, DAMPING[1], linear.residuals)


def frozen(turning: Turning, state: State) -> tuple[Residual, State]:
    """The same model as a residual of coefficients and noise alone."""
    prior = replace(state.prior, group=state.prior.group[: turning.n_linear])
    return turning.at(state.v), State(state.v[: turning.n_linear], prior, residuals=state.residuals)


def ridges_at(shape: Shape) -> Dictionary:
    """One ridge for every row (omega, beta), each a group of its own."""
    features = Ridges(jnp.asarray(shape[:, :-1], dtype=float), jnp.asarray(shape[:, -1], dtype=float))
    return Dictionary(features, tuple(Group(1, "ridge", tuple(np.flatnonzero(row[:-1]).tolist())) for row in shape))


def shape_of(features: AbstractFeatures) -> Shape:
    """(omega, beta) of every ridge of a dictionary."""
    parts = features.parts if isinstance(features, Joined) else (features,)
    rows = [np.column_stack([part.directions, part.offsets]) for part in parts if isinstance(part, Ridges)]
    return np.concatenate(rows).astype(np.float64)


def slopes_at(shape: Shape) -> Dictionary:
    """How the ridges change with their shape, slot by slot."""
    features = RidgeSlopes(jnp.asarray(shape[:, :-1], dtype=float), jnp.asarray(shape[:, -1], dtype=float))
    return Dictionary(features, (Group(shape.shape[1], "slope", ()),) * len(shape))


def on_trial(residual: Residual, tried: list[Dictionary]) -> Residual:
    """The same residual with features beside its dictionary whose coefficients are zero."""
    known, beside = residual.dictionary, joined(tried)
    features = OnTrial(known.features, beside.features, known.n_features)
    return replace(residual, dictionary=Dictionary(features, known.groups + beside.groups))
