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

# Tables are filled up to a multiple of this: clocks of other snapshots are then the same program.
_ROWS = 8


class Clock(eqx.Module):
    """The time `now`, and the `readings` at the `times` of the snapshots.

    Times are in the user's units; the last one and its reading fill both tables up.
    """

    times: Float[Array, " n_rows"]
    readings: Float[Array, " n_rows"]
    now: Float[Array, ""]

    @classmethod
    def over(cls, times: Float[np.ndarray, " n_times"]) -> "Clock":
        """A clock that stands at the first of these times."""
        readings = np.linspace(-(3.0**0.5), 3.0**0.5, len(times))
        missing = -len(times) % _ROWS
        return cls(
            jnp.asarray(np.pad(times, (0, missing), mode="edge"), dtype=float),
            jnp.asarray(np.pad(readings, (0, missing), mode="edge"), dtype=float),
            jnp.asarray(times[0], dtype=float),
        )

    def at(self, time: Float[Array, ""] | float) -> "Clock":
        """The same clock at another time."""
        return Clock(self.times, self.readings, jnp.asarray(time, dtype=float))

    @property
    def reading(self) -> Float[Array, ""]:
        """tau(now)."""
        return jnp.interp(self.now, self.times, self.readings)
