"""The figures: the bound holds, the numbers printed are those drawn, and the command writes what is
asked.
"""

import json
import math

import numpy as np
import pytest
from experiments.figures import __main__ as command
from experiments.figures import curl, error_bound, forecasts
from experiments.figures.pictures import Picture, Settings, write
from matplotlib.figure import Figure

from itofit import Scorecard, known_system
from itofit.metrics import Score
from itofit.snapshots.clouds import Snapshots

PNG = b"\x89PNG"
# Where an inequality is an equality, the two sides are sums of the same numbers in another order.
ROUND_OFF = 1.0 + 1e-9


@pytest.fixture
def small(monkeypatch):
    """The simulations of the bound at a few points each, and no fits."""
    for name, value in {
        "KS": (0.5, 2.0),
        "TS": (0.5, 2.0),
        "STEPS": (4, 64),
        "N_POINTS": 60,
    }.items():
        monkeypatch.setattr(error_bound, name, value)
    monkeypatch.setattr(error_bound, "penalised", lambda settings: ([], []))


@pytest.mark.parametrize(("drift", "error"), error_bound.cases())
@pytest.mark.parametrize("k", [0.5, 2.0])
def test_coupled_paths_stay_within_the_bound(small, drift, error, k):
    gap = error_bound.gap(drift, error, k, 2.0, 50, seed=0)
    assert gap.W1 / gap.coupled <= ROUND_OFF
    assert gap.coupled <= gap.largest * ROUND_OFF
    assert gap.largest <= gap.discrete_bound * ROUND_OFF
    assert gap.discrete_bound < gap.bound


def test_an_understated_error_breaks_the_bound(small):
    gap = error_bound.gap("unstable", "constant", 1.5, 2.0, 50, seed=0, eps=0.1)
    assert gap.largest == pytest.approx(gap.discrete_bound)
    assert gap.coupled > error_bound.bound(0.09, 1.5, 2.0)


def test_the_bound_of_the_chain_tends_to_that_of_continuous_time():
    chain = [error_bound.discrete_bound(0.1, 1.5, 2.0, n) for n in (1, 10, 100, 10_000)]
    assert chain[0] == pytest.approx(0.2)
    assert np.all(np.diff(chain) > 0.0)
    assert chain[-1] == pytest.approx(error_bound.bound(0.1, 1.5, 2.0), rel=1e-3)


def test_the_errors_have_the_size_they_are_said_to_have():
    x = np.random.default_rng(0).normal(scale=3.0, size=(4000, 2))
    for shape in error_bound.SHAPES.values():
        sizes = np.linalg.norm(shape(x), axis=1)
        assert 0.97 < np.max(sizes) <= 1.0 + 1e-12


def test_the_steepest_slope_of_a_drift_is_found():
    points = np.array([[0.0, 0.0], [1.0, 0.0], [0.0, 2.0]])

    def drift(x):
        return x[0] * np.array([0.0, 3.0]) + x[0] * x[1] * np.array([1.0, 0.0])

    # At (0, 2) the slope is [[2, 0], [3, 0]].
    assert error_bound.steepest(drift, points) == pytest.approx(math.sqrt(13.0), rel=1e-5)


def test_the_command_writes_the_bound_and_its_numbers(small, tmp_path, capsys):
    out = tmp_path / "new" / "folder"
    assert command.main(["error-bound", "--out", str(out), "--seed", "3", "--device", "cpu"]) == 0
    assert sorted(file.name for file in out.iterdir()) == ["error-bound.json", "error-bound.png"]
    assert (out / "error-bound.png").read_bytes().startswith(PNG)
    record = json.loads((out / "error-bound.json").read_text())
    assert (record["figure"], record["seed"]) == ("error-bound", 3)
    assert record["settings"]["eps"] == error_bound.EPS
    assert [len(record[name]) for name in ("K", "T", "dt")] == [8, 8, 8]
    assert all(
        g["coupled"] <= g["discrete_bound"] * ROUND_OFF
        for name in ("K", "T", "dt")
        for g in record[name]
    )
    assert record["fits"] == []
    assert "error-bound.png" in capsys.readouterr().out


def test_fits_with_penalties_have_a_panel_of_their_own():
    fits = [
        error_bound.Penalised(p, k, 0.5, 2.0, 9.0, 0.1, 0.01) for p, k in ((0.0, 2.0), (0.1, 1.0))
    ]
    ax = Figure().subplots()
    assert error_bound.penalty_panel(ax, fits) is ax
    assert [label.get_text() for label in ax.get_xticklabels()] == ["0", "0.1"]
    np.testing.assert_array_equal(ax.lines[0].get_ydata(), [2.0, 1.0])
    gaps = {"K": [error_bound.gap(*case, 1.0, 1.0, 10, 0) for case in error_bound.cases()]}
    assert len(error_bound.panels(gaps, fits).axes) == 2
    assert len(error_bound.panels(gaps, []).axes) == 1


def affine(matrix, offset=(0.0, 0.0)):
    return lambda states: states @ np.asarray(matrix).T + np.asarray(offset)


@pytest.mark.parametrize(
    ("field", "rate", "ratio", "curl_free"),
    [
        (curl.rotation, 10.0, 1.0, 0.0),
        (affine([[0.0, -5.0], [5.0, 0.0]]), -5.0, 0.5, 0.0),
        (affine([[2.0, 0.0], [0.0, 2.0]]), 0.0, 0.2, 0.2),
        (affine([[2.0, 4.0], [-4.0, 2.0]]), 4.0, math.hypot(0.2, 0.4), 0.2),
        (
            affine([[0.0, 0.0], [0.0, 0.0]], [3.0, 0.0]),
            0.0,
            0.3 / math.sqrt(2.0),
            0.3 / math.sqrt(2.0),
        ),
    ],
)
def test_a_field_is_read_as_a_rotation_and_a_rest(field, rate, ratio, curl_free):
    angles = np.linspace(0.0, 2.0 * np.pi, 64, endpoint=False)
    points = math.sqrt(2.0) * np.stack([np.cos(angles), np.sin(angles)], axis=1)
    reading = curl.read(field(points), points)
    assert reading.rate == pytest.approx(rate, abs=1e-9)
    assert reading.ratio == pytest.approx(ratio)
    assert reading.curl_free == pytest.approx(curl_free, abs=1e-9)
    assert reading.remainder == pytest.approx(curl_free, abs=1e-9)


@pytest.mark.parametrize("rate", curl.STARTS.values())
def test_a_start_is_the_rotation_it_is_named_after(rate):
    points = np.random.default_rng(0).normal(size=(50, 2))
    drift = curl._rows(curl.rotating(rate, span=0.15, seed=0))
    np.testing.assert_allclose(
        drift(points), rate / 10.0 * curl.rotation(points), rtol=1e-5, atol=1e-5
    )


def test_curl_panels_show_the_fields_given(tmp_path):
    points = np.random.default_rng(0).normal(size=(50, 2))
    fields = {"truth": curl.rotation, "from zero": np.zeros_like}
    line = [
        curl.Panel(title, field, curl.read(field(points), points))
        for title, field in fields.items()
    ]
    figure = curl.panels(
        {"isotropic": line, "anisotropic": line[:1]},
        dict.fromkeys(("isotropic", "anisotropic"), points),
    )
    top, still, bottom, empty = figure.axes
    arrows = top.collections[1]
    none = still.collections[1]
    np.testing.assert_array_equal(top.collections[0].get_offsets(), points)
    np.testing.assert_allclose(arrows.U, 10.0 * arrows.get_offsets()[:, 1])
    np.testing.assert_array_equal(none.V, 0.0)
    assert arrows.scale == none.scale
    assert "rate 10.00, |g|/|g true| 1.00" in top.get_title()
    assert "rate 0.00, |g|/|g true| 0.00" in still.get_title()
    assert bottom.get_visible()
    assert not empty.get_visible()
    write(
        Picture(figure, {"dt": 1.0}, {"curl": {}}), "curl", Settings(seed=2, device="cpu"), tmp_path
    )
    assert (tmp_path / "curl.png").read_bytes().startswith(PNG)
    record = json.loads((tmp_path / "curl.json").read_text())
    assert (record["seed"], record["settings"]) == (2, {"dt": 1.0})


def test_every_start_is_fitted_and_weights_decay_only_where_nothing_else_decides():
    starts = curl.starts_of("curl")
    assert [start.rate for start in starts] == [0.0, 10.0, -10.0, 10.0]
    assert [start.decay > 0.0 for start in starts] == [False, False, False, True]
    others = curl.starts_of("curl-anisotropic")
    assert [start.decay for start in others] == [0.0, 0.0, 0.0]


def test_forecast_panels_show_the_clouds_and_their_scores():
    rng = np.random.default_rng(0)
    tests, predicted = (
        Snapshots.from_arrays(list(rng.normal(size=(2, 30, 2))), [0.1, 0.5]) for _ in range(2)
    )
    scores = [
        Score(t, "coordinate_W1", 0.25, 0.125, 0.01, 0.1, "system", 30, 30, None, None)
        for t in tests.times.tolist()
    ]
    row = forecasts.Row(list(predicted), Scorecard(tuple(scores)))
    rows = dict.fromkeys(forecasts.SOLVERS, row)
    figure = forecasts.panels(tests, rows, "title")
    assert len(figure.axes) == 4
    red, blue = figure.axes[1].collections
    np.testing.assert_array_equal(red.get_offsets(), tests.at(0.5).points)
    np.testing.assert_array_equal(blue.get_offsets(), predicted.at(0.5).points)
    assert "t = 0.5:  W1 0.250, floor 0.125" in figure.axes[1].get_title()


def test_forecasts_start_at_the_test_rows_of_the_first_time():
    case = forecasts.Case(known_system("syn3"), "B", 0, forecasts.Sizes(n_train=20, n_test=20))
    held_out = forecasts.with_start(case)
    assert held_out.times.tolist() == [0.0, *known_system("syn3").test_times]
    assert set(map(tuple, held_out.at(0.0).points)) == set(map(tuple, case.start.points))


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["syn4"], "no figure syn4: the names are syn1, syn2, syn3, curl, error-bound"),
        (["error-bound", "Curl"], "no figure Curl"),
        ([], "name"),
        (["curl", "--device", "tpu"], "tpu"),
        (["curl", "--seed", "-1"], "--seed"),
        (["curl", "--n-iter", "0"], "'0' is not a whole number"),
    ],
)
def test_wrong_arguments_are_refused_before_anything_is_made(words, message, tmp_path, capsys):
    with pytest.raises(SystemExit) as caught:
        command.main([*words, "--out", str(tmp_path / "figures")])
    assert caught.value.code == 2
    assert message in capsys.readouterr().err
    assert not (tmp_path / "figures").exists()


def test_a_file_in_place_of_the_folder_is_refused(tmp_path, capsys):
    (tmp_path / "figures").write_text("")
    with pytest.raises(SystemExit):
        command.main(["error-bound", "--out", str(tmp_path / "figures")])
    assert "is a file" in capsys.readouterr().err
