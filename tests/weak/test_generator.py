"""The generator against jax.hessian, closed forms, L(1) = 0 and L(af + bh) = a Lf + b Lh."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from itofit.process.network import xavier_network
from itofit.weak.generator import ito_push, second_order, sketched


def by_hessian(f, x, drift, dispersion):
    """L f = g . grad f + 1/2 tr(S S' hess f), term by term as it is written."""
    hessian = jax.hessian(f)(x)
    return drift @ jax.grad(f)(x) + 0.5 * jnp.trace(dispersion @ dispersion.T @ hessian)


@pytest.mark.parametrize(("n_dims", "n_noise"), [(1, 1), (2, 2), (5, 5), (5, 2), (3, 0)])
def test_push_equals_hessian(getkey, n_dims, n_noise):
    with jax.enable_x64(True):
        network = xavier_network([n_dims, 16, 16, 1], key=getkey())
        x, drift = jax.random.normal(getkey(), (2, n_dims))
        dispersion = jax.random.normal(getkey(), (n_dims, n_noise))

        def f(y):
            return network(y)[0]

        value, rate, spread = ito_push(network, x, drift, dispersion)
        # Float64 round-off over three layers of 16 units.
        np.testing.assert_allclose(value[0], f(x), rtol=1e-13)
        np.testing.assert_allclose(
            rate[0], by_hessian(f, x, drift, dispersion), rtol=1e-11, atol=1e-13
        )
        np.testing.assert_allclose(
            spread[:, 0], dispersion.T @ jax.grad(f)(x), rtol=1e-11, atol=1e-13
        )
        np.testing.assert_allclose(
            second_order(f, x, drift, dispersion)[1], rate[0], rtol=1e-11, atol=1e-13
        )


def test_unit_dispersion_gives_gradient_and_half_the_laplacian(getkey):
    with jax.enable_x64(True):
        network = xavier_network([4, 8, 1], key=getkey())
        x = jax.random.normal(getkey(), (4,))
        _, rate, spread = ito_push(network, x, jnp.zeros(4), jnp.eye(4))

        def f(y):
            return network(y)[0]

        np.testing.assert_allclose(spread[:, 0], jax.grad(f)(x), rtol=1e-12)
        np.testing.assert_allclose(2 * rate[0], jnp.trace(jax.hessian(f)(x)), rtol=1e-12)


def test_closed_forms(getkey):
    """Quadratics, exponentials and constants have generators that can be written down."""
    with jax.enable_x64(True):
        A, Q, S = jax.random.normal(getkey(), (3, 3, 3))
        x, c = jax.random.normal(getkey(), (2, 3))
        Q = Q + Q.T
        quadratic = second_order(lambda y: 0.5 * y @ Q @ y, x, A @ x, S)[1]
        np.testing.assert_allclose(
            quadratic, (A @ x) @ Q @ x + 0.5 * jnp.trace(S @ S.T @ Q), rtol=1e-12
        )
        exponential = second_order(lambda y: jnp.exp(c @ y), x, jnp.zeros(3), jnp.eye(3))[1]
        np.testing.assert_allclose(exponential, 0.5 * (c @ c) * jnp.exp(c @ x), rtol=1e-12)
        assert second_order(lambda y: jnp.asarray(7.0), x, A @ x, S)[1] == 0.0


def test_linear_in_f(getkey):
    with jax.enable_x64(True):
        f = jnp.sin
        h = jnp.tanh
        x, drift = jax.random.normal(getkey(), (2, 2))
        S = jax.random.normal(getkey(), (2, 2))

        def L(function):
            return second_order(lambda y: jnp.sum(function(y)), x, drift, S)[1]

        np.testing.assert_allclose(
            L(lambda y: 3 * f(y) - 2 * h(y)), 3 * L(f) - 2 * L(h), rtol=1e-12
        )


def test_sketched_trace_is_unbiased(getkey):
    """The mean over all sign vectors is the trace itself, so the estimate has no bias."""
    with jax.enable_x64(True):
        network = xavier_network([3, 8, 1], key=getkey())
        x, drift = jax.random.normal(getkey(), (2, 3))
        S = jax.random.normal(getkey(), (3, 3))
        signs = jnp.asarray(list(itertools.product([-1.0, 1.0], repeat=3)))
        estimates = [ito_push(network, x, drift, S @ v[:, None]).drift[0] for v in signs]
        np.testing.assert_allclose(
            np.mean(estimates), ito_push(network, x, drift, S).drift[0], rtol=1e-11
        )
        many = jax.vmap(lambda y: sketched(jnp.eye(3), 1, y, jax.random.key(0)))(
            jax.random.normal(getkey(), (400, 3))
        )
        np.testing.assert_allclose(np.abs(many), 1.0, rtol=1e-12)
        # Signs of different points are independent: each mean over 400 points is within 4 / 20.
        assert np.all(np.abs(many.mean(axis=0)) < 0.2)
