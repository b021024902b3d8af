"""Lines and cosines of softly bounded inputs: slopes, parts, bounds, the kernel of cosines."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from itofit.process.fourier import FourierFeatures

BOUND = 4.0


def features_of(n_dims, n_cosines=9, seed=0):
    drawn = FourierFeatures.draw(n_dims, n_cosines, np.random.default_rng(seed))
    centre = np.linspace(-0.5, 1.0, n_dims)
    return drawn.in_units(centre, np.linspace(0.5, 2.0, n_dims))


def points(n_dims, n=12, spread=2.0):
    return jnp.asarray(spread * np.random.default_rng(1).standard_normal((n, n_dims)), float)


@pytest.mark.parametrize("n_dims", [1, 3])
def test_values_are_one_the_bounded_inputs_and_their_cosines(n_dims):
    """Written out in numpy; single precision."""
    features = features_of(n_dims)
    x = points(n_dims)
    z = (np.asarray(x) - np.asarray(features.centre)) / np.asarray(features.width)
    z = BOUND * np.tanh(z / BOUND)
    waves = np.cos(z @ np.asarray(features.directions).T + np.asarray(features.offsets))
    expected = np.column_stack([np.ones(len(z)), z, np.sqrt(2.0 / 9.0) * waves])
    np.testing.assert_allclose(jax.vmap(features)(x), expected, atol=3e-5)
    assert features.n_all == expected.shape[1]


@pytest.mark.parametrize("n_dims", [1, 3])
@pytest.mark.parametrize("part", [None, np.array([0, 2, 3, 7])], ids=["all", "some"])
def test_slope_is_the_derivative(n_dims, part):
    """Of forward differentiation; single precision of numbers of order ten."""
    features = features_of(n_dims)
    features = features if part is None else features.only(part[part < features.n_all])
    n_features = len(features(jnp.zeros(n_dims)))
    rng = np.random.default_rng(2)
    W = jnp.asarray(rng.standard_normal((n_features, 3)), dtype=float)
    expected = jax.vmap(jax.jacfwd(lambda x: features(x) @ W))(points(n_dims))
    slopes = jax.vmap(lambda x: features.slope(x, W))(points(n_dims))
    np.testing.assert_allclose(slopes, expected, atol=1e-4)


def test_only_picks_features_again_and_again():
    features = features_of(2)
    x = points(2)
    values = np.asarray(jax.vmap(features)(x))
    some = features.only(np.array([0, 2, 5, 9]))
    np.testing.assert_array_equal(jax.vmap(some)(x), values[:, [0, 2, 5, 9]])
    fewer = some.only(np.array([1, 3]))
    np.testing.assert_array_equal(jax.vmap(fewer)(x), values[:, [2, 9]])


def test_other_units_are_the_same_functions():
    drawn = FourierFeatures.draw(2, 8, np.random.default_rng(0))
    centre = np.array([1.0, -2.0])
    width = np.array([0.5, 3.0])
    x = points(2)
    moved = drawn.in_units(centre, width)
    np.testing.assert_allclose(jax.vmap(moved)(centre + width * x), jax.vmap(drawn)(x), atol=2e-5)


def test_features_stay_bounded_however_far_the_point():
    features = features_of(3)
    far = jnp.asarray([[1e6, -1e6, 1e6], [1e30, 0.0, -1e30]])
    values = np.asarray(jax.vmap(features)(far))
    assert np.all(np.isfinite(values))
    assert np.max(np.abs(values)) <= BOUND
    slopes = jax.vmap(lambda x: features.slope(x, jnp.ones((features.n_all, 1))))(far[:1])
    np.testing.assert_allclose(slopes, 0.0, atol=1e-5)


@pytest.mark.parametrize("n_cosines", [1, 2, 7, 8])
def test_so_many_cosines_are_drawn_as_asked_for(n_cosines):
    features = FourierFeatures.draw(2, n_cosines, np.random.default_rng(0))
    assert len(features(jnp.zeros(2))) == 3 + n_cosines
    assert features.directions.shape == (n_cosines, 2)


def kernel_of(features, x, y):
    """What the cosines alone say of pairs of points."""
    n_lines = 1 + x.shape[1]
    phi = np.asarray(jax.vmap(features)(jnp.asarray(x, float)))[:, n_lines:]
    psi = np.asarray(jax.vmap(features)(jnp.asarray(y, float)))[:, n_lines:]
    return np.sum(phi * psi, axis=1)


def bells(distance, n_dims):
    """Mean of exp(-d^2 / 2 l^2) over length scales log-uniform between .7 and 3."""
    scale = 0.7 * (3.0 / 0.7) ** ((np.arange(400) + 0.5) / 400)
    scale = scale * max(1.0, np.sqrt(n_dims / 3.0))
    return np.mean(np.exp(-0.5 * (distance[:, None] / scale) ** 2), axis=1)


@pytest.mark.parametrize("n_dims", [1, 2, 6])
def test_the_kernel_of_the_cosines_is_a_mixture_of_bells(n_dims):
    """A pair of cosines has a variance of at most 1 / 2 about its mean, so that by chance 1024 of
    them are off by 1 / 45; quasi-random ones may not be worse. Largest of 200: four times that.
    """
    features = FourierFeatures.draw(n_dims, 2048, np.random.default_rng(3))
    rng = np.random.default_rng(4)
    x, y = rng.uniform(-1.5, 1.5, (2, 200, n_dims))
    between = BOUND * (np.tanh(x / BOUND) - np.tanh(y / BOUND))
    off = kernel_of(features, x, y) - bells(np.linalg.norm(between, axis=1), n_dims)
    assert np.sqrt(np.mean(off**2)) < 1.0 / np.sqrt(2.0 * 1024)
    assert np.max(np.abs(off)) < 4.0 / np.sqrt(2.0 * 1024)


def test_the_variance_of_the_cosines_is_the_same_everywhere():
    """Pairs are a quarter of a turn apart, and cos^2 + sin^2 = 1."""
    features = FourierFeatures.draw(2, 40, np.random.default_rng(3))
    x = np.asarray(points(2), dtype=np.float64)
    np.testing.assert_allclose(kernel_of(features, x, x), 1.0, atol=1e-5)


def test_two_seeds_give_nearly_the_same_kernel():
    """200 cosines, as a fit has: by chance two kernels would differ by sqrt(2 / 200) = .1 in root
    mean square where bells are low; less than that.
    """
    rng = np.random.default_rng(5)
    x, y = rng.uniform(-1.5, 1.5, (2, 200, 2))
    kernels = [
        kernel_of(FourierFeatures.draw(2, 200, np.random.default_rng(seed)), x, y)
        for seed in (0, 1)
    ]
    assert np.sqrt(np.mean((kernels[0] - kernels[1]) ** 2)) < 0.1
