"""Dictionaries of every kind as plain values and arrays, and back."""

import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from itofit.process.feature_records import described, rebuilt
from itofit.process.features import FunctionFeatures, Joined, affine, joined, polynomials, ridges
from itofit.process.fourier import FourierFeatures
from itofit.process.potentials import smooth_terms, sparse_terms

BOX = np.full(2, 1.5)


def waves():
    drawn = FourierFeatures.draw(2, 7, np.random.default_rng(0))
    return drawn.in_units(np.array([0.3, -1.0]), np.array([2.0, 0.5]))


def tanhs():
    return ridges(2, [(0,), (1,), (0, 1)], 2, np.random.default_rng(1)).features


def powers():
    return polynomials(2, -BOX, BOX).features


def smooth_potential():
    return smooth_terms(np.array([0.5, 2.0]), 2, 6, np.random.default_rng(0)).features


MAKERS = {
    "smooth potential": smooth_potential,
    "sparse potential": lambda: sparse_terms(np.array([0.5, 2.0]), -BOX, BOX).features,
    "waves": waves,
    "some waves": lambda: waves().only(np.array([0, 2, 4, 9])),
    "monomials": powers,
    "lines": lambda: affine(2).features,
    "ridges": tanhs,
    "joined": lambda: joined([affine(2), polynomials(2, -BOX, BOX)]).features,
    "joined with waves": lambda: Joined((powers(), tanhs(), waves()), (7, 6, 10)),
    "a part of joined": lambda: Joined((powers(), waves()), (7, 10)).only(np.array([1, 3, 8, 11])),
}


@pytest.mark.parametrize("kind", MAKERS)
def test_a_dictionary_comes_back_from_its_record_bit_for_bit(kind):
    """Values by JSON, as a run folder holds them; values, slopes and parts are the same."""
    features = MAKERS[kind]()
    values, arrays = described(features)
    again = rebuilt(json.loads(json.dumps(values)), arrays)
    x = jnp.asarray(np.random.default_rng(2).standard_normal((6, 2)), dtype=float)
    before = np.asarray(jax.vmap(features)(x))
    np.testing.assert_array_equal(jax.vmap(again)(x), before)
    W = jnp.asarray(np.random.default_rng(3).standard_normal((before.shape[1], 2)), dtype=float)
    np.testing.assert_array_equal(
        jax.vmap(lambda y: again.slope(y, W))(x), jax.vmap(lambda y: features.slope(y, W))(x)
    )
    index = np.array([0, before.shape[1] - 1])
    np.testing.assert_array_equal(jax.vmap(again.only(index))(x), before[:, index])


def test_a_record_of_a_record_is_the_same():
    values, arrays = described(MAKERS["joined with waves"]())
    values_again, arrays_again = described(rebuilt(values, arrays))
    assert values_again == values
    assert arrays_again.keys() == arrays.keys()
    for name, array in arrays.items():
        np.testing.assert_array_equal(arrays_again[name], array)


def test_a_function_cannot_be_written(refused):
    ones = jnp.ones(2)
    features = FunctionFeatures(lambda x: x, ones, ones, ones)
    with refused("a dictionary of monomials", "keep the model in memory"):
        described(features)
