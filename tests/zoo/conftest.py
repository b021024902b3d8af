"""What the tests of the zoo share: records made by hand, and jobs done here, in this process."""

import os

import pytest
from benchmarks.zoo import jobs, scores
from benchmarks.zoo.jobs import FIELDS


class Messages(list):
    """The end of a pipe that keeps what is sent."""

    send = list.append

    @property
    def records(self):
        return [record for message in self if isinstance(message, list) for record in message]


@pytest.fixture
def few_points(monkeypatch):
    """Clouds are compared by a hundred of their points: exact transport is cubic in them."""
    monkeypatch.setattr(scores, "MOST_POINTS", 100)


@pytest.fixture
def done_here(monkeypatch):
    """A function that does a job in this process and gives its messages."""
    monkeypatch.setattr(os, "setpgrp", lambda: None)

    def do(job):
        pipe = Messages()
        jobs.work(pipe, job)
        return pipe

    return do


@pytest.fixture
def record():
    """A function that makes a record of the given values."""

    def make(task, row, W1=None, *, seed=0, **values):
        trivial = {"floor": 1.0, "floor_sd": 0.1, "start": "-"}
        known = {"task": task, "row": row, "seed": seed, "W1": W1, "W2": W1, "answer": True}
        beside = trivial if row in ("persistence", "midpoint", "continuation") else {}
        blank = dict.fromkeys(FIELDS) | {"start": "previous", "warnings": [], "seconds": 2.0}
        return blank | known | beside | values

    return make
