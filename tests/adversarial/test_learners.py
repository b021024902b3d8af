"""What the adversarial solver trains: stages, paces, the sparse prior, corrections and noise."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from itofit import known_system
from itofit.adversarial.learners import (
    CorrectionLearner,
    NoisyLearner,
    PlainLearner,
    StagedLearner,
    learner_of,
)
from itofit.adversarial.options import AdversarialOptions
from itofit.adversarial.training import fresh_drift
from itofit.process.drift import CorrectedDrift, FeatureDrift, FunctionDrift, NetworkDrift
from itofit.process.noise import diffusion_from_sigma, noise_of
from itofit.snapshots.scaling import Scaling

OPTIONS = AdversarialOptions(drift_width=8, drift_depth=1)
# What each stage trains beside the affine terms: polynomials, the network.
STAGES = [(False, False), (False, False), (True, False), (False, True)]


@pytest.fixture(scope="module")
def data():
    return known_system("ou").observe(120, [0.0, 0.3, 1.0], key=jax.random.key(7))


@pytest.fixture(scope="module")
def fresh(data):
    learner = learner_of(fresh_drift(data, 1.0, OPTIONS, key=jax.random.key(1)))
    assert isinstance(learner, StagedLearner)
    return learner


def network_drift(key, n_dims=3):
    return NetworkDrift.create(n_dims, width=8, depth=2, speed=2.0, last_gain=0.1, key=key)


def feature_drift(key):
    coefficients = jax.random.normal(key, (4, 3))
    return FeatureDrift(lambda x: jnp.concatenate([jnp.ones(1), x]), coefficients)


def with_coefficients(learner, coefficients):
    return eqx.tree_at(lambda g: g.drift.coefficients, learner, coefficients)


def filled(learner, size=1.0):
    """With weights everywhere."""
    shape = learner.drift.coefficients.shape
    waves = jnp.cos(jnp.arange(np.prod(shape), dtype=float)).reshape(shape)
    return with_coefficients(learner, size * waves)


def test_every_drift_has_a_learner_with_the_same_weights_in_the_same_order(fresh, getkey):
    base = feature_drift(getkey())
    for drift, kind in (
        (fresh.drift, StagedLearner),
        (base, PlainLearner),
        (CorrectedDrift(base, network_drift(getkey())), CorrectionLearner),
    ):
        learner = learner_of(drift)
        assert isinstance(learner, kind)
        for a, b in zip(jax.tree.leaves(learner), jax.tree.leaves(drift), strict=True):
            assert a is b
    corrected = learner_of(CorrectedDrift(base, fresh.drift))
    assert isinstance(corrected.correction, StagedLearner)
    assert corrected.n_stages == 4


@pytest.mark.parametrize("kind", ["plain", "staged", "correction", "noisy"])
def test_learners_compute_the_drift_of_their_process_and_pace_every_weight(kind, fresh, getkey):
    noise = noise_of("diagonal", Scaling.identity(2), np.full(2, 0.3), np.random.default_rng(0))
    staged = filled(fresh)
    learner = {
        "plain": PlainLearner(network_drift(getkey(), 2)),
        "staged": staged,
        "correction": CorrectionLearner(FunctionDrift(lambda x: -x), staged),
        "noisy": NoisyLearner(staged, noise),
    }[kind]
    known = diffusion_from_sigma(0.5, 2)
    process = learner.process(known)
    assert process.diffusion is (noise if kind == "noisy" else known)
    x = jnp.asarray([0.3, -0.8])
    np.testing.assert_allclose(learner(x), process.drift(x), rtol=1e-6)
    weights = eqx.filter(learner, eqx.is_inexact_array)
    for tree in (learner.pace(), learner.sparse_pull()):
        assert jax.tree.structure(tree) == jax.tree.structure(weights)
    jax.tree.map(lambda w, p: np.broadcast_to(p, w.shape), weights, learner.pace())
    assert learner.n_stages == (1 if kind == "plain" else 4)
    assert int(learner.n_terms) == (0 if kind == "plain" else int(staged.n_terms))


def test_a_correction_is_learned_and_its_base_is_not_but_the_base_still_moves_with_the_state(
    getkey,
):
    learner = CorrectionLearner(feature_drift(getkey()), PlainLearner(network_drift(getkey())))
    x = jax.random.normal(getkey(), (3,))
    known = diffusion_from_sigma(1.0, 3)
    for value in (lambda g, y: g(y), lambda g, y: g.process(known).drift(y)):
        slope = eqx.filter_grad(lambda g, f=value: jnp.sum(f(g, x) ** 2))(learner)
        assert all(not np.any(leaf) for leaf in jax.tree.leaves(slope.base))
        assert all(np.any(leaf) for leaf in jax.tree.leaves(slope.correction))
        both = jax.jacobian(learner.base)(x) + jax.jacobian(learner.correction)(x)
        np.testing.assert_allclose(
            jax.jacobian(lambda y, f=value: f(learner, y))(x), both, rtol=1e-5
        )
    assert all(float(leaf) == 0.0 for leaf in jax.tree.leaves(learner.pace().base))


def test_a_noisy_learner_brings_its_noise_along_and_only_what_is_learned_moves():
    scaling = Scaling(np.asarray([3.0, -1.0]), np.asarray([2.0, 0.5]))
    rng = np.random.default_rng(0)
    noise = noise_of("multiplicative", scaling, np.asarray([0.3, 0.4]), rng)
    learner = NoisyLearner(PlainLearner(FunctionDrift(lambda x: -x)), noise)
    known = known_system("syn1").process.diffusion
    assert learner.process(known).diffusion is noise
    assert learner.learner.process(known).diffusion is known
    pace = learner.pace().diffusion
    assert float(pace.form.mean) == 0.0
    assert float(pace.form.sd) == 0.0
    assert np.all(np.asarray(pace.theta) > 1.0)


def test_terms_below_the_priors_scale_leave_and_come_back(data, fresh):
    learner = fresh.begin_stage(2).at_stage(2)
    terms = np.zeros(learner.drift.coefficients.shape)
    terms[0] = 0.001
    terms[1] = 0.5
    terms[3] = 0.005
    learner = with_coefficients(
        learner, jnp.linalg.solve(learner.drift.basis, jnp.asarray(terms, dtype=float))
    )
    assert np.array_equal(learner.thinned(jnp.asarray(False)).drift.mask, learner.drift.mask)
    thin = learner.thinned(jnp.asarray(True))
    # The constant stays however small it is.
    np.testing.assert_array_equal(np.flatnonzero(thin.drift.mask[:, 0]), [0, 1])
    again = thin.begin_stage(2)
    np.testing.assert_allclose(again.drift.terms, thin.drift.terms, atol=1e-5)
    assert np.all(again.drift.mask == 1.0)
    x = jnp.asarray(data.clouds[1][0])
    np.testing.assert_allclose(again(x), thin(x), rtol=1e-4, atol=1e-5)
    assert not np.allclose(learner(x), thin(x), rtol=1e-4)


def test_the_network_begins_at_the_affine_function_nearest_to_the_polynomials(data, fresh):
    """Against a least-squares line through the polynomial drift at the data, weighted as the basis
    is.
    """
    learner = filled(fresh.begin_stage(2).at_stage(2))
    points = np.concatenate(data.clouds)
    weights = np.sqrt(np.concatenate(data.weights))[:, None]
    rows = np.column_stack([np.ones(len(points)), points])
    values = np.asarray(jax.vmap(learner)(jnp.asarray(points, dtype=float)))
    line = rows @ np.linalg.lstsq(weights * rows, weights * values, rcond=None)[0]
    nearest = jax.vmap(learner.begin_stage(3).at_stage(3))(jnp.asarray(points, dtype=float))
    # Cubes of two coordinates in float32, and the ridge of 1e-6 in the basis.
    np.testing.assert_allclose(nearest, line, atol=2e-3 * np.abs(values).max())
    assert int(learner.begin_stage(3).n_terms) == 6


def test_terms_at_zero_do_not_count_after_a_change_of_basis():
    """20 coefficients of Syn-1 at D = 10 there and back in float32: before, 32 zeros came back as
    1e-9.
    """
    data = known_system("syn1", 10).observe(300, [0.0, 0.2, 2.0], key=jax.random.key(0))
    learner = learner_of(fresh_drift(data, 2.0, AdversarialOptions(), key=jax.random.key(1)))
    coefficients = learner.drift.coefficients
    affine = jnp.arange(len(coefficients))[:, None] <= 10
    learner = with_coefficients(learner, jnp.where(affine, 0.3, jnp.zeros_like(coefficients)))
    stages = (learner, learner.begin_stage(1), learner.begin_stage(2))
    assert [int(stage.n_terms) for stage in stages] == [20, 20, 20]


def test_the_sparse_pull_is_the_slope_of_its_prior(fresh):
    learner = filled(fresh.begin_stage(2), 0.1)

    def prior(coefficients):
        terms = with_coefficients(learner, coefficients).drift.terms
        return jnp.sum(jnp.log1p((terms[1:] / 0.01) ** 2))

    np.testing.assert_allclose(
        learner.sparse_pull().drift.coefficients,
        jax.grad(prior)(learner.drift.coefficients),
        rtol=1e-3,
        atol=1e-3,
    )
    still = learner.at_stage(3).sparse_pull()
    assert all(not np.any(leaf) for leaf in jax.tree.leaves(still))


def test_stages_open_in_turn(fresh):
    for stage, (polynomial, network) in enumerate(STAGES):
        pace = fresh.at_stage(stage).pace().drift
        assert np.all(np.asarray(pace.coefficients[:3]) > 0.0)
        assert np.all((np.asarray(pace.coefficients[3:]) > 0.0) == polynomial)
        assert all((float(leaf) > 0.0) == network for leaf in jax.tree.leaves(pace.network))
        assert float(pace.basis) == float(pace.mask) == 0.0


def test_a_stage_computes_what_it_takes_in(data, fresh):
    """Of a drift with weights everywhere: each coordinate by itself, affine, with polynomials, with
    the network.
    """
    x = jnp.asarray(data.clouds[1][0])
    learner = filled(fresh)
    speed = learner.drift.speed
    W = learner.drift.basis @ learner.drift.coefficients
    np.testing.assert_allclose(learner(x), speed * (W[0] + jnp.diag(W[1:3]) * x), rtol=1e-4)
    full = eqx.tree_at(lambda g: g.drift.mask, learner, jnp.ones_like(W))
    np.testing.assert_allclose(full.at_stage(1)(x), speed * (W[0] + x @ W[1:3]), rtol=1e-4)
    np.testing.assert_allclose(full.at_stage(2)(x), speed * full.drift.features(x) @ W, rtol=1e-4)
    # The network's last layer begins at zero.
    np.testing.assert_allclose(full.at_stage(3)(x), full.at_stage(1)(x), rtol=1e-4)
    full = eqx.tree_at(lambda g: g.drift.network.biases[-1], full, jnp.array([0.3, -0.2]))
    shift = full.at_stage(3)(x) - full.at_stage(1)(x)
    np.testing.assert_allclose(shift, speed * jnp.array([0.3, -0.2]), rtol=1e-3)
    np.testing.assert_allclose(full.whole()(x), full.at_stage(2)(x) + shift, rtol=1e-4)
    assert [int(g.n_terms) for g in (fresh, learner, full)] == [0, 4, W.size]
