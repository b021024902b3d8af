"""One damped Gauss-Newton step on whitened residuals under a Gaussian prior, and the log of a run.

minimise 1/2 |y(v)|^2 + 1/2 v' Lambda v,        (J'J + Lambda + damping) move = J'y + Lambda v
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple, TypeVar

import numpy as np
from jaxtyping import Bool, Float

from itofit.moments.relevance import (
    EXCLUDED,
    Posterior,
    Prior,
    pruned,
    relevances,
    selected_forward,
)
from itofit.moments.residuals import Residual
from itofit.moments.whitening import Whitening
from itofit.solution import GaussNewtonHistory, Outcome, Phase
from itofit.solve.listeners import Listener, Progress

# Smallest and first damping of a step, and how often it may be raised tenfold.
LEAST_DAMPING = 1e-8
FIRST_DAMPING = 1e-2
_MOST_TRIES = 10
# How often a start whose chains run away is halved, before it is given up for no drift.
_MOST_HALVINGS = 6
# A step that lowers the objective by less than this fraction gains nothing.
SMALL_DECREASE = 1e-3
# Steps a fit usually takes, for the progress bar.
_USUAL_STEPS = 60

SomeResidual = TypeVar("SomeResidual", bound=Residual)


@dataclass(frozen=True, eq=False)
class State:
    """Where the iteration stands; `residuals` are those at `v`, where they are known."""

    v: Float[np.ndarray, " n_coefficients"]
    prior: Prior
    damping: float = FIRST_DAMPING
    residuals: list[np.ndarray] | None = None

    def under(self, precision: Float[np.ndarray, "n_groups n_outputs"]) -> "State":
        """The same with this prior of all groups of features."""
        return replace(self, prior=self.prior.including(slice(None), precision.ravel()))

    def read(self, residual: Residual) -> list[np.ndarray]:
        """The residuals at `v`, simulated only where they are not known."""
        return residual(self.v) if self.residuals is None else self.residuals


class Fitted(NamedTuple):
    """A model at its optimum: the residual, where it stands, how that ended, its covariance."""

    residual: Residual
    state: State
    outcome: Outcome
    whitening: Whitening


class LogRow(NamedTuple):
    """What is logged of one step."""

    phase: Phase
    temperature: float
    objective: float
    chi2: float
    n_groups: int


@dataclass(eq=False)
class Run:
    """The log of a run and the best it has so far; survives an interruption."""

    n_iter: int
    listeners: Sequence[Listener]
    phase: Phase = Phase.aim
    began: float = field(default_factory=time.perf_counter)
    rows: list[LogRow] = field(default_factory=list)
    residual: Residual | None = None
    state: State | None = None

    @property
    def spent(self) -> bool:
        """Whether the budget of steps is."""
        return len(self.rows) >= self.n_iter

    def keep(
        self,
        residual: Residual,
        state: State,
    ) -> None:
        """What an interruption leaves."""
        self.residual = residual
        self.state = state

    def note(
        self,
        objective: float,
        chi2: float,
        state: State,
        temperature: float = 1.0,
    ) -> None:
        """Log a step and tell the listeners."""
        n_groups = int(np.sum(state.prior.precision < EXCLUDED))
        self.rows.append(
            LogRow(
                self.phase,
                temperature,
                objective,
                chi2,
                n_groups,
            )
        )
        seconds = max(time.perf_counter() - self.began, 1e-9)
        progress = Progress(
            n_done=len(self.rows),
            n_total=max(len(self.rows), min(self.n_iter, _USUAL_STEPS)),
            rate=len(self.rows) / seconds,
            loss=objective,
            residuals=(),
            criterion=chi2,
            best_criterion=min(row.chi2 for row in self.rows),
            slope=float("nan"),
        )
        for listener in self.listeners:
            listener(progress)

    def history(self) -> GaussNewtonHistory:
        """The log as arrays."""
        return GaussNewtonHistory(
            phase=np.asarray([row.phase for row in self.rows]),
            temperature=np.asarray([row.temperature for row in self.rows]),
            objective=np.asarray([row.objective for row in self.rows]),
            chi2=np.asarray([row.chi2 for row in self.rows]),
            n_groups=np.asarray([row.n_groups for row in self.rows]),
        )


class Update(NamedTuple):
    """What the evidence may change of the model before a step, on the same linearisation.

    - `n_rounds`: updates of the precisions.
    - `threshold`: groups of less evidence than this leave.
    - `entry`: groups outside the model that gain more than this come in.
    """

    n_rounds: int = 0
    threshold: Float[np.ndarray, " n_groups"] | None = None
    entry: Float[np.ndarray, " n_groups"] | None = None


NO_UPDATE = Update()


def can_be_squared(*arrays: np.ndarray) -> bool:
    """Whether all is finite and stays so when it is squared: no chain ran to infinity."""
    with np.errstate(over="ignore", invalid="ignore"):
        return all(bool(np.isfinite(np.sum(array**2))) for array in arrays)


def stepped_back(residual: Residual, state: State) -> State:
    """The state, or where its chains run to infinity one nearer to no drift at all."""
    v = state.v.copy()
    count = residual.n_coefficients
    for i in range(_MOST_HALVINGS + 1):
        residuals = residual(v)
        if can_be_squared(*residuals):
            return replace(state, v=v, residuals=residuals)
        v[:count] *= 0.5 if i + 1 < _MOST_HALVINGS else 0.0
    return replace(state, v=v, residuals=None)


class Step(NamedTuple):
    """A step: the state after it, None where something was not finite; the fraction it gained."""

    state: State | None
    decrease: float


def step(
    residual: Residual,
    whitening: Whitening,
    state: State,
    run: Run,
    update: Update = NO_UPDATE,
    temperature: float = 1.0,
) -> Step:
    """One damped Gauss-Newton step, after evidence updates on the same linearisation."""
    every = update.entry is not None
    columns = np.arange(len(state.v)) if every else np.flatnonzero(state.prior.alive)
    state = replace(state, residuals=state.read(residual))
    y = whitening(state.read(residual)) / temperature
    J = residual.jacobian(state.v, whitening, columns) / temperature
    if not can_be_squared(y, J):
        return Step(None, 0.0)
    b = J @ state.v[columns] - y
    chosen = _updated(
        J,
        b,
        state.prior.only(columns),
        update,
        residual.n_outputs,
    )
    state = replace(state, prior=state.prior.with_precisions(chosen))
    J = J[:, chosen.alive]
    alive = state.prior.alive
    if np.any(state.v[~alive] != 0.0):
        v = np.zeros_like(state.v)
        v[alive] = Posterior(J, state.prior.diagonal[alive]).mean(b)
        state = replace(state, v=v, residuals=residual(v))
        y = whitening(state.read(residual)) / temperature
        if not can_be_squared(y):
            return Step(None, 0.0)
    return _damped(residual, whitening, state, run, J, y, temperature)


def _updated(
    J: np.ndarray,
    b: np.ndarray,
    prior: Prior,
    update: Update,
    n_outputs: int,
) -> Prior:
    if update.entry is not None:
        prior = selected_forward(J, b, prior, update.entry, n_outputs)
    prior = relevances(J, b, prior, update.n_rounds)
    return (
        prior
        if update.threshold is None
        else pruned(
            J,
            b,
            prior,
            update.threshold,
        )
    )


def _damped(
    residual: Residual,
    whitening: Whitening,
    state: State,
    run: Run,
    J: Float[np.ndarray, "n_rows n_alive"],
    y: Float[np.ndarray, " n_rows"],
    temperature: float,
) -> Step:
    """The step of the linear problem, damped until the objective falls."""
    alive = state.prior.alive
    precision = state.prior.diagonal
    damping = state.damping
    before = _objective(y, state.v, precision)
    slope = J.T @ y + precision[alive] * state.v[alive]
    curvature = np.sum(J**2, axis=0) + precision[alive]
    for _ in range(_MOST_TRIES):
        move = Posterior(J, precision[alive] + damping * curvature).solve(slope)
        little = 0.5 * float(slope @ move) < 0.1 * SMALL_DECREASE * max(before, 1.0)
        if little and damping <= FIRST_DAMPING:
            break  # nothing to gain even if the model were exactly linear
        candidate = state.v.copy()
        candidate[alive] -= move
        residuals = residual(candidate)
        y_after = whitening(residuals) / temperature
        after = _objective(y_after, candidate, precision)
        if np.isfinite(after) and after < before:
            lower = max(damping / 10.0, LEAST_DAMPING)
            better = State(candidate, state.prior, lower, residuals)
            _note(run, residual, better, after, y_after, temperature)
            return Step(better, (before - after) / max(before, 1.0))
        damping = max(10.0 * damping, 1e-4)
    stay = replace(state, damping=FIRST_DAMPING)
    _note(run, residual, stay, before, y, temperature)
    return Step(stay, 0.0)


def _note(
    run: Run,
    residual: Residual,
    state: State,
    objective: float,
    y: np.ndarray,
    temperature: float,
) -> None:
    run.keep(residual, state)
    run.note(
        objective,
        float(np.mean(y**2)) * temperature**2,
        state,
        temperature,
    )


def _objective(
    y: np.ndarray,
    v: np.ndarray,
    precision: np.ndarray,
) -> float:
    with np.errstate(over="ignore", invalid="ignore"):
        return 0.5 * float(y @ y) + 0.5 * float(np.sum(precision * v**2))


def without_excluded(
    residual: SomeResidual,
    state: State,
) -> tuple[SomeResidual, State]:
    """The same state without the groups that no output uses."""
    n_outputs = residual.n_outputs
    count = residual.n_coefficients
    prior = state.prior
    groups = residual.dictionary.groups
    first = np.cumsum([0, *[group.size for group in groups]])[:-1]
    used = np.any(prior.alive[:count].reshape(-1, n_outputs)[first], axis=1)
    if all(used):
        return residual, state
    rows = np.repeat(used, [group.size for group in groups])
    v = np.append(state.v[:count].reshape(-1, n_outputs)[rows], state.v[count:])
    smaller = _prior_of_rows(prior, rows, count, n_outputs)
    return residual.only(used), State(
        v,
        smaller,
        state.damping,
        state.residuals,
    )


def _prior_of_rows(
    prior: Prior,
    rows: Bool[np.ndarray, " n_features"],
    count: int,
    n_outputs: int,
) -> Prior:
    """The prior of these features and of what stands after the `count` coefficients."""
    numbers = np.append(prior.group[:count].reshape(-1, n_outputs)[rows], prior.group[count:])
    names, renamed = np.unique(numbers[numbers >= 0], return_inverse=True)
    group = numbers.copy()
    group[numbers >= 0] = renamed
    return Prior(
        group,
        prior.precision[names],
        prior.floor[names],
        prior.fixed,
    )
