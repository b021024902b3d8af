"""Runs of Algorithm 1: they learn, repeat, resume, survive faults and say how they ended."""

import json
import warnings

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from itofit import FitWarning, FokkerPlanckProcess, InputError, Outcome, fit_together, known_system
from itofit.metrics import coordinate_W1
from itofit.process.drift import CorrectedDrift
from itofit.simulate import Mesh
from itofit.solve import PRESETS, MetricLog, fit_adversarial
from itofit.solve.adversarial import Member, fresh_drift, prepared

# A drift that grows compiles anew when it takes in more: only what is about growing trains one.
TINY = {"drift_width": 8, "drift_depth": 1, "eval_every": 5, "batch_size": 32, "drift_form": "skip"}
GROWING = TINY | {"drift_form": "growing"}
NETWORKS = {"adversary": "network", "drift_form": "skip", "probe_width": 8, "probe_depth": 1, "hold_out": 0.1}


@pytest.fixture(scope="module")
def data():
    return known_system("ou").observe(120, [0.0, 0.3, 1.0], key=jax.random.key(7))


def tiny(n_iter=20, **changes):
    options = TINY | {"n_iter": n_iter} | changes.pop("options", {})
    return FokkerPlanckProcess(**({"sigma": 0.7, "dt": 0.1, "random_state": 3, "options": options} | changes))


def same(a, b):
    return all(
        np.array_equal(x, y)
        for x, y in zip(jax.tree.leaves(a.standard_process_), jax.tree.leaves(b.standard_process_), strict=True)
    )


@pytest.fixture(scope="module")
def straight(data):
    return tiny().fit(data)


@pytest.fixture(scope="module")
def grown(data):
    return tiny(n_iter=21, options=GROWING).fit(data)


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
def test_resume_equals_uninterrupted_bit_for_bit(data, grown, tmp_path, blocks):
    """Stopped within the first level, and after the polynomials came in."""
    with pytest.warns(FitWarning, match="interrupted"):
        part = tiny(n_iter=21, options=GROWING).fit(data, checkpoint=tmp_path, listeners=[StopAfter(blocks)])
    assert part.outcome_ is Outcome.interrupted
    assert part.n_iter_ == {1: 5, 6: 18}[blocks]
    assert part.predict(0.5).shape == (120, 2)
    resumed = tiny(n_iter=21, options=GROWING).fit(data, checkpoint=tmp_path, resume=True)
    assert resumed.n_iter_ == 21
    assert same(resumed, grown)
    for name, value in vars(grown.history_).items():
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
    seen = []
    tiny().fit(data, listeners=[seen.append, MetricLog(tmp_path / "log.jsonl")])
    assert [p.n_done for p in seen] == [5, 10, 15, 20]
    lines = [json.loads(line) for line in (tmp_path / "log.jsonl").read_text().splitlines()]
    assert [line["loss"] for line in lines] == [p.loss for p in seen]
    assert all(len(line["residuals"]) == 2 for line in lines)


def test_history_is_complete(grown):
    history = grown.history_
    assert history.loss.shape == (21,)
    assert history.residuals.shape == (21, 2)
    # Readings every 5 iterations and at the ends of levels of 6, 6, 6 and 3.
    assert history.evaluated_at.tolist() == [5, 6, 11, 12, 17, 18, 21]
    np.testing.assert_allclose(history.residuals.sum(axis=1), history.loss, rtol=1e-4, atol=1e-6)
    assert np.all(np.isfinite(history.criterion))


@pytest.mark.slow
def test_networks_on_both_sides_keep_their_slope_and_stop_at_a_plateau(data):
    model = tiny(n_iter=13, options=NETWORKS).fit(data)
    assert model.outcome_ is Outcome.budget
    assert model.history_.evaluated_at.tolist() == [5, 10, 13]
    assert np.all(np.isfinite(model.history_.loss))
    assert np.all(model.history_.slope <= 1.01)
    still = NETWORKS | {"drift_rate": 1e-12, "patience": 10, "eval_every": 5}
    model = tiny(n_iter=200, options=still).fit(data)
    assert model.outcome_ is Outcome.converged
    assert model.n_iter_ == 10


@pytest.mark.slow
def test_a_drift_that_explains_the_snapshots_does_not_grow(data, grown):
    """At the truth chi-squared is within its noise: the run rests after one of four levels; from zero it goes on."""
    process = known_system("ou").process
    options = PRESETS["default"].override(**GROWING, n_iter=20, drift_rate=1e-9)
    mesh = Mesh.refine(data.times, 0.01)
    fresh = fresh_drift(data, 1.0, options, key=jax.random.key(1))
    start = CorrectedDrift(process.drift, fresh)
    fit = fit_adversarial(data, data, process.diffusion, mesh, options, key=jax.random.key(0), drift=start)
    assert (fit.outcome, fit.n_iter) == (Outcome.converged, 5)
    assert (grown.outcome_, grown.n_iter_) == (Outcome.budget, 21)


def test_what_a_level_took_in_stays_only_if_it_pays(data):
    """With a price nothing can pay the run rests where it began."""
    dear = tiny(options=GROWING | {"gain": 1e9}).fit(data)
    np.testing.assert_array_equal(dear.drift(data.clouds[1]), 0.0)
    assert (dear.outcome_, dear.n_iter_) == (Outcome.budget, 5)


def test_prices_are_in_units_of_chi_squared(data):
    """10 a coordinate for a richer drift, 2 for each term that a thinner one is short of."""
    options = PRESETS["default"].override(**GROWING)
    member = Member(data, data, known_system("ou").process.diffusion, jax.random.key(0))
    criterion = prepared(member, Mesh.refine(data.times, 0.1), options)[1]
    assert criterion.price(10.0) * criterion.n_residuals == pytest.approx(20.0)
    assert float(criterion.price_of_terms(jnp.asarray(3))) * criterion.n_residuals == pytest.approx(6.0)


def test_terms_next_to_nothing_leave_and_come_back(data):
    options = PRESETS["default"].override(**GROWING)
    drift = fresh_drift(data, 1.0, options, key=jax.random.key(1)).begun(2).at_level(2)
    terms = np.zeros(drift.coefficients.shape)
    terms[0], terms[1], terms[3] = 0.001, 0.5, 0.005
    drift = eqx.tree_at(lambda g: g.coefficients, drift, jnp.linalg.solve(drift.basis, jnp.asarray(terms, dtype=float)))
    assert np.array_equal(drift.thinned(jnp.asarray(False)).kept, drift.kept)
    thin = drift.thinned(jnp.asarray(True))
    # The constant stays however small it is.
    np.testing.assert_array_equal(np.flatnonzero(thin.kept[:, 0]), [0, 1])
    again = thin.begun(2)
    np.testing.assert_allclose(again.terms, thin.terms, atol=1e-5)
    assert np.all(again.kept == 1.0)
    x = jnp.asarray(data.clouds[1][0])
    np.testing.assert_allclose(again(x), thin(x), rtol=1e-4, atol=1e-5)
    assert not np.allclose(drift(x), thin(x), rtol=1e-4)


def test_the_network_begins_at_the_affine_function_nearest_to_the_polynomials(data):
    """Against a least-squares line through the polynomial drift at the data, weighted as the basis is."""
    options = PRESETS["default"].override(**GROWING)
    drift = fresh_drift(data, 1.0, options, key=jax.random.key(1)).begun(2).at_level(2)
    filled = jnp.cos(jnp.arange(drift.coefficients.size, dtype=float)).reshape(drift.coefficients.shape)
    drift = eqx.tree_at(lambda g: g.coefficients, drift, filled)
    points, weights = np.concatenate(data.clouds), np.sqrt(np.concatenate(data.weights))[:, None]
    rows = np.column_stack([np.ones(len(points)), points])
    values = np.asarray(jax.vmap(drift)(jnp.asarray(points, dtype=float)))
    line = rows @ np.linalg.lstsq(weights * rows, weights * values, rcond=None)[0]
    nearest = jax.vmap(drift.begun(3).at_level(3))(jnp.asarray(points, dtype=float))
    # Cubes of two coordinates in float32, and the ridge of 1e-6 in the basis.
    np.testing.assert_allclose(nearest, line, atol=2e-3 * np.abs(values).max())
    assert int(drift.begun(3).n_terms) == 6


@pytest.mark.slow
def test_a_level_that_fails_is_left_and_the_next_one_tried(data, monkeypatch):
    """Polynomials that diverge do not keep the network away; the outcome says so unless the fit is good.

    Without a price every level runs to its end.
    """
    import itofit.solve.adversarial as module

    blocks = iter([None, None, Outcome.diverged, None, None])
    monkeypatch.setattr(module, "_fault", lambda *_: next(blocks))
    with pytest.warns(FitWarning, match="diverged"):
        model = tiny(n_iter=16, options=GROWING | {"eval_every": 4, "gain": None}).fit(data)
    assert (model.outcome_, model.n_iter_) == (Outcome.diverged, 16)
    assert next(blocks, "all met") == "all met"
    assert np.all(np.isfinite(model.history_.loss))


def test_terms_at_zero_do_not_count_after_a_change_of_basis():
    """20 coefficients of Syn-1 at D = 10 there and back in float32: before, 32 zeros came back as 1e-9."""
    data = known_system("syn1", 10).observe(300, [0.0, 0.2, 2.0], key=jax.random.key(0))
    drift = fresh_drift(data, 2.0, PRESETS["default"], key=jax.random.key(1))
    affine = jnp.arange(len(drift.coefficients))[:, None] <= 10
    drift = eqx.tree_at(lambda g: g.coefficients, drift, jnp.where(affine, 0.3, jnp.zeros_like(drift.coefficients)))
    assert [int(g.n_terms) for g in (drift, drift.begun(1), drift.begun(2))] == [20, 20, 20]


def test_the_sparse_pull_is_the_slope_of_its_prior(data):
    drift = fresh_drift(data, 1.0, PRESETS["default"].override(**GROWING), key=jax.random.key(1)).begun(2)
    drift = eqx.tree_at(
        lambda g: g.coefficients,
        drift,
        0.1 * jnp.cos(jnp.arange(drift.coefficients.size, dtype=float)).reshape(drift.coefficients.shape),
    )
    prior = lambda c: jnp.sum(jnp.log1p((eqx.tree_at(lambda g: g.coefficients, drift, c).terms[1:] / 0.01) ** 2))  # noqa: E731
    np.testing.assert_allclose(
        drift.sparse_pull().coefficients, jax.grad(prior)(drift.coefficients), rtol=1e-3, atol=1e-3
    )


def test_levels_open_in_turn(data):
    drift = fresh_drift(data, 1.0, PRESETS["default"].override(**GROWING), key=jax.random.key(1))
    for level, (polynomial, network) in enumerate([(False, False), (False, False), (True, False), (False, True)]):
        pace = drift.at_level(level).pace()
        assert np.all(np.asarray(pace.coefficients[:3]) > 0.0)
        assert np.all((np.asarray(pace.coefficients[3:]) > 0.0) == polynomial)
        assert all((float(leaf) > 0.0) == network for leaf in jax.tree.leaves(pace.network))
        assert float(pace.basis) == float(pace.kept) == 0.0


def test_a_level_computes_what_it_takes_in(data):
    """Of a drift with weights everywhere: each coordinate by itself, affine, with polynomials, with the network."""
    options = PRESETS["default"].override(**GROWING)
    fresh = fresh_drift(data, 1.0, options, key=jax.random.key(1))
    x = jnp.asarray(data.clouds[1][0])
    filled = jnp.cos(jnp.arange(fresh.coefficients.size, dtype=float)).reshape(fresh.coefficients.shape)
    drift = eqx.tree_at(lambda g: g.coefficients, fresh, filled)
    W = drift.basis @ filled
    np.testing.assert_allclose(drift(x), drift.speed * (W[0] + jnp.diag(W[1:3]) * x), rtol=1e-4)
    full = eqx.tree_at(lambda g: g.kept, drift, jnp.ones_like(W))
    np.testing.assert_allclose(full.at_level(1)(x), full.speed * (W[0] + x @ W[1:3]), rtol=1e-4)
    np.testing.assert_allclose(full.at_level(2)(x), full.speed * full.features(x) @ W, rtol=1e-4)
    # The network's last layer begins at zero.
    np.testing.assert_allclose(full.at_level(3)(x), full.at_level(1)(x), rtol=1e-4)
    full = eqx.tree_at(lambda g: g.network.biases[-1], full, jnp.array([0.3, -0.2]))
    moved = full.at_level(3)(x) - full.at_level(1)(x)
    np.testing.assert_allclose(moved, full.speed * jnp.array([0.3, -0.2]), rtol=1e-3)
    np.testing.assert_allclose(full.whole()(x), full.at_level(2)(x) + moved, rtol=1e-4)
    assert (int(fresh.n_terms), int(drift.n_terms), int(full.n_terms)) == (0, 4, W.size)


def test_fits_together_are_those_by_themselves(data, straight):
    others = [data, known_system("ou").observe(120, [0.0, 0.3, 1.0], key=jax.random.key(8))]
    models = fit_together([tiny(random_state=seed) for seed in (3, 4)], others)
    for a, b, d in zip(models, [straight, tiny(random_state=4).fit(others[1])], others, strict=True):
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
        fit_together([tiny(dt="auto")], [data])
    with refused("same number of points"):
        fit_together([tiny(), tiny()], [data, known_system("ou").observe(60, [0.0, 0.3, 1.0], key=jax.random.key(8))])
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


def test_bad_members_are_refused(data, refused):
    with refused("n_members"):
        tiny(n_members=0).fit(data)


def test_a_run_that_explodes_keeps_the_last_good_state(data):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model = tiny(n_iter=40, options={"drift_rate": 1e3}).fit(data)
    assert model.outcome_ in (Outcome.diverged, Outcome.non_finite)
    assert any("learning rate" in str(w.message) for w in caught)
    assert np.all(np.isfinite(model.predict(1.0)))
    assert np.all(np.isfinite(model.drift(data.clouds[1])))


@pytest.mark.parametrize(
    ("gradient", "anchor", "discrepancy"),
    [("pathwise", "initial", "direct"), ("detached", "previous", "weak"), ("adjoint", "initial", "weak")],
)
def test_other_gradients_anchors_and_discrepancies_run(data, gradient, anchor, discrepancy):
    model = tiny(n_iter=5, gradient=gradient, anchor=anchor, discrepancy=discrepancy).fit(data)
    assert model.outcome_ is Outcome.budget
    assert np.all(np.isfinite(model.history_.loss))


@pytest.mark.slow
def test_paper_preset_is_the_printed_recipe(data):
    model = FokkerPlanckProcess(0.7, dt=0.1, preset="paper", n_iter=3, random_state=0)
    options = model.solver_options()
    assert (options.drift_depth, options.drift_width, options.probe_depth, options.probe_width) == (1, 32, 3, 32)
    assert (options.drift_rate, options.probe_rate, options.batch_size, options.n_nodes) == (1e-4, 1e-4, None, None)
    assert not options.standardise
    model.set_params(options={"critic_steps": 1}).fit(data)  # five unrolled steps are long to compile
    np.testing.assert_array_equal(model.scaling_.sd, 1.0)


@pytest.mark.slow
def test_warm_refinement_of_dt(data):
    """A first step that is far too long is halved; dt_ and its error are written back."""
    model = FokkerPlanckProcess(0.7, random_state=0, n_iter=10, options=TINY).fit(data)
    assert 0.0 < model.dt_ <= 0.3 / 5
    assert 0.0 <= model.dt_error_ <= 0.05


@pytest.mark.slow
def test_small_ornstein_uhlenbeck_is_recovered_within_its_floor():
    """Mean and variance at an unseen time, against the closed form.

    The fit has 400 points a snapshot: the mean of a cloud is known to sd / 20 and its sd to sd / 28. Allowed are 3
    of each, added for the two snapshots that bracket the unseen time, and the law must beat doing nothing.
    """
    system = known_system("ou")
    snapshots = system.observe(400, [0.0, 0.3, 1.0], key=jax.random.key(0))
    options = {"batch_size": 256, "drift_width": 16, "drift_depth": 1, "probe_width": 16, "drift_rate": 3e-3}
    model = FokkerPlanckProcess(0.7, dt=0.1, n_iter=500, random_state=0, options=options).fit(snapshots)
    cloud = model.predict(0.6, n_samples=4000)
    mean, cov = system.exact_moments(0.6)
    sd = np.sqrt(np.diag(cov))
    assert np.all(np.abs(cloud.mean(axis=0) - mean) <= 3 * sd * (2 / 20))
    assert np.all(np.abs(cloud.std(axis=0) - sd) <= 3 * sd * (2 / 28))
    truth = np.asarray(system.push(system.sample_initial(4000, jax.random.key(1)), [0.6], jax.random.key(2))[0])
    idle = snapshots.clouds[1]
    assert coordinate_W1(cloud, truth) < 0.5 * coordinate_W1(idle, truth)
