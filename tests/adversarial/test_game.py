"""The game's loss and the three gradients of the drift."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from itofit import InputError, Snapshots
from itofit.adversarial.game import (
    Game,
    Target,
    drift_gradient,
    mean_square_slope,
    minibatch,
)
from itofit.adversarial.learners import NoisyLearner, PlainLearner
from itofit.adversarial.options import AdversarialOptions
from itofit.process import NetworkDrift, diffusion_from_sigma
from itofit.process.noise import noise_of
from itofit.simulate import Mesh
from itofit.simulate.legs import legs_between
from itofit.snapshots.scaling import Scaling
from itofit.weak import Cloud, FunctionProbe, SpectralNetwork, direct_residual, weak_residual

pytestmark = pytest.mark.slow

TIMES = (0.0, 0.07, 0.2)


def make(key, noise=None, **choices):
    """A small game with unequal counts and irregular steps, its learner and its probes; a kind of
    noise to be learned.
    """
    keys = jax.random.split(key, 6)
    clouds = [
        np.asarray(jax.random.normal(k, (n, 2))) + i
        for i, (k, n) in enumerate(zip(keys, (40, 30, 50), strict=False))
    ]
    snapshots = Snapshots.from_arrays(clouds, TIMES)
    options = AdversarialOptions(**({"batch_size": None, "n_nodes": None} | choices))
    game = Game.between(
        snapshots, diffusion_from_sigma([0.7, 1.2], 2), Mesh.refine(TIMES, 0.03), options
    )
    drift = NetworkDrift.create(2, width=8, depth=1, speed=5.0, last_gain=1.0, key=keys[3])
    learner = PlainLearner(drift)
    if noise is not None:
        scaling = Scaling(np.ones(2), np.ones(2))
        rng = np.random.default_rng(0)
        learner = NoisyLearner(learner, noise_of(noise, scaling, np.asarray([0.7, 1.2]), rng))
    probes = eqx.filter_vmap(lambda k: SpectralNetwork.create(2, width=8, depth=2, key=k).probe())(
        jax.random.split(keys[4], 2)
    )
    draw = game.draw(keys[5])
    return game, probes, learner, draw


def gradient(mode, key, noise=None, **choices):
    game, probes, learner, draw = make(key, noise, gradient=mode, **choices)
    nodes = game.nodes(jax.random.key(3))
    paths = game.simulate(learner, draw)
    slope = eqx.filter_jit(drift_gradient)(game, probes, learner, draw, paths, nodes)
    return slope, (game, probes, learner, draw, nodes)


@pytest.mark.parametrize(
    ("anchor", "discrepancy", "noise"),
    [
        ("initial", "weak", None),
        ("previous", "weak", None),
        ("initial", "direct", None),
        ("previous", "direct", None),
        ("previous", "weak", "full"),
        ("initial", "weak", "network"),
    ],
)
def test_adjoint_equals_pathwise_to_round_off(anchor, discrepancy, noise, getkey):
    with jax.enable_x64(True):
        key = getkey()
        pathwise, _ = gradient("pathwise", key, noise, anchor=anchor, discrepancy=discrepancy)
        adjoint, _ = gradient("adjoint", key, noise, anchor=anchor, discrepancy=discrepancy)
        for a, b in zip(jax.tree.leaves(pathwise), jax.tree.leaves(adjoint), strict=True):
            # Float64 round-off over 7 steps and 120 points.
            np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize(
    ("anchor", "noise"), [("initial", None), ("previous", None), ("previous", "network-full")]
)
def test_pathwise_equals_finite_differences(anchor, noise, getkey):
    with jax.enable_x64(True):
        slope, (game, probes, learner, draw, nodes) = gradient(
            "pathwise", getkey(), noise, anchor=anchor
        )
        weights, static = eqx.partition(learner, eqx.is_inexact_array)
        direction = jax.tree.map(
            lambda w: jnp.cos(jnp.arange(w.size, dtype=float)).reshape(w.shape), weights
        )

        def loss(step):
            moved = eqx.combine(jax.tree.map(lambda w, d: w + step * d, weights, direction), static)
            return float(
                game.residuals(probes, moved, draw, game.simulate(moved, draw), nodes).sum()
            )

        h = 1e-5
        numeric = (loss(h) - loss(-h)) / (2 * h)
        exact = sum(
            float(jnp.sum(a * b))
            for a, b in zip(jax.tree.leaves(slope), jax.tree.leaves(direction), strict=True)
        )
        # Central differences: h^2 = 1e-10 truncation and 1e-16 / h = 1e-11 round-off, times values
        # of order 10.
        np.testing.assert_allclose(numeric, exact, rtol=1e-6, atol=1e-8)


def test_detached_is_the_derivative_at_frozen_positions(getkey):
    """Finite differences of the loss with the path held fixed; it differs from the pathwise
    gradient.
    """
    with jax.enable_x64(True):
        key = getkey()
        slope, (game, probes, learner, draw, nodes) = gradient("detached", key)
        paths = game.simulate(learner, draw)

        def loss(offset):
            moved = eqx.tree_at(lambda g: g.drift.offset, learner, offset)
            return game.residuals(probes, moved, draw, paths, nodes).sum()

        np.testing.assert_allclose(
            slope.drift.offset, jax.grad(loss)(learner.drift.offset), rtol=1e-9
        )
        pathwise, _ = gradient("pathwise", key)
        assert not np.allclose(slope.drift.offset, pathwise.drift.offset, rtol=1e-2)


def test_detached_noise_is_read_through_the_generator_alone(getkey):
    """At frozen positions only 1/2 tr(a f'') knows of the noise: -sum_k w_k E 1/2 tr((da/dtheta)
    f'').
    """
    with jax.enable_x64(True):
        slope, (game, probes, learner, draw, nodes) = gradient("detached", getkey(), "full")
        paths = game.simulate(learner, draw)

        def loss(theta):
            moved = eqx.tree_at(lambda g: g.diffusion.theta, learner, theta)
            return game.residuals(probes, moved, draw, paths, nodes).sum()

        np.testing.assert_allclose(
            slope.diffusion.theta, jax.grad(loss)(learner.diffusion.theta), rtol=1e-9
        )
        assert np.all(np.abs(slope.diffusion.theta) > 1e-6)


def test_stratified_nodes_are_unbiased_for_the_residual(getkey):
    key = getkey()
    full, probes, learner, draw = make(key)
    few, *_ = make(key, n_nodes=2)
    paths = full.simulate(learner, draw)
    exact = full.residuals(probes, learner, draw, paths, full.nodes(getkey()))
    keys = jax.random.split(getkey(), 400)
    values = jax.lax.map(lambda k: few.residuals(probes, learner, draw, paths, few.nodes(k)), keys)
    error = np.std(values, axis=0) / np.sqrt(400)
    # 4 standard errors of the mean over 400 draws of the nodes, measured on these draws.
    assert np.all(np.abs(np.mean(values, axis=0) - exact) <= 4 * error + 1e-6)


def test_sketched_trace_is_unbiased_for_the_residual(getkey):
    key = getkey()
    full, probes, learner, draw = make(key)
    sketched, *_ = make(key, n_sketch=1)
    paths = full.simulate(learner, draw)
    exact = full.residuals(probes, learner, draw, paths, full.nodes(getkey()))
    keys = jax.random.split(getkey(), 200)
    values = jax.lax.map(
        lambda k: sketched.residuals(probes, learner, draw, paths, sketched.nodes(k)), keys
    )
    error = np.std(values, axis=0) / np.sqrt(200)
    assert np.all(np.abs(np.mean(values, axis=0) - exact) <= 4 * error + 1e-6)
    assert np.all(error > 0)


def test_anchors_agree_on_two_snapshots(getkey):
    """With one interval Prop. 1 and Prop. 2 are the same formula."""
    mesh = Mesh.refine([0.0, 0.1], 0.03)
    assert legs_between(mesh, "initial") == legs_between(mesh, "previous")


def test_legs_cover_every_target_once():
    mesh = Mesh.refine(TIMES, 0.03)
    for anchor in ("initial", "previous"):
        legs = legs_between(mesh, anchor)
        assert sorted(n for leg in legs for n, _ in leg.targets) == [1, 2]
        for leg in legs:
            for n, end in leg.targets:
                np.testing.assert_allclose(sum(leg.steps[:end]), TIMES[n] - TIMES[leg.start])


def test_minibatch_respects_weights(getkey):
    """A point with half of the weight is drawn half of the time: binomial, 4 of its sds."""
    cloud = Cloud(
        jnp.arange(100.0)[:, None], jnp.concatenate([jnp.full(1, 0.5), jnp.full(99, 0.5 / 99)])
    )
    draws = jax.vmap(lambda k: minibatch(cloud, 50, k, weighted=True).points[:, 0])(
        jax.random.split(getkey(), 200)
    )
    share = float(jnp.mean(draws == 0.0))
    assert abs(share - 0.5) < 4 * np.sqrt(0.25 / 10_000)
    uniform = minibatch(cloud, 50, getkey(), weighted=False)
    assert len(np.unique(uniform.points)) == 50
    assert minibatch(cloud, 100, getkey(), weighted=True) is cloud


def test_the_chain_rule_reads_the_drift_that_carried_the_chain(getkey):
    """For f linear the sum of the chain rule telescopes: r = E f(X_t) - E f(X_K) + the noise's
    part, exactly.
    """
    with jax.enable_x64(True):
        game, _, learner, draw = make(getkey(), rule="chain")
        paths = game.simulate(learner, draw)
        nodes = game.nodes(getkey())
        for leg, path, noise, positions, weights, target in zip(
            game.legs, paths, draw.noise, nodes.positions, nodes.weights, (1, 2), strict=True
        ):
            read = game.read(learner, Target(leg, target, len(leg.steps)), path, nodes, target - 1)
            np.testing.assert_array_equal(read.points, path[positions])
            kicks = jnp.sum(
                jnp.sqrt(jnp.asarray(leg.steps))[:, None, None] * noise, axis=0
            ) @ game.setting.diffusion(path[0, 0])
            start = draw.clouds[leg.start]
            for k in range(2):
                line = FunctionProbe(lambda x, k=k: x[k])
                weak = weak_residual(line, draw.clouds[target], start, read, weights)
                ends = direct_residual(line, draw.clouds[target], Cloud(path[-1], start.weights))
                np.testing.assert_allclose(
                    weak, ends + jnp.mean(kicks[:, k]), rtol=1e-10, atol=1e-12
                )


def test_the_slope_penalty_is_added_to_the_gradient(getkey):
    with jax.enable_x64(True):
        key = getkey()
        plain, (game, *_, learner, draw, _) = gradient("pathwise", key)
        bent, _ = gradient("pathwise", key, slope_penalty=0.3)
        penalty = jax.grad(
            lambda m: mean_square_slope(
                eqx.tree_at(lambda g: g.drift.matrix, learner, m), draw.clouds
            )
        )
        np.testing.assert_allclose(
            bent.drift.matrix - plain.drift.matrix,
            0.3 * penalty(learner.drift.matrix),
            rtol=1e-8,
            atol=1e-10,
        )


@pytest.mark.parametrize(
    "bad",
    [
        {"anchor": "middle"},
        {"adversary": "referee"},
        {"rule": "simpson"},
        {"weight_decay": -1.0},
        {"gradient": "numeric"},
        {"discrepancy": "direct", "gradient": "detached"},
        {"n_iter": 0},
        {"gain": -1.0},
        {"batch_size": -3},
        {"drift_rate": 0.0},
    ],
)
def test_bad_options_are_refused(bad):
    with pytest.raises(InputError, match="expected.*found.*Try"):
        AdversarialOptions(**bad)


def test_an_option_that_does_not_exist_is_refused():
    with pytest.raises(TypeError, match="colour"):
        AdversarialOptions(colour="red")
