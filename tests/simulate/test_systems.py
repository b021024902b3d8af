import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.linalg import block_diag

from itofit.simulate.mesh import Mesh
from itofit.simulate.systems import SYSTEMS, known_system, two_wells

LINEAR = ["syn1", "ou", "diffusion", "curl", "curl-anisotropic"]


@pytest.mark.parametrize(("name", "times"), [("syn1", [0.2, 0.5]), ("ou", [0.3, 1.0])])
def test_simulated_moments_are_those_of_the_euler_chain(getkey, name, times):
    n = 20_000
    system = known_system(name)
    for time, x, _ in system.observe(n, times, key=getkey()):
        mean, cov = system.euler_moments(time)
        sample_mean = x.mean(axis=0)
        sample_cov = np.cov(x.T)
        # Gaussian samples: se(mean_i) = sqrt(V_ii / n), and for the covariance
        # se(cov_ij) = sqrt((V_ii V_jj + V_ij^2) / n); four of each.
        assert np.all(np.abs(sample_mean - mean) < 4.0 * np.sqrt(np.diag(cov) / n))
        se = np.sqrt((np.outer(np.diag(cov), np.diag(cov)) + cov**2) / n)
        assert np.all(np.abs(sample_cov - cov) < 4.0 * se)


def test_the_euler_chain_of_syn1_has_its_own_stationary_variance():
    mean, cov = known_system("syn1").euler_moments(20.0)
    # METHODS 1.2.2, printed to five digits: sigma^2 h / (1 - (1 - a h)^2) for a = 4 and 1.
    np.testing.assert_allclose(np.diag(cov), [0.12755, 0.50251], atol=5e-6)
    np.testing.assert_allclose(mean, [3.0, 12.0], atol=1e-6)
    np.testing.assert_allclose(
        np.diag(known_system("syn1").exact_moments(20.0)[1]), [0.125, 0.5], rtol=1e-6
    )


@pytest.mark.parametrize("time", [0.0, 0.1, 0.5, 2.0])
def test_exact_moments_of_syn1_are_the_formula(time):
    mean, cov = known_system("syn1").exact_moments(time)
    a = np.array([4.0, 1.0])
    mu = np.array([3.0, 12.0])
    np.testing.assert_allclose(mean, mu - np.exp(-a * time) * mu, atol=1e-12)
    decayed = np.exp(-2.0 * a * time)
    np.testing.assert_allclose(cov, np.diag(decayed + (1.0 - decayed) / (2.0 * a)), atol=1e-12)


def test_exact_moments_of_a_rotating_system_solve_their_differential_equations():
    system = known_system("ou")
    A = system.linear.matrix
    mu = system.linear.fixed_point
    step = 1e-4
    time = 0.6
    (m0, v0), (m, v), (m1, v1) = (system.exact_moments(t) for t in (time - step, time, time + step))
    # Central differences err by step^2 / 6 times a third derivative of order 10.
    np.testing.assert_allclose((m1 - m0) / (2.0 * step), -A @ (m - mu), atol=1e-6)
    np.testing.assert_allclose(
        (v1 - v0) / (2.0 * step), -A @ v - v @ A.T + 0.49 * np.eye(2), atol=1e-6
    )


@pytest.mark.parametrize("name", ["syn1", "ou"])
def test_euler_moments_approach_the_exact_ones_linearly_in_dt(name):
    system = known_system(name)
    steps = np.array([0.02, 0.01, 0.005, 0.0025])
    exact_mean, exact_cov = system.exact_moments(0.6)
    mean_error = []
    cov_error = []
    for dt in steps:
        mean, cov = dataclasses.replace(system, dt=float(dt)).euler_moments(0.6)
        mean_error.append(np.abs(mean - exact_mean).max())
        cov_error.append(np.abs(cov - exact_cov).max())
    for error in (mean_error, cov_error):
        slope = np.polyfit(np.log(steps), np.log(error), 1)[0]
        # Order 1; the next term of the expansion bends the line by rate * dt, at most 0.08.
        assert 0.9 < slope < 1.1


@pytest.mark.parametrize("name", LINEAR)
def test_linear_systems_have_the_drift_they_state(getkey, name):
    system = known_system(name, 4)
    x = jax.random.normal(getkey(), (4,))
    wanted = -system.linear.matrix @ (np.asarray(x) - system.linear.fixed_point)
    np.testing.assert_allclose(system.process.drift(x), wanted, rtol=1e-5, atol=1e-5)
    mean, cov = system.euler_moments(0.0)
    np.testing.assert_array_equal(mean, np.zeros(4))
    np.testing.assert_array_equal(cov, system.initial_cov)


def test_the_isotropic_curl_keeps_its_law_and_the_other_does_not():
    still, moving = (
        known_system(name).euler_moments(0.15)[1] for name in ("curl", "curl-anisotropic")
    )
    # 300 Euler steps lengthen the radius by 300 * 50 * 0.0005^2 = 0.4 percent, the variance by
    # twice that.
    np.testing.assert_allclose(still, 2.0 * np.eye(2), atol=0.01 * 2.0)
    assert abs(moving[0, 1]) > 0.01
    np.testing.assert_allclose(
        known_system("curl").exact_moments(0.15)[1], 2.0 * np.eye(2), atol=1e-12
    )


def log_odds(drift, x):
    """Log odds of the wells of Syn-2 at x, as the drift lies between two known pulls."""
    first = np.array([12.0, 15.0])
    second = np.array([-15.0, -15.0])
    pull = np.asarray(drift(jnp.asarray(x)), dtype=np.float64) * 4.0 + x
    responsibility = (pull - second) @ (first - second) / np.sum((first - second) ** 2)
    return np.log(responsibility / (1.0 - responsibility))


@pytest.mark.parametrize("x", [[0.0, 0.0], [1.0, -2.0], [-2.5, 1.0], [0.3, -1.7], [2.0, -3.0]])
def test_the_two_readings_of_syn2_differ_by_the_stated_log_odds(x):
    x = np.array(x)
    gaussian = log_odds(two_wells("gaussian2d"), x)
    printed = log_odds(two_wells("printed"), x)
    # METHODS 1.4-A with sigma_k = 4; single precision of a drift of size 4 near odds of at most
    # e^6.
    np.testing.assert_allclose(gaussian, (54.0 * x[0] + 60.0 * x[1] + 81.0) / 32.0, atol=2e-3)
    np.testing.assert_allclose(printed - gaussian, (x[1] ** 2 - x[0] ** 2) / 16.0, atol=4e-3)


def test_the_scaled_wells_are_the_score_of_their_mixture(getkey):
    first = jnp.array([12.0, 15.0])
    second = jnp.array([-15.0, -15.0])

    def log_density(x):
        bumps = jnp.stack([-jnp.sum((x - mu) ** 2) / (2.0 * 16.0) for mu in (first, second)])
        return jax.scipy.special.logsumexp(bumps)

    drift = known_system("syn2-score").process.drift
    x = 10.0 * jax.random.normal(getkey(), (50, 2))
    # sigma^2 / 2 = 8, and exp(2 U / sigma^2) is stationary for the drift grad U.
    np.testing.assert_allclose(
        jax.vmap(drift)(x), 8.0 * jax.vmap(jax.grad(log_density))(x), rtol=1e-4, atol=1e-4
    )


@pytest.mark.parametrize("name", SYSTEMS)
def test_blocks_act_on_pairs_of_coordinates(getkey, name):
    x = jax.random.normal(getkey(), (6,))
    small = known_system(name, 2)
    large = known_system(name, 6)
    pairs = [small.process.drift(x[i : i + 2]) for i in (0, 2, 4)]
    np.testing.assert_allclose(large.process.drift(x), jnp.concatenate(pairs), rtol=1e-5, atol=1e-5)
    sigma = [np.asarray(small.process.diffusion(x[i : i + 2])) for i in (0, 2, 4)]
    np.testing.assert_array_equal(large.process.diffusion(x), block_diag(*sigma))
    np.testing.assert_array_equal(large.initial_cov, np.kron(np.eye(3), small.initial_cov))


def test_the_paper_observes_one_set_of_particles_except_in_syn2():
    shared = {
        name: known_system(name).shared_particles
        for name in ("syn1", "syn2", "syn2-printed", "syn3")
    }
    assert shared == {"syn1": True, "syn2": False, "syn2-printed": False, "syn3": True}
    assert known_system("syn1").train_times == (0.0, 0.2, 2.0)
    assert known_system("syn3").test_times == (0.1, 0.3, 0.5)


def by_first_coordinate(points):
    return points[np.argsort(points[:, 0])]


@pytest.mark.parametrize("shared", [True, False])
def test_particles_are_shared_or_independent(getkey, shared):
    # Without noise, so that a shared cloud is the start times a matrix.
    system = known_system("curl")
    n = 200
    time = 0.05
    start, end = system.observe(n, [0.0, time], key=getkey(), shared_particles=shared).clouds
    flow = np.eye(2)
    for h in Mesh.refine([0.0, time], system.dt).steps:
        flow = (np.eye(2) - h * system.linear.matrix) @ flow
    rotated = start @ flow.T
    # Single precision over 100 steps of coordinates of size 5.
    difference = by_first_coordinate(rotated) - by_first_coordinate(end)
    assert (np.abs(difference).max() < 1e-4) == shared


def test_observations_are_sorted_and_follow_the_key(getkey):
    system = known_system("syn3")
    key = getkey()
    first = system.observe(20, [0.05, 0.0], key=key)
    assert first.times.tolist() == [0.0, 0.05]
    assert first.counts == (20, 20)
    np.testing.assert_array_equal(
        first.clouds[1], system.observe(20, [0.0, 0.05], key=key).clouds[1]
    )
    assert not np.array_equal(
        first.clouds[1], system.observe(20, [0.0, 0.05], key=getkey()).clouds[1]
    )


def test_initial_law(getkey):
    n = 20_000
    system = known_system("curl-anisotropic")
    x = np.asarray(system.sample_initial(n, getkey()))
    # se of a mean sqrt(V / n), of a variance V sqrt(2 / n), of the covariance sqrt(V_1 V_2 / n);
    # four of each.
    assert np.all(np.abs(x.mean(axis=0)) < 4.0 * np.sqrt(np.array([2.0, 1.0]) / n))
    assert np.all(
        np.abs(x.var(axis=0) - [2.0, 1.0]) < 4.0 * np.array([2.0, 1.0]) * np.sqrt(2.0 / n)
    )
    assert abs(np.cov(x.T)[0, 1]) < 4.0 * np.sqrt(2.0 / n)


@pytest.mark.parametrize("n_dims", [0, 1, 3, 7, -2])
def test_odd_dimensions_are_refused(refused, n_dims):
    with refused("an even dimension", f"found {n_dims}."):
        known_system("syn1", n_dims)


def test_unknown_names_are_refused(refused):
    with refused("syn1", "curl", "'syn9'"):
        known_system("syn9")


def test_negative_or_missing_times_are_refused(refused, getkey):
    with refused("times from 0 on", "t=-0.1"):
        known_system("syn1").observe(10, [0.2, -0.1], key=getkey())
    with refused("time"):
        known_system("syn1").observe(10, [], key=getkey())


@pytest.mark.parametrize("name", ["syn2", "syn3"])
def test_moments_of_a_drift_that_is_not_linear_are_refused(refused, name):
    with refused("linear drift", name):
        known_system(name).euler_moments(1.0)
    with refused("linear drift", name):
        known_system(name).exact_moments(1.0)
