"""Every command on one tiny file, and every kind of bad input: one message, exit code 2, nothing half-written."""

import json
import subprocess
import sys
import warnings

import jax
import numpy as np
import pytest

from itofit import FokkerPlanckProcess, Snapshots, known_system, read_snapshots, write_snapshots
from itofit.cli import main
from itofit.solve import MetricLog


@pytest.fixture
def itofit(capsys, monkeypatch):
    """Run the command line in this process; returns exit code, stdout and stderr."""

    def run(*words):
        monkeypatch.setattr(sys, "argv", ["itofit", *map(str, words)])
        with pytest.raises(SystemExit) as stopped:
            main()
        captured = capsys.readouterr()
        return stopped.value.code, captured.out, captured.err

    return run


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """A folder with data, held-out data and one fitted run."""
    folder = tmp_path_factory.mktemp("cli")
    system = known_system("ou")
    write_snapshots(system.observe(40, [0.0, 0.3, 1.0], key=jax.random.key(0)), folder / "data.npz")
    write_snapshots(system.observe(40, [0.0, 0.6], key=jax.random.key(1)), folder / "held_out.csv")
    words = [
        "fit",
        "data.npz",
        "--sigma",
        "0.7",
        "--dt",
        "0.1",
        "--n-iter",
        "2",
        "--out",
        "run",
        "--method",
        "adversarial",
    ]
    done = subprocess.run(
        [sys.executable, "-m", "itofit.cli", *words], cwd=folder, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return folder, done.stdout


def test_fit_says_what_it_did(files):
    folder, said = files
    assert "device" in said
    assert "2 iterations" in said
    assert "saved run" in said
    assert (folder / "run" / "model.npz").exists()
    assert not list((folder / "run").glob("checkpoint*"))
    assert (folder / "run" / "log.jsonl").exists()


def test_forecast_score_and_info(files, itofit, tmp_path):
    folder, _ = files
    code, said, _ = itofit("forecast", folder / "run", "--at", 0.5, "--at", 2, "--out", tmp_path / "later.npz")
    assert code == 0
    assert "saved" in said
    assert read_snapshots(tmp_path / "later.npz").times.tolist() == [0.5, 2.0]
    code, said, _ = itofit("score", folder / "run", folder / "held_out.csv")
    assert code == 0
    assert "floor" in said
    assert "coordinate_W1" in said
    code, said, _ = itofit("score", folder / "run", folder / "held_out.csv", "--system", "ou", "--json")
    records = json.loads(said)
    assert {r["metric"] for r in records} == {"W1", "sliced_W1", "coordinate_W1"}
    assert all(r["floor_kind"] == "system" and r["time"] == 0.6 for r in records)
    code, said, _ = itofit("info", folder / "run")
    assert code == 0
    assert "adversarial on Snapshots(3 times, 2 dims" in said
    code, said, _ = itofit("info", folder / "run", "--json")
    assert json.loads(said)["values"]["n_iter"] == 2


def test_simulate_writes_training_and_held_out(itofit, tmp_path):
    code, *_ = itofit(
        "simulate", "syn1", "--dim", 4, "--n", 10, "--out", tmp_path / "a.npz", "--held-out", tmp_path / "b.csv"
    )
    assert code == 0
    assert read_snapshots(tmp_path / "a.npz").times.tolist() == [0.0, 0.2, 2.0]
    assert read_snapshots(tmp_path / "b.csv").n_dims == 4


@pytest.mark.parametrize("method", ["persistence", "midpoint"])
def test_trivial_methods_have_the_same_commands(method, files, itofit, tmp_path):
    folder, _ = files
    code, said, _ = itofit("fit", folder / "data.npz", "--method", method, "--out", tmp_path / "run")
    assert code == 0
    assert "converged" in said
    assert "converged" in itofit("info", tmp_path / "run")[1]
    assert itofit("forecast", tmp_path / "run", "--at", 0.6, "--out", tmp_path / "x.parquet")[0] == 0
    assert itofit("score", tmp_path / "run", folder / "held_out.csv")[0] == 0


@pytest.mark.slow
def test_a_rival_is_called_what_it_is(files, itofit, tmp_path):
    words = ["--method", "legend", "--n-iter", 2, "--dt", 0.1, "--seed", 4, "--out", tmp_path / "run"]
    code, said, _ = itofit("fit", files[0] / "data.npz", *words)
    assert code == 0
    assert "seed 4" in said
    code, said, _ = itofit("info", tmp_path / "run")
    assert "legend: re-implementation from the published description" in said
    assert itofit("score", tmp_path / "run", files[0] / "held_out.csv")[0] == 0


def bad_npz(path, **arrays):
    np.savez(path, **arrays)
    return path


def points(n=10, d=2):
    return np.random.default_rng(0).normal(size=(n, d))


BAD_DATA = {
    "nan": ({"x0": points(), "x1": np.full((10, 2), np.nan), "times": [0.0, 1.0]}, "NaN or inf"),
    "one snapshot": ({"x0": points(), "times": [0.0]}, "at least 2 snapshots"),
    "repeated times": ({"x0": points(), "x1": points(), "times": [1.0, 1.0]}, "repeated"),
    "dimensions": ({"x0": points(), "x1": points(d=3), "times": [0.0, 1.0]}, "one dimension"),
    "few points": ({"x0": points(), "x1": points(1), "times": [0.0, 1.0]}, "at least 2 points"),
    "flat": ({"x0": points() * [1, 0], "x1": points() * [1, 0], "times": [0.0, 1.0]}, "zero variance in x2"),
    "labels": ({"X": points(), "t": np.array(["D0", "D4"] * 5)}, "'D0'"),
    "no times": ({"X": points()}, "array of times"),
}


@pytest.mark.parametrize("case", BAD_DATA)
def test_bad_data(case, itofit, tmp_path):
    arrays, message = BAD_DATA[case]
    data = bad_npz(tmp_path / "bad.npz", **arrays)
    code, _, err = itofit("fit", data, "--out", tmp_path / "run")
    assert code == 2
    assert message in err
    assert "expected" in err
    assert "Try:" in err
    assert not (tmp_path / "run" / "model.npz").exists()


BAD_WORDS = {
    "negative sigma": (["--sigma", "-1"], "not negative"),
    "sigma text": (["--sigma", "loud"], "multiplicative"),
    "sigma half a number": (["--sigma", "1,x"], "--sigma as a number"),
    "dt zero": (["--dt", "0"], "dt above 0"),
    "dt too long": (["--dt", "7"], "longest gap"),
    "dt text": (["--dt", "short"], "--dt as a number"),
    "method": (["--method", "magic"], "--method"),
    "preset": (["--preset", "magic"], "preset"),
    "anchor": (["--anchor", "magic"], "anchor"),
    "device": (["--device", "gpu"], "a gpu that jax can see"),
    "iterations": (["--n-iter", "0"], "n_iter"),
    "unknown option": (["--sigmma", "1"], "No such option"),
    "an option of another method": (
        ["--method", "persistence", "--gradient", "adjoint"],
        "options that persistence knows",
    ),
    "a clock for a method without one": (["--method", "legend", "--time-varying"], "--time-varying"),
    "a clock for the other solver": (["--method", "adversarial", "--time-varying"], "changes with time"),
    "options of another method": (["--method", "legend", "--members", "3", "--preset", "paper"], "--preset, --members"),
    "nothing to resume": (["--method", "collocation", "--resume"], "--resume"),
    "noise of another method": (["--method", "potential-rnn", "--sigma", "1,2"], "one number above 0"),
}


@pytest.mark.parametrize("case", BAD_WORDS)
def test_bad_words(case, files, itofit, tmp_path):
    if case == "device" and jax.default_backend() != "cpu":
        pytest.skip("this machine has an accelerator")
    words, message = BAD_WORDS[case]
    code, _, err = itofit("fit", files[0] / "data.npz", "--out", tmp_path / "run", *words)
    assert code == 2
    assert message in err
    assert not (tmp_path / "run" / "model.npz").exists()


def test_bad_runs(files, itofit, tmp_path):
    folder, _ = files
    for make, message in [
        (lambda p: None, "no such file"),
        (lambda p: p.write_bytes((folder / "run" / "model.npz").read_bytes()[:300]), "complete npz"),
        (lambda p: np.savez(p, a=1), "written by itofit"),
        (lambda p: p.write_text("hello"), "complete npz"),
    ]:
        run = tmp_path / message.replace(" ", "-")
        run.mkdir(exist_ok=True)
        make(run / "model.npz")
        code, _, err = itofit("info", run)
        assert code == 2
        assert message in err


def test_nothing_is_overwritten_or_half_written(files, itofit, tmp_path):
    folder, _ = files
    before = (folder / "run" / "model.npz").read_bytes()
    code, _, err = itofit("fit", folder / "data.npz", "--out", folder / "run", "--n-iter", 1)
    assert code == 2
    assert "--overwrite" in err
    assert (folder / "run" / "model.npz").read_bytes() == before
    code, _, err = itofit("forecast", folder / "run", "--at", -1, "--out", tmp_path / "x.npz")
    assert code == 2
    assert "t0 = 0" in err
    assert list(tmp_path.iterdir()) == []
    code, _, err = itofit("forecast", folder / "run", "--at", 1, "--out", tmp_path / "x.xlsx")
    assert code == 2
    assert ".parquet" in err
    code, _, err = itofit("forecast", folder / "run", "--at", 1, "--out", tmp_path / "no" / "x.npz")
    assert code == 2
    assert "existing folder" in err


def test_held_out_of_another_dimension_is_refused(files, itofit, tmp_path):
    write_snapshots(Snapshots.from_arrays([points(d=3)], [0.5]), tmp_path / "odd.npz")
    code, _, err = itofit("score", files[0] / "run", tmp_path / "odd.npz")
    assert code == 2
    assert "2 coordinates, as fitted" in err


def test_ctrl_c_keeps_the_best_state_and_resume_finishes_the_run(files, itofit, tmp_path, monkeypatch):
    """Stopped after its first block the command saves what it has; with --resume it ends as one uninterrupted run."""
    words = ["fit", files[0] / "data.npz", "--sigma", 0.7, "--dt", 0.1, "--n-iter", 2, "--out", tmp_path / "run"]
    words += ["--method", "adversarial"]

    def stop(self, progress):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, warnings.catch_warnings():
        warnings.simplefilter("always")
        patch.setattr(MetricLog, "__call__", stop)
        code, said, err = itofit(*words)
    assert code == 0
    assert "warning: the fit interrupted" in err
    assert "interrupted" in said
    assert "1 iterations" in itofit("info", tmp_path / "run")[1]
    code, _, err = itofit(*words)
    assert code == 2
    assert "--resume" in err
    assert itofit(*words, "--resume")[0] == 0
    assert not list((tmp_path / "run").glob("checkpoint*"))
    data = read_snapshots(files[0] / "data.npz")
    whole = FokkerPlanckProcess(sigma=0.7, dt=0.1, solver="adversarial", n_iter=2, random_state=0).fit(data)
    np.testing.assert_array_equal(FokkerPlanckProcess.load(tmp_path / "run").predict(0.6), whole.predict(0.6))


def test_a_killed_run_is_named_as_unfinished(files, itofit, tmp_path):
    """A process killed in the middle leaves a checkpoint and no model."""
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "checkpoint.npz").write_bytes(b"")
    code, _, err = itofit("info", tmp_path / "run")
    assert code == 2
    assert "unfinished" in err
    code, _, err = itofit("fit", files[0] / "data.npz", "--out", tmp_path / "run")
    assert code == 2
    assert "--resume" in err
