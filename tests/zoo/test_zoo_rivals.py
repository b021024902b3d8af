"""Rivals: the protocol with a rival made here, which runs in this environment."""

import sys
from pathlib import Path

import numpy as np
import pytest
from benchmarks.rivals import protocol, run
from benchmarks.rivals.protocol import Given, Question
from benchmarks.rivals.run import Declined, Rival, RivalFailed, ask, names, rival
from benchmarks.zoo.rows import RIVALS, Answered, rival_row
from benchmarks.zoo.rows import Question as ZooQuestion

from itofit import Snapshots

ADAPTER = """
import numpy as np
from protocol import decline, serve


def fit(given):
    assert set(vars(given)) == {"times", "clouds", "seed"}
    np.testing.assert_allclose(np.concatenate(given.clouds).std(axis=0), 1.0)

    def move(leg):
        if leg.end > 5.0:
            decline("it reaches to 5 only")
        if leg.end == 4.5:
            raise FloatingPointError("in the depths")
        if leg.end == 4.0:
            return leg.points * np.nan
        # to the right by one spread a unit of time, up by the seed
        shift = np.array([leg.end - leg.begin, given.seed])
        return leg.points + shift

    return move


serve(fit)
"""
TIMES = (1.0, 3.0, 5.0, 9.0)


@pytest.fixture(scope="module")
def fake(tmp_path_factory):
    folder = tmp_path_factory.mktemp("fake")
    (folder / "adapter.py").write_text(ADAPTER)
    return Rival("fake", folder, Path(sys.executable))


@pytest.fixture(scope="module")
def given():
    rng = np.random.default_rng(0)
    clouds = [rng.normal([10.0 * k, -3.0], [1.0, 40.0], size=(5 + k, 2)) for k in range(4)]
    return Snapshots.from_arrays(clouds, TIMES)


def spread(given):
    return np.concatenate(given.clouds).std(axis=0)


def inside(points, cloud):
    """Whether all points are points of the cloud."""
    gaps = np.abs(points[:, None, :] - cloud[None, :, :]).max(axis=2).min(axis=1)
    return bool(np.all(gaps < 1e-9))


def test_a_rival_fits_once_and_forecasts_in_the_users_units(fake, given):
    answer = ask(fake, given, [4.0, 6.0], n=8, seed=2, starts=["previous", "initial"])
    assert answer.seconds >= 0.0
    # the median gap is 2: times are 0, 1, 2, 4, and 1.5 and 2.5 are asked for
    moves = {"previous": (0.5, 0.5), "initial": (1.5, 2.5)}
    begins = {"previous": given.clouds[1:3], "initial": (given.clouds[0],) * 2}
    for start, clouds in answer.clouds.items():
        assert clouds.shape == (2, 8, 2)
        for cloud, far, begin in zip(clouds, moves[start], begins[start], strict=True):
            back = cloud - np.array([far, 2.0]) * spread(given)
            assert inside(back, begin)
            # every point of the start once before any of it twice
            assert len(np.unique(np.round(back, 9), axis=0)) == min(8, len(begin))


def test_the_same_question_has_the_same_answer(fake, given):
    first, again = (ask(fake, given, [4.0], n=3, seed=1).clouds["previous"] for _ in range(2))
    assert np.array_equal(first, again)


@pytest.mark.parametrize(
    ("time", "fault", "words"),
    [
        (12.0, Declined, "^it reaches to 5 only$"),
        (10.0, RivalFailed, "fake ended with code 1:.*in the depths"),
        (9.0, RivalFailed, "not finite"),
    ],
)
def test_a_rival_without_an_answer_says_why(fake, given, time, fault, words):
    with pytest.raises(fault, match=f"(?s){words}"):
        ask(fake, given, [time], n=3, seed=0)


def test_what_cannot_be_asked_is_refused(fake, given, refused, tmp_path):
    absent = Rival("absent", fake.folder, tmp_path / "bin" / "python")
    with refused("an environment for absent", "--install absent"):
        ask(absent, given, [2.0], n=3, seed=0)
    with refused("starts of previous and initial", "bridge"):
        ask(fake, given, [2.0], n=3, seed=0, starts=["bridge"])
    weights = [np.arange(1.0, 1.0 + len(cloud)) for cloud in given.clouds]
    uneven = Snapshots.from_arrays(list(given.clouds), TIMES, weights)
    with refused("points that all count the same"):
        ask(fake, uneven, [2.0], n=3, seed=0)
    with refused("a rival, one of", "'nobody'"):
        rival("nobody")


def test_a_question_before_all_snapshots_is_declined(capsys):
    only = Given(np.array([0.0, 1.0]), (np.zeros((2, 1)), np.ones((2, 1))), seed=0)
    question = Question(only, np.array([-1.0]), 2, ("previous",), np.zeros(1), np.ones(1))
    with pytest.raises(SystemExit) as ended:
        question.leg("previous", -1.0)
    assert ended.value.code == protocol.CANNOT
    assert "no snapshot lies before" in capsys.readouterr().err


def test_a_row_of_the_zoo_asks_a_rival(fake, given, monkeypatch):
    monkeypatch.setattr("benchmarks.zoo.rows.rival", lambda name: fake)
    row = rival_row("fake", {"forecast": ("previous",)})
    question = ZooQuestion((4.0,), 3, ("previous",))
    fitted = row.fit(given, question, 1)
    assert isinstance(fitted, Answered)
    (cloud,) = fitted.clouds(question, "previous")
    assert inside(cloud - np.array([0.5, 1.0]) * spread(given), given.clouds[1])
    assert set(fitted.notes()) == {"seconds"}


def test_every_rival_has_its_folder_and_short_adapter():
    assert set(names()) == set(RIVALS)
    for name in names():
        folder = rival(name).folder
        assert "==" in (folder / "requirements.txt").read_text()
        assert len((folder / "adapter.py").read_text().splitlines()) <= 100


def test_environments_lie_where_the_variable_says(monkeypatch, tmp_path):
    monkeypatch.setenv(run.VARIABLE, str(tmp_path))
    assert rival("otcfm").python == tmp_path / "otcfm" / "bin" / "python"
    assert not rival("otcfm").installed
