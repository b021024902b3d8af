"""One damped Gauss-Newton step on whitened residuals under a Gaussian prior, and the log of a run of them."""

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TypeVar

import numpy as np
from jaxtyping import Float

from itofit.solve.evidence import GaussNewtonHistory
from itofit.solve.listeners import Listener, Progress
from itofit.solve.options import MomentsOptions
from itofit.solve.relevance import GONE, Posterior, Prior, grown, pruned, relevances
from itofit.solve.residuals import Residual
from itofit.solve.whitening import Whitening

# Smallest and first damping of a step, and how often it may be raised tenfold.
DAMPING = (1e-8, 1e-2)
# A step that lowers the objective by less than this share gains nothing.
SMALL_DECREASE = 1e-3
_MOST_TRIES = 10
# Steps a fit usually takes, for the progress bar.
_USUAL = 60

SomeResidual = TypeVar("SomeResidual", bound=Residual)


@dataclass(frozen=True, eq=False)
class State:
    """Where the iteration stands; `residuals` are those at `v`, where they are known."""

    v: Float[np.ndarray, " n_coefficients"]
    prior: Prior
    damping: float = DAMPING[1]
    residuals: list[np.ndarray] | None = None

    def read(self, residual: Residual) -> list[np.ndarray]:
        """The residuals at `v`, simulated only where they are not known."""
        return residual(self.v) if self.residuals is None else self.residuals


@dataclass(eq=False)
class Run:
    """The log of a run and the best it has so far; survives an interruption."""

    options: MomentsOptions
    listeners: Sequence[Listener]
    began: float = field(default_factory=time.perf_counter)
    rows: list[tuple[int, float, float, float, int]] = field(default_factory=list)
    residual: Residual | None = None
    state: State | None = None

    @property
    def spent(self) -> bool:
        return len(self.rows) >= self.options.n_iter

    def note(
        self, phase: int, temperature: float, objective: float, chi2: float, residual: Residual, state: State
    ) -> None:
        self.residual, self.state = residual, state
        self.rows.append((phase, temperature, objective, chi2, int(np.sum(state.prior.precision < GONE))))
        seconds = max(time.perf_counter() - self.began, 1e-9)
        progress = Progress(
            n_done=len(self.rows),
            n_total=max(len(self.rows), min(self.options.n_iter, _USUAL)),
            rate=len(self.rows) / seconds,
            loss=objective,
            residuals=(),
            criterion=chi2,
            best_criterion=min(row[3] for row in self.rows),
            slope=float("nan"),
        )
        for listener in self.listeners:
            listener(progress)

    def history(self) -> GaussNewtonHistory:
        columns = zip(*self.rows, strict=True) if self.rows else ((), (), (), (), ())
        return GaussNewtonHistory(*(np.asarray(column) for column in columns))


def step(
    residual: Residual,
    whitening: Whitening,
    state: State,
    temperature: float,
    phase: int,
    run: Run,
    n_updates: int = 0,
    threshold: np.ndarray | None = None,
    entry: np.ndarray | None = None,
) -> tuple[State | None, float]:
    """One damped Gauss-Newton step, after evidence updates on the same linearisation.

    With `entry` groups outside the model that gain more than this come in; with `threshold` those that have less
    evidence than this leave. Returns the new state (None where something is not finite) and the share by which the
    objective fell.
    """
    v, prior, damping = state.v, state.prior, state.damping
    columns = np.arange(len(v)) if entry is not None else np.flatnonzero(prior.alive)
    r = state.read(residual)
    y, J = whitening(r) / temperature, residual.jacobian(v, whitening, columns) / temperature
    if not (np.all(np.isfinite(y)) and np.all(np.isfinite(J))):
        return None, 0.0
    b = J @ v[columns] - y
    chosen = prior.only(columns)
    if entry is not None:
        chosen = grown(J, b, chosen, entry, residual.snapshots.n_dims)
    chosen = relevances(J, b, chosen, n_updates)
    if threshold is not None:
        chosen = pruned(J, b, chosen, threshold)
    prior, J = prior.with_precisions(chosen), J[:, chosen.alive]
    alive, precision = prior.alive, prior.diagonal
    if np.any(v[~alive] != 0.0):
        v = np.zeros_like(v)
        v[alive] = Posterior(J, precision[alive]).mean(b)
        r = residual(v)
        y = whitening(r) / temperature
        if not np.all(np.isfinite(y)):
            return None, 0.0
    before = _objective(y, v, precision)
    slope, curvature = J.T @ y + precision[alive] * v[alive], np.sum(J**2, axis=0) + precision[alive]
    for _ in range(_MOST_TRIES):
        step = Posterior(J, precision[alive] + damping * curvature).solve(slope)
        candidate = v.copy()
        candidate[alive] -= step
        if 0.5 * float(slope @ step) < 0.1 * SMALL_DECREASE * max(before, 1.0) and damping <= DAMPING[1]:
            break  # nothing to gain even if the model were exactly linear
        r_new = residual(candidate)
        y_new = whitening(r_new) / temperature
        after = _objective(y_new, candidate, precision)
        if np.isfinite(after) and after < before:
            moved = State(candidate, prior, max(damping / 10.0, DAMPING[0]), r_new)
            run.note(phase, temperature, after, float(np.mean(y_new**2)) * temperature**2, residual, moved)
            return moved, (before - after) / max(before, 1.0)
        damping = max(10.0 * damping, 1e-4)
    stay = State(v, prior, DAMPING[1], r)
    run.note(phase, temperature, before, float(np.mean(y**2)) * temperature**2, residual, stay)
    return stay, 0.0


def _objective(y: np.ndarray, v: np.ndarray, precision: np.ndarray) -> float:
    with np.errstate(over="ignore", invalid="ignore"):
        return 0.5 * float(y @ y) + 0.5 * float(np.sum(precision * v**2))


def kept(residual: SomeResidual, state: State) -> tuple[SomeResidual, State]:
    """The same state with the groups dropped that no output uses."""
    n_dims, prior, count = residual.snapshots.n_dims, state.prior, residual.n_coefficients
    groups = residual.dictionary.groups
    first = np.cumsum([0, *[group.size for group in groups]])[:-1]
    marks = np.any(prior.alive[:count].reshape(-1, n_dims)[first], axis=1)
    if all(marks):
        return residual, state
    rows = np.repeat(marks, [group.size for group in groups])
    numbers = np.append(prior.group[:count].reshape(-1, n_dims)[rows], prior.group[count:])
    names, renamed = np.unique(numbers[numbers >= 0], return_inverse=True)
    group = numbers.copy()
    group[numbers >= 0] = renamed
    smaller = Prior(group, prior.precision[names], prior.floor[names], prior.fixed)
    v = np.append(state.v[:count].reshape(-1, n_dims)[rows], state.v[count:])
    return residual.only(marks), State(v, smaller, state.damping, state.residuals)
