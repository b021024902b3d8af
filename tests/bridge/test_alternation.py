"""No pass raises what passes minimise: the distance from the coupled paths to the process.

    KL(Q | P) = KL(pi | alpha p_T),    pi the entropic plan under the process itself

of a linear drift and a held noise in one coordinate, where p_T is Gaussian and known, pins are
exact, and the regression has two coefficients: then passes are exact steps of an alternating
minimisation but for what is drawn.
"""

from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import logsumexp

import itofit
from itofit.bridge.iteration import Batching, Coupler
from itofit.bridge.regression import Regression, Strengths
from itofit.bridge.structures import AbstractFree
from itofit.process.features import affine
from itofit.snapshots.clouds import Snapshots

N = 80
TIMES = (0.0, 0.4, 1.0)
SIGMA = 0.6
N_PASSES = 6


@dataclass(frozen=True, eq=False)
class Affine(AbstractFree):
    """A line, by least squares."""

    name = "affine"

    def fitted(self, sums, before):
        del before
        W = np.linalg.solve(sums.gram, sums.cross)
        return Regression(W, Strengths.first(np.full(2, -1), 1))


@pytest.fixture(scope="module")
def problem():
    """dX = -1.5 (X - 1) dt + .6 dW from N(-2, 1), fresh draws of the exact law."""
    rng = np.random.default_rng(0)
    clouds = []
    for t in TIMES:
        kept = np.exp(-1.5 * t)
        variance = kept**2 + SIGMA**2 * (1.0 - kept**2) / 3.0
        clouds.append(1.0 - 3.0 * kept + np.sqrt(variance) * rng.standard_normal((N, 1)))
    solver = itofit.Bridge(n_features=2, n_passes=1)
    model = itofit.FokkerPlanckProcess(SIGMA, solver=solver, random_state=0)
    return model.fit(Snapshots.from_arrays(clouds, TIMES)).solution_.problem


def distance(problem, process):
    """KL(Q | P), summed over gaps, by a plan that is found to rounding."""
    rate = float(jax.jacfwd(process.drift)(jnp.zeros(1))[0, 0])
    push = float(process.drift(jnp.zeros(1))[0])
    noise = float(process.diffusion(jnp.zeros(1))[0, 0])
    total = 0.0
    snapshots = problem.snapshots
    for n in range(len(snapshots) - 1):
        gap = snapshots.times[n + 1] - snapshots.times[n]
        x, y = (snapshots.clouds[k][:, 0] for k in (n, n + 1))
        kept = np.exp(rate * gap)
        mean = kept * x + push * np.expm1(rate * gap) / rate
        variance = noise**2 * np.expm1(2.0 * rate * gap) / (2.0 * rate)
        cost = 0.5 * (y - mean[:, None]) ** 2 / variance + 0.5 * np.log(variance)
        f = np.zeros(len(x))
        for _ in range(1000):
            h = -logsumexp(f[:, None] - cost - np.log(len(x)), axis=0)
            f = -logsumexp(h - cost - np.log(len(y)), axis=1)
        plan = np.exp(f[:, None] + h - cost) / (len(x) * len(y))
        total += float(np.sum(plan * (f[:, None] + h)))
    return total


def test_no_pass_raises_the_distance_to_the_process(problem):
    """Places are drawn, 64 of them from every point: of the first decrease 2 % is left to that, and
    to the ten steps of a gap.
    """
    dictionary = affine(1)
    coupler = Coupler(problem, Affine(dictionary, 1), Batching(n_points=N, n_draws=64))
    passes = [coupler.iterate(k).process for k in range(1, N_PASSES + 1)]
    distances = [distance(problem, process) for process in passes]
    first = distances[0] - distances[1]
    assert first > 0.0
    assert all(np.diff(distances) < 0.02 * first)
    assert distances[-1] < distances[1]
