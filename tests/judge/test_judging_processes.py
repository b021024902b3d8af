"""Judging on several processes: the same answers in the same order, even where a process breaks."""

import multiprocessing
import os
import time
from dataclasses import dataclass

import jax
import numpy as np
import pytest

import itofit
from itofit.bridge.solution import PassLog
from itofit.errors import FitWarning
from itofit.judge.processes import each
from itofit.judge.solver import Judged

PARENT = os.getpid()


def children():
    return [child for child in multiprocessing.active_children() if child.is_alive()]


@dataclass(frozen=True)
class Halved:
    """Half of a number, a pass told of, and the process it was done in."""

    def __call__(self, item, log):
        log.note(float(item))
        return item / 2, os.getpid()


@dataclass(frozen=True)
class Mortal:
    """Ends every process but the one it came from, for odd numbers."""

    parent: int

    def __call__(self, item, log):
        if item % 2 and os.getpid() != self.parent:
            os._exit(1)
        return item


@dataclass(frozen=True)
class Slow:
    """Is done at once for zero, and for nothing else in any time that counts."""

    def __call__(self, item, log):
        log.note(0.0)
        if item:
            time.sleep(600.0)
        return item


@dataclass(frozen=True)
class Refusing:
    def __call__(self, item, log):
        raise itofit.InputError(expected="nothing", found=str(item), hint="rest")


def test_answers_and_passes_come_in_the_order_of_the_items():
    log = PassLog(3, ())
    answers = each(Halved(), [3, 1, 2], log, jobs=2)
    assert [half for half, _ in answers] == [1.5, 0.5, 1.0]
    assert PARENT not in {process for _, process in answers}
    assert log.missed == [3.0, 1.0, 2.0]
    assert not children()


@pytest.mark.parametrize(("items", "jobs"), [([3], 4), ([3, 1, 2], 1), ([], 2)])
def test_no_process_begins_for_a_single_item_or_job(items, jobs):
    log = PassLog(3, ())
    assert each(Halved(), items, log, jobs) == [(item / 2, PARENT) for item in items]
    assert log.missed == items


def test_what_a_process_did_not_answer_is_done_here():
    with pytest.warns(FitWarning, match="ended before its time"):
        answers = each(Mortal(PARENT), [1, 2, 3, 5], PassLog(4, ()), jobs=2)
    assert answers == [1, 2, 3, 5]
    assert not children()


def test_an_exception_comes_back_and_processes_end(refused):
    with refused("nothing", "rest"):
        each(Refusing(), [1, 2], PassLog(2, ()), jobs=2)
    assert_ended()


def test_ctrl_c_ends_processes_at_work():
    def pressed(progress):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        each(Slow(), [0, 1, 1], PassLog(3, (pressed,)), jobs=2)
    assert_ended()


def assert_ended():
    """A process that was not ended would sleep on for minutes.

    The executor's own thread waits for it too: for a moment both may have been told nothing yet.
    """
    deadline = time.monotonic() + 60.0
    while children() and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not children()


def test_what_cannot_travel_is_refused_before_any_process_begins(refused):
    with refused("jobs is above 1", "jobs=1"):
        each(lambda item, log: item, [1, 2], PassLog(2, ()), jobs=2)


def test_bad_jobs_are_refused(refused):
    with refused("jobs"):
        Judged(jobs=0)


@pytest.mark.slow
def test_a_fit_is_the_same_bit_for_bit():
    snapshots = itofit.known_system("ou").observe(60, [0.0, 0.5, 1.0], key=jax.random.key(3))
    models = []
    told = []
    for jobs in (1, 2):
        solver = Judged(n_passes=4, n_features=40, jobs=jobs)
        model = itofit.FokkerPlanckProcess(0.7, dt=0.05, solver=solver, random_state=0)
        heard = []
        models.append(model.fit(snapshots, listeners=[heard.append]))
        told.append([progress.n_done for progress in heard if progress.n_total == 24])
    one, two = (model.selection_ for model in models)
    assert [row.scores for row in one.judgements] == [row.scores for row in two.judgements]
    assert (one.between, one.beyond) == (two.between, two.beyond)
    assert told[0] == told[1]
    clouds = [model.forecast([0.3, 1.4], 50).clouds for model in models]
    for a, b in zip(*clouds, strict=True):
        np.testing.assert_array_equal(a, b)
