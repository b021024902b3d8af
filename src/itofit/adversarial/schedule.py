"""What belongs to an iteration: its stage, its rate, the sparse prior and the readings of the
criterion.
"""

from typing import Any

import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from itofit.adversarial.options import AdversarialOptions

# Within each stage: from here to there a sparse prior pulls, then terms below its scale leave.
_THINNING = (0.4, 0.6)


def rate_at(
    i: Int[Array, ""], options: AdversarialOptions, n_stages: int
) -> Float[Array, ""] | float:
    """The learner's rate at iteration i, relative to its first: a cosine over each stage."""
    if not options.cosine_decay:
        return 1.0
    length = stage_length(options, n_stages)
    return 0.5 * (1.0 + jnp.cos(jnp.pi * (i % length) / length))


def thinning(options: AdversarialOptions, n_stages: int) -> tuple[int, int]:
    """The iterations of a stage between which the sparse prior pulls."""
    begin, end = (int(part * stage_length(options, n_stages)) for part in _THINNING)
    return begin, end


def stage_at(done: int, options: AdversarialOptions, n_stages: int) -> int:
    """The stage of the iteration that comes after `done`."""
    return min(done // stage_length(options, n_stages), n_stages - 1)


def stage_length(options: AdversarialOptions, n_stages: int) -> int:
    """Iterations of a stage; the last may have fewer."""
    return -(-options.n_iter // n_stages)


def next_block(done: int, options: AdversarialOptions, n_stages: int) -> int:
    """Iterations to the next reading: `eval_every`, or what is left of the stage."""
    length = stage_length(options, n_stages)
    within = done % length
    return min(
        options.eval_every - within % options.eval_every, length - within, options.n_iter - done
    )


def reading_at(done: Any, options: AdversarialOptions, n_stages: int) -> Any:
    """The position of the reading made after `done` iterations."""
    length = stage_length(options, n_stages)
    each = -(-length // options.eval_every)
    return (done - 1) // length * each + (done - 1) % length // options.eval_every


def n_readings(options: AdversarialOptions, n_stages: int) -> int:
    """How often the criterion is read in all."""
    return int(reading_at(options.n_iter, options, n_stages)) + 1
