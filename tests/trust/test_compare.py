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
        rest = {
            "floor_kind": "system",
            "n_model": 9,
            "n_test": 9,
            "persistence": None,
            "midpoint": None,
        }
        return Scorecard(
            tuple(
                Score(float(t), metric, v, 1.0, 0.2, v - 1.0, **rest)
                for t, v in enumerate(self.values)
            )
        )


HELD_OUT = Snapshots.from_arrays([np.zeros((3, 1)), np.ones((3, 1))], [0.0, 1.0])


def test_models_inside_the_noise_share_a_rank():
    """Two sds of a difference are 0.4: 2.0 and 2.3 are alike, 2.5 is not, and 2.6 is like that."""
    models = {
        "d": Fixed(2.6, 2.6),
        "a": Fixed(2.0, 2.0),
        "c": Fixed(2.5, 2.5),
        "b": Fixed(2.2, 2.4),
    }
    found = compare(models, HELD_OUT)
    assert [(row.name, row.rank) for row in found.rows] == [("a", 1), ("b", 1), ("c", 3), ("d", 3)]
    assert "cannot be told apart" in str(found)
    assert found.to_records()[0]["sd"] == pytest.approx(0.2 / np.sqrt(2))


def test_models_at_the_floor_are_not_ranked():
    found = compare(
        {"lucky": Fixed(0.7, 0.6), "fair": Fixed(1.2, 1.3), "bad": Fixed(3.0, 3.0)}, HELD_OUT
    )
    assert [(row.name, row.rank, row.at_floor) for row in found.rows] == [
        ("lucky", 1, True),
        ("fair", 1, True),
        ("bad", 3, False),
    ]


def test_bad_input_is_refused():
    with pytest.raises(InputError, match="one model"):
        compare({}, HELD_OUT)
    with pytest.raises(InputError, match="metric"):
        compare({"a": Fixed(1.0)}, HELD_OUT, metric="W7")
