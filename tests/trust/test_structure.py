"""Models drawn by their posterior probability, against enumeration."""

from itertools import product

import numpy as np

from itofit.moments.relevance import EXCLUDED
from itofit.trust.structure import LOOSE, WIDE, WIDTH, draw_structures, loose_precisions


def test_models_appear_as_often_as_their_posterior_probability():
    """One unknown that is always in and three that may be: 8 models, all enumerated.

    4000 models a unit of time apart. Junk dies at a rate near 1, so draws are nearly independent; a
    correlation time of two units makes the standard error of a frequency at most sqrt(2 * 0.25 * 2
    / 4000) = 0.016, and 4 of them 0.063.
    """
    rng = np.random.default_rng(0)
    J = rng.standard_normal((20, 4))
    b = J @ np.asarray([2.0, 0.45, 0.25, 0.0]) + rng.standard_normal(20)
    log_odds = np.asarray([np.inf, 0.0, -0.5, -1.0])
    used = np.asarray([0.1, 0.4, 0.5, 0.6])
    inside = np.arange(4) == 0
    drawn = draw_structures(J, J.T @ b, used, inside, log_odds, 4000, np.random.default_rng(1))
    frequency = np.mean([[p in model.inside for p in range(4)] for model in drawn], axis=0)

    def log_weight(inside):
        covariance = np.eye(20) + (J[:, inside] / used[inside]) @ J[:, inside].T
        squares = b @ np.linalg.solve(covariance, b)
        evidence = -0.5 * np.linalg.slogdet(covariance)[1] - 0.5 * squares
        return evidence + np.sum(log_odds[inside[1:]])

    models = [np.flatnonzero([True, *marks]) for marks in product([False, True], repeat=3)]
    weight = np.exp([log_weight(model) for model in models])
    weight /= weight.sum()
    truth = [
        sum(w for w, model in zip(weight, models, strict=True) if p in model) for p in range(4)
    ]
    assert 0.1 < truth[2] < 0.9  # else nothing is tested
    np.testing.assert_allclose(frequency, truth, atol=0.063)


def test_without_candidates_the_model_stays():
    J = np.eye(3)[:, :1]
    b = np.ones(3)
    always = np.asarray([np.inf])
    rng = np.random.default_rng(0)
    drawn = draw_structures(J, J.T @ b, np.ones(1), always > 0, always, 5, rng)
    assert [(m.inside.tolist(), m.precision.tolist()) for m in drawn] == [([0], [1.0])] * 5


def test_priors_of_draws_are_as_wide_as_their_standard_errors():
    """Orthogonal columns: the standard error of each is one over its length, whatever else is in
    the model.
    """
    J = np.diag([10.0, 10.0, 10.0, 5.0, 5.0])
    fitted = np.asarray([1e-3, 1.0, 90.0, EXCLUDED, EXCLUDED])
    loose = loose_precisions(J, J, fitted, np.arange(5) == 4)
    np.testing.assert_allclose(loose, [1e-3, 1.0, 100.0 / LOOSE, 25.0 / WIDTH, 25.0 / WIDE])
