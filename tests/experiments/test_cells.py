"""The table of times left out: what is read, what is fitted, what is counted as good."""

import json

import numpy as np
import pytest
from experiments.cells import data, report
from experiments.cells.__main__ import main

from itofit import InputError, Midpoint, Snapshots


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Two small data sets, one of either form: an array a cloud, and rows with codes."""
    rng = np.random.default_rng(0)
    np.savez(tmp_path / "a.npz", **{f"t{i}": rng.normal(size=(30 + i, 2)) + i for i in range(4)})
    np.savez(tmp_path / "b.npz", X=rng.normal(size=(60, 2)), t=np.repeat([0, 1, 2], 20))
    monkeypatch.setitem(data.DATA, "emt", data.DataSet("a.npz", (0.0, 1.0, 2.0, 4.0), 0.1))
    monkeypatch.setitem(data.DATA, "larry", data.DataSet("b.npz", (2.0, 4.0, 6.0), 0.1, "a remark"))
    return tmp_path


def call(folder, *words):
    return main(["--data", str(folder), "--dataset", "emt", "larry", *map(str, words)])


def test_both_forms_are_read_with_their_days(folder):
    a, b = (data.DATA[name].read(folder) for name in ("emt", "larry"))
    assert isinstance(a, Snapshots)
    assert (a.times.tolist(), a.counts) == ([0.0, 1.0, 2.0, 4.0], (30, 31, 32, 33))
    assert (b.times.tolist(), b.counts) == ([2.0, 4.0, 6.0], (20, 20, 20))


def test_the_published_times_are_those_of_the_data():
    assert data.DATA["emt"].times == (0.0, 1 / 3, 1.0, 3.0, 7.0)
    assert data.DATA["ipsc"].times == (0.0, 1.0, 1.5, 2.0, 2.5, 3.0, 4.0, 5.0)
    assert data.DATA["larry"].times == (2.0, 4.0, 6.0)


def test_every_interior_time_is_left_out_once_and_no_cell_is_made_twice(folder, tmp_path, capsys):
    path = tmp_path / "cells.json"
    ask = ("--method", "persistence", "midpoint", "--json", path)
    assert call(folder, *ask) == 0
    first = path.read_text()
    records = json.loads(first)
    made = {(r["dataset"], r["time"], r["method"]) for r in records}
    assert made == {
        (name, t, m)
        for name, t in (("emt", 1), ("emt", 2), ("larry", 4))
        for m in ("persistence", "midpoint")
    }
    # straight lines at unit speed are the truth of the first set between 1 and 2, and no step is
    # missed
    half = {
        (r["time"], r["method"]): r["half"] - r["floor"] for r in records if r["dataset"] == "emt"
    }
    assert half[1.0, "midpoint"] < 0.3 < half[1.0, "persistence"]
    assert "a remark" in capsys.readouterr().out
    assert call(folder, *ask) == 0
    assert "midpoint seed" not in capsys.readouterr().err
    assert path.read_text() == first


def test_the_last_time_is_left_out_when_asked_and_the_midpoint_has_no_row_there(folder, tmp_path):
    path = tmp_path / "cells.json"
    call(folder, "--method", "persistence", "midpoint", "--last", "--time", 4, 6, "--json", path)
    halves = {
        (r["dataset"], r["method"]): r["half"]
        for r in json.loads(path.read_text())
        if r["time"] in (4.0, 6.0)
    }
    assert halves["emt", "midpoint"] is None
    assert halves["emt", "persistence"] is not None


def test_fits_can_be_kept_and_scored_later(folder, tmp_path, capsys):
    runs = tmp_path / "runs"
    path = tmp_path / "cells.json"
    assert call(folder, "--method", "persistence", "--runs", runs, "--fit-only") == 0
    assert len(list(runs.glob("*/model.npz"))) == 3
    assert not path.exists()
    assert call(folder, "--method", "persistence", "--runs", runs, "--json", path) == 0
    assert len(json.loads(path.read_text())) == 3


def test_a_fit_that_cannot_be_made_is_passed_over(folder, monkeypatch, capsys):
    def fail(*_):
        raise InputError(expected="luck", found="none", hint="again")

    monkeypatch.setattr(Midpoint, "fit", fail)
    assert call(folder, "--method", "midpoint", "persistence", "--time", 1) == 1
    out, err = capsys.readouterr()
    assert "emt t=1 midpoint seed 0: not fitted: expected luck" in err
    assert "| persistence | " in out


def row(method, start, half, time=1.0):
    return {
        "dataset": "emt",
        "time": time,
        "method": method,
        "seed": 0,
        "start": start,
        "W1": half,
        "half": half,
        "floor": 0.2,
        "floor_sd": 0.05,
        "seconds": 1.0,
        "outcome": "converged",
    }


def test_as_good_means_within_two_sds_of_the_floor_of_the_best():
    records = [
        row("midpoint", "-", 0.50),
        row("moments", "bridge", 0.59),
        row("moments", "previous", 0.61),
    ]
    assert report.as_good(records) == {("moments", "bridge"): [1.0], ("moments", "previous"): []}
    text = report.report(
        [*records, row("midpoint", "-", 0.3, 2.0), row("moments", "bridge", None, 2.0)]
    )
    verdict = "better than all that is not ours, or within 2 sd of the floor of it, at 1 of 2"
    assert f"moments, bridge: {verdict}" in text
    assert "| moments, bridge | 0.590 |  | 1 |" in text


def test_seeds_are_averaged_and_one_failure_is_shown():
    records = [row("moments", "bridge", 0.4), {**row("moments", "bridge", 0.6), "seed": 1}]
    assert report.rows(records) == {("moments", "bridge"): {1.0: 0.5}}
    assert report.rows([*records, {**row("moments", "bridge", None), "seed": 2}])[
        "moments", "bridge"
    ] == {1.0: None}


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ((), "give --data"),
        (("--data", "nowhere"), "emt_3d.npz in --data"),
        (("--data", ".", "--fit-only"), "give --runs"),
        (("--data", ".", "--json", "no/such/x.json"), "no folder no/such"),
        (("--print", "missing.json"), "missing.json"),
    ],
)
def test_bad_calls_end_with_code_2(words, message, capsys):
    with pytest.raises(SystemExit) as end:
        main(list(words))
    assert end.value.code == 2
    assert message in capsys.readouterr().err
