import dataclasses

import jax
import numpy as np
import pytest

from itofit.baselines import Persistence
from itofit.metrics import W1, Score, Scorecard, coordinate_W1, scorecard
from itofit.metrics.scorecard import score_snapshots
from itofit.simulate.systems import known_system
from itofit.snapshots.clouds import Snapshots

PLAIN = Score(
    time=1.0,
    metric="W1",
    value=0.5,
    floor=0.4,
    floor_sd=0.1,
    excess=0.1,
    floor_kind="system",
    n_model=10,
    n_test=10,
    persistence=0.6,
    midpoint=None,
)


def score(**changes):
    return dataclasses.replace(PLAIN, **changes)


def nothing(time):
    return None


# The two laws of scoring: the truth has no excess, and persistence fails wherever the law moves


def test_the_truth_has_no_excess_over_the_floor_of_its_system(syn1):
    times = [0.1, 0.5]
    excesses = {"W1": [], "coordinate_W1": []}
    for repeat in range(20):
        data, model = jax.random.split(jax.random.key(1000 + repeat))
        held_out = syn1.observe(200, [0.0, *times], key=data)
        start = held_out.clouds[0]
        clouds = syn1.push(jax.numpy.asarray(start, dtype=float), times, model)
        card = score_snapshots(
            Snapshots.from_arrays([np.asarray(x) for x in clouds], times),
            held_out.select([1, 2]),
            persistence=nothing,
            midpoint=nothing,
            truth=syn1,
            start=lambda time, held_out=held_out: held_out.at(0.0),
            seed=repeat,
            metrics={"W1": W1, "coordinate_W1": coordinate_W1},
        )
        for name, values in excesses.items():
            values.append(np.mean([card.at(t)[name].excess for t in times]))
    for values in excesses.values():
        # Model and draws are exchangeable, so the mean is 0; two standard errors over the 20
        # repeats.
        assert abs(np.mean(values)) < 2.0 * np.std(values, ddof=1) / np.sqrt(20.0)


def test_the_truth_has_no_excess_over_the_halves_of_the_held_out_cloud(syn1):
    times = [0.1, 0.5]
    excesses = {"W1": [], "coordinate_W1": []}
    for repeat in range(20):
        data, model = jax.random.split(jax.random.key(2000 + repeat))
        card = score_snapshots(
            syn1.observe(200, times, key=model, shared_particles=False),
            syn1.observe(200, times, key=data, shared_particles=False),
            persistence=nothing,
            midpoint=nothing,
            seed=repeat,
            metrics={"W1": W1, "coordinate_W1": coordinate_W1},
        )
        for name, values in excesses.items():
            values.append(np.mean([card.at(t)[name].excess for t in times]))
    for values in excesses.values():
        # Model and second half are exchangeable, so the mean is 0; two standard errors over the 20
        # repeats.
        assert abs(np.mean(values)) < 2.0 * np.std(values, ddof=1) / np.sqrt(20.0)


@pytest.mark.parametrize("name", ["syn1", "syn3"])
def test_persistence_fails_wherever_the_law_moves(getkey, name):
    system = known_system(name)
    train = system.observe(400, system.train_times, key=getkey())
    held_out = system.observe(400, [0.0, *system.test_times], key=getkey())
    model = Persistence().fit(train)
    card = model.scorecard(held_out, truth=system)
    assert card.times == list(system.test_times)
    for time in system.test_times:
        assert not card.at(time)["W1"].at_floor
        assert not card.at(time)["coordinate_W1"].at_floor
        assert card.at(time)["W1"].value == pytest.approx(card.at(time)["W1"].persistence)
        assert card.verdict(time) == "above the floor"  # and never worse than itself
    if (
        name == "syn1"
    ):  # between test time and snapshot the mean of Syn-1 moves by several sd, which halves can see
        halves = model.scorecard(held_out, metrics={"coordinate_W1": coordinate_W1})
        assert {halves.verdict(time) for time in system.test_times} == {"above the floor"}


# What a score says


def test_a_score_within_two_sd_is_at_the_floor():
    assert score(excess=0.2, floor_sd=0.1).at_floor
    assert score(excess=-5.0).at_floor
    assert not score(excess=0.2001, floor_sd=0.1).at_floor


def test_a_score_loses_to_persistence_where_there_is_one():
    assert score(value=0.7, persistence=0.6).loses_to_persistence
    assert not score(value=0.6, persistence=0.6).loses_to_persistence
    # The same cloud in another order of rows is summed in another order.
    assert not score(value=0.1 + 0.2, persistence=0.3).loses_to_persistence
    assert not score(value=0.7, persistence=None).loses_to_persistence


@pytest.mark.parametrize(
    ("scores", "verdict"),
    [
        ([score()], "at the floor"),
        # Where the law stands still, doing nothing wins by chance.
        ([score(value=0.7)], "at the floor"),
        ([score(excess=0.3)], "above the floor"),
        ([score(excess=0.3, value=0.7)], "worse than persistence"),
        ([score(excess=0.3, value=0.7, persistence=None)], "above the floor"),
        ([score(), score(metric="sliced_W1", excess=0.3)], "above the floor"),
        ([score(value=0.7), score(metric="sliced_W1", excess=0.3)], "above the floor"),
        ([score(), score(metric="sliced_W1", excess=0.3, value=0.7)], "worse than persistence"),
        (
            [score(excess=0.3), score(metric="sliced_W1", excess=0.3, value=0.7)],
            "worse than persistence",
        ),
        ([score(), score(time=2.0, excess=0.3)], "at the floor"),
    ],
)
def test_verdict_of_a_time(scores, verdict):
    assert Scorecard(tuple(scores)).verdict(1.0) == verdict


def test_times_metrics_and_records():
    card = Scorecard((score(time=2.0), score(), score(metric="sliced_W1", excess=0.3)))
    assert card.times == [1.0, 2.0]
    assert list(card.at(1.0)) == ["W1", "sliced_W1"]
    assert card.at(3.0) == {}
    records = card.to_records()
    assert [r["verdict"] for r in records] == ["at the floor", "above the floor", "above the floor"]
    assert records[0]["time"] == 2.0
    assert records[0]["midpoint"] is None


@pytest.mark.parametrize("times", [(1e-9, 2e-9), (1.6e9, 1.6e9 + 1.0), (1000.0, 1000.005)])
def test_times_that_differ_are_scored_apart_in_any_unit(times):
    early, late = times
    card = Scorecard((score(time=early), score(time=late, excess=0.3)))
    assert card.verdict(early) == "at the floor"
    assert card.verdict(late) == "above the floor"
    assert card.at(early)["W1"].time == early


def words(line):
    return " ".join(line.split())


def test_the_table_shows_every_number_beside_its_floor():
    text = str(Scorecard((score(), score(metric="sliced_W1", persistence=None, midpoint=0.25))))
    head, first, second, foot = text.splitlines()
    assert words(head) == "time metric score floor +-sd excess persist. midpoint verdict"
    assert words(first) == "1 W1 0.5000 0.4000 0.1000 0.1000 0.6000 - at the floor"
    assert words(second) == "sliced_W1 0.5000 0.4000 0.1000 0.1000 - 0.2500"
    assert "true process" in foot
    assert "one half of the held-out cloud" in str(Scorecard((score(floor_kind="split-half"),)))


# How clouds are scored


def cloud(n, seed, shift=0.0):
    return shift + np.random.default_rng(seed).normal(size=(n, 1))


def test_rows_are_scored_with_their_weights():
    test = Snapshots.from_arrays([cloud(50, 0)], [1.0])
    w = np.arange(1.0, 31.0)
    model = Snapshots.from_arrays([cloud(30, 1)], [1.0], [w])
    row = Snapshots.from_arrays([cloud(20, 2)], [1.0], [np.arange(20.0)])
    card = score_snapshots(
        model, test, persistence=row.at, midpoint=nothing, metrics={"coordinate_W1": coordinate_W1}
    )
    score_at_1 = card.at(1.0)["coordinate_W1"]
    assert score_at_1.value == pytest.approx(coordinate_W1(cloud(30, 1), cloud(50, 0), w), rel=1e-9)
    assert score_at_1.persistence == pytest.approx(
        coordinate_W1(cloud(20, 2), cloud(50, 0), np.arange(20.0)), rel=1e-9
    )
    assert score_at_1.midpoint is None
    assert (score_at_1.n_model, score_at_1.n_test, score_at_1.floor_kind) == (30, 50, "split-half")


def test_weights_on_both_sides_are_scored():
    w = np.arange(1.0, 31.0)
    v = np.arange(1.0, 51.0)
    model = Snapshots.from_arrays([cloud(30, 1)], [1.0], [w])
    test = Snapshots.from_arrays([cloud(50, 0)], [1.0], [v])
    card = score_snapshots(model, test, persistence=nothing, midpoint=nothing)
    wanted = coordinate_W1(
        np.repeat(cloud(30, 1), w.astype(int), axis=0),
        np.repeat(cloud(50, 0), v.astype(int), axis=0),
    )
    assert card.at(1.0)["coordinate_W1"].value == pytest.approx(wanted, rel=1e-9)


def test_thinned_clouds_are_independent_samples(monkeypatch):
    monkeypatch.setattr(scorecard, "MAX_POINTS", 200)
    scored = []
    fresh = []
    for repeat in range(60):
        model = cloud(400, 3 * repeat)
        test = cloud(400, 3 * repeat + 1)
        card = score_snapshots(
            Snapshots.from_arrays([model], [1.0]),
            Snapshots.from_arrays([test], [1.0]),
            persistence=nothing,
            midpoint=nothing,
            metrics={"coordinate_W1": coordinate_W1},
        )
        assert (card.scores[0].n_model, card.scores[0].n_test) == (200, 200)
        scored.append(card.scores[0].value)
        fresh.append(coordinate_W1(cloud(200, 3 * repeat), cloud(200, 3 * repeat + 1)))
    # Two hundred of four hundred points of each cloud, chosen apart, are two samples of size 200;
    # had both sides kept the same ranks, they would agree like 400. Four standard errors of the
    # difference of means.
    error = np.sqrt((np.var(scored, ddof=1) + np.var(fresh, ddof=1)) / 60.0)
    assert abs(np.mean(scored) - np.mean(fresh)) < 4.0 * error
