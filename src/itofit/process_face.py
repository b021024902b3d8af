"""The face of methods that fit an Itô process: what can be asked of it, whatever fitted it.

A method sets `standard_process_` (in the units of `scaling_`), `dt_`, `dt_error_`, `seed_` and `outcome_`.
"""

import warnings
from collections.abc import Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from itofit.errors import FitWarning, InputError
from itofit.face import Face
from itofit.forecast import (
    Conditional,
    checked_times,
    grown,
    push_in_units,
    resampled,
    start_before,
    step_doubling_error,
)
from itofit.metrics.landing import landed
from itofit.process.ito import ItoProcess, rescaled
from itofit.process.tangent import tangent_arrows
from itofit.snapshots.anndata_file import annotate, cell_points, cell_times, embedding
from itofit.snapshots.clouds import Snapshot, Snapshots, numeric_times
from itofit.snapshots.scaling import Scaling
from itofit.solve.outcome import Outcome
from itofit.solve.step_size import TOLERANCE

# Points that carry the check of a step.
_MOST_POINTS = 1000


class ProcessFace(Face):
    """Drift, noise, paths and forecasts of a fitted process."""

    standard_process_: ItoProcess
    scaling_: Scaling
    dt_: float
    dt_error_: float
    seed_: int
    outcome_: Outcome

    @property
    def process_(self) -> ItoProcess:
        """The fitted process in the user's units, for use with jax."""
        self._check_fitted()
        return rescaled(self.standard_process_, self.scaling_)

    def drift(self, x: Any, time: Any = None) -> np.ndarray:
        """g(x) at one state `(n_dims,)` or at rows of states `(n, n_dims)`.

        Of a drift that changes with time g(x, t): `time` is one for all, or one for every row.
        """
        z, one = self._standardised(x)
        g = self.scaling_.sd * np.asarray(_field(self.standard_process_.drift, z, self._when(time, len(z))), np.float64)
        return g[0] if one else g

    def _when(self, time: Any, n: int) -> Float[Array, " n"]:
        """The time of every state; of a drift that is the same at all times any."""
        if not self.standard_process_.drift.varies:
            return jnp.zeros(n)
        found = None if time is None else np.asarray(numeric_times(time))
        if found is None or found.shape not in ((), (1,), (n,)) or not np.all(np.isfinite(found)):
            raise InputError(
                expected="a time, or one for every state, since the drift changes with time",
                found="none" if found is None else f"shape {found.shape} for {n} states",
                hint=f"time={float(self.snapshots_.times[-1]):g}",
            )
        return jnp.broadcast_to(jnp.asarray(found, dtype=float), (n,))

    def diffusion(self, x: Any) -> np.ndarray:
        """S(x) at one state, or one matrix per row."""
        z, one = self._standardised(x)
        S = self.scaling_.sd[:, None] * np.asarray(_map(self.standard_process_.diffusion, z), dtype=np.float64)
        return S[0] if one else S

    def covariance(self, x: Any) -> np.ndarray:
        """a(x) = S(x) S(x)' at one state, or one matrix per row."""
        S = self.diffusion(x)
        return S @ np.swapaxes(S, -1, -2)

    def sample_paths(self, n: int, times: Sequence[float] | np.ndarray, start: str = "initial") -> np.ndarray:
        """`n` sample paths read at increasing `times`, as `(n, n_times, n_dims)`.

        With `start="previous"` the paths begin at the last snapshot at or before the first of `times`.
        """
        self._check_fitted()
        wanted = checked_times(times, float(self.snapshots_.times[0]))
        begin = start_before(self.snapshots_, float(wanted[0]), start)
        points, weights = resampled(begin.points, begin.weights, n, self.seed_)
        thin = Snapshot(begin.time, points, weights)
        clouds = push_in_units(self.standard_process_, self.scaling_, thin, wanted, self.dt_, key=self._key(2))
        return np.stack(clouds, axis=1)

    def predict_from(self, x: Any, start: float, to: float, n_paths: int = 500) -> Conditional:
        """The law at the time `to` of a path that is at the state `x` at the time `start`: `n_paths` draws of it.

        For one state `(n_dims,)`, or for every row of `(n, n_dims)`. The process is Markov as fitted: what it says of
        one individual rests on the drift and the noise, of which snapshots without identities know the flow of the
        population alone (docs/volume.md).
        """
        self._check_fitted()
        z, one = self._standardised(x)
        begin, end = (float(np.asarray(numeric_times(t))) for t in (start, to))
        if not (np.isfinite(begin) and np.isfinite(end) and end >= begin):
            raise InputError(
                expected="finite times, `to` not before `start`",
                found=f"start={start!r}, to={to!r}",
                hint="a process is only run forwards",
            )
        if isinstance(n_paths, bool) or not isinstance(n_paths, int | np.integer) or n_paths < 1:
            raise InputError(expected="n_paths as a whole number from 1 on", found=f"{n_paths!r}", hint="500")
        states = np.repeat(np.atleast_2d(np.asarray(x, dtype=np.float64)), n_paths, axis=0)
        cloud = Snapshot(begin, states, np.full(len(states), 1.0 / len(states)))
        (found,) = push_in_units(self.standard_process_, self.scaling_, cloud, [end], self.dt_, key=self._key(7))
        draws = found.reshape(len(z), n_paths, -1)
        return Conditional(draws[0] if one else draws)

    def annotate(self, adata: Any, basis: str | None = None, *, copy: bool = False) -> Any:
        """Write the drift at every cell into an AnnData that holds the coordinates of the fit; with `copy` into a copy.

        `obsm["itofit_drift"]`, `obs["itofit_speed"]`, and for scvelo's plots (`vkey="itofit_drift"`) arrows in the
        fitted coordinates, or with `basis="umap"` in the embedding `obsm["X_umap"]`: the drift through the linear map
        that fits the embedding best around each cell. A drift that changes with time is that of each cell's own time.
        """
        self._check_fitted()
        space = self.snapshots_.space
        if space is None:
            raise InputError(
                expected="a model that was fitted to an AnnData",
                found="one fitted to arrays",
                hint="fit(adata, time_key='day', rep='X_pca')",
            )
        points = cell_points(adata, space)
        drift = self.drift(points, cell_times(adata, space.time_key) if self.standard_process_.drift.varies else None)
        arrows = {} if basis is None else {basis: tangent_arrows(points, drift, embedding(adata, basis))}
        adata = adata.copy() if copy else adata
        annotate(adata, space, drift, self._made_by(), arrows)
        return adata if copy else None

    def _carry(self, times: np.ndarray, n_samples: int | None, start: str, first: Snapshot | None) -> Snapshots:
        how = {"n_samples": n_samples, "start": start, "first": first, "seed": self.seed_, "key": self._key(4)}
        return grown(self.standard_process_, self.scaling_, self.snapshots_, times, self.dt_, **how, land=landed)

    def _step_error(self, process: ItoProcess, standard: Snapshots, dt: float) -> float:
        """How far halving `dt` moves a mean or sd of the first snapshot's points, in sds."""
        begin = standard.at(float(standard.times[0]))
        points, weights = resampled(begin.points, begin.weights, min(len(begin.points), _MOST_POINTS), self.seed_)
        thin = Snapshot(begin.time, points, weights)
        return step_doubling_error(process, thin, standard.times, dt, key=self._key(3))

    def _key(self, purpose: int) -> PRNGKeyArray:
        return jax.random.fold_in(jax.random.key(self.seed_), purpose)

    @property
    def _automatic(self) -> bool:
        """Whether the step is ours to choose."""
        return isinstance(self.dt, str) and self.dt == "auto"  # pyright: ignore[reportAttributeAccessIssue]

    def _standardised(self, x: Any) -> tuple[Float[Array, "n n_dims"], bool]:
        self._check_fitted()
        x = np.asarray(x, dtype=np.float64)
        if x.ndim not in (1, 2) or x.shape[-1] != self.snapshots_.n_dims:
            raise InputError(
                expected=f"states of shape ({self.snapshots_.n_dims},) or (n, {self.snapshots_.n_dims})",
                found=f"shape {x.shape}",
                hint="one row a state",
            )
        return jnp.asarray(self.scaling_.standardise(np.atleast_2d(x)), dtype=float), x.ndim == 1


def warn_of_ending(outcome: Outcome, dt: float, dt_error: float) -> None:
    """Warn of a fit that did not end by itself, and of a step that is too long for what was fitted."""
    if not outcome.is_good:
        warnings.warn(f"the fit {outcome.value}", FitWarning, stacklevel=7)
    if not dt_error <= TOLERANCE:
        warnings.warn(
            f"halving dt = {dt:.3g} still moves a mean or sd by {dt_error:.2g} sd (wanted at most {TOLERANCE}); give a "
            f"shorter dt, e.g. {dt / 4:.2g}",
            FitWarning,
            stacklevel=7,
        )


@eqx.filter_jit
def _map(field, states):
    return jax.vmap(field)(states)


@eqx.filter_jit
def _field(drift, states, times):
    return jax.vmap(lambda x, t: drift.at(t)(x))(states, times)
