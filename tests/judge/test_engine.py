"""What the candidates of a fit are, what each is believed, and which explains the snapshots."""

from dataclasses import replace

import jax.numpy as jnp
import numpy as np
import pytest

import itofit.judge.engine as engine_module
from itofit import FokkerPlanckProcess, Judged, Snapshots
from itofit.bridge.solution import BridgeSolution, PassLog
from itofit.bridge.solver import Bridge
from itofit.judge.engine import POLISHED, REFINED, Engine, Traits, thinned
from itofit.moments.solution import MomentsSolution

N = 120
TIMES = (0.0, 0.6, 1.2)


def observed(n=N):
    """A particle in a double well, pushed from one side: exact up to steps of 1/100."""
    rng = np.random.default_rng(3)
    clouds = []
    for time in TIMES:
        x = rng.normal(0.3, 0.3, (n, 1))
        for _ in range(round(100 * time)):
            x = x + (2.0 * x - 2.0 * x**3) / 100 + 0.05 * rng.standard_normal(x.shape)
        clouds.append(x)
    return Snapshots.from_arrays(clouds, TIMES)


def problem_of(snapshots):
    solver = Bridge(n_features=40, n_passes=1)
    return FokkerPlanckProcess(0.5, solver=solver, random_state=0).fit(snapshots).solution_.problem


ENGINE = Engine(Bridge(n_features=40, n_passes=4))


@pytest.fixture(scope="module")
def problem():
    return problem_of(observed())


@pytest.fixture(scope="module")
def candidates(problem):
    return ENGINE.fitted(problem, PassLog(0, ()))


def with_excess(candidates, **excess):
    """The same candidates, whose chi-squared is so many times its mean."""
    changed = {}
    for name, solution in candidates.polished.items():
        evidence = solution.evidence
        wanted = excess.get(name.replace(" ", "_"), 1.0)
        evidence = replace(evidence, chi2=evidence.chi2 * wanted / evidence.excess)
        changed[name] = replace(solution, evidence=evidence)
    return replace(candidates, polished=changed)


def test_a_sparse_drift_counts_as_the_one_it_was_polished_to(candidates):
    assert list(candidates.processes) == ["smooth", "in time", REFINED, POLISHED]
    without = replace(candidates, polished={})
    assert list(without.processes) == ["smooth", "in time", "sparse"]


def test_candidates_are_believed_by_their_chi_squared(candidates):
    """Shares of .85 and .6 where it is what it should be, of half that at 2.5 times that."""
    believed = with_excess(candidates).believed
    assert believed[POLISHED] == pytest.approx(0.85 / 0.15)
    assert believed[REFINED] == pytest.approx(0.6 / 0.4)
    believed = with_excess(candidates, polished=2.5, smooth_polished=2.5).believed
    assert believed[POLISHED] == pytest.approx(0.425 / 0.575)
    assert believed[REFINED] == pytest.approx(0.3 / 0.7)


def test_a_process_that_misses_its_snapshots_hardly_counts_where_none_can_judge(
    problem, candidates, monkeypatch
):
    """The first process that is asked for misses one, the others none."""
    believed = candidates.believed
    first, *others = believed
    answers = iter(["a miss", *[None for _ in others]])
    monkeypatch.setattr(engine_module, "worst_miss", lambda problem, process: next(answers))
    met = candidates.met(problem)
    assert met[first] == pytest.approx(0.01 * believed[first])
    assert all(met[name] == believed[name] for name in others)


def test_few_terms_explain_the_snapshots_before_a_smooth_drift_does(candidates):
    assert with_excess(candidates).explained == POLISHED
    assert with_excess(candidates, polished=50.0).explained == REFINED
    assert with_excess(candidates, polished=50.0, smooth_polished=50.0).explained is None


def test_what_was_not_polished_on_all_points_explains_nothing(candidates):
    assert replace(with_excess(candidates), is_whole=False).explained is None


def test_a_smooth_drift_of_very_many_coefficients_has_no_error_bars(candidates, monkeypatch):
    monkeypatch.setattr(engine_module, "_MOST_WITH_ERRORS", 41)
    assert with_excess(candidates, polished=50.0).explained is None


def test_the_solution_is_the_polished_one_or_says_what_contradicts_it(problem, candidates):
    log = PassLog(0, ())
    for name, excess in ((POLISHED, {}), (REFINED, {"polished": 50.0})):
        solution = with_excess(candidates, **excess).solution(problem, name, log)
        assert isinstance(solution, MomentsSolution)
        assert solution.outcome.is_good
    doubted = with_excess(candidates, polished=50.0, smooth_polished=50.0)
    for name in doubted.processes:
        solution = doubted.solution(problem, name, log)
        assert isinstance(solution, BridgeSolution)
        assert any("chi-squared" in text for text in solution.doubts())


def test_a_sentence_says_why(candidates):
    assert with_excess(candidates).why(POLISHED).startswith("since chi-squared of ")
    why = with_excess(candidates, polished=50.0).why(REFINED)
    assert why.startswith("since its chi-squared is 1 times its mean")
    assert "terms and the noise as asked is 50 times its mean" in why
    assert "counts most" in with_excess(candidates, polished=50.0).why("smooth")


def test_other_snapshots_have_the_same_candidates(problem, candidates):
    processes = ENGINE.fitted_again(problem, candidates.traits, PassLog(0, ()))
    assert list(processes) == list(candidates.processes)
    x = jnp.array([0.2])
    assert all(np.all(np.isfinite(process.at(0.3).drift(x))) for process in processes.values())


def test_a_sparse_drift_begins_at_a_smooth_one_that_explains_the_snapshots(candidates):
    assert with_excess(candidates).traits == Traits(tuple(candidates.processes), False, True)
    assert not with_excess(candidates, smooth_polished=50.0).traits.from_refined


def test_what_explains_few_points_is_polished_on_all(monkeypatch):
    monkeypatch.setattr(engine_module, "_FEW_POINTS", 60)
    problem = problem_of(observed())
    candidates = ENGINE.fitted(problem, PassLog(0, ()))
    name = candidates.explained
    assert name is not None
    assert candidates.polished[name].problem.snapshots.counts == (N, N, N)
    few = thinned(problem, 60)
    assert few.snapshots.counts == (60, 60, 60)


def test_what_explains_after_all_points_has_seen_them_all(monkeypatch):
    """Few terms explain few points and are contradicted by all: the smooth drift takes over."""
    monkeypatch.setattr(engine_module, "_FEW_POINTS", 60)
    polish = engine_module.polished

    def contradicted_by_all(problem, solver, start, listeners=()):
        solution = polish(problem, solver, start, listeners)
        wanted = 50.0 if solver is engine_module.POLISHER else 1.0
        wanted = wanted if max(problem.snapshots.counts) == N else 1.0
        evidence = solution.evidence
        evidence = replace(evidence, chi2=evidence.chi2 * wanted / evidence.excess)
        return replace(solution, evidence=evidence)

    monkeypatch.setattr(engine_module, "polished", contradicted_by_all)
    candidates = ENGINE.fitted(problem_of(observed()), PassLog(0, ()))
    assert candidates.explained == REFINED
    assert candidates.polished[REFINED].problem.snapshots.counts == (N, N, N)


def test_what_is_not_looked_at_is_said(problem):
    assert ENGINE.thinning(problem) == ""
    said = ENGINE.thinning(problem_of(observed(600)))
    assert said.startswith("of up to 600 points a snapshot a pass looks at 512")


def test_a_smooth_process_has_error_bars_and_is_saved(monkeypatch, tmp_path):
    """Where few terms are contradicted; here they are never believed."""
    monkeypatch.setattr(engine_module, "_polish", lambda *_: None)
    model = FokkerPlanckProcess(
        0.5, solver=Judged("none", n_features=40, n_passes=4), random_state=0
    )
    model.fit(observed())
    assert isinstance(model.solution_, MomentsSolution)
    x = np.array([[-0.5], [0.0], [0.8]])
    std = model.drift_std(x)
    assert np.all(std > 0.0)
    # Two of three within two standard errors, and none beyond four: a law of large numbers of one.
    off = np.abs(model.drift(x) - (2.0 * x - 2.0 * x**3)) / std
    assert np.sum(off < 2.0) >= 2
    assert np.max(off) < 4.0
    bands = model.bands([0.3, 1.5])
    assert np.all(np.isfinite(bands.mean_std))
    assert 0.0 < model.goodness_of_fit().p_value <= 1.0
    model.save(tmp_path / "run")
    again = model.load(tmp_path / "run")
    np.testing.assert_array_equal(again.drift(x), model.drift(x))
    np.testing.assert_allclose(again.drift_std(x), std, rtol=0.3)
