"""The chi-squared test against the laws it stands for."""

import numpy as np
import pytest
from scipy.stats import chi2

from itofit.solve.evidence import Evidence
from itofit.trust.goodness import goodness_of_fit, hotelling_moments


def evidence(squares, n_points) -> Evidence:
    """Two flights of 20 rows, of which the drift takes 2.5 and 1.5."""
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
    found = goodness_of_fit(evidence([30.0, 18.0], 1e9), np.asarray([0.0, 0.2, 2.0]))
    np.testing.assert_allclose(found.p_values, chi2.sf([30.0, 18.0], [17.5, 18.5]), rtol=1e-5)
    assert found.p_value == pytest.approx(chi2.sf(48.0, 36.0), rel=1e-5)
    assert found.intervals == ((0.0, 0.2), (0.2, 2.0))


def test_few_points_forgive_more():
    many, few = (goodness_of_fit(evidence([30.0, 30.0], n), np.arange(3.0)) for n in (1e6, 100.0))
    assert many.rejects()
    assert few.p_value > many.p_value
    assert few.to_records()[0]["freedom"] == pytest.approx(17.5)
    assert "contradict this process" in str(many)


def test_moments_of_hotellings_statistic():
    """Against 20 000 draws of n xbar' S^-1 xbar; standard errors of a mean and of a variance from the draws."""
    rng, k, nu, n = np.random.default_rng(0), 4, 30, 20_000
    z, x = rng.standard_normal((n, k)), rng.standard_normal((n, nu, k))
    S = np.einsum("nij,nik->njk", x, x) / nu
    squares = np.einsum("ni,ni->n", z, np.linalg.solve(S, z[..., None])[..., 0])
    mean, variance = hotelling_moments(np.full(1, float(k)), np.full(1, float(nu)))
    assert squares.mean() == pytest.approx(float(mean[0]), abs=4 * squares.std() / np.sqrt(n))
    fourth = np.mean((squares - squares.mean()) ** 4)
    assert squares.var() == pytest.approx(float(variance[0]), abs=4 * np.sqrt(fourth / n))
