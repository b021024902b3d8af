"""Data that break linear algebra: every fit ends with an Outcome, and what it says is finite.

Nothing but an `InputError` may come out of a fit, or out of a question to it afterwards.
"""

import contextlib
import warnings

import numpy as np
import pytest

from itofit import Bridge, FitWarning, FokkerPlanckProcess, InputError, Judged, Moments, Outcome
from itofit.snapshots import Snapshots

N = 40
SOLVERS = {
    "moments": Moments(n_draws=2, n_iter=25, polynomials=False),
    "bridge": Bridge(n_features=40, n_passes=4, n_points=64),
    "judged": Judged(n_features=40, n_passes=4),
}


def usual():
    rng = np.random.default_rng(0)
    return [rng.normal(0.7 * k, 0.6, (N, 2)) for k in range(3)]


def three_points_a_day():
    return [x[:3] for x in usual()]


def a_day_of_three_points():
    first, middle, last = usual()
    return [first, middle[:3], last]


def two_points_a_day():
    return [x[:2] for x in usual()]


def one_coordinate_twice():
    return [np.column_stack([x[:, 0], 2.0 * x[:, 0]]) for x in usual()]


def near_duplicates():
    rng = np.random.default_rng(1)
    return [np.repeat(x[:5], N // 5, axis=0) + rng.normal(0.0, 1e-9, (N, 2)) for x in usual()]


def a_day_shifted():
    first, middle, last = usual()
    return [first, middle + [0.0, 18.0], last]


def constant_on_a_day():
    first, middle, last = usual()
    return [first, np.column_stack([middle[:, 0], np.full(N, 0.3)]), last]


def constant_on_the_first_day():
    first, *later = usual()
    return [np.column_stack([first[:, 0], np.full(N, 0.3)]), *later]


def an_outlier():
    first, middle, last = usual()
    middle[0] = [1e8, -1e8]
    return [first, middle, last]


CASES = [
    three_points_a_day,
    a_day_of_three_points,
    two_points_a_day,
    one_coordinate_twice,
    near_duplicates,
    a_day_shifted,
    constant_on_a_day,
    constant_on_the_first_day,
    an_outlier,
]


def fitted(solver, clouds):
    """A fit whose warnings are not errors; None where the data were refused."""
    with warnings.catch_warnings(action="ignore", category=FitWarning):
        try:
            model = FokkerPlanckProcess(solver=SOLVERS[solver], dt=0.2, random_state=0)
            return model.fit(Snapshots.from_arrays(clouds, np.arange(float(len(clouds)))))
        except InputError:
            return None


def is_finite_or_refused(question):
    with contextlib.suppress(InputError):
        assert np.all(np.isfinite(question()))
    return True


def check(solver, case):
    model = fitted(solver, case())
    if model is None:
        return
    assert isinstance(model.outcome_, Outcome)
    for time in (0.5, 1.0, 2.5):
        assert is_finite_or_refused(lambda time=time: model.predict(time))
    x = np.zeros((1, 2))
    assert np.all(np.isfinite(model.drift(x)))
    assert is_finite_or_refused(lambda: model.drift_std(x))
    assert is_finite_or_refused(lambda: model.bands([1.0]).mean_std)
    evidence = getattr(model.solution_, "evidence", None)
    if evidence is not None and model.outcome_ is Outcome.converged:
        assert evidence.can_judge
        assert not evidence.contradicted
        assert model.goodness_of_fit().can_judge


@pytest.mark.parametrize("case", CASES)
def test_a_bridge_fit_ends(case):
    check("bridge", case)


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES)
def test_a_moments_fit_ends(case):
    check("moments", case)


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES)
def test_a_judged_fit_ends(case):
    check("judged", case)


@pytest.mark.parametrize("case", [three_points_a_day, two_points_a_day])
def test_what_cannot_be_judged_is_not_called_converged(case):
    model = fitted("moments", case())
    assert model.outcome_ is Outcome.unjudged
    assert model.outcome_.is_good
    assert np.isnan(model.solution_.evidence.reduced_chi2)
    assert not model.goodness_of_fit().can_judge
    assert "cannot be judged" in str(model.goodness_of_fit())
    assert "cannot be judged" in model.solution_.doubts()[0]


def test_a_bridge_fit_that_misses_a_day_is_not_called_converged():
    """Days 0 and 2 are one law; day 1 is 30 sds away and day 3 is not: no process does both.

    Of a moments fit: tests/trust/test_contradicted.py.
    """
    rng = np.random.default_rng(2)
    clouds = list(rng.normal(0.0, 0.6, (4, N, 2)))
    clouds[1] = clouds[1] + [0.0, 18.0]
    model = fitted("bridge", clouds)
    assert model.outcome_ is Outcome.contradicted
    assert model.outcome_.is_good
    assert "misses the snapshot at t = " in model.solution_.doubts()[0]
