"""The face that every method shows, seen on the two that learn nothing and on the truth itself."""

import gc
import json

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import KFold, cross_val_score

from itofit import Midpoint, Persistence
from itofit.devices import device_named
from itofit.face import Face
from itofit.forecast import start_before
from itofit.metrics import W1, coordinate_W1
from itofit.problem import Streams
from itofit.run_folder import read_run
from itofit.simulate.systems import KnownSystem
from itofit.snapshots.clouds import Snapshots

METHODS = [Persistence, Midpoint]
TIMES = [0.0, 1.0, 2.5]


def rows(n=60, seed=0):
    rng = np.random.default_rng(seed)
    t = np.repeat(TIMES, n)
    return rng.normal(size=(3 * n, 2)) + t[:, None], t


@pytest.fixture
def snapshots():
    X, t = rows()
    return Snapshots.from_rows(X, t, names=["a", "b"])


@pytest.fixture
def weighted():
    rng = np.random.default_rng(1)
    counts = (40, 31, 53)
    clouds = [rng.normal(size=(n, 2)) for n in counts]
    return Snapshots.from_arrays(clouds, TIMES, [rng.uniform(size=n) for n in counts], ["a", "b"])


def assert_same(snapshots, expected):
    assert snapshots.names == expected.names
    for a, b in zip(snapshots, expected, strict=True):
        assert a.time == b.time
        np.testing.assert_array_equal(a.points, b.points)
        np.testing.assert_array_equal(a.weights, b.weights)


# Fitting


@pytest.mark.parametrize("method", METHODS)
def test_points_with_times_are_the_same_as_snapshots(method):
    X, t = rows()
    order = np.random.default_rng(2).permutation(len(t))
    expected = method().fit(Snapshots.from_rows(X, t)).forecast([0.5, 2.5])
    assert_same(method().fit(X, t).forecast([0.5, 2.5]), expected)
    assert_same(method().fit(X[order], t[order]).forecast([0.5, 2.5]), expected)


def test_a_data_frame_gives_the_names():
    X, t = rows()
    model = Persistence().fit(pd.DataFrame(X, columns=["Krt8", "Mt1"]), pd.Series(t))
    assert model.snapshots_.names == ("Krt8", "Mt1")
    assert model.n_features_in_ == 2
    assert model.forecast([3.0]).names == ("Krt8", "Mt1")


def test_fit_returns_the_model(snapshots):
    model = Persistence()
    assert model.fit(snapshots) is model


def test_fit_refuses_what_it_cannot_read(refused, snapshots):
    X, t = rows()
    with refused("X alone", "fit(X, t)"):
        Persistence().fit(X)
    with refused("Snapshots and t"):
        Persistence().fit(snapshots, t)
    with refused("at least 2 snapshots", "found 1"):
        Persistence().fit(X[:60], t[:60])


@pytest.mark.parametrize("method", METHODS)
def test_scikit_learn_can_clone_and_set(method, snapshots):
    model = method(random_state=3).fit(snapshots)
    assert model.get_params() == {"random_state": 3}
    fresh = clone(model)
    assert fresh.get_params() == {"random_state": 3}
    assert not hasattr(fresh, "snapshots_")
    assert fresh.set_params(random_state=5).random_state == 5
    assert fresh.fit(snapshots).seed_ == 5


@pytest.mark.parametrize("method", METHODS)
def test_scikit_learn_can_cross_validate(method):
    X, t = rows()
    scores = cross_val_score(method(), X, t, cv=KFold(3, shuffle=True, random_state=0))
    assert scores.shape == (3,)
    assert np.all(np.isfinite(scores))
    assert np.all(scores < 0.0)


def test_score_is_larger_for_the_better_method():
    X, t = rows(200)
    keep = t != 1.0
    # The law moves on a straight line, so at t = 1 the midpoint is right and persistence is off by
    # 1.
    good, bad = (
        method().fit(X[keep], t[keep]).score(X[~keep], t[~keep])
        for method in (Midpoint, Persistence)
    )
    assert bad < good < 0.0


@pytest.mark.parametrize(
    "use",
    [
        lambda model, data, path: model.predict(1.0),
        lambda model, data, path: model.forecast([1.0]),
        lambda model, data, path: model.scorecard(data),
        lambda model, data, path: model.score(data),
        lambda model, data, path: model.save(path),
    ],
)
@pytest.mark.parametrize("method", METHODS)
def test_nothing_works_before_fit(method, use, snapshots, tmp_path):
    with pytest.raises(NotFittedError, match="call fit"):
        use(method(), snapshots, tmp_path / "run")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("random_state", [0, 7, np.int64(7)])
def test_a_seed_is_kept(snapshots, random_state):
    assert Streams.of(random_state).seed == int(random_state)
    assert Persistence(random_state=random_state).fit(snapshots).seed_ == int(random_state)


def test_no_seed_is_a_fresh_one_each_time(snapshots):
    seeds = {Persistence(random_state=None).fit(snapshots).seed_ for _ in range(5)}
    assert len(seeds) == 5


@pytest.mark.parametrize("random_state", [-1, True])
def test_seeds_that_are_no_count_are_refused(refused, snapshots, random_state):
    with refused("random_state", repr(random_state)):
        Persistence(random_state=random_state).fit(snapshots)


def test_devices(refused):
    assert device_named("auto") == jax.devices()[0]
    assert device_named("cpu").platform == "cpu"
    with refused("auto, cpu or gpu", "'tpu'"):
        device_named("tpu")


# Forecasting


@pytest.mark.parametrize("method", METHODS)
def test_a_forecast_is_snapshots_with_the_names(method, snapshots):
    forecast = method().fit(snapshots).forecast([2.0, 0.5])
    assert isinstance(forecast, Snapshots)
    assert forecast.names == ("a", "b")
    assert forecast.times.tolist() == [0.5, 2.0]


@pytest.mark.parametrize("times", [[0.5, 2], (0.5, 2.0), np.array([0.5, 2.0])])
def test_times_may_be_any_sequence(snapshots, times):
    assert Persistence().fit(snapshots).forecast(times).times.tolist() == [0.5, 2.0]


@pytest.mark.parametrize("method", METHODS)
def test_predict_is_the_array_of_the_forecast(method, snapshots):
    model = method().fit(snapshots)
    np.testing.assert_array_equal(model.predict(0.5), model.forecast([0.5]).clouds[0])
    assert model.predict(0.5, n_samples=17).shape == (17, 2)
    np.testing.assert_array_equal(
        model.predict(0.5, n_samples=17), model.predict(0.5, n_samples=17)
    )


def test_persistence_forecasts_the_last_snapshot(snapshots):
    model = Persistence().fit(snapshots)
    for time, own in [(0.0, 0.0), (0.9, 0.0), (1.0, 1.0), (2.0, 1.0), (99.0, 2.5)]:
        assert W1(model.predict(time), snapshots.at(own).points) == pytest.approx(0.0, abs=1e-12)


def test_midpoint_forecasts_half_the_way():
    x = np.random.default_rng(3).normal(size=(50, 2))
    model = Midpoint().fit(Snapshots.from_arrays([x, x + [2.0, 6.0]], [0.0, 1.0]))
    assert W1(model.predict(0.5), x + [1.0, 3.0]) == pytest.approx(0.0, abs=1e-9)


def test_midpoint_refuses_later_times(refused, snapshots):
    with refused("t = 2.5", "t = 3"):
        Midpoint().fit(snapshots).forecast([1.0, 3.0])


@pytest.mark.parametrize("method", METHODS)
def test_times_before_the_first_snapshot_are_refused(refused, method, snapshots):
    model = method().fit(snapshots)
    with refused("t0 = 0", "t = -0.5"):
        model.predict(-0.5)
    with refused("t0 = 0"):
        model.forecast([1.0, -0.5])
    with refused("finite times"):
        model.predict(float("nan"))
    with refused("finite times"):
        model.forecast([])


@pytest.mark.parametrize("n_samples", [0, 1, -3])
def test_too_few_samples_are_refused(refused, snapshots, n_samples):
    with refused("at least 2", f"found {n_samples}."):
        Persistence().fit(snapshots).predict(1.0, n_samples=n_samples)


def test_predicted_rows_count_equally_where_snapshots_are_weighted(weighted):
    x = weighted.clouds[0]
    w = weighted.weights[0]
    predicted = Persistence().fit(weighted).predict(0.5)
    # Systematic resampling: every row is drawn n w times up to one, so a mean errs by at most sum
    # |x| / n.
    assert np.all(np.abs(predicted.mean(axis=0) - w @ x) <= np.abs(x).sum(axis=0) / len(predicted))
    _, counts = np.unique(predicted, axis=0, return_counts=True)
    assert counts.max() > 1


def test_predicted_rows_count_equally_where_snapshots_differ_in_size():
    # Half at 0, half at 1, against thirds at 0, 1 and 10: the plan moves 1/3 to 0, 1/6 to 0.5, 1/6
    # to 1 and 1/3 to 5.5, and splits masses, so that its own points do not count equally.
    rng = np.random.default_rng(10)
    early = np.repeat([[0.0], [1.0]], 150, axis=0) + 1e-3 * rng.normal(size=(300, 1))
    late = np.repeat([[0.0], [1.0], [10.0]], 150, axis=0) + 1e-3 * rng.normal(size=(450, 1))
    model = Midpoint().fit(Snapshots.from_arrays([early, late], [0.0, 1.0]))
    forecast = model.forecast([0.5])
    predicted = model.predict(0.5)
    outer = np.abs(forecast.clouds[0] - 0.75)[:, 0] > 0.5
    assert forecast.weights[0] @ outer == pytest.approx(2.0 / 3.0, rel=1e-9)
    assert predicted.shape == (300, 1)  # one point per start point
    # A fraction of 2/3 among 300 draws has a standard error of at most sqrt(2/9 / 300) = 0.027;
    # four of them.
    assert np.mean(np.abs(predicted - 0.75) > 0.5) == pytest.approx(2.0 / 3.0, abs=4.0 * 0.027)


# Scoring


class Truth(Face):
    """The known system as a model: nothing scores better, and nothing may score above the floor."""

    method = "truth"

    def __init__(self, system: KnownSystem, *, random_state: int = 0):
        self.system = system
        self.random_state = random_state

    def _learn(self, snapshots, watch):
        pass

    def _carry(self, times, n_samples, start, first):
        assert n_samples is None
        clouds = []
        weights = []
        for i, time in enumerate(times):
            begin = start_before(self.snapshots_, float(time), start)
            x = begin.points
            w = begin.weights
            if first is not None and begin.time == first.time:
                x = first.points
                w = first.weights
            key = jax.random.fold_in(jax.random.key(self.random_state), i)
            (grown,) = self.system.push(
                jnp.asarray(x, dtype=float), [float(time) - begin.time], key
            )
            clouds.append(np.asarray(grown))
            weights.append(w)
        return Snapshots.from_arrays(clouds, times, weights, self.snapshots_.names)

    def _notes(self):
        return ()

    def _values(self):
        return {}

    def _arrays(self):
        return {}

    def _restore(self, values, arrays):
        pass


def excess(model, held_out, system, time, start="initial"):
    card = model.scorecard(
        held_out, truth=system, start=start, metrics={"coordinate_W1": coordinate_W1}
    )
    return card.at(time)["coordinate_W1"].excess


def assert_no_excess(values):
    # The model is one more draw of the truth, so its mean excess is 0. Floors of one call share 20
    # draws, whose mean errs by a further sd / sqrt(20); three standard errors of the repeats leave
    # room for it.
    assert abs(np.mean(values)) < 3.0 * np.std(values, ddof=1) / np.sqrt(len(values))


def test_the_truth_has_no_excess_where_time_begins_later(syn1):
    excesses = []
    for repeat in range(15):  # reading A: the first snapshot is not at 0
        keys = jax.random.split(jax.random.key(3000 + repeat))
        train = syn1.observe(200, [0.2, 2.0], key=keys[0])
        held_out = syn1.observe(200, [0.2, 0.5], key=keys[1])
        excesses.append(
            excess(Truth(syn1, random_state=100 + repeat).fit(train), held_out, syn1, 0.5)
        )
    assert_no_excess(excesses)


def test_the_truth_has_no_excess_where_the_start_is_weighted(syn1):
    excesses = []
    rng = np.random.default_rng(4)
    for repeat in range(15):
        x = 2.0 * rng.normal(size=(200, 2))
        w = np.exp(
            -0.5 * np.sum(x**2, axis=1) * (1.0 - 0.25)
        )  # from N(0, 4 I) to the initial law N(0, I)
        later = syn1.observe(
            200, [0.1, 0.2], key=jax.random.key(4000 + repeat), shared_particles=False
        )
        train = Snapshots.from_arrays([x, later.clouds[1]], [0.0, 0.2], [w, np.ones(200)])
        excesses.append(
            excess(Truth(syn1, random_state=200 + repeat).fit(train), later.select([0]), syn1, 0.1)
        )
    assert_no_excess(excesses)


def test_the_truth_has_no_excess_where_held_out_start_rows_are_weighted(syn1):
    scores = []
    rng = np.random.default_rng(5)
    for repeat in range(15):
        x = 2.0 * rng.normal(size=(200, 2))
        w = np.exp(-0.5 * np.sum(x**2, axis=1) * (1.0 - 0.25))
        later = syn1.observe(200, [0.1], key=jax.random.key(5000 + repeat))
        held_out = Snapshots.from_arrays([x, later.clouds[0]], [0.0, 0.1], [w, np.ones(200)])
        train = syn1.observe(200, [0.0, 0.2], key=jax.random.key(6000 + repeat))
        model = Truth(syn1, random_state=300 + repeat).fit(train)
        card = model.scorecard(held_out, truth=syn1, metrics={"coordinate_W1": coordinate_W1})
        scores.append(card.at(0.1)["coordinate_W1"])
    assert_no_excess([s.excess for s in scores])
    # The weighted rows follow N(0, I), the bare ones N(0, 4 I): only the first grow into the
    # held-out law. W1 of two centred normals is |difference of sds| sqrt(2/pi); at t = 0.1 the sds
    # differ by 0.59 and 0.85 (Syn-1 moments).
    assert np.mean([s.value for s in scores]) < 0.5 * (0.59 + 0.85) / 2.0 * np.sqrt(2.0 / np.pi)


def test_the_truth_has_no_excess_where_it_starts_from_the_previous_snapshot(syn1):
    excesses = []
    for repeat in range(15):
        keys = jax.random.split(jax.random.key(7000 + repeat))
        train = syn1.observe(200, [0.0, 0.1], key=keys[0])
        held_out = syn1.observe(200, [0.0, 0.2], key=keys[1])
        model = Truth(syn1, random_state=400 + repeat).fit(train)
        excesses.append(excess(model, held_out, syn1, 0.2, start="previous"))
    assert_no_excess(excesses)


def test_a_held_out_first_time_gives_the_start_and_is_not_scored(syn1, getkey):
    train, held_out = (syn1.observe(50, [0.0, 0.2], key=getkey()) for _ in range(2))
    card = Truth(syn1).fit(train).scorecard(held_out)
    assert card.times == [0.2]
    assert card.scores[0].floor_kind == "split-half"
    assert {s.metric for s in card.scores} == {"W1", "sliced_W1", "coordinate_W1"}
    assert card.scores[0].midpoint is not None


def test_scoring_refuses_other_coordinates_and_nothing_to_score(refused, snapshots):
    model = Persistence().fit(snapshots)
    other = Snapshots.from_arrays([np.zeros((5, 3)) + np.arange(5.0)[:, None]], [1.0])
    with refused("2 coordinates", "found 3"):
        model.scorecard(other)
    with refused("2 coordinates", "found 3"):
        model.score(other)
    with refused("after the first training time"):
        model.scorecard(snapshots.select([0]))
    with refused("after the first training time"):
        model.score(snapshots.select([0]))


def test_persistence_scores_itself_as_persistence(snapshots):
    held_out = Snapshots.from_rows(*rows(seed=9))
    card = Persistence().fit(snapshots).scorecard(held_out)
    for s in card.scores:
        assert s.value == pytest.approx(s.persistence, rel=1e-9)
    assert "worse than persistence" not in {card.verdict(t) for t in card.times}


# Saving and loading


@pytest.mark.parametrize("method", METHODS)
def test_a_saved_model_forecasts_the_same(method, snapshots, tmp_path):
    model = method(random_state=3).fit(snapshots)
    model.save(tmp_path / "run")
    loaded = method.load(tmp_path / "run")
    assert loaded.get_params() == model.get_params()
    assert loaded.n_features_in_ == 2
    assert_same(loaded.snapshots_, model.snapshots_)
    assert_same(loaded.forecast([0.5, 2.5], n_samples=40), model.forecast([0.5, 2.5], n_samples=40))
    assert_same(loaded.forecast([0.5, 2.5]), model.forecast([0.5, 2.5]))


def test_a_saved_model_keeps_weights(weighted, tmp_path):
    model = Persistence().fit(weighted)
    model.save(tmp_path / "run")
    loaded = Persistence.load(tmp_path / "run")
    assert_same(loaded.snapshots_, model.snapshots_)
    assert_same(loaded.forecast([0.5, 2.5], n_samples=40), model.forecast([0.5, 2.5], n_samples=40))
    np.testing.assert_array_equal(loaded.predict(3.0), model.predict(3.0))


def test_a_fresh_seed_survives_saving(snapshots, tmp_path):
    model = Persistence(random_state=None).fit(snapshots)
    model.save(tmp_path / "run")
    loaded = Persistence.load(str(tmp_path / "run"))
    assert loaded.random_state is None
    np.testing.assert_array_equal(
        loaded.predict(1.0, n_samples=20), model.predict(1.0, n_samples=20)
    )


def test_save_refuses_to_overwrite(refused, snapshots, tmp_path):
    model = Persistence().fit(snapshots)
    model.save(tmp_path / "run")
    before = (tmp_path / "run" / "model.npz").read_bytes()
    with refused("model.npz", "overwrite"):
        Midpoint().fit(snapshots).save(tmp_path / "run")
    assert (tmp_path / "run" / "model.npz").read_bytes() == before
    Midpoint().fit(snapshots).save(tmp_path / "run", overwrite=True)
    assert Midpoint.load(tmp_path / "run").snapshots_.counts == (60, 60, 60)


def test_save_refuses_a_file_in_the_way(refused, snapshots, tmp_path):
    (tmp_path / "run").write_text("something")
    with refused("a folder", "a file at"):
        Persistence().fit(snapshots).save(tmp_path / "run")
    assert (tmp_path / "run").read_text() == "something"


def test_a_failed_save_leaves_the_old_model(monkeypatch, snapshots, tmp_path):
    model = Persistence().fit(snapshots)
    model.save(tmp_path / "run")

    def full(*args, **kwargs):
        raise OSError("no space left on device")

    monkeypatch.setattr(np, "savez", full)
    with pytest.raises(OSError, match="no space"):
        model.save(tmp_path / "run", overwrite=True)
    monkeypatch.undo()
    assert_same(Persistence.load(tmp_path / "run").snapshots_, snapshots)
    assert [p.name for p in (tmp_path / "run").iterdir()] == ["model.npz"]


def test_save_refuses_a_system_or_function_among_the_parameters(refused, syn1, getkey, tmp_path):
    model = Truth(syn1).fit(syn1.observe(20, [0.0, 0.1], key=getkey()))
    with refused("system", "without code"):
        model.save(tmp_path / "run")
    assert not (tmp_path / "run").exists()


def changed(path, **about):
    """Rewrite the description inside a saved run."""
    with np.load(path / "model.npz") as file:
        arrays = dict(file)
    described = {**json.loads(str(arrays["about"])), **about}
    np.savez(path / "model.npz", **{**arrays, "about": np.asarray(json.dumps(described))})


@pytest.fixture
def run(snapshots, tmp_path):
    Persistence().fit(snapshots).save(tmp_path / "run")
    return tmp_path / "run"


def test_load_refuses_the_run_of_another_method(refused, run):
    with refused("'midpoint'", "'persistence'"):
        Midpoint.load(run)


def test_load_refuses_another_format(refused, run):
    changed(run, format=99)
    with refused("run format 4", "format 99"):
        Persistence.load(run)


def test_load_refuses_folders_without_a_model(refused, tmp_path):
    with refused("model.npz", "no such file"):
        Persistence.load(tmp_path)
    with refused("model.npz", "no such file"):
        Persistence.load(tmp_path / "none")
    (tmp_path / "checkpoint.npz").write_bytes(b"")
    with refused("an unfinished run", "--resume"):
        Persistence.load(tmp_path)


@pytest.mark.parametrize(
    "arrays",
    [
        {"X": np.zeros((3, 2))},
        {"about": np.asarray("not json")},
        {"about": np.asarray("[1, 2]")},
        {"about": np.asarray('{"format": 4}')},
        {
            "about": np.asarray(
                '{"format": 4, "method": "persistence", "params": {}, "values": {"seed": 0}}'
            )
        },
    ],
)
def test_load_refuses_a_foreign_model_file(refused, tmp_path, arrays):
    np.savez(tmp_path / "model.npz", **arrays)
    with refused("written by itofit"):
        Persistence.load(tmp_path)


@pytest.mark.parametrize("keep", [0, 10, 500, -1])
def test_load_refuses_a_truncated_model(refused, run, keep):
    file = run / "model.npz"
    file.write_bytes(file.read_bytes()[:keep])
    with refused("model.npz", "truncated"):
        Persistence.load(run)
    gc.collect()  # a file left open would warn here, and a warning is an error


def test_load_refuses_an_array_file_called_npz(refused, run):
    with (run / "model.npz").open("wb") as file:
        np.save(file, np.zeros(3))
    with refused("model.npz"):
        Persistence.load(run)


def test_load_never_unpickles(refused, run):
    np.savez(run / "model.npz", about=np.array([{"format": 4}], dtype=object))
    with refused("model.npz"):
        Persistence.load(run)


def test_a_run_tells_its_method_and_parameters(run):
    description = read_run(run)
    assert description.method == "persistence"
    assert description.params == {"random_state": 0}
    assert description.about["format"] == 4
    assert description.arrays["X"].shape == (180, 2)
