"""The rules of quadrature in time: their weights at the nodes, and how `chain` reads the drift
there.
"""

from collections.abc import Callable

import numpy as np

from experiments.schemes.steps import Array
from itofit import InputError


def before_and_after(steps: Array) -> tuple[Array, Array]:
    """The lengths of the steps that end and that begin at every node."""
    return np.concatenate([[0.0], steps]), np.concatenate([steps, [0.0]])


def left_weights(steps: Array) -> Array:
    """The left-point rule."""
    return before_and_after(steps)[1]


def trapezoid_weights(steps: Array) -> Array:
    """Half of each step for both of its ends."""
    before, after = before_and_after(steps)
    return 0.5 * (before + after)


def simpson_weights(steps: Array) -> Array:
    """h/3 (1, 4, 2, 4, ..., 4, 1), for an even number of equal steps."""
    steps = np.asarray(steps)
    if len(steps) % 2 or not len(steps) or not np.allclose(steps, steps[0]):
        raise InputError(
            expected="an even number of equal steps",
            found=f"{len(steps)} steps from {min(steps, default=0):g} to {max(steps, default=0):g}",
            hint="the trapezoid rule takes any steps",
        )
    pattern = np.full(len(steps) + 1, 2.0)
    pattern[1::2] = 4.0
    pattern[[0, -1]] = 1.0
    return pattern * steps[0] / 3.0


RULES: dict[str, Callable[[Array], Array]] = {
    "left": left_weights,
    "trapezoid": trapezoid_weights,
    "Simpson": simpson_weights,
    "chain": trapezoid_weights,
}


def held(now: Array, lagged: Array, steps: Array) -> Array:
    """The chain rule's reading at node k: (h_{k-1} lagged_k + h_k now_k) / (h_{k-1} + h_k)."""
    before, after = (h.reshape(-1, *[1] * (now.ndim - 1)) for h in before_and_after(steps))
    return (before * lagged + after * now) / (before + after)


def delayed(values: Array) -> Array:
    """The value one node earlier; the first node, which has none, repeats its own."""
    return np.concatenate([values[:1], values[:-1]])


def rules_on(path: str, steps: Array) -> list[str]:
    """The rules that apply: `chain` to an Euler path, Simpson to an even number of steps."""
    left_out = {"chain"} if path != "Euler" else set()
    left_out |= {"Simpson"} if len(steps) % 2 else set()
    return [rule for rule in RULES if rule not in left_out]
