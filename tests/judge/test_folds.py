"""What is left out to judge by, and what the fits without it may see."""

import jax.numpy as jnp
import numpy as np
import pytest

from itofit.bridge.solution import PassLog
from itofit.judge.judging import MOST_INTERIOR, MOST_LAST, folds_of, judged
from itofit.problem import Problem, Streams
from itofit.process.drift import FunctionDrift
from itofit.process.ito import ItoProcess
from itofit.process.noise import ConstantDiffusion
from itofit.snapshots.clouds import Snapshots
from itofit.snapshots.scaling import Scaling


def problem_of(n_times, n=20, gap=0.5):
    """Clouds that move by four sds from one to the next, and widen."""
    rng = np.random.default_rng(0)
    times = gap * np.arange(n_times) ** 1.2
    clouds = [
        (1.0 + 0.3 * k) * rng.standard_normal((n + k, 2)) + np.array([4.0 * k, -k])
        for k in range(n_times)
    ]
    observed = Snapshots.from_arrays(clouds, times, names=["left", "right"])
    scaling = Scaling.fit_core(observed)
    return Problem.pose(observed, 0.5, "auto", scaling=scaling, streams=Streams(3))


@pytest.mark.parametrize("n_times", [3, 4, 5, 8])
def test_an_interior_fit_sees_all_snapshots_but_the_one_left_out(n_times):
    problem = problem_of(n_times)
    interior = [fold for fold in folds_of(problem) if not fold.beyond]
    assert len(interior) == min(MOST_INTERIOR, n_times - 2)
    times = problem.observed.times
    for fold in interior:
        assert times[0] < fold.snapshot.time < times[-1]
        others = times[times != fold.snapshot.time]
        np.testing.assert_array_equal(fold.rest.observed.times, others)
        pooled = {tuple(x) for cloud in fold.rest.observed.clouds for x in cloud}
        assert not pooled & {tuple(x) for x in fold.snapshot.points}


@pytest.mark.parametrize("n_times", [3, 4, 5, 8])
def test_a_fit_that_is_judged_after_its_last_snapshot_saw_earlier_ones_alone(n_times):
    problem = problem_of(n_times)
    last = [fold for fold in folds_of(problem) if fold.beyond]
    n_last = MOST_LAST if n_times >= 5 else 1
    np.testing.assert_array_equal(
        [fold.snapshot.time for fold in last], problem.observed.times[-n_last:]
    )
    for fold in last:
        earlier = problem.observed.times[problem.observed.times < fold.snapshot.time]
        np.testing.assert_array_equal(fold.rest.observed.times, earlier)


def test_a_fold_is_scaled_by_what_it_may_see():
    """And differs from the scaling of all, since clouds move by sds."""
    problem = problem_of(5)
    for fold in folds_of(problem):
        expected = Scaling.fit_core(fold.rest.observed)
        np.testing.assert_array_equal(fold.rest.scaling.mean, expected.mean)
        np.testing.assert_array_equal(fold.rest.scaling.sd, expected.sd)
        assert np.max(np.abs(expected.mean - problem.scaling.mean) / expected.sd) > 1e-3
        standardised = fold.rest.snapshots.clouds[0]
        raw = expected.standardise(fold.rest.observed.clouds[0])
        np.testing.assert_array_equal(np.sort(standardised, axis=0), np.sort(raw, axis=0))


def test_a_fold_keeps_the_question():
    problem = problem_of(4)
    for fold in folds_of(problem):
        assert fold.rest.observed.names == ("left", "right")
        assert fold.rest.streams == problem.streams
        assert fold.rest.sigma == problem.sigma


def test_the_snapshot_left_out_is_that_of_the_user():
    """In the user's units, rows and weights as they are."""
    problem = problem_of(4)
    for fold in folds_of(problem):
        expected = problem.observed.at(fold.snapshot.time)
        np.testing.assert_array_equal(fold.snapshot.points, expected.points)
        np.testing.assert_array_equal(fold.snapshot.weights, expected.weights)


def constant_process(problem, velocity):
    """The user's velocity, without noise, in the units of a problem."""
    v = np.asarray(velocity) / problem.scaling.sd
    return ItoProcess(FunctionDrift(lambda x: v + 0.0 * x), ConstantDiffusion(jnp.zeros((2, 2))))


def test_of_two_snapshots_none_can_be_left_out():
    """What is believed counts, and not what hardly is: no fit is asked for."""
    problem = problem_of(2)
    assert folds_of(problem) == []

    def fit(rest, log):
        raise AssertionError("nothing to fit")

    verdict = judged(problem, fit, {"smooth": 0.9, "sparse": 0.1}, PassLog(0, ()))
    for weights in (verdict.between, verdict.beyond):
        kept = {way: weight for way, weight in weights.items() if weight > 0.0}
        assert list(kept) == ["smooth", "smooth, flow", "lines"]
        assert kept["smooth"] == pytest.approx(kept["smooth, flow"])
        assert sum(kept.values()) == pytest.approx(1.0)
    assert verdict.judgements == ()


def translated(n_times=4, velocity=(3.0, -1.0)):
    """Fresh draws of one law, carried along at a constant velocity."""
    rng = np.random.default_rng(1)
    times = 0.5 * np.arange(n_times)
    clouds = [rng.standard_normal((40, 2)) + t * np.asarray(velocity) for t in times]
    observed = Snapshots.from_arrays(clouds, times)
    scaling = Scaling.fit_core(observed)
    return Problem.pose(observed, 0.1, 0.25, scaling=scaling, streams=Streams(0))


def test_the_process_that_is_right_wins_over_one_that_is_wrong_and_over_rest():
    """After the last snapshot: the right one is as good as lines, the wrong one misses by sds.

    Energy distances of two draws of 40 points of one law are about 2 / 40 of the mean distance.
    """
    problem = translated()

    def fit(rest, log):
        return {
            "right": constant_process(rest, [3.0, -1.0]),
            "wrong": constant_process(rest, [-3.0, 3.0]),
        }

    verdict = judged(problem, fit, {"right": 0.5, "wrong": 0.5}, PassLog(0, ()))
    beyond = verdict.beyond
    assert sum(beyond.values()) == pytest.approx(1.0)
    assert sum(verdict.between.values()) == pytest.approx(1.0)
    assert beyond["right"] + beyond["right, flow"] + beyond["lines"] > 0.9
    assert beyond["wrong"] + beyond["wrong, flow"] < 0.05
    assert [row.beyond for row in verdict.judgements] == [False, False, True]
    last = verdict.judgements[-1].scores
    assert last["right"] < 0.15
    assert last["rest"] > 0.2
    assert last["wrong"] > last["rest"]


def test_a_process_that_runs_away_is_judged_far_off_and_gets_nothing():
    problem = translated(3)

    def fit(rest, log):
        away = ItoProcess(
            FunctionDrift(lambda x: 1e6 * (1.0 + x)), ConstantDiffusion(jnp.zeros((2, 2)))
        )
        return {"right": constant_process(rest, [3.0, -1.0]), "away": away}

    verdict = judged(problem, fit, {"right": 0.5, "away": 0.5}, PassLog(0, ()))
    assert verdict.beyond["away"] == 0.0
    assert all(np.isfinite(list(row.scores.values())).all() for row in verdict.judgements)
    assert verdict.judgements[-1].scores["away"] > 3.0
