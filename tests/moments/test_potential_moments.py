"""A drift with a potential, polished on the weak residuals: no rotation, error bars, refusals."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.linalg import expm, solve_continuous_lyapunov

import itofit
from itofit import Moments
from itofit.process.drift import PotentialDrift
from itofit.process.ito import ItoProcess
from itofit.process.noise import ConstantDiffusion
from itofit.process.potentials import sparse_terms
from itofit.simulate.sensitivity import chain_adjoints, chain_ends, chain_sensitivities

SIGMA = 0.5
A = np.array([[2.0, 0.8], [0.8, 1.0]])
CENTRE = np.array([0.5, -0.5])
STATES = CENTRE + np.array([[-0.5, 0.5], [0.5, 0.5], [1.0, 0.5], [0.5, 1.5], [-0.5, -0.5]])


def clouds(n=200, times=(0.0, 0.25, 0.5, 1.0)):
    """Fresh draws of dX = -A (X - c) dt + .5 dW, in closed form."""
    rng = np.random.default_rng(0)
    stationary = solve_continuous_lyapunov(A, SIGMA**2 * np.eye(2))
    rows = []
    for time in times:
        flow = expm(-A * time)
        mean = CENTRE + flow @ np.array([1.5, 2.0])
        covariance = stationary + flow @ (0.09 * np.eye(2) - stationary) @ flow.T
        rows.append(rng.multivariate_normal(mean, covariance, n))
    return itofit.Snapshots.from_arrays(rows, times)


@pytest.fixture(scope="module")
def model():
    solver = Moments(n_draws=2, n_iter=12)
    return itofit.FokkerPlanckProcess(
        SIGMA, dt=0.025, drift="potential", solver=solver, random_state=0
    ).fit(clouds())


@pytest.mark.slow
def test_the_jacobian_is_symmetric_in_the_users_units(model):
    J = np.asarray(jax.vmap(jax.jacfwd(model.process_.drift))(jnp.asarray(STATES, float)))
    turned = J - np.swapaxes(J, 1, 2)
    assert np.max(np.abs(turned)) < 1e-4 * np.max(np.abs(J))


@pytest.mark.slow
def test_error_bars_hold_the_truth_and_are_small(model):
    """Ten numbers within four standard errors; these are a third of the drift at the most."""
    truth = -(STATES - CENTRE) @ A
    std = model.drift_std(STATES)
    assert np.all(np.abs(model.drift(STATES) - truth) < 4.0 * std)
    assert np.sqrt(np.mean(std**2)) < 0.35 * np.sqrt(np.mean(truth**2))
    assert model.bands([0.7]).mean.shape == (1, 2)


@pytest.mark.slow
def test_chi_squared_allows_the_truth(model):
    assert model.goodness_of_fit().p_value > 1e-3


@pytest.mark.slow
def test_draws_of_the_drift_have_no_rotation_either(model):
    draws = itofit.trust.posterior.drift_draws(model.solution_)
    metric = model.scaling_.metric
    x = jnp.array([0.2, -0.3])
    one = draws.drifts.with_coefficients(draws.drifts.coefficients[0])
    J = np.asarray(jax.jacfwd(one)(x)) / metric[:, None]
    np.testing.assert_allclose(J, J.T, rtol=1e-4, atol=1e-4 * np.max(np.abs(J)))


@pytest.mark.slow
def test_a_saved_model_answers_the_same(model, tmp_path):
    model.save(tmp_path / "run")
    again = itofit.load(tmp_path / "run")
    np.testing.assert_array_equal(again.drift(STATES), model.drift(STATES))
    np.testing.assert_array_equal(again.potential(STATES), model.potential(STATES))
    np.testing.assert_allclose(again.drift_std(STATES), model.drift_std(STATES), rtol=1e-3)


@pytest.mark.parametrize("question", ["identifiability", "equations"])
@pytest.mark.slow
def test_what_is_asked_of_any_field_is_refused(model, refused, question):
    with refused("one that has a potential", "drift='free'"):
        getattr(model, question)()


@pytest.mark.slow
def test_the_summary_leaves_these_out(model):
    text = model.reliability()
    assert "drift: standard error" in text
    assert "determined" not in text


def test_a_dictionary_of_ones_own_is_refused(refused):
    solver = Moments(dictionary=lambda x: x)
    with refused("a drift with a potential", "drift='free'"):
        itofit.FokkerPlanckProcess(SIGMA, drift="potential", solver=solver).fit(clouds(20))


def chain(seed=0):
    """Eight particles, six steps, a potential of all terms in two dimensions."""
    rng = np.random.default_rng(seed)
    metric = np.array([0.5, 2.0])
    terms = sparse_terms(metric, np.full(2, -3.0), np.full(2, 3.0))
    w = jnp.asarray(0.3 * rng.standard_normal((terms.n_features, 1)), float)
    drift = PotentialDrift(terms.features, w, metric=jnp.asarray(metric, float))
    start = jnp.asarray(0.5 * rng.standard_normal((8, 2)), float)
    noise = jnp.asarray(rng.standard_normal((6, 8, 2)), float)
    steps = jnp.full(6, 0.02)
    return drift, ConstantDiffusion(0.3 * jnp.eye(2)), start, jnp.cumsum(steps), steps, noise


def test_sensitivities_are_derivatives_of_the_chain():
    """Forward differentiation through the chain; single precision."""
    drift, diffusion, start, times, steps, noise = chain()
    n_taken = jnp.asarray(6)

    def ends(w):
        process = ItoProcess(drift.with_coefficients(w), diffusion)
        return chain_ends(process, start, times, steps, noise, n_taken)

    expected = np.asarray(jax.jacfwd(ends)(drift.coefficients))[..., 0]
    carried = chain_sensitivities(
        drift, diffusion, start, times, steps, noise, n_blocks=jnp.asarray(2), block=3
    )
    assert carried.by_drift.shape == (8, 2, 1, len(drift.coefficients))
    np.testing.assert_allclose(carried.by_drift[:, :, 0], expected, rtol=1e-3, atol=1e-5)
    u = jnp.asarray(np.random.default_rng(1).standard_normal((8, 3, 2)), float)
    gathered, _ = chain_adjoints(drift, diffusion, start, times, steps, noise, n_taken, lambda _: u)
    by_row = np.einsum("nri,nif->rf", np.asarray(u), expected)
    np.testing.assert_allclose(gathered[:, 0], by_row, rtol=1e-3, atol=1e-4)
