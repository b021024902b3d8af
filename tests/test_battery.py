"""One battery of laws for every method that shows the estimator face.

The data are what users have: unequal counts, irregular times, weights. Fits are tiny; what they
learn is tested with each method.
"""

import warnings

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from typer.testing import CliRunner

from itofit import (
    Adversarial,
    Bridge,
    Collocation,
    Continuation,
    FitWarning,
    FokkerPlanckProcess,
    Judged,
    Legend,
    Midpoint,
    Moments,
    Outcome,
    Persistence,
    PotentialRNN,
    Snapshots,
    load,
)
from itofit.cli.main import app
from itofit.metrics import W1
from itofit.run_folder import METHODS
from itofit.transport.displacement import midpoint_at

pytestmark = pytest.mark.filterwarnings("ignore::itofit.errors.FitWarning")

COUNTS = (40, 31, 53)
TIMES = [0.0, 0.3, 1.0]
MOMENTS = Moments(n_iter=6)
ADVERSARIAL = Adversarial(n_iter=4, batch_size=16, drift_form="skip", eval_every=4)
BRIDGE = Bridge(n_features=16, n_passes=3)
JUDGED = Judged(n_features=16, n_passes=3)
MAKE = {
    "moments": lambda seed: FokkerPlanckProcess(dt=0.1, solver=MOMENTS, random_state=seed),
    "adversarial": lambda seed: FokkerPlanckProcess(dt=0.1, solver=ADVERSARIAL, random_state=seed),
    "bridge": lambda seed: FokkerPlanckProcess(dt=0.1, solver=BRIDGE, random_state=seed),
    "judged": lambda seed: FokkerPlanckProcess(dt=0.1, solver=JUDGED, random_state=seed),
    "potential-rnn": lambda seed: PotentialRNN(
        n_ramps=8,
        n_pretrain=3,
        n_short=2,
        n_iter=4,
        batch_size=16,
        dt=0.1,
        random_state=seed,
    ),
    "legend": lambda seed: Legend(n_iter=4, batch_size=16, dt=0.1, random_state=seed),
    "collocation": lambda seed: Collocation(0.5, degree=1, dt=0.1, random_state=seed),
    "persistence": lambda seed: Persistence(random_state=seed),
    "midpoint": lambda seed: Midpoint(random_state=seed),
    "continuation": lambda seed: Continuation(random_state=seed),
}


def observed(weighted=True):
    rng = np.random.default_rng(0)
    clouds = [
        rng.normal(size=(n, 2)) * (1.0 - 0.3 * t) + [t, -t]
        for n, t in zip(COUNTS, TIMES, strict=True)
    ]
    weights = [rng.uniform(0.5, 1.0, size=n) for n in COUNTS] if weighted else None
    return Snapshots.from_arrays(clouds, TIMES, weights, ["a", "b"])


@pytest.fixture(scope="module", params=list(MAKE))
def fitted(request):
    with warnings.catch_warnings(action="ignore", category=FitWarning):
        return request.param, MAKE[request.param](3).fit(observed())


def assert_same(snapshots, expected, rtol, atol):
    for a, b in zip(snapshots, expected, strict=True):
        np.testing.assert_allclose(a.points, b.points, rtol=rtol, atol=atol)
        np.testing.assert_allclose(a.weights, b.weights)


def test_the_battery_has_every_method_of_the_command_line():
    assert set(MAKE) == set(METHODS)


def test_it_says_how_it_ended(fitted):
    _, model = fitted
    assert isinstance(model.outcome_, Outcome)
    assert model.outcome_.is_good
    assert model.seconds_ >= 0.0
    assert model.seed_ == 3


def test_between_snapshots_a_forecast_is_held_to_both(fitted):
    name, model = fitted
    if name == "persistence":
        pytest.skip("nothing moves")
    if name == "judged":
        pytest.skip("a mixture, rest among it: tests/test_ways.py")
    bridge = model.forecast([0.3 - 1e-9], start="bridge")
    (_, after, _) = observed()
    # what the process misses at the snapshot after is taken off; what is left is noise over 1e-9 of
    # time, about 3e-5
    assert W1(bridge.clouds[0], after.points, bridge.weights[0], after.weights) < 1e-3
    assert len(model.forecast([0.2], n_samples=25, start="bridge").clouds[0]) == 25
    later = [
        model.forecast([1.5], start=start).clouds[0]
        for start in ("previous", "bridge")
        if name != "midpoint"
    ]
    assert all(np.array_equal(cloud, later[0]) for cloud in later)


def test_a_bridge_ot_forecast_is_half_on_straight_lines(fitted):
    """And half of it is the bridge; beyond the last snapshot there is nothing to be held to."""
    name, model = fitted
    if name in ("persistence", "midpoint", "continuation"):
        pytest.skip("they know one way to go")
    if name == "judged":
        pytest.skip("its bridge is a mixture: tests/test_ways.py")
    mixed, bridge = (model.forecast([0.2], start=start) for start in ("bridge_ot", "bridge"))
    lines = midpoint_at(model.snapshots_, 0.2)
    both = np.concatenate([bridge.clouds[0], lines.points])
    weights = np.concatenate([bridge.weights[0], lines.weights]) / 2.0
    assert W1(mixed.clouds[0], both, mixed.weights[0], weights) < 1e-6
    assert W1(mixed.clouds[0], bridge.clouds[0], mixed.weights[0], bridge.weights[0]) > 1e-3
    later = [model.forecast([1.5], start=start).clouds[0] for start in ("previous", "bridge_ot")]
    np.testing.assert_array_equal(*later)
    assert len(model.forecast([0.2], n_samples=25, start="bridge_ot").clouds[0]) == 25


def test_a_forecast_is_snapshots_at_the_times_asked(fitted):
    _, model = fitted
    forecast = model.forecast([0.7, 0.2])
    assert forecast.times.tolist() == [0.2, 0.7]
    assert forecast.names == ("a", "b")
    assert all(np.all(np.isfinite(cloud)) for cloud in forecast.clouds)
    assert model.predict(0.7, n_samples=17).shape == (17, 2)
    assert model.forecast([0.7], start="previous").times.tolist() == [0.7]


def test_a_forecast_carries_the_weights(fitted):
    """And a prediction resamples them, so that its rows count equally."""
    name, model = fitted
    forecast = model.forecast([0.7])
    if name == "judged":
        pytest.skip("points of a mixture count the same: tests/test_ways.py")
    assert forecast.effective_counts[0] < forecast.counts[0]
    assert model.predict(0.7).shape == (COUNTS[0], 2)


def test_the_first_snapshot_is_forecast_as_it_was(fitted):
    """Row by row, whatever order they came in."""
    _, model = fitted
    forecast = model.forecast([0.0]).clouds[0]
    first = model.snapshots_.clouds[0]
    np.testing.assert_allclose(
        forecast[forecast[:, 0].argsort()], first[first[:, 0].argsort()], rtol=1e-6, atol=1e-6
    )


def test_the_same_seed_gives_the_same_model(fitted):
    name, model = fitted
    again = MAKE[name](3).fit(observed())
    assert_same(again.forecast([0.7]), model.forecast([0.7]), rtol=1e-6, atol=1e-9)


def test_another_seed_gives_another_forecast(fitted):
    name, model = fitted
    again = MAKE[name](4).fit(observed())
    assert not np.allclose(again.predict(0.7, n_samples=20), model.predict(0.7, n_samples=20))


def test_points_without_weight_do_not_matter(fitted):
    """A tenth of the rows at a thousand sds, with weight zero: the cloud stays where it was."""
    name, _ = fitted
    data = observed()
    far = [np.where(np.arange(len(x))[:, None] % 10 == 0, 1000.0, x) for x in data.clouds]
    none = [np.where(np.arange(len(w)) % 10 == 0, 0.0, w) for w in data.weights]
    cloud = MAKE[name](0).fit(Snapshots.from_arrays(far, TIMES, none)).predict(0.7, n_samples=50)
    assert np.max(np.abs(cloud)) < 100.0


def test_a_scorecard_says_what_must_be_said(fitted):
    name, model = fitted
    assert ("re-implementation" in " ".join(model._notes())) == (name == "legend")


def test_a_saved_model_forecasts_the_same(fitted, tmp_path):
    name, model = fitted
    model.save(tmp_path / "run")
    loaded = load(tmp_path / "run")
    assert type(loaded) is type(model)
    assert loaded.outcome_ is model.outcome_
    assert loaded.get_params() == model.get_params()
    assert_same(loaded.forecast([0.2, 0.7]), model.forecast([0.2, 0.7]), rtol=1e-5, atol=1e-6)
    if isinstance(model, FokkerPlanckProcess):  # which `tests/test_cli.py` asks
        return
    printed = CliRunner().invoke(app, ["info", str(tmp_path / "run")]).output
    assert printed.startswith(f"{name} on Snapshots(3 times")
    assert ("re-implementation from the published description" in printed) == (name == "legend")
    assert model.outcome_.value in printed


def test_it_is_scored_beside_a_floor(fitted):
    _, model = fitted
    rng = np.random.default_rng(9)
    card = model.scorecard(Snapshots.from_arrays([rng.normal(size=(30, 2))], [0.7]))
    assert {s.metric for s in card.scores} == {"W1", "sliced_W1", "coordinate_W1"}
    assert all(np.isfinite([s.value, s.floor]).all() for s in card.scores)
    assert np.isfinite(model.score(observed()))


def test_nothing_works_before_fit(fitted):
    name, _ = fitted
    with pytest.raises(NotFittedError, match="call fit"):
        MAKE[name](0).predict(1.0)


def test_scikit_learn_can_clone(fitted):
    _, model = fitted
    fresh = clone(model)
    assert fresh.get_params() == model.get_params()
    assert not hasattr(fresh, "snapshots_")


def test_bad_input_is_refused_with_the_same_words(fitted, refused):
    name, model = fitted
    X, t, _ = observed().to_rows()
    with refused("X alone"):
        MAKE[name](0).fit(X)
    with refused("at least 2 snapshots"):
        MAKE[name](0).fit(X[t == 0.0], t[t == 0.0])
    with refused("t0 = 0"):
        model.forecast([-0.5])
    with refused("finite times"):
        model.forecast([np.nan])
    with refused("random_state"):
        MAKE[name](-1).fit(observed())
    with refused("2 coordinates", "found 3"):
        model.score(Snapshots.from_arrays([np.random.default_rng(0).normal(size=(9, 3))], [0.7]))


def test_a_coordinate_that_does_not_vary_is_refused(fitted, refused):
    name, _ = fitted
    flat = observed().with_clouds(
        [np.column_stack([x[:, 0], np.full(len(x), 2.0)]) for x in observed().clouds]
    )
    if name in ("persistence", "midpoint", "continuation"):
        assert MAKE[name](0).fit(flat).outcome_.is_good  # nothing is divided by an sd
        return
    with refused("zero variance in b", "drop that coordinate"):
        MAKE[name](0).fit(flat)


def test_steps_that_cannot_be_are_refused(fitted, refused):
    name, _ = fitted
    model = MAKE[name](0)
    if "dt" not in model.get_params():
        return
    for dt in (-0.1, 5.0, "fast"):
        with refused("dt above 0"):
            clone(model).set_params(dt=dt).fit(observed())
