"""Many dimensions: thousands of possible terms and too few residuals for all of them, so the drift grows from little.

    aim      each coordinate drives itself: one constant and one slope a coordinate
    grow     linear terms, powers and products of two coordinates come in one by one, while the evidence gains
    polish   as in few dimensions

Products are screened first. With P the projection off the present model and y the whitened residual, q = j' P y of all
products at once is one adjoint, and s = j' P j a mean of squares over a few random ones; only products whose gain from
q and s is large are given a column.
"""

from dataclasses import replace

import numpy as np

from itofit.process.features import Dictionary, joined, monomials, pairs
from itofit.solve.gauss_newton import DAMPING, Run, State, kept, step
from itofit.solve.growth import own_slopes
from itofit.solve.relevance import Posterior, Prior, gain_of
from itofit.solve.residuals import Residual, Simulated
from itofit.solve.task import Task
from itofit.solve.whitening import Whitening

_N_GROW = 4
_N_RANDOM = 16
_MOST_PRODUCTS = 64


def grow_many(task: Task, known: Dictionary, more: Dictionary | None, state: State, run: Run) -> tuple[Residual, State]:
    """Let linear terms and powers come in, screen the products, and let those come in as well."""
    residual, state = _extended(task, known, more, state)
    residual, state, whitening = _grown(task, residual, state, run)
    products = screened(task, residual, state, whitening)
    if products is not None and not run.spent:
        residual, state = _extended(task, residual.dictionary, products, state)
        residual, state, _ = _grown(task, residual, state, run)
    return residual, state


def _extended(task: Task, known: Dictionary, more: Dictionary | None, state: State) -> tuple[Simulated, State]:
    n_dims = task.snapshots.n_dims
    if more is not None:
        count, prior = known.n_features * n_dims, state.prior
        v = np.concatenate([state.v[:count], np.zeros(more.n_features * n_dims), state.v[count:]])
        parts = own_slopes(more, n_dims), Prior.fixed_at(task.diffusion.n_parameters)
        state = State(v, replace(prior, group=prior.group[:count]).joined(parts[0]).joined(parts[1]))
        known = joined([known, more])
    return task.residual(known, 2, cosines=True), replace(state, residuals=None)


def _grown(task: Task, residual: Simulated, state: State, run: Run) -> tuple[Simulated, State, Whitening]:
    entry, threshold = _entry(task, residual.dictionary), task.threshold(residual.dictionary)
    whitening = task.whitening(residual, state.v)
    for i in range(_N_GROW):
        if run.spent:
            break
        whitening = whitening if i == 0 else task.whitening(residual, state.v)
        moved, _ = step(residual, whitening, state, 1.0, 1, run, 2, threshold if i else None, entry)
        state = moved or replace(state, damping=DAMPING[1])
    residual, state = kept(residual, state)
    return residual, state, whitening


def _entry(task: Task, dictionary: Dictionary) -> np.ndarray:
    """The gain a newcomer must bring: the log of how many there are of its kind."""
    n_dims, given = task.snapshots.n_dims, task.options.threshold
    kinds = [group.kind for group in dictionary.groups if group.kind != "constant"]
    count = {kind: n_dims * kinds.count(kind) for kind in kinds}
    return np.repeat([np.log(count[kind]) if given is None else given for kind in kinds], n_dims)


def screened(task: Task, residual: Simulated, state: State, whitening: Whitening) -> Dictionary | None:
    """The products of two coordinates that may be in the drift, or None."""
    n_dims = task.snapshots.n_dims
    alive = state.prior.alive
    J, y = residual.jacobian(state.v, whitening, np.flatnonzero(alive)), whitening(state.read(residual))
    posterior = Posterior(J, state.prior.diagonal[alive])
    rng = np.random.default_rng([task.seed, 3])
    random = rng.standard_normal((len(y), _N_RANDOM))
    rows = np.column_stack([y, random])
    rows = rows - J @ np.column_stack([posterior.mean(row) for row in rows.T])
    low, high = task.box
    products = monomials(pairs(n_dims), low, high)
    wide = replace(residual, dictionary=joined([residual.dictionary, products]))
    count, n_new = residual.n_coefficients, products.n_features * n_dims
    v = np.concatenate([state.v[:count], np.zeros(n_new), state.v[count:]])
    fresh = np.arange(count, count + n_new)
    columns = np.sum(wide.slopes(v, [weights.T for weights in whitening.back(rows)], fresh), axis=0)
    gain = gain_of(columns[0], np.mean(columns[1:] ** 2, axis=0)).reshape(-1, n_dims).max(axis=1)
    # The random rows know s to a third or so: products at half the entry are looked at more closely.
    likely = np.flatnonzero(gain > 0.5 * np.log(products.n_features * n_dims))
    if len(likely) == 0:
        return None
    best = np.zeros(products.n_features, dtype=bool)
    best[likely[np.argsort(-gain[likely])][:_MOST_PRODUCTS]] = True
    return products.only(best)
