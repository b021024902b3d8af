"""Monomials: order, values, derivatives, names, and the change of units."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from itofit.process import FeatureDrift, Monomials


def test_order_is_by_degree_and_then_lexicographic():
    assert Monomials.up_to(2, 2).terms == ((), (0,), (1,), (0, 0), (0, 1), (1, 1))
    assert Monomials.up_to(1, 3).terms == ((), (0,), (0, 0), (0, 0, 0))
    assert Monomials.up_to(3, 0).terms == ((),)


@pytest.mark.parametrize(
    ("n_dims", "degree", "count"), [(1, 9, 10), (2, 4, 15), (3, 3, 20), (10, 2, 66)]
)
def test_there_are_as_many_as_the_binomial_says(n_dims, degree, count):
    assert len(Monomials.up_to(n_dims, degree).terms) == count


def test_values_one_by_one():
    phi = Monomials(((), (1,), (0, 0, 1), (2,)))
    np.testing.assert_allclose(phi(jnp.asarray([2.0, 3.0, -1.0])), [1.0, 3.0, 12.0, -1.0])


def test_rows_are_the_same_in_double_precision():
    phi = Monomials.up_to(3, 4)
    x = np.random.default_rng(0).normal(size=(7, 3))
    rows = phi.rows(x)
    assert rows.dtype == np.float64
    assert rows.shape == (7, len(phi.terms))
    wanted = np.stack([np.prod(x[:, list(term)], axis=1) for term in phi.terms], axis=1)
    np.testing.assert_allclose(rows, wanted, rtol=1e-14)
    np.testing.assert_allclose(
        jax.vmap(phi)(jnp.asarray(x, dtype=float)), rows, rtol=1e-5, atol=1e-6
    )


def test_rows_leave_their_input_alone():
    x = np.full((2, 1), 3.0)
    Monomials.up_to(1, 3).rows(x)
    np.testing.assert_array_equal(x, 3.0)


def test_derivatives_are_right_at_zero_too():
    jacobian = jax.jacobian(Monomials.up_to(2, 2))(jnp.asarray([0.0, 3.0]))
    np.testing.assert_allclose(jacobian, [[0, 0], [1, 0], [0, 1], [0, 0], [3, 0], [0, 6]])


def test_names():
    phi = Monomials(((), (0,), (0, 0, 1), (1, 1, 1)))
    assert phi.names(["x0", "x1"]) == ["1", "x0", "x0^2 x1", "x1^3"]
    assert Monomials.up_to(2, 1).names(["Krt8", "Mt1"]) == ["1", "Krt8", "Mt1"]


def test_equal_dictionaries_share_one_compilation():
    traces = []

    @eqx.filter_jit
    def value(drift, x):
        traces.append(drift)
        return drift(x)

    for scale in (1.0, 2.0):
        phi = Monomials.up_to(2, 3)
        value(FeatureDrift(phi, scale * jnp.ones((len(phi.terms), 2))), jnp.ones(2))
    assert len(traces) == 1
    assert hash(Monomials.up_to(2, 3)) == hash(Monomials.up_to(2, 3))


@pytest.mark.parametrize(("n_dims", "degree"), [(1, 3), (2, 3), (3, 2), (2, 0)])
def test_change_of_units(n_dims, degree):
    rng = np.random.default_rng(1)
    mean = rng.normal(size=n_dims)
    sd = rng.uniform(0.5, 2.0, size=n_dims)
    z = rng.normal(size=(5, n_dims))
    phi = Monomials.up_to(n_dims, degree)
    np.testing.assert_allclose(
        phi.rows(mean + sd * z), phi.rows(z) @ phi.change_of_units(mean, sd), rtol=1e-11
    )


@pytest.mark.parametrize("term", [(1, 0), (-1,)])
def test_terms_that_are_not_sorted_coordinates_are_refused(refused, term):
    with refused("sorted", str(term)):
        Monomials(((), term))
