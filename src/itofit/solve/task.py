"""What a fit is given, and the residuals its phases are made of."""

from collections.abc import Sequence
from dataclasses import dataclass

import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from itofit.process.clock import Clock
from itofit.process.diffusion import AbstractDiffusion
from itofit.process.features import MANY_DIMS, Dictionary
from itofit.simulate.mesh import Mesh
from itofit.snapshots.clouds import Snapshots
from itofit.snapshots.paired import PairedSnapshots
from itofit.solve.dictionaries import box_of
from itofit.solve.flights import flights_between
from itofit.solve.options import MomentsOptions
from itofit.solve.pairs import pair_probes
from itofit.solve.residuals import Residual, Simulated
from itofit.solve.seen_path import Corrected, SeenPath
from itofit.solve.whitening import Whitening
from itofit.weak.fixed_probes import (
    AbstractPathProbes,
    AbstractProbes,
    CosineProbes,
    JoinedProbes,
    MomentProbes,
    moment_pairs,
    random_frequencies,
    units_of,
)

_JACOBIAN_POINTS = 1000


@dataclass(frozen=True, eq=False)
class Task:
    """What a fit is given, and the residuals its phases are made of; `given_step` says that the user chose dt."""

    snapshots: Snapshots
    diffusion: AbstractDiffusion
    mesh: Mesh
    options: MomentsOptions
    seed: int
    given_step: bool = False

    @property
    def speed(self) -> float:
        """Three sd in the whole span: the drift is speed * W' phi with W of order one."""
        return 3.0 / float(self.mesh.times[-1] - self.mesh.times[0])

    @property
    def clock(self) -> Clock | None:
        """For a drift that changes with time."""
        return Clock.over(self.snapshots.times) if self.options.clock else None

    @property
    def paired(self) -> bool:
        """Whether row i is the same individual in all snapshots, so that transitions are tested too."""
        return isinstance(self.snapshots, PairedSnapshots)

    @property
    def box(self) -> tuple[np.ndarray, np.ndarray]:
        """The range of the data and a quarter of it on either side, outside which high powers are frozen."""
        return box_of(self.snapshots)

    def whitening(self, residual: Residual, v: np.ndarray | None) -> Whitening:
        """The covariance of the residuals at `v`; in many dimensions every probe is kept and correlations shrunk."""
        share = self.options.share if self.snapshots.n_dims <= MANY_DIMS or v is None else None
        return Whitening.of(residual.spreads(v), share)

    def residual(self, dictionary: Dictionary, n_draws: int, *, cosines: bool) -> Simulated:
        """The residual of chains over the mesh, every start point flown `n_draws` times."""
        flights = flights_between(self.snapshots, self.mesh, self.options.anchor, n_draws, self.seed)
        n_probes = self.options.probes_for(self.snapshots.n_dims) if cosines else None
        probes: tuple[AbstractPathProbes, ...] = tuple(self._probes(flight.target, n_probes) for flight in flights)
        if self.paired:
            ends = [(flight.start, flight.target) for flight in flights]
            probes = tuple(pair_probes(self.snapshots, *at, p, cosines) for at, p in zip(ends, probes, strict=True))
        few = self.snapshots.n_dims <= MANY_DIMS
        n_points = max(self.snapshots.counts) if few else _JACOBIAN_POINTS
        parts = (self.snapshots, self.diffusion, flights, probes, dictionary, self.speed, n_points)
        return Simulated.between(*parts, self.clock)

    def seen_path(self, dictionary: Dictionary, gaps: Sequence[int]) -> SeenPath:
        """The residual over these gaps that takes the observed clouds for the path."""
        n_probes = self.options.dense_probes_for(self.snapshots.n_dims, len(gaps))
        probes = tuple(self._probes(n + 1, n_probes) for n in gaps)
        return SeenPath.over(self.snapshots, self.diffusion, gaps, probes, dictionary, self.speed)

    def corrected(self, seen: SeenPath, n_steps: int) -> Corrected:
        """The same probes over chains of `n_steps` Heun steps a gap."""
        mesh = Mesh.cut(self.snapshots.times, n_steps)
        flights = flights_between(self.snapshots, mesh, "previous", 2, self.seed, heun=True)
        chosen = tuple(flight for flight in flights if (flight.start, flight.target) in seen.ends)
        parts = (self.snapshots, self.diffusion, seen.ends, seen.probes, seen.dictionary, seen.speed)
        return Corrected.of(Simulated(*parts, chosen, seen.seen, n_jacobian=2048), seen)

    def threshold(self, dictionary: Dictionary) -> Float[np.ndarray, " n_groups"]:
        """The log Bayes factor every (group, output) must have, in the order of `Prior.over`."""
        count = self.snapshots.n_dims * sum(group.kind != "constant" for group in dictionary.groups)
        return np.full(count, self.options.threshold_for(count))

    def _probes(self, target: int, n_cosines: tuple[int, int, int] | None) -> AbstractProbes:
        centre, width = units_of(self.snapshots.clouds[target], self.snapshots.weights[target])
        n_dims, rng = self.snapshots.n_dims, np.random.default_rng(self.seed)
        moments = MomentProbes(centre, width, moment_pairs(n_dims, _most_products(n_dims), rng))
        if n_cosines is None:
            return moments
        omega, phase = random_frequencies(n_dims, *n_cosines, rng)
        cosine = CosineProbes(centre, width, jnp.asarray(omega, dtype=float), jnp.asarray(phase, dtype=float))
        return JoinedProbes((moments, cosine))


def _most_products(n_dims: int) -> int:
    """All of them up to D = 50; of more only what memory holds."""
    return 200 if n_dims <= MANY_DIMS else 1225
