"""One battery over every drift and diffusion: shapes, vmap, jit, and the change of units."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from itofit import InputError
from itofit.process import (
    ConstantDiffusion,
    FeatureDrift,
    FunctionDiffusion,
    FunctionDrift,
    GradientDrift,
    ItoProcess,
    NetworkDrift,
    diffusion_from_sigma,
    rescaled,
)
from itofit.process.drift import CorrectedDrift, PlainNetworkDrift
from itofit.process.network import xavier_network
from itofit.snapshots import Scaling

DRIFTS = {
    "network": lambda k: NetworkDrift.create(3, width=8, depth=2, speed=2.0, last_gain=0.1, key=k),
    "plain": lambda k: PlainNetworkDrift(xavier_network([3, 8, 3], key=k)),
    "gradient": lambda k: GradientDrift(lambda x: 0.5 * x @ x + x[0] ** 4),
    "feature": lambda k: FeatureDrift(lambda x: jnp.concatenate([jnp.ones(1), x]), jax.random.normal(k, (4, 3))),
    "function": lambda k: FunctionDrift(lambda x: -x),
}


@pytest.mark.parametrize("name", DRIFTS)
def test_drift_battery(name, getkey):
    drift = DRIFTS[name](getkey())
    states = jax.random.normal(getkey(), (6, 3))
    values = eqx.filter_jit(lambda d, x: jax.vmap(d)(x))(drift, states)
    assert values.shape == states.shape
    np.testing.assert_allclose(values[2], drift(states[2]), rtol=1e-4, atol=1e-6)
    moved = rescaled(ItoProcess(drift, ConstantDiffusion(jnp.eye(3))), scaling := Scaling(np.ones(3), np.full(3, 2.0)))
    x = np.asarray(states[0])
    np.testing.assert_allclose(moved.drift(jnp.asarray(x)), 2.0 * drift(jnp.asarray(scaling.standardise(x))), rtol=1e-5)


def test_gradient_drift_has_a_symmetric_jacobian(getkey):
    jacobian = jax.jacobian(DRIFTS["gradient"](getkey()))(jnp.asarray([0.3, -1.0, 0.5]))
    np.testing.assert_allclose(jacobian, jacobian.T, atol=1e-6)


def test_a_correction_is_learned_and_its_base_is_not_but_the_base_still_moves_with_the_state(getkey):
    drift = CorrectedDrift(DRIFTS["feature"](getkey()), DRIFTS["network"](getkey()))
    x = jax.random.normal(getkey(), (3,))
    slope = eqx.filter_grad(lambda g: jnp.sum(g(x) ** 2))(drift)
    assert all(not np.any(leaf) for leaf in jax.tree.leaves(slope.base))
    assert all(np.any(leaf) for leaf in jax.tree.leaves(slope.correction))
    both = jax.jacobian(drift.base)(x) + jax.jacobian(drift.correction)(x)
    np.testing.assert_allclose(jax.jacobian(drift)(x), both, rtol=1e-5)


def test_network_drift_starts_small_and_in_units_of_its_speed(getkey):
    slow = NetworkDrift.create(2, width=16, depth=1, speed=1.0, last_gain=0.1, key=jax.random.key(0))
    fast = NetworkDrift.create(2, width=16, depth=1, speed=5.0, last_gain=0.1, key=jax.random.key(0))
    x = jax.random.normal(getkey(), (2,))
    np.testing.assert_allclose(fast(x), 5.0 * slow(x), rtol=1e-5)


@pytest.mark.parametrize(
    ("sigma", "factor"),
    [
        (2.0, 2.0 * np.eye(2)),
        (0, np.zeros((2, 2))),
        ([1.0, 3.0], np.diag([1.0, 3.0])),
        ([[1.0, 0.0], [-0.5, 2.0]], [[1.0, 0.0], [-0.5, 2.0]]),
    ],
)
def test_sigma_kinds(sigma, factor):
    np.testing.assert_allclose(diffusion_from_sigma(sigma, 2)(jnp.zeros(2)), factor)


def test_sigma_as_a_function():
    diffusion = diffusion_from_sigma(lambda x: 0.1 * x, 2)
    assert isinstance(diffusion, FunctionDiffusion)
    np.testing.assert_allclose(diffusion(jnp.asarray([1.0, 2.0])), np.diag([0.1, 0.2]), rtol=1e-6)


@pytest.mark.parametrize("sigma", [-1.0, [1.0, -1.0], [1.0, 2.0, 3.0], "loud", float("nan"), np.ones((2, 2, 2))])
def test_bad_sigma_is_refused(sigma):
    with pytest.raises(InputError, match="expected sigma.*found.*Try"):
        diffusion_from_sigma(sigma, 2)


def test_rescaling_there_and_back_is_the_identity(getkey):
    scaling = Scaling(np.array([3.0, -1.0, 0.5]), np.array([2.0, 0.1, 7.0]))
    process = ItoProcess(DRIFTS["network"](getkey()), FunctionDiffusion(lambda x: 1.0 + x**2))
    back = rescaled(rescaled(process, scaling), scaling.inverse)
    x = jax.random.normal(getkey(), (3,))
    np.testing.assert_allclose(back.drift(x), process.drift(x), rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(back.diffusion(x), process.diffusion(x), rtol=1e-4, atol=1e-5)
