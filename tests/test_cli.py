"""Every command on one tiny file, and every kind of bad input: one message, exit code 2, nothing
half-written.
"""

import json
import shlex
import subprocess
import sys
import warnings
from pathlib import Path
from typing import NamedTuple

import jax
import numpy as np
import pytest

from itofit import (
    Adversarial,
    FokkerPlanckProcess,
    Moments,
    Snapshots,
    known_system,
    load,
    read_snapshots,
    write_snapshots,
)
from itofit.cli import main
from itofit.cli.methods import Choices
from itofit.solve.listeners import MetricLog

FIT_SHORTLY = "--sigma 0.7 --dt 0.1 --method adversarial --set n_iter=2"


class Done(NamedTuple):
    """How a command ended and what it printed."""

    code: int
    out: str
    err: str


class Files(NamedTuple):
    """A data file, a held-out file, the run of a fit and what the fit printed."""

    data: Path
    held_out: Path
    run: Path
    printed: str


@pytest.fixture
def itofit(capsys, monkeypatch):
    """Run a line of the command line in this process."""

    def run(line):
        monkeypatch.setattr(sys, "argv", ["itofit", *shlex.split(line)])
        with pytest.raises(SystemExit) as stopped:
            main()
        captured = capsys.readouterr()
        return Done(stopped.value.code, captured.out, captured.err)

    return run


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """A folder with data, held-out data and one fitted run."""
    folder = tmp_path_factory.mktemp("cli")
    system = known_system("ou")
    write_snapshots(system.observe(40, [0.0, 0.3, 1.0], key=jax.random.key(0)), folder / "data.npz")
    write_snapshots(system.observe(40, [0.0, 0.6], key=jax.random.key(1)), folder / "held_out.csv")
    words = shlex.split(f"fit data.npz {FIT_SHORTLY} --out run")
    done = subprocess.run(
        [sys.executable, "-m", "itofit.cli", *words],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return Files(folder / "data.npz", folder / "held_out.csv", folder / "run", done.stdout)


def test_fit_says_what_it_did(files):
    assert "device" in files.printed
    assert "2 iterations" in files.printed
    assert "saved run" in files.printed
    assert (files.run / "model.npz").exists()
    assert not list(files.run.glob("checkpoint*"))
    assert (files.run / "log.jsonl").exists()


def test_forecast_score_and_info(files, itofit, tmp_path):
    done = itofit(f"forecast {files.run} --at 0.5 --at 2 --out {tmp_path}/later.npz")
    assert done.code == 0
    assert "saved" in done.out
    assert read_snapshots(tmp_path / "later.npz").times.tolist() == [0.5, 2.0]
    done = itofit(f"score {files.run} {files.held_out}")
    assert done.code == 0
    assert "floor" in done.out
    assert "coordinate_W1" in done.out
    records = json.loads(itofit(f"score {files.run} {files.held_out} --system ou --json").out)
    assert {r["metric"] for r in records} == {"W1", "sliced_W1", "coordinate_W1"}
    assert all(r["floor_kind"] == "system" and r["time"] == 0.6 for r in records)
    done = itofit(f"info {files.run}")
    assert done.code == 0
    assert "adversarial on Snapshots(3 times, 2 dims" in done.out
    assert json.loads(itofit(f"info {files.run} --json").out)["values"]["n_iter"] == 2


def test_simulate_writes_training_and_held_out(itofit, tmp_path):
    done = itofit(
        f"simulate syn1 --dim 4 --n 10 --out {tmp_path}/a.npz --held-out {tmp_path}/b.csv"
    )
    assert done.code == 0
    assert read_snapshots(tmp_path / "a.npz").times.tolist() == [0.0, 0.2, 2.0]
    assert read_snapshots(tmp_path / "b.csv").n_dims == 4


@pytest.mark.parametrize("method", ["persistence", "midpoint"])
def test_trivial_methods_have_the_same_commands(method, files, itofit, tmp_path):
    run = tmp_path / "run"
    done = itofit(f"fit {files.data} --method {method} --out {run}")
    assert done.code == 0
    assert "converged" in done.out
    assert "converged" in itofit(f"info {run}").out
    assert itofit(f"forecast {run} --at 0.6 --out {tmp_path}/x.parquet").code == 0
    assert itofit(f"score {run} {files.held_out}").code == 0


@pytest.mark.slow
def test_a_rival_is_called_what_it_is(files, itofit, tmp_path):
    run = tmp_path / "run"
    done = itofit(f"fit {files.data} --method legend --set n_iter=2 --dt 0.1 --seed 4 --out {run}")
    assert done.code == 0
    assert "seed 4" in done.out
    assert "legend: re-implementation from the published description" in itofit(f"info {run}").out
    assert itofit(f"score {run} {files.held_out}").code == 0


# Methods and their options


@pytest.mark.filterwarnings("ignore::itofit.errors.FitWarning")
def test_a_method_has_the_options_set(files, itofit, tmp_path):
    run = tmp_path / "run"
    line = f"fit {files.data} --method moments --sigma 0.7 --dt 0.1 --set n_iter=5"
    line += f" --set path=simulated --out {run}"
    done = itofit(line)
    assert done.code == 0
    model = load(run)
    assert model.solver == Moments(n_iter=5, path="simulated")
    assert model.solver_.name == "moments"
    assert f"{model.n_iter_} iterations" in done.out
    assert model.n_iter_ <= 5
    assert json.loads(itofit(f"info {run} --json").out)["method"] == "moments"


def test_words_become_the_options_of_a_solver():
    """Numbers, words, None, lists and truth values; those of a preset where none is given."""
    settings = ("batch_size=None", "gain=2", "rule=trapezoid", "betas=[0.8, 0.9]")
    model = Choices("adversarial", settings=settings).estimator()
    assert model.solver == Adversarial(batch_size=None, gain=2, rule="trapezoid", betas=(0.8, 0.9))
    model = Choices("adversarial", preset="paper", settings=("n_iter=7",)).estimator()
    assert model.solver == Adversarial.paper(n_iter=7)
    model = Choices("moments", settings=("polynomials=false",)).estimator()
    assert model.solver == Moments(polynomials=False)
    model = Choices("collocation", dt="0.1", seed=4, settings=("degree=1",)).estimator()
    assert model.get_params() == model.get_params() | {"degree": 1, "dt": 0.1, "random_state": 4}


# What is refused


def points(n=10, d=2):
    return np.random.default_rng(0).normal(size=(n, d))


BAD_DATA = {
    "nan": ({"x0": points(), "x1": np.full((10, 2), np.nan), "times": [0.0, 1.0]}, "NaN or inf"),
    "one snapshot": ({"x0": points(), "times": [0.0]}, "at least 2 snapshots"),
    "repeated times": ({"x0": points(), "x1": points(), "times": [1.0, 1.0]}, "repeated"),
    "dimensions": ({"x0": points(), "x1": points(d=3), "times": [0.0, 1.0]}, "one dimension"),
    "few points": ({"x0": points(), "x1": points(1), "times": [0.0, 1.0]}, "at least 2 points"),
    "flat": (
        {"x0": points() * [1, 0], "x1": points() * [1, 0], "times": [0.0, 1.0]},
        "zero variance in x2",
    ),
    "labels": ({"X": points(), "t": np.array(["D0", "D4"] * 5)}, "'D0'"),
    "no times": ({"X": points()}, "array of times"),
}


@pytest.mark.parametrize("case", BAD_DATA)
def test_bad_data(case, itofit, tmp_path):
    arrays, message = BAD_DATA[case]
    np.savez(tmp_path / "bad.npz", **arrays)
    done = itofit(f"fit {tmp_path}/bad.npz --out {tmp_path}/run")
    assert done.code == 2
    assert message in done.err
    assert "expected" in done.err
    assert "Try:" in done.err
    assert not (tmp_path / "run" / "model.npz").exists()


BAD_WORDS = {
    "negative sigma": ("--sigma -1", "not negative"),
    "sigma text": ("--sigma loud", "multiplicative"),
    "sigma half a number": ("--sigma 1,x", "--sigma as a number"),
    "dt zero": ("--dt 0", "dt above 0"),
    "dt too long": ("--dt 7", "longest gap"),
    "dt text": ("--dt short", "--dt as a number"),
    "method": ("--method magic", "--method"),
    "preset": ("--preset magic", "preset"),
    "a preset of the other solver": (
        "--method moments --preset paper",
        "--preset of moments to be one of default;",
    ),
    "anchor": ("--set anchor=magic", "anchor"),
    "device": ("--device gpu", "a gpu that jax can see"),
    "iterations": ("--set n_iter=0", "n_iter"),
    "a number that is none": (
        "--method moments --set n_iter=few",
        "--set n_iter to be like its default",
    ),
    "a truth value that is none": (
        "--method moments --set polynomials=3",
        "Try: --set polynomials=true",
    ),
    "a pair that is none": ("--method adversarial --set betas=1", "Try: --set betas=[0.9, 0.99]"),
    "a name alone": ("--set n_iter", "--set as NAME=VALUE"),
    "an unknown name": (
        "--method moments --set iterations=5",
        "--set of moments to name one of anchor, path,",
    ),
    "an option of the other solver": ("--set drift_width=5", "found drift_width"),
    "unknown option": ("--sigmma 1", "No such option"),
    "an option that there was": ("--n-iter 5", "No such option"),
    "an option of another method": (
        "--method persistence --set gradient=adjoint",
        "--set of persistence to name one of no options",
    ),
    "an option that has its own word": ("--method collocation --set dt=0.1", "found dt"),
    "a clock for a method without one": ("--method legend --time-varying", "--time-varying"),
    "a clock for the other solver": ("--method adversarial --time-varying", "changes with time"),
    "options of another method": (
        "--method legend --time-varying --preset paper",
        "options that legend knows; found --preset, --time-varying",
    ),
    "nothing to resume": ("--method collocation --resume", "--resume"),
    "noise of another method": ("--method potential-rnn --sigma 1,2", "one number above 0"),
}


@pytest.mark.parametrize("case", BAD_WORDS)
def test_bad_words(case, files, itofit, tmp_path):
    if case == "device" and jax.default_backend() != "cpu":
        pytest.skip("this machine has an accelerator")
    words, message = BAD_WORDS[case]
    done = itofit(f"fit {files.data} --out {tmp_path}/run {words}")
    assert done.code == 2
    assert message in done.err
    assert not (tmp_path / "run" / "model.npz").exists()


BAD_RUNS = {
    "nothing": (lambda file, whole: None, "no such file"),
    "a truncated file": (lambda file, whole: file.write_bytes(whole[:300]), "complete npz"),
    "another file": (lambda file, whole: np.savez(file, a=1), "written by itofit"),
    "text": (lambda file, whole: file.write_text("hello"), "complete npz"),
}


@pytest.mark.parametrize("case", BAD_RUNS)
def test_bad_runs(case, files, itofit, tmp_path):
    write, message = BAD_RUNS[case]
    write(tmp_path / "model.npz", (files.run / "model.npz").read_bytes())
    done = itofit(f"info {tmp_path}")
    assert done.code == 2
    assert message in done.err


def test_an_old_run_is_refused_in_one_sentence(itofit, tmp_path):
    """As format 2 was written of a moments fit, with parameters that are gone."""
    about = {
        "format": 2,
        "method": "moments",
        "params": {"sigma": 0.7, "solver": "auto", "n_iter": None, "options": None},
        "values": {"seed": 0, "dt": 0.1, "outcome": "converged"},
    }
    np.savez(
        tmp_path / "model.npz",
        about=np.asarray(json.dumps(about)),
        X=points(),
        t=np.repeat([0.0, 1.0], 5),
        w=np.full(10, 0.2),
        names=np.asarray(["a", "b"]),
    )
    done = itofit(f"info {tmp_path}")
    assert done.code == 2
    assert done.out == ""
    assert done.err == (
        "itofit: expected run format 4; found format 2. "
        "Try: fit again, or load it with the itofit that wrote it.\n"
    )


def test_nothing_is_overwritten_or_half_written(files, itofit, tmp_path):
    before = (files.run / "model.npz").read_bytes()
    done = itofit(f"fit {files.data} --out {files.run} --set n_iter=1")
    assert done.code == 2
    assert "--overwrite" in done.err
    assert (files.run / "model.npz").read_bytes() == before
    done = itofit(f"forecast {files.run} --at -1 --out {tmp_path}/x.npz")
    assert done.code == 2
    assert "t0 = 0" in done.err
    assert list(tmp_path.iterdir()) == []
    done = itofit(f"forecast {files.run} --at 1 --out {tmp_path}/x.xlsx")
    assert done.code == 2
    assert ".parquet" in done.err
    done = itofit(f"forecast {files.run} --at 1 --out {tmp_path}/no/x.npz")
    assert done.code == 2
    assert "existing folder" in done.err


def test_held_out_of_another_dimension_is_refused(files, itofit, tmp_path):
    write_snapshots(Snapshots.from_arrays([points(d=3)], [0.5]), tmp_path / "odd.npz")
    done = itofit(f"score {files.run} {tmp_path}/odd.npz")
    assert done.code == 2
    assert "2 coordinates, as fitted" in done.err


# Runs that are not finished


def test_ctrl_c_keeps_the_best_state_and_resume_finishes_the_run(
    files, itofit, tmp_path, monkeypatch
):
    """Stopped after its first block the command saves what it has; with --resume it ends as one
    uninterrupted run.
    """
    run = tmp_path / "run"
    line = f"fit {files.data} {FIT_SHORTLY} --out {run}"

    def stop(self, progress):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, warnings.catch_warnings():
        warnings.simplefilter("always")
        patch.setattr(MetricLog, "__call__", stop)
        done = itofit(line)
    assert done.code == 0
    assert "warning: the fit interrupted" in done.err
    assert "interrupted" in done.out
    assert "1 iterations" in itofit(f"info {run}").out
    done = itofit(line)
    assert done.code == 2
    assert "--resume" in done.err
    assert itofit(f"{line} --resume").code == 0
    assert not list(run.glob("checkpoint*"))
    solver = Adversarial(n_iter=2)
    whole = FokkerPlanckProcess(0.7, dt=0.1, solver=solver, random_state=0)
    whole.fit(read_snapshots(files.data))
    np.testing.assert_array_equal(load(run).predict(0.6), whole.predict(0.6))


def test_a_killed_run_is_named_as_unfinished(files, itofit, tmp_path):
    """A process killed in the middle leaves a checkpoint and no model."""
    run = tmp_path / "run"
    run.mkdir()
    (run / "checkpoint.npz").write_bytes(b"")
    done = itofit(f"info {run}")
    assert done.code == 2
    assert "unfinished" in done.err
    done = itofit(f"fit {files.data} --out {run}")
    assert done.code == 2
    assert "--resume" in done.err
