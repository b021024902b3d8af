"""Full fits of the paper's systems with the default preset: minutes each on two cores."""

import jax
import numpy as np
import pytest

from itofit import FokkerPlanckProcess, known_system
from itofit.metrics import coordinate_W1


@pytest.mark.slow
@pytest.mark.parametrize(("name", "sigma"), [("syn1", 1.0), ("syn2", 4.0), ("syn3", 1.0)])
def test_default_preset_halves_the_error_of_persistence(name, sigma):
    """At the two later test times, where the law has moved on, the forecast is at most half as far as standing still.

    Scored on 8000 points of the truth, whose own sampling error (about 1 % of a cloud's sd) is far below the bound.
    """
    system = known_system(name)
    snapshots = system.observe(1200, system.train_times, key=jax.random.key(11))
    model = FokkerPlanckProcess(sigma, dt=system.dt, random_state=0).fit(snapshots)
    assert model.outcome_.is_good
    start = system.sample_initial(8000, jax.random.key(12))
    truths = system.push(start, system.test_times, jax.random.key(13))
    forecast = model.forecast(system.test_times, n_samples=8000)
    for time, truth, cloud in list(zip(system.test_times, truths, forecast.clouds, strict=True))[1:]:
        before = snapshots.clouds[int(np.searchsorted(snapshots.times, time)) - 1]
        assert coordinate_W1(cloud, np.asarray(truth)) < 0.5 * coordinate_W1(before, np.asarray(truth))
