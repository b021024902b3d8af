"""The leaderboard against numbers worked out by hand, tables, the picture, two runs compared."""

import json

import numpy as np
import pytest
from benchmarks.zoo import __main__ as command
from benchmarks.zoo.compare import changes, comparison
from benchmarks.zoo.leaderboard import (
    Results,
    labelled,
    leaderboard,
    ratio_of_truth,
    spread_of_truth,
)
from benchmarks.zoo.picture import draw
from benchmarks.zoo.tables import failure_table, leaderboard_table, task_table


@pytest.fixture
def records(record):
    """Two seeds of three tasks; floors are 1.0, 0.1 wide."""
    return [
        # an interpolation: the best trivial row is 2, then 4
        record("ring", "persistence", 8.0),
        record("ring", "midpoint", 2.0),
        record("ring", "persistence", 4.0, seed=1),
        record("ring", "midpoint", 5.0, seed=1),
        record("ring", "itofit", 1.0, seconds=10.0),
        record("ring", "itofit", 4.0, seed=1, seconds=30.0),
        record("ring", "itofit", 3.0, answer=False, start="bridge"),
        # a forecast: it fails once
        record("toggle", "persistence", 2.0),
        record("toggle", "continuation", 3.0),
        record("toggle", "persistence", 2.0, seed=1),
        record("toggle", "continuation", 1.5, seed=1),
        record("toggle", "itofit", 8.0, seconds=20.0),
        record("toggle", "itofit", seed=1, seconds=300.0, failure="past its budget of 300 s"),
        # nothing moves: worse than the best row, but within 2 sd of the floor
        record("at_rest", "persistence", 1.0),
        record("at_rest", "continuation", 1.4),
        record("at_rest", "itofit", 1.15, seconds=40.0),
    ]


def test_six_figures_by_hand(records):
    figures = {figure.method: figure for figure in leaderboard(Results(records))}
    ours = figures["itofit"]
    assert (ours.n_tasks, ours.n_fits, ours.failures) == (3, 5, 1)
    # the ring at 0.5 and 1, at rest inside the floor; the toggle failed
    assert ours.fraction_well == pytest.approx(2.0 / 3.0)
    ring = np.sqrt(0.5 * 1.0)
    assert ours.ratio == pytest.approx((ring * 4.0 * 1.15) ** (1.0 / 3.0))
    assert ours.ratio_moving == pytest.approx(np.sqrt(ring * 4.0))
    assert (ours.worst, ours.worst_task) == (4.0, "toggle")
    assert (ours.spread, ours.worst_spread) == (4.0, 4.0)
    assert (ours.seconds, ours.worst_seconds) == (30.0, 300.0)
    assert figures["itofit, second start"].n_tasks == 1
    # best at the ring with the second seed, at the toggle with the first, and at rest
    stays = figures["persistence"]
    assert stays.failures == 0
    assert stays.ratio == pytest.approx((2.0 * np.sqrt(2.0 / 1.5) * 1.0) ** (1.0 / 3.0))


def test_methods_stand_in_the_order_of_the_rows(records):
    assert list(Results(records[::-1]).cases) == [
        "persistence",
        "midpoint",
        "continuation",
        "itofit",
        "itofit, second start",
    ]


def test_inside_the_floor_is_a_mean_over_seeds(record):
    def at_floor(*scores):
        records = [record("ring", "midpoint", 0.5, seed=k) for k in range(len(scores))]
        records += [record("ring", "itofit", value, seed=k) for k, value in enumerate(scores)]
        return Results(records).cases["itofit"]["ring"].at_floor

    assert at_floor(1.05, 1.3)
    assert not at_floor(1.1, 1.35)


def test_a_perfect_model_has_a_ratio(records):
    ring = np.sqrt(0.5 * 0.25)
    toggle = np.sqrt(0.5 / 1.5)
    assert ratio_of_truth(Results(records)) == pytest.approx((ring * toggle) ** (1.0 / 3.0))


def test_a_perfect_model_has_a_spread(record):
    """Over the seeds of a task, one of which has 1.5 times the floor; of one seed there is none."""
    records = [record("ring", "midpoint", 2.0, seed=seed) for seed in range(3)]
    assert spread_of_truth(Results(records[:1])) is None
    records[1]["floor"] *= 1.5
    records += [record("toggle", "persistence", 2.0, seed=seed) for seed in range(2)]
    assert spread_of_truth(Results(records)) == pytest.approx(1.25)


def test_tables_in_words(records):
    results = Results(records)
    board = leaderboard_table(results).splitlines()
    assert "| itofit | 3 | 1 of 5 | 67 % | 1.48 | 1.68 | 4.00 (toggle) |" in board[5]
    lines = task_table(results).splitlines()
    assert lines[2] == "| ring | interpolate | 1 | 2.83 midpoint or persistence | 0.71 | 1.50 |"
    assert (
        lines[3]
        == "| toggle | forecast | 1 | 1.73 continuation or persistence | 4.00, 1 failed |  |"
    )
    assert lines[4] == "| at_rest | forecast | 1 | 1 persistence | 1.15° |  |"
    assert "| toggle | itofit | 1 | past its budget of 300 s |" in failure_table(results)
    assert failure_table(Results(records[:4])) == ""


def test_without_trivial_rows_there_are_no_ratios(record):
    figures = leaderboard(Results([record("ring", "itofit", 1.0)]))[0]
    assert figures.ratio is figures.worst is None
    assert figures.fraction_well == 0.0


def test_two_states_of_a_row_stand_side_by_side(records):
    old = labelled(records, "v0")
    assert [r["row"] for r in old[:2]] == ["persistence", "midpoint"]
    results = Results([*old, *records])
    assert list(results.cases)[3:] == [
        "itofit",
        "itofit, second start",
        "itofit (v0)",
        "itofit (v0), second start",
    ]
    assert results.cases["persistence"]["ring"].ratios == {0: 4.0, 1: 1.0}


def test_finished_files_are_printed_and_drawn(records, tmp_path, capsys):
    path = tmp_path / "zoo.json"
    picture = tmp_path / "zoo.png"
    path.write_text(json.dumps(records))
    words = ["--print", f"v0={path}", str(path), "--picture", str(picture)]
    assert command.main(words) == 0
    assert "| itofit (v0) |" in capsys.readouterr().out
    assert picture.read_bytes().startswith(b"\x89PNG")
    assert command.main(["--print", str(path), "--tasks", "cycles", "toggle"]) == 0
    table = capsys.readouterr().out
    assert "| toggle |" in table
    assert "| ring |" not in table


def test_the_picture_passes_over_what_is_missing(record, tmp_path):
    records = [record("ring", "midpoint", 1.0), record("toggle", "itofit", failure="late")]
    draw(Results(records), tmp_path / "zoo.png")
    assert (tmp_path / "zoo.png").exists()


@pytest.fixture
def ran(record):
    """A run of three seeds with these scores of `itofit` on the ring; None is a failure."""

    def run(*scores):
        trivial = [record("ring", "midpoint", 1.0, seed=seed) for seed in range(3)]
        ours = [
            record("ring", "itofit", score, seed=seed, failure="late" if score is None else None)
            for seed, score in enumerate(scores)
        ]
        return Results([*trivial, *ours])

    return run


def test_a_change_beyond_the_spread_of_seeds_is_reported(ran):
    found = changes(ran(1.0, 1.2, 1.1), ran(0.8, 0.9, 0.7))
    (change,) = found.better
    assert (change.method, change.task) == ("itofit", "ring")
    assert change.old == pytest.approx((1.0 * 1.2 * 1.1) ** (1.0 / 3.0))
    assert change.new == pytest.approx((0.8 * 0.9 * 0.7) ** (1.0 / 3.0))
    assert found.worse == found.mended == found.broken == []
    assert len(changes(ran(0.8, 0.9, 0.7), ran(1.0, 1.2, 1.1)).worse) == 1


def test_a_change_within_the_spread_or_of_a_hundredth_is_not(ran):
    within = changes(ran(1.0, 1.2, 1.1), ran(0.9, 1.05, 0.8))
    small = changes(ran(1.0, 1.0, 1.0), ran(1.01, 1.01, 1.01))
    assert within.better == within.worse == small.better == small.worse == []
    assert within.n_compared == 2


def test_only_seeds_of_both_runs_are_compared(ran):
    both = changes(ran(1.0, 5.0, None), ran(2.0, None, 3.0))
    assert [(change.old, change.new) for change in both.worse] == [(1.0, 2.0)]
    assert both.mended == ["ring  itofit  seed 2: late"]
    assert both.broken == ["ring  itofit  seed 1: late"]
    text = comparison(ran(1.0, 5.0, None), ran(2.0, None, 3.0))
    assert "worse: 1\n  ring  itofit  1.00 -> 2.00" in text


def test_two_files_are_compared(records, tmp_path, capsys):
    for name in ("old.json", "new.json"):
        (tmp_path / name).write_text(json.dumps(records))
    assert command.main(["--compare", str(tmp_path / "old.json"), str(tmp_path / "new.json")]) == 0
    assert "better: 0\nworse: 0" in capsys.readouterr().out
