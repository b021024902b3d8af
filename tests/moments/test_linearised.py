"""The linear problem at a solution: its columns are slopes of the residuals, its influences their
covariance.
"""

from dataclasses import replace
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
import pytest

from itofit.moments.adaptive_ridges import ridges_at
from itofit.moments.evidence import Evidence
from itofit.moments.library import library_for
from itofit.moments.linearised import Linearised, Terms, linearised, state_of
from itofit.moments.options import MomentsOptions
from itofit.moments.probing import Probing
from itofit.moments.relevance import EXCLUDED
from itofit.process import ConstantDiffusion, FeatureDrift
from itofit.process.features import affine, joined
from itofit.snapshots import Snapshots

N_POINTS = 100


class Fitted(NamedTuple):
    probing: Probing
    terms: Terms
    linear: Linearised


@pytest.fixture(scope="module")
def fitted(probing_of):
    """A drift of a line and one ridge; the square, the cube and two drawn ridges were left out."""
    rng = np.random.default_rng(0)
    clouds = [rng.normal(mean, 1.0, (N_POINTS, 1)) for mean in (0.0, 0.4, 0.9)]
    snapshots = Snapshots.from_arrays(clouds, [0.0, 0.5, 1.0])
    options = MomentsOptions(n_draws=1, n_single=2, path="simulated")
    probing = probing_of(snapshots, ConstantDiffusion(jnp.eye(1)), 0.1, options)
    known = joined([affine(1), ridges_at(np.asarray([[1.2, -0.3]]))])
    evidence = Evidence(
        coefficients=np.asarray([[0.5], [-0.6], [0.8]]),
        covariance=np.eye(3),
        precision=np.asarray([[1e-3], [1.0], [1.0]]),
        ends=np.asarray([[0, 1], [1, 2]]),
        chi2=np.ones(2),
        n_rows=np.ones(2, dtype=int),
        row_mean=np.ones(2),
        row_variance=np.full(2, 2.0),
        n_determined=np.ones(2),
        alive=np.ones((3, 1), dtype=bool),
    )
    terms = Terms(known, evidence, "simulated")
    residual = probing.simulated(known, 1, cosines=True)
    library = library_for(probing.problem, options)
    state = state_of(terms, probing.speed)
    return Fitted(probing, terms, linearised(probing, terms, residual, state, library))


def test_columns_are_slopes_of_the_whitened_residuals(fitted):
    """Central differences with a step of 0.005: single precision leaves 1e-5 / 0.01, the bend of a
    cubic 1 %.
    """
    probing, terms, linear = fitted
    known = probing.simulated(terms.dictionary, 1, cosines=True)
    v = terms.evidence.coefficients.ravel() / probing.speed
    whitening = probing.whitening(known, v)
    wide = replace(known, dictionary=linear.unknowns.dictionary)

    def rows(unknowns):
        return whitening(wide(linear.coefficients(unknowns).ravel() / probing.speed))

    at = linear.unknowns.v
    step = 0.005
    for p, column in enumerate(linear.unknowns.jacobian.T):
        shift = step * np.eye(len(at))[p]
        slope = (rows(at + shift) - rows(at - shift)) / (2 * step)
        np.testing.assert_allclose(column, slope, atol=0.01 * np.abs(column).max() + 2e-3)
    np.testing.assert_allclose(linear.y, whitening(known(v)), atol=1e-6)


def test_unknowns_are_what_is_in_the_model_its_shape_and_what_was_left_out(fitted):
    probing, terms, linear = fitted
    unknowns = linear.unknowns
    # constant, slope, ridge | direction and offset of the ridge | square, cube, two drawn ridges
    assert (unknowns.precision < EXCLUDED).tolist() == [True] * 5 + [False] * 4
    assert np.isinf(unknowns.log_odds).tolist() == [True, True, False, True, True] + [False] * 4
    coefficients = linear.coefficients(unknowns.v)
    np.testing.assert_allclose(coefficients[:3], terms.evidence.coefficients, rtol=1e-6)
    x = jnp.asarray([0.7])
    weights = jnp.asarray(terms.evidence.coefficients, dtype=float)
    drift = FeatureDrift(terms.dictionary.features, weights)
    np.testing.assert_allclose(linear.features(x) @ coefficients, drift(x), rtol=1e-5)
    adapted = unknowns.v + 0.05 * np.eye(9)[3]
    shape = ridges_at(np.asarray([[1.2 + 0.1 * 0.05, -0.3]]))
    exact = FeatureDrift(joined([affine(1), shape]).features, weights)(x)
    np.testing.assert_allclose(linear.features(x) @ linear.coefficients(adapted), exact, rtol=1e-4)
    assert probing.speed == linear.speed


def test_influences_of_all_points_add_up_to_unit_covariance(fitted):
    influence = fitted.linear.influence
    assert {n: a.shape[1] for n, a in influence.items()} == {0: N_POINTS, 1: N_POINTS, 2: N_POINTS}
    total = sum(a @ a.T for a in influence.values())
    np.testing.assert_allclose(total, np.eye(len(total)), atol=1e-4)
    for a in influence.values():
        np.testing.assert_allclose(a.sum(axis=1), 0.0, atol=1e-6)
