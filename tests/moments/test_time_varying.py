"""A drift that changes with time: a cloud that goes out and comes back the way it went, which no
other drift can do.
"""

import jax.numpy as jnp
import numpy as np
import pytest

from itofit import Adversarial, FitWarning, FokkerPlanckProcess, InputError, Moments, Snapshots

# dx0 = PUSH (1 - 2 t) dt + SIGMA dW0 and dx1 = -x1 dt + SIGMA dW1, independent particles in every
# snapshot.
PUSH = 8.0
SIGMA = 0.5
WIDTH = 0.4
TIMES = (0.0, 0.25, 0.5, 0.75, 1.0)
N = 400


def cloud(t, n, seed):
    """The law at time t: mean PUSH (t - t^2) and variance WIDTH^2 + SIGMA^2 t; the other coordinate
    relaxes.
    """
    rng = np.random.default_rng([seed, round(1000 * t)])
    decay = np.exp(-2.0 * t)
    sds = [
        np.sqrt(WIDTH**2 + SIGMA**2 * t),
        np.sqrt(WIDTH**2 * decay + SIGMA**2 * (1.0 - decay) / 2.0),
    ]
    return rng.normal(size=(n, 2)) * sds + [PUSH * (t - t * t), 0.0]


@pytest.fixture(scope="module")
def snapshots():
    return Snapshots.from_arrays([cloud(t, N, 0) for t in TIMES], TIMES)


@pytest.fixture(scope="module")
def model(snapshots):
    """One seed in three ends elsewhere: at a slope of -2 / dt, whose Euler chain returns after two
    steps, and says so (halving dt moves it by many sds).
    """
    return FokkerPlanckProcess(
        SIGMA, dt=0.025, time_varying=True, solver="moments", random_state=1
    ).fit(snapshots)


def test_the_drift_is_that_of_the_time(model):
    """Within 4 of the fit's own standard errors, which are those of means of 400 points, and with
    their noise besides: a slope between two snapshots is known to sqrt(2 (WIDTH^2 + SIGMA^2) / N) /
    0.25 = .18, one of four of these.
    """
    assert model.outcome_.is_good
    for t in (0.0, 0.3, 0.6, 1.0):
        x = np.asarray([PUSH * (t - t * t), 0.0])
        error = model.drift(x, t) - [PUSH * (1.0 - 2.0 * t), 0.0]
        assert np.all(np.abs(error) < 4.0 * model.drift_std(x, t))
        assert np.all(np.abs(error) < 4.0 * 0.18)
    assert model.goodness_of_fit().p_value > 1e-3


@pytest.mark.filterwarnings("ignore:halving dt")
@pytest.mark.slow
def test_a_drift_without_a_clock_is_contradicted():
    few = Snapshots.from_arrays([cloud(t, 150, 0) for t in TIMES], TIMES)
    solver = Moments(n_single=4, n_pair=4, n_draws=2)
    autonomous = FokkerPlanckProcess(SIGMA, dt=0.025, solver=solver, random_state=0)
    with pytest.warns(FitWarning, match="time_varying=True"):
        autonomous.fit(few)
    assert autonomous.goodness_of_fit().p_value < 1e-6


def test_it_forecasts_a_time_nobody_measured(model):
    """Carried from the first snapshot. The mean is known to that of its 400 points and of the
    drift: 4 of both.
    """
    truth = cloud(0.6, 100_000, 1).mean(axis=0)
    error = np.sqrt(WIDTH**2 / N + (0.6 * 0.18) ** 2)
    np.testing.assert_allclose(model.predict(0.6).mean(axis=0), truth, atol=4.0 * error)
    paths = model.sample_paths(50, [0.0, 0.5, 1.0])
    assert np.all(paths[:, 1, 0] > paths[:, 2, 0])
    bands = model.bands([0.6])
    np.testing.assert_allclose(bands.mean[0], truth, atol=4.0 * bands.mean_std[0].max())


def test_after_the_last_snapshot_the_drift_stays_as_it_is_there(model):
    x = np.asarray([[0.0, 0.0], [0.3, -0.2]])
    np.testing.assert_array_equal(model.drift(x, 1.0), model.drift(x, 7.0))
    np.testing.assert_allclose(model.drift(x, [0.0, 1.0])[1], model.drift(x[1], 1.0), rtol=1e-6)
    at_a_time = model.process_.at(0.3).drift(jnp.asarray(x[0], dtype=float))
    np.testing.assert_allclose(at_a_time, model.drift(x[0], 0.3), rtol=1e-5)


def test_a_saved_fit_is_the_same(model, tmp_path):
    model.save(tmp_path)
    again = FokkerPlanckProcess.load(tmp_path)
    x = np.asarray([0.5, 0.1])
    np.testing.assert_array_equal(again.drift(x, 0.4), model.drift(x, 0.4))
    np.testing.assert_array_equal(again.predict(0.6), model.predict(0.6))
    assert "chi-squared" in again.reliability()


def test_what_needs_a_time_or_one_drift_for_all_times_says_so(model):
    with pytest.raises(InputError, match="changes with time"):
        model.drift(np.zeros(2))
    with pytest.raises(InputError, match=r"shape \(3,\) for 2 states"):
        model.drift(np.zeros((2, 2)), [0.0, 0.1, 0.2])
    for ask in (
        model.equations,
        model.identifiability,
        model.step_error,
        lambda: model.next_time([0.6], 2.0),
    ):
        with pytest.raises(InputError, match="same at all times"):
            ask()


@pytest.mark.parametrize(
    "solver",
    [
        "adversarial",
        Adversarial(n_members=2),
        Moments(path="observed"),
        Moments(dictionary=np.cos),
    ],
)
def test_solvers_that_know_no_time_refuse(snapshots, solver):
    with pytest.raises(InputError, match="changes with time"):
        FokkerPlanckProcess(time_varying=True, solver=solver).fit(snapshots)


def test_many_dimensions_are_refused():
    rng = np.random.default_rng(0)
    many = Snapshots.from_arrays([rng.normal(size=(50, 16)) for _ in range(3)], [0.0, 1.0, 2.0])
    with pytest.raises(InputError, match="fewer than 16 coordinates"):
        FokkerPlanckProcess(time_varying=True, solver="moments").fit(many)
