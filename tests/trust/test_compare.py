"""Ranking that stops at the noise."""

import numpy as np
import pytest

from itofit import InputError, Snapshots, compare
from itofit.metrics.scorecard import Score, Scorecard


class Fixed:
    """A model with given scores at two times; floor 1, sd of one score 0.2, so that of the mean is
    0.141.
    """

    def __init__(self, *values):
        self.values = values

    def scorecard(self, held_out, *, truth, start, metrics):
        (metric,) = metrics
        scores = [
            Score(float(t), metric, value, 1.0, 0.2, value - 1.0, "system", 9, 9, None, None)
            for t, value in enumerate(self.values)
        ]
        return Scorecard(tuple(scores))


HELD_OUT = Snapshots.from_arrays([np.zeros((3, 1)), np.ones((3, 1))], [0.0, 1.0])


def test_models_inside_the_noise_share_a_rank():
    """Two sds of a difference are 0.4: 2.0 and 2.3 are alike, 2.5 is not, and 2.6 is like that."""
    models = {
        "d": Fixed(2.6, 2.6),
        "a": Fixed(2.0, 2.0),
        "c": Fixed(2.5, 2.5),
        "b": Fixed(2.2, 2.4),
    }
    table = compare(models, HELD_OUT)
    assert [(row.name, row.rank) for row in table.rows] == [("a", 1), ("b", 1), ("c", 3), ("d", 3)]
    assert "cannot be told apart" in str(table)
    assert table.to_records()[0]["sd"] == pytest.approx(0.2 / np.sqrt(2))


def test_models_at_the_floor_are_not_ranked():
    models = {"lucky": Fixed(0.7, 0.6), "fair": Fixed(1.2, 1.3), "bad": Fixed(3.0, 3.0)}
    rows = compare(models, HELD_OUT).rows
    assert [(row.name, row.rank) for row in rows] == [("lucky", 1), ("fair", 1), ("bad", 3)]
    assert [row.at_floor for row in rows] == [True, True, False]


def test_bad_input_is_refused():
    with pytest.raises(InputError, match="one model"):
        compare({}, HELD_OUT)
    with pytest.raises(InputError, match="metric"):
        compare({"a": Fixed(1.0)}, HELD_OUT, metric="W7")
