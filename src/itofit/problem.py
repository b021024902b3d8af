"""What is asked: snapshots in the units of a solver, the noise, the mesh of times, randomness.

    dX = g(X) dt + S(X) dW        g is unknown, S known or where its learning starts

A problem is made once; the solver gets it, the solution keeps it, and every later question is put
to the same one. All randomness of a fit comes from its `Streams`, one stream a purpose.
"""

import enum
import functools
from dataclasses import dataclass, replace
from typing import Any

import jax
import numpy as np
from jaxtyping import PRNGKeyArray

from itofit.errors import InputError
from itofit.process.clock import Clock
from itofit.process.noise import AbstractDiffusion, first_noise, is_learned, standard_diffusion
from itofit.simulate.mesh import Mesh
from itofit.simulate.step_size import chosen_step, is_automatic
from itofit.snapshots.clouds import Snapshots
from itofit.snapshots.scaling import Scaling

FREE = "free"
POTENTIAL = "potential"
DRIFTS = (FREE, POTENTIAL)


class Stream(enum.IntEnum):
    """What random numbers are for; no two purposes share a stream."""

    weights = 0
    training = 1
    sample_paths = 2
    step_check = 3
    forecast = 4
    correction = 5
    bands = 6
    predict_from = 7
    sensitivity = 8
    step_error = 9
    refined_training = 10
    probes = 20
    pair_probes = 21
    ridges = 22
    transitions = 23
    transitions_again = 24
    screening = 25
    drift_draws = 26
    particle_weights = 27
    noise_network = 28
    resampling = 29
    hold_out = 30
    centres = 31
    shown_points = 32
    pins = 33
    waves = 34
    mixture = 35
    judging = 36
    thinning = 37
    parts_of_steps = 38
    misses = 40
    valley = 41


@dataclass(frozen=True)
class Streams:
    """The random streams of one seed."""

    seed: int

    @classmethod
    def of(cls, random_state: int | np.integer | None) -> "Streams":
        """Those of the seed given, or of a fresh one."""
        if random_state is None:
            return cls(int(np.random.SeedSequence().generate_state(1)[0]))
        is_whole = isinstance(random_state, int | np.integer) and not isinstance(random_state, bool)
        if not is_whole or random_state < 0:
            raise InputError(
                expected="random_state to be a whole number from 0 on, or None",
                found=f"{random_state!r}",
                hint="0",
            )
        return cls(int(random_state))

    def key(self, stream: Stream, *index: int) -> PRNGKeyArray:
        """A jax key; with an index, one of many of the same purpose."""
        key = jax.random.fold_in(jax.random.key(self.seed), int(stream))
        for i in index:
            key = jax.random.fold_in(key, i)
        return key

    def rng(self, stream: Stream, *index: int) -> np.random.Generator:
        """A numpy generator; with an index, one of many of the same purpose."""
        # A list of numbers as seed is filled up with zeros, so that [seed] and [seed, 0] are one
        # stream; spawn keys are not.
        return np.random.default_rng(np.random.SeedSequence(self.seed, spawn_key=(stream, *index)))

    def integer(self, stream: Stream) -> int:
        """A seed for what takes one."""
        return int(np.random.SeedSequence(self.seed, spawn_key=(stream,)).generate_state(1)[0])


@dataclass(frozen=True, eq=False)
class Problem:
    """A fit as it is asked for; made by `Problem.pose`.

    Parameters
    ----------
    observed : Snapshots
        In the user's units.
    snapshots : Snapshots
        The same in the solver's units, those of `scaling`.
    scaling : Scaling
        From the user's units to the solver's.
    sigma : str, number, array or callable
        The noise as the user gave it.
    diffusion : AbstractDiffusion
        The noise in the solver's units, or where its learning starts.
    dt : float
        Longest step.
    streams : Streams
        All randomness of the fit.
    step_given : bool
        Whether the user chose the step.
    time_varying : bool
        Whether the drift may change with time.
    drift : {"free", "potential"}
        What the drift may be.
    refinement : int
        How often the step has been halved since the problem was posed.

    Examples
    --------
    >>> import jax
    >>> from itofit import Moments, Problem, known_system
    >>> from itofit.problem import Streams
    >>> snapshots = known_system("ou").observe(50, [0.0, 0.5, 1.0], key=jax.random.key(0))
    >>> streams = Streams(0)
    >>> scaling = Moments().scaling(snapshots, streams)
    >>> problem = Problem.pose(snapshots, 0.7, 0.05, scaling=scaling, streams=streams)
    >>> problem.span
    1.0
    """

    observed: Snapshots
    snapshots: Snapshots
    scaling: Scaling
    sigma: Any
    diffusion: AbstractDiffusion
    dt: float
    streams: Streams
    step_given: bool = True
    time_varying: bool = False
    drift: str = FREE
    refinement: int = 0

    @classmethod
    def pose(
        cls,
        observed: Snapshots,
        sigma: Any,
        dt: Any,
        *,
        scaling: Scaling,
        streams: Streams,
        time_varying: bool = False,
        drift: str = FREE,
    ) -> "Problem":
        """The problem of a fit.

        Parameters
        ----------
        observed : Snapshots
            In the user's units.
        sigma : str, number, array or callable
            The noise, known or the kind to be learned, as `FokkerPlanckProcess` takes it.
        dt : float or "auto"
            Longest step; with "auto" it comes from the data.
        scaling : Scaling
            To the units of the solver.
        streams : Streams
            All randomness of the fit.
        time_varying : bool
            Whether the drift may change with time.
        drift : {"free", "potential"}
            Any vector field, or one that is minus the gradient of a potential in the user's units.

        Returns
        -------
        Problem
            For `solver.solve`.
        """
        if drift not in DRIFTS:
            raise InputError(
                expected=f"drift to be one of {', '.join(DRIFTS)}", found=f"{drift!r}", hint=FREE
            )
        snapshots = scaling.transform(observed)
        if is_learned(sigma):
            rng = streams.rng(Stream.noise_network)
            diffusion = first_noise(sigma, snapshots, scaling, rng)
        else:
            diffusion = standard_diffusion(sigma, scaling)
        return cls(
            observed,
            snapshots,
            scaling,
            sigma,
            diffusion,
            chosen_step(dt, observed),
            streams,
            step_given=not is_automatic(dt),
            time_varying=bool(time_varying),
            drift=drift,
        )

    @functools.cached_property
    def mesh(self) -> Mesh:
        """Times from the first snapshot to the last, in steps of at most `dt`."""
        return Mesh.refine(self.snapshots.times, self.dt)

    @property
    def span(self) -> float:
        """Time between the first snapshot and the last."""
        return float(self.snapshots.times[-1] - self.snapshots.times[0])

    @property
    def clock(self) -> Clock | None:
        """For a drift that changes with time."""
        return Clock.over(self.snapshots.times) if self.time_varying else None

    @property
    def has_potential(self) -> bool:
        """Whether the drift is the gradient of a potential."""
        return self.drift == POTENTIAL

    def as_fitted(self, *, step_given: bool, refinement: int) -> "Problem":
        """The same as a fit left it.

        Parameters
        ----------
        step_given : bool
            Whether the user chose the step.
        refinement : int
            How often it was halved.

        Returns
        -------
        Problem
            With these.
        """
        return replace(self, step_given=step_given, refinement=refinement)

    def with_halved_step(self) -> "Problem":
        """The same with half the step.

        Returns
        -------
        Problem
            One refinement further.
        """
        return replace(self, dt=self.dt / 2.0, refinement=self.refinement + 1)

    def before_halving(self) -> "Problem":
        """The same with the step it was posed with.

        Returns
        -------
        Problem
            Without refinement.
        """
        return replace(self, dt=self.dt * 2**self.refinement, refinement=0)

    def with_clock(self) -> "Problem":
        """The same with a drift that may change with time.

        Returns
        -------
        Problem
            That is time-varying.
        """
        return replace(self, time_varying=True)

    def with_potential(self) -> "Problem":
        """The same with a drift that is the gradient of a potential.

        Returns
        -------
        Problem
            Of such a drift.
        """
        return replace(self, drift=POTENTIAL)

    def with_noise(self, diffusion: AbstractDiffusion) -> "Problem":
        """The same with another noise.

        Parameters
        ----------
        diffusion : AbstractDiffusion
            In the solver's units.

        Returns
        -------
        Problem
            With that noise.
        """
        return replace(self, diffusion=diffusion)

    def between(self, snapshots: Snapshots) -> "Problem":
        """The same question asked of other snapshots.

        Parameters
        ----------
        snapshots : Snapshots
            In the solver's units.

        Returns
        -------
        Problem
            Of these snapshots.
        """
        observed = self.scaling.inverse.transform(snapshots)
        return replace(self, observed=observed, snapshots=snapshots)
