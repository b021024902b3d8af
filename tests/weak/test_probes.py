"""Spectral normalisation against SVD, the Lipschitz bound, and one battery over every probe."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from itofit.weak.probes import (
    CosineProbe,
    FunctionProbe,
    NetworkProbe,
    SpectralNetwork,
    random_cosines,
)


def spectral(key, n_dims=3, width=16):
    return SpectralNetwork.create(n_dims, width=width, depth=3, key=key)


def test_norms_are_the_largest_singular_values(getkey):
    network = spectral(getkey()).sharpened(200)
    for weight, norm in zip(network.raw.weights, network.norms(), strict=True):
        # 200 power iterations leave an error of (s2/s1)^400, below float32 round-off here.
        np.testing.assert_allclose(norm, np.linalg.svd(weight, compute_uv=False)[0], rtol=1e-4)


def test_normalised_weights_have_norm_one_and_the_probe_is_one_lipschitz(getkey):
    probe = spectral(getkey()).sharpened(200).probe()
    for weight in probe.network.weights:
        np.testing.assert_allclose(np.linalg.svd(weight, compute_uv=False)[0], 1.0, rtol=1e-4)
    points = 3.0 * jax.random.normal(getkey(), (500, 3))
    slopes = jnp.linalg.norm(jax.vmap(jax.grad(probe))(points), axis=1)
    assert float(slopes.max()) <= 1.0 + 1e-4


def test_one_power_iteration_follows_moving_weights(getkey):
    """Weights that move by 1 % a step are followed by one iteration a step, as in training."""
    network = spectral(getkey())
    for _ in range(50):
        noise = jax.random.normal(getkey(), network.raw.weights[1].shape)
        perturbed = network.raw.weights[1] + 0.01 * noise / jnp.sqrt(16.0)
        network = eqx.tree_at(lambda n: n.raw.weights[1], network, perturbed).sharpened()
    true = np.linalg.svd(network.raw.weights[1], compute_uv=False)[0]
    np.testing.assert_allclose(network.norms()[1], true, rtol=0.02)


def test_gradient_through_the_norm_is_that_of_the_singular_value(getkey):
    """d s1 / dW = u v': scaling the raw weights changes nothing, so the slope along W vanishes."""
    network = spectral(getkey()).sharpened(200)
    x = jax.random.normal(getkey(), (3,))
    slope = jax.grad(lambda n: n.probe()(x))(network)
    for weight, g in zip(network.raw.weights, slope.raw.weights, strict=True):
        size = float(jnp.linalg.norm(weight) * jnp.linalg.norm(g))
        assert abs(float(jnp.sum(weight * g))) < 1e-4 * size + 1e-6


PROBES = {
    "network": lambda key: spectral(key).probe(),
    "cosine": lambda key: CosineProbe(jax.random.normal(key, (3,)), jnp.asarray(0.3)),
    "function": lambda key: FunctionProbe(lambda x: jnp.sin(x[0]) * x[1] + x[2] ** 3),
    "raw network": lambda key: NetworkProbe(spectral(key).raw),
}


@pytest.mark.parametrize("name", PROBES)
def test_battery(name, getkey):
    """Every probe: scalar, finite, its generator that of its own value, and vmap over states."""
    probe = PROBES[name](getkey())
    x, drift = jax.random.normal(getkey(), (2, 3))
    S = jax.random.normal(getkey(), (3, 3))
    expected = drift @ jax.grad(probe)(x) + 0.5 * jnp.trace(S @ S.T @ jax.hessian(probe)(x))
    assert probe(x).shape == ()
    np.testing.assert_allclose(probe.generator(x, drift, S), expected, rtol=2e-4, atol=1e-5)
    states = jax.random.normal(getkey(), (7, 3))
    batch = jax.vmap(lambda y: probe.generator(y, drift, S))(states)
    assert batch.shape == (7,)
    assert bool(jnp.all(jnp.isfinite(batch)))


def test_random_cosines_have_the_promised_scales(getkey):
    cosines = random_cosines(200, 4, key=getkey())
    lengths = 1.0 / np.linalg.norm(cosines.omega, axis=1)
    assert lengths.min() >= 0.4 - 1e-5
    assert lengths.max() <= 3.0 + 1e-5
