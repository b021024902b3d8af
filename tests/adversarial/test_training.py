"""Runs of Algorithm 1: they learn, repeat, resume, survive faults and say how they ended."""

import json
import warnings

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from itofit import (
    Adversarial,
    Bridge,
    FitWarning,
    FokkerPlanckProcess,
    InputError,
    Outcome,
    Snapshots,
    fit_together,
    known_system,
)
from itofit.adversarial import training
from itofit.adversarial.adversaries import RidgeAdversary
from itofit.adversarial.learners import PlainLearner, learner_of
from itofit.adversarial.options import AdversarialOptions
from itofit.adversarial.training import fresh_drift, play, prepared
from itofit.metrics import coordinate_W1
from itofit.process.drift import CorrectedDrift, NetworkDrift
from itofit.simulate import Mesh
from itofit.solve.listeners import MetricLog
from itofit.weak.residual import Cloud
from itofit.weak.ridge_probes import best_answer

# A staged drift compiles anew for every stage: only what is about stages trains one.
TINY = {"drift_width": 8, "drift_depth": 1, "eval_every": 5, "batch_size": 32, "drift_form": "skip"}
STAGED = {"drift_form": "staged"}
NETWORKS = {
    "adversary": "network",
    "drift_form": "skip",
    "probe_width": 8,
    "probe_depth": 1,
    "hold_out": 0.1,
}


@pytest.fixture(scope="module")
def data():
    return known_system("ou").observe(120, [0.0, 0.3, 1.0], key=jax.random.key(7))


def tiny(*, dt=0.1, random_state=3, **options):
    """A small model; the options are those of the solver."""
    solver = Adversarial(**(TINY | {"n_iter": 20, "warm_start": None} | options))
    return FokkerPlanckProcess(0.7, dt=dt, random_state=random_state, solver=solver)


def same(a, b):
    return all(
        np.array_equal(x, y)
        for x, y in zip(
            jax.tree.leaves(a.standard_process_), jax.tree.leaves(b.standard_process_), strict=True
        )
    )


@pytest.fixture(scope="module")
def straight(data):
    return tiny().fit(data)


@pytest.fixture(scope="module")
def staged(data):
    return tiny(n_iter=21, **STAGED).fit(data)


def test_same_seed_same_fit_and_row_order_does_not_matter(data, straight):
    assert same(straight, tiny().fit(data))
    X, t, _ = data.to_rows()
    order = np.random.default_rng(0).permutation(len(X))
    assert same(straight, tiny().fit(X[order], t[order]))
    assert not same(straight, tiny(random_state=4).fit(data))


def test_time_shift_does_not_matter(data, straight):
    X, t, _ = data.to_rows()
    shifted = tiny().fit(X, t + 8.0)
    # A shift by a power of two keeps the gaps exact in float64.
    np.testing.assert_allclose(straight.history_.loss, shifted.history_.loss, rtol=1e-5, atol=1e-6)


class StopAfter:
    """Presses Ctrl-C after so many blocks."""

    def __init__(self, blocks):
        self.blocks = blocks

    def __call__(self, progress):
        self.blocks -= 1
        if self.blocks == 0:
            raise KeyboardInterrupt


@pytest.mark.slow
@pytest.mark.parametrize("blocks", [1, 6])
def test_resume_equals_uninterrupted_bit_for_bit(data, staged, tmp_path, blocks):
    """Stopped within the first stage, and after the polynomials came in."""
    with pytest.warns(FitWarning, match="interrupted"):
        part = tiny(n_iter=21, **STAGED).fit(
            data, checkpoint=tmp_path, listeners=[StopAfter(blocks)]
        )
    assert part.outcome_ is Outcome.interrupted
    assert part.n_iter_ == {1: 5, 6: 18}[blocks]
    assert part.predict(0.5).shape == (120, 2)
    resumed = tiny(n_iter=21, **STAGED).fit(data, checkpoint=tmp_path, resume=True)
    assert resumed.n_iter_ == 21
    assert same(resumed, staged)
    for name, value in vars(staged.history_).items():
        np.testing.assert_array_equal(getattr(resumed.history_, name), value)


def test_a_checkpoint_of_another_run_is_refused(data, tmp_path):
    tiny().fit(data, checkpoint=tmp_path)
    with pytest.raises(InputError, match="unfinished run"):
        tiny().fit(data, checkpoint=tmp_path)
    with pytest.raises(InputError, match="same data, options and seed"):
        tiny(random_state=9).fit(data, checkpoint=tmp_path, resume=True)
    (tmp_path / "checkpoint.npz").write_bytes((tmp_path / "checkpoint.npz").read_bytes()[:200])
    with pytest.raises(InputError, match="complete npz"):
        tiny().fit(data, checkpoint=tmp_path, resume=True)


def test_listeners_see_every_block_and_the_log_is_json(data, tmp_path):
    observed = []
    tiny().fit(data, listeners=[observed.append, MetricLog(tmp_path / "log.jsonl")])
    assert [p.n_done for p in observed] == [5, 10, 15, 20]
    lines = [json.loads(line) for line in (tmp_path / "log.jsonl").read_text().splitlines()]
    assert [line["loss"] for line in lines] == [p.loss for p in observed]
    assert all(len(line["residuals"]) == 2 for line in lines)


def test_history_is_complete(staged):
    history = staged.history_
    assert history.loss.shape == (21,)
    assert history.residuals.shape == (21, 2)
    # Readings every 5 iterations and at the ends of stages of 6, 6, 6 and 3.
    assert history.evaluated_at.tolist() == [5, 6, 11, 12, 17, 18, 21]
    np.testing.assert_allclose(history.residuals.sum(axis=1), history.loss, rtol=1e-4, atol=1e-6)
    assert np.all(np.isfinite(history.criterion))


@pytest.mark.slow
def test_networks_on_both_sides_keep_their_slope_and_stop_at_a_plateau(data):
    model = tiny(n_iter=13, **NETWORKS).fit(data)
    assert model.outcome_ is Outcome.budget
    assert model.history_.evaluated_at.tolist() == [5, 10, 13]
    assert np.all(np.isfinite(model.history_.loss))
    assert np.all(model.history_.slope <= 1.01)
    still = NETWORKS | {"drift_rate": 1e-12, "patience": 10, "eval_every": 5}
    model = tiny(n_iter=200, **still).fit(data)
    assert model.outcome_ is Outcome.converged
    assert model.n_iter_ == 10


@pytest.mark.slow
def test_a_drift_that_explains_the_snapshots_stays_in_its_first_stage(data, staged):
    """At the truth chi-squared is within its noise: the run rests after one of four stages; from
    zero it goes on.
    """
    process = known_system("ou").process
    options = AdversarialOptions(**(TINY | STAGED), n_iter=20, drift_rate=1e-9)
    mesh = Mesh.refine(data.times, 0.01)
    fresh = fresh_drift(data, 1.0, options, key=jax.random.key(1))
    learner = learner_of(CorrectedDrift(process.drift, fresh))
    contest = prepared(data, data, learner, process.diffusion, mesh, options, key=jax.random.key(0))
    (run,) = play([contest], options)
    assert (run.outcome, run.n_iter) == (Outcome.converged, 5)
    assert (staged.outcome_, staged.n_iter_) == (Outcome.budget, 21)


def test_what_a_stage_took_in_stays_only_if_it_pays(data):
    """With a price nothing can pay the run rests where it began."""
    dear = tiny(**STAGED, gain=1e9).fit(data)
    np.testing.assert_array_equal(dear.drift(data.clouds[1]), 0.0)
    assert (dear.outcome_, dear.n_iter_) == (Outcome.budget, 5)


def test_prices_are_in_units_of_chi_squared(data):
    """10 a coordinate for a richer drift, 2 for each term that a thinner one is short of."""
    options = AdversarialOptions(**(TINY | STAGED))
    diffusion = known_system("ou").process.diffusion
    mesh = Mesh.refine(data.times, 0.1)
    contest = prepared(data, data, None, diffusion, mesh, options, key=jax.random.key(0))
    criterion = contest.criterion
    assert criterion.price(10.0) * criterion.n_residuals == pytest.approx(20.0)
    assert float(criterion.price_of_terms(jnp.asarray(3))) * criterion.n_residuals == pytest.approx(
        6.0
    )


def test_learners_of_different_shapes_are_batches_of_their_own(data):
    """Each ends where it ends by itself, bit for bit, in the order it was given."""
    options = AdversarialOptions(**TINY, n_iter=5)
    diffusion = known_system("ou").process.diffusion
    mesh = Mesh.refine(data.times, 0.1)

    def contest(width):
        drift = NetworkDrift.create(
            2, width=width, depth=1, speed=4.0, last_gain=0.1, key=jax.random.key(width)
        )
        return prepared(
            data, data, PlainLearner(drift), diffusion, mesh, options, key=jax.random.key(0)
        )

    together = play([contest(6), contest(4)], options)
    for run, width in zip(together, (6, 4), strict=True):
        (alone,) = play([contest(width)], options)
        for a, b in zip(jax.tree.leaves(run.process), jax.tree.leaves(alone.process), strict=True):
            np.testing.assert_array_equal(a, b)


@pytest.mark.slow
def test_a_stage_that_fails_is_left_and_the_next_one_tried(data, monkeypatch):
    """Polynomials that diverge do not keep the network away; the outcome says so unless the fit is
    good.

    Without a price every stage runs to its end: a block each, of which the third fails.
    """
    blocks = iter([None, None, Outcome.diverged, None])
    monkeypatch.setattr(training, "_fault", lambda *_: next(blocks))
    with pytest.warns(FitWarning, match="diverged"):
        model = tiny(n_iter=16, **(STAGED | {"eval_every": 4, "gain": None})).fit(data)
    assert (model.outcome_, model.n_iter_) == (Outcome.diverged, 16)
    assert next(blocks, "all met") == "all met"
    assert np.all(np.isfinite(model.history_.loss))
    np.testing.assert_array_equal(model.history_.residuals[8:12], model.history_.residuals[[7] * 4])


@pytest.mark.parametrize("sound", [0, 2])
def test_every_stage_fails_at_most_once(data, monkeypatch, sound):
    """A first stage that fails ends the run, a later one is passed over; two blocks a stage."""
    met = []

    def fault(*_):
        met.append(None if len(met) < sound else Outcome.non_finite)
        return met[-1]

    monkeypatch.setattr(training, "_fault", fault)
    with pytest.warns(FitWarning, match="non-finite"):
        model = tiny(n_iter=16, **(STAGED | {"eval_every": 2, "gain": None})).fit(data)
    assert model.outcome_ is Outcome.non_finite
    assert len(met) == {0: 1, 2: 2 + 3}[sound]
    assert model.n_iter_ == {0: 0, 2: 16}[sound]
    assert np.all(np.isfinite(model.history_.loss))
    assert np.all(np.isfinite(model.history_.criterion))
    assert np.all(np.isfinite(model.predict(0.5)))


def test_fits_together_are_those_by_themselves(data, straight):
    others = [data, known_system("ou").observe(120, [0.0, 0.3, 1.0], key=jax.random.key(8))]
    models = fit_together([tiny(random_state=seed) for seed in (3, 4)], others)
    for a, b, d in zip(
        models, [straight, tiny(random_state=4).fit(others[1])], others, strict=True
    ):
        # Sums in another order: float32 round-off, carried through 20 iterations of Adam.
        np.testing.assert_allclose(a.drift(d.clouds[1]), b.drift(d.clouds[1]), rtol=1e-2, atol=1e-3)
        np.testing.assert_allclose(a.history_.loss, b.history_.loss, rtol=1e-2)
        np.testing.assert_array_equal(a.scaling_.mean, b.scaling_.mean)
    assert not np.allclose(models[0].drift(data.clouds[1]), models[1].drift(data.clouds[1]))


def test_what_cannot_be_fitted_together_is_refused(data, refused):
    with refused("equal choices"):
        fit_together([tiny(), tiny(n_iter=7)], [data, data])
    with refused("as many data sets"):
        fit_together([], [])
    with refused("dt given"):
        fit_together([tiny(dt="auto"), tiny(dt="auto")], [data, data])
    with refused("same number of points"):
        fit_together(
            [tiny(), tiny()],
            [data, known_system("ou").observe(60, [0.0, 0.3, 1.0], key=jax.random.key(8))],
        )
    with refused("same times"):
        fit_together([tiny(), tiny()], [data, data.select([0, 1])])


@pytest.mark.slow
def test_an_ensemble_is_the_mean_of_its_members(data, tmp_path):
    model = tiny(n_iter=6, n_members=2).fit(data)
    x = data.clouds[1][:5]
    members = [np.asarray(jax.vmap(member.drift)(jnp.asarray(x))) for member in model.members_]
    assert len(members) == 2
    assert not np.allclose(*members, rtol=1e-3)
    np.testing.assert_allclose(model.drift(x), np.mean(members, axis=0), rtol=1e-4, atol=1e-5)
    model.save(tmp_path)
    np.testing.assert_array_equal(FokkerPlanckProcess.load(tmp_path).drift(x), model.drift(x))


def test_bad_members_are_refused(refused):
    with refused("n_members"):
        tiny(n_members=0)


def coupled(*, random_state=3, **options):
    """A small model that begins with the bridge and corrects it in stages."""
    options = {"warm_start": "bridge", "n_iter": 8, "eval_every": 1} | STAGED | options
    return tiny(random_state=random_state, **options)


@pytest.fixture(scope="module")
def corrected(data):
    return coupled().fit(data)


def test_a_run_begins_with_the_bridge_and_ends_no_worse(data, corrected, tmp_path):
    """With a price nothing can pay it stays the drift of the bridge solver, bit for bit."""
    unpaid = coupled(gain=1e9).fit(data)
    drift = unpaid.standard_process_.drift
    assert isinstance(drift, CorrectedDrift)
    problem = unpaid.solution_.problem
    alone = Bridge().solve(problem).process
    x = jnp.asarray(problem.snapshots.clouds[1])
    np.testing.assert_array_equal(jax.vmap(drift)(x), jax.vmap(alone.drift)(x))
    noise = unpaid.standard_process_.diffusion
    assert jax.tree.all(jax.tree.map(np.array_equal, noise, alone.diffusion))
    assert corrected.history_.criterion.min() <= unpaid.history_.criterion[0]
    corrected.save(tmp_path)
    loaded = FokkerPlanckProcess.load(tmp_path)
    np.testing.assert_array_equal(loaded.drift(data.clouds[1]), corrected.drift(data.clouds[1]))


def test_a_corrected_bridge_is_bounded(corrected):
    """Far out in any direction the correction is that of the border, and the bridge's is bounded
    by itself.
    """
    drift = corrected.standard_process_.drift
    drift = eqx.tree_at(
        lambda g: g.correction.coefficients,
        drift,
        jnp.ones_like(drift.correction.coefficients),
    )
    corners = jnp.asarray([[-1.0, -1.0], [-1.0, 1.0], [1.0, -1.0], [1.0, 1.0]])
    near = jax.vmap(drift)(1e3 * corners)
    far = jax.vmap(drift)(1e6 * corners)
    np.testing.assert_array_equal(near, far)
    assert not np.allclose(near[0], near[1])


def awkward(kind):
    """Three clouds with something wrong about them."""
    rng = np.random.default_rng(0)
    clouds = [rng.normal(size=(60, 2)) + [k, 0.3 * k] for k in range(3)]
    weights = None
    if kind == "collinear":
        clouds = [np.stack([x[:, 0], 2.0 * x[:, 0]], axis=1) for x in clouds]
    elif kind == "far apart":
        clouds = [x + 1e6 * k for k, x in enumerate(clouds)]
    elif kind == "a last snapshot of one point":
        clouds[-1] = np.tile(clouds[-1][:1], (60, 1))
    else:
        weights = [np.where(np.arange(60) < 2, 1.0, 1e-12)] * 3
    return Snapshots.from_arrays(clouds, [0.0, 0.5, 1.0], weights)


def test_a_snapshot_of_one_point_has_test_functions_that_float32_can_tell_apart():
    """The generator of a cosine goes with the square of the width's inverse, its variance with the
    fourth power.
    """
    snapshots = awkward("a last snapshot of one point")
    (family,) = RidgeAdversary.about(snapshots, AdversarialOptions()).families(jax.random.key(0))[
        1:
    ]
    clouds = [Cloud(jnp.asarray(x, float), jnp.asarray(w, float)) for _, x, w in snapshots]
    start, target = clouds[1:]

    def propagated(x):
        return family(x) + 0.5 * family.generator(x, jnp.zeros(2), jnp.eye(2))

    answer = best_answer(family, target, start, jax.vmap(propagated)(start.points))
    assert jnp.isfinite(answer.chi2)
    assert jnp.all(jnp.isfinite(answer.probe.weights))


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::itofit.FitWarning")
@pytest.mark.parametrize("start", ["bridge", None])
@pytest.mark.parametrize(
    "kind", ["collinear", "far apart", "a last snapshot of one point", "weights of two points"]
)
def test_awkward_snapshots_end_as_an_outcome(kind, start):
    """They end, at a finite drift, and from the bridge without a fault."""
    solver = coupled(warm_start=start).solver
    model = FokkerPlanckProcess(dt=0.1, random_state=0, solver=solver).fit(awkward(kind))
    assert model.outcome_.is_good or start is None
    assert np.all(np.isfinite(model.predict(0.7)))
    assert np.all(np.isfinite(model.history_.loss))


def test_units_of_the_data_and_the_bridge_do_not_go_together(refused):
    with refused("standardise=True"):
        Adversarial(standardise=False)
    assert Adversarial.paper().warm_start is None


def test_a_run_that_explodes_keeps_the_last_good_state(data):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model = tiny(n_iter=40, drift_rate=1e3).fit(data)
    assert model.outcome_ in (Outcome.diverged, Outcome.non_finite)
    assert any("learning rate" in str(w.message) for w in caught)
    assert np.all(np.isfinite(model.predict(1.0)))
    assert np.all(np.isfinite(model.drift(data.clouds[1])))


@pytest.mark.parametrize(
    ("gradient", "anchor", "discrepancy"),
    [
        ("pathwise", "initial", "direct"),
        ("detached", "previous", "weak"),
        ("adjoint", "initial", "weak"),
    ],
)
def test_other_gradients_anchors_and_discrepancies_run(data, gradient, anchor, discrepancy):
    model = tiny(n_iter=5, gradient=gradient, anchor=anchor, discrepancy=discrepancy).fit(data)
    assert model.outcome_ is Outcome.budget
    assert np.all(np.isfinite(model.history_.loss))


@pytest.mark.slow
def test_paper_is_the_printed_recipe(data):
    solver = Adversarial.paper(n_iter=3)
    sizes = (solver.drift_depth, solver.drift_width, solver.probe_depth, solver.probe_width)
    assert sizes == (1, 32, 3, 32)
    assert (solver.drift_rate, solver.probe_rate) == (1e-4, 1e-4)
    assert (solver.batch_size, solver.n_nodes) == (None, None)
    assert not solver.standardise
    # Five unrolled steps are long to compile.
    solver = Adversarial.paper(n_iter=3, critic_steps=1)
    model = FokkerPlanckProcess(0.7, dt=0.1, solver=solver, random_state=0).fit(data)
    np.testing.assert_array_equal(model.scaling_.sd, 1.0)


@pytest.mark.slow
def test_warm_refinement_of_dt(data):
    """A first step that is far too long is halved; dt_ and its error are written back."""
    model = tiny(dt="auto", random_state=0, n_iter=10).fit(data)
    assert 0.0 < model.dt_ <= 0.3 / 5
    assert 0.0 <= model.dt_error_ <= 0.05


@pytest.mark.slow
def test_small_ornstein_uhlenbeck_is_recovered_within_its_floor():
    """Mean and variance at an unseen time, against the closed form.

    The fit has 400 points a snapshot: the mean of a cloud is known to sd / 20 and its sd to sd /
    28. Allowed are 3 of each, added for the two snapshots that bracket the unseen time, and the law
    must beat doing nothing.
    """
    system = known_system("ou")
    snapshots = system.observe(400, [0.0, 0.3, 1.0], key=jax.random.key(0))
    solver = Adversarial(
        n_iter=500,
        batch_size=256,
        drift_width=16,
        drift_depth=1,
        probe_width=16,
        drift_rate=3e-3,
    )
    model = FokkerPlanckProcess(0.7, dt=0.1, solver=solver, random_state=0).fit(snapshots)
    cloud = model.predict(0.6, n_samples=4000)
    mean, cov = system.exact_moments(0.6)
    sd = np.sqrt(np.diag(cov))
    assert np.all(np.abs(cloud.mean(axis=0) - mean) <= 3 * sd * (2 / 20))
    assert np.all(np.abs(cloud.std(axis=0) - sd) <= 3 * sd * (2 / 28))
    truth = np.asarray(
        system.push(system.sample_initial(4000, jax.random.key(1)), [0.6], jax.random.key(2))[0]
    )
    idle = snapshots.clouds[1]
    assert coordinate_W1(cloud, truth) < 0.5 * coordinate_W1(idle, truth)
