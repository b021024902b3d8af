"""LEGEND: its identity form is the direct game, critics read W1, the code is reproduced."""

from dataclasses import replace

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from itofit import Legend, Snapshots
from itofit.adversarial import training
from itofit.adversarial.game import Setting
from itofit.adversarial.learners import PlainLearner
from itofit.adversarial.run import optimisers_for
from itofit.adversarial.training import iterate
from itofit.baselines.legend import (
    Code,
    CodedLearner,
    HiddenGame,
    HiddenProcess,
    PenaltyAdversary,
    prepared,
    push_hidden,
)
from itofit.process.drift import FunctionDrift
from itofit.process.ito import ItoProcess
from itofit.process.network import TanhNetwork
from itofit.process.noise import diffusion_from_sigma
from itofit.simulate.mesh import Mesh
from itofit.snapshots.clouds import Snapshot
from itofit.snapshots.scaling import Scaling


@pytest.fixture(scope="module")
def moving():
    """Standardised enough: clouds of unequal size that move and shrink."""
    rng = np.random.default_rng(0)
    sizes = (80, 60, 70)
    times = [0.0, 0.3, 1.0]
    clouds = [
        rng.normal(size=(n, 2)) * (1.0 - 0.3 * t) + [t, -t]
        for n, t in zip(sizes, times, strict=True)
    ]
    return Snapshots.from_arrays(clouds, times)


def test_with_the_identity_for_a_code_it_is_the_direct_game_step_for_step(moving):
    """Same seeds, same values, same weights: three iterations of both, to rounding."""
    model = Legend(0.5, encoder="identity", critic="spectral-norm", batch_size=40, random_state=0)
    model.scaling_ = Scaling.identity(2)
    model.seed_ = 0
    options = model._game_options()
    mesh = Mesh.refine(moving.times, 0.1)
    key = jax.random.key(7)
    assert (options.discrepancy, options.anchor, options.adversary) == (
        "direct",
        "initial",
        "network",
    )
    noise = diffusion_from_sigma(0.5, 2)
    ours = training.prepared(moving, moving, None, noise, mesh, options, key=key)
    theirs = prepared(model, moving, moving, mesh, key=key)
    step = eqx.filter_jit(
        lambda game, players, k: iterate(game, optimisers_for(options), players, k)
    )
    residuals = []
    weights = []
    for contest in (ours, theirs):
        players = contest.run.players
        values = []
        for i in range(3):
            iteration = step(contest.game, players, jax.random.fold_in(contest.key, i))
            players = iteration.players
            values.append(np.asarray(iteration.residuals))
        residuals.append(np.stack(values))
        sides = (players.learner, players.adversary)
        weights.append(jax.tree.leaves(eqx.filter(sides, eqx.is_inexact_array)))
    assert np.all(residuals[0] != 0.0)
    np.testing.assert_allclose(residuals[1], residuals[0], rtol=1e-5, atol=1e-7)
    for a, b in zip(*weights, strict=True):
        np.testing.assert_allclose(b, a, rtol=1e-4, atol=1e-6)


def linear_model():
    """h = (x, zeta); dh = -h dt + (noise in the third); observed: x1 + 2 h3, x2."""
    mixing = jnp.asarray([[0.0, 0.0, 2.0], [0.0, 0.0, 0.0]])
    still = TanhNetwork((jnp.zeros((4, 3)), jnp.zeros((3, 4))), (jnp.zeros(4), jnp.zeros(3)))
    # tanh(h / 1000) 1000 is h to 1e-4 for the states at hand: a linear decoder.
    linear = TanhNetwork((jnp.eye(3) / 1000.0, 1000.0 * mixing), (jnp.zeros(3), jnp.zeros(2)))
    noise = diffusion_from_sigma([0.0, 0.0, 0.6], 3)
    return HiddenProcess(ItoProcess(FunctionDrift(lambda h: -h), noise), Code(still, linear))


def test_moments_of_a_linear_hidden_process_are_closed():
    """x1(t) = e^-t x1(0) + 2 h3(t), h3 from N(0, 1) to N(0, e^-2t + .18 (1 - e^-2t)); a step of .01
    errs by 1 %.
    """
    n = 40_000
    t = 0.7
    start = Snapshot(0.0, np.tile([3.0, -1.0], (n, 1)), np.full(n, 1.0 / n))
    (cloud,) = push_hidden(linear_model(), Scaling.identity(2), 0.01, start, [t], jax.random.key(0))
    shrunk = np.exp(-2.0 * t)
    variance = 4.0 * (shrunk + 0.18 * (1.0 - shrunk))
    # Four standard errors of a mean and of a variance of 40 000 points, and Euler's error.
    assert cloud[:, 0].mean() == pytest.approx(
        3.0 * np.exp(-t), abs=4.0 * np.sqrt(variance / n) + 0.02
    )
    assert cloud[:, 0].var() == pytest.approx(variance, rel=4.0 * np.sqrt(2.0 / n) + 0.02)
    np.testing.assert_allclose(cloud[:, 1], -np.exp(-t), rtol=0.01)


def test_a_cloud_at_its_own_time_is_what_it_was():
    x = np.random.default_rng(1).normal(size=(50, 2))
    start = Snapshot(1.0, x, np.full(50, 0.02))
    first, later = push_hidden(
        linear_model(), Scaling.identity(2), 0.1, start, [1.0, 1.5], jax.random.key(0)
    )
    np.testing.assert_array_equal(first, x)
    assert not np.allclose(later, x)


def game_on(snapshots, options, n_more):
    noise = diffusion_from_sigma(1.0, 2 + (n_more or 0))
    mesh = Mesh.refine(snapshots.times, 0.2)
    return HiddenGame(Setting.between(snapshots, noise, mesh, options), n_more)


def test_every_snapshot_has_a_critic_the_first_included(moving):
    model = Legend(0.5, random_state=0)
    model.scaling_ = Scaling.identity(2)
    model.seed_ = 0
    options = replace(model._game_options(), batch_size=None)
    game = game_on(moving, options, 2)
    learner, _ = model._fresh(moving, jax.random.key(1))
    assert isinstance(learner, CodedLearner)
    assert game.targets == (0, 1, 2)
    draw = game.draw(jax.random.key(2))
    assert draw.noise[0].shape[-1] == 4
    (path,) = game.simulate(learner, draw)
    hidden = HiddenProcess(game.process(learner), learner.code)
    there_and_back = hidden.decoded(hidden.encoded(draw.clouds[0].points, draw.code))
    np.testing.assert_allclose(path[0], there_and_back, rtol=1e-6)
    assert path.shape == (3, 80, 2)
    assert game_on(moving, options, 0).targets == (0, 1, 2)  # a code of the same size is one, too
    assert game_on(moving, options, None).targets == (1, 2)


def test_a_penalised_critic_reads_the_distance_of_shifted_clouds():
    """W1 of a cloud and itself shifted is the length d of the shift, and a line of slope s is paid
    s d - 10 (s - 1)^2.

    That is best at s = 1 + d / 20, where the critic reads d (1 + d / 20) = 1.61; a curved one a
    little more.
    """
    x = np.random.default_rng(0).normal(size=(200, 2))
    shift = np.array([1.2, -0.9])
    moving = Snapshots.from_arrays([x, x + shift], [0.0, 1.0])
    options = replace(Legend()._game_options(), batch_size=None, critic_steps=400, probe_rate=3e-3)
    game = game_on(moving, options, None)
    optimisers = optimisers_for(options)
    adversary = PenaltyAdversary.create(game, optimisers.probes, key=jax.random.key(0))
    draw = game.draw(jax.random.key(1))
    paths = (jnp.asarray(x, dtype=float)[None],)
    learner = CodedLearner(PlainLearner(FunctionDrift(lambda h: h)), None)
    reply = eqx.filter_jit(
        lambda a: a.answer(game, optimisers.probes, learner, draw, paths, jax.random.key(2))
    )(adversary)
    assert reply.values[0] == pytest.approx(1.5 * (1.0 + 1.5 / 20.0), rel=0.1)
    assert 0.7 < reply.adversary.slope(game) < 1.5


def test_refusals(refused, moving):
    for choices, words in (
        ({"critic": "clipping"}, "gradient-penalty, spectral-norm"),
        ({"encoder": "linear"}, "network, identity"),
        ({"n_hidden": 1}, "n_hidden"),
        ({"n_hidden": 5, "encoder": "identity"}, "n_hidden None"),
        ({"sigma": [1.0, -2.0]}, "above 0"),
        ({"sigma": "full"}, "sigma"),
        ({"n_iter": 0}, "n_iter"),
        ({"learning_rate": 0.0}, "drift_rate"),
    ):
        with refused(words):
            Legend(**choices).fit(moving)


@pytest.mark.slow
def test_a_population_that_moves_is_followed():
    """A shift and a contraction; at the last snapshot nearer than a third of the way gone."""
    rng = np.random.default_rng(1)
    times = [0.0, 0.5, 1.2]
    data = Snapshots.from_arrays(
        [2.0 * t + np.exp(-0.5 * t) * rng.normal(size=(300, 2)) for t in times], times
    )
    model = Legend(n_iter=600, batch_size=128, dt=0.05, random_state=0).fit(data)
    x = model.predict(1.2)
    assert np.all(np.abs(x.mean(axis=0) - 2.4) < 0.8)
