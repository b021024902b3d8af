"""Pairs: what one individual was, against what it became.

Where row i of two snapshots is the same individual, the residual from s to t tests transitions
beside the marginal law:

    r_jm = sum_i w_i h_j(x_s,i) [ F_m(x_s,i) - f_m(x_t,i) ]
    F_m(x) = mean of f_m over the chains from x

Instruments h are functions of the start, probes f of the end, each in its own snapshot's units z:

    h    z_a, (z_a^2 - 1) / sqrt 2, with z_a cut off at 3 sd, so that no far individual speaks alone
    f    z_b, z_b z_c, and slow waves cos(omega z_b), sin(omega z_b)

A coordinate goes with all moments and with its own waves, its square with few moments: every
further row costs a little of what the others know, since their covariance is estimated. With the
true drift and noise the mean of r_jm is zero whatever h; the marginals are h = 1. As a function of
drift and noise r_jm moves by the end of the chain alone.
"""

from collections.abc import Callable

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from itofit.errors import InputError
from itofit.moments.options import MomentsOptions
from itofit.process.features import MANY_DIMS
from itofit.snapshots.clouds import Snapshots
from itofit.weak.fixed_probes import (
    AbstractPathProbes,
    AbstractProbes,
    CosineProbes,
    JoinedProbes,
    MomentProbes,
    Point,
    moment_pairs,
    units_of,
)

# Dimensions up to which products of two coordinates are probes and squares go with all coordinates.
_FEW_DIMS = 4
_FARTHEST = 3.0
_FREQUENCY = 1.5


class Instruments(eqx.Module):
    """h_j(x): each coordinate, and its square, of mean zero and variance one where it is normal."""

    centre: Point
    width: Point

    def __call__(self, x: Point) -> Float[Array, " n_instruments"]:
        z = jnp.clip((x - self.centre) / self.width, -_FARTHEST, _FARTHEST)
        return jnp.concatenate([z, (z**2 - 1.0) / np.sqrt(2.0)])


class PairProbes(AbstractPathProbes):
    """The marginal probes of the end, and h_j(start) f_m(end) for the `products` (j, m)."""

    marginal: AbstractProbes
    h: Instruments
    f: AbstractProbes
    products: tuple[tuple[int, int], ...] = eqx.field(static=True)

    def given(self, start: Point) -> Callable[[Point], Float[Array, " n_probes"]]:
        j, m = self._columns()
        h = self.h(start)[j]
        return lambda end: jnp.concatenate([self.marginal(end), h * self.f(end)[m]])

    def _columns(self) -> Int[np.ndarray, "2 n_products"]:
        return np.asarray(self.products, dtype=int).T


def pair_probes(
    snapshots: Snapshots,
    start: int,
    target: int,
    marginal: AbstractProbes,
    cosines: bool,
    rng: np.random.Generator,
) -> PairProbes:
    """What is read of the individuals from the snapshot `start` to the snapshot `target`."""
    n_dims = snapshots.n_dims
    centre, width = units_of(snapshots.clouds[target], snapshots.weights[target])
    most = n_dims * n_dims if n_dims <= _FEW_DIMS else 0
    moments = MomentProbes(centre, width, moment_pairs(n_dims, most, rng))
    f = JoinedProbes((moments, _waves(centre, width))) if cosines else moments
    together = _together(f.support(), len(moments.support()))
    products = tuple((int(j), int(m)) for j, m in np.argwhere(together))
    start_centre, start_width = units_of(snapshots.clouds[start], snapshots.weights[start])
    return PairProbes(marginal, Instruments(start_centre, start_width), f, products)


def check_pairs(snapshots: Snapshots, options: MomentsOptions) -> None:
    """Refuse what pairs cannot be fitted with."""
    if options.anchor != "previous" or options.path == "observed":
        raise InputError(
            expected="with PairedSnapshots, chains from each snapshot to the next",
            found=f"anchor={options.anchor!r}, path={options.path!r}",
            hint="anchor='previous' and path='auto'; or forget the pairs with "
            "Snapshots.from_arrays",
        )
    if snapshots.n_dims > MANY_DIMS:
        raise InputError(
            expected=f"at most {MANY_DIMS} coordinates in PairedSnapshots",
            found=f"{snapshots.n_dims}",
            hint="fewer principal components; or forget the pairs with Snapshots.from_arrays",
        )
    if any(not np.array_equal(w, snapshots.weights[0]) for w in snapshots.weights):
        raise InputError(
            expected="the same individuals, of the same weights, in all of PairedSnapshots",
            found=f"counts {', '.join(map(str, snapshots.counts))}, or weights that differ",
            hint="keep the individuals that are in every snapshot: "
            "PairedSnapshots.from_panel(..., missing='skip')",
        )


def _waves(centre: Point, width: Point) -> CosineProbes:
    """A slow cosine and a sine of each coordinate."""
    omega = _FREQUENCY * np.tile(np.eye(len(centre)), (2, 1))
    phase = np.repeat([0.0, -0.5 * np.pi], len(centre))
    return CosineProbes(
        centre,
        width,
        jnp.asarray(omega, dtype=float),
        jnp.asarray(phase, dtype=float),
    )


def _together(
    support: Bool[np.ndarray, "n_probes n_dims"],
    n_moments: int,
) -> Bool[np.ndarray, "n_instruments n_probes"]:
    """Which h_j goes with which f_m.

    A coordinate goes with moments and its own waves, a square with its own moments; in few
    dimensions a square goes with all z_b as well.
    """
    n_probes, n_dims = support.shape
    units = np.eye(n_dims, dtype=bool)
    own = np.stack([np.all(support == unit, axis=1) for unit in units])
    moment = np.arange(n_probes) < n_moments
    first = np.arange(n_probes) < (n_dims if n_dims <= _FEW_DIMS else 0)
    return np.concatenate([own | moment, (own & moment) | first])
