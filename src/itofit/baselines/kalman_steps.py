"""One filter, one smoother and one EM step of the model of volume, two states written out in
scalars: at each bin

    e = y - phi - C x,   S = C V C' + r,   k = V C' / S
    x <- x + k e,        V <- V - k C V,   then x <- A x,   V <- A V A' + Q

with C = [1 1], A = diag(a, a_mu), Q = diag(q, q_mu); a = a_eta and q = q_eta from one day to the
next, 1 and 0 within it. The smoother runs back with the score s and the information N of what comes
later,

    s <- C' e / S + (I - k C)' A' s,   N <- C' C / S + (I - k C)' A' N A (I - k C)
    x + V A' s,                        V - V A' N A V

which inverts no covariance, so that states without noise are allowed.

The scans hold scalars and the recursions alone; all that follows from them is done on whole arrays.
XLA compiles the loop of a scan on a CPU into one function only while its body touches little
memory; a larger body, or an unrolled one, runs op by op: 50 times the seconds, where it was tried.
`benchmarks/kalman.py` watches over it.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

Scalar = Float[Array, ""]
Panel = Float[Array, "n_days n_bins"]


class Theta(NamedTuple):
    """The parameters: of jax inside a compiled program, of numpy outside."""

    a_eta: Float[Any, ""]
    a_mu: Float[Any, ""]
    q_eta: Float[Any, ""]
    q_mu: Float[Any, ""]
    r: Float[Any, ""]
    phi: Float[Any, " n_bins"]
    x0: Float[Any, "2"]
    V0: Float[Any, "2 2"]


class State(NamedTuple):
    """Mean and covariance of (eta, mu) at one bin, or at all bins of a panel."""

    eta: Float[Array, "*bins"]
    mu: Float[Array, "*bins"]
    ee: Float[Array, "*bins"]
    em: Float[Array, "*bins"]
    mm: Float[Array, "*bins"]


class Bins(NamedTuple):
    """What is known of the bins in order of time: y - phi, 1 where it was observed, and whether the
    day ends.
    """

    z: Float[Array, "*bins"]
    observed: Float[Array, "*bins"]
    closes: Bool[Array, "*bins"]


class Innovation(NamedTuple):
    """An innovation e, its variance S, and what is left of it after clipping at kappa sqrt(S)."""

    e: Float[Array, "*bins"]
    S: Float[Array, "*bins"]
    clipped: Float[Array, "*bins"]


class Gain(NamedTuple):
    """The gains k of a bin, 1 / S and e / S; all of them 0 where nothing was observed."""

    eta: Float[Array, "*bins"]
    mu: Float[Array, "*bins"]
    weight: Float[Array, "*bins"]
    pull: Float[Array, "*bins"]


class Filtered(NamedTuple):
    """States before and after each bin, and the log-likelihood."""

    before: State
    after: State
    log_likelihood: Scalar


class Smoothed(NamedTuple):
    """States given all bins, and the covariances of eta and of mu with themselves one bin later."""

    state: State
    lag_eta: Float[Array, "*bins"]
    lag_mu: Float[Array, "*bins"]


@jax.jit
def filter_pass(theta: Theta, y: Panel, kappa: Scalar) -> Filtered:
    """States before and after each bin, and the log-likelihood."""
    bins = _bins(theta, y)
    before = _forward(theta, bins, kappa)
    after, _ = _updated(before, bins, theta.r, kappa)
    innovation = _innovation(before, bins.z, theta.r, kappa)
    level = _log_likelihood(innovation, bins, kappa)
    return Filtered(_shaped(before, y), _shaped(after, y), level)


@jax.jit
def smoother_pass(theta: Theta, y: Panel, kappa: Scalar) -> tuple[State, Scalar]:
    """States given all bins, and the log-likelihood."""
    bins = _bins(theta, y)
    before = _forward(theta, bins, kappa)
    innovation = _innovation(before, bins.z, theta.r, kappa)
    smoothed = _backward(theta, bins, before, kappa)
    return _shaped(smoothed.state, y), _log_likelihood(innovation, bins, kappa)


@jax.jit
def em_step(theta: Theta, y: Panel, kappa: Scalar) -> tuple[Theta, Scalar]:
    """The parameters after one EM step, and the log-likelihood before it."""
    bins = _bins(theta, y)
    before = _forward(theta, bins, kappa)
    innovation = _innovation(before, bins.z, theta.r, kappa)
    smoothed = _shaped(_backward(theta, bins, before, kappa), y)
    outliers = (innovation.e - innovation.clipped).reshape(y.shape)
    improved = _maximised(theta, y - outliers, smoothed)
    return improved, _log_likelihood(innovation, bins, kappa)


def _bins(theta: Theta, y: Panel) -> Bins:
    """The bins of a panel, one after the other."""
    observed = ~jnp.isnan(y)
    n_bins = y.shape[1]
    closes = jnp.broadcast_to(jnp.arange(n_bins) == n_bins - 1, y.shape)
    z = jnp.where(observed, y - theta.phi, 0.0)
    return Bins(z.ravel(), observed.astype(y.dtype).ravel(), closes.ravel())


def _forward(theta: Theta, bins: Bins, kappa: Scalar) -> State:
    """The state before each bin is observed."""

    def step(before: State, now: Bins) -> tuple[State, State]:
        after, _ = _updated(before, now, theta.r, kappa)
        return _one_bin_later(theta, after, now.closes), before

    first = State(theta.x0[0], theta.x0[1], theta.V0[0, 0], theta.V0[0, 1], theta.V0[1, 1])
    return jax.lax.scan(step, first, bins)[1]


def _backward(theta: Theta, bins: Bins, before: State, kappa: Scalar) -> Smoothed:
    """The state at each bin given all of them; the last lags are with a bin that does not exist."""
    after, gain = _updated(before, bins, theta.r, kappa)
    a = jnp.where(bins.closes, theta.a_eta, 1.0)

    def step(later: State, now: tuple[Scalar, Gain]) -> tuple[State, State]:
        a, k = now
        return _one_bin_earlier(_scaled(later, a, theta.a_mu), k), later

    nothing = State(*(jnp.zeros((), bins.z.dtype) for _ in State._fields))
    later = jax.lax.scan(step, nothing, (a, gain), reverse=True)[1]
    ahead = _one_bin_later(theta, after, bins.closes)
    lag_eta = (1.0 - ahead.ee * later.ee - ahead.em * later.em) * a * after.ee
    lag_eta -= (ahead.ee * later.em + ahead.em * later.mm) * theta.a_mu * after.em
    lag_mu = (1.0 - ahead.em * later.em - ahead.mm * later.mm) * theta.a_mu * after.mm
    lag_mu -= (ahead.em * later.ee + ahead.mm * later.em) * a * after.em
    return Smoothed(_informed(after, _scaled(later, a, theta.a_mu)), lag_eta, lag_mu)


def _one_bin_earlier(n: State, k: Gain) -> State:
    """The score s = (n.eta, n.mu) and the information N of all that comes later, this bin
    included.
    """
    # k' s and N k; I - C' k' takes the same number from both rows.
    ks = k.eta * n.eta + k.mu * n.mu
    Nk_eta = n.ee * k.eta + n.em * k.mu
    Nk_mu = n.em * k.eta + n.mm * k.mu
    shift = k.pull - ks
    whole = k.eta * Nk_eta + k.mu * Nk_mu + k.weight
    return State(
        n.eta + shift,
        n.mu + shift,
        n.ee - 2.0 * Nk_eta + whole,
        n.em - Nk_eta - Nk_mu + whole,
        n.mm - 2.0 * Nk_mu + whole,
    )


def _informed(state: State, n: State) -> State:
    """The state with the score s = (n.eta, n.mu) and the information N of later bins: x + V s,
    V - V N V.
    """
    # V N, row by row.
    ee = state.ee * n.ee + state.em * n.em
    em = state.ee * n.em + state.em * n.mm
    me = state.em * n.ee + state.mm * n.em
    mm = state.em * n.em + state.mm * n.mm
    return State(
        state.eta + state.ee * n.eta + state.em * n.mu,
        state.mu + state.em * n.eta + state.mm * n.mu,
        state.ee - ee * state.ee - em * state.em,
        state.em - ee * state.em - em * state.mm,
        state.mm - me * state.em - mm * state.mm,
    )


def _innovation(before: State, z: Float[Array, "*bins"], r: Scalar, kappa: Scalar) -> Innovation:
    S = before.ee + 2.0 * before.em + before.mm + r
    e = z - before.eta - before.mu
    most = kappa * jnp.sqrt(S)
    return Innovation(e, S, jnp.clip(e, -most, most))


def _updated(before: State, now: Bins, r: Scalar, kappa: Scalar) -> tuple[State, Gain]:
    """The state after a bin, and its gains; a bin not observed leaves the state as it was."""
    innovation = _innovation(before, now.z, r, kappa)
    weight = now.observed / innovation.S
    c_eta = before.ee + before.em
    c_mu = before.em + before.mm
    k_eta = c_eta * weight
    k_mu = c_mu * weight
    e = innovation.clipped
    after = State(
        before.eta + k_eta * e,
        before.mu + k_mu * e,
        before.ee - k_eta * c_eta,
        before.em - k_eta * c_mu,
        before.mm - k_mu * c_mu,
    )
    return after, Gain(k_eta, k_mu, weight, weight * e)


def _one_bin_later(theta: Theta, state: State, closes: Bool[Array, "*bins"]) -> State:
    """A x and A V A' + Q."""
    scaled = _scaled(state, jnp.where(closes, theta.a_eta, 1.0), theta.a_mu)
    ee = scaled.ee + jnp.where(closes, theta.q_eta, 0.0)
    mm = scaled.mm + theta.q_mu
    return scaled._replace(ee=ee, mm=mm)


def _scaled(state: State, a: Float[Array, "*bins"], a_mu: Scalar) -> State:
    """A x and A V A'."""
    return State(
        a * state.eta, a_mu * state.mu, a**2 * state.ee, a * a_mu * state.em, a_mu**2 * state.mm
    )


def _log_likelihood(innovation: Innovation, bins: Bins, kappa: Scalar) -> Scalar:
    """Gaussian; with a finite kappa Huber's loss stands for the square, without its normalising
    constant.
    """
    size = jnp.abs(innovation.e) / jnp.sqrt(innovation.S)
    inside = jnp.minimum(size, kappa)
    huber = inside * (2.0 * size - inside)
    return -0.5 * jnp.sum(bins.observed * (jnp.log(2.0 * jnp.pi * innovation.S) + huber))


def _maximised(theta: Theta, y: Panel, smoothed: Smoothed) -> Theta:
    """The parameters that maximise the expected log-likelihood of states and bins, `y` rid of
    outliers.
    """
    state = smoothed.state
    phi, r = _observation(y, state)
    a_eta, q_eta = _from_day_to_day(theta.a_eta, smoothed)
    a_mu, q_mu = _from_bin_to_bin(theta.a_mu, smoothed)
    first = State(*(part[0, 0] for part in state))
    x0 = jnp.array([first.eta, first.mu])
    V0 = jnp.array([[first.ee, first.em], [first.em, first.mm]])
    return Theta(a_eta, a_mu, q_eta, q_mu, r, phi, x0, V0)


def _observation(y: Panel, state: State) -> tuple[Float[Array, " n_bins"], Scalar]:
    """New phi and r. Where bins are observed unequally often, the best phi of sum 0 is not the mean
    made to sum to 0.
    """
    observed = ~jnp.isnan(y)
    left = jnp.where(observed, y - state.eta - state.mu, 0.0)
    counts = observed.sum(axis=0)
    means = left.sum(axis=0) / counts
    phi = means - means.sum() / jnp.sum(1.0 / counts) / counts
    squares = (left - phi) ** 2 + state.ee + 2.0 * state.em + state.mm
    return phi, jnp.sum(jnp.where(observed, squares, 0.0)) / counts.sum()


def _from_day_to_day(old: Scalar, smoothed: Smoothed) -> tuple[Scalar, Scalar]:
    """New a_eta and q_eta, from the last bin of each day and the first of the next."""
    eta = smoothed.state.eta
    closes = jnp.s_[:-1, -1]
    opens = jnp.s_[1:, 0]
    squares = smoothed.state.ee + eta**2
    cross = smoothed.lag_eta[closes] + eta[closes] * eta[opens]
    return _autoregression(old, squares[closes], squares[opens], cross)


def _from_bin_to_bin(old: Scalar, smoothed: Smoothed) -> tuple[Scalar, Scalar]:
    """New a_mu and q_mu, from each bin and the next."""
    mu = smoothed.state.mu.ravel()
    squares = (smoothed.state.mm + smoothed.state.mu**2).ravel()
    cross = smoothed.lag_mu.ravel()[:-1] + mu[:-1] * mu[1:]
    return _autoregression(old, squares[:-1], squares[1:], cross)


def _autoregression(
    old: Scalar, before: Float[Array, " n"], after: Float[Array, " n"], cross: Float[Array, " n"]
) -> tuple[Scalar, Scalar]:
    """New a and q of x' = a x + N(0, q) from second moments; a state that is always 0 keeps the a
    it has.
    """
    size = before.sum()
    a = jnp.where(size > 0.0, cross.sum() / jnp.where(size > 0.0, size, 1.0), old)
    q = jnp.mean(after - 2.0 * a * cross + a**2 * before)
    return a, jnp.maximum(q, 0.0)


def _shaped(parts: Any, y: Panel) -> Any:
    """Every array as days x bins."""
    return jax.tree.map(lambda part: part.reshape(y.shape), parts)
