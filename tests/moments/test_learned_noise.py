"""Noise learned by both solvers: Jacobians against differences, and truths that must be found or be
called unknown.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from itofit import FokkerPlanckProcess, ParametricSigma, Snapshots, known_system
from itofit.moments.adaptive_ridges import UNIT, AdaptiveRidges
from itofit.moments.gauss_newton import State, kept
from itofit.moments.options import MomentsOptions
from itofit.moments.probing import Task
from itofit.moments.relevance import Prior
from itofit.process.features import affine, joined, monomials
from itofit.process.noise import first_noise, noise_of
from itofit.simulate.mesh import Mesh
from itofit.snapshots.scaling import Scaling
from itofit.solve import moments
from itofit.trust.noise import interval_of
from itofit.trust.report import noise_line

pytestmark = pytest.mark.slow

SHAPE = np.array([[1.5, -0.7, 0.3]])


def small_task(kind):
    rng = np.random.default_rng(0)
    clouds = [rng.standard_normal((n, 2)) + m for n, m in ((90, 0.0), (120, 0.4), (100, 0.7))]
    data = Snapshots.from_arrays(clouds, [0.0, 0.2, 0.5])
    noise = noise_of(kind, Scaling(np.full(2, 2.0), np.ones(2)), np.asarray([0.5, 0.7]), seed=0)
    return Task(data, noise, Mesh.refine(data.times, 0.05), MomentsOptions(share=0.5), 0)


@pytest.mark.parametrize("kind", ["full", "multiplicative"])
def test_the_jacobian_is_that_of_differences_in_all_unknowns(kind):
    """Coefficients, noise and the shape of a ridge at once, and a few of them in an order of their
    own.
    """
    task = small_task(kind)
    rest = joined([affine(2), monomials([(0, 1)], -9.0 * np.ones(2), 9.0 * np.ones(2))])
    adaptive = AdaptiveRidges.of(task.residual(rest, 1, cosines=True), rest, len(SHAPE))
    rng = np.random.default_rng(1)
    n_noise = task.diffusion.n_parameters
    v = np.concatenate(
        [
            0.3 * rng.standard_normal(adaptive.n_coefficients),
            np.zeros(n_noise),
            SHAPE.ravel() / UNIT,
        ]
    )
    whitening = task.whitening(adaptive, v)
    columns = np.arange(len(v))
    J = adaptive.jacobian(v, whitening, columns)
    h = 0.0025
    for p in columns:
        step = h * (columns == p)
        slope = (whitening(adaptive(v + step)) - whitening(adaptive(v - step))) / (2.0 * h)
        # Differences err by 0.11 at h = 0.005 and by 0.45 at 0.01, as h^2 does; single precision
        # adds some 1e-4 / h.
        np.testing.assert_allclose(J[:, p], slope, atol=0.1)
    few = np.asarray([1, 4, adaptive.n_coefficients, adaptive.n_linear - 1, adaptive.n_linear + 2])
    np.testing.assert_allclose(
        adaptive.jacobian(v, whitening, few), J[:, few], rtol=1e-4, atol=1e-4
    )
    linear = np.asarray([adaptive.n_linear - 1, 3, adaptive.n_coefficients, 0])
    known = adaptive.at(v)
    np.testing.assert_allclose(
        known.jacobian(v[: adaptive.n_linear], whitening, linear),
        J[:, linear],
        rtol=1e-4,
        atol=1e-4,
    )


def test_dropping_groups_leaves_the_noise_in_place():
    task = small_task("diagonal")
    residual = task.residual(affine(2), 1, cosines=True)
    prior = Prior.over(residual.dictionary.groups, 2).joined(Prior.fixed_at(2))
    smaller, state = kept(residual, State(np.arange(8.0), prior.without([2, 3])))
    assert smaller.n_coefficients == 4
    assert state.v.tolist() == [0.0, 1.0, 2.0, 3.0, 6.0, 7.0]
    assert state.prior.group.tolist() == [-1, -1, 0, 1, -1, -1]


def test_noise_that_is_left_out_stays_as_it_is():
    task = small_task("diagonal")
    residual = task.residual(affine(2), 1, cosines=True)
    v = np.linspace(-0.3, 0.3, 6)
    for short, long in zip(residual(v), residual(np.append(v, np.zeros(2))), strict=True):
        np.testing.assert_array_equal(short, long)
    louder = residual.noise(np.append(v, [1.0, 0.0]))
    ratio = np.asarray(louder(jnp.zeros(2))) @ np.linalg.inv(
        np.asarray(task.diffusion(jnp.zeros(2)))
    )
    np.testing.assert_allclose(ratio, np.diag([np.exp(0.1), 1.0]), rtol=1e-5)


@pytest.fixture(scope="module")
def correlated():
    """A full matrix with correlation 0.7, drift unknown."""
    system = known_system("correlated")
    data = system.observe(600, system.train_times[:4], key=jax.random.key(3))
    return FokkerPlanckProcess("full", dt=0.05, solver="moments", random_state=0).fit(data)


TRUE_A = np.asarray([[1.0, 0.56], [0.56, 0.64]])


def test_a_full_matrix_is_found_with_its_error_bars(correlated):
    """Its own 95 % interval, widened to 4 standard errors; the fixed key makes it one draw."""
    a = correlated.covariance(np.zeros(2))
    std = correlated.covariance_std(np.zeros(2))
    assert np.all(np.abs(a - TRUE_A) < 4.0 * std)
    assert np.all(std < 0.2)
    low, high = correlated.covariance_interval(np.zeros(2))
    assert np.all((low < a) & (a < high))
    assert np.all(np.diag(low) > 0.0)
    np.testing.assert_allclose(a, correlated.covariance(np.ones((3, 2)))[1])


def test_intervals_are_as_wide_as_their_draws_are_apart():
    """Log-normal on the diagonal, normal beside it: exp(+-1.96 s) and +-1.96 s, of moments that are
    exact.
    """
    z = np.asarray([-1.0, 1.0, -1.0, 1.0])
    fitted = np.asarray([[[2.0, 0.3], [0.3, 5.0]]])
    draws = np.tile(fitted, (4, 1, 1, 1))
    draws[:, 0, 0, 0] *= np.exp(0.2 * z)
    draws[:, 0, 0, 1] += 0.1 * z
    low, high = (end[0] for end in interval_of(draws, fitted, 0.95))
    np.testing.assert_allclose([low[0, 0], high[0, 0]], 2.0 * np.exp([-0.392, 0.392]), rtol=1e-4)
    np.testing.assert_allclose([low[0, 1], high[0, 1]], [0.3 - 0.196, 0.3 + 0.196], rtol=1e-4)
    np.testing.assert_allclose([low[1, 1], high[1, 1]], 5.0)


@pytest.mark.slow
def test_what_weights_owe_to_the_points_is_taken_off(monkeypatch):
    """Without it the noise of 1200 points comes out too small, by 1 to 6 % of sigma
    (docs/noise.md).
    """
    system = known_system("diffusion-paper")
    data = system.observe(1200, system.train_times, key=jax.random.key(5))

    def found():
        model = FokkerPlanckProcess(dt=system.dt, solver="moments", random_state=0).fit(data)
        return np.diag(model.diffusion(np.zeros(2)))

    with_it = found()
    monkeypatch.setattr(moments, "_can_be_corrected", lambda *_: False)
    ratio = with_it / found()
    assert np.all((ratio > 1.003) & (ratio < 1.1))


def test_what_is_said_of_a_learned_noise(correlated, tmp_path):
    assert noise_line(correlated).startswith("learned sigma, with 95 % intervals: x1 ")
    assert correlated.identifiability().sigma_known is False
    correlated.save(tmp_path / "run")
    again = FokkerPlanckProcess.load(tmp_path / "run")
    np.testing.assert_allclose(
        again.diffusion(np.zeros(2)), correlated.diffusion(np.zeros(2)), rtol=1e-6
    )
    np.testing.assert_allclose(
        again.covariance_std(np.zeros(2)),
        correlated.covariance_std(np.zeros(2)),
        rtol=1e-2,
        atol=1e-3,
    )


def test_bands_are_wider_where_the_noise_is_uncertain(correlated):
    """Of an outer quantile, which the noise moves: with draws of the noise that are five times as
    far apart.
    """
    narrow = correlated.bands([0.2], quantiles=(0.05,)).quantile_std
    draws = correlated._draws()
    correlated._drawn = type(draws)(**{**vars(draws), "noise": 5.0 * draws.noise})
    wide = correlated.bands([0.2], quantiles=(0.05,)).quantile_std
    correlated._drawn = draws
    assert np.all(wide > 1.2 * narrow)


def test_a_flow_without_noise_is_learned_as_one():
    """sigma falls towards 0 and nothing breaks: the spread is explained by the flow, to a hundredth
    of the variance.
    """
    rng = np.random.default_rng(0)
    times = [0.0, 0.4, 1.0, 1.6]
    rate = np.asarray([1.0, 0.5])
    clouds = [(rng.standard_normal((400, 2)) + [2.0, -1.0]) * np.exp(-rate * t) for t in times]
    model = FokkerPlanckProcess(dt=0.05, solver="moments", random_state=0).fit(
        Snapshots.from_arrays(clouds, times)
    )
    assert model.outcome_.is_good
    # Variance that the noise would have brought by the end, beside what is there.
    brought = (
        np.diag(model.covariance(np.zeros(2))) * (1.0 - np.exp(-2.0 * rate * 1.6)) / (2.0 * rate)
    )
    assert np.all(brought < 0.1 * clouds[-1].var(axis=0))


@pytest.mark.slow
def test_a_sigma_of_ones_own_is_learned():
    """sigma = p sqrt(1 + x^2) on a process of p = 0.5; within 4 of its own standard errors."""
    rng = np.random.default_rng(1)
    h = 0.02
    x = rng.standard_normal((800, 2))
    clouds = []
    times = [0.0, 0.4, 1.0]
    for k in range(51):
        if any(abs(k * h - t) < 1e-9 for t in times):
            clouds.append(x)
        x = (
            x
            + h * (np.asarray([1.0, -1.0]) - x)
            + np.sqrt(h) * 0.5 * np.sqrt(1 + x**2) * rng.standard_normal(x.shape)
        )
    own = ParametricSigma(lambda x, p: jnp.exp(p[0]) * jnp.sqrt(1.0 + x**2), (0.5,))
    model = FokkerPlanckProcess(own, dt=0.1, solver="moments", random_state=0).fit(
        Snapshots.from_arrays(clouds, times)
    )
    a, std = (
        np.diag(m) for m in (model.covariance(np.zeros(2)), model.covariance_std(np.zeros(2)))
    )
    assert np.all(np.abs(a - 0.25) < 4.0 * std)
    np.testing.assert_allclose(np.diag(model.covariance(np.full(2, 2.0))), 5.0 * a, rtol=1e-4)


def lowered(n_iter, **how):
    """The noise before and after a run of the adversarial solver, from about twice too much."""
    data = known_system("diffusion").observe(300, [0.0, 0.5, 2.0], key=jax.random.key(0))
    model = FokkerPlanckProcess(
        dt=0.25, solver="adversarial", n_iter=n_iter, random_state=0, **how
    ).fit(data)
    scaling = Scaling.fit(data)
    first = first_noise("diagonal", scaling.transform(data), scaling, seed=0)
    return scaling.sd * np.diag(np.asarray(first(jnp.zeros(2)))), np.diag(
        model.diffusion(np.zeros(2))
    )


@pytest.mark.slow
def test_the_adversarial_solver_learns_noise_from_above():
    how = {"eval_every": 40, "drift_form": "skip", "drift_rate": 5e-3, "averaging": 0.9}
    before, after = lowered(80, batch_size=None, options=how)
    assert np.all(before > 1.7)
    assert np.all(np.abs(after - 1.0) < 0.85 * np.abs(before - 1.0))


@pytest.mark.slow
def test_flat_probes_teach_noise_too():
    """Spectral norms make networks flat and the gradient of the noise small; its own pace makes up
    for it.

    800 iterations take half of the excess away, where the drift's pace would take a fifth.
    """
    before, after = lowered(800, preset="paper", learning_rate=1e-3, options={"eval_every": 100})
    assert np.all(np.abs(after - 1.0) < 0.6 * np.abs(before - 1.0))
