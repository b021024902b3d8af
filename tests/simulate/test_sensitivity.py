"""Sensitivities of Euler chains equal automatic differentiation of a loop written independently."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from itofit.process.clock import Clock
from itofit.process.drift import FeatureDrift
from itofit.process.features import affine, joined, polynomials, ridges
from itofit.process.ito import ItoProcess
from itofit.process.noise import (
    KINDS,
    ConstantDiffusion,
    FunctionDiffusion,
    LearnedDiffusion,
    ParametricSigma,
    noise_of,
)
from itofit.simulate.sensitivity import BLOCK, chain_adjoints, chain_ends, chain_sensitivities
from itofit.snapshots.scaling import Scaling

N_STEPS = BLOCK + 7


def constant(n_dims):
    return ConstantDiffusion(0.4 * jnp.eye(n_dims) + 0.1 * jnp.ones((n_dims, n_dims)))


def state_dependent(n_dims):
    """A full matrix that is not symmetric and depends on all coordinates."""
    return FunctionDiffusion(
        lambda x: 0.4 * jnp.eye(n_dims) + 0.2 * jnp.outer(jnp.sin(x), jnp.cos(x[::-1]))
    )


def problem(n_dims, n=5):
    """Features, coefficients, start, unequal steps filled up with zeros to whole blocks, noise."""
    rng = np.random.default_rng(n_dims)
    box = np.full(n_dims, 2.0)
    features = joined(
        [affine(n_dims), polynomials(n_dims, -box, box), ridges(n_dims, [(0,)], 2, rng)]
    )
    W = 0.5 * rng.standard_normal((features.n_features, n_dims)) / np.sqrt(features.n_features)
    steps = np.zeros(3 * BLOCK)
    steps[:N_STEPS] = rng.uniform(0.005, 0.06, N_STEPS)
    # Where steps have no length the noise must not count, so it is not zero there.
    noise = rng.standard_normal((3 * BLOCK, n, n_dims))
    arrays = (
        jnp.asarray(a, dtype=float) for a in (W, rng.standard_normal((n, n_dims)), steps, noise)
    )
    return (features.features, *arrays)


def chain_of(features, W, diffusion, start, steps, noise, clock=None):
    """What the package's chains take; they begin at time 0."""
    return (
        FeatureDrift(features, W, clock),
        diffusion,
        start,
        jnp.cumsum(steps) - steps,
        steps,
        noise,
    )


def plain_end(features, diffusion, W, x, steps, noise):
    """One chain over the steps that count, none of the package's stepping code in it."""

    def step(x, h_and_z):
        h, z = h_and_z
        return x + h * (W.T @ features(x)) + jnp.sqrt(h) * (diffusion(x) @ z), None

    return jax.lax.scan(step, x, (steps[:N_STEPS], noise[:N_STEPS]))[0]


@pytest.mark.parametrize(
    ("n_dims", "make"), [(1, state_dependent), (2, constant), (2, state_dependent), (5, constant)]
)
def test_sensitivities_are_the_derivative_of_a_plain_loop(n_dims, make):
    features, W, start, steps, noise = problem(n_dims)
    diffusion = make(n_dims)

    def end_of_all(W):
        return jax.vmap(lambda x, z: plain_end(features, diffusion, W, x, steps, z))(
            start, jnp.moveaxis(noise, 1, 0)
        )

    end, by_drift, _ = chain_sensitivities(
        *chain_of(features, W, diffusion, start, steps, noise), jnp.asarray(2)
    )
    wanted_end, wanted = jax.jit(lambda W: (end_of_all(W), jax.jacfwd(end_of_all)(W)))(W)
    assert by_drift.shape == (*start.shape, n_dims, len(W))
    # Single precision over 27 steps: relative errors of some 1e-6 of the largest entry.
    np.testing.assert_allclose(end, wanted_end, rtol=1e-5, atol=1e-5)
    # [particle, i, feature, output] to [particle, i, output, feature]
    wanted = np.swapaxes(np.asarray(wanted), -1, -2)
    np.testing.assert_allclose(by_drift, wanted, rtol=1e-4, atol=1e-5 * np.abs(wanted).max())


LEARNED = [(kind, 2) for kind in KINDS] + [("full", 5), ("own", 2)]


def learned(kind, n_dims):
    """A noise scaled as data would scale it, its parameters away from where they would start."""
    rng = np.random.default_rng(3)
    scaling = Scaling(rng.uniform(1.0, 2.0, n_dims), rng.uniform(0.5, 2.0, n_dims))
    own = ParametricSigma(
        lambda x, p: jnp.exp(p[0]) * jnp.sqrt(1.0 + p[1] ** 2 * x**2), (-0.7, 0.5)
    )
    sigma = own if kind == "own" else kind
    diffusion = noise_of(sigma, scaling, np.full(n_dims, 0.4), np.random.default_rng(0))
    theta = np.asarray(diffusion.theta) + 0.1 * rng.standard_normal(diffusion.n_parameters)
    return LearnedDiffusion(jnp.asarray(theta, dtype=float), diffusion.form)


@pytest.mark.parametrize(("kind", "n_dims"), LEARNED)
def test_chains_move_with_the_parameters_of_the_noise_as_a_plain_loop_does(kind, n_dims):
    features, W, start, steps, noise = problem(n_dims)
    diffusion = learned(kind, n_dims)

    def end_of_all(theta):
        S = LearnedDiffusion(theta, diffusion.form)
        return jax.vmap(lambda x, z: plain_end(features, S, W, x, steps, z))(
            start, jnp.moveaxis(noise, 1, 0)
        )

    chain = chain_of(features, W, diffusion, start, steps, noise)
    by_noise = chain_sensitivities(*chain, jnp.asarray(2)).by_noise
    wanted = np.asarray(jax.jit(jax.jacfwd(end_of_all))(diffusion.theta)) * diffusion.form.unit()
    np.testing.assert_allclose(by_noise, wanted, rtol=1e-4, atol=1e-5 * np.abs(wanted).max())
    slopes = jnp.asarray(
        np.random.default_rng(0).standard_normal((len(start), 3, n_dims)), dtype=float
    )
    sums = chain_adjoints(*chain, jnp.asarray(N_STEPS), lambda end: slopes)[1]
    total = np.einsum("nri,nip->rp", slopes, wanted)
    np.testing.assert_allclose(sums, total, rtol=1e-4, atol=2e-5 * np.abs(total).max())


def test_a_drift_that_changes_with_time_moves_chains_as_a_plain_loop_does():
    """The clock is a third input of the features; the plain loop reads it as a straight line."""
    features, W, start, steps, noise = problem(3)
    W = W[:, :2]
    start = start[:, :2]
    noise = noise[:, :, :2]
    diffusion = constant(2)
    end_time = float(jnp.sum(steps))
    root = 3.0**0.5
    times = jnp.cumsum(steps) - steps

    def plain(W, x, z):
        def step(x, now):
            t, h, dw = now
            inputs = jnp.append(x, root * (2.0 * t / end_time - 1.0))
            return x + h * (W.T @ features(inputs)) + jnp.sqrt(h) * (diffusion(x) @ dw), None

        return jax.lax.scan(step, x, (times[:N_STEPS], steps[:N_STEPS], z[:N_STEPS]))[0]

    def ends(W):
        return jax.vmap(lambda x, z: plain(W, x, z))(start, jnp.moveaxis(noise, 1, 0))

    chain = chain_of(
        features, W, diffusion, start, steps, noise, Clock.over(np.asarray([0.0, end_time]))
    )
    end, by_drift, _ = chain_sensitivities(*chain, jnp.asarray(2))
    wanted = np.swapaxes(np.asarray(jax.jit(jax.jacfwd(ends))(W)), -1, -2)
    np.testing.assert_allclose(end, ends(W), rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(by_drift, wanted, rtol=1e-4, atol=1e-5 * np.abs(wanted).max())
    slopes = jnp.asarray(np.random.default_rng(0).standard_normal((len(start), 3, 2)), dtype=float)
    sums, _ = chain_adjoints(*chain, jnp.asarray(N_STEPS), lambda end: slopes)
    total = np.einsum("nri,niof->rof", slopes, wanted)
    np.testing.assert_allclose(sums, total, rtol=1e-4, atol=2e-5 * np.abs(total).max())
    # A clock that stands still is another drift.
    frozen = chain_of(
        features, W, diffusion, start, steps, noise, Clock.over(np.asarray([50.0, 60.0]))
    )
    assert np.abs(chain_sensitivities(*frozen, jnp.asarray(2)).end - end).max() > 0.01


@pytest.mark.parametrize("make", [constant, state_dependent])
def test_adjoints_are_sums_of_sensitivities(make):
    features, W, start, steps, noise = problem(2)
    slopes = jnp.asarray(np.random.default_rng(0).standard_normal((len(start), 3, 2)), dtype=float)
    chain = chain_of(features, W, make(2), start, steps, noise)
    _, by_drift, _ = chain_sensitivities(*chain, jnp.asarray(2))
    wanted = jnp.einsum("nri,niof->rof", slopes, by_drift)
    sums, _ = chain_adjoints(*chain, jnp.asarray(N_STEPS), lambda end: slopes)
    np.testing.assert_allclose(sums, wanted, rtol=1e-4, atol=1e-5 * float(jnp.abs(wanted).max()))


def test_a_heun_step_is_of_second_order():
    """A linear drift without noise: a step is exp(-h) up to h^3 / 6, Euler's up to h^2 / 2."""
    process = ItoProcess(
        FeatureDrift(affine(1).features, jnp.asarray([[0.0], [-1.0]])),
        ConstantDiffusion(jnp.zeros((1, 1))),
    )
    for h in (0.1, 0.2):
        end = process.heun_step(jnp.ones(1), h, jnp.zeros(1))
        assert abs(float(end[0]) - np.exp(-h)) < 1.01 * h**3 / 6.0


def test_ends_are_those_of_a_plain_loop():
    features, W, start, steps, noise = problem(2)
    process = ItoProcess(FeatureDrift(features, W), state_dependent(2))
    times = jnp.zeros_like(steps)
    ends = chain_ends(process, start, times, steps, noise, jnp.asarray(N_STEPS))
    x = start
    phi = jax.jit(jax.vmap(features))
    S = jax.jit(jax.vmap(process.diffusion))
    for h, z in zip(np.asarray(steps)[:N_STEPS], np.asarray(noise)[:N_STEPS], strict=True):
        drift = np.asarray(phi(x)) @ np.asarray(W)
        kick = np.einsum("nij,nj->ni", S(x), z)
        x = np.asarray(x + h * drift + np.sqrt(h) * kick)
    np.testing.assert_allclose(ends, x, rtol=1e-5, atol=1e-5)
    np.testing.assert_array_equal(
        chain_ends(process, start, times, steps, noise, jnp.asarray(0)), start
    )


def test_a_linear_drift_without_noise_has_a_closed_form():
    """X_K = (1 + a h)^K x0 for the drift a x, so dX_K / da = K h (1 + a h)^(K-1) x0.

    For the constant b of the drift a x + b it is the geometric sum.
    """
    a = -0.7
    b = 0.3
    h = 0.05
    K = BLOCK
    W = jnp.asarray([[b], [a]])
    steps = jnp.full(K, h)
    noise = jnp.zeros((K, 2, 1))
    start = jnp.asarray([[1.0], [-2.0]])
    chain = chain_of(
        affine(1).features, W, ConstantDiffusion(jnp.ones((1, 1))), start, steps, noise
    )
    end, by_drift, by_noise = chain_sensitivities(*chain, jnp.asarray(1))
    q = 1.0 + a * h
    x0 = np.asarray(start)[:, 0]
    geometric = (q**K - 1.0) / (q - 1.0)
    fixed = -b / a
    np.testing.assert_allclose(end[:, 0], fixed + q**K * (x0 - fixed), rtol=1e-5)
    np.testing.assert_allclose(by_drift[:, 0, 0, 0], np.full(2, h * geometric), rtol=1e-5)
    slope = K * h * q ** (K - 1) * (x0 - fixed) + (b / a**2) * (1.0 - q**K)
    np.testing.assert_allclose(by_drift[:, 0, 0, 1], slope, rtol=1e-5)
    assert by_noise.shape == (2, 1, 0)
