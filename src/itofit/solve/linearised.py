"""A fit as a linear problem at its solution, with what was left out of the drift beside what is in it.

    y = J v - b,        Cov(y) = I at the truth

J is an average over start points, and its noise d is not small beside the slopes of what snapshots hardly see:
E J'J = J0'J0 + E d'd, and all of d'd would count as information. Independent parts of the points have independent
noise, so the products of different parts have the mean J0'J0 = H. The curvature of |y|^2 / 2 about the solution is H as
well, since the noise of y and of its second derivative make up for d'd. `signal` is a root of H, and `against` = H v -
J'y takes the place of J'b: H v' = against is the step from the solution v to that of a neighbouring problem.

The unknowns v are the coefficients in the model, the parameters of a learned noise, the shape of its ridges, and the
coefficients of features that had too little evidence to come in. Every unknown but those of the noise moves the drift
by v_p phi_p(x) outputs_p, where phi_p is one feature of `features`; for the shape of a ridge that feature is its slope,
and `outputs_p` holds its amplitudes.
"""

import functools
from collections import Counter
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int

from itofit.process.clock import Clock
from itofit.process.drift import FeatureDrift
from itofit.process.features import (
    MANY_DIMS,
    AbstractFeatures,
    ClippedMonomials,
    Dictionary,
    FunctionFeatures,
    Joined,
    joined,
    monomials,
)
from itofit.solve.dense import HEUN_STEPS
from itofit.solve.dictionaries import Library
from itofit.solve.evidence import Evidence
from itofit.solve.gauss_newton import State
from itofit.solve.growth import FEW_DIMS, JACOBIAN_POINTS
from itofit.solve.relevance import CONSTANT, GONE, Prior
from itofit.solve.residuals import Residual, Simulated
from itofit.solve.task import Task
from itofit.solve.turning import UNIT, on_trial, ridges_at, shape_of, slopes_at, turning_ridges
from itofit.solve.whitening import Whitening

# Coefficients left out of a fit above which drawn ridges are not tried beside it.
_MOST_LEFT_OUT = 2000


class Unknowns(NamedTuple):
    """Columns of the linear problem and what they are.

    - `folds`: the columns, over independent parts of the start points; `jacobian` is their mean.
    - `v`, `precision`: the solution and its prior, `GONE` for what is not in the model.
    - `log_odds`: before seeing data, of each unknown being in the model; infinite for those that always are.
    - `dictionary`: the features they move; `feature`, `outputs`: which of them, and by how much for every output.
    - `noise`: positions of those that are parameters of the noise and move no feature.
    """

    folds: Float[np.ndarray, "n_folds n_rows n_unknowns"]
    v: Float[np.ndarray, " n_unknowns"]
    precision: Float[np.ndarray, " n_unknowns"]
    log_odds: Float[np.ndarray, " n_unknowns"]
    dictionary: Dictionary
    feature: Int[np.ndarray, " n_unknowns"]
    outputs: Float[np.ndarray, "n_unknowns n_dims"]
    noise: Int[np.ndarray, " n_noise"]

    @classmethod
    def coefficients(cls, folds, v, precision, log_odds, dictionary: Dictionary, n_dims: int) -> "Unknowns":
        """One unknown for every feature and output."""
        feature = np.repeat(np.arange(dictionary.n_features), n_dims)
        outputs = np.tile(np.eye(n_dims), (dictionary.n_features, 1))
        return cls(folds, v, precision, log_odds, dictionary, feature, outputs, np.zeros(0, dtype=int))

    @property
    def jacobian(self) -> Float[np.ndarray, "n_rows n_unknowns"]:
        """J."""
        return self.folds.mean(axis=0)

    def beside(self, other: "Unknowns") -> "Unknowns":
        """These unknowns and those."""
        feature = np.append(self.feature, self.dictionary.n_features + other.feature)
        return Unknowns(
            np.concatenate([self.folds, other.folds], axis=2),
            np.append(self.v, other.v),
            np.append(self.precision, other.precision),
            np.append(self.log_odds, other.log_odds),
            joined([self.dictionary, other.dictionary]),
            feature,
            np.concatenate([self.outputs, other.outputs]),
            np.append(self.noise, len(self.v) + other.noise),
        )

    def with_noise(self, folds: Float[np.ndarray, "n_folds n_rows n_noise"], precision: float) -> "Unknowns":
        """These and the parameters of the noise, which are always there."""
        count, n = len(self.v), folds.shape[2]
        return Unknowns(
            np.concatenate([self.folds, folds], axis=2),
            np.append(self.v, np.zeros(n)),
            np.append(self.precision, np.full(n, precision)),
            np.append(self.log_odds, np.full(n, np.inf)),
            self.dictionary,
            np.append(self.feature, np.zeros(n, dtype=int)),
            np.concatenate([self.outputs, np.zeros((n, self.outputs.shape[1]))]),
            np.append(self.noise, count + np.arange(n)),
        )


@dataclass(frozen=True, eq=False)
class Linearised:
    """The linear problem y = J v - b of a fit.

    `y`: the residuals at the solution. `influence`: by snapshot, what each of its points contributes to them. `speed`:
    of the drift, for unknowns of size one. `clock`: of a drift that changes with time. `n_apart`: in how many flights
    each point is whose covariances were estimated by themselves.
    """

    unknowns: Unknowns
    y: Float[np.ndarray, " n_rows"]
    influence: dict[int, Float[np.ndarray, "n_rows n_points"]]
    speed: float
    clock: Clock | None
    n_apart: int = 1

    @property
    def features(self) -> AbstractFeatures:
        """What the unknowns are coefficients of."""
        return self.unknowns.dictionary.features

    @functools.cached_property
    def signal(self) -> Float[np.ndarray, "n_signal n_unknowns"]:
        """G with G'G = H, as far as it is positive."""
        return signal_of(self.unknowns.folds)

    @property
    def against(self) -> Float[np.ndarray, " n_unknowns"]:
        """H v - J'y."""
        return self.signal.T @ (self.signal @ self.unknowns.v) - self.unknowns.jacobian.T @ self.y

    def coefficients(self, v: Float[np.ndarray, "*n n_unknowns"]) -> Float[np.ndarray, "*n n_features n_dims"]:
        """What the unknowns are as coefficients of `features`."""
        outputs = self.speed * self.unknowns.outputs
        found = np.zeros((*v.shape[:-1], self.unknowns.dictionary.n_features, outputs.shape[1]))
        for p, (f, weights) in enumerate(zip(self.unknowns.feature, outputs, strict=True)):
            found[..., f, :] += v[..., p, None] * weights
        return found


def linearised(task: Task, library: Library, drift: FeatureDrift, evidence: Evidence, path: str) -> Linearised:
    """The linear problem at the solution of a fit of the moments solver."""
    known = dictionary_of(drift.features, library)
    few = task.snapshots.n_dims <= MANY_DIMS
    others = _left_out(library, known, task.snapshots.n_dims) if few else None
    state = state_of(evidence, known, task.speed, task.diffusion.n_parameters)
    if path == "simulated":
        residual = task.residual(known, task.options.n_draws, cosines=True)
        whitening = task.whitening(residual, state.v)
        y, unknowns = whitening(residual(state.v)), _simulated(residual, state, whitening, known, others, few)
    else:
        gaps = [int(a) for a, _ in evidence.ends]
        every = known if others is None else joined([known, others])
        residual, wide = task.seen_path(known, gaps), task.seen_path(every, gaps)
        whitening = task.whitening(residual, state.v)
        found = residual if path == "seen" else task.corrected(residual, HEUN_STEPS)
        y, unknowns = whitening(found(state.v)), _seen(wide, state, whitening)
    influence = whitening.influence(residual.spreads(state.v))
    return Linearised(unknowns, y, influence, task.speed, drift.clock, len(residual.ends) if task.paired else 1)


def signal_of(
    folds: Float[np.ndarray, "n_folds n_rows n_unknowns"], doubt: float = 0.0
) -> Float[np.ndarray, "n_signal n_unknowns"]:
    """G whose G'G is the mean product of different folds, its negative part left away.

    The mean product has noise of its own; `doubt` of its standard deviations are taken off, which are
    n sqrt(2 K / ((K - 1) rows)) for n the noise in J'J.
    """
    count, n_rows, _ = folds.shape
    if count == 1:
        return folds[0]
    scale = np.sqrt(np.sum(folds**2, axis=(0, 1))) + 1e-12
    rows = (folds / scale).reshape(count * n_rows, -1)
    basis = np.linalg.svd(rows, full_matrices=False)[2]
    inside = (rows @ basis.T).reshape(count, n_rows, -1)
    whole = inside.mean(axis=0)
    apart = inside - whole
    noise = np.einsum("kra,krb->ab", apart, apart) / (count * (count - 1))
    more = doubt * np.sqrt(2.0 * count / ((count - 1) * n_rows))
    size, axes = np.linalg.eigh(whole.T @ whole - (1.0 + more) * noise)
    kept = size > 1e-12 * size[-1]
    return np.sqrt(size[kept])[:, None] * (axes[:, kept].T @ basis) * scale


def by_fold(
    residual: Residual, v: np.ndarray, whitening: Whitening, columns: np.ndarray
) -> Float[np.ndarray, "n_folds n_rows n_columns"]:
    """These columns of the Jacobian over independent parts of the start points."""
    return np.stack([part.jacobian(v, whitening, columns) for part in residual.folds()])


def dictionary_of(features: AbstractFeatures | object, library: Library) -> Dictionary:
    """The features of a fitted drift with a group for each."""
    if isinstance(features, FunctionFeatures):
        kept = range(len(library.aim.groups)) if features.kept is None else features.kept
        return Dictionary(features, tuple(library.aim.groups[i] for i in kept))
    parts: list[Dictionary] = []
    for part in features.parts if isinstance(features, Joined) else (features,):
        if isinstance(part, ClippedMonomials):
            parts.append(monomials(part.terms, np.asarray(part.low), np.asarray(part.high), library.clock))
        else:
            parts.append(ridges_at(shape_of(part)))  # pyright: ignore
    return joined(parts)


def state_of(evidence: Evidence, known: Dictionary, speed: float, n_noise: int = 0) -> State:
    """The solution of a fit, every coefficient with its own precision; parameters of the noise as they are."""
    n_dims = evidence.coefficients.shape[1]
    constant = np.repeat([kind == "constant" for kind in _kinds(known)], n_dims)
    group = np.where(constant, CONSTANT, np.cumsum(~constant) - 1)
    precision = evidence.precision.ravel()
    fixed = float(precision[constant][0]) if np.any(constant) else 1e-3
    prior = Prior(group, precision[~constant], precision[~constant], fixed).joined(Prior.fixed_at(n_noise))
    return State(np.append(evidence.coefficients.ravel() / speed, np.zeros(n_noise)), prior)


def _simulated(
    residual: Simulated, state: State, whitening: Whitening, known: Dictionary, others: Dictionary | None, turn: bool
) -> Unknowns:
    n_dims, odds = residual.snapshots.n_dims, _log_odds(known, others, residual.snapshots.n_dims)
    folds = by_fold(residual, state.v, whitening, np.arange(len(state.v)))
    prior, count = state.prior, residual.n_coefficients
    W, precision = state.v[:count], prior.diagonal[:count]
    found = Unknowns.coefficients(folds[:, :, :count], W, precision, odds[:count], known, n_dims)
    found = found.with_noise(folds[:, :, count:], prior.fixed)
    turning = turning_ridges(residual, state) if turn else None
    if turning is not None:
        found = found.beside(_shapes(*turning, whitening))
    if others is None:
        return found
    few = on_trial(replace(residual, n_jacobian=JACOBIAN_POINTS), [others])
    nothing = np.zeros(others.n_features * n_dims)
    folds = by_fold(few, np.append(W, nothing), whitening, count + np.arange(len(nothing)))
    more = np.full(len(nothing), GONE), odds[count:]
    return found.beside(Unknowns.coefficients(folds, nothing, *more, others, n_dims))


def _shapes(turning, state: State, whitening: Whitening) -> Unknowns:
    """The shapes of the ridges in the model, about where they are."""
    slots = np.flatnonzero(state.prior.alive[turning.n_linear :])
    folds = by_fold(turning, state.v, whitening, turning.n_linear + slots)
    n_dims = turning.snapshots.n_dims
    amplitudes = state.v[: turning.n_coefficients].reshape(-1, n_dims)[-turning.n_ridges :]
    nothing, fixed, sure = np.zeros(len(slots)), np.full(len(slots), state.prior.fixed), np.full(len(slots), np.inf)
    slopes = slopes_at(turning.shape(state.v))
    outputs, none = UNIT * amplitudes[slots // turning.n_slots], np.zeros(0, dtype=int)
    return Unknowns(folds, nothing, fixed, sure, slopes, slots, outputs, none)


def _seen(wide: Residual, state: State, whitening: Whitening) -> Unknowns:
    """All unknowns of the linear residual on the seen path."""
    n_dims, dictionary = wide.snapshots.n_dims, wide.dictionary
    count, n_noise = dictionary.n_features * n_dims, wide.diffusion.n_parameters
    n_known = len(state.v) - n_noise
    v, precision = np.zeros(count), np.full(count, GONE)
    v[:n_known], precision[:n_known] = state.v[:n_known], state.prior.diagonal[:n_known]
    folds = by_fold(wide, np.append(v, np.zeros(n_noise)), whitening, np.arange(count + n_noise))
    odds = _log_odds(dictionary, None, n_dims)
    found = Unknowns.coefficients(folds[:, :, :count], v, precision, odds, dictionary, n_dims)
    return found.with_noise(folds[:, :, count:], state.prior.fixed)


def _left_out(library: Library, known: Dictionary, n_dims: int) -> Dictionary | None:
    """The features that could have come in; without ridges where they are very many."""
    everything = library.aim if library.more is None else joined([library.aim, library.more])
    if isinstance(known.features, FunctionFeatures):
        kept = known.features.kept
        marks = np.zeros(0, dtype=bool) if kept is None else ~np.isin(np.arange(len(everything.groups)), kept)
    else:
        inside = {group.coordinates for group in known.groups if group.kind != "ridge"}
        marks = np.asarray([g.kind == "ridge" or g.coordinates not in inside for g in everything.groups])
    if n_dims * sum(g.size for g, mark in zip(everything.groups, marks, strict=False) if mark) > _MOST_LEFT_OUT:
        marks &= np.asarray([g.kind != "ridge" for g in everything.groups])
    return everything.only(marks) if np.any(marks) else None


def _log_odds(known: Dictionary, others: Dictionary | None, n_dims: int) -> Float[np.ndarray, " n_coefficients"]:
    """Linear terms are there in few dimensions, else one of another coordinate is; of other kinds half a term is."""
    kinds = _kinds(known) + ([] if others is None else _kinds(others))
    each = {kind: -np.log(2.0 * n) for kind, n in Counter(kinds).items()}
    each |= {"constant": np.inf, "linear": np.inf if n_dims <= FEW_DIMS else -np.log(n_dims - 1)}
    return np.repeat([each[kind] for kind in kinds], n_dims)


def _kinds(dictionary: Dictionary) -> list[str]:
    """The kind of every feature."""
    return [group.kind for group in dictionary.groups for _ in range(group.size)]
