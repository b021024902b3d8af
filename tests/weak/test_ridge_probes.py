"""Families of test functions of one projection, and the best of them."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from itofit.simulate import known_system
from itofit.simulate.euler import euler_path
from itofit.weak import Cloud, PathRead, second_order, trapezoid_weights, weak_residual
from itofit.weak.ridge_probes import (
    RidgeFamily,
    RidgeProbe,
    best_answer,
    bowl_directions,
    n_cosines_for,
    propagated_values,
    random_cosines_of_few,
)

pytestmark = pytest.mark.slow


def family(n_dims, key, n_cosines=6):
    k_centre, k_cosines = jax.random.split(key)
    centre = jax.random.normal(k_centre, (n_dims,))
    width = 0.5 + jnp.arange(n_dims, dtype=float)
    bowls = jnp.asarray(bowl_directions(n_dims, 1000), dtype=float)
    return RidgeFamily(centre, width, bowls, *random_cosines_of_few(n_cosines, n_dims, k_cosines))


@pytest.mark.parametrize("n_dims", [1, 3])
def test_generator_equals_derivatives(n_dims, getkey):
    with jax.enable_x64(True):
        functions = family(n_dims, getkey())
        x = jax.random.normal(getkey(), (n_dims,))
        drift = jax.random.normal(getkey(), (n_dims,))
        noise = jax.random.normal(getkey(), (n_dims, n_dims + 1))
        generators = functions.generator(x, drift, noise)
        assert generators.shape == functions(x).shape

        def by_derivatives(w):
            return second_order(lambda y: w @ functions(y), x, drift, noise)[1]

        wanted = jax.vmap(by_derivatives)(jnp.eye(len(generators)))
        np.testing.assert_allclose(generators, wanted, rtol=1e-9, atol=1e-12)


def test_a_probe_is_the_weighted_sum(getkey):
    functions = family(3, getkey())
    x = jax.random.normal(getkey(), (3,))
    weights = jax.random.normal(getkey(), functions(x).shape)
    probe = RidgeProbe(functions, weights)
    noise = jnp.eye(3)
    np.testing.assert_allclose(probe(x), weights @ functions(x), rtol=1e-6)
    np.testing.assert_allclose(
        probe.generator(x, x, noise),
        weights @ functions.generator(x, x, noise),
        rtol=1e-5,
        atol=1e-6,
    )


def test_cosines_take_turns_with_one_two_and_all_coordinates(getkey):
    omega, phase = random_cosines_of_few(300, 6, getkey())
    used = np.sum(np.asarray(omega) != 0.0, axis=1)
    assert np.all(used[0::3] == 1)
    assert np.all((used[1::3] >= 1) & (used[1::3] <= 2))
    assert np.all(used[2::3] == 6)
    length = 1.0 / np.linalg.norm(omega, axis=1)
    assert 0.399 < length.min() < 0.45
    assert 2.6 < length.max() < 3.001
    assert phase.shape == (300,)


def test_families_never_outnumber_the_points():
    for n_dims, n_points in [(2, 32), (2, 1200), (10, 100), (10, 512), (50, 512)]:
        n = n_dims + len(bowl_directions(n_dims, n_points)) + n_cosines_for(n_dims, n_points)
        assert n <= n_points // 3


def best(key, shift, n=500):
    """The best answer for two normal clouds, the second shifted."""
    k0, k1, k2 = jax.random.split(key, 3)
    start = Cloud(jax.random.normal(k0, (n, 2)), jnp.full(n, 1.0 / n))
    target = Cloud(jax.random.normal(k1, (n, 2)) + shift, jnp.full(n, 1.0 / n))
    functions = family(2, k2)
    return best_answer(functions, target, start, jax.vmap(functions)(start.points)), target, start


def test_the_answer_is_the_maximum_of_residual_over_its_standard_error(getkey):
    (probe, chi2), target, start = best(getkey(), jnp.asarray([0.3, 0.0]))

    each = [jax.vmap(probe.family)(cloud.points) for cloud in (target, start)]
    variances = sum(jnp.var(values, axis=0) / len(values) for values in each)

    def score(weights):
        """The residual over its standard error, with a thousandth of all variances added."""
        a = each[0] @ weights
        b = each[1] @ weights
        variance = (
            jnp.var(a) / len(a) + jnp.var(b) / len(b) + 1e-3 * jnp.sum(weights**2 * variances)
        )
        return float((jnp.mean(a) - jnp.mean(b)) / jnp.sqrt(variance))

    residual = jnp.mean(each[0] @ probe.weights) - jnp.mean(each[1] @ probe.weights)
    np.testing.assert_allclose(
        residual, chi2 / jnp.sqrt(1.0 + chi2 / len(probe.weights)), rtol=1e-3
    )
    best_score = score(probe.weights)
    np.testing.assert_allclose(best_score**2, chi2, rtol=1e-3)
    for k in range(20):
        other = probe.weights + 0.3 * jnp.std(probe.weights) * jax.random.normal(
            jax.random.key(k), probe.weights.shape
        )
        assert score(other) <= best_score * 1.0005  # float32


def test_chi_squared_of_equal_laws_has_its_mean_and_of_others_is_far_above(getkey):
    values = [float(best(k, jnp.zeros(2))[0].chi2) for k in jax.random.split(getkey(), 40)]
    n = len(best(getkey(), jnp.zeros(2))[0].probe.weights)
    # Mean n and sd sqrt(2n) of chi-squared, over 40 draws, 4 standard errors.
    assert abs(np.mean(values) - n) < 4 * np.sqrt(2 * n / 40)
    # A shift of 0.3 sd of 500 points: about 0.3^2 * 250 = 22 in one direction.
    shifted = [
        float(best(k, jnp.asarray([0.3, 0.0]))[0].chi2) for k in jax.random.split(getkey(), 10)
    ]
    assert np.mean(shifted) > n + 10


def test_weights_act_as_repeats(getkey):
    x = jax.random.normal(getkey(), (40, 2))
    y = jax.random.normal(getkey(), (30, 2))
    functions = family(2, getkey(), n_cosines=3)
    twice = jnp.concatenate([y, y[:10]])
    weights = jnp.concatenate([jnp.full(10, 2.0), jnp.ones(20)]) / 40.0
    start = Cloud(x, jnp.full(40, 1 / 40))
    propagated = jax.vmap(functions)(x)
    a = best_answer(functions, Cloud(y, weights), start, propagated)
    b = best_answer(functions, Cloud(twice, jnp.full(40, 1 / 40)), start, propagated)
    # The same law; fewer effective points with weights, so the smaller chi-squared.
    assert float(a.chi2) < float(b.chi2)


def test_propagated_values_average_to_the_weak_residual(getkey):
    system = known_system("ou")
    start = system.sample_initial(60, getkey())
    target = Cloud(system.sample_initial(50, getkey()), jnp.full(50, 1 / 50))
    steps = jnp.full(7, 0.05)
    noise = jax.random.normal(getkey(), (7, 60, 2))
    read = PathRead.of(system.process, euler_path(system.process, start, steps, noise))
    functions = family(2, getkey())
    cloud = Cloud(start, jnp.full(60, 1 / 60))
    propagated = propagated_values(functions, cloud, read, trapezoid_weights(steps))
    for m in range(functions(start[0]).shape[0]):
        probe = RidgeProbe(functions, jnp.zeros(propagated.shape[1]).at[m].set(1.0))
        wanted = weak_residual(probe, target, cloud, read, trapezoid_weights(steps))
        residual = target.expect(probe) - jnp.mean(propagated[:, m])
        np.testing.assert_allclose(residual, wanted, rtol=1e-4, atol=1e-5)
