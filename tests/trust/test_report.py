"""The few lines that sum up a fit."""

import re

import jax
import numpy as np
import pytest

from itofit import known_system

pytestmark = pytest.mark.slow


def test_a_report_holds_every_part_with_the_numbers_of_that_part(model):
    report = model.reliability()
    assert str(model.goodness_of_fit()) in report
    assert str(model.identifiability()) in report
    percent = float(re.search(r"standard error ([\d.]+) %", report)[1])
    pooled = np.concatenate(model.snapshots_.clouds)
    error = np.sqrt(np.mean((model.drift_std(pooled) / model.scaling_.sd) ** 2))
    size = np.sqrt(np.mean((model.drift(pooled) / model.scaling_.sd) ** 2))
    assert percent == pytest.approx(100 * error / size, rel=0.2)  # there 500 of the 900 points
    assert "0.9 sigma moves the drift by" in report
    assert "Prop. 3" in report
    assert "dx1/dt" in report or "no polynomial" in report


def test_a_scorecard_ends_with_the_test_of_the_fit(model):
    held_out = known_system("ou").observe(100, [0.6], key=jax.random.key(1))
    card = model.scorecard(held_out)
    assert f"p = {model.goodness_of_fit().p_value:.2g}" in str(card)
    assert card.notes[0].startswith("fit: chi-squared")
