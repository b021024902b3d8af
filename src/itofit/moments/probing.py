"""A problem under the probes of the moments solver: the residuals its phases are made of.

    r(f) = E f(simulated, or along the observed path) - E f(observed)

Which residual belongs to which path between snapshots is said here alone (`Probing.on_path`).
"""

import functools
from collections.abc import Sequence
from dataclasses import dataclass, replace

import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from itofit.moments.observed_path import CorrectedPath, ObservedPath
from itofit.moments.options import Counts, MomentsOptions, cosines_for, cosines_for_dense
from itofit.moments.pairs import pair_probes
from itofit.moments.residuals import Residual, Simulated, observed_means
from itofit.moments.transitions import BatchPlan, Cut, transition_batches
from itofit.moments.whitening import Whitening
from itofit.problem import Problem, Stream
from itofit.process.features import MANY_DIMS, Dictionary, box_of
from itofit.process.ito import ItoProcess
from itofit.process.noise import AbstractDiffusion
from itofit.simulate.mesh import Mesh
from itofit.snapshots.clouds import Snapshots
from itofit.snapshots.paired import PairedSnapshots
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
_CORRECTED_POINTS = 2048
# Parts of a step by which its bias is measured.
_PARTS = 4
# Steps of the simulation that corrects the observed path in a gap.
HEUN_STEPS = 8


@dataclass(frozen=True, eq=False)
class Probing:
    """The residuals of a problem at the probes that these options ask for.

    - `mesh`: of the chains.
    """

    problem: Problem
    options: MomentsOptions
    mesh: Mesh

    @classmethod
    def of(cls, problem: Problem, options: MomentsOptions) -> "Probing":
        """With the mesh of the problem: a step that is halved later is that of forecasts."""
        return cls(problem, options, problem.before_halving().mesh)

    @property
    def snapshots(self) -> Snapshots:
        """In the units of the problem."""
        return self.problem.snapshots

    @property
    def diffusion(self) -> AbstractDiffusion:
        """The noise, or where its learning starts."""
        return self.problem.diffusion

    @property
    def speed(self) -> float:
        """Three sd in the whole span: the drift is speed * W' phi with W of order one."""
        return 3.0 / self.problem.span

    @property
    def metric(self) -> Float[np.ndarray, " n_dims"] | None:
        """Of a drift with a potential that of the problem."""
        return self.problem.scaling.metric if self.problem.has_potential else None

    @property
    def n_outputs(self) -> int:
        """Functions that are combined of the features: coordinates of the drift, or a potential."""
        return 1 if self.problem.has_potential else self.snapshots.n_dims

    @property
    def paired(self) -> bool:
        """Whether row i is the same individual in all snapshots, so that transitions are tested."""
        return isinstance(self.snapshots, PairedSnapshots)

    @property
    def box(self) -> tuple[np.ndarray, np.ndarray]:
        """The range of the data and a quarter of it on either side; high powers stop there."""
        return box_of(self.snapshots)

    def with_noise(self, diffusion: AbstractDiffusion) -> "Probing":
        """The same with another noise."""
        return replace(self, problem=self.problem.with_noise(diffusion))

    def whitening(
        self,
        residual: Residual,
        v: np.ndarray | None,
    ) -> Whitening:
        """The covariance of the residuals at `v`.

        In many dimensions every probe is used and correlations are shrunk.
        """
        few = self.snapshots.n_dims <= MANY_DIMS or v is None
        return Whitening.of(residual.spreads(v), self.options.max_directions if few else None)

    def on_path(
        self,
        path: str,
        dictionary: Dictionary,
        gaps: Sequence[int],
        n_draws: int | None = None,
    ) -> Residual:
        """The residual that belongs to a path between snapshots.

        `"simulated"` chains, each start point `n_draws` times; the `"observed"` clouds of these
        gaps; or these `"corrected"` by a simulation of each gap.
        """
        if path == "simulated":
            draws = self.options.n_draws if n_draws is None else n_draws
            return self.simulated(dictionary, draws, cosines=True)
        observed = self.observed_path(dictionary, gaps)
        return observed if path == "observed" else self.corrected(observed, HEUN_STEPS)

    def simulated(
        self,
        dictionary: Dictionary,
        n_draws: int,
        *,
        cosines: bool,
    ) -> Simulated:
        """The residual of chains over the mesh, `n_draws` from every start point."""
        plan = BatchPlan(n_draws, functools.partial(self.problem.streams.rng, Stream.transitions))
        transitions = transition_batches(self.snapshots, self.mesh, self.options.anchor, plan)
        n_cosines = cosines_for(self.snapshots.n_dims) if cosines else None
        probes: list[AbstractPathProbes] = []
        for batch in transitions:
            marginal = self._probes(batch.target, n_cosines)
            probes.append(
                self._with_pairs(
                    batch.start,
                    batch.target,
                    marginal,
                    cosines,
                )
            )
        few = self.snapshots.n_dims <= MANY_DIMS
        return Simulated(
            snapshots=self.snapshots,
            diffusion=self.diffusion,
            ends=tuple(batch.ends for batch in transitions),
            probes=tuple(probes),
            dictionary=dictionary,
            speed=self.speed,
            transitions=transitions,
            observed=observed_means(self.snapshots, transitions, probes),
            n_jacobian=max(self.snapshots.counts) if few else _JACOBIAN_POINTS,
            clock=self.problem.clock,
            metric=self.metric,
        )

    def observed_path(
        self,
        dictionary: Dictionary,
        gaps: Sequence[int],
    ) -> ObservedPath:
        """The residual over these gaps that takes the observed clouds for the path."""
        n_cosines = cosines_for_dense(self.snapshots.n_dims, len(gaps))
        probes = tuple(self._probes(n + 1, n_cosines) for n in gaps)
        return ObservedPath.over(
            self.snapshots, self.diffusion, gaps, probes, dictionary, self.speed
        )

    def corrected(
        self,
        observed: ObservedPath,
        n_steps: int,
    ) -> CorrectedPath:
        """The same probes over chains of `n_steps` Heun steps a gap."""
        mesh = Mesh.cut(self.snapshots.times, n_steps)
        rng_at = functools.partial(self.problem.streams.rng, Stream.transitions)
        plan = BatchPlan(2, rng_at, heun=True)
        transitions = transition_batches(self.snapshots, mesh, "previous", plan)
        simulated = Simulated(
            snapshots=self.snapshots,
            diffusion=self.diffusion,
            ends=observed.ends,
            probes=observed.probes,
            dictionary=observed.dictionary,
            speed=observed.speed,
            transitions=tuple(b for b in transitions if b.ends in observed.ends),
            observed=observed.observed,
            n_jacobian=_CORRECTED_POINTS,
        )
        return CorrectedPath.of(simulated, observed)

    def without_step_bias(self, residual: Residual, process: ItoProcess) -> Residual:
        """Without the first order in the step, as that is for this process.

        Chains whose step the user gave are taken as they are.
        """
        if self.problem.step_given or not isinstance(residual, Simulated):
            return residual
        cut = Cut(_PARTS, self.problem.streams.key(Stream.parts_of_steps))
        return residual.without_step_bias(process, cut)

    def threshold(self, dictionary: Dictionary) -> Float[np.ndarray, " n_groups"]:
        """The log Bayes factor every (group, output) must have, in the order of `Prior.over`."""
        n_groups = sum(group.kind != "constant" for group in dictionary.groups)
        count = self.n_outputs * n_groups
        return np.full(count, self.options.threshold_for(count))

    def _with_pairs(
        self,
        start: int,
        target: int,
        marginal: AbstractProbes,
        cosines: bool,
    ) -> AbstractPathProbes:
        if not self.paired:
            return marginal
        rng = self.problem.streams.rng(Stream.pair_probes)
        return pair_probes(self.snapshots, start, target, marginal, cosines, rng)

    def _probes(
        self,
        target: int,
        n_cosines: Counts | None,
    ) -> AbstractProbes:
        centre, width = units_of(self.snapshots.clouds[target], self.snapshots.weights[target])
        n_dims = self.snapshots.n_dims
        rng = self.problem.streams.rng(Stream.probes)
        moments = MomentProbes(centre, width, moment_pairs(n_dims, _most_products(n_dims), rng))
        if n_cosines is None:
            return moments
        single, pair, every = n_cosines
        frequencies, phases = random_frequencies(n_dims, single, pair, every, rng)
        omega = jnp.asarray(frequencies, dtype=float)
        phase = jnp.asarray(phases, dtype=float)
        return JoinedProbes((moments, CosineProbes(centre, width, omega, phase)))


def _most_products(n_dims: int) -> int:
    """All of them up to D = 50; of more only what memory holds."""
    return 200 if n_dims <= MANY_DIMS else 1225
