"""A fit as a linear problem at its solution, what was left out of the drift beside what is in it.

    y = J v - b,        Cov(y) = I at the truth

J is an average over start points, and its noise d is not small beside the slopes of what snapshots
hardly show: E J'J = J0'J0 + E d'd, and all of d'd would count as information. Independent parts of
the points have independent noise, so the products of different parts have the mean J0'J0 = H. The
curvature of |y|^2 / 2 about the solution is H as well, since the noise of y and of its second
derivative make up for d'd. `information_root` is a root of H, and `against` = H v - J'y takes the
place of J'b: H v' = against is the step from the solution v to that of a neighbouring problem.

The unknowns v are the coefficients in the model, the parameters of a learned noise, the shape of
its ridges, and the coefficients of features that had too little evidence to come in. Every unknown
but those of the noise moves the drift by v_p phi_p(x) outputs_p, where phi_p is one feature of
`features`; for the shape of a ridge that feature is its slope, and `outputs_p` holds its
amplitudes.
"""

import functools
from collections import Counter
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int

from itofit.moments.adaptive_ridges import (
    UNIT,
    AdaptiveRidges,
    adaptive_ridges,
    on_trial,
    slopes_at,
)
from itofit.moments.evidence import Evidence
from itofit.moments.forward_selection import FEW_DIMS, JACOBIAN_POINTS
from itofit.moments.gauss_newton import State
from itofit.moments.library import Library
from itofit.moments.probing import Probing
from itofit.moments.relevance import CONSTANT, EXCLUDED, Prior
from itofit.moments.residuals import Residual, Simulated
from itofit.moments.whitening import Whitening
from itofit.process.clock import Clock
from itofit.process.features import (
    MANY_DIMS,
    AbstractFeatures,
    Dictionary,
    FunctionFeatures,
    joined,
)

# Coefficients left out of a fit above which drawn ridges are not tried beside it.
_MOST_LEFT_OUT = 2000


class Unknowns(NamedTuple):
    """Columns of the linear problem and what they are.

    - `folds`: the columns, over independent parts of the start points; `jacobian` is their mean.
    - `v`, `precision`: the solution and its prior, `EXCLUDED` for what is not in the model.
    - `log_odds`: before any data, of each unknown being in the model; infinite for those that
      always are.
    - `dictionary`: the features they move; `feature`, `outputs`: which of them, and by how much for
      every output.
    - `noise`: positions of those that are parameters of the noise and move no feature.
    """

    folds: Float[np.ndarray, "n_folds n_rows n_unknowns"]
    v: Float[np.ndarray, " n_unknowns"]
    precision: Float[np.ndarray, " n_unknowns"]
    log_odds: Float[np.ndarray, " n_unknowns"]
    dictionary: Dictionary
    feature: Int[np.ndarray, " n_unknowns"]
    outputs: Float[np.ndarray, "n_unknowns n_outputs"]
    noise: Int[np.ndarray, " n_noise"]

    @classmethod
    def coefficients(
        cls,
        folds: Float[np.ndarray, "n_folds n_rows n_unknowns"],
        v: Float[np.ndarray, " n_unknowns"],
        precision: Float[np.ndarray, " n_unknowns"],
        log_odds: Float[np.ndarray, " n_unknowns"],
        dictionary: Dictionary,
        n_outputs: int,
    ) -> "Unknowns":
        """One unknown for every feature and output."""
        return cls(
            folds=folds,
            v=v,
            precision=precision,
            log_odds=log_odds,
            dictionary=dictionary,
            feature=np.repeat(np.arange(dictionary.n_features), n_outputs),
            outputs=np.tile(np.eye(n_outputs), (dictionary.n_features, 1)),
            noise=np.zeros(0, dtype=int),
        )

    @property
    def jacobian(self) -> Float[np.ndarray, "n_rows n_unknowns"]:
        """J."""
        return self.folds.mean(axis=0)

    @property
    def in_a_field(self) -> Bool[np.ndarray, " n_unknowns"]:
        """Which are coefficients of cosines, which stand for one field together."""
        waves = np.asarray([kind == "wave" for kind in _kinds(self.dictionary)])
        among = waves[self.feature]
        among[self.noise] = False
        return among

    def beside(self, other: "Unknowns") -> "Unknowns":
        """These unknowns and those."""
        n_features = self.dictionary.n_features
        return Unknowns(
            folds=np.concatenate([self.folds, other.folds], axis=2),
            v=np.append(self.v, other.v),
            precision=np.append(self.precision, other.precision),
            log_odds=np.append(self.log_odds, other.log_odds),
            dictionary=joined([self.dictionary, other.dictionary]),
            feature=np.append(self.feature, n_features + other.feature),
            outputs=np.concatenate([self.outputs, other.outputs]),
            noise=np.append(self.noise, len(self.v) + other.noise),
        )

    def with_noise(
        self,
        folds: Float[np.ndarray, "n_folds n_rows n_noise"],
        precision: float,
    ) -> "Unknowns":
        """These and the parameters of the noise, which are always there."""
        n = folds.shape[2]
        still = np.zeros((n, self.outputs.shape[1]))
        return Unknowns(
            folds=np.concatenate([self.folds, folds], axis=2),
            v=np.append(self.v, np.zeros(n)),
            precision=np.append(self.precision, np.full(n, precision)),
            log_odds=np.append(self.log_odds, np.full(n, np.inf)),
            dictionary=self.dictionary,
            feature=np.append(self.feature, np.zeros(n, dtype=int)),
            outputs=np.concatenate([self.outputs, still]),
            noise=np.append(self.noise, len(self.v) + np.arange(n)),
        )


@dataclass(frozen=True, eq=False)
class Linearised:
    """The linear problem y = J v - b of a fit.

    - `y`: the residuals at the solution. `influence`: by snapshot, what each of its points
      contributes to them.
    - `speed`: of the drift, for unknowns of size one. `clock`: of a drift that changes with time.
      `metric`: of one with a potential, whose features have one output.
    - `n_apart`: in how many transitions each point is whose covariances were estimated by
      themselves.
    """

    unknowns: Unknowns
    y: Float[np.ndarray, " n_rows"]
    influence: dict[int, Float[np.ndarray, "n_rows n_points"]]
    speed: float
    clock: Clock | None
    n_apart: int = 1
    metric: Float[np.ndarray, " n_dims"] | None = None

    @property
    def features(self) -> AbstractFeatures:
        """What the unknowns are coefficients of."""
        return self.unknowns.dictionary.features

    @functools.cached_property
    def information_root(self) -> Float[np.ndarray, "n_root n_unknowns"]:
        """G with G'G = H, as far as it is positive."""
        return information_root_of(self.unknowns.folds)

    @property
    def against(self) -> Float[np.ndarray, " n_unknowns"]:
        """H v - J'y."""
        G = self.information_root
        return G.T @ (G @ self.unknowns.v) - self.unknowns.jacobian.T @ self.y

    def coefficients(
        self, v: Float[np.ndarray, "*n n_unknowns"]
    ) -> Float[np.ndarray, "*n n_features n_outputs"]:
        """What the unknowns are as coefficients of `features`."""
        outputs = self.speed * self.unknowns.outputs
        n_features = self.unknowns.dictionary.n_features
        coefficients = np.zeros((*v.shape[:-1], n_features, outputs.shape[1]))
        for p, (f, weights) in enumerate(zip(self.unknowns.feature, outputs, strict=True)):
            coefficients[..., f, :] += v[..., p, None] * weights
        return coefficients


@dataclass(frozen=True, eq=False)
class Terms:
    """What a fit chose: the features in the model, what is known of them, and over which path."""

    dictionary: Dictionary
    evidence: Evidence
    path: str


def linearised(
    probing: Probing,
    terms: Terms,
    residual: Residual,
    state: State,
    library: Library,
    whitening: Whitening | None = None,
) -> Linearised:
    """The linear problem at the solution of a fit of the moments solver.

    `residual` is that of the path of these terms, `state` where they stand, `library` what could
    have been in the model, and `whitening` the covariance there, where it is at hand.
    """
    few = probing.snapshots.n_dims <= MANY_DIMS
    others = _left_out(library, terms.dictionary, probing.n_outputs) if few else None
    if whitening is None:
        whitening = probing.whitening(residual, state.v)
    if isinstance(residual, Simulated):
        unknowns = _simulated(residual, state, whitening, others, few)
    else:
        known = terms.dictionary
        every = known if others is None else joined([known, others])
        wide = probing.observed_path(every, terms.evidence.gaps)
        unknowns = _observed(wide, state, whitening)
    return Linearised(
        unknowns,
        y=whitening(residual(state.v)),
        influence=whitening.influence(residual.spreads(state.v)),
        speed=probing.speed,
        clock=probing.problem.clock,
        metric=probing.metric,
        n_apart=len(residual.ends) if probing.paired else 1,
    )


def information_root_of(
    folds: Float[np.ndarray, "n_folds n_rows n_unknowns"],
    doubt: float = 0.0,
) -> Float[np.ndarray, "n_root n_unknowns"]:
    """G whose G'G is the mean product of different folds, its negative part left away.

    The mean product has noise of its own; `doubt` of its standard deviations are taken off, which
    are n sqrt(2 K / ((K - 1) rows)) for n the noise in J'J.
    """
    count, n_rows, _ = folds.shape
    if count == 1:
        return folds[0]
    scale = np.sqrt(np.sum(folds**2, axis=(0, 1))) + 1e-12
    rows = (folds / scale).reshape(count * n_rows, -1)
    _, _, basis = np.linalg.svd(rows, full_matrices=False)
    inside = (rows @ basis.T).reshape(count, n_rows, -1)
    whole = inside.mean(axis=0)
    apart = inside - whole
    noise = np.einsum("kra,krb->ab", apart, apart) / (count * (count - 1))
    more = doubt * np.sqrt(2.0 * count / ((count - 1) * n_rows))
    size, axes = np.linalg.eigh(whole.T @ whole - (1.0 + more) * noise)
    positive = size > 1e-12 * size[-1]
    along = axes[:, positive].T @ basis
    return np.sqrt(size[positive])[:, None] * along * scale


def by_fold(
    residual: Residual,
    v: np.ndarray,
    whitening: Whitening,
    columns: np.ndarray,
) -> Float[np.ndarray, "n_folds n_rows n_columns"]:
    """These columns of the Jacobian over independent parts of the start points."""
    return np.stack([fold.jacobian(v, whitening, columns) for fold in residual.folds()])


def state_of(
    terms: Terms,
    speed: float,
    n_noise: int = 0,
) -> State:
    """The solution of a fit, every coefficient with its own precision; the noise as it is."""
    evidence = terms.evidence
    n_outputs = evidence.coefficients.shape[1]
    constant = np.repeat([kind == "constant" for kind in _kinds(terms.dictionary)], n_outputs)
    group = np.where(constant, CONSTANT, np.cumsum(~constant) - 1)
    precision = evidence.precision.ravel()
    fixed = float(precision[constant][0]) if np.any(constant) else 1e-3
    prior = Prior(
        group,
        precision[~constant],
        precision[~constant],
        fixed,
    )
    v = np.append(evidence.coefficients.ravel() / speed, np.zeros(n_noise))
    return State(v, prior.joined(Prior.fixed_at(n_noise)))


def _simulated(
    residual: Simulated,
    state: State,
    whitening: Whitening,
    others: Dictionary | None,
    ridges_adapt: bool,
) -> Unknowns:
    """All unknowns of a residual by simulation."""
    count = residual.n_coefficients
    odds = _log_odds(residual.dictionary, others, residual)
    folds = by_fold(
        residual,
        state.v,
        whitening,
        np.arange(len(state.v)),
    )
    unknowns = Unknowns.coefficients(
        folds[:, :, :count],
        state.v[:count],
        state.prior.diagonal[:count],
        odds[:count],
        residual.dictionary,
        residual.n_outputs,
    )
    unknowns = unknowns.with_noise(folds[:, :, count:], state.prior.fixed)
    adaptive = adaptive_ridges(residual, state) if ridges_adapt else None
    if adaptive is not None:
        ridges, start = adaptive
        unknowns = unknowns.beside(_shapes(ridges, start, whitening))
    if others is None:
        return unknowns
    outside = _outside(
        residual,
        state.v[:count],
        whitening,
        others,
        odds[count:],
    )
    return unknowns.beside(outside)


def _outside(
    residual: Simulated,
    W: Float[np.ndarray, " n_coefficients"],
    whitening: Whitening,
    others: Dictionary,
    log_odds: Float[np.ndarray, " n_outside"],
) -> Unknowns:
    """The coefficients of features that are not in the model, beside those that are."""
    few = on_trial(replace(residual, n_jacobian=JACOBIAN_POINTS), [others])
    absent = np.zeros(len(log_odds))
    columns = len(W) + np.arange(len(absent))
    return Unknowns.coefficients(
        by_fold(few, np.append(W, absent), whitening, columns),
        absent,
        np.full(len(absent), EXCLUDED),
        log_odds,
        others,
        residual.n_outputs,
    )


def _shapes(
    adaptive: AdaptiveRidges,
    state: State,
    whitening: Whitening,
) -> Unknowns:
    """The shapes of the ridges in the model, about where they are."""
    slots = np.flatnonzero(state.prior.alive[adaptive.n_linear :])
    amplitudes = adaptive.amplitudes(state.v)
    return Unknowns(
        folds=by_fold(
            adaptive,
            state.v,
            whitening,
            adaptive.n_linear + slots,
        ),
        v=np.zeros(len(slots)),
        precision=np.full(len(slots), state.prior.fixed),
        log_odds=np.full(len(slots), np.inf),
        dictionary=slopes_at(adaptive.shape(state.v)),
        feature=slots,
        outputs=UNIT * amplitudes[slots // adaptive.n_slots],
        noise=np.zeros(0, dtype=int),
    )


def _observed(
    wide: Residual,
    state: State,
    whitening: Whitening,
) -> Unknowns:
    """All unknowns of the linear residual on the observed path."""
    n_dims = wide.snapshots.n_dims
    count = wide.n_coefficients
    n_noise = wide.diffusion.n_parameters
    n_known = len(state.v) - n_noise
    v = np.zeros(count)
    v[:n_known] = state.v[:n_known]
    precision = np.full(count, EXCLUDED)
    precision[:n_known] = state.prior.diagonal[:n_known]
    unmoved = np.append(v, np.zeros(n_noise))
    folds = by_fold(
        wide,
        unmoved,
        whitening,
        np.arange(count + n_noise),
    )
    odds = _log_odds(wide.dictionary, None, wide)
    unknowns = Unknowns.coefficients(
        folds[:, :, :count], v, precision, odds, wide.dictionary, n_dims
    )
    return unknowns.with_noise(folds[:, :, count:], state.prior.fixed)


def _left_out(
    library: Library,
    known: Dictionary,
    n_outputs: int,
) -> Dictionary | None:
    """The features that could have come in; without ridges where they are very many."""
    everything = library.whole
    marks = _outside_of(known, everything)
    n_outside = sum(g.size for g, mark in zip(everything.groups, marks, strict=False) if mark)
    if n_outputs * n_outside > _MOST_LEFT_OUT:
        marks &= np.asarray([group.kind != "ridge" for group in everything.groups])
    return everything.only(marks) if np.any(marks) else None


def _outside_of(
    known: Dictionary,
    everything: Dictionary,
) -> Bool[np.ndarray, " n_groups"]:
    """Which groups of `everything` are not in `known`; drawn ridges never are."""
    groups = everything.groups
    if not isinstance(known.features, FunctionFeatures):
        inside = {group.coordinates for group in known.groups if group.kind != "ridge"}
        outside = [g.kind == "ridge" or g.coordinates not in inside for g in groups]
        return np.asarray(outside)
    if known.features.kept is None:
        return np.zeros(0, dtype=bool)
    return ~np.isin(np.arange(len(groups)), known.features.kept)


def _log_odds(
    known: Dictionary,
    others: Dictionary | None,
    residual: Residual,
) -> Float[np.ndarray, " n_coefficients"]:
    """The log odds of each coefficient being in the drift, before any data.

    Linear terms are there in few dimensions, else one of another coordinate is; of other kinds half
    a term is. Cosines stand for a field under one prior, and are.
    """
    kinds = _kinds(known) + ([] if others is None else _kinds(others))
    odds = {kind: -np.log(2.0 * n) for kind, n in Counter(kinds).items()}
    odds["constant"] = np.inf
    odds["wave"] = np.inf
    n_dims = residual.snapshots.n_dims
    odds["linear"] = np.inf if n_dims <= FEW_DIMS else -np.log(n_dims - 1)
    return np.repeat([odds[kind] for kind in kinds], residual.n_outputs)


def _kinds(dictionary: Dictionary) -> list[str]:
    """The kind of every feature."""
    return [group.kind for group in dictionary.groups for _ in range(group.size)]
