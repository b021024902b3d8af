"""How drifts go on far from the data."""

import jax.numpy as jnp
import numpy as np
import pytest

from itofit.process import FunctionDrift
from itofit.process.drift import FeatureDrift
from itofit.process.far import grows_outward
from itofit.process.features import affine, joined, monomials
from itofit.process.fourier import FourierFeatures

LOW, HIGH = -2.0 * np.ones(2), 3.0 * np.ones(2)


def drift_of(features, seed):
    phi = features(jnp.zeros(2))
    W = np.random.default_rng(seed).standard_normal((len(phi), 2))
    return FeatureDrift(features, jnp.asarray(W, dtype=float))


@pytest.mark.parametrize("seed", range(5))
def test_lines_and_cosines_of_bounded_inputs_do_not_grow(seed):
    """Whatever their coefficients are."""
    features = FourierFeatures.draw(2, 20, np.random.default_rng(seed))
    assert not grows_outward(drift_of(features, seed), LOW, HIGH)


def test_powers_that_are_frozen_outside_the_box_do_not_grow():
    frozen = monomials([(0, 0), (0, 1), (1, 1, 1)], LOW, HIGH)
    assert not grows_outward(drift_of(frozen.features, 0), LOW, HIGH)


@pytest.mark.parametrize(
    ("matrix", "grows"),
    [
        ([[-1.0, 0.0], [0.0, -1.0]], False),
        ([[0.0, 1.0], [-1.0, 0.0]], False),
        ([[0.1, 0.0], [0.0, -1.0]], True),
        ([[-1.0, 8.0], [0.0, -1.0]], True),
    ],
)
def test_a_line_grows_where_its_symmetric_part_has_a_positive_eigenvalue(matrix, grows):
    """u'Au > 0 for some u: the last one shears so strongly that points are led away at first."""
    A = jnp.asarray(matrix)
    assert grows_outward(FunctionDrift(lambda x: A @ x), LOW, HIGH) == grows


def test_lines_beside_frozen_powers_are_lines_far_away():
    """A cubic that holds the data together is frozen, and the line under it leads away."""
    dictionary = joined([affine(2), monomials([(0, 0, 0), (1, 1, 1)], LOW, HIGH)])
    W = np.zeros((dictionary.n_features, 2))
    W[1, 0] = W[2, 1] = 1.0
    W[3, 0] = W[4, 1] = -1.0
    drift = FeatureDrift(dictionary.features, jnp.asarray(W, dtype=float))
    assert grows_outward(drift, LOW, HIGH)


def test_what_is_not_finite_far_away_grows():
    assert grows_outward(FunctionDrift(lambda x: x**9 * 1e30), LOW, HIGH)
