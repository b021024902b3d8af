"""One fit that several files ask questions of, and the same as another solver would return it."""

import jax
import numpy as np
import pytest

from itofit import FokkerPlanckProcess, known_system
from itofit.adversarial.solution import AdversarialSolution
from itofit.solution import TrainingHistory


@pytest.fixture(scope="session")
def data():
    return known_system("ou").observe(300, [0.0, 0.3, 1.0], key=jax.random.key(0))


@pytest.fixture(scope="session")
def model(data):
    return FokkerPlanckProcess(0.7, dt=0.05, solver="moments", random_state=0).fit(data)


@pytest.fixture(scope="session")
def as_trained():
    """A function: the process of a solution as a single run of the adversarial solver has it."""
    nothing = np.zeros(0)
    history = TrainingHistory(nothing, nothing, nothing, nothing, nothing)

    def trained(solution):
        return AdversarialSolution(
            problem=solution.problem,
            process=solution.process,
            outcome=solution.outcome,
            history=history,
            n_iter=0,
            seconds=0.0,
        )

    return trained
