"""Noise learned by both solvers: Jacobians against differences, and truths that must be found or be
called unknown.
"""

from dataclasses import replace
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from itofit import (
    Adversarial,
    FokkerPlanckProcess,
    ParametricSigma,
    Snapshots,
    known_system,
)
from itofit.moments.adaptive_ridges import UNIT, AdaptiveRidges
from itofit.moments.bias import less_biased
from itofit.moments.gauss_newton import State, without_excluded
from itofit.moments.options import MomentsOptions
from itofit.moments.relevance import Prior
from itofit.process.features import affine, joined, monomials
from itofit.process.noise import first_noise, noise_of
from itofit.snapshots.scaling import Scaling
from itofit.trust.bands import bands
from itofit.trust.noise import interval_of
from itofit.trust.posterior import drift_draws
from itofit.trust.report import noise_line

pytestmark = pytest.mark.slow

SHAPE = np.array([[1.5, -0.7, 0.3]])


@pytest.fixture(scope="module")
def noisy(probing_of):
    """A function: three small clouds in the plane under a noise of this kind."""
    rng = np.random.default_rng(0)
    clouds = [rng.standard_normal((n, 2)) + m for n, m in ((90, 0.0), (120, 0.4), (100, 0.7))]
    data = Snapshots.from_arrays(clouds, [0.0, 0.2, 0.5])
    scaling = Scaling(np.full(2, 2.0), np.ones(2))

    def posed(kind):
        noise = noise_of(kind, scaling, np.asarray([0.5, 0.7]), np.random.default_rng(0))
        return probing_of(data, noise, 0.05, MomentsOptions(max_directions=0.5))

    return posed


@pytest.mark.parametrize("kind", ["full", "multiplicative"])
def test_the_jacobian_is_that_of_differences_in_all_unknowns(kind, noisy):
    """Coefficients, noise and the shape of a ridge at once, and a few of them in an order of their
    own.
    """
    probing = noisy(kind)
    rest = joined([affine(2), monomials([(0, 1)], -9.0 * np.ones(2), 9.0 * np.ones(2))])
    adaptive = AdaptiveRidges.of(probing.simulated(rest, 1, cosines=True), rest, len(SHAPE))
    rng = np.random.default_rng(1)
    coefficients = 0.3 * rng.standard_normal(adaptive.n_coefficients)
    no_noise = np.zeros(probing.diffusion.n_parameters)
    v = np.concatenate([coefficients, no_noise, SHAPE.ravel() / UNIT])
    whitening = probing.whitening(adaptive, v)
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
    part = adaptive.jacobian(v, whitening, few)
    np.testing.assert_allclose(part, J[:, few], rtol=1e-4, atol=1e-4)
    linear = np.asarray([adaptive.n_linear - 1, 3, adaptive.n_coefficients, 0])
    part = adaptive.at(v).jacobian(v[: adaptive.n_linear], whitening, linear)
    np.testing.assert_allclose(part, J[:, linear], rtol=1e-4, atol=1e-4)


def test_dropping_groups_leaves_the_noise_in_place(noisy):
    residual = noisy("diagonal").simulated(affine(2), 1, cosines=True)
    prior = Prior.over(residual.dictionary.groups, 2).joined(Prior.fixed_at(2))
    smaller, state = without_excluded(residual, State(np.arange(8.0), prior.without([2, 3])))
    assert smaller.n_coefficients == 4
    assert state.v.tolist() == [0.0, 1.0, 2.0, 3.0, 6.0, 7.0]
    assert state.prior.group.tolist() == [-1, -1, 0, 1, -1, -1]


def test_noise_that_is_left_out_stays_as_it_is(noisy):
    residual = noisy("diagonal").simulated(affine(2), 1, cosines=True)
    v = np.linspace(-0.3, 0.3, 6)
    for short, long in zip(residual(v), residual(np.append(v, np.zeros(2))), strict=True):
        np.testing.assert_array_equal(short, long)
    louder = np.asarray(residual.noise(np.append(v, [1.0, 0.0]))(jnp.zeros(2)))
    ratio = louder @ np.linalg.inv(np.asarray(residual.diffusion(jnp.zeros(2))))
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


def test_what_weights_owe_to_the_points_is_taken_off(monkeypatch):
    """Without it the noise of 1200 points comes out too small, by 1 to 6 % of sigma
    (docs/noise.md).
    """
    system = known_system("diffusion-paper")
    data = system.observe(1200, system.train_times, key=jax.random.key(5))

    fitted = []

    def spied(residual, state, whitening, *, drift_too):
        fitted.append(residual.process(state.v).diffusion)
        return less_biased(residual, state, whitening, drift_too=drift_too)

    monkeypatch.setattr("itofit.moments.solver.less_biased", spied)
    model = FokkerPlanckProcess(dt=system.dt, solver="moments", random_state=0).fit(data)
    (biased,) = fitted
    without = model.scaling_.sd * np.diag(np.asarray(biased(jnp.zeros(2))))
    ratio = np.diag(model.diffusion(np.zeros(2))) / without
    assert np.all((ratio > 1.003) & (ratio < 1.1))


def test_a_report_names_a_learned_noise_and_a_saved_fit_has_it_again(correlated, tmp_path):
    assert noise_line(correlated.solution_).startswith("learned sigma, with 95 % intervals: x1 ")
    assert correlated.identifiability().sigma_known is False
    correlated.save(tmp_path / "run")
    again = FokkerPlanckProcess.load(tmp_path / "run")
    x = np.zeros(2)
    np.testing.assert_allclose(again.diffusion(x), correlated.diffusion(x), rtol=1e-6)
    errors = [model.covariance_std(x) for model in (again, correlated)]
    np.testing.assert_allclose(*errors, rtol=1e-2, atol=1e-3)


def test_bands_are_wider_where_the_noise_is_uncertain(correlated):
    """Of an outer quantile, which the noise moves: with draws of the noise that are five times as
    far apart.
    """
    narrow = correlated.bands([0.2], quantiles=(0.05,)).quantile_std
    draws = drift_draws(correlated.solution_)
    doubtful = replace(correlated.solution_)
    doubtful.remembered("drift_draws", lambda: replace(draws, noise=5.0 * draws.noise))
    wide = bands(doubtful, [0.2], quantiles=(0.05,)).quantile_std
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
    accumulated = (1.0 - np.exp(-2.0 * rate * 1.6)) / (2.0 * rate)
    brought = np.diag(model.covariance(np.zeros(2))) * accumulated
    assert np.all(brought < 0.1 * clouds[-1].var(axis=0))


def test_a_sigma_of_ones_own_is_learned():
    """sigma = p sqrt(1 + x^2) on a process that has p = 0.5; within 4 of its standard errors."""
    rng = np.random.default_rng(1)
    h = 0.02
    x = rng.standard_normal((800, 2))
    clouds = []
    times = [0.0, 0.4, 1.0]
    for k in range(51):
        if any(abs(k * h - t) < 1e-9 for t in times):
            clouds.append(x)
        noise = np.sqrt(h) * 0.5 * np.sqrt(1 + x**2) * rng.standard_normal(x.shape)
        x = x + h * (np.asarray([1.0, -1.0]) - x) + noise
    own = ParametricSigma(lambda x, p: jnp.exp(p[0]) * jnp.sqrt(1.0 + x**2), (0.5,))
    data = Snapshots.from_arrays(clouds, times)
    model = FokkerPlanckProcess(own, dt=0.1, solver="moments", random_state=0).fit(data)
    a = np.diag(model.covariance(np.zeros(2)))
    std = np.diag(model.covariance_std(np.zeros(2)))
    assert np.all(np.abs(a - 0.25) < 4.0 * std)
    np.testing.assert_allclose(np.diag(model.covariance(np.full(2, 2.0))), 5.0 * a, rtol=1e-4)


class Sigmas(NamedTuple):
    before: np.ndarray
    after: np.ndarray


def lowered(solver):
    """The noise before and after a run of the adversarial solver, from about twice too much."""
    data = known_system("diffusion").observe(300, [0.0, 0.5, 2.0], key=jax.random.key(0))
    model = FokkerPlanckProcess(dt=0.25, solver=solver, random_state=0).fit(data)
    scaling = Scaling.fit(data)
    rng = np.random.default_rng(0)
    first = first_noise("diagonal", scaling.transform(data), scaling, rng)
    before = scaling.sd * np.diag(np.asarray(first(jnp.zeros(2))))
    return Sigmas(before, np.diag(model.diffusion(np.zeros(2))))


def test_the_adversarial_solver_learns_noise_from_above():
    solver = Adversarial(
        n_iter=80,
        batch_size=None,
        eval_every=40,
        drift_form="skip",
        drift_rate=5e-3,
        averaging=0.9,
        warm_start=None,
    )
    before, after = lowered(solver)
    assert np.all(before > 1.7)
    assert np.all(np.abs(after - 1.0) < 0.85 * np.abs(before - 1.0))


def test_flat_probes_teach_noise_too():
    """Spectral norms make networks flat and the gradient of the noise small; its own pace makes up
    for it.

    800 iterations take half of the excess away, where the drift's pace would take a fifth.
    """
    solver = Adversarial.paper(n_iter=800, eval_every=100, drift_rate=1e-3, probe_rate=1e-3)
    before, after = lowered(solver)
    assert np.all(np.abs(after - 1.0) < 0.6 * np.abs(before - 1.0))
