"""Intraday volume as a level of the day, a ripple within it and a fixed shape (Chen, Feng and
Palomar 2016): of day t and bin i the log volume is

    y = eta + mu + phi_i + v,         v ~ N(0, r),   sum of phi = 0
    mu' = a_mu mu + N(0, q_mu)        at every bin
    eta' = a_eta eta + N(0, q_eta)    from one day to the next, else eta' = eta

and (eta, mu) ~ N(x0, V0) at the very first bin. EM fits the parameters, a Kalman filter forecasts.
A missing bin is NaN: the filter passes over it. With `robust` = kappa an innovation counts up to
kappa of its standard deviations only.
"""

import contextlib
import math
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np
from jaxtyping import Float

from itofit.baselines.counts import is_count
from itofit.baselines.kalman_em import accelerated_em, plain_em
from itofit.baselines.kalman_steps import State, Theta, em_step, filter_pass, smoother_pass
from itofit.devices import processor
from itofit.errors import FitWarning, InputError
from itofit.snapshots.panel import checked_panel

Panel = Float[np.ndarray, "n_days n_bins"]
Means = Float[np.ndarray, "n_days n_bins 2"]
Covariances = Float[np.ndarray, "n_days n_bins 2 2"]


@dataclass(frozen=True)
class VolumeParameters:
    """The model's parameters; the state is (eta, mu).

    Parameters
    ----------
    a_eta, a_mu : float
        Autoregression of the level from day to day, and of the ripple from bin to bin.
    q_eta, q_mu : float
        Variances of their noise, from 0 on.
    r : float
        Variance of the observations, above 0.
    phi : array of shape (n_bins,)
        The shape of the day.
    x0 : array of shape (2,)
        Mean of the state before the first bin is observed.
    V0 : array of shape (2, 2)
        Its covariance.

    Raises
    ------
    InputError
        If a number is not finite or a variance out of its range.

    Examples
    --------
    >>> import numpy as np
    >>> from itofit.baselines import VolumeParameters
    >>> parameters = VolumeParameters(
    ...     a_eta=0.9, a_mu=0.5, q_eta=0.1, q_mu=0.1, r=0.1,
    ...     phi=np.array([0.5, -0.5]), x0=np.array([8.0, 0.0]), V0=np.zeros((2, 2)),
    ... )
    >>> parameters.a_mu
    0.5
    """

    a_eta: float
    a_mu: float
    q_eta: float
    q_mu: float
    r: float
    phi: Float[np.ndarray, " n_bins"]
    x0: Float[np.ndarray, "2"]
    V0: Float[np.ndarray, "2 2"]

    def __post_init__(self):
        if not all(np.all(np.isfinite(part)) for part in _theta(self)):
            raise InputError(
                expected="parameters that are finite", found=f"{self}", hint="fit_kalman_volume"
            )
        if min(self.q_eta, self.q_mu) < 0.0 or self.r <= 0.0:
            raise InputError(
                expected="variances q from 0 on and r above 0",
                found=f"q_eta = {self.q_eta:g}, q_mu = {self.q_mu:g}, r = {self.r:g}",
                hint="fit_kalman_volume",
            )


@dataclass(frozen=True)
class KalmanVolumeFit:
    """What `fit_kalman_volume` returns.

    Parameters
    ----------
    parameters : VolumeParameters
        Where EM ended.
    log_likelihoods : array
        The log-likelihood before each step that was not taken back, and last that of `parameters`.
    n_iterations : int
        EM steps made, each one pass of the filter and one of the smoother.
    converged : bool
        Whether the last step was below the tolerance.
    robust : float, optional
        The kappa of the fit; hand it to the forecasts as well.
    """

    parameters: VolumeParameters
    log_likelihoods: Float[np.ndarray, " n_levels"]
    n_iterations: int
    converged: bool
    robust: float | None


@dataclass(frozen=True)
class FilteredStates:
    """What `filter_volume` returns: the law of (eta, mu) at each bin.

    Parameters
    ----------
    mean : array of shape (n_days, n_bins, 2)
        Mean given the bins up to this one.
    covariance : array of shape (n_days, n_bins, 2, 2)
        Covariance given the same.
    predicted_mean : array of shape (n_days, n_bins, 2)
        Mean given the bins before this one.
    predicted_covariance : array of shape (n_days, n_bins, 2, 2)
        Covariance given the same.
    log_likelihood : float
        Of the panel.
    """

    mean: Means
    covariance: Covariances
    predicted_mean: Means
    predicted_covariance: Covariances
    log_likelihood: float


@dataclass(frozen=True)
class SmoothedStates:
    """What `smooth_volume` returns: the law of (eta, mu) at each bin given all bins.

    Parameters
    ----------
    mean : array of shape (n_days, n_bins, 2)
        Its mean.
    covariance : array of shape (n_days, n_bins, 2, 2)
        Its covariance.
    log_likelihood : float
        Of the panel.
    """

    mean: Means
    covariance: Covariances
    log_likelihood: float


def fit_kalman_volume(
    log_volume: Any,
    *,
    n_iter: int = 3000,
    tolerance: float = 1e-4,
    accelerate: bool = True,
    robust: float | None = None,
    start: VolumeParameters | None = None,
) -> KalmanVolumeFit:
    """Fit the parameters by EM.

    Parameters
    ----------
    log_volume : array of shape (n_days, n_bins)
        NaN where missing; whole days may be. `itofit.baselines.log_volume` makes it.
    n_iter : int
        Most EM steps.
    tolerance : float
        EM stops when a step changes the parameters by less (Euclidean norm of all of them
        together); 0 makes all `n_iter` steps.
    accelerate : bool
        After every second step leap to where the two point; a leap that loses likelihood is taken
        back.
    robust : float, optional
        kappa, or None for the plain filter. The likelihood is then Huber's, which EM need not
        increase.
    start : VolumeParameters, optional
        Parameters to begin with, say those of a fit to fewer days.

    Returns
    -------
    KalmanVolumeFit
        The parameters, and how EM went.

    Raises
    ------
    InputError
        If the panel has fewer than 2 days or 2 bins, if a bin is always missing, or if EM cannot
        follow its values.

    Examples
    --------
    >>> import numpy as np
    >>> from itofit.baselines import fit_kalman_volume
    >>> noise = np.random.default_rng(0).normal(scale=0.1, size=(20, 3))
    >>> fit = fit_kalman_volume(np.array([9.0, 8.0, 8.5]) + noise, tolerance=0.01)
    >>> fit.converged
    True
    >>> fit.parameters.phi.round(1)
    array([ 0.5, -0.5,  0. ])
    """
    y = _checked_days(log_volume)
    kappa = _checked_kappa(robust)
    _check_effort(n_iter, tolerance)
    theta = _first_guess(y) if start is None else _theta(start)
    _check_bins(len(theta.phi), y)
    with _double_precision():

        def step(theta: Theta) -> tuple[Theta, float]:
            improved, level = jax.device_get(em_step(theta, y, kappa))
            return improved, float(level)

        climb_from = accelerated_em if accelerate else plain_em
        climb = climb_from(step, theta, n_iter, tolerance)
        last_level = step(climb.theta)[1]
    _check_level(last_level, climb.n_steps, y)
    if tolerance > 0.0 and not climb.converged:
        warnings.warn(
            f"EM still moves after {climb.n_steps} steps by over {tolerance:g}; give more n_iter "
            "or a larger tolerance",
            FitWarning,
            stacklevel=2,
        )
    levels = np.array([*climb.levels, last_level])
    return KalmanVolumeFit(_parameters(climb.theta), levels, climb.n_steps, climb.converged, robust)


def filter_volume(
    parameters: VolumeParameters, log_volume: Any, *, robust: float | None = None
) -> FilteredStates:
    """The states of a panel as they were known at the time.

    Parameters
    ----------
    parameters : VolumeParameters
        Those of a fit.
    log_volume : array of shape (n_days, n_bins)
        NaN where missing.
    robust : float, optional
        kappa, or None for the plain filter.

    Returns
    -------
    FilteredStates
        Means and covariances before and after each bin, and the log-likelihood.

    Examples
    --------
    >>> import numpy as np
    >>> from itofit.baselines import VolumeParameters, filter_volume
    >>> phi = np.array([0.5, -0.5])
    >>> x0 = np.array([8.0, 0.0])
    >>> parameters = VolumeParameters(0.9, 0.5, 0.1, 0.1, 0.1, phi, x0, V0=0.1 * np.eye(2))
    >>> states = filter_volume(parameters, [[8.8, np.nan], [8.6, 7.4]])
    >>> states.mean[0].round(2)
    array([[8.1 , 0.1 ],
           [8.1 , 0.05]])
    """
    y = _checked_for(parameters, log_volume)
    kappa = _checked_kappa(robust)
    with _double_precision():
        filtered = jax.device_get(filter_pass(_theta(parameters), y, kappa))
    return FilteredStates(
        _means(filtered.after),
        _covariances(filtered.after),
        _means(filtered.before),
        _covariances(filtered.before),
        float(filtered.log_likelihood),
    )


def smooth_volume(
    parameters: VolumeParameters, log_volume: Any, *, robust: float | None = None
) -> SmoothedStates:
    """The states of a panel as they are known at its end.

    Parameters
    ----------
    parameters : VolumeParameters
        Those of a fit.
    log_volume : array of shape (n_days, n_bins)
        NaN where missing.
    robust : float, optional
        kappa, or None for the plain filter.

    Returns
    -------
    SmoothedStates
        Means and covariances at each bin, and the log-likelihood.

    Examples
    --------
    >>> import numpy as np
    >>> from itofit.baselines import VolumeParameters, smooth_volume
    >>> phi = np.array([0.5, -0.5])
    >>> x0 = np.array([8.0, 0.0])
    >>> parameters = VolumeParameters(0.9, 0.5, 0.1, 0.1, 0.1, phi, x0, V0=0.1 * np.eye(2))
    >>> smooth_volume(parameters, [[8.8, np.nan], [8.6, 7.4]]).mean.shape
    (2, 2, 2)
    """
    y = _checked_for(parameters, log_volume)
    kappa = _checked_kappa(robust)
    with _double_precision():
        state, level = jax.device_get(smoother_pass(_theta(parameters), y, kappa))
    return SmoothedStates(_means(state), _covariances(state), float(level))


def _first_guess(y: Panel) -> Theta:
    """The level and shape of the bins' means and little noise."""
    means = np.nanmean(y, axis=0)
    level = float(means.mean())
    guess = VolumeParameters(
        a_eta=1.0,
        a_mu=0.0,
        q_eta=1e-4,
        q_mu=1e-4,
        r=1e-4,
        phi=means - level,
        x0=np.array([level, 0.0]),
        V0=np.array([[1e-3, 1e-7], [1e-7, 1e-5]]),
    )
    return _theta(guess)


def _theta(parameters: VolumeParameters) -> Theta:
    parts = [getattr(parameters, name) for name in Theta._fields]
    return Theta(*(np.asarray(part, dtype=np.float64) for part in parts))


def _parameters(theta: Theta) -> VolumeParameters:
    return VolumeParameters(
        a_eta=float(theta.a_eta),
        a_mu=float(theta.a_mu),
        q_eta=float(theta.q_eta),
        q_mu=float(theta.q_mu),
        r=float(theta.r),
        phi=theta.phi,
        x0=theta.x0,
        V0=theta.V0,
    )


def _means(state: State) -> Means:
    return np.stack([state.eta, state.mu], axis=-1)


def _covariances(state: State) -> Covariances:
    of_eta = np.stack([state.ee, state.em], axis=-1)
    of_mu = np.stack([state.em, state.mm], axis=-1)
    return np.stack([of_eta, of_mu], axis=-2)


@contextlib.contextmanager
def _double_precision() -> Iterator[None]:
    """Double precision, and the CPU: every step waits for the one before, which a GPU has no answer
    to.
    """
    with jax.enable_x64(True), jax.default_device(processor()):
        yield


def _checked_days(log_volume: Any) -> Panel:
    """A panel that EM can fit: two days and two bins, and no bin that is always missing."""
    y = checked_panel(log_volume, "log_volume")
    if min(y.shape) < 2:
        raise InputError(
            expected="at least 2 days of at least 2 bins",
            found=f"shape {y.shape}",
            hint="one row a day",
        )
    empty = np.flatnonzero(np.isnan(y).all(axis=0))
    if len(empty):
        raise InputError(
            expected="every bin observed on some day",
            found=f"nothing in column {', '.join(map(str, empty))}",
            hint="drop these columns, or give more days",
        )
    return y


def _checked_for(parameters: VolumeParameters, log_volume: Any) -> Panel:
    y = checked_panel(log_volume, "log_volume")
    _check_bins(len(parameters.phi), y)
    return y


def _check_bins(n_bins: int, y: Panel) -> None:
    if y.shape[1] != n_bins:
        raise InputError(
            expected=f"log_volume with the {n_bins} bins a day of the parameters",
            found=f"{y.shape[1]}",
            hint="one row a day; NaN for bins that are missing",
        )


def _checked_kappa(robust: float | None) -> np.ndarray:
    if robust is not None and not robust > 0.0:
        raise InputError(
            expected="robust above 0, or None",
            found=f"{robust!r}",
            hint="2.0, or None for the plain filter",
        )
    return np.asarray(math.inf if robust is None else robust, dtype=np.float64)


def _check_effort(n_iter: int, tolerance: float) -> None:
    if not is_count(n_iter, 1):
        raise InputError(
            expected="n_iter as a whole number from 1 on", found=f"{n_iter!r}", hint="3000"
        )
    if not tolerance >= 0.0:
        raise InputError(expected="tolerance from 0 on", found=f"{tolerance!r}", hint="1e-4")


def _check_level(level: float, n_steps: int, y: Panel) -> None:
    """Refuse a panel on which EM ended without a likelihood."""
    if not math.isfinite(level):
        largest = np.nanmax(np.abs(y))
        raise InputError(
            expected="log_volume that EM can follow",
            found=f"a log-likelihood of {level} after {n_steps} steps, values up to {largest:g}",
            hint="the logarithm of volume, or without start",
        )
