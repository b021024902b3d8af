"""The rows of the table: methods, each with one setting for the whole zoo.

    fitted = ROWS["itofit"].fit(trial.given, question, seed)        fitted.clouds(question, start)

A row is fitted once a trial and forecasts from one or two starts; the first of them is the row's
answer, the second stands beside it.
"""

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from benchmarks.rivals.run import Answer, ask, rival
from benchmarks.zoo.task import FORECAST, INTERPOLATE

from itofit import (
    Collocation,
    Continuation,
    FokkerPlanckProcess,
    Legend,
    Midpoint,
    Persistence,
    PotentialRNN,
    Snapshots,
)
from itofit.face import Face
from itofit.solvers import SOLVERS

NO_START = "-"

Starts = dict[str, tuple[str, ...]]
"""By what a task asks, from where forecasts begin; a task it is no method for is absent."""


@dataclass(frozen=True)
class Question:
    """What is asked of a row, without an answer: times, points at each, starts to forecast from."""

    times: tuple[float, ...]
    n: int
    starts: tuple[str, ...]


class Fitted(Protocol):
    """What a row is after fitting."""

    def clouds(self, question: Question, start: str) -> list[np.ndarray]:
        """Its forecast from a start, one cloud a time asked for."""
        ...

    def notes(self) -> dict[str, Any]:
        """What a record says of the fit: of `outcome`, `chi2` and `seconds` those it knows."""
        ...


@dataclass(frozen=True, eq=False)
class Row:
    """A method; its `fit` sees the snapshots given and a seed.

    It is told the question for the sake of programs that fit and forecast in one call; they keep
    it from their fits, and estimators never meet it.
    """

    name: str
    fit: Callable[[Snapshots, Question, int], Fitted]
    starts: Starts


@dataclass(frozen=True, eq=False)
class FittedFace:
    """One of our estimators, fitted."""

    model: Face

    def clouds(self, question: Question, start: str) -> list[np.ndarray]:
        """Its forecast from a start, one cloud a time asked for."""
        begin = "previous" if start == NO_START else start
        forecast = self.model.forecast(list(question.times), n_samples=question.n, start=begin)
        return list(forecast.clouds)

    def notes(self) -> dict[str, Any]:
        """Its outcome, and chi-squared where the solver has one."""
        evidence = getattr(getattr(self.model, "solution_", None), "evidence", None)
        chi2 = getattr(evidence, "reduced_chi2", None)
        return {"outcome": self.model.outcome_.name, "chi2": chi2}


@dataclass(frozen=True, eq=False)
class Answered:
    """A program of others, which fitted and forecast in one call: its clouds by start."""

    answer: Answer

    def clouds(self, question: Question, start: str) -> list[np.ndarray]:
        """Its forecast from a start, one cloud a time asked for."""
        del question
        return list(self.answer.clouds[start])

    def notes(self) -> dict[str, Any]:
        """The seconds that the program itself measured, forecasts with them, its imports not."""
        return {"seconds": self.answer.seconds}


def estimator_row(name: str, make: Callable[..., Face], starts: Starts) -> Row:
    """The row of one of our estimators with its defaults; `make` takes `random_state`."""

    def fit(given: Snapshots, question: Question, seed: int) -> Fitted:
        del question
        return FittedFace(make(random_state=seed).fit(given))

    return Row(name, fit, starts)


def rival_row(name: str, starts: Starts) -> Row:
    """The row of a program in `benchmarks/rivals`."""

    def fit(given: Snapshots, question: Question, seed: int) -> Fitted:
        answer = ask(
            rival(name), given, question.times, n=question.n, seed=seed, starts=question.starts
        )
        return Answered(answer)

    return Row(name, fit, starts)


_PROCESS = {INTERPOLATE: ("bridge", "previous"), FORECAST: ("previous", "initial")}
_FREE = {INTERPOLATE: ("previous",), FORECAST: ("previous",)}
_EVERYWHERE = {INTERPOLATE: (NO_START,), FORECAST: (NO_START,)}
_BETWEEN = {INTERPOLATE: (NO_START,)}
_BEYOND = {FORECAST: (NO_START,)}

_TRIVIAL = (
    estimator_row("persistence", Persistence, _EVERYWHERE),
    estimator_row("midpoint", Midpoint, _BETWEEN),
    estimator_row("continuation", Continuation, _BEYOND),
)
_OURS = (
    estimator_row("itofit", FokkerPlanckProcess, _PROCESS),
    *(
        estimator_row(name, functools.partial(FokkerPlanckProcess, solver=name), _PROCESS)
        for name in SOLVERS
    ),
)
_PAPER = (
    estimator_row("collocation", Collocation, _PROCESS),
    estimator_row("potential-rnn", PotentialRNN, _PROCESS),
    estimator_row("legend", Legend, _PROCESS),
)
_RIVALS = (
    rival_row("otcfm", _FREE),
    rival_row("sf2m", _FREE),
    rival_row("moscot", {INTERPOLATE: ("previous",)}),
)

ROWS = {row.name: row for row in (*_TRIVIAL, *_OURS, *_PAPER, *_RIVALS)}
TRIVIAL = tuple(row.name for row in _TRIVIAL)
RIVALS = tuple(row.name for row in _RIVALS)
GROUPS = {
    "trivial": TRIVIAL,
    "default": (*TRIVIAL, "itofit"),
    "ours": tuple(row.name for row in _OURS),
    "paper": tuple(row.name for row in _PAPER),
    "rivals": RIVALS,
    "all": tuple(ROWS),
}
