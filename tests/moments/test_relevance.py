"""Relevances: every formula against dense linear algebra and the Gaussian marginal likelihood."""

from typing import NamedTuple

import numpy as np
import pytest

from itofit.moments.relevance import (
    EXCLUDED,
    Posterior,
    Prior,
    gain_of,
    gain_of_two,
    pruned,
    relevances,
    selected_forward,
)
from itofit.process.features import Group


def log_evidence(J, b, diagonal):
    """Log N(b; 0, I + J Lambda^-1 J') with everything dense; a precision of infinity takes the
    column out.
    """
    covariance = np.eye(len(b)) + (J / diagonal) @ J.T
    _, log_det = np.linalg.slogdet(covariance)
    return -0.5 * (b @ np.linalg.solve(covariance, b) + log_det + len(b) * np.log(2.0 * np.pi))


class Linear(NamedTuple):
    """Rows b of J v, and a precision of every coefficient."""

    J: np.ndarray
    b: np.ndarray
    diagonal: np.ndarray


class Regression(NamedTuple):
    """Rows b = J v + noise, and the prior of the groups of columns."""

    J: np.ndarray
    b: np.ndarray
    v: np.ndarray
    prior: Prior


def problem(n_rows, n_coefficients, seed=0):
    rng = np.random.default_rng(seed)
    J = rng.standard_normal((n_rows, n_coefficients))
    J[:, 1] = J[:, 0] + 0.3 * J[:, 1]  # two columns that look alike
    b = 2.0 * rng.standard_normal(n_rows)
    return Linear(J, b, np.exp(rng.uniform(-2.0, 3.0, n_coefficients)))


# Fewer rows than coefficients is solved in the dual, more in the primal.
SHAPES = pytest.mark.parametrize(("n_rows", "n_coefficients"), [(6, 11), (11, 6), (8, 8)])


@SHAPES
def test_posterior_equals_the_dense_formulas(n_rows, n_coefficients):
    J, b, diagonal = problem(n_rows, n_coefficients)
    posterior = Posterior(J.copy(), diagonal)
    assert posterior.dual == (n_rows < n_coefficients)
    C = np.linalg.inv(J.T @ J + np.diag(diagonal))
    g = np.random.default_rng(1).standard_normal(n_coefficients)
    np.testing.assert_allclose(posterior.mean(b), C @ J.T @ b, rtol=1e-9, atol=1e-11)
    np.testing.assert_allclose(posterior.solve(g), C @ g, rtol=1e-9, atol=1e-11)
    np.testing.assert_allclose(posterior.covariance(), C, rtol=1e-9, atol=1e-11)
    gamma = posterior.determined()
    np.testing.assert_allclose(gamma, 1.0 - diagonal * np.diag(C), rtol=1e-9, atol=1e-11)
    assert np.all((gamma > 0.0) & (gamma < 1.0))


def test_dual_and_primal_agree_on_one_problem():
    """Rows of zeros change no answer but decide which space is used."""
    J, b, diagonal = problem(6, 9)
    dual = Posterior(J, diagonal)
    primal = Posterior(np.concatenate([J, np.zeros((5, 9))]), diagonal)
    assert dual.dual
    assert not primal.dual
    padded = np.concatenate([b, np.zeros(5)])
    np.testing.assert_allclose(dual.mean(b), primal.mean(padded), rtol=1e-9)
    np.testing.assert_allclose(dual.covariance(), primal.covariance(), rtol=1e-9, atol=1e-12)


@SHAPES
def test_bayes_factors_are_differences_of_log_evidences(n_rows, n_coefficients):
    J, b, _ = problem(n_rows, n_coefficients, seed=3)
    group = np.arange(n_coefficients) % 4 - 1
    precision = np.array([0.5, 2.0, 7.0])
    diagonal = np.where(group >= 0, precision[np.maximum(group, 0)], 1e-3)
    factors = Posterior(J, diagonal).bayes_factors(b, group)
    assert sorted(factors) == [0, 1, 2]
    for g, value in factors.items():
        rest = group != g
        wanted = log_evidence(J, b, diagonal) - log_evidence(J[:, rest], b, diagonal[rest])
        np.testing.assert_allclose(value, wanted, rtol=1e-6, atol=1e-8)


def regression(seed, n_rows=120, sizes=(1, 1, 3, 2, 4, 1, 3, 2)):
    """Unit noise; the groups 0, 2 and 5 are real, with coefficients about ten standard errors (1 /
    sqrt(n)) long.
    """
    rng = np.random.default_rng(seed)
    group = np.concatenate([[-1], np.repeat(np.arange(len(sizes)), sizes)])
    J = rng.standard_normal((n_rows, len(group)))
    real = np.isin(group, (-1, 0, 2, 5))
    v = np.where(real, rng.choice([-1.0, 1.0], len(group)), 0.0)
    prior = Prior(group, np.full(len(sizes), 1.0), np.full(len(sizes), 1e-4))
    return Regression(J, J @ v + rng.standard_normal(n_rows), v, prior)


@pytest.mark.parametrize("seed", range(5))
def test_evidence_updates_do_not_lower_the_evidence(seed):
    """MacKay's fixed point is not an EM step, but here, well posed, every update climbs."""
    J, b, _, prior = regression(seed)
    values = []
    for _ in range(12):
        values.append(log_evidence(J, b, prior.diagonal))
        prior = relevances(J, b, prior, 1)
    assert values[-1] > values[0] + 1.0
    assert np.all(np.diff(values) > -1e-3)  # what a floor of 1e-6 and the clip can undo


def test_the_fixed_point_is_stationary_in_every_precision():
    """At convergence no real group gains from a change of its precision by a tenth."""
    J, b, _, prior = regression(0)
    prior = relevances(J, b, prior, 60)
    best = log_evidence(J, b, prior.diagonal)
    for g in (0, 2, 5):
        for factor in (0.9, 1.1):
            precision = prior.precision.copy()
            precision[g] *= factor
            other = Prior(prior.group, precision, prior.floor)
            assert log_evidence(J, b, other.diagonal) < best


def test_pruning_keeps_what_is_real_and_drops_what_is_noise():
    """Ten standard errors give log Bayes factors of tens, noise below log 8 = 2.1 in all but rare
    draws.

    A noise group of one coefficient z has its largest log Bayes factor (z^2 - 1) / 2 - log|z|,
    above 2.1 for |z| > 2.65: probability 0.008 a group. Of 20 x 5 noise groups one is expected to
    stay; P(more than 5) < 1e-3.
    """
    false = 0
    for seed in range(20):
        J, b, v, prior = regression(seed)
        threshold = np.full(len(prior.precision), np.log(8.0))
        sparse = pruned(J, b, relevances(J, b, prior, 10), threshold)
        alive = set(np.flatnonzero(sparse.precision < EXCLUDED))
        assert {0, 2, 5} <= alive
        false += len(alive - {0, 2, 5})
        posterior = Posterior(J[:, sparse.alive], sparse.diagonal[sparse.alive])
        error = (posterior.mean(b) - v[sparse.alive]) / np.sqrt(np.diag(posterior.covariance()))
        assert np.max(np.abs(error)) < 4.5  # some 200 normal numbers
        factors = posterior.bayes_factors(b, sparse.group[sparse.alive])
        assert min(factors.values()) >= np.log(8.0)
    assert false <= 5


def test_a_threshold_below_every_factor_drops_nothing():
    J, b, _, prior = regression(0)
    low = np.full(len(prior.precision), -1e9)
    np.testing.assert_array_equal(pruned(J, b, prior, low).precision, prior.precision)


def test_everything_may_be_pruned():
    """With only noise the model that is left has the constants alone."""
    J, b, _, prior = regression(1)
    bare = pruned(J, 0.1 * b, prior, np.full(len(prior.precision), 1e9))
    assert not np.any(bare.precision < EXCLUDED)
    np.testing.assert_array_equal(bare.alive, prior.group == -1)


GROUPS = (
    Group(1, "constant", ()),
    Group(1, "linear", (0,)),
    Group(3, "ridge", (0,)),
    Group(1, "monomial", (0, 0)),
)


def test_over_gives_every_group_and_output_one_precision():
    prior = Prior.over(GROUPS, 2)
    # Feature by feature, output by output: constants are -1, the three ridges of an output share a
    # number.
    assert prior.group.tolist() == [-1, -1, 0, 1, 2, 3, 2, 3, 2, 3, 4, 5]
    assert prior.precision.shape == prior.floor.shape == (6,)
    np.testing.assert_allclose(prior.diagonal[:2], prior.fixed)
    np.testing.assert_allclose(prior.diagonal[2:], prior.precision[prior.group[2:]])
    # As many as there are features of the kind.
    np.testing.assert_allclose(prior.precision[2:4], 3.0)
    assert np.all(prior.alive)
    assert np.all(prior.precision >= prior.floor)


def test_over_constants_alone():
    prior = Prior.over(GROUPS[:1], 3)
    np.testing.assert_allclose(prior.diagonal, prior.fixed)
    assert prior.diagonal.shape == (3,)
    same = prior.updated(np.ones(3), np.ones(3))
    np.testing.assert_allclose(same.diagonal, prior.fixed)


def test_joined_puts_one_after_the_other():
    first = Prior.over(GROUPS[:2], 2)
    second = Prior.over(GROUPS[2:], 2)
    both = first.joined(second)
    np.testing.assert_allclose(both.diagonal, np.concatenate([first.diagonal, second.diagonal]))
    np.testing.assert_array_equal(both.group, Prior.over(GROUPS, 2).group)
    np.testing.assert_array_equal(both.floor, np.concatenate([first.floor, second.floor]))


def test_without_takes_groups_out_for_good():
    prior = Prior.over(GROUPS, 2)
    less = prior.without([1, 2])
    assert np.flatnonzero(~less.alive).tolist() == [3, 4, 6, 8]
    assert np.all(prior.alive)
    later = less.updated(np.ones(12), np.ones(12))
    np.testing.assert_array_equal(later.alive, less.alive)


def test_updates_are_bounded_by_the_factor_and_the_floor():
    prior = Prior(np.array([-1, 0, 1, 2]), np.array([1.0, 1.0, 1e-4]), np.array([1e-4, 0.5, 1e-4]))
    gamma = np.array([1.0, 0.9, 0.9, 0.5])
    near = prior.updated(gamma, np.array([1.0, 0.6, 100.0, 100.0]), factor=5.0)
    np.testing.assert_allclose(near.precision, [0.9 / 0.36, 0.5, 1e-4], rtol=1e-5)
    far = prior.updated(np.ones(4), np.full(4, 1e-3), factor=5.0)
    np.testing.assert_allclose(far.precision, [5.0, 5.0, 5e-4])


def single_columns(n_columns):
    """A prior with every column a group of its own, all out of the model but the first."""
    precision = np.full(n_columns, EXCLUDED)
    precision[0] = 1.0
    return Prior(np.arange(n_columns), precision, np.full(n_columns, 1e-8))


def test_the_gain_of_a_candidate_is_that_of_the_evidence():
    """At its best precision s^2 / (q^2 - s) the dense log evidence rises by the gain, and no
    precision does better.
    """
    J, b, _ = problem(30, 2)
    b = b + 3.0 * J[:, 1]
    inside = np.linalg.inv(np.eye(30) + np.outer(J[:, 0], J[:, 0]))
    q = J[:, 1] @ inside @ b
    s = J[:, 1] @ inside @ J[:, 1]
    best = s**2 / (q**2 - s)
    without = log_evidence(J[:, :1], b, np.ones(1))
    precisions_tried = [np.array([1.0, best * factor]) for factor in (0.8, 1.0, 1.25)]
    gains = [log_evidence(J, b, diagonal) - without for diagonal in precisions_tried]
    np.testing.assert_allclose(gains[1], gain_of(np.atleast_1d(q), np.atleast_1d(s))[0], rtol=1e-9)
    assert gains[1] > max(gains[0], gains[2])


def test_columns_that_matter_come_in_and_others_do_not():
    """Two outputs, 40 features, 200 rows of unit noise: effects of ten standard errors, a threshold
    of log 80.
    """
    rng = np.random.default_rng(3)
    J = rng.standard_normal((200, 80))
    v = np.zeros(80)
    v[[5, 17, 60]] = [0.8, -0.9, 1.2]
    b = J @ v + rng.standard_normal(200)
    prior = selected_forward(J, b, single_columns(80), np.full(80, np.log(80.0)), 2)
    assert set(np.flatnonzero(prior.alive)) == {0, 5, 17, 60}


def test_the_gain_of_two_candidates_is_a_difference_of_evidence():
    """Beside nothing, at the precision that is returned; and no other precision of a fine grid
    gains more.
    """
    rng = np.random.default_rng(3)
    J = rng.standard_normal((12, 2)) @ np.asarray([[3.0, 1.0], [0.0, 0.5]])
    b = J @ np.asarray([0.8, -1.0]) + rng.standard_normal(12)

    def gained(precision):
        return log_evidence(J, b, np.full(2, precision)) - log_evidence(J, b, np.full(2, np.inf))

    gain, precision = gain_of_two(J.T @ b, J.T @ J)
    assert gain == pytest.approx(gained(precision), rel=1e-6)
    assert max(gained(p) for p in np.geomspace(1e-3, 1e3, 400)) == pytest.approx(gain, rel=1e-2)
    assert gain_of_two(np.zeros(2), J.T @ J)[0] == pytest.approx(0.0, abs=1e-4)


def test_a_tied_pair_is_one_group():
    prior = Prior(np.arange(4), np.asarray([1.0, 2.0, 3.0, 4.0]), np.full(4, 1e-4)).tied(
        np.asarray([[1, 2]])
    )
    np.testing.assert_array_equal(prior.group, [0, 1, 1, 3])
    assert not np.any(prior.without([1]).alive[1:3])
    assert prior.including([1], np.asarray([7.0])).diagonal[2] == 7.0


def test_columns_of_any_size_can_be_factored():
    """Nearly the same, and so large that rounding takes off what the prior adds."""
    rng = np.random.default_rng(0)
    column = rng.standard_normal((50, 1))
    jacobian = 1e14 * (column + 1e-12 * rng.standard_normal((50, 8)))
    posterior = Posterior(jacobian, np.full(8, 1e-3))
    b = jacobian.sum(axis=1)
    np.testing.assert_allclose(jacobian @ posterior.mean(b), b, rtol=1e-6)
    factors = posterior.bayes_factors(b, np.repeat([0, 1], 4))
    assert np.all(np.isfinite(list(factors.values())))
