"""A fit where snapshots are dense: one linear problem on the observed path, and whether it may be.

The drift found is simulated over every gap by a few Heun steps. The difference between the
simulated and the linear residual is the error of the trapezoid; J'J turns it into a shift of the
coefficients. A shift within half a standard error (in the mean over coefficients, beyond twice what
halving the number of Heun steps says of the simulation's own error) is left alone: nothing is
simulated. A larger one is removed by Gauss-Newton steps on the simulated residual. Either way the
fit must explain the snapshots, or the gaps were too wide and the solver begins anew.
"""

import numpy as np

from itofit.moments.gauss_newton import (
    SMALL_DECREASE,
    Fitted,
    Run,
    State,
    Update,
    can_be_squared,
    step,
    without_excluded,
)
from itofit.moments.library import Library
from itofit.moments.observed_path import CorrectedPath, ObservedPath
from itofit.moments.probing import HEUN_STEPS, Probing
from itofit.moments.relevance import Posterior, Prior, pruned, relevances
from itofit.moments.whitening import Whitening
from itofit.process.features import MANY_DIMS
from itofit.snapshots.clouds import Snapshots
from itofit.solution import Outcome, Phase

# Standard errors by which the trapezoid may move the coefficients, and how many gaps are a path.
_ALLOWED = 0.5
_FEWEST_GAPS = 5
_MOST_STEPS = 10
# Steps of a learned noise on one covariance, and how far each may go, in units of its parameters.
_N_NOISE = 10
_FARTHEST = 10.0
# The fraction of gaps that must be dense.
_MOST_GAPS = 0.8


def dense_gaps(snapshots: Snapshots) -> list[int]:
    """Gaps in which no mean moves by more than an sd and no sd changes threefold."""
    means = []
    sds = []
    for _, points, weights in snapshots:
        mean = weights @ points
        means.append(mean)
        sds.append(np.sqrt(weights @ (points - mean) ** 2))
    widths = np.maximum(sds, 1e-6 * np.max(sds))
    shift = np.abs(np.diff(means, axis=0)) / np.maximum(widths[1:], widths[:-1])
    stretch = np.abs(np.diff(np.log(widths), axis=0))
    dense = np.all((shift < 1.0) & (stretch < np.log(3.0)), axis=1)
    return np.flatnonzero(dense).tolist()


def worth_trying(probing: Probing) -> bool:
    """Whether a fit on the observed path may be accurate enough."""
    n_gaps = len(probing.snapshots.times) - 1
    readable = probing.diffusion.n_parameters == 0 or probing.diffusion.constant
    if probing.options.anchor == "initial" or not readable:
        return False
    if probing.problem.step_given and n_gaps < _FEWEST_GAPS:
        return False
    if probing.snapshots.n_dims > MANY_DIMS:
        return False
    return len(dense_gaps(probing.snapshots)) >= _MOST_GAPS * n_gaps


def collocate(
    probing: Probing,
    library: Library,
    run: Run,
) -> Fitted | None:
    """The fit on the observed path, or None where gaps are too wide for it.

    The log then says nothing of it.
    """
    run.phase = Phase.observed_path
    forced = probing.options.path == "observed"
    n_gaps = len(probing.snapshots.times) - 1
    gaps = list(range(n_gaps)) if forced else dense_gaps(probing.snapshots)
    linear = _solved(probing, probing.observed_path(library.whole, gaps), run)
    if forced:
        return linear
    fitted = _checked(probing, linear, len(gaps), run)
    if fitted is None or not _explains(fitted):
        run.rows.clear()
        return None
    return fitted


def _checked(
    probing: Probing,
    linear: Fitted,
    n_gaps: int,
    run: Run,
) -> Fitted | None:
    """The linear fit where the trapezoid allows it, else corrected by a simulation."""
    observed = linear.residual
    assert isinstance(observed, ObservedPath)
    corrected = probing.corrected(observed, HEUN_STEPS)
    if n_gaps >= _FEWEST_GAPS and _is_small(_trapezoid_shift(probing, linear, corrected)):
        return linear
    if probing.problem.step_given:
        return None  # the chain the user chose is another one than Heun's
    return _corrected(probing, corrected, linear, run)


def _explains(fitted: Fitted) -> bool:
    y = fitted.whitening(fitted.state.read(fitted.residual))
    small = bool(np.mean(y**2) < 1.0 + 4.0 * np.sqrt(2.0 / len(y)))
    return fitted.outcome is Outcome.budget or small


def _trapezoid_shift(
    probing: Probing,
    linear: Fitted,
    finer: CorrectedPath,
) -> np.ndarray:
    """By how many standard errors a simulation would move the coefficients, its own error apart."""
    observed = finer.observed
    whitening = linear.whitening
    alive = linear.state.prior.alive
    v = linear.state.v
    J = observed.jacobian(v, whitening, np.flatnonzero(alive))
    precision = linear.state.prior.diagonal[alive]
    posterior = Posterior(J, precision)
    rougher = probing.corrected(observed, HEUN_STEPS // 2)
    shift = posterior.solve(J.T @ whitening(finer(v)) + precision * v[alive])
    rough = posterior.solve(J.T @ whitening(rougher(v)) + precision * v[alive])
    doubt = np.abs(shift - rough) / 3.0  # a Heun step is of second order
    errors = np.sqrt(np.diag(posterior.covariance()))
    return np.maximum(np.abs(shift) - 2.0 * doubt, 0.0) / errors


def _is_small(shift: np.ndarray) -> bool:
    return bool(np.sqrt(np.mean(shift**2)) < _ALLOWED)


def _corrected(
    probing: Probing,
    residual: CorrectedPath,
    linear: Fitted,
    run: Run,
) -> Fitted:
    """Gauss-Newton steps from the solution on the observed path, until one gains little."""
    state = linear.state
    whitening = linear.whitening
    threshold = probing.threshold(residual.dictionary)
    outcome = Outcome.budget
    for i in range(_MOST_STEPS):
        if run.spent:
            break
        update = Update(3, threshold if i in (1, 3) else None)
        after, decrease = step(residual, whitening, state, run, update)
        state = after or state
        if after is None:
            outcome = Outcome.non_finite
            break
        if i > 1 and decrease < SMALL_DECREASE:
            outcome = Outcome.converged
            break
        if i < 2:
            whitening = probing.whitening(residual, state.v)
    residual, state = without_excluded(residual, state)
    return Fitted(residual, state, outcome, whitening)


def _solved(
    probing: Probing,
    observed: ObservedPath,
    run: Run,
) -> Fitted:
    """The linear problem, with the covariance of its own solution and the evidence's choice."""
    n_noise = probing.diffusion.n_parameters
    prior = Prior.over(observed.dictionary.groups, probing.snapshots.n_dims)
    prior = prior.joined(Prior.fixed_at(n_noise))
    state = State(np.zeros(len(prior.group)), prior)
    threshold = probing.threshold(observed.dictionary)
    run.keep(observed, state)
    n_solves = _N_NOISE if n_noise else 1
    whitening = probing.whitening(observed, state.v)
    for i in range(3):
        whitening = whitening if i == 0 else probing.whitening(observed, state.v)
        for k in range(n_solves):
            prune = i > 0 and k == n_solves - 1
            state = _linear(observed, state, whitening, threshold if prune else None)
    y = whitening(observed(state.v))
    objective = 0.5 * float(y @ y + state.prior.diagonal @ state.v**2)
    run.keep(observed, state)
    run.note(objective, float(np.mean(y**2)), state)
    observed, state = without_excluded(observed, state)
    return Fitted(observed, state, Outcome.converged, whitening)


def _linear(
    observed: ObservedPath,
    state: State,
    whitening: Whitening,
    threshold: np.ndarray | None,
) -> State:
    """The solution of the problem linearised at `state`.

    Where no noise is learned the problem is linear, and this is its solution.
    """
    prior = state.prior
    columns = np.arange(len(state.v))
    count = observed.n_coefficients
    J = observed.jacobian(state.v, whitening, columns)
    b = J @ state.v - whitening(observed(state.v))
    if not can_be_squared(J, b):
        return state
    prior = relevances(J, b, prior, 5)
    prior = prior if threshold is None else pruned(J, b, prior, threshold)
    alive = prior.alive
    v = np.zeros(len(columns))
    v[alive] = Posterior(J[:, alive], prior.diagonal[alive]).mean(b)
    noise = state.v[count:]
    v[count:] = np.clip(v[count:], noise - _FARTHEST, noise + _FARTHEST)
    return State(v, prior)
