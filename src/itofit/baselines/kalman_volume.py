"""Intraday volume as a level of the day, a ripple within it and a fixed shape (Chen, Feng and Palomar 2016): of day t
and bin i the log volume is

    y = eta + mu + phi_i + v,   v ~ N(0, r),   sum of phi = 0
    mu' = a_mu mu + N(0, q_mu) at every bin,   eta' = a_eta eta + N(0, q_eta) from one day to the next, else eta' = eta

and (eta, mu) ~ N(x0, V0) at the very first bin. EM fits the parameters, a Kalman filter forecasts. A missing bin is
NaN: the filter passes over it. With `robust` = kappa an innovation counts up to kappa of its standard deviations only.
"""

import contextlib
import math
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import numpy as np
from jaxtyping import Float

from itofit.baselines.kalman_steps import State, Theta, em_step, filter_pass, smoother_pass
from itofit.errors import FitWarning, InputError
from itofit.face import processor
from itofit.snapshots.panel import checked_panel

Panel = Float[np.ndarray, "n_days n_bins"]
Means = Float[np.ndarray, "n_days n_bins 2"]
Covariances = Float[np.ndarray, "n_days n_bins 2 2"]

_STILL = 1e-8  # a second difference below this is rounding, and nothing to extrapolate from


@dataclass(frozen=True)
class VolumeParameters:
    """The model's parameters; the state is (eta, mu), and `x0`, `V0` are its law before the first bin is seen."""

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
            raise InputError(expected="parameters that are finite", found=f"{self}", hint="fit_kalman_volume")
        if min(self.q_eta, self.q_mu) < 0.0 or self.r <= 0.0:
            found = f"q_eta = {self.q_eta:g}, q_mu = {self.q_mu:g}, r = {self.r:g}"
            raise InputError(expected="variances q from 0 on and r above 0", found=found, hint="fit_kalman_volume")


@dataclass(frozen=True)
class KalmanVolumeFit:
    """What EM found.

    - `log_likelihoods`: before each step that was kept, and at the end that of `parameters`.
    - `n_iterations`: EM steps made, each one pass of the filter and one of the smoother.
    - `robust`: the kappa of the fit; hand it to the forecasts as well.
    """

    parameters: VolumeParameters
    log_likelihoods: Float[np.ndarray, " n_kept"]
    n_iterations: int
    converged: bool
    robust: float | None


@dataclass(frozen=True)
class FilteredStates:
    """Mean and covariance of (eta, mu) at each bin given the bins up to it (`predicted_`: before it)."""

    mean: Means
    covariance: Covariances
    predicted_mean: Means
    predicted_covariance: Covariances
    log_likelihood: float


@dataclass(frozen=True)
class SmoothedStates:
    """Mean and covariance of (eta, mu) at each bin given all bins."""

    mean: Means
    covariance: Covariances
    log_likelihood: float


@dataclass(frozen=True)
class VolumeForecast:
    """Gaussian forecasts of log volume, days x bins; NaN where there is nothing to forecast."""

    mean: Panel
    variance: Panel

    def volume(self, centre: str = "median") -> Panel:
        """Volume itself: the median exp(mean), or the mean exp(mean + variance / 2) of the lognormal law."""
        if centre not in ("median", "mean"):
            raise InputError(expected="centre to be median or mean", found=f"{centre!r}", hint="median")
        return np.exp(self.mean + self.variance / 2.0 if centre == "mean" else self.mean)


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

    - `log_volume`: days x bins, NaN where missing; whole days may be. `log_volume` of `baselines` makes it.
    - `n_iter`: most EM steps.
    - `tolerance`: EM stops when a step changes the parameters by less (Euclidean norm of all of them together); 0
      makes all `n_iter` steps.
    - `accelerate`: after every second step leap to where the two point; a leap that loses likelihood is taken back.
    - `robust`: kappa, or None for the plain filter. The likelihood is then Huber's, which EM need not increase.
    - `start`: parameters to begin with, say those of a fit to fewer days.
    """
    y, kappa = _checked_days(log_volume), _checked_kappa(robust)
    _check_effort(n_iter, tolerance)
    theta = _first_guess(y) if start is None else _theta(start)
    _check_bins(len(theta.phi), y)
    with _double_precision():

        def step(theta: Theta) -> tuple[Theta, float]:
            moved, level = jax.device_get(em_step(theta, y, kappa))
            return moved, float(level)

        climb = (_leaps if accelerate else _steps)(step, theta, n_iter, tolerance)
        last = step(climb.theta)[1]
    if not math.isfinite(last):
        raise InputError(
            expected="log_volume that EM can follow",
            found=f"a log-likelihood of {last} after {climb.n_steps} steps, values up to {np.nanmax(np.abs(y)):g}",
            hint="the logarithm of volume, or without start",
        )
    if tolerance > 0.0 and not climb.converged:
        warnings.warn(
            f"EM still moves after {climb.n_steps} steps by over {tolerance:g}; give more n_iter or a larger tolerance",
            FitWarning,
            stacklevel=2,
        )
    levels = np.array([*climb.levels, last])
    return KalmanVolumeFit(_parameters(climb.theta), levels, climb.n_steps, climb.converged, robust)


def filter_volume(parameters: VolumeParameters, log_volume: Any, *, robust: float | None = None) -> FilteredStates:
    """The states of a panel as they were known at the time, and its log-likelihood."""
    y, kappa = _checked_for(parameters, log_volume), _checked_kappa(robust)
    with _double_precision():
        before, after, level = jax.device_get(filter_pass(_theta(parameters), y, kappa))
    return FilteredStates(_means(after), _covariances(after), _means(before), _covariances(before), float(level))


def smooth_volume(parameters: VolumeParameters, log_volume: Any, *, robust: float | None = None) -> SmoothedStates:
    """The states of a panel as they are known at its end, and its log-likelihood."""
    y, kappa = _checked_for(parameters, log_volume), _checked_kappa(robust)
    with _double_precision():
        state, level = jax.device_get(smoother_pass(_theta(parameters), y, kappa))
    return SmoothedStates(_means(state), _covariances(state), float(level))


def dynamic_forecast(parameters: VolumeParameters, log_volume: Any, *, robust: float | None = None) -> VolumeForecast:
    """Every bin forecast from all bins before it, those of the same day included."""
    states = filter_volume(parameters, log_volume, robust=robust)
    mean = parameters.phi + states.predicted_mean.sum(axis=-1)
    return VolumeForecast(mean, states.predicted_covariance.sum(axis=(-2, -1)) + parameters.r)


def static_forecast(parameters: VolumeParameters, log_volume: Any, *, robust: float | None = None) -> VolumeForecast:
    """Every day forecast as a whole at the close of the day before; a last row of NaN asks for a day not yet seen."""
    states = filter_volume(parameters, log_volume, robust=robust)
    return _ahead(parameters, states, 0)


def matched_forecast(
    parameters: VolumeParameters, log_volume: Any, *, through: int = 0, robust: float | None = None
) -> VolumeForecast:
    """The later bins of every day forecast from the days before and its own bins 0..`through`; NaN up to there."""
    n_bins = len(parameters.phi)
    if isinstance(through, bool) or not isinstance(through, int | np.integer) or not 0 <= through < n_bins - 1:
        raise InputError(
            expected=f"through as a bin from 0 to {n_bins - 2}, with a later one to forecast",
            found=f"{through!r}",
            hint="0, or static_forecast for none of the day's bins",
        )
    states = filter_volume(parameters, log_volume, robust=robust)
    return _ahead(parameters, states, int(through) + 1)


def _ahead(parameters: VolumeParameters, states: FilteredStates, first: int) -> VolumeForecast:
    """Bins `first` and later of every day from the state before bin `first`; NaN for the earlier ones."""
    x, V = states.predicted_mean[:, first, :, None], states.predicted_covariance[:, first, :, :, None]
    decay = parameters.a_mu ** np.arange(len(parameters.phi) - first)
    ripples = parameters.q_mu * np.concatenate([[0.0], np.cumsum(decay[:-1] ** 2)])
    mean, variance = np.full((2, *states.mean.shape[:2]), np.nan)
    mean[:, first:] = parameters.phi[first:] + x[:, 0] + decay * x[:, 1]
    variance[:, first:] = V[:, 0, 0] + 2.0 * decay * V[:, 0, 1] + decay**2 * V[:, 1, 1] + ripples + parameters.r
    return VolumeForecast(mean, variance)


class _Climb(NamedTuple):
    theta: Theta
    levels: list[float]
    n_steps: int
    converged: bool


_Step = Callable[[Theta], tuple[Theta, float]]


def _steps(step: _Step, theta: Theta, n_iter: int, tolerance: float) -> _Climb:
    """Plain EM: the log-likelihood never falls."""
    levels, gap = [], math.inf
    while len(levels) < n_iter and gap >= tolerance:  # NaN ends it
        moved, level = step(theta)
        theta, gap = moved, _distance(theta, moved)
        levels.append(level)
    return _Climb(theta, levels, len(levels), gap < tolerance)


def _leaps(step: _Step, theta: Theta, n_iter: int, tolerance: float) -> _Climb:
    """EM two steps at a time, then a leap; where a leap has lost likelihood, the second of the steps stands."""
    levels, n_steps, safe, least, gap = [], 0, theta, -math.inf, math.inf
    while n_steps < n_iter and gap >= tolerance:  # NaN ends it
        first, level = step(theta)
        n_steps += 1
        if not level >= least and theta is not safe:
            theta = safe
            continue
        levels.append(level)
        if n_steps == n_iter:
            return _Climb(first, levels, n_steps, False)
        second, least = step(first)
        n_steps += 1
        levels.append(least)
        gap = _distance(first, second)
        theta, safe = _leap(theta, first, second), second
    return _Climb(safe, levels, n_steps, gap < tolerance)


def _leap(start: Theta, first: Theta, second: Theta) -> Theta:
    """Where two steps point: SQUAREM for phi, Aitken's formula for each number; V0 stays a covariance as it is."""
    leap = {name: _aitken(*parts) for name, *parts in zip(Theta._fields, start, first, second, strict=True)}
    leap |= {name: leap[name] if leap[name] > 0.0 else getattr(second, name) for name in ("q_eta", "q_mu", "r")}
    return Theta(**leap | {"phi": _squarem(start.phi, first.phi, second.phi), "V0": second.V0})


def _aitken(start: np.ndarray, first: np.ndarray, second: np.ndarray) -> np.ndarray:
    slope, bend = first - start, second - 2.0 * first + start
    bent = np.abs(bend) > _STILL
    return np.where(bent, start + np.abs(slope) / np.where(bent, np.abs(bend), 1.0) * slope, second)


def _squarem(start: np.ndarray, first: np.ndarray, second: np.ndarray) -> np.ndarray:
    slope, bend = first - start, second - 2.0 * first + start
    size = np.linalg.norm(bend)
    if size <= _STILL:
        return second
    alpha = -np.linalg.norm(slope) / size
    return start - 2.0 * alpha * slope + alpha**2 * bend


def _distance(one: Theta, other: Theta) -> float:
    return math.sqrt(sum(float(np.sum((a - b) ** 2)) for a, b in zip(one, other, strict=True)))


def _first_guess(y: Panel) -> Theta:
    """The level and shape of the bins' means and little noise."""
    means = np.nanmean(y, axis=0)
    level = float(means.mean())
    V0 = np.array([[1e-3, 1e-7], [1e-7, 1e-5]])
    guess = VolumeParameters(1.0, 0.0, 1e-4, 1e-4, 1e-4, means - level, np.array([level, 0.0]), V0)
    return _theta(guess)


def _theta(parameters: VolumeParameters) -> Theta:
    return Theta(*(np.asarray(getattr(parameters, name), dtype=np.float64) for name in Theta._fields))


def _parameters(theta: Theta) -> VolumeParameters:
    a_eta, a_mu, q_eta, q_mu, r = (float(part) for part in theta[:5])
    return VolumeParameters(a_eta, a_mu, q_eta, q_mu, r, theta.phi, theta.x0, theta.V0)


def _means(state: State) -> Means:
    return np.stack([state.eta, state.mu], axis=-1)


def _covariances(state: State) -> Covariances:
    return np.stack([np.stack([state.ee, state.em], axis=-1), np.stack([state.em, state.mm], axis=-1)], axis=-2)


@contextlib.contextmanager
def _double_precision() -> Iterator[None]:
    """Double precision, and the CPU: every step waits for the one before, which a GPU has no answer to."""
    with jax.enable_x64(True), jax.default_device(processor()):
        yield


def _checked_days(log_volume: Any) -> Panel:
    """A panel that EM can fit: two days and two bins, and no bin that is always missing."""
    y = checked_panel(log_volume, "log_volume")
    if min(y.shape) < 2:
        raise InputError(expected="at least 2 days of at least 2 bins", found=f"shape {y.shape}", hint="one row a day")
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
            expected="robust above 0, or None", found=f"{robust!r}", hint="2.0, or None for the plain filter"
        )
    return np.asarray(math.inf if robust is None else robust, dtype=np.float64)


def _check_effort(n_iter: int, tolerance: float) -> None:
    if isinstance(n_iter, bool) or not isinstance(n_iter, int | np.integer) or n_iter < 1:
        raise InputError(expected="n_iter as a whole number from 1 on", found=f"{n_iter!r}", hint="3000")
    if not tolerance >= 0.0:
        raise InputError(expected="tolerance from 0 on", found=f"{tolerance!r}", hint="1e-4")
