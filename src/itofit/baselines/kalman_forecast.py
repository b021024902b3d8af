"""Forecasts of intraday volume by the Kalman filter: with (eta, mu) ~ N(x, V) before a bin, the log
volume l bins later on the same day has, with d = a_mu^l,

    mean      phi + x_eta + d x_mu
    variance  V_ee + 2 d V_em + d^2 V_mm + q_mu (1 + a_mu^2 + ... + a_mu^(2 l - 2)) + r
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float

from itofit.baselines.counts import is_count
from itofit.baselines.kalman_volume import FilteredStates, VolumeParameters, filter_volume
from itofit.errors import InputError

Panel = Float[np.ndarray, "n_days n_bins"]


@dataclass(frozen=True)
class VolumeForecast:
    """Gaussian forecasts of log volume; NaN where there is nothing to forecast.

    Parameters
    ----------
    mean : array of shape (n_days, n_bins)
        Means.
    variance : array of shape (n_days, n_bins)
        Variances.

    Examples
    --------
    >>> import numpy as np
    >>> from itofit.baselines import VolumeForecast
    >>> forecast = VolumeForecast(mean=np.array([[2.0, 1.0]]), variance=np.array([[0.5, 0.2]]))
    >>> forecast.volume().round(2)
    array([[7.39, 2.72]])
    >>> forecast.volume("mean").round(2)
    array([[9.49, 3.  ]])
    """

    mean: Panel
    variance: Panel

    def volume(self, centre: str = "median") -> Panel:
        """Volume itself, from its lognormal law.

        Parameters
        ----------
        centre : {"median", "mean"}
            exp(mean), or exp(mean + variance / 2).

        Returns
        -------
        array of shape (n_days, n_bins)
            Volumes.
        """
        if centre not in ("median", "mean"):
            raise InputError(
                expected="centre to be median or mean", found=f"{centre!r}", hint="median"
            )
        return np.exp(self.mean + self.variance / 2.0 if centre == "mean" else self.mean)


def dynamic_forecast(
    parameters: VolumeParameters, log_volume: Any, *, robust: float | None = None
) -> VolumeForecast:
    """Every bin forecast from all bins before it, those of the same day included.

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
    VolumeForecast
        One forecast a bin.

    Examples
    --------
    >>> import numpy as np
    >>> from itofit.baselines import VolumeParameters, dynamic_forecast
    >>> phi = np.array([0.5, -0.5])
    >>> x0 = np.array([8.0, 0.0])
    >>> parameters = VolumeParameters(0.9, 0.5, 0.1, 0.1, 0.1, phi, x0, V0=0.1 * np.eye(2))
    >>> dynamic_forecast(parameters, [[8.8, 7.6], [8.6, 7.4]]).mean[0].round(2)
    array([8.5 , 7.65])
    """
    states = filter_volume(parameters, log_volume, robust=robust)
    mean = parameters.phi + states.predicted_mean.sum(axis=-1)
    variance = states.predicted_covariance.sum(axis=(-2, -1)) + parameters.r
    return VolumeForecast(mean, variance)


def static_forecast(
    parameters: VolumeParameters, log_volume: Any, *, robust: float | None = None
) -> VolumeForecast:
    """Every day forecast as a whole at the close of the day before.

    Parameters
    ----------
    parameters : VolumeParameters
        Those of a fit.
    log_volume : array of shape (n_days, n_bins)
        NaN where missing; a last row of NaN gives the forecast of a day not yet observed.
    robust : float, optional
        kappa, or None for the plain filter.

    Returns
    -------
    VolumeForecast
        One forecast a bin.

    Examples
    --------
    >>> import numpy as np
    >>> from itofit.baselines import VolumeParameters, static_forecast
    >>> phi = np.array([0.5, -0.5])
    >>> x0 = np.array([8.0, 0.0])
    >>> parameters = VolumeParameters(0.9, 0.5, 0.1, 0.1, 0.1, phi, x0, V0=0.1 * np.eye(2))
    >>> static_forecast(parameters, [[8.8, 7.6], [np.nan, np.nan]]).mean[0].round(2)
    array([8.5, 7.5])
    """
    states = filter_volume(parameters, log_volume, robust=robust)
    return _ahead(parameters, states, 0)


def matched_forecast(
    parameters: VolumeParameters, log_volume: Any, *, through: int = 0, robust: float | None = None
) -> VolumeForecast:
    """The later bins of every day forecast from the days before and its own first bins.

    Parameters
    ----------
    parameters : VolumeParameters
        Those of a fit.
    log_volume : array of shape (n_days, n_bins)
        NaN where missing.
    through : int
        The last bin of its own day that a forecast uses.
    robust : float, optional
        kappa, or None for the plain filter.

    Returns
    -------
    VolumeForecast
        One forecast a bin; NaN for the bins 0..`through`.

    Raises
    ------
    InputError
        If no bin is later than `through`.

    Examples
    --------
    >>> import numpy as np
    >>> from itofit.baselines import VolumeParameters, matched_forecast
    >>> phi = np.array([0.5, -0.5])
    >>> x0 = np.array([8.0, 0.0])
    >>> parameters = VolumeParameters(0.9, 0.5, 0.1, 0.1, 0.1, phi, x0, V0=0.1 * np.eye(2))
    >>> matched_forecast(parameters, [[8.8, np.nan]]).mean.round(2)
    array([[ nan, 7.65]])
    """
    n_bins = len(parameters.phi)
    if not is_count(through, 0) or through >= n_bins - 1:
        raise InputError(
            expected=f"through as a bin from 0 to {n_bins - 2}, with a later one to forecast",
            found=f"{through!r}",
            hint="0, or static_forecast for none of the day's bins",
        )
    states = filter_volume(parameters, log_volume, robust=robust)
    return _ahead(parameters, states, int(through) + 1)


def _ahead(parameters: VolumeParameters, states: FilteredStates, first: int) -> VolumeForecast:
    """Bins `first` and later of every day from the state before bin `first`; NaN for the earlier
    ones.
    """
    x = states.predicted_mean[:, first, :, None]
    V = states.predicted_covariance[:, first, :, :, None]
    decay = parameters.a_mu ** np.arange(len(parameters.phi) - first)
    ripples = parameters.q_mu * np.concatenate([[0.0], np.cumsum(decay[:-1] ** 2)])
    mean = np.full(states.mean.shape[:2], np.nan)
    variance = np.full(states.mean.shape[:2], np.nan)
    mean[:, first:] = parameters.phi[first:] + x[:, 0] + decay * x[:, 1]
    of_state = V[:, 0, 0] + 2.0 * decay * V[:, 0, 1] + decay**2 * V[:, 1, 1]
    variance[:, first:] = of_state + ripples + parameters.r
    return VolumeForecast(mean, variance)
