"""The chi-squared test against the laws it stands for."""

import numpy as np
import pytest
from scipy.stats import chi2

from itofit.moments.evidence import Evidence
from itofit.moments.squares import SquaresLaw, law_at, law_of_squares
from itofit.moments.whitening import Spread, Whitening
from itofit.trust.goodness import judged

PLAIN = SquaresLaw(np.ones(2), np.full(2, 2.0))
WIDE = SquaresLaw(np.full(2, 1.1), np.full(2, 3.0))
TIMES = np.asarray([0.0, 0.2, 2.0])


def evidence(squares, determined=(2.5, 1.5), law=PLAIN) -> Evidence:
    """Two transitions of 20 rows, of which the drift takes 2.5 and 1.5."""
    return Evidence(
        coefficients=np.zeros((2, 1)),
        covariance=np.eye(2),
        precision=np.ones((2, 1)),
        ends=np.asarray([[0, 1], [1, 2]]),
        chi2=np.asarray(squares, dtype=float),
        n_rows=np.asarray([20, 20]),
        row_mean=law.mean,
        row_variance=law.variance,
        n_determined=np.asarray(determined),
        alive=np.ones((2, 1), dtype=bool),
    )


def test_it_is_the_chi_squared_test_where_rows_are_normal():
    test = judged(evidence([30.0, 18.0]), TIMES)
    np.testing.assert_allclose(test.p_values, chi2.sf([30.0, 18.0], [17.5, 18.5]), rtol=1e-6)
    assert test.p_value == pytest.approx(chi2.sf(48.0, 36.0), rel=1e-6)
    assert test.intervals == ((0.0, 0.2), (0.2, 2.0))
    assert test.to_records()[0]["freedom"] == pytest.approx(17.5)
    assert "contradict this process" in str(test)


@pytest.mark.parametrize("determined", [(20.0, 20.0), (20.0, 19.5)])
def test_without_a_degree_of_freedom_nothing_is_judged(determined):
    """Neither the smallest chi-squared nor a large one: they say the same of no true model."""
    for squares in ([0.0, 1e-12], [50.0, 50.0]):
        one = evidence(squares, determined)
        test = judged(one, TIMES)
        assert np.isnan(one.reduced_chi2)
        assert np.isnan(test.p_value)
        assert np.all(np.isnan(test.p_values))
        assert not test.rejects()
        assert not one.contradicted
        assert one.widening == 1.0
        assert str(test).endswith("cannot be judged: no degree of freedom is left")
        assert [row["p"] for row in test.to_records()] == [None, None]


def test_an_interval_without_freedom_is_left_out_alone():
    test = judged(evidence([0.0, 30.0], (20.0, 1.5)), TIMES)
    assert np.isnan(test.p_values[0])
    assert test.p_value == pytest.approx(chi2.sf(30.0, 18.5), rel=1e-6)


def test_what_is_called_contradicted_is_rejected():
    """Whatever the law and the freedom: 1.5 times the mean and 2.8 sds are beyond its 5 % tail."""
    rng = np.random.default_rng(0)
    seen = 0
    for _ in range(500):
        law = SquaresLaw(rng.uniform(0.5, 2.0, 2), rng.uniform(0.5, 30.0, 2))
        squares = 40.0 * rng.exponential(size=2)
        one = evidence(squares, rng.uniform(0.0, 19.4, 2), law)
        if one.contradicted:
            seen += 1
            assert judged(one, TIMES).rejects()
            assert one.widening == pytest.approx(np.sqrt(one.excess))
            assert one.widening > 1.2
    assert seen > 50


def law_of_two(x, y) -> SquaresLaw:
    """Of one transition from the cloud x to the cloud y, equal weights, read by coordinates."""
    even = np.full(len(x), 1.0 / len(x))
    root = np.linalg.cholesky(np.linalg.inv((np.cov(x.T, ddof=0) + np.cov(y.T, ddof=0)) / len(x)))
    return law_of_squares([Spread(0, 1, even, even, x, y)], [root.T])


@pytest.mark.parametrize("kind", ["normal", "skewed", "skewed alike"])
def test_the_law_of_the_squares_is_that_of_many_data_sets(kind):
    """T^2 of 10 000 pairs of clouds of 200 points against what 40 of them say of its law.

    4 standard errors from the repeats, and 0.02 and 0.2 for what is of second order in 1/200.
    Skewness of the target alone raises mean and variance; that of both ends alike cancels.
    """
    rng = np.random.default_rng(0)
    n = 200
    repeats = 10_000
    x, y = rng.standard_normal((2, repeats, n, 2))
    x = x**2 if kind == "skewed alike" else x
    y = y if kind == "normal" else y**2
    shift = x.mean(axis=1) - y.mean(axis=1) + (1.0 if kind == "skewed" else 0.0)
    x, y = (side - side.mean(axis=1, keepdims=True) for side in (x, y))
    covariance = (np.swapaxes(x, 1, 2) @ x + np.swapaxes(y, 1, 2) @ y) / n**2
    squares = np.einsum("ri,ri->r", shift, np.linalg.solve(covariance, shift[..., None])[..., 0])
    laws = [law_of_two(a, b) for a, b in zip(x[:40], y[:40], strict=True)]
    mean = np.mean([law.mean for law in laws])
    variance = np.mean([law.variance for law in laws])
    error = squares.std() / np.sqrt(repeats)
    assert 2 * mean == pytest.approx(squares.mean(), abs=4 * error + 0.02)
    spread = np.std((squares - squares.mean()) ** 2) / np.sqrt(repeats)
    assert 2 * variance == pytest.approx(squares.var(), abs=4 * spread + 0.2)
    if kind == "skewed":
        assert mean > 1.02


def test_a_wider_law_forgives_more():
    narrow, broad = (judged(evidence([30.0, 30.0], law=law), TIMES) for law in (PLAIN, WIDE))
    assert narrow.p_value == pytest.approx(chi2.sf(60.0, 36.0), rel=1e-6)
    assert broad.p_value > narrow.p_value


def test_the_law_where_correlations_are_shrunk():
    """Squares of 400 pairs of clouds, each whitened by its own points, and what 10 say of the law.

    40 correlated coordinates: too many for the inverse of a covariance known from 150 points.
    4 standard errors from the repeats, and a tenth for what is of second order.
    """
    rng = np.random.default_rng(0)
    n = 150
    repeats = 400
    mixing = np.linalg.cholesky(0.5 ** np.abs(np.subtract.outer(np.arange(40), np.arange(40))))
    even = np.full(n, 1.0 / n)
    squares = []
    laws = []
    for repeat in range(repeats):
        x, y = rng.standard_normal((2, n, 40)) @ mixing.T
        spread = Spread(0, 1, even, even, x, y)
        whitening = Whitening.of([spread], None)
        squares.append(np.sum(whitening([even @ x - even @ y]) ** 2))
        if repeat < 10:
            laws.append(law_at([spread], whitening))
    mean = 40.0 * np.mean([law.mean for law in laws])
    variance = 40.0 * np.mean([law.variance for law in laws])
    error = np.std(squares) / np.sqrt(repeats)
    assert mean == pytest.approx(np.mean(squares), rel=0.1, abs=4 * error)
    fourth = np.std((squares - np.mean(squares)) ** 2) / np.sqrt(repeats)
    assert variance == pytest.approx(np.var(squares), rel=0.1, abs=4 * fourth)
