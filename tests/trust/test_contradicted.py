"""A drift that the snapshots contradict: what the fit is called, and how wide its errors are."""

from dataclasses import replace

import jax.numpy as jnp
import numpy as np
import pytest

from itofit import FitWarning, FokkerPlanckProcess, Moments, Outcome
from itofit.snapshots import Snapshots
from itofit.trust.bands import bands
from itofit.trust.posterior import drift_draws

# Errors that come of the same draws, whatever else is asked before.
SAME = 1e-6


def there_and_back(apart):
    """Three clouds, the middle one away from the others."""
    rng = np.random.default_rng(0)
    clouds = [rng.normal(shift, 1.0, (200, 1)) for shift in (0.0, apart, 0.0)]
    return Snapshots.from_arrays(clouds, [0.0, 0.5, 1.0])


def constant_drift(snapshots):
    """The one drift it may have is the same everywhere, and moves the cloud one way."""
    solver = Moments(dictionary=lambda x: jnp.ones(1), n_draws=2)
    return FokkerPlanckProcess(0.1, dt=0.1, solver=solver, random_state=0).fit(snapshots)


@pytest.fixture(scope="module")
def contradicted():
    with pytest.warns(FitWarning, match="chi-squared"):
        return constant_drift(there_and_back(2.0))


@pytest.fixture(scope="module")
def explained():
    return constant_drift(there_and_back(0.0))


def as_explained(solution):
    """The same solution with the chi-squared of a true model."""
    evidence = solution.evidence
    return replace(solution, evidence=replace(evidence, chi2=evidence.freedom * evidence.row_mean))


def test_it_is_not_called_converged(contradicted, explained):
    assert contradicted.outcome_ is Outcome.contradicted
    assert contradicted.outcome_.is_good
    assert contradicted.goodness_of_fit().rejects()
    assert explained.outcome_ is Outcome.converged


def test_the_advice_is_not_refused(contradicted):
    """A dictionary of one's own and a clock do not go together."""
    (doubt,) = contradicted.solution_.doubts()
    assert "time_varying" not in doubt
    assert "sigma" in doubt


def test_errors_are_wider_by_the_root_of_the_excess(contradicted):
    solution = contradicted.solution_
    plain = as_explained(solution)
    factor = np.sqrt(np.sum(solution.evidence.chi2) / np.sum(plain.evidence.chi2))
    assert factor > 2.0
    x = np.zeros((1, 1))
    wide = drift_draws(solution)
    np.testing.assert_allclose(wide.spread(x), factor * drift_draws(plain).spread(x), rtol=SAME)
    wider = bands(solution, [0.3, 1.5])
    narrow = bands(plain, [0.3, 1.5])
    np.testing.assert_allclose(wider.mean, narrow.mean, rtol=SAME)
    np.testing.assert_allclose(wider.mean_std, factor * narrow.mean_std, rtol=SAME)
    np.testing.assert_allclose(wider.quantile_std, factor * narrow.quantile_std, rtol=SAME)
    assert wider.widened == pytest.approx(factor)
    assert "widened" in str(wider)
    assert "widened" in contradicted.reliability()


def test_errors_of_what_is_explained_are_as_they_were(explained):
    assert explained.solution_.evidence.widening == 1.0
    answer = explained.bands([0.3])
    assert answer.widened == 1.0
    assert "widened" not in str(answer)
    assert "widened" not in explained.reliability()
