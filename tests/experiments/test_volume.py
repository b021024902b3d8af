"""The volume experiment: its scores, its split into days and groups, its tables and its command."""

import json

import numpy as np
import pytest
from experiments.grid import Fit, Grid, Runs
from experiments.volume import __main__ as command
from experiments.volume import classical, methods, report
from experiments.volume.__main__ import main
from experiments.volume.data import N_TEST, TEST_BINS, TRAIN_BINS, Panel, read_panel, task_of
from experiments.volume.forecasts import (
    LEVELS,
    Forecast,
    coverage,
    mape,
    pinball,
    scores,
    slope,
    sorted_mape,
)
from experiments.volume.paper import printed

from itofit import Moments, load

FAST = (
    "constant",
    "resample",
    "regression",
    "rolling-20",
    "rolling-all",
    "rolling-log",
    "kalman-matched-5",
)
N_DAYS = 250
N_BINS = 24


def log_panel(seed=0):
    """A level a day, a ripple within it and a shape: what the Kalman filter has for a model."""
    rng = np.random.default_rng(seed)
    level = np.zeros(N_DAYS)
    ripple = np.zeros((N_DAYS, N_BINS))
    for t in range(1, N_DAYS):
        level[t] = 0.9 * level[t - 1] + 0.2 * rng.normal()
    ripple[:, 0] = 0.3 * rng.normal(size=N_DAYS)
    for k in range(1, N_BINS):
        ripple[:, k] = 0.8 * ripple[:, k - 1] + 0.18 * rng.normal(size=N_DAYS)
    return 9.0 - 0.03 * np.arange(N_BINS) + level[:, None] + ripple


def dates(n=N_DAYS):
    return np.array([str(np.datetime64("2024-01-01") + i) for i in range(n)])


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "intraday_volume").mkdir()
    volume = np.round(np.exp(log_panel())).astype(np.int64)
    np.savez(tmp_path / "intraday_volume" / "volume_5min.npz", JPM_volume=volume, JPM_dates=dates())
    return tmp_path


def call(folder, *words):
    return main(["--data", str(folder), "--stock", "JPM", "--device", "cpu", *map(str, words)])


def task(group="A", seed=0, log=None):
    panel = Panel(log_panel() if log is None else log, tuple(dates()))
    return task_of("JPM", group, seed, panel)


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """A folder with one fit of ours: of group B, as the command keeps it."""
    folder = tmp_path_factory.mktemp("runs")
    cell = command.Cell("JPM", "B", "moments", 0)
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(methods.OURS, "moments", methods.Ours(Moments(n_iter=2)))
        grid = Grid((), [], runs=Runs(folder))
        grid.fits([cell], lambda cells: [Fit(methods.fitted("moments", task("B"), "cpu"), {})])
    return folder


def test_mape_by_hand():
    forecast = np.array([3.0, 2.0])
    truth = np.array([2.0, 4.0])
    assert mape(forecast, truth) == pytest.approx((1 / 2 + 2 / 4) / 2)
    assert sorted_mape(forecast, truth) == pytest.approx((0 / 2 + 1 / 4) / 2)


def test_pinball_and_coverage_by_hand():
    # one day, all quantiles 1 below the truth: the loss of level q is q; 1 above it: 1 - q
    assert pinball(np.full((5, 1), 1.0), np.array([2.0])) == pytest.approx(np.mean(LEVELS))
    assert pinball(np.full((5, 1), 3.0), np.array([2.0])) == pytest.approx(
        np.mean(1.0 - np.array(LEVELS))
    )
    truth = np.array([0.0, 1.0, 2.0, 3.0])
    assert coverage(np.full(4, 0.5), np.full(4, 2.0), truth) == 0.5


def test_slope_by_hand():
    first = np.array([1.0, 2.0, 4.0])
    assert slope(5.0 - 0.3 * first, first) == pytest.approx(-0.3)
    assert slope(np.ones(3), first) == pytest.approx(0.0)


def test_a_perfect_forecast_scores_nothing_and_a_point_has_no_law():
    at = task()
    by_bin = scores(Forecast(np.exp(at.truth), at.truth), at)
    assert list(by_bin) == list(TEST_BINS)
    for values in by_bin.values():
        assert values["mape"] == values["sorted_log"] == 0.0
        assert values["pinball"] is values["coverage"] is None


def test_group_a_is_all_and_group_b_half_of_every_bin_with_the_test_days_whole():
    log = log_panel()
    half = task("B")
    np.testing.assert_array_equal(task("A").log, log)
    dropped = np.isnan(half.log)
    n_train = N_DAYS - N_TEST
    np.testing.assert_array_equal(dropped.sum(axis=0), np.full(N_BINS, n_train // 2))
    assert not dropped[n_train:].any()
    np.testing.assert_array_equal(half.log[~dropped], log[~dropped])
    whole = ~dropped[:n_train, list(TRAIN_BINS)].any(axis=1)
    assert whole.mean() < 0.15  # 1 in 32: drawn bin by bin
    assert (np.isnan(task("B", seed=1).log) != dropped).any()


def test_the_filter_and_ours_are_given_the_same_entries(monkeypatch):
    half = task("B")
    given = []

    def stop(entries):
        given.append(entries)
        raise InterruptedError

    monkeypatch.setattr(classical, "fit_kalman_volume", stop)
    monkeypatch.setattr(methods.FokkerPlanckProcess, "fit", lambda self, clouds: stop(clouds))
    for method in ("kalman-matched-5", "kalman-matched"):
        with pytest.raises(InterruptedError):
            methods.classical_result(method, half)
    with pytest.raises(InterruptedError):
        methods.fitted("moments", half, "cpu")
    five, every, ours = given
    np.testing.assert_array_equal(every, half.train)
    np.testing.assert_array_equal(five, half.train[:, list(TRAIN_BINS)])
    assert ours.counts == ((N_DAYS - N_TEST) // 2,) * 5
    for cloud, column in zip(ours.clouds, five.T, strict=True):
        np.testing.assert_array_equal(np.sort(cloud[:, 0]), np.sort(column[~np.isnan(column)]))


def test_what_comes_after_bin_0_of_the_test_days_changes_no_forecast_of_ours(monkeypatch, runs):
    log = log_panel()
    given = []
    log[-N_TEST:, 1:] += 5.0
    log[-N_TEST:, 2] = np.nan
    at = task("B")
    other = task("B", log=log)
    model = load(runs / "JPM-B-moments-0")
    monkeypatch.setattr(
        methods.FokkerPlanckProcess, "fit", lambda self, snapshots: given.append(snapshots)
    )
    for each in (at, other):
        methods.fitted("moments", each, "cpu")
    for snapshot, changed in zip(*given, strict=True):
        np.testing.assert_array_equal(snapshot.points, changed.points)
    before, after = (methods.forecasts_of(model, each) for each in (at, other))
    for kind, forecast in before.items():
        for part in ("volume", "log", "quantiles"):
            np.testing.assert_array_equal(getattr(forecast, part), getattr(after[kind], part))


def test_the_three_forecasts_of_ours_are_a_path_a_mean_and_a_median():
    at = task()

    class Fixed:
        def predict_from(self, x, start, to, n_paths):
            from itofit.forecast import Conditional

            assert start == 0.0
            np.testing.assert_array_equal(x[:, 0], at.first)
            return Conditional(np.tile(np.array([[0.0], [1.0], [5.0]]) + to, (N_TEST, 1, 1)))

    by_kind = methods.forecasts_of(Fixed(), at)
    later = 0.02 * np.asarray(TEST_BINS)
    np.testing.assert_allclose(by_kind["single path"].log[7], later)
    np.testing.assert_allclose(by_kind["median"].volume[7], np.exp(1.0 + later))
    np.testing.assert_allclose(by_kind["mean"].log[7], 2.0 + later)
    np.testing.assert_allclose(by_kind["mean"].volume[7], np.exp(later) * (1 + np.e + np.e**5) / 3)
    assert by_kind["mean"].quantiles.shape == (5, N_TEST, 4)


@pytest.mark.parametrize("method", ["kalman-matched-5", "regression"])
def test_forecasts_from_bin_0_do_not_see_the_rest_of_the_test_days(method):
    log = log_panel()
    log[-N_TEST:, 1:] += 5.0
    before, after = (methods.CLASSICAL[method](task(log=panel)) for panel in (log_panel(), log))
    np.testing.assert_array_equal(before.log, after.log)


def test_rolling_means_look_back_only_and_their_law_is_that_of_the_window():
    at = task()
    forecast = classical.rolling(at, 20)
    past = at.log[-N_TEST - 20 + 3 : -N_TEST + 3, list(TEST_BINS)]
    np.testing.assert_allclose(forecast.volume[3], np.exp(past).mean(axis=0))
    np.testing.assert_allclose(forecast.quantiles[:, 3], np.quantile(past, LEVELS, axis=0))
    np.testing.assert_allclose(
        classical.rolling(at, log=True).log[0], at.train[:, list(TEST_BINS)].mean(axis=0)
    )


def test_no_constant_scores_better_than_the_best_one():
    at = task()
    best = classical.constant(at)
    for k in range(len(TEST_BINS)):
        volume = np.exp(at.truth[:, k])
        # The least is reached at one of them.
        least = min(mape(np.full(N_TEST, c), volume) for c in volume)
        assert mape(best.volume[:, k], volume) == pytest.approx(least)


def test_on_its_own_model_the_filter_beats_what_knows_no_day():
    # the level of a day has sd 0.46 of which bin 0 tells most; 100 days: a mean error is known to a
    # tenth of itself
    error = {name: scores(methods.CLASSICAL[name](task()), task())[9]["mape"] for name in FAST}
    assert error["kalman-matched-5"] < 0.9 * error["resample"]
    assert error["regression"] < 0.9 * error["resample"]


def row(method, forecast, value, *, outcome="converged", sigma=None):
    records = [
        {
            "stock": "JPM",
            "group": "A",
            "method": method,
            "seed": 0,
            "forecast": forecast,
            "bin": b,
            **dict.fromkeys(command.SCORES, None if value is None else value + 0.1 * k),
            **dict.fromkeys(("sigma", "training_W1", "training_floor"), sigma),
            "seconds": 1.0,
            "outcome": outcome,
        }
        for k, b in enumerate(TEST_BINS)
    ]
    assert set(records[0]) == set(command.FIELDS)
    return records


def test_the_table_shows_means_over_bins_each_bin_and_the_papers_numbers_marked():
    records = [*row("moments", "median", 0.2, sigma=1.0), *row("kalman-matched", "median", 0.5)]
    records += row("moments-pairs", "-", None, outcome=methods.NO_PAIRS)
    text = report.report(records)
    assert "JPM, group A, 1 seed\n" in text
    assert "(not comparable: scale unknown)" in text
    assert "| moments, median | 0.350 | 0.200, 0.300, 0.400, 0.500 | 0.350 |" in text
    assert "| 0.01, 0.04, 0.06, 0.12 |" in text
    assert text.index("| kalman-matched |") < text.index("| moments, median |")
    assert "| moments-pairs: skipped: " in text
    assert "* kalman-matched: " in text
    assert report.rows(records)["moments", "median"]["pinball"] == pytest.approx(0.35)


def test_the_papers_numbers_are_those_of_the_kind_of_method():
    assert printed("GOOG", "rolling-20") == {1: 0.49, 9: 0.51, 13: 0.53, 21: 0.51}
    assert printed("TSLA", "moments-clock")[1] == 0.02
    assert printed("AAPL", "moments") is None
    assert printed("JPM", "resample") is None


def test_every_method_has_a_remark_or_needs_none():
    assert set(methods.REMARKS) == set(methods.METHODS) - {"moments"}
    assert "adversarial" not in methods.DEFAULT


def test_the_command_end_to_end_and_nothing_is_made_twice(folder, runs, tmp_path, capsys):
    path = tmp_path / "volume.json"
    pictures = tmp_path / "pictures"
    ask = ("--method", *FAST, "moments", "moments-pairs", "--group", "B")
    ask += ("--json", path, "--runs", runs)
    assert call(folder, *ask, "--figures", pictures) == 0
    out = capsys.readouterr().out
    first = path.read_text()
    records = json.loads(first)
    assert {r["method"] for r in records} == {*FAST, "moments", "moments-pairs"}
    assert all(r["mape"] >= 0.0 for r in records if r["method"] != "moments-pairs")
    assert "| moments, single path |" in out
    assert "| moments-pairs: skipped: " in out
    assert (pictures / "volume-jpm-b.png").stat().st_size < 100_000
    assert len(list(runs.glob("*/model.npz"))) == 1
    assert call(folder, *ask) == 0
    assert "rolling-20 0" not in capsys.readouterr().err
    assert path.read_text() == first
    assert main(["--print", str(path)]) == 0
    assert capsys.readouterr().out == out


def test_a_description_fits_nothing_and_shows_a_shift_of_level(folder, capsys):
    volume = np.exp(log_panel())
    volume[-N_TEST:] *= np.exp(0.5) * np.exp(
        log_panel()[:-N_TEST].mean() - log_panel()[-N_TEST:].mean()
    )
    saved(folder / "intraday_volume", volume)
    assert call(folder, "--describe") == 0
    out = capsys.readouterr().out
    assert out.startswith(
        "JPM: 150 training days, 2024-01-01 to 2024-05-29; 100 test days, 2024-05-30 to 2024-09-06"
    )
    shifts = [float(word) for word in out.splitlines()[1].split(": ")[-1].split(", ")]
    assert np.mean(shifts) == pytest.approx(0.5, abs=0.1)  # five bins of the 24
    assert "their product" in out


def saved(folder, volume, days=None):
    np.savez(
        folder / "volume_5min.npz",
        JPM_volume=volume,
        JPM_dates=dates(len(volume)) if days is None else days,
    )


def test_the_file_may_lie_in_the_folder_itself(tmp_path):
    saved(tmp_path, np.exp(log_panel()))
    panel = read_panel(tmp_path, "JPM")
    np.testing.assert_allclose(panel.log, log_panel())
    assert panel.dates[1] == "2024-01-02"


def refused(capsys, *words):
    with pytest.raises(SystemExit) as end:
        main([str(word) for word in words])
    assert end.value.code == 2
    return capsys.readouterr().err


def test_bad_data_end_with_code_2_and_say_where(tmp_path, capsys):
    ask = ("--data", tmp_path, "--stock", "JPM", "--method", "rolling-all")
    volume = np.exp(log_panel())
    assert "no file at" in refused(capsys, *ask)
    volume[7, 3] = 0.0
    saved(tmp_path, volume)
    assert "row 7" in refused(capsys, *ask)
    volume[7, 3:] = np.nan
    saved(tmp_path, volume)
    assert "a half-day? row 7" in refused(capsys, *ask)
    twice = dates()
    twice[5] = twice[4]
    saved(tmp_path, np.exp(log_panel()), twice)
    assert "rows 4 and 5 are the same day" in refused(capsys, *ask)
    saved(tmp_path, np.exp(log_panel())[:110])
    assert "at least 120 days" in refused(capsys, *ask)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ((), "give --data"),
        (("--data", "nowhere"), "no file at"),
        (("--data", ".", "--method", "magic"), "invalid choice"),
        (("--data", ".", "--group", "C"), "invalid choice"),
        (("--data", ".", "--json", "no/such/x.json"), "no folder no/such"),
        (("--print", "missing.json"), "missing.json"),
    ],
)
def test_bad_calls_end_with_code_2(words, message, capsys):
    assert message in refused(capsys, *words)


def test_a_wrong_stock_is_named_with_those_there_are(folder, capsys):
    assert "a stock of volume_5min.npz: JPM" in refused(capsys, "--data", folder, "--stock", "JPN")


def test_a_folder_that_is_a_file_is_refused(folder, capsys):
    taken = folder / "taken"
    taken.write_text("")
    assert "is a file" in refused(capsys, "--data", folder, "--figures", taken)
