"""The single-cell tasks on made-up counts: the formulas by hand, the factors against scikit-learn,
the command.
"""

import json
from functools import partial
from types import SimpleNamespace

import numpy as np
import pytest
import scipy.sparse
import sklearn.decomposition
from experiments.figures.pictures import Settings
from experiments.rna import __main__ as command
from experiments.rna import nmf, pictures, preprocess
from experiments.rna.counts import DAYS, MARKERS, Counts, load_counts
from experiments.rna.methods import METHODS, THREE_LAYERS, WITHOUT_SEED
from experiments.rna.methods import Settings as FitSettings
from experiments.rna.paper import PRINTED, printed_value
from experiments.rna.records import FIELDS
from experiments.rna.report import table
from experiments.rna.scores import GENES, MEAN, SHOWN, UNITS, coordinate_W2_squared, scores
from experiments.rna.tasks import CLOCKS, TASKS, Clouds

from itofit import Adversarial, InputError, Persistence, Snapshots
from itofit.forecast import start_before
from itofit.metrics import W2, floor
from itofit.simulate.mesh import Mesh
from itofit.snapshots.clouds import Snapshot
from itofit.snapshots.scaling import Scaling
from itofit.solution import TrainingHistory

N_CELLS = {0: 50, 2: 40, 4: 40, 7: 44}
GENES_OF_TEST = (*MARKERS[::-1], *(f"other{i}" for i in range(14)))
PNG = b"\x89PNG"


def made_up(n_cells=N_CELLS, genes=GENES_OF_TEST):
    """Counts whose rates move with the day, the first ten genes faster; every cell has zeros."""
    rng = np.random.default_rng(7)
    rows = []
    days = []
    for day, n in n_cells.items():
        rates = np.where(np.arange(len(genes)) < 10, 3.0 + 0.5 * day, 1.5)
        rows.append(rng.poisson(rates * rng.gamma(4.0, 0.25, size=(n, 1))))
        rows[-1][:, -1] = 0
        rows[-1][:, -2] += 1
        days += [day] * n
    return {
        "counts": np.concatenate(rows).astype(np.uint16),
        "genes": np.array(genes),
        "day": np.array(days),
    }


class Walk(Persistence):
    """Every point moves by 1 a unit of time: a process that needs no compiler."""

    def _carry(self, times, n_samples, start, first):
        del n_samples, first
        start = "previous" if start == "bridge" else start
        begins = [start_before(self.snapshots_, t, start) for t in times]
        clouds = [begin.points + (t - begin.time) for begin, t in zip(begins, times, strict=True)]
        return Snapshots.from_arrays(clouds, times, names=self.snapshots_.names)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder of data, and factors and splits few enough for a test."""
    monkeypatch.setattr(floor, "N_DRAWS", 4)
    monkeypatch.setattr(preprocess, "completed", partial(nmf.completed, n_factors=8, n_updates=20))
    (tmp_path / "data").mkdir()
    np.savez(tmp_path / "data" / "klein_counts.npz", **made_up())
    return tmp_path / "data"


@pytest.fixture
def fitted(monkeypatch):
    """The fits made by a stand-in for the moments solver that learns nothing."""
    made = []

    def model(settings):
        made.append(settings)
        return Persistence(random_state=settings.seed)

    monkeypatch.setitem(METHODS, "moments", model)
    return made


def call(folder, *words):
    return command.main(["--data", str(folder), *map(str, words)])


def cloud(points, weights=None):
    n = len(points)
    return Snapshot(
        0.0, np.asarray(points, dtype=float), np.full(n, 1.0 / n) if weights is None else weights
    )


def test_normalisation_by_hand():
    """Libraries 4, 5 and 10; zeros 1/2, 1/4, 1/4; their median is 1/4."""
    counts = np.array([[1.0, 3.0, 0.0, 0.0], [1.0, 1.0, 3.0, 0.0], [0.0, 2.0, 3.0, 5.0]])
    expected = np.log1p([
        [1 * 0.5 * 1e6 / 4, 3 * 0.5 * 1e6 / 4, 0, 0],
        [1e6 / 5, 1e6 / 5, 3e6 / 5, 0],
        [0, 2e6 / 10, 3e6 / 10, 5e6 / 10],
    ])  # fmt: skip
    x = preprocess.normalised(counts)
    np.testing.assert_allclose(x, expected, rtol=1e-12)
    np.testing.assert_allclose(preprocess.to_counts(x)[1], [2e5, 2e5, 6e5, 0.0])


def test_the_full_data_are_read_from_an_anndata_and_not_called_a_subset(folder, monkeypatch):
    data = made_up()
    cells = SimpleNamespace(
        X=scipy.sparse.csr_matrix(data["counts"].astype(np.float32)),
        obs={"day": data["day"].astype(float)},
        var_names=data["genes"],
    )
    monkeypatch.setattr("itofit.datasets.klein2015", lambda cache: cells)
    full = load_counts(folder, full=True)
    subset = load_counts(folder)
    assert (full.label, subset.label) == ("full data", "subset-normalised")
    assert full.genes == subset.genes
    np.testing.assert_array_equal(full.of(4), subset.of(4))


@pytest.mark.parametrize("counts", [np.ones((2, 3)), np.zeros((2, 3))])
def test_cells_the_formula_does_not_know_are_refused(counts, refused):
    with refused("2 without"):
        preprocess.normalised(counts)


def test_gene_scores_are_summed_squared_differences_of_fifty_quantiles():
    x = np.random.default_rng(0).normal(size=(30, 2))
    np.testing.assert_allclose(
        preprocess.gene_scores(x, x + [2.0, 0.0]), [50 * 4.0, 0.0], atol=1e-12
    )


def test_companions_are_markers_first_and_do_not_see_the_held_out_day(monkeypatch):
    """A gene that moves on D7 only is a companion of task 1 and not of task 2."""
    monkeypatch.setattr(preprocess, "N_GENES", 2)
    data = made_up()
    data["counts"][data["day"] == 7, 15] += 40
    data["counts"][data["day"] >= 4, 16] += 20
    counts = Counts(data["counts"], tuple(data["genes"]), data["day"], "test")
    late, early = (set(preprocess.companions(counts, 0, last)[10:]) for last in (7, 4))
    assert [counts.genes[i] for i in preprocess.companions(counts, 0, 7)[:10]] == list(MARKERS)
    assert 15 in late
    assert 15 not in early
    assert 16 in early


def test_a_change_of_the_held_out_day_changes_nothing_that_is_fitted(folder):
    for task in TASKS.values():
        whole = load_counts(folder)
        other = whole.values.copy()
        other[whole.day == task.held_out] *= np.arange(1, 25, dtype=np.uint16)
        a, b = (Clouds(Counts(v, whole.genes, whole.day, ""), task) for v in (whole.values, other))
        for x, y in zip(
            a.training(CLOCKS["days"]).clouds, b.training(CLOCKS["days"]).clouds, strict=True
        ):
            np.testing.assert_array_equal(x, y)
        assert not np.allclose(a.by_day[task.held_out], b.by_day[task.held_out])


def test_clouds_are_in_units_of_the_last_training_day_and_lead_back(folder):
    clouds = Clouds(load_counts(folder), TASKS[2])
    training = clouds.training(CLOCKS["paper"])
    assert training.times.tolist() == [0.0, 0.5, 1.0]
    assert training.names == MARKERS
    np.testing.assert_allclose(training.clouds[-1].mean(axis=0), 0.0, atol=1e-12)
    np.testing.assert_allclose(training.clouds[-1].std(axis=0), 1.0)
    back = clouds.predicted(Persistence().fit(training), CLOCKS["paper"], 7)
    np.testing.assert_allclose(np.sort(back.points, axis=0), np.sort(clouds.by_day[4], axis=0))
    np.testing.assert_allclose(clouds.last_day.standardise(clouds.by_day[7]).std(axis=0), 1.0)


def test_both_clocks_take_the_steps_of_the_paper():
    for clock in CLOCKS.values():
        mesh = Mesh.refine([clock.at(day) for day in DAYS], clock.dt)
        assert mesh.observed == (0, 10, 20, 35)
    assert [CLOCKS["paper"].at(day) for day in DAYS] == [0.0, 0.5, 1.0, 1.75]


def test_with_all_entries_observed_the_factors_are_those_of_scikit_learn():
    rng = np.random.default_rng(0)
    X = rng.uniform(0.5, 2.0, (12, 9))
    factors = (rng.uniform(0.1, 1.0, (12, 5)), rng.uniform(0.1, 1.0, (5, 9)))
    rival = sklearn.decomposition.NMF(5, init="custom", solver="mu", max_iter=60, tol=0.0)
    A = rival.fit_transform(X, W=factors[0].copy(), H=factors[1].copy())
    ours = nmf.updated(X, np.ones_like(X), factors, 60, eps=0.0)
    np.testing.assert_allclose(ours[0] @ ours[1], A @ rival.components_, rtol=1e-6)


def test_the_masked_objective_falls():
    rng = np.random.default_rng(1)
    X = rng.gamma(2.0, size=(15, 20))
    observed = rng.uniform(size=(15, 20)) < 0.6
    factors = nmf.first_factors(np.where(observed, X, 0.0), 30, seed=0)
    values = [nmf.objective(X, observed, factors)]
    for _ in range(40):
        factors = nmf.updated(X, observed, factors, 1)
        values.append(nmf.objective(X, observed, factors))
    assert np.all(np.diff(values) < 0.0)


def test_hidden_entries_of_a_low_rank_matrix_are_found():
    """Rank 1 with a fifth hidden; 2 % is far above what 2000 updates leave, and a start is off by
    100 %.
    """
    rng = np.random.default_rng(2)
    X = np.outer(rng.uniform(1, 3, 30), rng.uniform(1, 3, 40))
    observed = rng.uniform(size=(30, 40)) < 0.8
    completed = nmf.completed(X, observed, seed=0, n_factors=1, n_updates=2000)
    np.testing.assert_allclose(completed[~observed], X[~observed], rtol=0.02)


def test_values_that_are_not_observed_do_not_matter():
    rng = np.random.default_rng(3)
    X = rng.gamma(2.0, size=(8, 9))
    observed = rng.uniform(size=(8, 9)) < 0.7
    completed = partial(nmf.completed, observed=observed, n_factors=10, n_updates=5)
    same = completed(np.where(observed, X, 1e6), seed=4)
    np.testing.assert_array_equal(completed(X, seed=4), same)
    assert not np.allclose(completed(X, seed=5), same)


def test_squared_W2_is_that_of_exact_transport():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(13, 1))
    y = rng.normal(size=(29, 1))
    w = rng.uniform(size=13)
    assert coordinate_W2_squared(x, y) == pytest.approx(W2(x, y) ** 2)
    assert coordinate_W2_squared(x, y, w) == pytest.approx(W2(x, y, w) ** 2)
    assert coordinate_W2_squared(x, x + 3.0) == pytest.approx(9.0)
    both = coordinate_W2_squared(np.hstack([x, x]), np.hstack([x, x + 2.0]))
    assert both == pytest.approx(2.0)


def test_scores_in_every_unit():
    """A shift of one gene by 1 in logs: W1 and squared W2 are 1, the mean of ten is 1/10, and in
    sds of D7 1/2.
    """
    x = np.random.default_rng(0).uniform(2.0, 4.0, size=(60, 10))
    shifted = x + (np.arange(10) == MARKERS.index("Tdh"))
    d7 = Scaling(np.zeros(10), np.full(10, 2.0))
    by_name = {(s.gene, s.unit): s for s in scores(cloud(shifted), cloud(x), d7)}
    assert set(by_name) == {(gene, unit) for gene in GENES for unit in UNITS}
    assert by_name["Tdh", "W1 log"].value == pytest.approx(1.0)
    assert by_name["Tdh", "W2^2 log"].value == pytest.approx(1.0)
    assert by_name["Tdh", "W1 D7"].value == pytest.approx(0.5)
    assert by_name[MEAN, "W1 log"].value == pytest.approx(0.1)
    count_shift = np.mean(np.exp(x[:, 2])) * (np.e - 1.0)
    assert by_name["Tdh", "W1 counts"].value == pytest.approx(count_shift)
    for s in by_name.values():
        is_shifted = s.gene in ("Tdh", MEAN)
        assert (s.value > 1e-9) == is_shifted
        assert (s.excess > 2.0 * s.floor_sd) == (s.gene == "Tdh") or s.gene == MEAN


def test_a_forecast_that_ran_away_or_is_none_has_a_floor_and_no_value():
    x = np.random.default_rng(0).uniform(2.0, 4.0, size=(20, 10))
    d7 = Scaling(np.zeros(10), np.ones(10))
    for s in scores(cloud(x + 800.0), cloud(x), d7):
        assert (s.value is None) == (s.excess is None) == (s.unit == "W1 counts")
    assert all(s.value is None and s.floor > 0.0 for s in scores(None, cloud(x), d7))


def test_what_the_paper_prints():
    assert printed_value("FPP", "Mt1", 2) == 4.23
    assert printed_value("NN", "Tdh", 7) == 28.19
    assert printed_value("LEGEND", "Gsn", 2) == 10.77
    assert printed_value("FPP", MEAN, 2) is None
    assert all(
        printed_value(m, gene, day) is not None for m in PRINTED for gene in SHOWN for day in (2, 7)
    )


def test_methods_are_told_no_noise_and_have_the_networks_of_the_paper():
    models = {name: make(FitSettings(0.05, 3, "cpu")) for name, make in METHODS.items()}
    for name, model in models.items():
        params = model.get_params()
        assert params["random_state"] == 3
        if name not in WITHOUT_SEED:
            assert (params["sigma"], params["dt"]) == ("learn", 0.05)
            assert params["device"] == "cpu"
    assert models["fpp"].solver == THREE_LAYERS
    assert models["fpp-paper"].solver == Adversarial.paper(
        n_iter=2000, drift_width=64, drift_depth=3, probe_width=64, probe_depth=3
    )


def test_a_budget_takes_the_place_of_the_methods_own():
    settings = FitSettings(0.05, 0, n_iter=7)
    for name in ("fpp", "fpp-paper", "moments", "moments-clock"):
        assert METHODS[name](settings).solver.n_iter == 7
    for name in ("legend", "potential-rnn"):
        assert METHODS[name](settings).n_iter == 7


def test_the_command_from_counts_to_tables_and_pictures(folder, tmp_path, monkeypatch, capsys):
    """A walk stands in for the moments solver, whose compilation takes longer than all of this."""
    monkeypatch.setitem(METHODS, "moments", lambda settings: Walk(random_state=settings.seed))
    (folder / pictures.REFERENCE).write_text("gene,Mt1,Mt2\nMt1,1,0.78\nMt2,0.78,1\n")
    path = tmp_path / "out.json"
    figures = tmp_path / "figures"
    ask = ("--method", "moments", "midpoint", "persistence")
    ask += ("--task", 2, "--seeds", 2, "--n-iter", 3)
    assert call(folder, *ask, "--json", path, "--figures", figures) == 0
    records = json.loads(path.read_text())
    assert all(tuple(r) == FIELDS for r in records)
    assert len(records) == (2 * 2 + 1 + 1) * len(GENES) * len(UNITS)
    assert {(r["method"], r["seed"], r["budget"]) for r in records} == {
        ("moments", 0, 3), ("moments", 1, 3), ("midpoint", 0, None), ("persistence", 0, None),
    }  # fmt: skip
    assert {r["data"] for r in records} == {"subset-normalised"}
    assert all((r["value"] is None) == (r["method"] == "midpoint") for r in records)
    values = {
        r["start"]: r["value"] for r in records if r["method"] == "moments" and r["seed"] == 0
    }
    assert values["initial"] != values["bridge"]
    out = capsys.readouterr().out
    title = "Task 2: D0, D2, D4 -> D7 (beyond the last snapshot), times: paper."
    assert out.count(title) == len(UNITS)
    for words in (
        "subset-normalised",
        "moments, bridge",
        "| none |",
        "not comparable",
        "| 2.92 | 1.50 |",
    ):
        assert words in out
    made = {p.name for p in figures.iterdir()}
    assert {"densities-task2-paper.png", "correlations-task2-paper-moments.png"} <= made
    assert all(p.read_bytes().startswith(PNG) for p in figures.glob("*.png"))
    numbers = json.loads((figures / "correlations-task2-paper-midpoint.json").read_text())
    panels = numbers["correlations"]
    assert [p["reference_2016"] for p in panels] == [None, 0.78, None, None, None, None]
    assert [p["in_sample"] for p in panels[:3]] == [True, True, False]
    assert panels[2]["forecast"] is None


def test_a_second_call_makes_no_second_fit(folder, fitted, tmp_path, capsys):
    ask = ("--method", "moments", "--times", "paper", "days", "--seeds", 1)
    path = tmp_path / "out.json"
    runs = tmp_path / "runs"
    assert call(folder, *ask, "--task", 1, "--json", path) == 0
    first = path.read_text()
    assert [settings.dt for settings in fitted] == [0.05, 0.2]
    assert call(folder, *ask, "--task", 1, "--json", path) == 0
    assert len(fitted) == 2
    assert path.read_text() == first
    assert call(folder, *ask, "--task", 1, 2, "--json", path) == 0
    assert len(fitted) == 4
    capsys.readouterr()
    assert call(folder, *ask, "--runs", runs, "--fit-only") == 0
    assert capsys.readouterr().out == ""
    assert sorted(p.name for p in runs.iterdir()) == [
        f"{t}-{c}-moments-0" for t in (1, 2) for c in ("days", "paper")
    ]
    assert call(folder, *ask, "--runs", runs, "--json", tmp_path / "other.json") == 0
    assert len(fitted) == 8
    old, new = (json.loads(p.read_text()) for p in (path, tmp_path / "other.json"))
    assert [r["value"] for r in old] == [r["value"] for r in new]


def test_a_kept_fit_of_another_budget_or_of_other_data_is_refused(folder, fitted, tmp_path, capsys):
    ask = ("--method", "moments", "--task", 1, "--seeds", 1)
    ask += ("--runs", tmp_path / "runs", "--fit-only")
    assert call(folder, *ask, "--n-iter", 5) == 0
    refuses(capsys, "--n-iter left to the method; found 5", folder, *ask)
    data = made_up()
    data["counts"][data["day"] == 4] += 1
    data["counts"][:, 23] = 0
    np.savez(folder / "klein_counts.npz", **data)
    refuses(capsys, "to be of this data", folder, *ask, "--n-iter", 5)


def test_a_fit_that_cannot_be_made_is_passed_over(folder, fitted, monkeypatch, capsys):
    def fail(*_):
        raise InputError(expected="luck", found="none", hint="again")

    monkeypatch.setattr(Persistence, "_learn", fail)
    assert call(folder, "--method", "moments", "midpoint", "--task", 1, "--seeds", 1) == 1
    out, err = capsys.readouterr()
    assert "not fitted: expected luck" in err
    assert "| midpoint | 1 |" in out


def test_the_table_means_over_seeds_and_marks_the_floor():
    """By hand: values 1 and 3, excesses 0 and .4 with a mean of .2: at the floor for an sd of .1,
    not for .09.
    """
    records = [
        {
            "data": "d",
            "task": 1,
            "times": "paper",
            "method": "moments",
            "seed": seed,
            "budget": None,
            "start": "initial",
            "gene": gene,
            "unit": "W1 log",
            "value": value,
            "floor": 0.5,
            "floor_sd": 0.1 if gene == "Mt1" else 0.09,
            "excess": excess,
        }
        for seed, value, excess in ((0, 1.0, 0.0), (1, 3.0, 0.4))
        for gene in GENES
    ]
    lines = table(records).splitlines()
    assert lines[4].startswith("| floor |  | 0.500 ± 0.100 | 0.500 ± 0.090 |")
    assert lines[5].startswith("| moments | 2 | 2.000 (+0.200)* | 2.000 (+0.200) |")
    paper = "| paper: FPP (not comparable: scale unknown) |  | 4.23 | 4.04 | 2.15 | 3.31 |  |"
    assert lines[-1] == paper


def test_losses_of_both_games(folder, tmp_path):
    history = TrainingHistory(
        np.arange(4.0), np.ones((4, 2)), np.array([2, 4]), np.array([0.5, 0.4]), np.ones(2)
    )
    models = {
        "fpp": SimpleNamespace(history_=history),
        "fpp-paper": SimpleNamespace(history_=history),
    }
    drawn = pictures.Drawn(
        "task1", Clouds(load_counts(folder), TASKS[1]), CLOCKS["paper"], models, {}
    )
    picture = pictures.losses(drawn)
    assert len(picture.figure.axes) == 2
    assert picture.numbers["losses"]["fpp"] == {"n_iter": 4, "loss": 3.0, "criterion": 0.4}
    assert pictures.write(picture, "losses", Settings(), tmp_path)[0].read_bytes().startswith(PNG)


def test_correlation_of_weighted_points():
    x = np.array([[0.0, 0.0], [1.0, 1.0], [2.0, 0.0]])
    assert pictures.pearson(cloud(x, np.array([0.5, 0.5, 0.0])), (0, 1)) == pytest.approx(1.0)
    assert pictures.pearson(cloud(x), (0, 1)) == pytest.approx(0.0)


def refuses(capsys, message, *words):
    with pytest.raises(SystemExit) as caught:
        call(*words)
    assert caught.value.code == 2
    assert message in capsys.readouterr().err


def test_wrong_data_are_refused(tmp_path, capsys):
    refuses(capsys, "none at", tmp_path / "nowhere")
    refuses(capsys, "klein_counts.npz in", tmp_path)
    path = tmp_path / "klein_counts.npz"
    path.write_text("nothing")
    refuses(capsys, "to be a complete npz file", tmp_path)
    np.savez(path, counts=np.ones((2, 2)))
    refuses(capsys, "no genes, day", tmp_path)
    np.savez(path, **made_up(genes=("Gone", *GENES_OF_TEST[1:])))
    refuses(capsys, "found no Pou5f1", tmp_path)
    np.savez(path, **made_up() | {"day": np.zeros(3)})
    refuses(capsys, "3 days and 24 genes", tmp_path)
    missing = made_up()
    missing["counts"][missing["day"] == 4, 9] = 0
    np.savez(path, **missing)
    refuses(capsys, "cells of day 4; found fewer with Krt8", tmp_path)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--method", "magic"], "magic"),
        (["--task", 3], "3"),
        (["--seeds", 0], "'0' is not a whole number"),
        (["--fit-only"], "give --runs"),
        (["--fit-only", "--runs", "r", "--json", "f.json"], "leave out --json"),
        (["--json", "no/such/folder/out.json"], "no folder"),
    ],
)
def test_wrong_arguments_are_refused(words, message, folder, capsys):
    refuses(capsys, message, folder, *words)


def test_a_foreign_file_of_records_is_refused(folder, tmp_path, capsys):
    for text in ("[", '[{"seed": 1}]'):
        (tmp_path / "out.json").write_text(text)
        refuses(capsys, "out.json is not", folder, "--json", tmp_path / "out.json")
