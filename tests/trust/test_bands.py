"""Error bars of a whole fit."""

import copy

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from itofit import FokkerPlanckProcess, InputError
from itofit.process import ConstantDiffusion, FeatureDrift
from itofit.process.features import monomials
from itofit.snapshots import Scaling
from itofit.trust.bands import N_SIMULATED, forecast_bands
from itofit.trust.posterior import DriftDraws

pytestmark = pytest.mark.slow


def test_at_the_first_snapshot_a_band_is_the_standard_error_of_its_mean(model, data):
    """No drift has acted: what is left is sd / sqrt(n), known from 50 draws to sqrt(1 / 100); 4 of
    these.
    """
    bands = model.bands([0.0, 0.6])
    x = data.clouds[0]
    np.testing.assert_allclose(bands.mean[0], x.mean(axis=0), atol=1e-5)
    np.testing.assert_allclose(
        bands.mean_std[0], x.std(axis=0) / np.sqrt(len(x)), rtol=4 / np.sqrt(2 * N_SIMULATED)
    )
    assert np.all(bands.mean_std[1] > 0.0)
    low, high = bands.mean_interval()
    np.testing.assert_allclose(high - low, 2 * 1.959964 * bands.mean_std)
    assert bands.quantile.shape == (2, 3, 2)
    assert np.all(np.diff(bands.quantile, axis=1) > 0)
    assert len(bands.to_records()) == 2 * 2 * 4


def test_the_estimate_of_a_band_is_the_forecast(model):
    """The band's mean has 2400 chains and the forecast 300: they differ by the noise of the
    smaller, 4 of its sds.
    """
    bands = model.bands([0.6])
    cloud = model.predict(0.6)
    np.testing.assert_allclose(
        bands.mean[0], cloud.mean(axis=0), atol=4 * cloud.std() / np.sqrt(300)
    )


def test_the_drift_is_known_best_where_there_are_points(model, data):
    inside = model.drift_std(data.clouds[1])
    assert inside.shape == (300, 2)
    far = model.drift_std(data.clouds[1].mean(axis=0) + 20.0)
    assert np.all(far > np.median(inside, axis=0))


def test_error_bars_survive_saving(model, data, tmp_path):
    model.save(tmp_path / "run")
    loaded = FokkerPlanckProcess.load(tmp_path / "run")
    np.testing.assert_allclose(
        loaded.drift_std(data.clouds[1]), model.drift_std(data.clouds[1]), rtol=1e-4
    )
    assert loaded.goodness_of_fit().p_value == pytest.approx(model.goodness_of_fit().p_value)


def test_the_fit_of_a_true_model_is_not_rejected(model):
    assert not model.goodness_of_fit().rejects(0.01)


def test_what_has_no_error_bars_says_so(data, model):
    single = copy.copy(model)
    single.solver_ = "adversarial"
    single.evidence_ = None
    single._drawn = None
    with pytest.raises(InputError, match="n_members"):
        single.drift_std(data.clouds[0])
    with pytest.raises(InputError, match="moments"):
        single.goodness_of_fit()
    with pytest.raises(InputError, match="quantiles"):
        model.bands([0.5], quantiles=[1.5])
    with pytest.raises(InputError, match="level"):
        model.bands([0.5], level=95.0)


def test_at_the_snapshot_it_is_grown_from_nothing_has_happened_yet(model, data):
    """No step is taken at all."""
    bands = model.bands([data.times[1]], start="previous")
    np.testing.assert_allclose(bands.mean[0], data.clouds[1].mean(axis=0), atol=1e-5)


def test_draws_that_run_to_infinity_are_refused(data):
    everywhere = np.full(2, np.inf)
    cube = FeatureDrift(monomials([(0, 0, 0)], -everywhere, everywhere).features, jnp.zeros((1, 2)))
    draws = DriftDraws.of_coefficients(cube, np.full((2, 1, 2), 50.0), np.zeros((2, 0)), seed=0)
    how = {"quantiles": [0.5], "level": 0.95, "start": "initial", "key": jax.random.key(0)}
    where = (Scaling.identity(2), data, np.asarray([5.0]), 0.1)
    with pytest.raises(InputError, match="infinity"), np.errstate(all="ignore"):
        forecast_bands(draws, ConstantDiffusion(jnp.eye(2)), *where, **how)
