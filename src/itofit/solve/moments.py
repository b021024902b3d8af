"""The moments solver: many fixed probes at once, whitened, and Gauss-Newton for a drift linear in its coefficients.

    minimise over W   1/2 |y(W)|^2 + 1/2 sum_g lambda_g |W_g|^2,      y = L^-1 (E f(simulated) - E f(seen))

for g(x) = speed * W' phi(x), all f at once, and over the parameters of a noise that is learned. The Euler chains are
driven by fixed noise, so y is a deterministic function whose Jacobian comes from `simulate.sensitivity`; L is from
`solve.whitening` and lambda from `solve.relevance`. Three phases, each from the result of the one before:

    aim      own slopes alone; means and covariances only, residuals divided by a temperature that falls to 1
    grow     cosines as well; terms come in and leave as the evidence asks (`solve.growth`, `solve.many`)
    polish   those terms alone; more noise draws; the full covariance until nothing moves

Where snapshots are dense in time none of this is simulated: `solve.dense` takes the observed clouds for the path.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from itofit.errors import InputError
from itofit.process.diffusion import AbstractDiffusion
from itofit.process.features import MANY_DIMS, Dictionary
from itofit.process.ito import ItoProcess
from itofit.simulate.mesh import Mesh
from itofit.snapshots.clouds import Snapshots
from itofit.solve.dense import HEUN_STEPS, collocate, worth_trying
from itofit.solve.dictionaries import Library
from itofit.solve.evidence import Evidence, GaussNewtonHistory
from itofit.solve.gauss_newton import DAMPING, SMALL_DECREASE, Run, State, kept, step
from itofit.solve.growth import grow, own_slopes
from itofit.solve.listeners import Listener
from itofit.solve.many import grow_many
from itofit.solve.options import MomentsOptions
from itofit.solve.outcome import Outcome
from itofit.solve.pairs import check_pairs
from itofit.solve.relevance import GONE, Posterior, Prior
from itofit.solve.residuals import Residual
from itofit.solve.seen_path import Corrected, SeenPath
from itofit.solve.task import Task
from itofit.solve.turning import Turning, frozen, turned, turning_ridges
from itofit.solve.whitening import Whitening

_N_POLISH = 20
# Steps of a refit, each with a covariance of its own.
_N_REFIT = 8
# Points a residual from which on an expansion in one over their number is worth something.
_POINTS_A_ROW = 30


@dataclass(frozen=True, eq=False)
class MomentsFit:
    """A fitted process in the units the solver was given, and the story of the run.

    `path`: what lay between snapshots: `"simulated"` chains, the `"seen"` clouds, or the seen clouds `"corrected"` by
    a simulation of each gap.
    """

    process: ItoProcess
    outcome: Outcome
    history: GaussNewtonHistory
    n_iter: int
    seconds: float
    dictionary: Dictionary
    evidence: Evidence | None
    path: str


def fit_moments(
    snapshots: Snapshots,
    diffusion: AbstractDiffusion,
    mesh: Mesh,
    options: MomentsOptions,
    library: Library,
    *,
    seed: int,
    given_step: bool = True,
    listeners: Sequence[Listener] = (),
) -> MomentsFit:
    """Fit to snapshots in standardised units; `given_step` says that the mesh is the user's choice."""
    run = Run(options, listeners)
    try:
        task = Task(snapshots, diffusion, mesh, options, seed, given_step)
        _check_path(task)
        found = collocate(task, library, run) if options.path == "seen" or _may_be_seen(task) else None
        residual, state, outcome, whitening = _simulated(task, library, run) if found is None else found
        least = state
        if outcome is Outcome.converged and _can_be_corrected(task, whitening):
            state = _less_biased(residual, state, whitening, drift_too=task.paired)
        evidence = _evidence(residual, state, whitening)
        if task.paired:  # the correction leaves the minimum, whose squares have the law of chi-squared
            evidence = replace(evidence, chi2=_evidence(residual, least, whitening).chi2)
    except KeyboardInterrupt:
        outcome, evidence = Outcome.interrupted, None
        if run.residual is None or run.state is None:
            raise
        residual, state = run.residual, run.state
        residual, state = frozen(residual, state) if isinstance(residual, Turning) else (residual, state)
    if not np.all(np.isfinite(state.v)) or not run.rows:
        outcome = Outcome.non_finite
    return MomentsFit(
        process=residual.process(state.v),
        outcome=outcome,
        history=run.history(),
        n_iter=len(run.rows),
        seconds=time.perf_counter() - run.began,
        dictionary=residual.dictionary,
        evidence=evidence,
        path={SeenPath: "seen", Corrected: "corrected"}.get(type(residual), "simulated"),
    )


def _check_path(task: Task) -> None:
    if task.paired:
        check_pairs(task.snapshots, task.options)
    if task.options.clock and task.snapshots.n_dims >= MANY_DIMS:
        raise InputError(
            expected=f"fewer than {MANY_DIMS} coordinates where the drift changes with time",
            found=f"{task.snapshots.n_dims}",
            hint="fewer principal components, or time_varying=False",
        )
    if task.options.path == "seen" and task.diffusion.n_parameters and not task.diffusion.constant:
        raise InputError(
            expected="with path='seen', a sigma that is known or the same everywhere",
            found="one that depends on the state and is to be learned",
            hint="path='auto', or sigma='learn'",
        )


def _can_be_corrected(task: Task, whitening: Whitening) -> bool:
    n_rows = max(len(basis) for basis in whitening.bases)
    return task.diffusion.n_parameters > 0 and min(task.snapshots.counts) >= _POINTS_A_ROW * n_rows


def _may_be_seen(task: Task) -> bool:
    return task.options.path == "auto" and not task.options.clock and not task.paired and worth_trying(task)


def _simulated(task: Task, library: Library, run: Run) -> tuple[Residual, State, Outcome, Whitening]:
    """The three phases."""
    n_dims = task.snapshots.n_dims
    given = task.options.dictionary is not None
    prior = Prior.over(library.aim.groups, n_dims) if given else own_slopes(library.aim, n_dims)
    prior = prior.joined(Prior.fixed_at(task.diffusion.n_parameters))
    residual, state = _aim(task, library.aim, prior, run)
    few = n_dims <= MANY_DIMS
    if not given:
        way = grow if few else grow_many
        residual, state = way(task, library.aim, library.more, state, run)
    return _polish(task, residual.dictionary, state, run, ridges_turn=few and not given)


def _aim(task: Task, dictionary: Dictionary, prior: Prior, run: Run) -> tuple[Residual, State]:
    """Means and covariances under a falling temperature; the prior is weak and stays as it is."""
    residual = task.residual(dictionary, 1, cosines=False)
    state = State(np.zeros(len(prior.group)), prior)
    run.residual, run.state = residual, state
    whitening = task.whitening(residual, None)
    for temperature in _ladder(whitening(residual(state.v))):
        state = replace(state, damping=DAMPING[1])
        for _ in range(8):
            moved, decrease = step(residual, whitening, state, temperature, 0, run)
            state = moved or state
            if run.spent or (run.rows and run.rows[-1][3] < 1.0):
                return residual, state  # fitted within the noise: going on would follow it
            if moved is None or decrease < (SMALL_DECREASE if temperature == 1.0 else 0.1):
                break
    return residual, state


def _polish(
    task: Task, dictionary: Dictionary, state: State, run: Run, ridges_turn: bool
) -> tuple[Residual, State, Outcome, Whitening]:
    """The kept groups with all noise draws and the full covariance, until a step gains nothing."""
    residual = task.residual(dictionary, task.options.n_draws, cosines=True)
    state = replace(state, residuals=None)
    whitening = task.whitening(residual, state.v)
    turning = turning_ridges(residual, state) if ridges_turn else None
    if turning is not None and not run.spent:
        residual, state = frozen(turning[0], turned(turning[0], whitening, turning[1], run, 2))
    threshold = task.threshold(residual.dictionary)
    outcome, quiet = Outcome.budget, 0
    for i in range(_N_POLISH):
        if run.spent:
            break
        n_updates = 3 if i < 8 else 0
        moved, decrease = step(residual, whitening, state, 1.0, 2, run, n_updates, threshold if i in (2, 5) else None)
        state = moved or replace(state, damping=DAMPING[1])
        quiet = quiet + 1 if decrease < SMALL_DECREASE else 0
        if i > 5 and quiet >= 2:
            outcome = Outcome.converged
            break
        if i < 6:
            whitening = task.whitening(residual, state.v)
    residual, state = kept(residual, state)
    return residual, state, outcome, whitening


def _less_biased(residual: Residual, state: State, whitening: Whitening, drift_too: bool) -> State:
    """A learned noise without what the weights and the Jacobian owe to the same points as the residuals.

    J'y is not zero in the mean at the truth. The covariance of a skewed probe is large where its mean is, which adds
    -J' sum_i a(i) |a(i)|^2 for the contributions a(i) of the points; and J and y share their start points, which shows
    in the products of different folds. A scale learns it: sigma comes out too small by some per cent. With `drift_too`
    the drift is rid of its own part as well, which only pairs know well enough.
    """
    columns, v = np.flatnonzero(state.prior.alive), state.v
    parts = residual.folds()
    J = np.stack([part.jacobian(v, whitening, columns) for part in parts])
    y = np.stack([whitening(part(v)) for part in parts])
    bias = -J.mean(axis=0).T @ whitening.skewness(residual.spreads(v))
    if len(parts) > 1:
        together, same = np.mean(J, axis=0).T @ np.mean(y, axis=0), np.einsum("krp,kr->p", J, y) / len(parts)
        bias += (same - together) / (len(parts) - 1)
    posterior, noise = Posterior(J.mean(axis=0), state.prior.diagonal[columns]), columns >= residual.n_coefficients
    move = posterior.solve(bias)
    if not drift_too:
        # The noise is moved, and the drift to where it fits best with that noise.
        along = posterior.covariance()[:, noise]
        move = along @ np.linalg.solve(along[noise], move[noise])
    moved = v.copy()
    moved[columns] += move
    return replace(state, v=moved, residuals=None)


def refit(task: Task, dictionary: Dictionary, evidence: Evidence, path: str) -> tuple[ItoProcess, Evidence] | None:
    """The terms of a solution fitted to another task, say one with another sigma: none comes in and none leaves.

    Gauss-Newton from that solution under its prior, ridges turning; None where its chains run to infinity.
    """
    n_dims, gaps = task.snapshots.n_dims, [int(a) for a, _ in evidence.ends]
    if path == "simulated":
        residual: Residual = task.residual(dictionary, task.options.n_draws, cosines=True)
    else:
        seen = task.seen_path(dictionary, gaps)
        residual = seen if path == "seen" else task.corrected(seen, HEUN_STEPS)
    grouped = np.repeat([g.kind != "constant" for g in dictionary.groups], [g.size for g in dictionary.groups])
    prior = replace(Prior.over(dictionary.groups, n_dims), precision=evidence.precision[grouped].ravel())
    state = State(evidence.coefficients.ravel() / task.speed, prior)
    turning = turning_ridges(residual, state) if path == "simulated" and n_dims <= MANY_DIMS else None
    residual, state = turning or (residual, state)
    state = replace(state, residuals=residual(state.v))
    if not np.all(np.isfinite(np.concatenate(state.read(residual)))):
        return None
    for _ in range(_N_REFIT):
        moved = _lowered(residual, task.whitening(residual, state.v), state)
        if moved is None:
            break
        state = moved
    if isinstance(residual, Turning):
        residual, state = frozen(residual, state)
    return residual.process(state.v), _evidence(residual, state, task.whitening(residual, state.v))


def _lowered(residual: Residual, whitening: Whitening, state: State) -> State | None:
    """A Gauss-Newton step, halved until the objective falls; None where there is little to gain."""
    columns, v = np.flatnonzero(state.prior.alive), state.v
    y, J = whitening(state.read(residual)), residual.jacobian(v, whitening, columns)
    precision = state.prior.diagonal[columns]
    slope = J.T @ y + precision * v[columns]
    move = Posterior(J, precision).solve(slope)
    before = 0.5 * float(y @ y + precision @ v[columns] ** 2)
    if not 0.5 * float(slope @ move) > SMALL_DECREASE * max(before, 1.0):
        return None
    for share in (1.0, 0.5, 0.25, 0.125):
        candidate = v.copy()
        candidate[columns] -= share * move
        r = residual(candidate)
        with np.errstate(over="ignore", invalid="ignore"):
            after = 0.5 * float(np.sum(whitening(r) ** 2) + precision @ candidate[columns] ** 2)
        if after < before:
            return State(candidate, state.prior, residuals=r)
    return None


def _ladder(y: np.ndarray) -> list[float]:
    """Temperatures from the size of the residuals down to 1, by factors of 3."""
    size = float(np.sqrt(np.mean(y**2)))
    count = int(np.clip(np.ceil(np.log(max(size, 1.0)) / np.log(3.0)), 0, 12))
    return [size / 3.0**k for k in range(count)] + [1.0]


def _evidence(residual: Residual, state: State, whitening: Whitening) -> Evidence:
    alive = state.prior.alive
    y, J = whitening(state.read(residual)), residual.jacobian(state.v, whitening, np.flatnonzero(alive))
    posterior = Posterior(J, state.prior.diagonal[alive])
    inside = posterior.covariance()
    covariance = np.zeros((len(alive), len(alive)))
    covariance[np.ix_(alive, alive)] = inside
    counts = np.asarray([len(basis) for basis in whitening.bases])
    first = np.concatenate([[0], np.cumsum(counts)[:-1]])
    n_dims, count = residual.snapshots.n_dims, residual.n_coefficients
    at = np.cumsum([0, *[g.size for g in residual.dictionary.groups]])[:-1]
    effective = np.asarray([1.0 / np.sum(w**2) for w in residual.snapshots.weights])
    return Evidence(
        coefficients=residual.speed * state.v[:count].reshape(-1, n_dims),
        covariance=residual.speed**2 * covariance[:count, :count],
        precision=np.minimum(state.prior.diagonal[:count], GONE).reshape(-1, n_dims),
        ends=np.asarray(residual.ends),
        chi2=np.add.reduceat(y**2, first),
        n_rows=counts,
        n_points=np.asarray([effective[a] + effective[b] for a, b in residual.ends]),
        n_determined=np.add.reduceat(np.sum((J @ inside) * J, axis=1), first),
        alive=alive[:count].reshape(-1, n_dims)[at],
    )
