"""A fit where snapshots are dense: one linear problem on the seen path, then a look at whether that was allowed.

The drift found is simulated over every gap by a few Heun steps. The difference between the simulated and the linear
residual is the error of the trapezoid; J'J turns it into a shift of the coefficients. A shift within half a standard
error (in the mean over coefficients, beyond twice what halving the number of Heun steps says of the simulation's own
error) is left alone: nothing is simulated. A larger one is removed by Gauss-Newton steps on the simulated residual.
Either way the fit must explain the snapshots, or the gaps were too wide and the solver begins anew.
"""

import numpy as np

from itofit.process.features import MANY_DIMS, joined
from itofit.snapshots.clouds import Snapshots
from itofit.solve.dictionaries import Library
from itofit.solve.gauss_newton import SMALL_DECREASE, Run, State, kept, step
from itofit.solve.outcome import Outcome
from itofit.solve.relevance import Posterior, Prior, pruned, relevances
from itofit.solve.residuals import Residual
from itofit.solve.seen_path import Corrected, SeenPath
from itofit.solve.task import Task
from itofit.solve.whitening import Whitening

# Standard errors by which the trapezoid may move the coefficients, and how many gaps are a path.
_ALLOWED, _FEWEST_GAPS = 0.5, 5
HEUN_STEPS = 8
_MOST_STEPS = 10
# Steps of a learned noise on one covariance, and how far each may go, in units of its parameters.
_N_NOISE, _FARTHEST = 10, 10.0
# The share of gaps that must be dense.
_MOST_GAPS = 0.8


def dense_gaps(snapshots: Snapshots) -> list[int]:
    """Gaps in which no mean moves by more than an sd and no sd changes threefold."""
    means = np.stack([w @ x for _, x, w in snapshots])
    sds = np.stack([np.sqrt(w @ (x - m) ** 2) for (_, x, w), m in zip(snapshots, means, strict=True)])
    sds = np.maximum(sds, 1e-6 * sds.max())
    moved = np.abs(np.diff(means, axis=0)) / np.maximum(sds[1:], sds[:-1])
    stretched = np.abs(np.diff(np.log(sds), axis=0))
    return np.flatnonzero(np.all((moved < 1.0) & (stretched < np.log(3.0)), axis=1)).tolist()


def worth_trying(task: Task) -> bool:
    """Whether a fit on the seen path may be accurate enough."""
    n_gaps = len(task.snapshots.times) - 1
    readable = task.diffusion.n_parameters == 0 or task.diffusion.constant
    if task.options.anchor == "initial" or not readable or (task.given_step and n_gaps < _FEWEST_GAPS):
        return False
    return task.snapshots.n_dims <= MANY_DIMS and len(dense_gaps(task.snapshots)) >= _MOST_GAPS * n_gaps


def collocate(task: Task, library: Library, run: Run) -> tuple[Residual, State, Outcome, Whitening] | None:
    """The fit on the seen path, or None where gaps are too wide for it; the log then says nothing of it."""
    dictionary = library.aim if library.more is None else joined([library.aim, library.more])
    asked = task.options.path == "seen"
    gaps = range(len(task.snapshots.times) - 1) if asked else dense_gaps(task.snapshots)
    seen, state, whitening = _solved(task, task.seen_path(dictionary, gaps), run)
    if asked:
        return seen, state, Outcome.converged, whitening
    corrected = task.corrected(seen, HEUN_STEPS)
    if len(gaps) >= _FEWEST_GAPS and _is_small(_trapezoid_shift(task, seen, corrected, state, whitening)):
        found = seen, state, Outcome.converged, whitening
    elif task.given_step:
        found = None  # the chain the user asked for is another one than Heun's
    else:
        found = _corrected(task, corrected, state, whitening, run)
    if found is None or not _explains(*found):
        run.rows.clear()
        return None
    return found


def _explains(residual: Residual, state: State, outcome: Outcome, whitening: Whitening) -> bool:
    y = whitening(state.read(residual))
    return outcome is Outcome.budget or bool(np.mean(y**2) < 1.0 + 4.0 * np.sqrt(2.0 / len(y)))


def _trapezoid_shift(task: Task, seen: SeenPath, finer: Corrected, state: State, whitening: Whitening) -> np.ndarray:
    """What a simulation would move the coefficients by, beyond its own error, in standard errors."""
    alive, v = state.prior.alive, state.v
    J, precision = seen.jacobian(v, whitening, np.flatnonzero(alive)), state.prior.diagonal[alive]
    posterior = Posterior(J, precision)
    shift, rough = (
        posterior.solve(J.T @ whitening(residual(v)) + precision * v[alive])
        for residual in (finer, task.corrected(seen, HEUN_STEPS // 2))
    )
    doubt = np.abs(shift - rough) / 3.0  # a Heun step is of second order
    return np.maximum(np.abs(shift) - 2.0 * doubt, 0.0) / np.sqrt(np.diag(posterior.covariance()))


def _is_small(shift: np.ndarray) -> bool:
    return bool(np.sqrt(np.mean(shift**2)) < _ALLOWED)


def _corrected(
    task: Task, residual: Residual, state: State, whitening: Whitening, run: Run
) -> tuple[Residual, State, Outcome, Whitening]:
    """Gauss-Newton steps from the solution on the seen path, until one gains little."""
    threshold, outcome = task.threshold(residual.dictionary), Outcome.budget
    for i in range(_MOST_STEPS):
        if run.spent:
            break
        moved, decrease = step(residual, whitening, state, 1.0, 3, run, 3, threshold if i in (1, 3) else None)
        state = moved or state
        if moved is None or (i > 1 and decrease < SMALL_DECREASE):
            outcome = Outcome.converged
            break
        if i < 2:
            whitening = task.whitening(residual, state.v)
    residual, state = kept(residual, state)
    return residual, state, outcome, whitening


def _solved(task: Task, seen: SeenPath, run: Run) -> tuple[SeenPath, State, Whitening]:
    """The linear problem, with the covariance of its own solution and the evidence's choice of groups."""
    n_noise = task.diffusion.n_parameters
    prior = Prior.over(seen.dictionary.groups, task.snapshots.n_dims).joined(Prior.fixed_at(n_noise))
    state, threshold = State(np.zeros(len(prior.group)), prior), task.threshold(seen.dictionary)
    run.residual, run.state = seen, state
    whitening = task.whitening(seen, state.v)
    for i in range(3):
        whitening = whitening if i == 0 else task.whitening(seen, state.v)
        for last in range(_N_NOISE if n_noise else 1):
            prune = i > 0 and last == (_N_NOISE if n_noise else 1) - 1
            state = _linear(seen, state, whitening, threshold if prune else None)
    y = whitening(seen(state.v))
    objective = 0.5 * float(y @ y + state.prior.diagonal @ state.v**2)
    run.note(3, 1.0, objective, float(np.mean(y**2)), seen, state)
    seen, state = kept(seen, state)
    return seen, state, whitening


def _linear(seen: SeenPath, state: State, whitening: Whitening, threshold: np.ndarray | None) -> State:
    """The solution of the problem linearised at `state`, which is that of the problem where no noise is learned."""
    prior, columns, count = state.prior, np.arange(len(state.v)), seen.n_coefficients
    J = seen.jacobian(state.v, whitening, columns)
    b = J @ state.v - whitening(seen(state.v))
    prior = relevances(J, b, prior, 5)
    prior = prior if threshold is None else pruned(J, b, prior, threshold)
    v = np.zeros(len(columns))
    v[prior.alive] = Posterior(J[:, prior.alive], prior.diagonal[prior.alive]).mean(b)
    v[count:] = np.clip(v[count:], state.v[count:] - _FARTHEST, state.v[count:] + _FARTHEST)
    return State(v, prior)
