"""The potential recurrent network: transport against POT and Bures, gradients, its stationary law,
and a fit.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import ot
import pytest
from scipy.linalg import sqrtm

from itofit import FitWarning, InputError, Legend, Outcome, PotentialRNN, Snapshots, fit_together
from itofit.baselines import potential_training
from itofit.baselines.potential_objective import PotentialModel, RampPotential, barycentric_loss
from itofit.baselines.potential_training import (
    TrainingState,
    at_rest,
    back_from_rest,
    first_memory,
    iterate,
)
from itofit.simulate.euler import euler_push
from itofit.transport.sinkhorn import (
    kernel_plan,
    potentials,
    sinkhorn_divergence,
    squared_distances,
    transport_cost,
)
from itofit.weak.residual import Cloud


def even(n):
    return jnp.full(n, 1.0 / n)


def clouds(n=120, m=150, n_dims=2, seed=0):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, n_dims))
    y = rng.normal(size=(m, n_dims)) * 0.7 + 1.0
    return jnp.asarray(x), jnp.asarray(y)


# Transport


@pytest.mark.parametrize("n_alternations", [1, 3, 10])
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_the_kernel_plan_is_pots_after_as_many_alternations(n_alternations):
    with jax.enable_x64(True):
        x, y = clouds()
        M = squared_distances(x, y)
        plan = np.asarray(kernel_plan(M, 0.5, n_alternations))
    theirs = ot.bregman.sinkhorn(
        np.full(120, 1 / 120),
        np.full(150, 1 / 150),
        np.asarray(M),
        reg=0.5,
        stopThr=0.0,
        numItermax=n_alternations,
    )
    np.testing.assert_allclose(
        plan, theirs / theirs.sum(axis=1, keepdims=True), rtol=1e-9, atol=1e-14
    )


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_the_plan_of_logarithms_is_pots():
    """Weighted clouds, both run until nothing moves."""
    with jax.enable_x64(True):
        x, y = clouds()
        a = jax.nn.softmax(jnp.linspace(-1.0, 1.0, 120))
        b = jax.nn.softmax(jnp.linspace(0.5, -0.5, 150))
        M = squared_distances(x, y)
        eps = jnp.asarray(0.3)
        f, g = potentials(M, a, b, eps, 400)
        plan = np.asarray(jnp.exp((f[:, None] + g - M) / eps) * a[:, None] * b)
    theirs = ot.bregman.sinkhorn_log(
        np.asarray(a), np.asarray(b), np.asarray(M), reg=0.3, stopThr=1e-13
    )
    np.testing.assert_allclose(plan, theirs, rtol=1e-5, atol=1e-12)
    np.testing.assert_allclose(plan.sum(axis=1), a, rtol=1e-6)


def test_logarithms_survive_clouds_that_are_far_apart():
    """exp(-10 |x - y|^2) is zero at a distance of 40; the divergence of a shift is its square."""
    x, _ = clouds()
    assert not np.all(np.isfinite(kernel_plan(squared_distances(x, x + 40.0), 0.1, 10)))
    shifted = sinkhorn_divergence(x, x + 40.0, even(120), even(120))
    assert shifted == pytest.approx(2 * 40.0**2, rel=1e-3)


def bures(m0, C0, m1, C1):
    root = sqrtm(C0)
    return np.sum((m0 - m1) ** 2) + np.trace(C0 + C1 - 2.0 * np.real(sqrtm(root @ C1 @ root)))


def test_the_divergence_of_normal_clouds_is_bures_distance():
    """Both clouds have these moments exactly, so W2^2 is at least Bures' and more by what 800
    points are not normal.

    The divergence is below W2^2 by no more than the entropy of a blur of 1 % of the cost; 5 %
    covers both.
    """
    rng = np.random.default_rng(3)
    A = np.array([[1.0, 0.3], [0.0, 0.6]])
    B = np.array([[0.5, 0.0], [-0.2, 1.2]])
    shift = np.array([2.0, -1.5])
    z = rng.normal(size=(800, 2))
    z = (z - z.mean(axis=0)) @ np.linalg.inv(np.linalg.cholesky(np.cov(z.T, bias=True))).T
    x = z @ A.T
    y = z[::-1] @ B.T + shift
    divergence = sinkhorn_divergence(jnp.asarray(x), jnp.asarray(y), even(800), even(800))
    assert divergence == pytest.approx(bures(np.zeros(2), A @ A.T, shift, B @ B.T), rel=0.05)


@pytest.mark.slow
def test_the_gradient_of_a_cost_is_twice_the_way_to_the_barycentre():
    """The envelope theorem: d OT / dx_i = 2 sum_j P_ij (x_i - y_j), and that is the difference
    quotient's limit.
    """
    with jax.enable_x64(True):
        x, y = clouds(30, 40)
        a = even(30)
        b = even(40)
        eps = jnp.asarray(0.5)

        def cost(x):
            return transport_cost(x, y, a, b, eps, 300)

        slope = np.asarray(jax.grad(cost)(x))
        f, g = potentials(squared_distances(x, y), a, b, eps, 300)
        plan = jnp.exp((f[:, None] + g - squared_distances(x, y)) / eps) * a[:, None] * b
        np.testing.assert_allclose(slope, 2.0 * (a[:, None] * x - plan @ y), rtol=1e-6, atol=1e-9)
        step = np.zeros((30, 2))
        step[7] = [1e-4, -2e-4]
        quotient = (cost(x + step) - cost(x - step)) / 2.0
        np.testing.assert_allclose(quotient, np.sum(slope * step), rtol=1e-5)


@pytest.mark.slow
def test_the_gradient_as_used_is_that_of_a_plan_that_has_settled():
    """40 alternations with cooling against 1000: less than a tenth of it, which is less than a
    minibatch errs by.
    """
    x, y = clouds(100, 100)

    def divergence(x, n):
        return sinkhorn_divergence(x, y, even(100), even(100), n_alternations=n)

    few, many = (jax.grad(divergence)(x, n) for n in (40, 1000))
    assert np.linalg.norm(few - many) < 0.1 * np.linalg.norm(many)


def test_the_published_loss_pulls_every_point_to_its_barycentre():
    x, y = clouds(60, 60)
    key = jax.random.key(0)
    drawn = jax.random.choice(key, y, (60,), p=even(60))
    plan = kernel_plan(squared_distances(x, drawn), 0.1, 10)
    value, slope = jax.value_and_grad(lambda x: barycentric_loss(x, Cloud(y, even(60)), key))(x)
    error = plan @ drawn - x
    np.testing.assert_allclose(slope, -error, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(value, jnp.sum(error**2), rtol=1e-4)


def test_the_published_loss_halves_its_sharpness_where_the_kernel_vanishes():
    x, _ = clouds(40)
    value, slope = jax.value_and_grad(
        lambda x: barycentric_loss(x, Cloud(x + 4.0, even(40)), jax.random.key(0))
    )(x)
    assert np.isfinite(value)
    assert np.all(slope < 0.0)  # towards x + 4
    assert np.isinf(barycentric_loss(x, Cloud(x + 1e4, even(40)), jax.random.key(0)))


# The model


def ramps(key=0, n_ramps=12, n_dims=2):
    keys = jax.random.split(jax.random.key(key), 3)
    shapes = ((n_ramps, n_dims), (n_ramps,), (n_ramps,))
    parts = [jax.random.normal(k, shape) for k, shape in zip(keys, shapes, strict=True)]
    return RampPotential(*parts, jnp.asarray(1.7))


def batch_of_one(model):
    return eqx.filter_vmap(lambda _: model)(jnp.zeros(1))


def member(models):
    return jax.tree.map(lambda leaf: leaf[0], models)


def test_the_drift_is_minus_the_gradient_of_the_potential():
    drift = ramps()
    x = jnp.asarray([0.4, -1.1])
    np.testing.assert_allclose(drift(x), -jax.grad(drift.potential)(x), rtol=1e-5)


def test_a_gradient_has_no_curl():
    """Why Syn-3, whose flow turns, is out of reach."""
    slope = jax.jacfwd(ramps(1))(jnp.asarray([0.4, -1.1]))
    np.testing.assert_allclose(slope, slope.T, rtol=1e-5)


@pytest.fixture(scope="module")
def resting():
    """A population at rest at N((3, -1), diag(1, 0.3)) from the second snapshot on, moving there
    from N(0, I).
    """
    rng = np.random.default_rng(0)
    mean = np.array([3.0, -1.0])
    sd = np.array([1.0, 0.3])
    cloud = [rng.normal(size=(500, 2)), *(mean + sd * rng.normal(size=(500, 2)) for _ in range(2))]
    return Snapshots.from_arrays(cloud, [0.0, 3.0, 6.0])


@pytest.mark.slow
def test_the_pretrained_potential_has_the_last_snapshot_as_its_stationary_law(resting):
    """Contrastive divergence at sigma = sqrt 2, then a long simulation at sigma = .5 from
    elsewhere.

    300 steps with 256 of 500 points at a time leave an error of some tenths of an sd: a quarter in
    the mean and a third in the sd are asked for, where the start is off by 3 and by 2.3 sds.
    """
    rnn = PotentialRNN(0.5, rate=0.03, n_ramps=60, batch_size=256, dt=0.1, random_state=0)
    settings = rnn._settings(500)
    start = rnn._start(resting, settings)

    @eqx.filter_jit
    def trained(model, keys):
        def body(state, k):
            rate = jnp.asarray(0.03)
            return iterate(start.objective, state, rate, k, jnp.zeros(()), "contrast")

        state = TrainingState(model, first_memory(settings, model))
        return jax.lax.scan(body, state, keys)[0].model

    untrained = batch_of_one(start.model)
    pretrained = trained(member(at_rest(untrained)), jax.random.split(start.key, 300))
    model = member(back_from_rest(batch_of_one(pretrained), untrained))
    begin = jnp.asarray(rnn.scaling_.standardise(resting.clouds[0]), dtype=float)
    steps = jnp.full(1500, 0.02 * 2.0 / float(model.sigma) ** 2)
    end = jax.jit(euler_push)(model.process(), begin, steps, jax.random.key(1))
    x = rnn.scaling_.restore(np.asarray(end))
    sd = np.array([1.0, 0.3])
    np.testing.assert_allclose((x.mean(axis=0) - [3.0, -1.0]) / sd, 0.0, atol=0.25)
    np.testing.assert_allclose(x.std(axis=0) / sd, 1.0, atol=0.34)


def test_the_stationary_law_is_kept_when_the_noise_changes():
    """exp(-2 Psi / sigma^2): the potential of pre-training at sigma = sqrt 2 is scaled by
    sigma^2 / 2, in the fit's speed.
    """
    trained = PotentialModel(ramps(), jnp.asarray(0.5 * np.log(2.0)))
    trained = eqx.tree_at(lambda m: m.potential.speed, trained, jnp.ones(()))
    batch = batch_of_one(trained)
    noise_and_speed = (jnp.log(jnp.asarray([0.3])), jnp.asarray([7.0]))
    of_the_data = eqx.tree_at(lambda m: (m.log_sigma, m.potential.speed), batch, noise_and_speed)
    rescaled = member(back_from_rest(batch, of_the_data))
    x = jnp.asarray([0.2, 0.9])
    assert rescaled.sigma == pytest.approx(0.3, rel=1e-5)
    np.testing.assert_allclose(rescaled.log_density(x), trained.log_density(x), rtol=1e-5)


# Fits


@pytest.fixture(scope="module")
def pulled():
    """An Ornstein-Uhlenbeck population, which a potential can follow: mean 2 (1 - e^-t), sd from 1
    to .5.
    """
    rng = np.random.default_rng(1)
    times = [0.0, 0.5, 1.2]
    means = [2.0 * (1.0 - np.exp(-t)) for t in times]
    sds = [np.sqrt(np.exp(-2 * t) + 0.25 * (1 - np.exp(-2 * t))) for t in times]
    return Snapshots.from_arrays(
        [m + s * rng.normal(size=(300, 2)) for m, s in zip(means, sds, strict=True)], times
    )


SHORT = {
    "n_ramps": 60,
    "n_pretrain": 60,
    "n_short": 20,
    "n_iter": 80,
    "batch_size": 128,
    "dt": 0.1,
    "random_state": 0,
}


@pytest.mark.slow
@pytest.mark.parametrize("sigma", [0.5 * np.sqrt(2.0), "learn"])
def test_a_population_in_a_well_is_followed(pulled, sigma):
    """Mean and sd at a time between the snapshots, to two standard errors of those of 300 points
    (.12 and .09).

    A learned sigma is one number among many that make the spread: within two fifths.
    """
    model = PotentialRNN(sigma, **SHORT).fit(pulled)
    assert model.outcome_.is_good
    x = model.predict(0.8)
    np.testing.assert_allclose(x.mean(axis=0), 2.0 * (1.0 - np.exp(-0.8)), atol=0.12)
    np.testing.assert_allclose(
        x.std(axis=0), np.sqrt(np.exp(-1.6) + 0.25 * (1 - np.exp(-1.6))), atol=0.1
    )
    assert model.sigma_ == pytest.approx(0.5 * np.sqrt(2.0), rel=0.4 if sigma == "learn" else 1e-5)


@pytest.mark.slow
def test_the_published_mode_fits_too(pulled):
    model = PotentialRNN(0.7, mode="faithful", **(SHORT | {"n_pretrain": 40})).fit(pulled)
    far = np.abs(pulled.clouds[0].mean(axis=0) - pulled.clouds[2].mean(axis=0))
    assert np.all(
        np.abs(model.predict(1.2).mean(axis=0) - pulled.clouds[2].mean(axis=0)) < 0.5 * far
    )
    assert np.all(model.scaling_.sd == 1.0)


def test_refusals(refused, pulled):
    for choices, message in (
        ({"mode": "fast"}, "stable, faithful"),
        ({"tau": 1.5}, "tau from 0 to 1"),
        ({"n_ramps": 1}, "n_ramps"),
        ({"rate": -1.0}, "rate above 0"),
        ({"sigma": [1.0, 2.0]}, "one number above 0"),
        ({"sigma": 0.0}, "one number above 0"),
        ({"anchor": "next"}, "anchor"),
    ):
        with refused(message):
            PotentialRNN(**choices).fit(pulled)
    with pytest.raises(InputError):
        PotentialRNN("full").fit(pulled)


@pytest.mark.slow
def test_ctrl_c_leaves_the_long_run_as_far_as_it_went(pulled, monkeypatch):
    """The third report of the long run is interrupted: three blocks of it stand, and the model is
    one of them.
    """

    def interrupted(self, loss):
        if len(self.losses) == 3:
            raise KeyboardInterrupt

    monkeypatch.setattr(potential_training, "_BLOCK", 5)
    monkeypatch.setattr(potential_training.Training, "_report", interrupted)
    choices = SHORT | {"n_ramps": 8, "n_pretrain": 10, "n_short": 5, "n_iter": 40, "batch_size": 32}
    with pytest.warns(FitWarning, match="interrupted"):
        model = PotentialRNN(0.7, **choices).fit(pulled)
    assert model.outcome_ is Outcome.interrupted
    assert model.n_iter_ == 15
    assert np.all(np.isfinite(model.predict(1.2)))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "choices"),
    [
        (PotentialRNN, SHORT | {"n_pretrain": 4, "n_short": 3, "n_iter": 6}),
        (Legend, {"n_iter": 3, "dt": 0.1}),
    ],
)
def test_fitted_together_each_is_the_one_it_would_be_by_itself(pulled, kind, choices):
    other = pulled.with_clouds([x + 0.5 for x in pulled.clouds])
    choices = {k: v for k, v in choices.items() if k != "random_state"}
    both = fit_together([kind(0.7, random_state=k, **choices) for k in (1, 2)], [pulled, other])
    alone = kind(0.7, random_state=2, **choices).fit(other)
    # Rows come shuffled.
    together, by_itself = (np.sort(model.predict(1.0), axis=0) for model in (both[1], alone))
    np.testing.assert_allclose(together, by_itself, rtol=1e-3, atol=1e-3)


def test_what_cannot_be_fitted_together_is_refused(refused, pulled):
    thinned = Snapshots.from_arrays([x[:200] for x in pulled.clouds], pulled.times)

    def models(*changes):
        return [PotentialRNN(0.7, **(SHORT | change)) for change in changes]

    with refused("equal choices"):
        fit_together(models({}, {"tau": 0.5}), [pulled, pulled])
    with refused("equal choices"):
        fit_together([*models({}), Legend(0.7, dt=0.1)], [pulled, pulled])
    with refused("dt given"):
        fit_together(models({"dt": "auto"}, {"dt": "auto"}), [pulled, pulled])
    with refused("the same number of points"):
        fit_together(models({}, {}), [pulled, thinned])
    with refused("as many data sets"):
        fit_together(models({}), [pulled, pulled])
