"""A small problem in raw units under the probes of the moments solver, with any noise."""

import pytest

from itofit.moments.options import MomentsOptions
from itofit.moments.probing import Probing
from itofit.problem import Problem, Streams
from itofit.snapshots.scaling import Scaling


@pytest.fixture(scope="session")
def probing_of():
    """A function: the probing of snapshots that are not standardised, with the noise given."""

    def posed(snapshots, diffusion, dt, options=None, seed=0):
        scaling = Scaling.identity(snapshots.n_dims)
        problem = Problem.pose(snapshots, 1.0, dt, scaling=scaling, streams=Streams(seed))
        return Probing.of(problem.with_noise(diffusion), options or MomentsOptions())

    return posed
