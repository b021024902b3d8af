"""The few lines that sum up a fit."""

import re

import jax
import numpy as np
import pytest

from itofit import known_system

pytestmark = pytest.mark.slow


def test_a_report_holds_every_part_with_the_numbers_of_that_part(model):
    said = model.reliability()
    assert str(model.goodness_of_fit()) in said
    assert str(model.identifiability()) in said
    share = float(re.search(r"standard error ([\d.]+) %", said)[1])
    pooled = np.concatenate(model.snapshots_.clouds)
    size = [
        np.sqrt(np.mean((g / model.scaling_.sd) ** 2))
        for g in (model.drift_std(pooled), model.drift(pooled))
    ]
    assert share == pytest.approx(100 * size[0] / size[1], rel=0.2)  # there 500 of the 900 points
    assert "0.9 sigma moves the drift by" in said
    assert "Prop. 3" in said
    assert "dx1/dt" in said or "no polynomial" in said


def test_a_scorecard_ends_with_the_test_of_the_fit(model):
    held_out = known_system("ou").observe(100, [0.6], key=jax.random.key(1))
    card = model.scorecard(held_out)
    assert f"p = {model.goodness_of_fit().p_value:.2g}" in str(card)
    assert card.notes[0].startswith("fit: chi-squared")
