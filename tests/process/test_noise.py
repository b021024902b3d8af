"""Noise: what each kind of sigma is in the user's units, and what is refused."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from itofit import InputError, ParametricSigma, known_system
from itofit.process.drift import FunctionDrift
from itofit.process.ito import ItoProcess, rescaled
from itofit.process.noise import (
    KINDS,
    LearnedDiffusion,
    ScaledDiffusion,
    diffusion_from_sigma,
    first_noise,
    is_learned,
    mean_noise,
    noise_of,
    standard_diffusion,
)
from itofit.snapshots.scaling import Scaling

SCALING = Scaling(np.asarray([3.0, -1.0]), np.asarray([2.0, 0.5]))
SIZE = np.asarray([0.3, 0.4])


def learned(sigma):
    """The noise of a kind with the size above."""
    return noise_of(sigma, SCALING, SIZE, np.random.default_rng(0))


def in_units(diffusion):
    """S in the user's units."""
    return rescaled(ItoProcess(FunctionDrift(jnp.zeros_like), diffusion), SCALING).diffusion


@pytest.mark.parametrize("kind", ["diagonal", "full", "network", "network-full", "learn"])
def test_the_first_noise_has_the_size_that_was_asked_for(kind):
    noise = learned(kind)
    for z in (jnp.zeros(2), jnp.asarray([1.0, -2.0])):
        np.testing.assert_allclose(noise(z), np.diag(SIZE), rtol=1e-5)


def test_a_scalar_is_the_same_for_all_coordinates_in_the_users_units():
    S = np.asarray(in_units(learned("scalar"))(jnp.ones(2)))
    np.testing.assert_allclose(S, S[0, 0] * np.eye(2), rtol=1e-5)
    np.testing.assert_allclose(S[0, 0], np.sqrt(0.3 * 2.0 * 0.4 * 0.5), rtol=1e-5)


def test_multiplicative_noise_is_proportional_to_the_state():
    S = in_units(learned("multiplicative"))
    one, two = (np.diag(S(jnp.asarray(x))) for x in ([1.0, 1.0], [4.0, -3.0]))
    np.testing.assert_allclose(two, one * [4.0, -3.0], rtol=1e-5)


def test_a_function_of_ones_own_is_in_the_users_units():
    own = ParametricSigma(lambda x, p: p[0] * jnp.outer(x, x) + jnp.eye(2), (0.2,))
    x = jnp.asarray([2.0, 1.0])
    S = in_units(learned(own))(x)
    np.testing.assert_allclose(S, 0.2 * np.outer(x, x) + np.eye(2), rtol=1e-5)


@pytest.mark.parametrize("kind", KINDS)
def test_parameters_move_in_their_units_and_kinds_know_whether_they_are_constant(kind):
    noise = learned(kind)
    moved = noise.moved(jnp.ones(noise.n_parameters))
    np.testing.assert_allclose(moved.theta - noise.theta, noise.form.unit(), rtol=1e-4, atol=1e-6)
    # Every parameter of a network matters once its last layer says something.
    values = jax.vmap(moved.moved(jnp.arange(noise.n_parameters, dtype=float)))(
        jnp.asarray([[0.0, 0.0], [1.0, 2.0]])
    )
    assert bool(jnp.allclose(values[0], values[1], rtol=1e-6)) == noise.constant


def test_a_full_matrix_can_be_any_covariance():
    """The triangle and its scales are Cholesky's factor of any positive matrix."""
    a = np.asarray([[2.0, -0.9], [-0.9, 0.7]])
    L = np.linalg.cholesky(a)
    noise = learned("full")
    theta = jnp.asarray([np.log(L[0, 0]), np.log(L[1, 1]), L[1, 0] / L[1, 1]])
    S = np.asarray(LearnedDiffusion(theta, noise.form)(jnp.zeros(2)))
    np.testing.assert_allclose(S @ S.T, a, rtol=1e-5)


def test_the_first_guess_is_above_the_truth_but_not_by_orders_of_magnitude():
    """Steps from above are safe; from far below a log scale hardly moves a cloud."""
    for name in ("syn1", "syn2", "syn3", "ou", "diffusion-paper"):
        system = known_system(name)
        data = system.observe(1000, system.train_times, key=jax.random.key(0))
        scaling = Scaling.fit(data)
        rng = np.random.default_rng(0)
        first = first_noise("diagonal", scaling.transform(data), scaling, rng)
        sigma = scaling.sd * np.diag(np.asarray(first(jnp.zeros(2))))
        true = np.diag(np.asarray(system.process.diffusion(jnp.zeros(2))))
        assert np.all(sigma > 0.8 * true), name
        assert np.all(sigma < 30.0 * true), name


def test_the_mean_of_an_ensembles_noise_is_that_of_its_parameters():
    noise = learned("diagonal")
    other = LearnedDiffusion(noise.theta + 0.4, noise.form)
    np.testing.assert_allclose(mean_noise([noise, other]).theta, noise.theta + 0.2, rtol=1e-5)  # pyright: ignore
    known = known_system("syn1").process.diffusion
    assert mean_noise([known, known]) is known


def test_only_networks_draw_and_the_same_generator_gives_the_same_noise():
    for kind in KINDS:
        rng = np.random.default_rng(1)
        noise = noise_of(kind, SCALING, SIZE, rng)
        drawn = rng.bit_generator.state != np.random.default_rng(1).bit_generator.state
        assert drawn == kind.startswith("network")
        again = noise_of(kind, SCALING, SIZE, np.random.default_rng(1))
        np.testing.assert_array_equal(noise.theta, again.theta)


@pytest.mark.parametrize("sigma", [0.3, [0.3, 0.4], [[0.3, 0.1], [0.0, 0.4]], lambda x: 0.1 * x])
def test_a_known_sigma_in_standardised_units_is_itself_in_the_users(sigma):
    x = jnp.asarray([2.0, 1.5])
    standard = standard_diffusion(sigma, SCALING)
    np.testing.assert_allclose(
        in_units(standard)(x), diffusion_from_sigma(sigma, 2)(x), rtol=1e-5, atol=1e-7
    )
    assert standard.constant == (not callable(sigma))
    assert standard.n_parameters == 0
    assert standard.moved(jnp.zeros(0)) is standard


def test_a_scaled_noise_is_a_multiple():
    x = jnp.asarray([1.0, -1.0])
    noise = learned("full")
    np.testing.assert_allclose(ScaledDiffusion(noise, 1.5)(x), 1.5 * noise(x), rtol=1e-6)


@pytest.mark.parametrize("sigma", ["learned", "", "Diagonal"])
def test_a_word_that_says_nothing_is_refused(sigma):
    with pytest.raises(InputError, match="multiplicative"):
        is_learned(sigma)


@pytest.mark.parametrize(
    "function",
    [lambda x, p: x["a"], lambda x, p: jnp.ones(3), lambda x, p: x / 0.0 * p[0], lambda x: x],
)
def test_a_function_that_is_no_noise_is_refused(function):
    with pytest.raises(InputError, match="a state and parameters"):
        learned(ParametricSigma(function, (1.0,)))
