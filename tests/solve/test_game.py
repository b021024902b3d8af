"""The game's loss and the three gradients of the drift."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from itofit import InputError, Snapshots
from itofit.process import NetworkDrift, diffusion_from_sigma
from itofit.process.noise import NoisyDrift, noise_of
from itofit.simulate import Mesh
from itofit.snapshots.scaling import Scaling
from itofit.solve.game import Game, drift_gradient, legs_between, mean_square_slope, minibatch
from itofit.solve.options import PRESETS
from itofit.weak import Cloud, FunctionProbe, SpectralNetwork, direct_residual, weak_residual

pytestmark = pytest.mark.slow

TIMES = (0.0, 0.07, 0.2)


def make(key, noise=None, **choices):
    """A small game with unequal counts and irregular steps, its drift and its probes; a kind of noise to be learned."""
    keys = jax.random.split(key, 6)
    clouds = [
        np.asarray(jax.random.normal(k, (n, 2))) + i for i, (k, n) in enumerate(zip(keys, (40, 30, 50), strict=False))
    ]
    snapshots = Snapshots.from_arrays(clouds, TIMES)
    options = PRESETS["default"].override(**({"batch_size": None, "n_nodes": None} | choices))
    game = Game.between(snapshots, diffusion_from_sigma([0.7, 1.2], 2), Mesh.refine(TIMES, 0.03), options)
    drift = NetworkDrift.create(2, width=8, depth=1, speed=5.0, last_gain=1.0, key=keys[3])
    if noise is not None:
        drift = NoisyDrift(drift, noise_of(noise, Scaling(np.ones(2), np.ones(2)), np.asarray([0.7, 1.2]), seed=0))
    probe = lambda k: SpectralNetwork.create(2, width=8, depth=2, key=k)  # noqa: E731
    probes = eqx.filter_vmap(lambda k: probe(k).probe())(jax.random.split(keys[4], 2))
    draw = game.draw(keys[5])
    return game, probes, drift, draw


def gradient(mode, key, noise=None, **choices):
    game, probes, drift, draw = make(key, noise, gradient=mode, **choices)
    nodes = game.nodes(jax.random.key(3))
    paths = game.simulate(drift, draw)
    slope = eqx.filter_jit(drift_gradient)(game, probes, drift, draw, paths, nodes)
    return slope, (game, probes, drift, draw, nodes)


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


@pytest.mark.parametrize(("anchor", "noise"), [("initial", None), ("previous", None), ("previous", "network-full")])
def test_pathwise_equals_finite_differences(anchor, noise, getkey):
    with jax.enable_x64(True):
        slope, (game, probes, drift, draw, nodes) = gradient("pathwise", getkey(), noise, anchor=anchor)
        weights, static = eqx.partition(drift, eqx.is_inexact_array)
        direction = jax.tree.map(lambda w: jnp.cos(jnp.arange(w.size, dtype=float)).reshape(w.shape), weights)

        def loss(step):
            moved = eqx.combine(jax.tree.map(lambda w, d: w + step * d, weights, direction), static)
            return float(game.residuals(probes, moved, draw, game.simulate(moved, draw), nodes).sum())

        h = 1e-5
        numeric = (loss(h) - loss(-h)) / (2 * h)
        exact = sum(
            float(jnp.sum(a * b)) for a, b in zip(jax.tree.leaves(slope), jax.tree.leaves(direction), strict=True)
        )
        # Central differences: h^2 = 1e-10 truncation and 1e-16 / h = 1e-11 round-off, times values of order 10.
        np.testing.assert_allclose(numeric, exact, rtol=1e-6, atol=1e-8)


def test_detached_is_the_derivative_at_frozen_positions(getkey):
    """Finite differences of the loss with the path held fixed; it differs from the pathwise gradient."""
    with jax.enable_x64(True):
        key = getkey()
        slope, (game, probes, drift, draw, nodes) = gradient("detached", key)
        paths = game.simulate(drift, draw)

        def loss(offset):
            moved = eqx.tree_at(lambda d: d.offset, drift, offset)
            return game.residuals(probes, moved, draw, paths, nodes).sum()

        np.testing.assert_allclose(slope.offset, jax.grad(loss)(drift.offset), rtol=1e-9)
        pathwise, _ = gradient("pathwise", key)
        assert not np.allclose(slope.offset, pathwise.offset, rtol=1e-2)


def test_detached_noise_is_read_through_the_generator_alone(getkey):
    """At frozen positions only 1/2 tr(a f'') knows of the noise: -sum_k w_k E 1/2 tr((da/dtheta) f'')."""
    with jax.enable_x64(True):
        slope, (game, probes, drift, draw, nodes) = gradient("detached", getkey(), "full")
        paths = game.simulate(drift, draw)

        def loss(theta):
            moved = eqx.tree_at(lambda d: d.diffusion.theta, drift, theta)
            return game.residuals(probes, moved, draw, paths, nodes).sum()

        np.testing.assert_allclose(slope.diffusion.theta, jax.grad(loss)(drift.diffusion.theta), rtol=1e-9)
        assert np.all(np.abs(slope.diffusion.theta) > 1e-6)


def test_stratified_nodes_are_unbiased_for_the_residual(getkey):
    key = getkey()
    full, probes, drift, draw = make(key)
    few, *_ = make(key, n_nodes=2)
    paths = full.simulate(drift, draw)
    exact = full.residuals(probes, drift, draw, paths, full.nodes(getkey()))
    keys = jax.random.split(getkey(), 400)
    values = jax.lax.map(lambda k: few.residuals(probes, drift, draw, paths, few.nodes(k)), keys)
    error = np.std(values, axis=0) / np.sqrt(400)
    # 4 standard errors of the mean over 400 draws of the nodes, measured on these draws.
    assert np.all(np.abs(np.mean(values, axis=0) - exact) <= 4 * error + 1e-6)


def test_sketched_trace_is_unbiased_for_the_residual(getkey):
    key = getkey()
    full, probes, drift, draw = make(key)
    sketched, *_ = make(key, n_sketch=1)
    paths = full.simulate(drift, draw)
    exact = full.residuals(probes, drift, draw, paths, full.nodes(getkey()))
    keys = jax.random.split(getkey(), 200)
    values = jax.lax.map(lambda k: sketched.residuals(probes, drift, draw, paths, sketched.nodes(k)), keys)
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
    """A point with half of the weight is drawn half of the time: binomial, 4 standard deviations."""
    cloud = Cloud(jnp.arange(100.0)[:, None], jnp.concatenate([jnp.full(1, 0.5), jnp.full(99, 0.5 / 99)]))
    draws = jax.vmap(lambda k: minibatch(cloud, 50, k, weighted=True).points[:, 0])(jax.random.split(getkey(), 200))
    share = float(jnp.mean(draws == 0.0))
    assert abs(share - 0.5) < 4 * np.sqrt(0.25 / 10_000)
    uniform = minibatch(cloud, 50, getkey(), weighted=False)
    assert len(np.unique(uniform.points)) == 50
    assert minibatch(cloud, 100, getkey(), weighted=True) is cloud


def test_the_chain_rule_reads_the_drift_that_carried_the_chain(getkey):
    """For f linear the sum of the chain rule telescopes: r = E f(X_t) - E f(X_K) + the noise's part, exactly."""
    with jax.enable_x64(True):
        game, _, drift, draw = make(getkey(), rule="chain")
        paths, nodes = game.simulate(drift, draw), game.nodes(getkey())
        line = lambda k: FunctionProbe(lambda x: x[k])  # noqa: E731
        for leg, path, noise, positions, weights, target in zip(
            game.legs, paths, draw.noise, nodes.positions, nodes.weights, (1, 2), strict=True
        ):
            read = game._read(drift, leg, path, len(leg.steps), nodes, target - 1)
            np.testing.assert_array_equal(read.points, path[positions])
            kicks = jnp.sum(jnp.sqrt(jnp.asarray(leg.steps))[:, None, None] * noise, axis=0) @ game.diffusion(
                path[0, 0]
            )
            start = draw.clouds[leg.start]
            for k in range(2):
                found = weak_residual(line(k), draw.clouds[target], start, read, weights)
                ends = direct_residual(line(k), draw.clouds[target], Cloud(path[-1], start.weights))
                np.testing.assert_allclose(found, ends + jnp.mean(kicks[:, k]), rtol=1e-10, atol=1e-12)


def test_the_slope_penalty_is_added_to_the_gradient(getkey):
    with jax.enable_x64(True):
        key = getkey()
        plain, (game, *_, drift, draw, _) = gradient("pathwise", key)
        bent, _ = gradient("pathwise", key, slope_penalty=0.3)
        penalty = jax.grad(lambda m: mean_square_slope(eqx.tree_at(lambda d: d.matrix, drift, m), draw.clouds))
        np.testing.assert_allclose(bent.matrix - plain.matrix, 0.3 * penalty(drift.matrix), rtol=1e-8, atol=1e-10)


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
        {"colour": "red"},
    ],
)
def test_bad_options_are_refused(bad):
    with pytest.raises(InputError, match="expected.*found.*Try"):
        PRESETS["default"].override(**bad)
