"""Error bars of a whole fit."""

from dataclasses import replace

import jax.numpy as jnp
import numpy as np
import pytest

from itofit import FokkerPlanckProcess, InputError
from itofit.process import FeatureDrift
from itofit.process.features import monomials
from itofit.trust.bands import N_SIMULATED, bands
from itofit.trust.goodness import goodness_of_fit
from itofit.trust.posterior import DriftDraws, drift_draws

pytestmark = pytest.mark.slow


def test_at_the_first_snapshot_a_band_is_the_standard_error_of_its_mean(model, data):
    """No drift has acted: what is left is sd / sqrt(n), known from 50 draws to sqrt(1 / 100); 4 of
    these.
    """
    answer = model.bands([0.0, 0.6])
    x = data.clouds[0]
    np.testing.assert_allclose(answer.mean[0], x.mean(axis=0), atol=1e-5)
    np.testing.assert_allclose(
        answer.mean_std[0], x.std(axis=0) / np.sqrt(len(x)), rtol=4 / np.sqrt(2 * N_SIMULATED)
    )
    assert np.all(answer.mean_std[1] > 0.0)
    low, high = answer.mean_interval()
    np.testing.assert_allclose(high - low, 2 * 1.959964 * answer.mean_std)
    assert answer.quantile.shape == (2, 3, 2)
    assert np.all(np.diff(answer.quantile, axis=1) > 0)
    assert len(answer.to_records()) == 2 * 2 * 4


def test_the_estimate_of_a_band_is_the_forecast(model):
    """The band's mean has 2400 chains and the forecast 300: they differ by the noise of the
    smaller, 4 of its sds.
    """
    mean = model.bands([0.6]).mean[0]
    cloud = model.predict(0.6)
    noise = cloud.std() / np.sqrt(300)
    np.testing.assert_allclose(mean, cloud.mean(axis=0), atol=4 * noise)


def test_the_drift_is_known_best_where_there_are_points(model, data):
    inside = model.drift_std(data.clouds[1])
    assert inside.shape == (300, 2)
    far = model.drift_std(data.clouds[1].mean(axis=0) + 20.0)
    assert np.all(far > np.median(inside, axis=0))


def test_error_bars_survive_saving(model, data, tmp_path):
    model.save(tmp_path / "run")
    loaded = FokkerPlanckProcess.load(tmp_path / "run")
    x = data.clouds[1]
    np.testing.assert_allclose(loaded.drift_std(x), model.drift_std(x), rtol=1e-4)
    assert loaded.goodness_of_fit().p_value == pytest.approx(model.goodness_of_fit().p_value)


def test_the_fit_of_a_true_model_is_not_rejected(model):
    assert not model.goodness_of_fit().rejects(0.01)


def test_what_has_no_error_bars_says_so(model, as_trained):
    single = as_trained(model.solution_)
    with pytest.raises(InputError, match="n_members"):
        drift_draws(single)
    with pytest.raises(InputError, match="moments"):
        goodness_of_fit(single)
    interrupted = replace(model.solution_, evidence=None)
    with pytest.raises(InputError, match="ended"):
        drift_draws(interrupted)
    with pytest.raises(InputError, match="ended"):
        goodness_of_fit(interrupted)
    with pytest.raises(InputError, match="quantiles"):
        model.bands([0.5], quantiles=[1.5])
    with pytest.raises(InputError, match="level"):
        model.bands([0.5], level=95.0)


def test_at_the_snapshot_it_starts_from_nothing_has_happened_yet(model, data):
    """No step is taken at all."""
    mean = model.bands([data.times[1]], start="previous").mean[0]
    np.testing.assert_allclose(mean, data.clouds[1].mean(axis=0), atol=1e-5)


def test_draws_that_run_to_infinity_are_refused(model):
    everywhere = np.full(2, np.inf)
    cube = FeatureDrift(monomials([(0, 0, 0)], -everywhere, everywhere).features, jnp.zeros((1, 2)))
    coefficients = np.full((2, 1, 2), 50.0)
    streams = model.solution_.problem.streams
    draws = DriftDraws.of_coefficients(cube, coefficients, np.zeros((2, 0)), streams)
    solution = replace(model.solution_)
    solution.remembered("drift_draws", lambda: draws)
    with pytest.raises(InputError, match="infinity"), np.errstate(all="ignore"):
        bands(solution, [5.0], [0.5])
