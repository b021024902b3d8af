"""Jobs: what a fit sees, what becomes of one that fails, and runs that go on where they stopped."""

import json
import warnings
from types import SimpleNamespace

import numpy as np
import pytest
from benchmarks.zoo import __main__ as command
from benchmarks.zoo import rows
from benchmarks.zoo.jobs import FIELDS, FITTING, SCORING, Job
from benchmarks.zoo.plan import REAL, Plan, chosen_rows, chosen_tasks, missing
from benchmarks.zoo.processes import finished
from benchmarks.zoo.registry import TASKS
from benchmarks.zoo.rows import ROWS, estimator_row
from stubs import SLEEPY, stub

from itofit import FitWarning, Outcome

KNOWN = [name for name, task in TASKS.items() if task.family != REAL]
TRIVIAL = {"interpolate": ("persistence", "midpoint"), "forecast": ("persistence", "continuation")}


def trivial_job(task, seed=0):
    return Job(task, TRIVIAL[TASKS[task].asks], seed)


def lasting(records):
    """Records without what differs from run to run."""
    measured = ("seconds", "memory_mb", "cores")
    kept = [{k: v for k, v in record.items() if k not in measured} for record in records]
    return sorted(kept, key=lambda record: (record["task"], record["row"], record["start"]))


class Spy:
    """An estimator that remembers what it was given, and what it was asked after that."""

    def __init__(self, random_state):
        self.random_state = random_state
        self.outcome_ = Outcome.converged
        self.solution_ = SimpleNamespace(evidence=SimpleNamespace(reduced_chi2=1.5))
        self.forecasts = []

    def fit(self, *given):
        (self.given,) = given
        return self

    def forecast(self, times, *, n_samples, start):
        self.forecasts.append((times, start))
        cloud = np.resize(self.given.clouds[0], (n_samples, self.given.n_dims))
        return SimpleNamespace(clouds=[cloud] * len(times))


@pytest.fixture
def spies(monkeypatch):
    """The estimators that the row `spy` made."""
    made = []

    def make(random_state):
        made.append(Spy(random_state))
        return made[-1]

    monkeypatch.setitem(ROWS, "spy", estimator_row("spy", make, ROWS["itofit"].starts))
    return made


@pytest.mark.parametrize("name", KNOWN)
def test_no_fit_sees_the_times_or_clouds_asked_for(name, spies, done_here, few_points):
    records = done_here(Job(name, ("spy",), seed=5)).records
    (spy,) = spies
    trial = TASKS[name].trial(5)
    assert spy.random_state == 5
    assert np.array_equal(spy.given.times, trial.given.times)
    assert not set(spy.given.times) & set(trial.asked.times)
    seen = {point.tobytes() for cloud in spy.given.clouds for point in cloud}
    assert not seen & {point.tobytes() for cloud in trial.asked.clouds for point in cloud}
    starts = ROWS["itofit"].starts[TASKS[name].asks]
    assert spy.forecasts == [(list(trial.asked.times), start) for start in starts]
    assert [(record["start"], record["answer"]) for record in records] == [
        (starts[0], True),
        (starts[1], False),
    ]


def test_a_record_says_what_was_measured(spies, done_here, few_points):
    messages = done_here(Job("ring", ("spy",), seed=0))
    assert messages[:2] == [FITTING, SCORING]
    first, second = messages.records
    assert tuple(first) == FIELDS
    assert first["outcome"] == "converged"
    assert first["chi2"] == 1.5
    assert first["failure"] is None
    assert first["W1"] == second["W1"] > 0.0
    assert first["memory_mb"] > 50.0
    assert first["seconds"] >= 0.0
    json.dumps(messages.records, allow_nan=False)


def test_the_floor_is_in_the_records_of_the_trivial_rows(done_here, few_points):
    records = done_here(trivial_job("ring")).records
    assert [record["row"] for record in records] == ["persistence", "midpoint"]
    assert all(record["floor"] > record["floor_sd"] > 0.0 for record in records)


def test_warnings_of_a_fit_are_kept_once(spies, done_here, few_points, monkeypatch):
    def fit(self, given):
        for _ in range(3):
            warnings.warn(FitWarning("too long a step"), stacklevel=1)
        self.given = given
        return self

    monkeypatch.setattr(Spy, "fit", fit)
    assert done_here(Job("ring", ("spy",), 0)).records[0]["warnings"] == ["too long a step"]


def test_a_fit_that_raises_fails_from_every_start(spies, done_here, monkeypatch):
    def fit(self, given):
        raise np.linalg.LinAlgError("singular")

    monkeypatch.setattr(Spy, "fit", fit)
    records = done_here(Job("ring", ("spy",), 0)).records
    assert [record["start"] for record in records] == ["bridge", "previous"]
    for record in records:
        assert record["failure"].startswith("LinAlgError: singular (test_zoo_jobs.py:")
        assert record["W1"] is None


def test_a_forecast_that_is_not_finite_fails_from_its_start(spies, done_here, monkeypatch):
    def forecast(self, times, *, n_samples, start):
        value = np.nan if start == "previous" else 1.0
        return SimpleNamespace(clouds=[np.full((n_samples, 2), value)] * len(times))

    monkeypatch.setattr(Spy, "forecast", forecast)
    first, second = done_here(Job("ring", ("spy",), 0)).records
    assert first["failure"] is None
    assert second["failure"].startswith("FloatingPointError: the forecast is not finite")


def test_a_fit_past_its_budget_and_one_that_dies_are_failures():
    """Two processes at a time, and the run goes on after both."""
    late = Job(SLEEPY, ("itofit",), seed=1)
    dying = Job("two_fates", ("persistence", "midpoint"), seed=0)
    records = dict(finished([late, dying], n_jobs=2, budget=0.5, work=stub))
    assert [(r["failure"], r["seconds"], r["start"], r["seed"]) for r in records[late]] == [
        ("past its budget of 0.5 s", 0.5, "bridge", 1),
        ("past its budget of 0.5 s", 0.5, "previous", 1),
    ]
    first, second = records[dying]
    assert first == {"row": "persistence"}
    assert second["row"] == "midpoint"
    assert second["failure"] == "the process died with exit code 7"


def test_a_process_of_its_own_gives_the_same_records(done_here):
    job = trivial_job("ring")
    ((done, records),) = finished([job], n_jobs=1, budget=60.0)
    assert done == job
    assert lasting(records) == lasting(done_here(job).records)


@pytest.fixture
def run(monkeypatch, tmp_path, done_here, few_points):
    """The command with its jobs done here; `limit` ends it after so many of them."""
    path = tmp_path / "zoo.json"
    ran = []

    def run(*words, limit=None):
        def here(jobs, n_jobs, budget):
            for k, job in enumerate(jobs):
                if k == limit:
                    raise KeyboardInterrupt
                ran.append((job.task, job.seed))
                yield job, done_here(job).records

        monkeypatch.setattr(command, "finished", here)
        monkeypatch.setattr(command.signal, "signal", lambda *_: None)
        code = command.main([*words, "--rows", "trivial", "--json", str(path)])
        return code, json.loads(path.read_text())

    run.path = path
    run.ran = ran
    return run


WORDS = ("--tasks", "ring", "toggle", "--seeds", "2")


def test_a_run_that_was_cut_short_goes_on_to_the_same_records(run, capsys):
    code, whole = run(*WORDS)
    assert code == 0
    assert run.ran == [("ring", 0), ("toggle", 0), ("ring", 1), ("toggle", 1)]
    run.path.unlink()
    run.ran.clear()
    with pytest.raises(KeyboardInterrupt):
        run(*WORDS, limit=1)
    assert len(json.loads(run.path.read_text())) == 2
    _, resumed = run(*WORDS)
    assert run.ran == [("ring", 0), ("toggle", 0), ("ring", 1), ("toggle", 1)]
    assert lasting(resumed) == lasting(whole)
    _, third = run(*WORDS)
    assert len(run.ran) == 4
    assert third == resumed
    assert "| persistence | 2 | 0 of 4 |" in capsys.readouterr().out


def test_failures_are_run_again_when_asked(record):
    jobs = Plan(("ring",), ("persistence", "midpoint", "itofit"), (0,)).jobs()
    assert [job.rows for job in jobs] == [("persistence", "midpoint"), ("itofit",)]
    records = [
        record("ring", "persistence", 1.0),
        record("ring", "midpoint", 1.0),
        record("ring", "itofit", failure="past its budget of 1 s"),
    ]
    assert missing(jobs, records, again=False) == []
    assert missing(jobs, records, again=True) == jobs[1:]
    assert missing(jobs, records[:1], again=False) == jobs


def test_a_row_is_run_on_tasks_it_is_a_method_for():
    jobs = Plan(("ring", "toggle"), ("persistence", "midpoint", "continuation", "moscot"), (0,))
    assert [(job.task, job.rows) for job in jobs.jobs()] == [
        ("ring", ("persistence", "midpoint")),
        ("ring", ("moscot",)),
        ("toggle", ("persistence", "continuation")),
    ]


def test_families_and_groups_are_words_too(refused):
    assert chosen_tasks(["chaos", "ring"]) == ("ring", "lorenz", "lorenz_thinned")
    assert chosen_rows(["default"]) == (*rows.TRIVIAL, "itofit")
    assert set(chosen_tasks(["all"])) == set(TASKS)
    with refused("gradient", "rings", "--list"):
        chosen_tasks(["rings"])


def test_the_tasks_are_listed_without_data(capsys):
    assert command.main(["--list"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == len(TASKS) + 1
    assert lines[1].split() == ["double_well", "gradient", "interpolate", "1", "5+1", "400"]


def test_wrong_words_are_refused(capsys):
    assert command.main(["--rows", "nobody"]) == 2
    assert "found nobody" in capsys.readouterr().err
    for words in (["--budget", "0"], ["--quick", "--tasks", "ring"], ["--print", "nowhere.json"]):
        with pytest.raises(SystemExit):
            command.main(words)


def test_data_that_are_not_there_are_refused_before_anything_runs(tmp_path, capsys):
    words = ["--tasks", "ring", "klein_d2", "--rows", "trivial", "--data", str(tmp_path)]
    assert command.main(words) == 2
    assert "expected klein2015_mesc/klein_counts.npz in --data" in capsys.readouterr().err


def test_rivals_that_are_not_installed_are_refused_before_anything_runs(
    monkeypatch, tmp_path, capsys
):
    monkeypatch.setenv("ITOFIT_RIVALS", str(tmp_path))
    assert command.main(["--tasks", "ring", "--rows", "otcfm"]) == 2
    assert "--install otcfm" in capsys.readouterr().err
