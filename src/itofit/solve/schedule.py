"""What belongs to an iteration: its level, its rate, the sparse prior and the readings of the criterion."""

from typing import Any

import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from itofit.solve.options import AdversarialOptions

# Within each level of a growing drift: from here to there a sparse prior pulls, then terms next to nothing leave.
_THINNING = (0.4, 0.6)


def rate_at(i: Int[Array, ""], options: AdversarialOptions, n_levels: int) -> Float[Array, ""] | float:
    """The drift's rate at iteration i, relative to its first: a cosine over each level."""
    if not options.cosine_decay:
        return 1.0
    length = level_length(options, n_levels)
    return 0.5 * (1.0 + jnp.cos(jnp.pi * (i % length) / length))


def thinning(options: AdversarialOptions, n_levels: int) -> tuple[int, int]:
    """The iterations of a level between which the sparse prior pulls."""
    begin, end = (int(part * level_length(options, n_levels)) for part in _THINNING)
    return begin, end


def level_at(done: int, options: AdversarialOptions, n_levels: int) -> int:
    """The level of the iteration that comes after `done`."""
    return min(done // level_length(options, n_levels), n_levels - 1)


def level_length(options: AdversarialOptions, n_levels: int) -> int:
    """Iterations of a level; the last may have fewer."""
    return -(-options.n_iter // n_levels)


def next_block(done: int, options: AdversarialOptions, n_levels: int) -> int:
    """Iterations to the next reading: `eval_every`, or what is left of the level."""
    within = done % (length := level_length(options, n_levels))
    return min(options.eval_every - within % options.eval_every, length - within, options.n_iter - done)


def reading_at(done: Any, options: AdversarialOptions, n_levels: int) -> Any:
    """The position of the reading made after `done` iterations."""
    length = level_length(options, n_levels)
    each = -(-length // options.eval_every)
    return (done - 1) // length * each + (done - 1) % length // options.eval_every


def n_readings(options: AdversarialOptions, n_levels: int) -> int:
    """How often the criterion is read in all."""
    return int(reading_at(options.n_iter, options, n_levels)) + 1
