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
from itofit.process.clock import Clock
from itofit.process.drift import (
    CorrectedDrift,
    MeanDrift,
    PlainNetworkDrift,
    PotentialDrift,
    PotentialNetworkDrift,
    RescaledDrift,
    StagedDrift,
    members_of,
    stacked,
)
from itofit.process.network import xavier_network
from itofit.process.potentials import sparse_terms
from itofit.snapshots import Scaling


def staged(key):
    """A staged drift with weights everywhere."""
    points = np.asarray(jax.random.normal(key, (40, 3)))
    box = (np.full(3, -5.0), np.full(3, 5.0))
    drift = StagedDrift.create(
        points, np.full(40, 1.0 / 40.0), box, width=8, depth=1, speed=2.0, key=key
    )
    return eqx.tree_at(lambda g: g.coefficients, drift, jnp.ones_like(drift.coefficients))


def clocked(key):
    """A drift that changes with time: W' [x, tau]."""
    return FeatureDrift(lambda x: x, jax.random.normal(key, (4, 3)), Clock.over(np.arange(3.0)))


def potential(key):
    """A drift of a potential that changes with time."""
    terms = sparse_terms(np.array([0.5, 1.0, 2.0]), np.full(4, -3.0), np.full(4, 3.0))
    w = 0.1 * jax.random.normal(key, (terms.n_features, 1))
    clock = Clock.over(np.arange(3.0))
    return PotentialDrift(terms.features, w, metric=jnp.array([0.5, 1.0, 2.0]), clock=clock)


def network(key):
    return NetworkDrift.create(3, width=8, depth=2, speed=2.0, last_gain=0.1, key=key)


DRIFTS = {
    "network": network,
    "plain": lambda k: PlainNetworkDrift(xavier_network([3, 8, 3], key=k)),
    "gradient": lambda k: GradientDrift(lambda x: 0.5 * x @ x + x[0] ** 4),
    "feature": lambda k: FeatureDrift(
        lambda x: jnp.concatenate([jnp.ones(1), x]), jax.random.normal(k, (4, 3))
    ),
    "function": lambda k: FunctionDrift(lambda x: -x),
    "staged": staged,
    "clocked": clocked,
    "corrected": lambda k: CorrectedDrift(clocked(k), network(k)),
    "rescaled": lambda k: RescaledDrift(clocked(k), jnp.ones(3), jnp.full(3, 2.0)),
    "mean": lambda k: MeanDrift(stacked([network(k) for k in jax.random.split(k, 2)])),
    "potential": potential,
    "potential network": lambda k: PotentialNetworkDrift.create(
        np.ones(3), width=8, depth=2, speed=2.0, last_gain=0.1, key=k
    ),
    "mean of clocked": lambda k: MeanDrift(stacked([clocked(k) for k in jax.random.split(k, 2)])),
}


@pytest.mark.parametrize("name", DRIFTS)
def test_drift_battery(name, getkey):
    drift = DRIFTS[name](getkey())
    states = jax.random.normal(getkey(), (6, 3))
    values = eqx.filter_jit(lambda d, x: jax.vmap(d)(x))(drift, states)
    assert values.shape == states.shape
    np.testing.assert_allclose(values[2], drift(states[2]), rtol=1e-4, atol=1e-6)
    moved = rescaled(
        ItoProcess(drift, ConstantDiffusion(jnp.eye(3))),
        scaling := Scaling(np.ones(3), np.full(3, 2.0)),
    )
    x = np.asarray(states[0])
    np.testing.assert_allclose(
        moved.drift(jnp.asarray(x)), 2.0 * drift(jnp.asarray(scaling.standardise(x))), rtol=1e-5
    )


def test_gradient_drift_has_a_symmetric_jacobian(getkey):
    jacobian = jax.jacobian(DRIFTS["gradient"](getkey()))(jnp.asarray([0.3, -1.0, 0.5]))
    np.testing.assert_allclose(jacobian, jacobian.T, atol=1e-6)


@pytest.mark.parametrize("name", DRIFTS)
def test_a_drift_changes_with_time_if_it_says_so(name, getkey):
    drift = DRIFTS[name](getkey())
    x = jax.random.normal(getkey(), (3,))
    early, late = (eqx.filter_jit(lambda d, t: d.at(t)(x))(drift, t) for t in (0.0, 2.0))
    assert drift.varies == (not np.allclose(early, late, rtol=1e-5))


def test_a_corrected_drift_is_a_sum(getkey):
    drift = CorrectedDrift(DRIFTS["feature"](getkey()), DRIFTS["network"](getkey()))
    x = jax.random.normal(getkey(), (3,))
    np.testing.assert_allclose(drift(x), drift.base(x) + drift.correction(x), rtol=1e-6)


def test_members_stack_and_come_apart(getkey):
    members = [network(getkey()) for _ in range(3)]
    mean = MeanDrift(stacked(members))
    x = jax.random.normal(getkey(), (3,))
    np.testing.assert_allclose(mean(x), np.mean([g(x) for g in members], axis=0), rtol=1e-5)
    for a, b in zip(members_of(mean), members, strict=True):
        np.testing.assert_array_equal(a(x), b(x))
    base = DRIFTS["function"](getkey())
    corrected = members_of(CorrectedDrift(base, mean))
    np.testing.assert_allclose(corrected[1](x), base(x) + members[1](x), rtol=1e-6)
    assert members_of(base) == [base]


def test_network_drift_starts_small_and_in_units_of_its_speed(getkey):
    slow = NetworkDrift.create(
        2, width=16, depth=1, speed=1.0, last_gain=0.1, key=jax.random.key(0)
    )
    fast = NetworkDrift.create(
        2, width=16, depth=1, speed=5.0, last_gain=0.1, key=jax.random.key(0)
    )
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


@pytest.mark.parametrize(
    "sigma", [-1.0, [1.0, -1.0], [1.0, 2.0, 3.0], "loud", float("nan"), np.ones((2, 2, 2))]
)
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
