"""FokkerPlanckProcess as users and scikit-learn meet it."""

import jax
import numpy as np
import pytest
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV, ShuffleSplit

from itofit import Adversarial, FokkerPlanckProcess, InputError, Snapshots, known_system

SOLVER = Adversarial(
    drift_form="skip",
    drift_width=8,
    drift_depth=1,
    eval_every=5,
    n_iter=10,
    batch_size=32,
    warm_start=None,
)


def small(sigma=0.7, dt=0.1, device="auto"):
    return FokkerPlanckProcess(sigma, dt=dt, solver=SOLVER, device=device, random_state=0)


@pytest.fixture(scope="module")
def data():
    return known_system("ou").observe(60, [0.0, 0.3, 1.0], key=jax.random.key(0))


@pytest.fixture(scope="module")
def model(data):
    return small().fit(data)


def test_clone_and_parameters(model):
    copy = clone(model)
    assert copy.get_params() == model.get_params()
    assert not hasattr(copy, "snapshots_")
    with pytest.raises(NotFittedError):
        copy.predict(0.5)
    with pytest.raises(NotFittedError):
        copy.drift(np.zeros(2))


def test_rows_and_snapshots_give_the_same_fit(data, model):
    X, t, _ = data.to_rows()
    np.testing.assert_array_equal(small().fit(X, t).predict(0.5), model.predict(0.5))


@pytest.mark.slow
def test_grid_search(data):
    X, t, _ = data.to_rows()
    # Every other count of points would be compiled anew.
    once = ShuffleSplit(1, test_size=0.5, random_state=0)
    search = GridSearchCV(small(), {"sigma": [0.5, 0.7]}, cv=once, refit=False).fit(X, t)
    assert search.best_params_["sigma"] in (0.5, 0.7)
    assert np.all(np.isfinite(search.cv_results_["mean_test_score"]))


def test_predict_and_forecast(model, data):
    assert model.predict(0.5).shape == (60, 2)
    assert model.predict(0.5, n_samples=17).shape == (17, 2)
    later = model.forecast([5.0, 0.1, 0.5])
    assert isinstance(later, Snapshots)
    assert later.times.tolist() == [0.1, 0.5, 5.0]
    np.testing.assert_array_equal(model.predict(0.5), model.predict(0.5))
    np.testing.assert_allclose(
        np.sort(model.predict(0.0), axis=0), np.sort(data.clouds[0], axis=0), rtol=1e-12
    )
    previous = model.predict(0.3, start="previous")
    np.testing.assert_allclose(
        np.sort(previous, axis=0), np.sort(data.clouds[1], axis=0), rtol=1e-12
    )


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda m: m.predict(-1.0), "first snapshot"),
        (lambda m: m.predict(0.5, start="middle"), "start"),
        (lambda m: m.predict(0.5, n_samples=1), "n_samples"),
        (lambda m: m.forecast([]), "one or more"),
        (lambda m: m.forecast([np.nan]), "finite"),
        (lambda m: m.drift(np.zeros(3)), "states of shape"),
        (lambda m: m.fit(np.zeros((4, 2))), "points X with times t"),
    ],
)
def test_bad_calls(model, call, message):
    with pytest.raises(InputError, match=message):
        call(model)


def test_fields_at_one_state_and_at_many(model):
    states = np.array([[0.0, 0.0], [1.0, -1.0]])
    np.testing.assert_allclose(model.drift(states)[1], model.drift(states[1]), rtol=1e-5)
    np.testing.assert_allclose(model.diffusion(states[0]), 0.7 * np.eye(2), rtol=1e-6)
    np.testing.assert_allclose(
        model.covariance(states), np.stack([0.49 * np.eye(2)] * 2), rtol=1e-6
    )
    np.testing.assert_allclose(
        model.process_.drift(jax.numpy.asarray(states[1])), model.drift(states[1]), rtol=1e-4
    )


def test_sample_paths(model, data):
    paths = model.sample_paths(5, times=[0.0, 0.2, 0.4])
    assert paths.shape == (5, 3, 2)
    starts = {tuple(row) for row in np.round(data.clouds[0], 6)}
    assert all(tuple(row) in starts for row in np.round(paths[:, 0], 6))


def test_save_and_load(model, tmp_path):
    model.save(tmp_path / "run")
    again = FokkerPlanckProcess.load(tmp_path / "run")
    np.testing.assert_array_equal(again.predict(0.5), model.predict(0.5))
    np.testing.assert_array_equal(again.drift([0.1, 0.2]), model.drift([0.1, 0.2]))
    assert again.dt_ == model.dt_
    assert again.outcome_ is model.outcome_
    assert again.seed_ == model.seed_
    assert again.get_params() == model.get_params()
    np.testing.assert_array_equal(again.history_.loss, model.history_.loss)
    with pytest.raises(InputError, match="overwrite"):
        model.save(tmp_path / "run")
    model.save(tmp_path / "run", overwrite=True)


@pytest.mark.slow
def test_a_function_as_sigma_fits_but_is_not_saved(data, tmp_path):
    model = small(sigma=lambda x: 0.7 * jax.numpy.ones(2)).fit(data)
    np.testing.assert_allclose(model.diffusion(np.ones(2)), 0.7 * np.eye(2), rtol=1e-5)
    with pytest.raises(InputError, match="written without code"):
        model.save(tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_units_and_offsets_do_not_cost_digits(data, model):
    """Coordinates whose spread is below float32's spacing at their offset still give a forecast of
    that spread.
    """
    scale = np.array([1000.0, 1e-3])
    shift = np.array([5e5, 1e6])
    assert np.spacing(np.float32(shift[1])) > 10 * scale[1]
    in_other_units = Snapshots.from_arrays([scale * x + shift for x in data.clouds], data.times)
    cloud = (small(sigma=0.7 * scale).fit(in_other_units).predict(0.5) - shift) / scale
    expected = model.predict(0.5)
    # Two fits of 60 shuffled points: means differ by 4 sqrt(2 / 60) sd at most, sds by half of
    # that.
    sd = expected.std(axis=0)
    assert np.all(np.abs(cloud.mean(axis=0) - expected.mean(axis=0)) < 0.73 * sd)
    assert np.all(np.abs(cloud.std(axis=0) - sd) < 0.37 * sd)


@pytest.mark.slow
def test_auto_dt_scales_with_time(data):
    slow = Snapshots.from_arrays(data.clouds, 100.0 * data.times)
    quick = small(dt="auto").fit(data)
    lazy = small(dt="auto", sigma=0.07).fit(slow)
    np.testing.assert_allclose(lazy.dt_, 100.0 * quick.dt_, rtol=1e-6)


def test_missing_gpu_is_an_error(data):
    if jax.default_backend() != "cpu":
        pytest.skip("this machine has an accelerator")
    with pytest.raises(InputError, match="gpu that jax can see"):
        small(device="gpu").fit(data)
