"""The iteration: couple and pin under the current process, regress, learn the noise, again.

    (g, S)  ->  pinned paths  ->  g = E[their drift | where they are],   S from what flows miss

Sums over samples are averaged over the later passes, so that what is drawn averages out.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from itofit.bridge.noise import first_guess, learned_from
from itofit.bridge.pins import MOST_LINEARISED, Box, Draws, Gap, Pinned, pinned
from itofit.bridge.regression import Regression, Sums
from itofit.bridge.structures import AbstractStructure, Samples
from itofit.problem import Problem, Stream
from itofit.process.drift import AbstractLinearDrift
from itofit.process.features import core_box
from itofit.process.ito import ItoProcess
from itofit.process.noise import AbstractDiffusion
from itofit.simulate.blocks import in_blocks
from itofit.snapshots.clouds import Snapshots

# Told of every pass how its misses compare with what was expected of them.
Note = Callable[[float], None]

# Flows stay within the data and so many sds around them.
_MARGIN = 1.5
# How far a pass goes to the noise that its misses ask for.
_HALF_WAY = 0.5
# Places at which features are read at once.
_READ = 1024
# Passes before sums are averaged, and the part of a pass in the average after it.
_BURN_IN = 5


@dataclass(frozen=True, eq=False)
class Batching:
    """How much of the data a pass looks at: points a snapshot, and draws a point."""

    n_points: int = 512
    n_draws: int = 4


@dataclass(frozen=True, eq=False)
class Pass:
    """Where the iteration stands: the process, and what its regression was made of."""

    process: ItoProcess
    sums: Sums
    regression: Regression
    missed: tuple[float, ...]

    def at(self, process: ItoProcess) -> "Pass":
        """The same with another process, from which others may begin."""
        return replace(self, process=process)


@dataclass(frozen=True, eq=False)
class Coupler:
    """A problem, cut into gaps."""

    problem: Problem
    structure: AbstractStructure
    batching: Batching = Batching()

    @property
    def snapshots(self) -> Snapshots:
        """In the units of the problem."""
        return self.problem.snapshots

    @property
    def n_gaps(self) -> int:
        """Of neighbours."""
        return len(self.snapshots) - 1

    @property
    def speed(self) -> float:
        """One sd in the whole span."""
        return 1.0 / self.problem.span

    @property
    def box(self) -> Box:
        """Where flows stay."""
        low, high = core_box(self.snapshots)
        return Box(jnp.asarray(low - _MARGIN, float), jnp.asarray(high + _MARGIN, float))

    def at_rest(self) -> ItoProcess:
        """The process before anything is known: no drift."""
        W = np.zeros((self.structure.dictionary.n_features, self.structure.n_outputs))
        return ItoProcess(self.structure.drift(W, self.problem.clock), self.problem.diffusion)

    def drawn(self, process: ItoProcess, number: int) -> list[Pinned]:
        """The pinned paths of all gaps, in the given pass."""
        n_draws = self.batching.n_draws
        n_dims = self.snapshots.n_dims
        linearised = n_dims <= MOST_LINEARISED
        pins = []
        # One after the other: two programs whose LAPACK calls wait for the same threads never end.
        for n, gap in enumerate(self._gaps(number)):
            rng = self.problem.streams.rng(Stream.pins, number, n)
            draws = Draws.fresh(rng, len(gap.x), n_draws, n_dims)
            pins.append(pinned(process, gap, self.box, draws, linearised))
        return pins

    def sums(self, pins: list[Pinned], before: Regression | None = None) -> Sums:
        """Of the regression over all gaps, each worth as many points as its snapshots have."""
        parts = []
        total = float(np.mean(np.diff(self.snapshots.times)))
        drift = self.at_rest().drift
        assert isinstance(drift, AbstractLinearDrift)
        for n, pin in enumerate(pins):
            gap = self.snapshots.times[n + 1] - self.snapshots.times[n]
            worth = min(_effective(self.snapshots.weights[k]) for k in (n, n + 1))
            phi = _features_of(drift, pin)
            c = np.asarray(pin.weights) * worth * gap / total
            parts.append(Samples(phi, np.asarray(pin.drift) / self.speed, c))
        return self.structure.sums(parts, before)

    def process(self, W: np.ndarray, diffusion: AbstractDiffusion) -> ItoProcess:
        """With these coefficients."""
        return ItoProcess(self.structure.drift(self.speed * W, self.problem.clock), diffusion)

    def iterate(
        self, n_passes: int, start: ItoProcess | None = None, note: Note | None = None
    ) -> Pass:
        """So many passes, from rest or from another process."""
        process = start
        if process is None:
            process = ItoProcess(self.at_rest().drift, first_guess(self.problem.diffusion))
        sums = None
        fitted = None
        missed: list[float] = []
        for number in range(n_passes):
            pins = self.drawn(process, number)
            fresh = self.sums(pins, fitted)
            if not fresh.is_finite:
                break  # its flow runs away: the pass before is as far as it goes
            part = 1.0 if number < _BURN_IN else 2.0 / (number - _BURN_IN + 3.0)
            sums = fresh if sums is None else sums.mixed(fresh, part)
            fitted = self.structure.fitted(sums, fitted)
            diffusion = process.diffusion
            if number > 0 or start is not None:  # at rest all that moved is missed
                diffusion = learned_from(diffusion, pins, self.problem.span, _HALF_WAY)
            process = self.process(fitted.coefficients, diffusion)
            missed.append(_missed(pins))
            if note is not None:
                note(missed[-1])
        if sums is None or fitted is None:
            raise FloatingPointError("the process that coupling begins with runs away")
        return Pass(process, sums, fitted, tuple(missed))

    def _gaps(self, number: int) -> list[Gap]:
        """All gaps, with as many points a snapshot as a pass looks at."""
        rng = self.problem.streams.rng(Stream.pins, number)
        # Of few sizes: fits to other snapshots are then the same programs.
        most = min(self.batching.n_points, _filled(max(self.snapshots.counts)))
        low, high = self.box
        # A far point is a point of the border: a cost of thousands of sds has no digits left.
        ends = [_batch(np.clip(x, low, high), w, most, rng) for _, x, w in self.snapshots]
        times = self.snapshots.times
        gaps = []
        for n in range(self.n_gaps):
            (x, a), (y, b) = ends[n : n + 2]
            gap = times[n + 1] - times[n]
            gaps.append(Gap(x, a, y, b, jnp.asarray(times[n], float), jnp.asarray(gap, float)))
        return gaps


def _missed(pins: list[Pinned]) -> float:
    """Squares of what flows miss over those expected, a mean over coordinates."""
    missed = sum(pin.weights @ pin.missed**2 for pin in pins)
    expected = sum(jnp.diag(pin.spread) for pin in pins)
    return float(jnp.mean(missed / jnp.maximum(expected, 1e-20)))


def _features_of(
    drift: AbstractLinearDrift, pin: Pinned
) -> Float[np.ndarray, "n *n_dims n_features"]:
    """At the places of pinned paths."""
    blocks = zip(in_blocks(pin.points, _READ), in_blocks(pin.times, _READ), strict=True)
    read = [np.asarray(_features_at(drift, x, t)) for x, t in blocks]
    return np.concatenate(read)[: len(pin.points)]


@eqx.filter_jit
def _features_at(
    drift: AbstractLinearDrift, points: Float[Array, "n n_dims"], times: Float[Array, " n"]
) -> Float[Array, "n *n_dims n_features"]:
    return jax.vmap(lambda x, t: drift.at(t).phi(x))(points, times)


def _batch(x: np.ndarray, weights: np.ndarray, size: int, rng: np.random.Generator):
    """`size` points without replacement; a smaller cloud is filled up with points of no weight."""
    n = len(x)
    if n >= size:
        rows = rng.permutation(n)[:size]
        w = weights[rows]
    else:
        rows = np.concatenate([rng.permutation(n), np.zeros(size - n, dtype=int)])
        w = np.where(np.arange(size) < n, weights[rows], 0.0)
    return jnp.asarray(x[rows], dtype=float), jnp.asarray(w / w.sum(), dtype=float)


def _filled(count: int) -> int:
    """The next of four sizes between powers of two."""
    quarter = 1 << max(2, (count - 1).bit_length() - 3)
    return quarter * -(-count // quarter)


def _effective(weights: np.ndarray) -> float:
    return 1.0 / float(np.sum(weights**2))
