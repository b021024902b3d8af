import jax
import jax.numpy as jnp
import numpy as np
import pytest

from itofit.process import ConstantDiffusion, FunctionDrift, ItoProcess
from itofit.simulate.euler import euler_path, euler_push


def linear(rate, sigma, n_dims=2):
    return ItoProcess(
        FunctionDrift(lambda x: -rate * x), ConstantDiffusion(sigma * jnp.eye(n_dims))
    )


def test_a_path_is_the_recursion_written_out(getkey):
    start = jax.random.normal(getkey(), (5, 2))
    steps = jnp.array([0.1, 0.2, 0.05])
    noise = jax.random.normal(getkey(), (3, 5, 2))
    nodes = euler_path(linear(2.0, 0.5), start, steps, noise)
    x = np.asarray(start, dtype=np.float64)
    np.testing.assert_array_equal(nodes[0], start)
    for k, h in enumerate(np.asarray(steps, dtype=np.float64)):
        x = x - 2.0 * h * x + 0.5 * np.sqrt(h) * np.asarray(noise[k])
        np.testing.assert_allclose(nodes[k + 1], x, rtol=1e-5, atol=1e-6)


def test_no_steps_leave_the_start(getkey):
    start = jax.random.normal(getkey(), (5, 2))
    np.testing.assert_array_equal(
        euler_push(linear(2.0, 0.5), start, jnp.zeros(0), getkey()), start
    )
    path = euler_path(linear(2.0, 0.5), start, jnp.zeros(0), jnp.zeros((0, 5, 2)))
    assert path.shape == (1, 5, 2)


def test_push_without_noise_is_the_end_of_the_path(getkey):
    start = jax.random.normal(getkey(), (5, 2))
    steps = jnp.full(7, 0.1)
    pushed = euler_push(linear(2.0, 0.0), start, steps, getkey())
    nodes = euler_path(linear(2.0, 0.0), start, steps, jnp.zeros((7, 5, 2)))
    np.testing.assert_allclose(pushed, nodes[-1], rtol=1e-6)


def test_push_depends_on_the_key_alone(getkey):
    start = jnp.zeros((5, 2))
    steps = jnp.full(7, 0.1)
    key = getkey()
    first, same, other = (
        euler_push(linear(2.0, 1.0), start, steps, k) for k in (key, key, getkey())
    )
    np.testing.assert_array_equal(first, same)
    assert np.all(np.asarray(first) != np.asarray(other))


def test_noise_differs_between_steps_rows_and_coordinates(getkey):
    n = 20_000
    x = np.asarray(
        euler_push(linear(0.0, 1.0), jnp.zeros((n, 2)), jnp.array([0.1, 0.2, 0.3]), getkey())
    )
    # Brownian motion at time 0.6: a variance has the standard error var sqrt(2 / n), a covariance
    # var / sqrt(n).
    covariance = np.cov(x.T)
    assert np.abs(np.diag(covariance) - 0.6).max() < 4.0 * 0.6 * np.sqrt(2.0 / n)
    assert abs(covariance[0, 1]) < 4.0 * 0.6 / np.sqrt(n)


def test_shapes_are_checked(getkey):
    with pytest.raises(TypeError):
        euler_path(linear(2.0, 0.5), jnp.zeros((5, 2)), jnp.zeros(3), jnp.zeros((4, 5, 2)))
