"""The package against examples/whole_method.py, which computes the same residuals by another road.

The example takes jax.grad and jax.hessian, singular values and the trapezoid rule as printed; the
package pushes drift and dispersion through the layers, follows singular vectors by power iteration
and uses a weight per node.
"""

import ast
import importlib.util
from pathlib import Path

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from itofit.adversarial.game import Game, drift_gradient
from itofit.adversarial.learners import PlainLearner
from itofit.adversarial.solver import Adversarial
from itofit.process.drift import PlainNetworkDrift
from itofit.process.network import TanhNetwork, xavier_network
from itofit.process.noise import ConstantDiffusion
from itofit.simulate.mesh import Mesh
from itofit.snapshots.clouds import Snapshots
from itofit.weak.generator import ito_push
from itofit.weak.probes import NetworkProbe, SpectralNetwork

EXAMPLE = Path(__file__).parents[2] / "examples" / "whole_method.py"
DT = 0.01
STEPS_TO = [3, 7, 20]
NOISE = [[0.7, 0.2], [-0.1, 0.5]]  # not symmetric, so that S and S' cannot be confused


def load_example():
    spec = importlib.util.spec_from_file_location("whole_method_example", EXAMPLE)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


example = load_example()


def pairs(network: TanhNetwork):
    return list(zip(network.weights, network.biases, strict=True))


def with_biases(network: TanhNetwork, key) -> TanhNetwork:
    keys = jax.random.split(key, len(network.biases))
    biases = [jax.random.normal(k, b.shape) for k, b in zip(keys, network.biases, strict=True)]
    return TanhNetwork(network.weights, tuple(biases))


def same_problem(gradient: str = "pathwise"):
    """Three snapshots after the first, of unequal size, with a drift and probes that have nothing
    to do with them.
    """
    rng = np.random.default_rng(3)
    sizes = [90, 60, 75, 50]
    times = [0.0, *(DT * k for k in STEPS_TO)]
    snapshots = Snapshots.from_arrays(
        [rng.normal(i, 1.0 + i, (n, 2)) for i, n in enumerate(sizes)], times
    )
    solver = Adversarial.paper(gradient=gradient)
    game = Game.between(
        snapshots, ConstantDiffusion(jnp.asarray(NOISE)), Mesh.refine(times, DT), solver
    )
    k_drift, k_probe, k_draw, k_nodes = jax.random.split(jax.random.key(5), 4)
    drift = PlainNetworkDrift(with_biases(xavier_network([2, 16, 2], key=k_drift), k_drift))
    raw = [
        with_biases(xavier_network([2, 16, 16, 1], key=k), k) for k in jax.random.split(k_probe, 3)
    ]
    probes = [
        TanhNetwork(*map(tuple, zip(*example.normalise(pairs(net)), strict=True))) for net in raw
    ]
    stacked = jax.tree.map(lambda *leaves: jnp.stack(leaves), *map(NetworkProbe, probes))
    draw = game.draw(k_draw)
    nodes = game.nodes(k_nodes)
    learner = PlainLearner(drift)
    return game, learner, probes, stacked, draw, game.simulate(learner, draw), nodes


def example_loss(weights, probes, draw, paths):
    clouds = [cloud.points for cloud in draw.clouds]

    def drift(x):
        return example.network(weights, x)

    return jnp.stack(
        example.loss(
            list(map(pairs, probes)), drift, clouds, paths, DT, jnp.asarray(NOISE), STEPS_TO
        )
    )


def test_residuals_equal_those_of_the_package_in_single_precision():
    game, learner, probes, stacked, draw, paths, nodes = same_problem()
    ours = np.asarray(jax.jit(example_loss)(pairs(learner.drift.network), probes, draw, paths[0]))
    theirs = np.asarray(eqx.filter_jit(game.residuals)(stacked, learner, draw, paths, nodes))
    assert np.min(np.abs(ours)) > 0.02, (
        "a residual that nearly cancels has no relative error to speak of"
    )
    # float32 rounds each term at 6e-8 and the two sum N K (about 2000) terms of order 1 in another
    # order; rounding errors of random sign leave about 1e-7 of terms of order 1 in a residual of
    # order 0.1: 1e-6, with room for 10.
    np.testing.assert_allclose(ours, theirs, rtol=1e-5)


@pytest.mark.slow
def test_residuals_and_gradient_equal_those_of_the_package_in_double_precision():
    # Here rounding leaves no room for a difference of formulas: 1e-12 is some thousands of
    # roundings at 1e-16.
    with jax.enable_x64(True):
        game, learner, probes, stacked, draw, paths, nodes = same_problem()
        weights = pairs(learner.drift.network)
        ours = jax.jit(example_loss)(weights, probes, draw, paths[0])
        theirs = eqx.filter_jit(game.residuals)(stacked, learner, draw, paths, nodes)
        np.testing.assert_allclose(ours, theirs, rtol=1e-12)

        def total(weights):
            def step(x, z):  # the Euler chain written out, so that the gradient runs through it
                g = jax.vmap(lambda y: example.network(weights, y))(x)
                x = x + g * DT + z @ jnp.asarray(NOISE).T * np.sqrt(DT)
                return x, x

            start = draw.clouds[0].points
            path = jnp.concatenate([start[None], jax.lax.scan(step, start, draw.noise[0])[1]])
            return jnp.sum(example_loss(weights, probes, draw, path))

        slope = jax.jit(jax.grad(total))(weights)
        for gradient in ("pathwise", "adjoint"):
            game = same_problem(gradient)[0]
            gradient_of = eqx.filter_jit(drift_gradient)
            theirs = gradient_of(game, stacked, learner, draw, paths, nodes)
            jax.tree.map(
                lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-12),
                slope,
                pairs(theirs.drift.network),
            )


def test_generator_equals_the_push_through_the_layers():
    k_net, k_x, k_g = jax.random.split(jax.random.key(1), 3)
    network = with_biases(xavier_network([2, 16, 16, 1], key=k_net), k_net)
    points = jax.random.normal(k_x, (50, 2))
    drifts = jax.random.normal(k_g, (50, 2))
    S = jnp.asarray(NOISE)

    def f(x):
        return example.network(pairs(network), x)[0]

    ours = jax.vmap(lambda x, g: example.generator(f, x, g, S))(points, drifts)
    theirs = jax.vmap(lambda x, g: ito_push(network, x, g, S)[1][0])(points, drifts)
    np.testing.assert_allclose(
        ours, theirs, rtol=1e-4, atol=1e-5
    )  # float32 through three layers and two derivatives


def test_singular_values_equal_those_of_power_iteration_once_it_has_converged():
    spectral = SpectralNetwork.create(2, width=16, depth=2, key=jax.random.key(2)).sharpened(
        n_iterations=2000
    )
    ours = example.normalise(pairs(spectral.raw))
    for (W, _), package in zip(ours, spectral.probe().network.weights, strict=True):
        np.testing.assert_allclose(W, package, rtol=1e-4, atol=1e-6)
    slopes = jax.vmap(jax.grad(lambda x: example.network(ours, x)[0]))(
        jax.random.normal(jax.random.key(3), (500, 2))
    )
    assert float(jnp.max(jnp.linalg.norm(slopes, axis=1))) <= 1.0 + 1e-5


def test_the_example_is_short_and_stands_alone():
    text = EXAMPLE.read_text()
    written = [line for line in text.splitlines() if line.strip()]
    assert len(written) <= 200
    names = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            names |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            names.add((node.module or "").split(".")[0])
    assert names <= {"argparse", "jax", "numpy", "optax"}


@pytest.mark.slow
def test_a_short_run_prints_the_table(capsys):
    example.main(["--iterations", "2", "--points", "40", "--batch", "16"])
    lines = capsys.readouterr().out.splitlines()
    table = [line for line in lines if line.startswith(("last snapshot", "forecast", "truth"))]
    assert len(table) == 3
    values = np.array([[float(v) for v in line.split("t=")[1].split()[1:]] for line in table])
    assert values.shape == (3, 4)
    assert np.all(np.isfinite(values))
