"""Time as a coordinate of the features of a drift that changes with it, g(x, t) = W' phi(x,
tau(t)).

tau grows from -sqrt(3) at the first snapshot to sqrt(3) at the last, by the same amount from each
snapshot to the next: it is about as large as a standardised coordinate, and resolves time where
there are data. Outside it stands still, so that a drift beyond the last snapshot is that of the
last.
"""

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float


class Clock(eqx.Module):
    """The time `now` and the `times` of the snapshots, in the user's units."""

    times: tuple[float, ...] = eqx.field(static=True)
    now: Float[Array, ""]

    @classmethod
    def over(cls, times: Float[np.ndarray, " n_times"]) -> "Clock":
        """A clock that stands at the first of these times."""
        return cls(tuple(float(t) for t in times), jnp.asarray(float(times[0])))

    def at(self, time: Float[Array, ""] | float) -> "Clock":
        """The same clock at another time."""
        return Clock(self.times, jnp.asarray(time, dtype=float))

    @property
    def reading(self) -> Float[Array, ""]:
        """tau(now)."""
        marks = np.linspace(-(3.0**0.5), 3.0**0.5, len(self.times))
        return jnp.interp(
            self.now, jnp.asarray(self.times, dtype=float), jnp.asarray(marks, dtype=float)
        )
