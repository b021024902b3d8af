"""The trapezoid rule and its random version."""

import jax
import jax.numpy as jnp
import numpy as np

from itofit.weak.quadrature import stratified_nodes, trapezoid_weights

STEPS = jnp.asarray([0.1, 0.3, 0.05, 0.2])
TIMES = jnp.concatenate([jnp.zeros(1), jnp.cumsum(STEPS)])


def test_trapezoid_is_exact_on_straight_lines():
    integral = trapezoid_weights(STEPS) @ (2.0 - 3.0 * TIMES)
    end = float(TIMES[-1])
    np.testing.assert_allclose(integral, 2.0 * end - 1.5 * end**2, rtol=1e-6)


def test_trapezoid_equals_numpy():
    values = jnp.sin(5.0 * TIMES)
    np.testing.assert_allclose(
        trapezoid_weights(STEPS) @ values, np.trapezoid(values, TIMES), rtol=1e-5
    )


def test_stratified_nodes_are_unbiased(getkey):
    """Each node's expected weight is its trapezoid weight."""
    weights = trapezoid_weights(STEPS)
    n_keys = 4000
    nodes, v = jax.vmap(lambda k: stratified_nodes(weights, 3, k))(
        jax.random.split(getkey(), n_keys)
    )
    drawn = jax.vmap(lambda k, w: jnp.zeros(5).at[k].add(w))(nodes, v)
    error = np.asarray(drawn).std(axis=0) / np.sqrt(n_keys)
    # 4 standard errors of the mean over 4000 draws, measured on these draws.
    assert np.all(np.abs(np.asarray(drawn).mean(axis=0) - np.asarray(weights)) <= 4 * error + 1e-7)
    np.testing.assert_allclose(drawn.sum(axis=1), weights.sum(), rtol=1e-5)


def test_strata_are_spread_over_time(getkey):
    """One node a stratum: sorted, and within half a stratum and a node of its middle."""
    weights = trapezoid_weights(jnp.full(100, 0.01))
    nodes, _ = stratified_nodes(weights, 10, getkey())
    assert np.all(np.diff(nodes) >= 0)
    assert np.all(np.abs(np.asarray(nodes) - (10 * np.arange(10) + 5)) <= 6)
