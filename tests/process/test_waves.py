"""Polynomial cosines against the library's, at points beside multiples of pi too."""

import jax
import jax.numpy as jnp
import numpy as np

from itofit.process.waves import cosine, sine

# Single precision rounds x itself by |x| 6e-8, the sum of the series by a few 1e-7.
ROUNDING = 5e-7
X = np.concatenate(
    [np.linspace(-60.0, 60.0, 20_001), np.arange(-19, 20) * np.pi, np.arange(-38, 39) * np.pi / 2]
).astype(np.float32)


def test_values_are_those_of_numpy():
    exact = X.astype(np.float64)
    assert np.max(np.abs(np.asarray(cosine(jnp.asarray(X))) - np.cos(exact))) < ROUNDING
    # The quarter turn that is taken off is rounded like x.
    beside = ROUNDING + 60.0 * 2.0**-23
    assert np.max(np.abs(np.asarray(sine(jnp.asarray(X))) - np.sin(exact))) < beside


def test_slopes_are_those_of_the_other():
    x = jnp.asarray(X[:20_001])
    slopes = np.asarray(jax.vmap(jax.grad(cosine))(x))
    # The series of the slope ends a term earlier: (pi / 2)^13 / 13!.
    last = (0.5 * np.pi) ** 13 / 6227020800.0
    assert np.max(np.abs(slopes + np.sin(X[:20_001].astype(np.float64)))) < last + 2.0 * ROUNDING


def test_double_precision_is_the_librarys():
    with jax.enable_x64(True):
        x = jnp.linspace(-9.0, 9.0, 101)
        assert x.dtype == jnp.float64
        np.testing.assert_array_equal(cosine(x), jnp.cos(x))
        np.testing.assert_array_equal(sine(x), jnp.sin(x))
