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
from itofit.simulate.step_size import CLOSE
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
    - `tolerance`: a step that is ours is halved while that moves a mean or sd by more, in sds.
    - `most_halvings`: how often at most.
    """

    name: ClassVar[str]
    prefers_cpu: ClassVar[bool]
    tolerance: ClassVar[float] = CLOSE
    most_halvings: ClassVar[int] = 4
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
        """The units the solver works in.

        Parameters
        ----------
        snapshots : Snapshots
            In the user's units.
        streams : Streams
            The random streams of the fit.

        Returns
        -------
        Scaling
            Fitted on what the solver may learn from.
        """

    @abc.abstractmethod
    def solve(
        self,
        problem: Problem,
        *,
        listeners: Sequence[Listener] = (),
        checkpoints: CheckpointFolder | None = None,
    ) -> Solution:
        """The process of a problem.

        Parameters
        ----------
        problem : Problem
            What is asked.
        listeners : sequence of callables
            Called with a `Progress` as the run goes.
        checkpoints : CheckpointFolder, optional
            Where the run is saved as it goes; a solver that is done in seconds saves none.

        Returns
        -------
        Solution
            The process and what later questions need.
        """

    @abc.abstractmethod
    def solve_again(
        self,
        solution: Solution,
        problem: Problem,
        *,
        listeners: Sequence[Listener] = (),
        checkpoints: CheckpointFolder | None = None,
    ) -> Solution:
        """The solution of the same problem with a shorter step, which a fit may not depend on.

        Parameters
        ----------
        solution : Solution
            With the step before.
        problem : Problem
            With the shorter step.
        listeners : sequence of callables
            As of `solve`.
        checkpoints : CheckpointFolder, optional
            As of `solve`.

        Returns
        -------
        Solution
            Its seconds include those of the solution before.
        """

    @abc.abstractmethod
    def solve_together(self, problems: Sequence[Problem]) -> list[Solution]:
        """The processes of several problems, in one batch where the solver can.

        Parameters
        ----------
        problems : sequence of Problem
            Of equal times, counts and steps where they are a batch.

        Returns
        -------
        list of Solution
            One for each problem.
        """

    @abc.abstractmethod
    def restore(
        self, problem: Problem, values: dict[str, Any], arrays: dict[str, np.ndarray]
    ) -> Solution:
        """A solution of this solver, as it was saved.

        Parameters
        ----------
        problem : Problem
            That it solved.
        values : dict
            What `Solution.values` gave, and how the run ended.
        arrays : dict of arrays
            What `Solution.arrays` gave.

        Returns
        -------
        Solution
            The same again.
        """
