"""The bias of long Euler steps: against closed forms of the chain, and gone from what is fitted.

dX = -a X dt + s dW,   m_n = (1 - a h)^n m,   V_n = (1 - a h)^2n V + s^2 h sum_k (1 - a h)^2k
"""

from dataclasses import replace
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from itofit import FokkerPlanckProcess, Moments, Problem, Snapshots
from itofit.forecast import push_forward
from itofit.moments.probing import Probing
from itofit.moments.residuals import Simulated
from itofit.moments.transitions import Cut
from itofit.problem import Streams
from itofit.process import ConstantDiffusion, FunctionDrift, ItoProcess, diffusion_from_sigma
from itofit.process.features import affine
from itofit.simulate.euler import euler_path
from itofit.simulate.sensitivity import chain_ends, finer_ends
from itofit.snapshots.scaling import Scaling

RATE, SIGMA = 4.0, 1.0
TIMES = [0.0, 0.2, 0.4, 0.8]
OWN = Moments(dictionary=lambda x: jnp.stack([1.0, x[0]]), n_draws=4, path="simulated")


def process_of(drift, n_dims, sigma):
    return ItoProcess(FunctionDrift(drift), diffusion_from_sigma(sigma, n_dims))


def chains(n, n_steps, h, n_dims=1, seed=0):
    """Start, middles of the steps, steps, noise and their number, as `chain_ends` takes them."""
    rng = np.random.default_rng(seed)
    steps = np.full(n_steps, h)
    arrays = (
        rng.standard_normal((n, n_dims)),
        np.cumsum(steps) - 0.5 * h,
        steps,
        rng.standard_normal((n_steps, n, n_dims)),
    )
    return [*(jnp.asarray(a, dtype=float) for a in arrays), jnp.asarray(n_steps)]


def test_without_a_drift_a_cut_step_ends_where_the_whole_one_does():
    """One Brownian path: only the noise inside the steps is drawn anew."""
    process = process_of(jnp.zeros_like, 2, 0.7)
    rows = chains(50, 6, 0.1, n_dims=2)
    whole = chain_ends(process, *rows)
    cut = finer_ends(process, *rows, jax.random.key(3), 4)
    np.testing.assert_allclose(cut, whole, atol=1e-5)


def test_without_noise_a_cut_step_is_so_many_steps():
    process = process_of(lambda x: jnp.sin(3.0 * x), 1, 0.0)
    rows = chains(50, 6, 0.1)
    cut = finer_ends(process, *rows, jax.random.key(3), 4)
    path = euler_path(process, rows[0], jnp.full(24, 0.025), jnp.zeros((24, 50, 1)))
    np.testing.assert_allclose(cut, path[-1], atol=1e-5)


def test_a_push_that_depends_on_the_time_is_that_of_the_middle_of_every_part():
    """Midpoints integrate t exactly, however the step is cut."""

    class Push(FunctionDrift):
        def at(self, time):
            return FunctionDrift(lambda x: jnp.full_like(x, time))

    process = ItoProcess(Push(jnp.zeros_like), diffusion_from_sigma(0.0, 1))
    rows = chains(5, 6, 0.1)
    cut = finer_ends(process, *rows, jax.random.key(3), 4)
    np.testing.assert_allclose(cut - rows[0], 0.6**2 / 2.0, atol=1e-5)


@pytest.mark.parametrize("n_parts", [2, 4])
def test_chains_of_cut_steps_have_the_law_of_a_shorter_step(n_parts):
    """4 standard errors of a variance of 40 000 normal numbers."""
    h = 0.1
    n = 40_000
    process = process_of(lambda x: -RATE * x, 1, SIGMA)
    _, *rows = chains(n, 5, h)
    end = finer_ends(process, jnp.ones((n, 1)), *rows, jax.random.key(1), n_parts)
    factor = 1.0 - RATE * h / n_parts
    powers = factor ** (2 * np.arange(5 * n_parts))
    variance = SIGMA**2 * h / n_parts * powers.sum()
    assert float(end.mean()) == pytest.approx(
        factor ** (5 * n_parts), abs=4.0 * np.sqrt(variance / n)
    )
    assert float(end.var()) == pytest.approx(variance, rel=4.0 * np.sqrt(2.0 / n))


def law(t, mean=3.0, variance=0.25):
    decay = np.exp(-RATE * t)
    stationary = SIGMA**2 / (2.0 * RATE)
    return mean * decay, np.sqrt(variance * decay**2 + stationary * (1.0 - decay**2))


def exact(n, rng=None):
    """Snapshots of the law; without a generator points at its quantiles, whose means are exact."""
    clouds = []
    for mean, sd in map(law, TIMES):
        z = np.linspace(-2.0, 2.0, n) if rng is None else rng.standard_normal(n)
        clouds.append((mean + sd * z)[:, None])
    return Snapshots.from_arrays(clouds, TIMES)


def posed(snapshots, dt, sigma=SIGMA):
    problem = Problem.pose(snapshots, sigma, dt, scaling=Scaling.identity(1), streams=Streams(0))
    return problem.as_fitted(step_given=False, refinement=0)


def probing_with(dt):
    problem = posed(exact(200), dt).with_noise(ConstantDiffusion(jnp.zeros((1, 1))))
    return Probing.of(problem, replace(OWN, n_draws=1))


def residual_at_truth(dt):
    """The residual of the means at the true drift without noise, with and without its bias."""
    probing = probing_with(dt)
    residual = probing.simulated(affine(1), 1, cosines=False)
    v = np.asarray([0.0, -RATE / probing.speed])
    better = probing.without_step_bias(residual, residual.process(v))
    sds = [x.std() for x in probing.snapshots.clouds[1:]]
    plain = [r[0] * sd for r, sd in zip(residual(v), sds, strict=True)]
    corrected = [r[0] * sd for r, sd in zip(better(v), sds, strict=True)]
    return np.asarray(plain), np.asarray(corrected)


def test_the_bias_of_the_means_is_that_of_the_closed_form():
    """Means of chains over a gap of n steps are (1 - a h)^n times those of the start."""
    h = 0.05
    plain, corrected = residual_at_truth(h)
    starts = np.asarray([x.mean() for x in exact(200).clouds])
    n = np.round(np.diff(TIMES) / h)
    long = (1.0 - RATE * h) ** n * starts[:-1]
    short = (1.0 - RATE * h / 4.0) ** (4 * n) * starts[:-1]
    np.testing.assert_allclose(plain, long - starts[1:], atol=1e-5)
    np.testing.assert_allclose(corrected, (4.0 * short - long) / 3.0 - starts[1:], atol=1e-5)


def test_what_remains_is_of_second_order():
    """Slopes of log error over log step between these steps, of the closed form above: .9 to 1.2
    without and 1.7 to 2.2 with.
    """
    steps = np.asarray([0.05, 0.025, 0.0125])
    errors = np.asarray([[np.abs(r).max() for r in residual_at_truth(h)] for h in steps])
    slopes = np.polyfit(np.log(steps), np.log(errors), 1)[0]
    assert 0.9 < slopes[0] < 1.2
    assert 1.7 < slopes[1] < 2.2


def test_the_bias_that_is_not_finite_is_not_taken_off():
    probing = probing_with(0.05)
    residual = probing.simulated(affine(1), 1, cosines=False)
    assert isinstance(residual, Simulated)
    runaway = process_of(lambda x: 1e3 * x**3, 1, 0.0)
    cut = Cut(4, jax.random.key(0))
    assert residual.without_step_bias(runaway, cut).step_bias is None
    known = residual.without_step_bias(process_of(lambda x: -x, 1, 0.0), cut)
    assert known.without_step_bias(runaway, cut).step_bias is known.step_bias


def test_folds_and_fewer_terms_keep_it():
    probing = probing_with(0.05)
    residual = probing.simulated(affine(1), 1, cosines=False)
    residual = probing.without_step_bias(residual, process_of(lambda x: -x, 1, 0.0))
    assert isinstance(residual, Simulated)
    parts = [*residual.folds(), residual.only(np.array([True, False]))]
    assert all(part.step_bias is residual.step_bias for part in parts)


class Line(NamedTuple):
    """The slope of a fitted line, its standard error, and chi-squared by degree of freedom."""

    slope: float
    error: float
    chi2: float


def fitted_line(problem):
    solution = OWN.solve(problem)
    drift = solution.process.drift
    unit = np.asarray(drift.phi(jnp.ones(1)))
    slope = (np.asarray(drift.coefficients).ravel() * unit)[1]
    error = (np.sqrt(np.diag(solution.evidence.covariance)) * unit)[1]
    return Line(slope, error, solution.evidence.reduced_chi2)


def test_a_fit_with_a_step_that_is_ours_has_no_bias_of_it():
    """An Euler chain has the means of the data at the rate (1 - exp(-a h)) / h: 3.63 instead of 4
    at h = .05, ten standard errors. 3 standard errors.
    """
    dt = 0.05
    data = exact(2000, np.random.default_rng(0))
    for h in (dt, dt / 4.0):
        line = fitted_line(posed(data, h))
        assert abs(line.slope + RATE) < 3.0 * line.error
        assert line.chi2 < 1.4
    given = fitted_line(posed(data, dt).as_fitted(step_given=True, refinement=0))
    by_euler = (1.0 - np.exp(-RATE * dt)) / dt
    # Variances of the chain are off as well, which moves the rate by less than half the bias.
    assert abs(given.slope + by_euler) < 3.0 * given.error + 0.5 * (RATE - by_euler)
    assert abs(given.slope + RATE) > 6.0 * given.error
    assert given.chi2 > 2.0


def test_nothing_is_fitted_twice_and_forecasts_find_their_own_step(monkeypatch):
    """The step of the fit is halved for forecasts alone: their means are those of the law, 5
    standard errors and what a step that is close adds.
    """
    data = exact(2000, np.random.default_rng(1))
    fits = []
    solve = Moments.solve

    def counted(self, problem, **rest):
        fits.append(problem.dt)
        return solve(self, replace(problem, dt=0.05), **rest)

    monkeypatch.setattr(Moments, "solve", counted)
    model = FokkerPlanckProcess(SIGMA, solver=OWN, random_state=0).fit(data)
    assert len(fits) == 1
    assert model.dt_ == pytest.approx(0.05 / 2**model.solution_.problem.refinement)
    assert model.solution_.problem.refinement > 0
    assert model.dt_error_ <= 0.02
    start = Snapshots.from_arrays([data.clouds[0]], [0.0]).at(0.0)
    for t in (0.3, 0.8):
        mean, sd = law(t)
        assert abs(model.predict(t).mean() - mean) < sd * (5.0 / np.sqrt(2000) + 0.04)
    at_long_steps = push_forward(model.process_, start, [0.2], 0.05, key=jax.random.key(0))[0]
    mean, sd = law(0.2)
    assert abs(at_long_steps.mean() - mean) > 0.2 * sd


def test_the_residual_made_again_is_that_of_the_fit():
    """Of a solution whose step was halved for forecasts, and that was loaded; up to what the drift
    has moved since the bias was measured, a tenth of the noise of a mean of 300 points.
    """
    solution = OWN.solve(posed(exact(300, np.random.default_rng(2)), 0.05))
    later = OWN.solve_again(solution, solution.problem.with_halved_step().with_halved_step())
    again = replace(later, final_residual=None)
    one = np.concatenate(solution.residual(solution.state.v))
    other = np.concatenate(again.residual(again.state.v))
    np.testing.assert_allclose(other, one, atol=0.1 / np.sqrt(300))
    assert again.residual.transitions[0].n_steps == solution.residual.transitions[0].n_steps
