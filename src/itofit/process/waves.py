"""Cosine and sine in single precision as short polynomials, which a CPU takes many at once.

    cos x = (-1)^k cos r,     r = x - k pi in [-pi/2, pi/2],     cos r = 1 - r^2/2! + ... + r^12/12!

To 2e-7 for |x| < 60. A twentieth of the time of the library's own, which features of a drift along
simulated paths are mostly made of (docs/benchmarks.md). Double precision is left to the library.
"""

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

_SERIES = (1.0, -1 / 2, 1 / 24, -1 / 720, 1 / 40320, -1 / 3628800, 1 / 479001600)
# pi in two parts, the first with so few digits that its multiples are exact.
_PI_HIGH = 3.140625
_PI_LOW = np.pi - _PI_HIGH


def cosine(x: Float[Array, "*n"]) -> Float[Array, "*n"]:
    """Cos x."""
    if x.dtype != jnp.float32:
        return jnp.cos(x)
    k = jnp.round(x * (1.0 / np.pi))
    r = (x - k * _PI_HIGH) - k * _PI_LOW
    square = r * r
    total = jnp.full_like(x, _SERIES[-1])
    for coefficient in reversed(_SERIES[:-1]):
        total = total * square + coefficient
    odd = k - 2.0 * jnp.floor(0.5 * k)
    return total * (1.0 - 2.0 * odd)


def sine(x: Float[Array, "*n"]) -> Float[Array, "*n"]:
    """Sin x."""
    return jnp.sin(x) if x.dtype != jnp.float32 else cosine(x - 0.5 * np.pi)
