"""One fit that several files ask questions of."""

import jax
import pytest

from itofit import FokkerPlanckProcess, known_system


@pytest.fixture(scope="session")
def data():
    return known_system("ou").observe(300, [0.0, 0.3, 1.0], key=jax.random.key(0))


@pytest.fixture(scope="session")
def model(data):
    return FokkerPlanckProcess(0.7, dt=0.05, solver="moments", random_state=0).fit(data)
