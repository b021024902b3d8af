"""The shape of a drift: it begins with each coordinate driving itself, and terms come in while the evidence gains.

A round looks at every linear term, monomial and drawn ridge that is not in the model. Its gain in log evidence is known
from the linear problem (`relevance.gain_of`); the best newcomer of every output comes in if it gains more than the log
of the number of its kind, a monomial together with the lower ones that divide it, since from far away x^3 looks like x.
In few dimensions how a drives b and how b drives a come in and leave as a pair of one precision
(`relevance.gain_of_two`): snapshots see their symmetric part well and their rotation badly, and one of them alone is
hardly ever what they say.
Then ridges turn (`solve.turning`), and what has too little evidence leaves.

The drift grows twice, from monomials alone and from monomials and ridges, since a ridge looks like a cubic at first.
Of the two models the one with the larger evidence is kept (Laplace's, at its optimum, for the same residuals):

    log p(seen) = -1/2 |y|^2 - 1/2 v' Lambda v - 1/2 log det(I + Lambda^-1 J'J) + what does not depend on the model
"""

from collections import Counter
from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Float, Int

from itofit.process.features import Dictionary, joined
from itofit.solve.gauss_newton import Run, State, kept, step
from itofit.solve.relevance import ABSENT, CONSTANT, Posterior, Prior, gain_of, gain_of_two
from itofit.solve.residuals import Residual
from itofit.solve.task import Task
from itofit.solve.turning import UNIT, Turning, frozen, shape_of, still, turned
from itofit.solve.whitening import Whitening

_MOST_ROUNDS, _N_SETTLE = 8, 3
# Start points for the Jacobian: few coefficients are in the model at once, so that its noise is not fitted.
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
    others = [
        n_dims * g + output
        for g, group in enumerate(groups)
        for output in range(n_dims)
        if group.kind != "linear" or group.coordinates != (output,)
    ]
    return Prior.over(dictionary.groups, n_dims).without(others)


def couplings(dictionary: Dictionary, n_dims: int) -> Int[np.ndarray, "n_pairs 2"]:
    """Coefficients of how a drives b and how b drives a, for every pair a < b of few coordinates with linear terms."""
    if n_dims > FEW_DIMS:
        return np.zeros((0, 2), dtype=int)
    kinds = [(group.kind, group.coordinates) for group in dictionary.groups for _ in range(group.size)]
    at = {of[0]: f for f, (kind, of) in enumerate(kinds) if kind == "linear"}
    found = [(at[a] * n_dims + b, at[b] * n_dims + a) for a in sorted(at) for b in sorted(at) if a < b]
    return np.asarray(found, dtype=int).reshape(-1, 2)


def grow(task: Task, aim: Dictionary, more: Dictionary | None, state: State, run: Run) -> tuple[Residual, State]:
    """The drift of largest evidence that grows from `state`, a fit of own slopes with the dictionary `aim`."""
    terms, drawn = _parted(more)
    rest = aim if terms is None else joined([aim, terms])
    base = replace(task.residual(rest, 2, cosines=True), n_jacobian=JACOBIAN_POINTS)
    turning = Turning.of(base, rest, _n_ridges(task.snapshots.n_dims))
    first = _settled(task, turning, _first(turning, aim, state), run)
    found = [_grown(task, turning, tried, first, run) for tried in ([None] if drawn is None else [None, drawn])]
    whitening = task.whitening(turning, found[-1].v)
    gained = [log_evidence(turning, end, whitening) for end in found]
    best = found[int(np.argmax(gained))] if np.any(np.isfinite(gained)) else first
    return kept(*frozen(turning, best))


def log_evidence(residual: Residual, state: State, whitening: Whitening) -> float:
    """Laplace's log evidence, up to what does not depend on the model; minus infinity where chains run away."""
    alive, precision, v = state.prior.alive, state.prior.diagonal, state.v
    y, J = whitening(state.read(residual)), residual.jacobian(v, whitening, np.flatnonzero(alive))
    if not (np.all(np.isfinite(J)) and float(y @ y) < _RUN_AWAY):
        return -np.inf
    freedom = Posterior(J, precision[alive]).half_log_det()
    return -0.5 * float(y @ y) - 0.5 * float(np.sum(precision[alive] * v[alive] ** 2)) - freedom


def _parted(more: Dictionary | None) -> tuple[Dictionary | None, Dictionary | None]:
    """Monomials and ridges, None where there are none."""
    if more is None:
        return None, None
    ridge = np.asarray([group.kind == "ridge" for group in more.groups])
    return (None if np.all(ridge) else more.only(~ridge)), (more.only(ridge) if np.any(ridge) else None)


def _n_ridges(n_dims: int) -> int:
    """Places for ridges; one size for all rounds, so that one compilation serves them."""
    return max(6, n_dims)


def _first(turning: Turning, aim: Dictionary, state: State) -> State:
    """The given fit of `aim` with everything else not in the model."""
    n_dims = turning.snapshots.n_dims
    n_noise, count = turning.diffusion.n_parameters, len(state.v) - turning.diffusion.n_parameters
    prior = own_slopes(turning.dictionary, n_dims).tied(couplings(turning.dictionary, n_dims))
    precision = np.concatenate([state.prior.precision, prior.precision[len(state.prior.precision) :]])
    shape = Prior(np.full(turning.n_ridges * turning.n_slots, ABSENT), np.zeros(0), np.zeros(0))
    v = np.zeros(turning.n_linear + len(shape.group))
    v[:count], v[turning.n_coefficients : turning.n_linear] = state.v[:count], state.v[count:]
    return State(v, replace(prior, precision=precision).joined(Prior.fixed_at(n_noise)).joined(shape))


def _settled(task: Task, turning: Turning, state: State, run: Run) -> State:
    for i in range(_N_SETTLE):
        if run.spent:
            break
        state = step(turning, task.whitening(turning, state.v), state, 1.0, 1, run, 2 if i else 0)[0] or state
    return state


def _grown(task: Task, turning: Turning, drawn: Dictionary | None, state: State, run: Run) -> State:
    newcomers = Newcomers.of(turning, drawn, task.options.threshold)
    n_groups = len(turning.rest.groups) + (0 if drawn is None else len(drawn.groups))
    threshold = np.full(len(state.prior.precision), task.options.threshold_for(n_groups * task.snapshots.n_dims))
    whitening = task.whitening(turning, state.v)
    before: set[bytes] = set()
    for _ in range(_MOST_ROUNDS):
        if run.spent:
            break
        bigger = newcomers.taken_in(state, whitening)
        model = bigger.prior.alive.tobytes()
        if bigger is state or model in before:
            break
        before.add(model)
        bigger = still(turning, whitening, bigger, run, 1)
        bigger = turned(turning, whitening, bigger, run, 1)
        state = still(turning, whitening, bigger, run, 1, threshold)
        whitening = task.whitening(turning, state.v)
    return state


@dataclass(frozen=True, eq=False)
class Newcomers:
    """Features that may come into the model: those of `turning.rest` and the drawn ridges, in this order.

    `entry`: the gain that each must bring for an output.
    """

    turning: Turning
    drawn: Dictionary | None
    entry: Float[np.ndarray, " n_features"]

    @classmethod
    def of(cls, turning: Turning, drawn: Dictionary | None, threshold: float | None) -> "Newcomers":
        """With the log of the number of terms of a kind as entry, or `threshold`."""
        groups = turning.rest.groups + (() if drawn is None else drawn.groups)
        kinds = [group.kind for group in groups for _ in range(group.size)]
        count, n_dims = Counter(kinds), turning.snapshots.n_dims
        entry = [np.log(n_dims * count[kind]) if threshold is None else threshold for kind in kinds]
        return cls(turning, drawn, np.where(np.asarray(kinds) == "constant", np.inf, entry))

    def taken_in(self, state: State, whitening: Whitening) -> State:
        """The model with the best newcomer of every output, or the same state where none gains enough."""
        gain, precision = self._gains(state, whitening)
        used, n_terms = np.zeros(gain.shape[1], dtype=bool), self.turning.rest.n_features
        while True:
            score = np.where(used, 0.0, gain).sum(axis=1)
            best = int(np.argmax(score))
            if not score[best] > 0.0:
                return state
            outputs = np.flatnonzero((gain[best] > 0.0) & ~used)
            used[outputs] = True
            if len(used) <= FEW_DIMS and best < n_terms and self.turning.rest.groups[best].kind == "linear":
                used[self.turning.rest.groups[best].coordinates[0]] = True  # the other half of each pair
            if best < n_terms:
                state = _with_term(self.turning, state, best, outputs, precision[best, outputs])
            else:
                state = self._with_ridge(state, best - n_terms, outputs, precision[best, outputs])

    def _with_ridge(self, state: State, drawn: int, outputs: np.ndarray, precision: np.ndarray) -> State:
        """The model with a ridge in the first free place, if there is one, free to turn towards what it drives."""
        assert self.drawn is not None
        turning, n_dims = self.turning, self.turning.snapshots.n_dims
        places = state.prior.alive[: turning.n_coefficients].reshape(-1, n_dims)[turning.rest.n_features :]
        free = np.flatnonzero(~np.any(places, axis=1))
        if len(free) == 0:
            return state
        coordinates = [group.coordinates for group in self.drawn.groups for _ in range(group.size)][drawn]
        slots = turning.n_linear + free[0] * turning.n_slots + np.arange(turning.n_slots)
        group, v = state.prior.group.copy(), state.v.copy()
        group[slots] = ABSENT
        group[slots[[*coordinates, *outputs, -1]]] = CONSTANT
        v[slots] = shape_of(self.drawn.features)[drawn] / UNIT
        at = (turning.rest.n_features + free[0]) * n_dims + outputs
        return replace(state, v=v, prior=replace(state.prior, group=group).including(group[at], precision))

    def _gains(self, state: State, whitening: Whitening) -> tuple[np.ndarray, np.ndarray]:
        """What every newcomer gains beyond its entry for every output, and its best precision."""
        n_dims, n_terms = self.turning.snapshots.n_dims, self.turning.rest.n_features * self.turning.snapshots.n_dims
        alive = state.prior.alive
        columns = np.union1d(np.flatnonzero(alive), np.arange(n_terms))
        J, beside = self.turning.jacobians(state.v, whitening, columns, self.drawn)
        inside, new = J[:, alive[columns]], np.concatenate([J[:, :n_terms], beside], axis=1)
        b = inside @ state.v[alive] - whitening(state.read(self.turning))
        posterior = Posterior(inside, state.prior.diagonal[alive])
        cross, covariance = inside.T @ new, posterior.covariance()
        q = (b - inside @ posterior.mean(b)) @ new
        s = np.maximum(np.sum(new**2, axis=0) - np.sum(cross * (covariance @ cross), axis=0), 1e-12)
        gain, best = gain_of(q, s), s**2 / np.maximum(q**2 - s, 1e-12)
        for pair in couplings(self.turning.rest, n_dims):
            both, half = new[:, pair], cross[:, pair]
            gain[pair], best[pair] = gain_of_two(q[pair], both.T @ both - half.T @ covariance @ half)
        gain = gain.reshape(-1, n_dims) - self.entry[:, None]
        gain[: n_terms // n_dims][alive[:n_terms].reshape(-1, n_dims)] = 0.0
        return np.maximum(gain, 0.0), best.reshape(-1, n_dims)


def _with_term(turning: Turning, state: State, term: int, outputs: np.ndarray, precision: np.ndarray) -> State:
    """The model with a term of `turning.rest`, and with those that divide it."""
    n_dims, groups, prior = turning.snapshots.n_dims, turning.rest.groups, state.prior
    for lower, group in enumerate(groups):
        if group.kind != "constant" and _divides(group.coordinates, groups[term].coordinates):
            missing = prior.group[lower * n_dims + outputs[~prior.alive[lower * n_dims + outputs]]]
            prior = prior.including(missing, np.full(len(missing), _WEAK))
    return replace(state, prior=prior.including(prior.group[term * n_dims + outputs], precision))


def _divides(lower: tuple[int, ...], term: tuple[int, ...]) -> bool:
    """Whether a monomial divides another one."""
    return len(lower) < len(term) and not Counter(lower) - Counter(term)
