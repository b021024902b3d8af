"""Terms of potentials: values, gradients, bounds, tangents, and the drifts made of them."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from itofit.process.clock import Clock
from itofit.process.drift import PotentialDrift, PotentialNetworkDrift, potential_of
from itofit.process.potentials import smooth_terms, sparse_terms

METRIC = np.array([0.5, 2.0, 1.0])
LOW, HIGH = np.full(4, -1.5), np.full(4, 2.0)


def smooth(n_inputs=3, n_cosines=8):
    rng = np.random.default_rng(0)
    return smooth_terms(METRIC, n_inputs, n_cosines, rng)


def sparse(n_inputs=3):
    return sparse_terms(METRIC, LOW[:n_inputs], HIGH[:n_inputs])


KINDS = {"smooth": smooth, "sparse": sparse}


def points(n_inputs=3, n=10, spread=2.0):
    return jnp.asarray(spread * np.random.default_rng(1).standard_normal((n, n_inputs)), float)


def drift_of(dictionary, clock=None, seed=2):
    w = np.random.default_rng(seed).standard_normal((dictionary.n_features, 1))
    metric = jnp.asarray(METRIC, float)
    features = dictionary.features
    return PotentialDrift(features, jnp.asarray(w, float), metric=metric, clock=clock)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("n_inputs", [3, 4])
def test_slope_is_the_derivative(kind, n_inputs):
    """Of forward differentiation, where no power begins its tangent; single precision."""
    dictionary = KINDS[kind](n_inputs)
    features = dictionary.features
    rng = np.random.default_rng(3)
    W = jnp.asarray(rng.standard_normal((dictionary.n_features, 2)), float)
    expected = jax.vmap(jax.jacfwd(lambda x: features(x) @ W))(points(n_inputs))
    slopes = jax.vmap(lambda x: features.slope(x, W))(points(n_inputs))
    np.testing.assert_allclose(slopes, expected, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("kind", KINDS)
def test_only_picks_features_again_and_again(kind):
    dictionary = KINDS[kind]()
    values = np.asarray(jax.vmap(dictionary.features)(points()))
    last = dictionary.n_features - 1
    some = dictionary.features.only(np.array([0, 2, 4, 7, last]))
    chosen = values[:, [0, 2, 4, 7, last]]
    np.testing.assert_allclose(jax.vmap(some)(points()), chosen, rtol=1e-5, atol=1e-6)
    fewer = some.only(np.array([1, 4]))
    np.testing.assert_allclose(jax.vmap(fewer)(points()), values[:, [2, last]], rtol=1e-5)


@pytest.mark.parametrize("kind", KINDS)
def test_groups_name_the_features(kind):
    dictionary = KINDS[kind](4)
    assert len(dictionary.features(jnp.zeros(4))) == dictionary.n_features
    assert all(min(group.coordinates) < 3 for group in dictionary.groups)
    assert [group.kind for group in dictionary.groups[:4]] == ["constant"] * 3 + ["linear"]


def test_smooth_products_are_products_near_the_data():
    """f(u) = 16 log cosh(u / 4) is u^2 / 2 - u^4 / 192: by u^4 / 96 at the most for a pair."""
    dictionary = smooth()
    x = points(spread=0.2)
    pairs = [group.coordinates for group in dictionary.groups if group.kind == "linear"]
    first = 3
    size = np.asarray([np.sqrt(METRIC[a] * METRIC[b]) for a, b in pairs])
    values = size * np.asarray(jax.vmap(dictionary.features)(x))[:, first : first + len(pairs)]
    x = np.asarray(x)
    factor = np.asarray([0.5 if a == b else 1.0 for a, b in pairs])
    products = factor * np.stack([x[:, a] * x[:, b] for a, b in pairs], axis=1)
    bound = (np.sum(x**2, axis=1)[:, None] ** 2) / 48.0 + 1e-5
    assert np.all(np.abs(values - products) < bound)


def test_sparse_terms_are_monomials_inside_the_box():
    """All of degree 1 to 4 in three dimensions, times their heights, against plain products."""
    dictionary = sparse()
    terms = [group.coordinates for group in dictionary.groups]
    assert len(terms) == 3 + 6 + 10 + 15
    x = np.clip(np.asarray(points(spread=0.7), np.float64), -1.4, 1.9)
    values = np.asarray(jax.vmap(dictionary.features)(jnp.asarray(x, float)))
    plain = np.stack([np.prod(x[:, list(term)], axis=1) for term in terms], axis=1)
    heights = np.concatenate([np.asarray(part.heights) for part in dictionary.features.parts])
    np.testing.assert_allclose(values, heights * plain, rtol=1e-4, atol=1e-5)


def test_across_the_border_of_the_box_the_drift_is_continuous():
    """On both sides of a corner, a hundredth of a thousandth apart."""
    drift = drift_of(sparse())
    corner = np.array([2.0, -1.5, 0.3])
    inside, outside = corner - 1e-5 * np.sign(corner), corner + 1e-5 * np.sign(corner)
    here, there = (drift(jnp.asarray(x, float)) for x in (inside, outside))
    np.testing.assert_allclose(here, there, atol=2e-2)


def test_powers_go_on_as_tangents():
    """Of x^4 / 4 beyond 2: 4 + 8 (x - 2)."""
    dictionary = sparse_terms(np.ones(1), LOW[:1], HIGH[:1])
    quartic = dictionary.only([g.coordinates == (0,) * 4 for g in dictionary.groups])
    x = jnp.array([5.0])
    np.testing.assert_allclose(quartic.features(x), [4.0 + 8.0 * 3.0], rtol=1e-5)


def test_the_gradient_of_smooth_terms_is_bounded():
    features = smooth().features
    far = jnp.asarray([[1e6, -1e6, 1e6], [1e18, 0.0, -1e18], [3.0, -80.0, 4.0]])
    slopes = np.asarray(jax.vmap(lambda x: features.slope(x, jnp.eye(len(features.heights))))(far))
    assert np.all(np.isfinite(slopes))
    near = jax.vmap(lambda x: features.slope(x, jnp.eye(len(features.heights))))(points())
    assert np.max(np.abs(slopes)) < 4.0 * np.max(np.abs(near))


def test_of_one_coordinate_a_potential_may_have_any_smooth_drift():
    """Cosines have the drift of cosines in z, whose variance is one where z is not bent.

    One of the 32 pairs may have next to no frequency.
    """
    dictionary = smooth_terms(np.array([3.0]), 1, 64, np.random.default_rng(0))
    w = jnp.zeros((dictionary.n_features, 1))
    drift = PotentialDrift(dictionary.features, w, metric=jnp.array([3.0]))
    phi = np.asarray(drift.phi(jnp.zeros(1)))[0, 2:]
    assert np.sum(phi**2) == pytest.approx(1.0, abs=1.0 / 32.0 + 1e-3)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("clock", [None, Clock.over(np.arange(3.0))], ids=["", "clock"])
def test_a_potential_drift_is_minus_the_gradient_and_linear(kind, clock):
    dictionary = KINDS[kind](3 if clock is None else 4)
    drift = drift_of(dictionary, clock).at(0.7)

    @jax.jit
    def both_ways(x):
        gradient = -jnp.asarray(METRIC, float) * jax.grad(potential_of(drift))(x)
        linear = drift.phi(x) @ drift.coefficients[:, 0]
        return drift(x), gradient, linear, drift.slope(x), jax.jacrev(drift)(x)

    g, gradient, linear, slope, jacobian = jax.vmap(both_ways)(points(n=4, spread=1.0))
    np.testing.assert_allclose(g, gradient, rtol=1e-3, atol=1e-3)
    np.testing.assert_allclose(g, linear, rtol=1e-3, atol=1e-3)
    np.testing.assert_allclose(slope, jacobian, rtol=1e-3, atol=1e-3)


def test_a_network_potential_has_no_rotation():
    drift = PotentialNetworkDrift.create(
        METRIC, width=8, depth=2, speed=2.0, last_gain=0.5, key=jax.random.key(0)
    )
    x = jnp.array([0.3, -1.0, 0.5])
    jacobian = np.asarray(jax.jacobian(drift)(x)) / METRIC[:, None]
    np.testing.assert_allclose(jacobian, jacobian.T, atol=1e-5)
    np.testing.assert_allclose(drift(x), -METRIC * jax.grad(potential_of(drift))(x), rtol=1e-4)
