"""What a fit owes to sigma and to dt, against closed forms."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.stats import norm, qmc

from itofit import FokkerPlanckProcess, InputError, Snapshots
from itofit.process import ConstantDiffusion, FunctionDrift, ItoProcess
from itofit.snapshots.clouds import Snapshot
from itofit.trust.sensitivity import sensitivity
from itofit.trust.steps import (
    SlopeBounds,
    drift_bound,
    forecast_step_error,
    slopes_over,
    step_error,
    telling_times,
)

pytestmark = pytest.mark.slow

TIMES = (0.0, 0.5, 1.0)


def cloud(time: float) -> np.ndarray:
    """dX = -X/2 dt + dW in its stationary law, and dY = -Y dt + dW from N(6, 1); 256 points as even
    as can be.
    """
    z = norm.ppf(qmc.Sobol(2, seed=round(10 * time)).random(256))
    mean = 6.0 * np.exp(-time)
    sd = np.sqrt(0.5 + 0.5 * np.exp(-2.0 * time))
    return np.column_stack([z[:, 0], mean + sd * z[:, 1]])


@pytest.fixture(scope="module")
def model():
    snapshots = Snapshots.from_arrays([cloud(time) for time in TIMES], TIMES)
    return FokkerPlanckProcess([1.0, 1.0], dt=0.05, solver="moments", random_state=0).fit(snapshots)


@pytest.fixture(scope="module")
def table(model):
    return model.sensitivity(sigma=[[1.2, 1.0], [1.0, 2.0]])


def test_a_stationary_cloud_asks_for_a_rate_as_the_square_of_sigma(model, table):
    """Its variance is sigma^2 / (2 rate): 1.2 times the noise is 1.44 times the rate, of this
    coordinate alone.

    Beside the Euler step (rate dt / 2 = 1.3 %) the simulated chains have their own noise: 10 %
    allow for both.
    """
    x = np.concatenate(model.snapshots_.clouds)
    g = model.drift(x) / model.scaling_.sd
    size = np.sqrt(np.mean(g**2, axis=0))
    assert table.rows[1].drift == pytest.approx(0.44 * size[0] / np.linalg.norm(size), rel=0.1)


def test_the_fitted_sigma_is_the_first_row_and_changes_nothing(model, table):
    first = table.rows[0]
    assert first.sigma == [1.0, 1.0]
    assert first.drift == 0.0
    np.testing.assert_array_equal(first.mean, 0.0)
    assert first.p_value == model.goodness_of_fit().p_value


@pytest.mark.parametrize("full", [False, True])
def test_a_fit_with_the_same_sigma_is_the_same_fit(model, full):
    """From the start bit for bit; from the solution, as far as a step that gains a thousandth is
    not taken.
    """
    again = model.sensitivity(sigma=[[1.0, 1.0]], full=full).rows[1]
    assert again.drift <= (0.0 if full else 0.02)
    assert again.reduced_chi2 == pytest.approx(model.solution_.evidence.reduced_chi2, rel=0.01)


def test_snapshots_exclude_a_sigma_only_where_they_can(table):
    """A stationary cloud agrees with any noise; one that moves shows its rate, and so the noise."""
    assert table.excluded(0.01) == [[1.0, 2.0]]


def test_a_sensitivity_prints_a_line_for_every_sigma(model, table):
    np.testing.assert_allclose(table.times, [0.5, 1.0, 1.5])
    shown = str(table)
    assert "(1 1) (fitted)" in shown
    assert "same terms" in shown
    assert len(table.to_records()) == 3 * 3 * 2
    many = Snapshots.from_arrays([np.arange(3.0)[:, None]] * 21, np.arange(21.0))
    np.testing.assert_allclose(telling_times(many), [1.0, 7.0, 14.0, 20.0, 30.0])


def test_sensitivity_survives_saving(model, table, tmp_path):
    model.save(tmp_path / "run")
    loaded = FokkerPlanckProcess.load(tmp_path / "run").sensitivity(sigma=[[1.2, 1.0]], times=[1.0])
    assert loaded.rows[1].drift == pytest.approx(table.rows[1].drift, rel=1e-3)
    assert loaded.rows[1].p_value == pytest.approx(table.rows[1].p_value, abs=1e-3)


def test_what_cannot_be_refitted_says_so(model, as_trained):
    with pytest.raises(InputError, match="moments"):
        sensitivity(as_trained(model.solution_), sigma=[1.0])
    with pytest.raises(InputError, match="ended"):
        sensitivity(replace(model.solution_, evidence=None), sigma=[1.0])
    with pytest.raises(InputError, match="one after the other"):
        model.sensitivity(sigma=1.2)
    with pytest.raises(InputError, match="not negative"):
        model.sensitivity(sigma=[-1.0])


def test_the_error_of_euler_steps_on_a_line():
    """Without noise a cloud under -a x shrinks by (1 - a h)^n, mean and sd alike."""
    a = 0.8
    h = 0.1
    n = 20
    process = ItoProcess(FunctionDrift(lambda x: -a * x), ConstantDiffusion(jnp.zeros((1, 1))))
    x = np.asarray([[1.0], [2.0], [6.0]])
    start = Snapshot(0.0, x, np.full(3, 1.0 / 3.0))
    slopes = SlopeBounds.over(process.drift, x, eps=0.1)
    times = np.asarray([0.0, n * h])
    error = forecast_step_error(
        process, start, times, h, slopes, names=("x",), key=jax.random.key(0)
    )
    coarse = (1.0 - a * h) ** n
    fine = (1.0 - a * h / 2.0) ** (2 * n)
    relative = 2.0 * (coarse - fine) / fine
    np.testing.assert_allclose(error.mean[:, 0], [0.0, relative * 3.0 / x.std()], rtol=1e-4)
    np.testing.assert_allclose(error.sd[:, 0], [0.0, relative], rtol=1e-4)
    exact = np.exp(-a * n * h)
    # To the next order in a h.
    assert error.sd[1, 0] == pytest.approx((coarse - exact) / fine, rel=a * h)
    assert error.lipschitz == pytest.approx(a)
    assert error.one_sided == pytest.approx(-a)
    assert error.bound is not None
    bound = 0.1 / a * np.expm1(a * n * h) / (fine * x.std())
    assert error.bound[1] == pytest.approx(bound, rel=1e-4)


@pytest.mark.parametrize("slope", [1.5, 0.0, -1.5])
def test_the_bound_is_an_equality_for_a_constant_error_of_a_line(slope):
    """D' = slope D + eps: Prop. 3 for an unstable drift, its one-sided form for a stable one; in 20
    000 Euler steps.
    """
    eps = 0.1
    time = 2.0
    n = 20_000
    distance = 0.0
    for _ in range(n):
        distance += time / n * (slope * distance + eps)
    assert drift_bound(eps, slope, np.asarray([time]))[0] == pytest.approx(distance, rel=1e-3)


def test_slopes_are_the_norms_of_the_steepest_jacobian():
    A = jnp.asarray([[0.5, 3.0], [-1.0, -2.0]])
    drift = FunctionDrift(lambda x: A @ jnp.tanh(x))
    lipschitz, one_sided = slopes_over(drift, np.asarray([[2.0, 1.0], [0.0, 0.0]]))
    assert lipschitz == pytest.approx(np.linalg.norm(A, ord=2), rel=1e-5)
    assert one_sided == pytest.approx(np.linalg.eigvalsh(np.asarray(A + A.T) / 2.0)[-1], rel=1e-5)


def test_the_step_error_of_a_fit(model):
    """Twice `dt_error_`, which halves the step with other noise: equal but for the noise of both, 4
    of its sds.
    """
    error = model.step_error([0.5, 1.0])
    largest = max(np.abs(error.mean).max(), np.abs(error.sd).max())
    noise = max(error.mean_noise.max(), error.sd_noise.max())
    assert largest == pytest.approx(2.0 * model.dt_error_, abs=4 * np.sqrt(2) * noise)
    assert np.all(error.bound >= error.one_sided_bound)
    assert error.eps > 0.0
    assert "orders of magnitude" in str(error)
    assert len(error.to_records()) == 2 * 2


def test_without_error_bars_there_is_no_bound(model, as_trained):
    for solution in (as_trained(model.solution_), replace(model.solution_, evidence=None)):
        error = step_error(solution, [1.0])
        assert error.bound is None
        assert "no bound" in str(error)
