"""The chi-squared test against the laws it stands for."""

import numpy as np
import pytest
from scipy.stats import chi2

from itofit.moments.evidence import Evidence
from itofit.moments.whitening import Spread
from itofit.trust.goodness import SquaresLaw, hotelling_moments, judged, law_of_squares


def evidence(squares, n_points) -> Evidence:
    """Two transitions of 20 rows, of which the drift takes 2.5 and 1.5."""
    return Evidence(
        coefficients=np.zeros((2, 1)),
        covariance=np.eye(2),
        precision=np.ones((2, 1)),
        ends=np.asarray([[0, 1], [1, 2]]),
        chi2=np.asarray(squares, dtype=float),
        n_rows=np.asarray([20, 20]),
        n_points=np.asarray([n_points, n_points], dtype=float),
        n_determined=np.asarray([2.5, 1.5]),
        alive=np.ones((2, 1), dtype=bool),
    )


def test_with_very_many_points_it_is_the_chi_squared_test():
    test = judged(evidence([30.0, 18.0], 1e9), np.asarray([0.0, 0.2, 2.0]))
    np.testing.assert_allclose(test.p_values, chi2.sf([30.0, 18.0], [17.5, 18.5]), rtol=1e-5)
    assert test.p_value == pytest.approx(chi2.sf(48.0, 36.0), rel=1e-5)
    assert test.intervals == ((0.0, 0.2), (0.2, 2.0))


def test_few_points_forgive_more():
    many, few = (judged(evidence([30.0, 30.0], n), np.arange(3.0)) for n in (1e6, 100.0))
    assert many.rejects()
    assert few.p_value > many.p_value
    assert few.to_records()[0]["freedom"] == pytest.approx(17.5)
    assert "contradict this process" in str(many)


def test_moments_of_hotellings_statistic():
    """Against 20 000 draws of n xbar' S^-1 xbar; standard errors of a mean and of a variance from
    the draws.
    """
    rng = np.random.default_rng(0)
    k = 4
    nu = 30
    n = 20_000
    z = rng.standard_normal((n, k))
    x = rng.standard_normal((n, nu, k))
    S = np.einsum("nij,nik->njk", x, x) / nu
    squares = np.einsum("ni,ni->n", z, np.linalg.solve(S, z[..., None])[..., 0])
    mean, variance = hotelling_moments(np.full(1, float(k)), np.full(1, float(nu)))
    assert squares.mean() == pytest.approx(float(mean[0]), abs=4 * squares.std() / np.sqrt(n))
    fourth = np.mean((squares - squares.mean()) ** 4)
    assert squares.var() == pytest.approx(float(variance[0]), abs=4 * np.sqrt(fourth / n))


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
    plain = SquaresLaw(np.ones(2), np.full(2, 2.0))
    wide = SquaresLaw(np.full(2, 1.1), np.full(2, 3.0))
    narrow, broad = (
        judged(evidence([30.0, 30.0], 1e6), np.arange(3.0), law) for law in (plain, wide)
    )
    assert narrow.p_value == pytest.approx(chi2.sf(60.0, 36.0), rel=1e-6)
    assert broad.p_value > narrow.p_value
