"""Many dimensions: thousands of possible terms and too few residuals for all of them.

    aim      each coordinate drives itself: one constant and one slope a coordinate
    select   linear terms, powers and products of two coordinates come in one by one, while the
             evidence gains
    polish   as in few dimensions

Products are screened first. With P the projection off the present model and y the whitened
residual, q = j' P y of all products at once is one adjoint, and s = j' P j a mean of squares over a
few random ones; only products whose gain from q and s is large are given a column.
"""

from dataclasses import replace
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from itofit.moments.forward_selection import own_slopes
from itofit.moments.gauss_newton import (
    FIRST_DAMPING,
    Run,
    State,
    Update,
    can_be_squared,
    step,
    without_excluded,
)
from itofit.moments.probing import Probing
from itofit.moments.relevance import Posterior, Prior, gain_of
from itofit.moments.residuals import Residual, Simulated
from itofit.moments.whitening import Whitening
from itofit.problem import Stream
from itofit.process.features import Dictionary, joined, monomials, pairs

_N_STEPS = 4
_N_RANDOM = 16
_MOST_PRODUCTS = 64


def select_forward_many(
    probing: Probing,
    known: Dictionary,
    more: Dictionary | None,
    state: State,
    run: Run,
) -> tuple[Residual, State]:
    """Let linear terms and powers come in, screen the products, and let those come in as well."""
    residual, state = _extended(probing, known, more, state)
    model = _selected(probing, residual, state, run)
    products = screened(probing, model.residual, model.state, model.whitening)
    if products is not None and not run.spent:
        residual, state = _extended(
            probing,
            model.residual.dictionary,
            products,
            model.state,
        )
        model = _selected(probing, residual, state, run)
    return model.residual, model.state


def _extended(
    probing: Probing,
    known: Dictionary,
    more: Dictionary | None,
    state: State,
) -> tuple[Simulated, State]:
    """The model with the terms of `more` beside it, none of which is in yet."""
    n_dims = probing.snapshots.n_dims
    if more is not None:
        count = known.n_features * n_dims
        absent = np.zeros(more.n_features * n_dims)
        v = np.concatenate([state.v[:count], absent, state.v[count:]])
        prior = replace(state.prior, group=state.prior.group[:count])
        prior = prior.joined(own_slopes(more, n_dims))
        prior = prior.joined(Prior.fixed_at(probing.diffusion.n_parameters))
        state = State(v, prior)
        known = joined([known, more])
    return probing.simulated(known, 2, cosines=True), replace(state, residuals=None)


class Selected(NamedTuple):
    """A model after steps in which terms came in and left, and the covariance of the last."""

    residual: Simulated
    state: State
    whitening: Whitening


def _selected(
    probing: Probing,
    residual: Simulated,
    state: State,
    run: Run,
) -> Selected:
    entry = _entry(probing, residual.dictionary)
    threshold = probing.threshold(residual.dictionary)
    whitening = probing.whitening(residual, state.v)
    for i in range(_N_STEPS):
        if run.spent:
            break
        whitening = whitening if i == 0 else probing.whitening(residual, state.v)
        update = Update(2, threshold if i else None, entry)
        after = step(residual, whitening, state, run, update).state
        state = after or replace(state, damping=FIRST_DAMPING)
    residual, state = without_excluded(residual, state)
    return Selected(residual, state, whitening)


def _entry(
    probing: Probing,
    dictionary: Dictionary,
) -> np.ndarray:
    """The gain a candidate must bring: the log of how many there are of its kind."""
    n_dims = probing.snapshots.n_dims
    given = probing.options.threshold
    kinds = [group.kind for group in dictionary.groups if group.kind != "constant"]
    odds = {kind: np.log(n_dims * kinds.count(kind)) for kind in kinds}
    entry = [odds[kind] if given is None else given for kind in kinds]
    return np.repeat(entry, n_dims)


def screened(
    probing: Probing,
    residual: Simulated,
    state: State,
    whitening: Whitening,
) -> Dictionary | None:
    """The products of two coordinates that may be in the drift, or None."""
    n_dims = probing.snapshots.n_dims
    low, high = probing.box
    products = monomials(pairs(n_dims), low, high)
    rows = _projected_rows(probing, residual, state, whitening)
    if rows is None:
        return None
    wide = replace(residual, dictionary=joined([residual.dictionary, products]))
    count = residual.n_coefficients
    n_new = products.n_features * n_dims
    v = np.concatenate([state.v[:count], np.zeros(n_new), state.v[count:]])
    fresh = np.arange(count, count + n_new)
    directions = [weights.T for weights in whitening.back(rows)]
    columns = np.sum(wide.slopes(v, directions, fresh), axis=0)
    by_output = gain_of(columns[0], np.mean(columns[1:] ** 2, axis=0)).reshape(-1, n_dims)
    gain = by_output.max(axis=1)
    # The random rows know s to a third or so: products at half the entry are looked at closely.
    likely = np.flatnonzero(gain > 0.5 * np.log(products.n_features * n_dims))
    if len(likely) == 0:
        return None
    best = np.zeros(products.n_features, dtype=bool)
    best[likely[np.argsort(-gain[likely])][:_MOST_PRODUCTS]] = True
    return products.only(best)


def _projected_rows(
    probing: Probing,
    residual: Simulated,
    state: State,
    whitening: Whitening,
) -> Float[np.ndarray, "n_rows n_columns"] | None:
    """P y, and P of some random rows; None where chains run away."""
    alive = state.prior.alive
    J = residual.jacobian(state.v, whitening, np.flatnonzero(alive))
    y = whitening(state.read(residual))
    if not can_be_squared(y, J):
        return None
    posterior = Posterior(J, state.prior.diagonal[alive])
    rng = probing.problem.streams.rng(Stream.screening)
    random = rng.standard_normal((len(y), _N_RANDOM))
    rows = np.column_stack([y, random])
    fitted = np.column_stack([posterior.mean(row) for row in rows.T])
    return rows - J @ fitted
