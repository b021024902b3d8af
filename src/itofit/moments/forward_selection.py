"""The shape of a drift: forward selection, while the evidence gains.

The drift begins with each coordinate driving itself. A round looks at every linear term, monomial
and drawn ridge that is not in the model. Its gain in log evidence is known from the linear problem
(`relevance.gain_of`); the best candidate of every output comes in if it gains more than the log of
the number of its kind, a monomial together with the lower ones that divide it, since from far away
x^3 looks like x. In few dimensions how a drives b and how b drives a come in and leave as a pair of
one precision (`relevance.gain_of_two`): snapshots show their symmetric part well and their rotation
badly, and one of them alone is hardly ever what they say. Then ridges adapt
(`moments.adaptive_ridges`), and what has too little evidence leaves.

Selection runs twice, from monomials alone and from monomials and ridges, since a ridge looks like a
cubic at first. Of the two models the one with the larger evidence is taken (Laplace's, at its
optimum, for the same residuals):

    log p(observed) = -1/2 |y|^2 - 1/2 v' Lambda v - 1/2 log det(I + Lambda^-1 J'J)

up to what does not depend on the model.
"""

from collections import Counter
from dataclasses import dataclass, replace
from itertools import combinations
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int

from itofit.moments.adaptive_ridges import (
    UNIT,
    AdaptiveRidges,
    adapted,
    frozen,
    shape_of,
    with_ridges_fixed,
)
from itofit.moments.gauss_newton import (
    Run,
    State,
    Update,
    can_be_squared,
    step,
    without_excluded,
)
from itofit.moments.probing import Probing
from itofit.moments.relevance import (
    ABSENT,
    CONSTANT,
    Posterior,
    Prior,
    best_precision,
    gain_of,
    gain_of_two,
)
from itofit.moments.residuals import Residual
from itofit.moments.whitening import Whitening
from itofit.process.features import Dictionary, joined

_MOST_ROUNDS = 8
_N_SETTLE = 3
# Start points for the Jacobian: few coefficients are in at once, so that its noise is not fitted.
JACOBIAN_POINTS = 600
# Dimensions up to which couplings come in pairs.
FEW_DIMS = 4
# Chi-squared of chains that have run away: nothing is solved there.
_RUN_AWAY = 1e12
# The first precision of a term that comes in only because a multiple of it does.
_WEAK = 1e-2


def own_slopes(dictionary: Dictionary, n_dims: int) -> Prior:
    """The prior under which a coordinate depends on nothing but itself."""
    groups = [group for group in dictionary.groups if group.kind != "constant"]
    others = []
    for g, group in enumerate(groups):
        for output in range(n_dims):
            if group.kind != "linear" or group.coordinates != (output,):
                others.append(n_dims * g + output)
    return Prior.over(dictionary.groups, n_dims).without(others)


def couplings(
    dictionary: Dictionary,
    n_dims: int,
) -> Int[np.ndarray, "n_pairs 2"]:
    """Coefficients of how a drives b and how b drives a, for every pair a < b of linear terms.

    None where coordinates are many.
    """
    if n_dims > FEW_DIMS:
        return np.zeros((0, 2), dtype=int)
    terms = [group for group in dictionary.groups for _ in range(group.size)]
    position = {t.coordinates[0]: f for f, t in enumerate(terms) if t.kind == "linear"}
    both = []
    for a, b in combinations(sorted(position), 2):
        both.append((position[a] * n_dims + b, position[b] * n_dims + a))
    return np.asarray(both, dtype=int).reshape(-1, 2)


def select_forward(
    probing: Probing,
    aim: Dictionary,
    more: Dictionary | None,
    state: State,
    run: Run,
) -> tuple[Residual, State]:
    """The drift of largest evidence selected from `state`, a fit of own slopes with `aim`."""
    terms, drawn = _parted(more)
    rest = aim if terms is None else joined([aim, terms])
    base = replace(probing.simulated(rest, 2, cosines=True), n_jacobian=JACOBIAN_POINTS)
    adaptive = AdaptiveRidges.of(base, rest, _n_ridges(probing.snapshots.n_dims))
    first = _settled(
        probing,
        adaptive,
        _first(adaptive, aim, state),
        run,
    )
    ends = [_selected(probing, adaptive, None, first, run)]
    if drawn is not None:
        ends.append(_selected(probing, adaptive, drawn, first, run))
    whitening = probing.whitening(adaptive, ends[-1].v)
    evidence = [log_evidence(adaptive, end, whitening) for end in ends]
    best = ends[int(np.argmax(evidence))] if np.any(np.isfinite(evidence)) else first
    return without_excluded(*frozen(adaptive, best))


def log_evidence(
    residual: Residual,
    state: State,
    whitening: Whitening,
) -> float:
    """Laplace's log evidence, up to what does not depend on the model.

    Minus infinity where chains run away.
    """
    alive = state.prior.alive
    precision = state.prior.diagonal
    v = state.v
    y = whitening(state.read(residual))
    J = residual.jacobian(v, whitening, np.flatnonzero(alive))
    if not (can_be_squared(J) and float(y @ y) < _RUN_AWAY):
        return -np.inf
    freedom = Posterior(J, precision[alive]).half_log_det()
    penalty = float(np.sum(precision[alive] * v[alive] ** 2))
    return -0.5 * float(y @ y) - 0.5 * penalty - freedom


def _parted(more: Dictionary | None) -> tuple[Dictionary | None, Dictionary | None]:
    """Monomials and ridges, None where there are none."""
    if more is None:
        return None, None
    ridge = np.asarray([group.kind == "ridge" for group in more.groups])
    terms = None if np.all(ridge) else more.only(~ridge)
    ridges = more.only(ridge) if np.any(ridge) else None
    return terms, ridges


def _n_ridges(n_dims: int) -> int:
    """Places for ridges; one size for all rounds, so that one compilation serves them."""
    return max(6, n_dims)


def _first(
    adaptive: AdaptiveRidges,
    aim: Dictionary,
    state: State,
) -> State:
    """The given fit of `aim` with everything else not in the model."""
    n_dims = adaptive.snapshots.n_dims
    n_noise = adaptive.diffusion.n_parameters
    count = len(state.v) - n_noise
    prior = own_slopes(adaptive.dictionary, n_dims).tied(couplings(adaptive.dictionary, n_dims))
    given = state.prior.precision
    prior = replace(prior, precision=np.concatenate([given, prior.precision[len(given) :]]))
    absent = np.full(adaptive.n_ridges * adaptive.n_slots, ABSENT)
    shape = Prior(absent, np.zeros(0), np.zeros(0))
    v = np.zeros(adaptive.n_linear + len(absent))
    v[:count] = state.v[:count]
    v[adaptive.n_coefficients : adaptive.n_linear] = state.v[count:]
    return State(v, prior.joined(Prior.fixed_at(n_noise)).joined(shape))


def _settled(
    probing: Probing,
    adaptive: AdaptiveRidges,
    state: State,
    run: Run,
) -> State:
    for i in range(_N_SETTLE):
        if run.spent:
            break
        whitening = probing.whitening(adaptive, state.v)
        after = step(adaptive, whitening, state, run, Update(2 if i else 0)).state
        state = after or state
    return state


def _selected(
    probing: Probing,
    adaptive: AdaptiveRidges,
    drawn: Dictionary | None,
    state: State,
    run: Run,
) -> State:
    candidates = Candidates.of(adaptive, drawn, probing.options.threshold)
    n_groups = len(adaptive.rest.groups) + (0 if drawn is None else len(drawn.groups))
    least = probing.options.threshold_for(n_groups * probing.snapshots.n_dims)
    threshold = np.full(len(state.prior.precision), least)
    whitening = probing.whitening(adaptive, state.v)
    before: set[bytes] = set()
    for _ in range(_MOST_ROUNDS):
        if run.spent:
            break
        bigger = candidates.taken_in(state, whitening)
        model = bigger.prior.alive.tobytes()
        if bigger is state or model in before:
            break
        before.add(model)
        bigger = with_ridges_fixed(adaptive, whitening, bigger, run)
        bigger = adapted(adaptive, whitening, bigger, run)
        state = with_ridges_fixed(adaptive, whitening, bigger, run, threshold)
        whitening = probing.whitening(adaptive, state.v)
    return state


class Gains(NamedTuple):
    """What every candidate gains beyond its entry for every output, and its best precision."""

    gain: Float[np.ndarray, "n_candidates n_dims"]
    precision: Float[np.ndarray, "n_candidates n_dims"]


@dataclass(frozen=True, eq=False)
class Candidates:
    """Features that may come into the model: first those of `adaptive.rest`, then drawn ridges.

    `entry`: the gain that each must bring for an output.
    """

    adaptive: AdaptiveRidges
    drawn: Dictionary | None
    entry: Float[np.ndarray, " n_features"]

    @classmethod
    def of(
        cls,
        adaptive: AdaptiveRidges,
        drawn: Dictionary | None,
        threshold: float | None,
    ) -> "Candidates":
        """With the log of the number of terms of a kind as entry, or `threshold`."""
        groups = adaptive.rest.groups + (() if drawn is None else drawn.groups)
        kinds = [group.kind for group in groups for _ in range(group.size)]
        count = Counter(kinds)
        n_dims = adaptive.snapshots.n_dims
        odds = {kind: np.log(n_dims * n) for kind, n in count.items()}
        entry = [odds[kind] if threshold is None else threshold for kind in kinds]
        never = np.asarray(kinds) == "constant"
        return cls(adaptive, drawn, np.where(never, np.inf, entry))

    def taken_in(
        self,
        state: State,
        whitening: Whitening,
    ) -> State:
        """The model with the best candidate of every output; the same where none gains enough."""
        gains = self._gains(state, whitening)
        n_terms = self.adaptive.rest.n_features
        used = np.zeros(gains.gain.shape[1], dtype=bool)
        while True:
            score = np.where(used, 0.0, gains.gain).sum(axis=1)
            best = int(np.argmax(score))
            if not score[best] > 0.0:
                return state
            outputs = np.flatnonzero((gains.gain[best] > 0.0) & ~used)
            precision = gains.precision[best, outputs]
            used[outputs] = True
            if best >= n_terms:
                state = self._with_ridge(state, best - n_terms, outputs, precision)
                continue
            group = self.adaptive.rest.groups[best]
            if len(used) <= FEW_DIMS and group.kind == "linear":
                used[group.coordinates[0]] = True  # the other half of each pair
            state = _with_term(self.adaptive, state, best, outputs, precision)

    def _with_ridge(
        self,
        state: State,
        drawn: int,
        outputs: np.ndarray,
        precision: np.ndarray,
    ) -> State:
        """The model with a ridge in the first free place, if there is one.

        It may adapt towards what it drives.
        """
        assert self.drawn is not None
        adaptive = self.adaptive
        n_dims = adaptive.snapshots.n_dims
        n_terms = adaptive.rest.n_features
        alive = state.prior.alive[: adaptive.n_coefficients].reshape(-1, n_dims)
        free = np.flatnonzero(~np.any(alive[n_terms:], axis=1))
        if len(free) == 0:
            return state
        ridges = [group for group in self.drawn.groups for _ in range(group.size)]
        slots = adaptive.n_linear + free[0] * adaptive.n_slots + np.arange(adaptive.n_slots)
        group = state.prior.group.copy()
        group[slots] = ABSENT
        group[slots[[*ridges[drawn].coordinates, *outputs, -1]]] = CONSTANT
        v = state.v.copy()
        v[slots] = shape_of(self.drawn.features)[drawn] / UNIT
        amplitudes = (n_terms + free[0]) * n_dims + outputs
        prior = replace(state.prior, group=group).including(group[amplitudes], precision)
        return replace(state, v=v, prior=prior)

    def _gains(
        self,
        state: State,
        whitening: Whitening,
    ) -> Gains:
        n_dims = self.adaptive.snapshots.n_dims
        n_terms = self.adaptive.rest.n_features * n_dims
        alive = state.prior.alive
        columns = np.union1d(np.flatnonzero(alive), np.arange(n_terms))
        J, beside = self.adaptive.jacobians(
            state.v,
            whitening,
            columns,
            self.drawn,
        )
        inside = J[:, alive[columns]]
        new = np.concatenate([J[:, :n_terms], beside], axis=1)
        b = inside @ state.v[alive] - whitening(state.read(self.adaptive))
        if not can_be_squared(b, new):
            nothing = np.zeros((new.shape[1] // n_dims, n_dims))
            return Gains(nothing, nothing)
        posterior = Posterior(inside, state.prior.diagonal[alive])
        covariance = posterior.covariance()
        cross = inside.T @ new
        q = (b - inside @ posterior.mean(b)) @ new
        known = np.sum(cross * (covariance @ cross), axis=0)
        s = np.maximum(np.sum(new**2, axis=0) - known, 1e-12)
        gain = gain_of(q, s)
        best = best_precision(q, s)
        for pair in couplings(self.adaptive.rest, n_dims):
            both = new[:, pair]
            half = cross[:, pair]
            information = both.T @ both - half.T @ covariance @ half
            gain[pair], best[pair] = gain_of_two(q[pair], information)
        beyond = gain.reshape(-1, n_dims) - self.entry[:, None]
        beyond[: n_terms // n_dims][alive[:n_terms].reshape(-1, n_dims)] = 0.0
        return Gains(np.maximum(beyond, 0.0), best.reshape(-1, n_dims))


def _with_term(
    adaptive: AdaptiveRidges,
    state: State,
    term: int,
    outputs: np.ndarray,
    precision: np.ndarray,
) -> State:
    """The model with a term of `adaptive.rest`, and with those that divide it."""
    n_dims = adaptive.snapshots.n_dims
    groups = adaptive.rest.groups
    prior = state.prior
    for lower, group in enumerate(groups):
        if group.kind != "constant" and _divides(group.coordinates, groups[term].coordinates):
            coefficients = lower * n_dims + outputs
            missing = prior.group[coefficients[~prior.alive[coefficients]]]
            prior = prior.including(missing, np.full(len(missing), _WEAK))
    prior = prior.including(prior.group[term * n_dims + outputs], precision)
    return replace(state, prior=prior)


def _divides(
    lower: tuple[int, ...],
    term: tuple[int, ...],
) -> bool:
    """Whether a monomial divides another one."""
    return len(lower) < len(term) and not Counter(lower) - Counter(term)
