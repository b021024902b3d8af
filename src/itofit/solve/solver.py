"""The interface of a solver: its options as a frozen object, and how it solves a problem.

    solution = solver.solve(problem)

A further solver is one class of this kind and one line in `itofit.solvers`.
"""

import abc
from collections.abc import Sequence
from dataclasses import fields
from typing import Any, ClassVar

import numpy as np

from itofit.problem import Problem, Streams
from itofit.snapshots.clouds import Snapshots
from itofit.snapshots.scaling import Scaling
from itofit.solution import Solution
from itofit.solve.checkpoint import CheckpointFolder
from itofit.solve.listeners import Listener


class AbstractSolver(abc.ABC):
    """What finds the process of a problem.

    - `name`: short for the solver with its defaults, in Python and on the command line.
    - `prefers_cpu`: whether its computations are faster on a CPU than on a GPU.
    - `presets`: options that go together, by name; "default" changes none.
    """

    name: ClassVar[str]
    prefers_cpu: ClassVar[bool]
    presets: ClassVar[dict[str, dict[str, Any]]]

    def __repr__(self) -> str:
        options: Any = fields(self)  # pyright: ignore[reportArgumentType]
        chosen = [
            f"{option.name}={getattr(self, option.name)!r}"
            for option in options
            if getattr(self, option.name) != option.default
        ]
        return f"{type(self).__name__}({', '.join(chosen)})"

    @abc.abstractmethod
    def scaling(self, snapshots: Snapshots, streams: Streams) -> Scaling:
        """The units it works in."""

    @abc.abstractmethod
    def solve(
        self,
        problem: Problem,
        *,
        listeners: Sequence[Listener] = (),
        checkpoints: CheckpointFolder | None = None,
    ) -> Solution:
        """The process of this problem."""

    @abc.abstractmethod
    def solve_again(
        self,
        solution: Solution,
        problem: Problem,
        *,
        listeners: Sequence[Listener] = (),
        checkpoints: CheckpointFolder | None = None,
    ) -> Solution:
        """The process of the same problem with a shorter step, from the solution before it."""

    @abc.abstractmethod
    def solve_together(self, problems: Sequence[Problem]) -> list[Solution]:
        """The processes of several problems, in one batch where the solver can."""

    @abc.abstractmethod
    def restore(
        self, problem: Problem, values: dict[str, Any], arrays: dict[str, np.ndarray]
    ) -> Solution:
        """A solution of this solver from what `values` and `arrays` of it gave."""
