"""Dictionaries: their slopes are derivatives, a part of one is a part of its values, and files give
them back.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from itofit.process.feature_records import described, rebuilt
from itofit.process.features import (
    Dictionary,
    FunctionFeatures,
    Group,
    OnTrial,
    Ridges,
    RidgeSlopes,
    affine,
    joined,
    monomials,
    pairs,
    polynomials,
    ridges,
)

DIMS = (1, 2, 5)
BOX = 1.5


def function_dictionary(n_dims):
    """1, x, sin x and the product of all coordinates, in units of its own."""
    features = FunctionFeatures(
        lambda x: jnp.concatenate([jnp.ones(1), x, jnp.sin(x), jnp.prod(x)[None]]),
        jnp.linspace(-0.5, 1.0, n_dims),
        jnp.linspace(0.5, 2.0, n_dims),
        jnp.linspace(1.0, 3.0, 2 * n_dims + 2),
    )
    return Dictionary(features, (Group(1, "user", ()),) * (2 * n_dims + 2))


def box_polynomials(n_dims):
    return polynomials(n_dims, np.full(n_dims, -BOX), np.full(n_dims, BOX))


def few_ridges(n_dims):
    subsets = (
        [(a,) for a in range(n_dims)]
        + pairs(n_dims)
        + ([tuple(range(n_dims))] if n_dims > 2 else [])
    )
    return ridges(n_dims, subsets, 3, np.random.default_rng(7))


MAKERS = {
    "affine": affine,
    "polynomials": box_polynomials,
    "ridges": few_ridges,
    "joined": lambda n: joined([affine(n), box_polynomials(n), few_ridges(n)]),
    "function": function_dictionary,
}


@pytest.fixture(
    params=[(name, n) for name in MAKERS for n in DIMS],
    ids=lambda p: f"{p[0]}-{p[1]}",
    scope="module",
)
def case(request):
    name, n_dims = request.param
    return MAKERS[name](n_dims), n_dims


def states(n_dims):
    """Rows inside the box, and rows with some or all coordinates outside it."""
    rng = np.random.default_rng(n_dims)
    x = rng.uniform(-1.4, 1.4, (6, n_dims))
    x[2:4, 0] = (1.9, -2.3)
    x[4] = 3.0 * np.sign(x[4])
    return jnp.asarray(x, dtype=float)


@eqx.filter_jit
def values_of(features, x):
    return jax.vmap(features)(x)


def test_slope_is_the_derivative_inside_and_outside_the_box(case):
    dictionary, n_dims = case
    W = jnp.asarray(
        np.random.default_rng(1).standard_normal((dictionary.n_features, n_dims)), dtype=float
    )
    x = states(n_dims)

    def both(y):
        return dictionary.features.slope(y, W), jax.jacfwd(lambda y: dictionary.features(y) @ W)(y)

    found, wanted = jax.jit(jax.vmap(both))(x)
    assert found.shape == (len(x), n_dims, n_dims)
    # Single precision: sums of up to 60 terms of order 10.
    np.testing.assert_allclose(found, wanted, rtol=2e-5, atol=1e-4)


def test_slope_is_not_the_transpose():
    """d(W' phi)_o / dx_i stands at [o, i]: with phi = [1, x] it is W' without its first row."""
    W = jnp.asarray([[5.0, 6.0], [1.0, 2.0], [3.0, 4.0]])
    np.testing.assert_allclose(affine(2).features.slope(jnp.zeros(2), W), [[1.0, 3.0], [2.0, 4.0]])


def test_only_is_indexing(case):
    dictionary, n_dims = case
    index = np.arange(0, dictionary.n_features, 2)
    x = states(n_dims)
    some = dictionary.features.only(index)
    twice = some.only(np.arange(0, len(index), 2))
    whole, part, less = jax.jit(
        lambda x: [jax.vmap(f)(x) for f in (dictionary.features, some, twice)]
    )(x)
    np.testing.assert_allclose(part, whole[:, index], rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(less, whole[:, index[::2]], rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("name", MAKERS)
def test_a_part_has_the_slope_of_the_part(name):
    n_dims = 2
    dictionary = MAKERS[name](2)
    index = np.arange(dictionary.n_features)[::-2][::-1].copy()
    part = dictionary.features.only(index)
    W = jnp.asarray(np.random.default_rng(2).standard_normal((len(index), n_dims)), dtype=float)
    full = jnp.zeros((dictionary.n_features, n_dims)).at[index].set(W)
    mine, whole = jax.jit(lambda x: (part.slope(x, W), dictionary.features.slope(x, full)))(
        states(n_dims)[3]
    )
    np.testing.assert_allclose(mine, whole, rtol=2e-5, atol=1e-4)


def test_the_groups_marked_are_kept_with_all_their_features():
    dictionary = joined([affine(3), few_ridges(3)])
    marks = np.arange(len(dictionary.groups)) % 3 != 1
    kept = dictionary.only(marks)
    assert kept.groups == tuple(g for g, mark in zip(dictionary.groups, marks, strict=True) if mark)
    assert kept.n_features == sum(g.size for g in kept.groups)
    rows = np.repeat(marks, [g.size for g in dictionary.groups])
    x = states(3)[0]
    np.testing.assert_array_equal(kept.features(x), dictionary.features(x)[rows])


def test_values_of_known_monomials_and_ridges():
    x = jnp.asarray([2.0, -3.0])
    np.testing.assert_allclose(affine(2).features(x), [1.0, 2.0, -3.0])
    cubic = monomials([(0, 1), (0, 0, 1)], np.array([-1.0, -9.0]), np.array([1.0, 9.0]))
    np.testing.assert_allclose(cubic.features(x), [-3.0, -3.0])  # x0 is clipped to 1
    some = ridges(2, [(1,)], 4, np.random.default_rng(0))
    # A ridge of the second coordinate does not see the first.
    np.testing.assert_array_equal(some.features(x), some.features(x.at[0].set(50.0)))


def test_dictionaries_have_one_feature_for_every_unit_of_their_groups(case):
    dictionary, n_dims = case
    assert jax.eval_shape(dictionary.features, jnp.zeros(n_dims)).shape == (dictionary.n_features,)


@pytest.mark.parametrize("n_dims", DIMS)
def test_described_and_rebuilt_gives_identical_values(n_dims):
    dictionary = joined([affine(n_dims), box_polynomials(n_dims), few_ridges(n_dims)])
    some = dictionary.features.only(np.arange(1, dictionary.n_features, 2))
    x = states(n_dims)
    for features in (dictionary.features, some, few_ridges(n_dims).features):
        np.testing.assert_array_equal(
            values_of(rebuilt(*described(features)), x), values_of(features, x)
        )


def test_a_function_cannot_be_described(refused):
    with refused("function"):
        described(function_dictionary(2).features)
    with refused("function"):
        described(joined([affine(2), function_dictionary(2)]).features)


RIDGES = np.array([[1.2, -0.5, 0.3], [0.0, 2.0, -1.0]]), np.array([0.4, -0.6])


def test_ridge_slopes_are_the_derivatives_of_ridges():
    directions, offsets = (jnp.asarray(a, dtype=float) for a in RIDGES)
    x = jnp.asarray([0.3, -0.8, 0.5])
    by_direction, by_offset = jax.jacfwd(lambda w, b: Ridges(w, b)(x), argnums=(0, 1))(
        directions, offsets
    )
    own = np.arange(2)
    wanted = np.concatenate(
        [by_direction[own, own], np.asarray(by_offset[own, own])[:, None]], axis=1
    )
    np.testing.assert_allclose(
        RidgeSlopes(directions, offsets)(x), wanted.ravel(), rtol=1e-5, atol=1e-6
    )


def test_ridge_slopes_have_the_slope_of_automatic_differentiation():
    features = RidgeSlopes(*(jnp.asarray(a, dtype=float) for a in RIDGES))
    W = jnp.asarray(np.random.default_rng(0).standard_normal((8, 3)), dtype=float)
    x = jnp.asarray([0.3, -0.8, 0.5])
    np.testing.assert_allclose(
        features.slope(x, W), jax.jacfwd(lambda y: features(y) @ W)(x), rtol=1e-4, atol=1e-5
    )


def test_features_on_trial_are_seen_but_do_not_move_the_drift():
    known = affine(3).features
    tried = RidgeSlopes(*(jnp.asarray(a, dtype=float) for a in RIDGES))
    both = OnTrial(known, tried, 4)
    x = jnp.asarray([0.3, -0.8, 0.5])
    W = jnp.zeros((12, 3)).at[:4].set(1.0)
    np.testing.assert_array_equal(both(x), jnp.concatenate([known(x), tried(x)]))
    np.testing.assert_array_equal(both.slope(x, W), known.slope(x, W[:4]))
