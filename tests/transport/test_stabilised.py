"""Entropic plans at temperature 1, in single precision, for near and for far clouds."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.optimize import linear_sum_assignment
from scipy.special import logsumexp

from itofit.transport.stabilised import conditional_plan, whitened_costs

PLAN = jax.jit(conditional_plan)


def single(array):
    return jnp.asarray(array, dtype=jnp.float32)


def plan_of(x, y, a, b, factor=1.0):
    """P(j | i) as the package computes it."""
    costs = factor * whitened_costs(single(x), single(y))
    return np.asarray(PLAN(costs, single(a), single(b)), dtype=np.float64)


def sinkhorn_in_doubles(C, a, b, n_rounds=20_000):
    """P(j | i) by plain alternation of logarithms, in double precision."""
    g = np.zeros(len(b))
    for _ in range(n_rounds):
        f = -logsumexp(g - C + np.log(b), axis=1)
        g = -logsumexp(f[:, None] - C + np.log(a)[:, None], axis=0)
    log_rows = g - C + np.log(b)
    return np.exp(log_rows - logsumexp(log_rows, axis=1, keepdims=True))


def costs_in_doubles(x, y):
    return 0.5 * np.sum((x[:, None] - y) ** 2, axis=-1)


def misplaced_mass(columns, b):
    return 0.5 * np.sum(np.abs(columns - b))


def weighted_clouds(seed=0, n=40, m=30, n_dims=2):
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((n, n_dims))
    y = 1.5 * rng.standard_normal((m, n_dims)) + 0.7
    return x, y, rng.dirichlet(np.full(n, 2.0)), rng.dirichlet(np.full(m, 2.0))


def test_costs_are_half_the_squared_distances():
    x, y, *_ = weighted_clouds()
    costs = whitened_costs(single(x), single(y))
    np.testing.assert_allclose(costs, costs_in_doubles(x, y), rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize(
    ("spread", "misplaced"), [(0.3, 1e-5), (1.0, 1e-5), (3.0, 3e-3), (5.0, 0.01)]
)
def test_rows_sum_to_one_and_columns_to_the_weights(spread, misplaced):
    """Rows to rounding, 1e-5. Alternation stops by count, which leaves more of the mass in wrong
    columns the larger the costs are; what may be there is about twice what is.
    """
    x, y, a, b = weighted_clouds()
    plan = plan_of(spread * x, spread * y, a, b)
    assert np.all(plan >= 0.0)
    np.testing.assert_allclose(plan.sum(axis=1), 1.0, atol=1e-5)
    assert misplaced_mass(a @ plan, b) < misplaced


@pytest.mark.parametrize(("spread", "most"), [(0.3, 1e-4), (1.0, 1e-4), (3.0, 0.04)])
def test_the_plan_is_that_of_sinkhorn_in_double_precision(spread, most):
    """Entry by entry: single precision keeps 1e-6 of costs of order 10; for costs of order 100
    alternation stops early, and a row that two columns share is off by a few hundredths.
    """
    x, y, a, b = weighted_clouds(1)
    expected = sinkhorn_in_doubles(costs_in_doubles(spread * x, spread * y), a, b, 3000)
    np.testing.assert_allclose(plan_of(spread * x, spread * y, a, b), expected, atol=most)


def test_points_of_no_weight_take_no_part_wherever_they_are():
    """The filled-up plan is that without the points; they lie 1000 sds away."""
    x, y, a, b = weighted_clouds(2)
    far = np.full((7, 2), 1000.0)
    plan = plan_of(
        np.concatenate([x, far]),
        np.concatenate([y, -far]),
        np.append(a, np.zeros(7)),
        np.append(b, np.zeros(7)),
    )
    assert np.all(np.isfinite(plan))
    np.testing.assert_array_equal(plan[:, len(y) :], 0.0)
    np.testing.assert_allclose(plan[: len(x), : len(y)], plan_of(x, y, a, b), atol=1e-3)


STOPS_EARLY = pytest.mark.xfail(
    strict=True, reason="a fixed count of alternations leaves whole points in the wrong column"
)


@pytest.mark.parametrize("seed", [3, pytest.param(4, marks=STOPS_EARLY), 5, 6, 7])
def test_a_nearly_cold_plan_is_the_exact_assignment(seed):
    """Costs of 1e4: of every row the largest entry, and all but a part of .02 of the mass."""
    plan, C = cold_plan(seed)
    rows, columns = linear_sum_assignment(C)
    np.testing.assert_array_equal(np.argmax(plan, axis=1), columns)
    assert np.mean(plan[rows, columns]) > 0.98


@pytest.mark.parametrize("seed", [3, 4, 5, 6, 7])
def test_a_nearly_cold_plan_is_nearly_optimal(seed):
    """One or two of thirty points may be in a wrong column, which is a part of .07 of the mass."""
    plan, C = cold_plan(seed)
    equal = np.full(30, 1.0 / 30)
    exact = C[linear_sum_assignment(C)].mean()
    assert misplaced_mass(equal @ plan, equal) < 0.07
    assert equal @ (plan * C).sum(axis=1) == pytest.approx(exact, rel=0.15)


def cold_plan(seed):
    x, y, *_ = weighted_clouds(seed, 30, 30)
    equal = np.full(30, 1.0 / 30)
    return plan_of(x, y, equal, equal, factor=1e4), costs_in_doubles(x, y)


def test_the_plan_does_not_change_when_a_cloud_is_carried_a_hundred_sds_away():
    """|x - y - s|^2 is |x - y|^2 and what depends on x or y alone.

    Costs of 10^4 are known to 1e-3, which is the tolerance of the logarithms and, since no entry is
    above 1, of the plan; three times it is allowed.
    """
    x, y, a, b = weighted_clouds(6)
    near = plan_of(x, y, a, b)
    far = plan_of(x, y + np.array([100.0, -70.0]), a, b)
    assert np.all(np.isfinite(far))
    np.testing.assert_allclose(far, near, atol=3e-3)


def test_a_single_pair_is_certain():
    np.testing.assert_allclose(plan_of([[0.0]], [[50.0]], [1.0], [1.0]), [[1.0]], atol=1e-6)
