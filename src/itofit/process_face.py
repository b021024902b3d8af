"""The face of methods that fit an Itô process: what can be asked of it, whatever fitted it.

A method sets `standard_process_` (in the units of `scaling_`), `dt_`, `dt_error_`, `seed_` and
`outcome_`.
"""

import functools
import warnings
from collections.abc import Sequence
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from itofit.errors import FitWarning, InputError
from itofit.face import Face
from itofit.forecast import (
    Conditional,
    Forecaster,
    checked_times,
    push_in_units,
    resampled,
    start_before,
)
from itofit.problem import Stream
from itofit.process.ito import ItoProcess, rescaled
from itofit.process.tangent import tangent_arrows
from itofit.simulate.step_size import TOLERANCE
from itofit.snapshots.anndata_file import annotate, cell_points, cell_times, embedding
from itofit.snapshots.clouds import Snapshot, Snapshots, numeric_times
from itofit.snapshots.scaling import Scaling
from itofit.solution import Outcome
from itofit.ways import Mixture


class States(NamedTuple):
    """States in standardised units, one a row; `single` says that the user gave one state."""

    rows: Float[Array, "n n_dims"]
    single: bool


class ProcessFace(Face):
    """Drift, noise, paths and forecasts of a fitted process."""

    standard_process_: ItoProcess
    scaling_: Scaling
    dt_: float
    dt_error_: float
    # How a judged model forecasts; others have none.
    mixture_: Mixture | None = None

    @property
    def process_(self) -> ItoProcess:
        """The fitted process in the user's units, for use with jax.

        Returns
        -------
        ItoProcess
            Its `drift` and `diffusion` are functions of one state.

        Examples
        --------
        >>> model.process_.drift(jax.numpy.zeros(2)).shape
        (2,)
        """
        self._check_fitted()
        return rescaled(self.standard_process_, self.scaling_)

    def drift(self, x: Any, time: Any = None) -> np.ndarray:
        """The drift g(x), or g(x, t) of one that changes with time.

        Parameters
        ----------
        x : array of shape (n_dims,) or (n, n_dims)
            One state, or rows of states.
        time : float or array, optional
            Of a drift that changes with time: one for all states, or one for every row.

        Returns
        -------
        array of the shape of x
            In units of state per unit of time.

        Examples
        --------
        >>> model.drift([0.0, 0.0]).shape
        (2,)
        """
        states = self._standardised(x)
        times = self._times_of(time, len(states.rows))
        values = np.asarray(_field(self.standard_process_.drift, states.rows, times), np.float64)
        g = self.scaling_.sd * values
        return g[0] if states.single else g

    def diffusion(self, x: Any) -> np.ndarray:
        """The factor S(x) of the noise.

        Parameters
        ----------
        x : array of shape (n_dims,) or (n, n_dims)
            One state, or rows of states.

        Returns
        -------
        array of shape (n_dims, n_dims) or (n, n_dims, n_dims)
            In units of state per square root of time.

        Examples
        --------
        >>> model.diffusion([0.0, 0.0]).shape
        (2, 2)
        """
        states = self._standardised(x)
        values = np.asarray(_map(self.standard_process_.diffusion, states.rows), np.float64)
        S = self.scaling_.sd[:, None] * values
        return S[0] if states.single else S

    def covariance(self, x: Any) -> np.ndarray:
        """The covariance a(x) = S(x) S(x)' of the noise.

        Parameters
        ----------
        x : array of shape (n_dims,) or (n, n_dims)
            One state, or rows of states.

        Returns
        -------
        array of shape (n_dims, n_dims) or (n, n_dims, n_dims)
            In squared units of state per unit of time.

        Examples
        --------
        >>> bool((model.covariance([0.0, 0.0]).diagonal() > 0).all())
        True
        """
        S = self.diffusion(x)
        return S @ np.swapaxes(S, -1, -2)

    def sample_paths(
        self, n: int, times: Sequence[float] | np.ndarray, start: str = "initial"
    ) -> np.ndarray:
        """Sample paths of the process.

        Parameters
        ----------
        n : int
            How many.
        times : sequence of float
            At which they are read.
        start : {"initial", "previous"}
            Begin at the first snapshot, or at the last one at or before the first of `times`.

        Returns
        -------
        array of shape (n, n_times, n_dims)
            Row i is one path.

        Examples
        --------
        >>> model.sample_paths(5, [0.0, 0.5, 1.0]).shape
        (5, 3, 2)
        """
        self._check_fitted()
        increasing = checked_times(times, float(self.snapshots_.times[0]))
        snapshot = start_before(self.snapshots_, float(increasing[0]), start)
        cloud = resampled(snapshot, n, self._streams.rng(Stream.resampling))
        clouds = self._push(cloud, increasing, self._streams.key(Stream.sample_paths))
        return np.stack(clouds, axis=1)

    def predict_from(self, x: Any, start: float, to: float, n_paths: int = 500) -> Conditional:
        """The law of one individual later on.

        The process is Markov as fitted: what it says of one individual rests on the drift and the
        noise, of which snapshots without identities know the flow of the population alone
        (docs/volume.md).

        Parameters
        ----------
        x : array of shape (n_dims,) or (n, n_dims)
            The state at the time `start`, or rows of states.
        start, to : float
            The time at which it is there, and the later one that is asked for.
        n_paths : int
            Draws of the law.

        Returns
        -------
        Conditional
            The draws, with mean, median, sd and quantiles.

        Examples
        --------
        >>> model.predict_from([0.0, 0.0], start=0.3, to=1.0, n_paths=50).mean.shape
        (2,)
        """
        states = self._standardised(x)
        begin, end = (float(np.asarray(numeric_times(t))) for t in (start, to))
        if not (np.isfinite(begin) and np.isfinite(end) and end >= begin):
            raise InputError(
                expected="finite times, `to` not before `start`",
                found=f"start={start!r}, to={to!r}",
                hint="a process is only run forwards",
            )
        is_whole = isinstance(n_paths, int | np.integer) and not isinstance(n_paths, bool)
        if not is_whole or n_paths < 1:
            raise InputError(
                expected="n_paths as a whole number from 1 on", found=f"{n_paths!r}", hint="500"
            )
        rows = np.repeat(np.atleast_2d(np.asarray(x, dtype=np.float64)), n_paths, axis=0)
        cloud = Snapshot(begin, rows, np.full(len(rows), 1.0 / len(rows)))
        (ends,) = self._push(cloud, [end], self._streams.key(Stream.predict_from))
        draws = ends.reshape(len(states.rows), n_paths, -1)
        return Conditional(draws[0] if states.single else draws)

    def annotate(self, adata: Any, basis: str | None = None, *, copy: bool = False) -> Any:
        """Write the drift at every cell into an AnnData that holds the coordinates of the fit.

        `obsm["itofit_drift"]`, `obs["itofit_speed"]`, and for scvelo's plots
        (`vkey="itofit_drift"`) arrows in the fitted coordinates. A drift that changes with time is
        that of each cell's own time.

        Parameters
        ----------
        adata : AnnData
            The cells.
        basis : str, optional
            An embedding to draw arrows in as well, "umap" for `obsm["X_umap"]`: the drift through
            the linear map that fits the embedding best around each cell.
        copy : bool
            Write into a copy, which is returned.

        Returns
        -------
        AnnData or None
            The copy, where one was asked for.

        Examples
        --------
        With cells as in the tutorial::

            model = FokkerPlanckProcess().fit(adata, time_key="day", rep="X_pca")
            model.annotate(adata, basis="umap")
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
        varies = self.standard_process_.drift.varies
        drift = self.drift(points, cell_times(adata, space.time_key) if varies else None)
        arrows = {}
        if basis is not None:
            arrows[basis] = tangent_arrows(points, drift, embedding(adata, basis))
        adata = adata.copy() if copy else adata
        annotate(adata, space, drift, self._made_by(), arrows)
        return adata if copy else None

    def _carry(
        self, times: np.ndarray, n_samples: int | None, start: str, first: Snapshot | None
    ) -> Snapshots:
        mixture = self.mixture_
        if mixture is not None and first is None and mixture.answers(start, times):
            return mixture.clouds(times, n_samples)
        forecaster = Forecaster(self._push, self.snapshots_, self._streams)
        return forecaster.clouds(times, n_samples, start, first)

    @property
    def _push(self) -> Any:
        """Carries a cloud forward, in the user's units."""
        return functools.partial(push_in_units, self.standard_process_, self.scaling_, self.dt_)

    def _times_of(self, time: Any, n: int) -> Float[Array, " n"]:
        """The time of every state; of a drift that is the same at all times any."""
        if not self.standard_process_.drift.varies:
            return jnp.zeros(n)
        times = None if time is None else np.asarray(numeric_times(time))
        shapes = ((), (1,), (n,))
        if times is None or times.shape not in shapes or not np.all(np.isfinite(times)):
            raise InputError(
                expected="a time, or one for every state, since the drift changes with time",
                found="none" if times is None else f"shape {times.shape} for {n} states",
                hint=f"time={float(self.snapshots_.times[-1]):g}",
            )
        return jnp.broadcast_to(jnp.asarray(times, dtype=float), (n,))

    def _standardised(self, x: Any) -> States:
        self._check_fitted()
        x = np.asarray(x, dtype=np.float64)
        n_dims = self.snapshots_.n_dims
        if x.ndim not in (1, 2) or x.shape[-1] != n_dims:
            raise InputError(
                expected=f"states of shape ({n_dims},) or (n, {n_dims})",
                found=f"shape {x.shape}",
                hint="one row a state",
            )
        rows = self.scaling_.standardise(np.atleast_2d(x))
        return States(jnp.asarray(rows, dtype=float), x.ndim == 1)


def warn_of_ending(outcome: Outcome, dt: float, dt_error: float) -> None:
    """Warn of a fit that did not end by itself, and of a step that is too long."""
    if not outcome.is_good:
        warnings.warn(f"the fit {outcome.value}", FitWarning, stacklevel=5)
    if not dt_error <= TOLERANCE:
        warnings.warn(
            f"halving dt = {dt:.3g} still moves a mean or sd by {dt_error:.2g} sd (wanted at most "
            f"{TOLERANCE}); give a shorter dt, e.g. {dt / 4:.2g}",
            FitWarning,
            stacklevel=5,
        )


@eqx.filter_jit
def _map(field, states):
    return jax.vmap(field)(states)


@eqx.filter_jit
def _field(drift, states, times):
    return jax.vmap(lambda x, t: drift.at(t)(x))(states, times)
