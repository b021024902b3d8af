"""Diffusions to be learned: S(x; theta), of which a = S S' is what the data can say.

    scalar      sigma I                     multiplicative    diag(sigma_i x_i)
    diagonal    diag(sigma_i)               network           diag(sigma_i exp(net_i(x)))
    full        a lower triangle            network-full      a lower triangle moved by a network

All scales are exp(theta), so that none is ever negative. Forms are written in standardised units z = (x - mean) / sd,
in which S_z = diag(1 / sd) S(x).
"""

import abc
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from itofit.errors import InputError
from itofit.process.diffusion import AbstractDiffusion
from itofit.process.drift import AbstractDrift
from itofit.process.ito import ItoProcess
from itofit.snapshots.clouds import Snapshots
from itofit.snapshots.scaling import Scaling

LEARN = "learn"
KINDS = ("scalar", "diagonal", "full", "multiplicative", "network", "network-full")
# Hidden units of a network.
_WIDTH = 16
# Units of a log scale, of an entry beside the diagonal, and of the weights of a network. A fixed weak prior of the
# moments solver makes each uncertain by 30 of its units.
_LOG, _ENTRY, _WEIGHT = 0.1, 0.03, 0.01
# How much faster than the drift's a log scale moves in the adversarial solver.
_PACE = 5.0


@dataclass(frozen=True)
class ParametricSigma:
    """A sigma of your own with parameters to learn: `function(x, parameters)` returns a vector or a matrix S.

    It is a jax function of one state in your units; a vector is the diagonal. `start` are the parameters to begin with,
    better too much noise than too little.
    """

    function: Callable[[Any, Any], Any]
    start: tuple[float, ...]


class AbstractForm(eqx.Module):
    """S(z; theta) in standardised units."""

    @property
    @abc.abstractmethod
    def constant(self) -> bool:
        """Whether S is the same everywhere."""

    @abc.abstractmethod
    def unit(self) -> Float[np.ndarray, " n_parameters"]:
        """By how much a parameter is likely to move, of order a thirtieth of what is not known of it."""

    @abc.abstractmethod
    def __call__(self, theta: Float[Array, " n_parameters"], z: Float[Array, " n_dims"]) -> Float[Array, "d d"]:
        """S."""


class LearnedDiffusion(AbstractDiffusion):
    """S(z; theta) at some theta."""

    theta: Float[Array, " n_parameters"]
    form: AbstractForm

    @property
    def constant(self) -> bool:
        return self.form.constant

    @property
    def n_parameters(self) -> int:
        return len(self.theta)

    def moved(self, v: Float[Array, " n_parameters"]) -> "LearnedDiffusion":
        unit = jnp.asarray(self.form.unit(), dtype=self.theta.dtype)
        return LearnedDiffusion(self.theta + unit * v, self.form)

    def __call__(self, x: Float[Array, " n_dims"]) -> Float[Array, "n_dims n_dims"]:
        return self.form(self.theta, x)


class ScalarForm(AbstractForm):
    """The same sigma for all coordinates, in the user's units."""

    sd: Float[Array, " n_dims"]

    @property
    def constant(self) -> bool:
        return True

    def unit(self):
        return np.asarray([_LOG])

    def __call__(self, theta, z):
        return jnp.diag(jnp.exp(theta[0]) / self.sd)


class DiagonalForm(AbstractForm):
    """One sigma a coordinate."""

    n_dims: int = eqx.field(static=True)

    @property
    def constant(self) -> bool:
        return True

    def unit(self):
        return np.full(self.n_dims, _LOG)

    def __call__(self, theta, z):
        return jnp.diag(jnp.exp(theta))


class FullForm(AbstractForm):
    """diag(exp theta_i) (I + N) with N below the diagonal."""

    n_dims: int = eqx.field(static=True)

    @property
    def constant(self) -> bool:
        return True

    def unit(self):
        return _triangle_units(self.n_dims)

    def __call__(self, theta, z):
        return _triangle(theta, self.n_dims)


class MultiplicativeForm(AbstractForm):
    """diag(sigma_i x_i), in the user's units."""

    mean: Float[Array, " n_dims"]
    sd: Float[Array, " n_dims"]

    @property
    def constant(self) -> bool:
        return False

    def unit(self):
        return np.full(len(self.sd), _LOG)

    def __call__(self, theta, z):
        return jnp.diag(jnp.exp(theta) * (self.mean / self.sd + z))


class NetworkForm(AbstractForm):
    """The entries of a diagonal or of a triangle, moved by a network of one tanh layer."""

    n_dims: int = eqx.field(static=True)
    full: bool = eqx.field(static=True)

    @property
    def constant(self) -> bool:
        return False

    @property
    def n_entries(self) -> int:
        """Entries of S that move."""
        return self.n_dims * (self.n_dims + 1) // 2 if self.full else self.n_dims

    def unit(self):
        own = _triangle_units(self.n_dims) if self.full else np.full(self.n_dims, _LOG)
        return np.concatenate([own, np.full(_WIDTH * (self.n_dims + 1 + self.n_entries), _WEIGHT)])

    def start(self, own: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """A network that says nothing yet, its hidden units drawn."""
        hidden = rng.standard_normal(_WIDTH * (self.n_dims + 1))
        return np.concatenate([own, hidden, np.zeros(_WIDTH * self.n_entries)])

    def __call__(self, theta, z):
        ends = np.cumsum([self.n_entries, _WIDTH * self.n_dims, _WIDTH])
        own, weight, bias, out = jnp.split(theta, ends)
        hidden = jnp.tanh(weight.reshape(_WIDTH, self.n_dims) @ z + bias)
        moved = own + out.reshape(self.n_entries, _WIDTH) @ hidden
        return _triangle(moved, self.n_dims) if self.full else jnp.diag(jnp.exp(moved))


class FunctionForm(AbstractForm):
    """The user's own function of a state and of parameters, in the user's units."""

    function: Callable[[Any, Any], Any]
    mean: Float[Array, " n_dims"]
    sd: Float[Array, " n_dims"]
    size: tuple[float, ...] = eqx.field(static=True)

    @property
    def constant(self) -> bool:
        return False

    def unit(self):
        return _LOG * np.asarray(self.size)

    def __call__(self, theta, z):
        S = self.function(self.mean + self.sd * z, theta)
        S = jnp.diag(S) if S.ndim == 1 else S
        return S / self.sd[:, None]


class NoisyDrift(AbstractDrift):
    """A drift and the noise that is learned with it: what the adversarial solver trains."""

    drift: AbstractDrift
    diffusion: LearnedDiffusion

    def __call__(self, x: Float[Array, " n_dims"]) -> Float[Array, " n_dims"]:
        return self.drift(x)

    @property
    def n_levels(self) -> int:
        """Those of the drift."""
        return self.drift.n_levels

    def begun(self, level: int) -> "NoisyDrift":
        """With the drift of that stage."""
        return NoisyDrift(self.drift.begun(level), self.diffusion)

    def at_level(self, level: int) -> "NoisyDrift":
        """With the drift at that stage."""
        return NoisyDrift(self.drift.at_level(level), self.diffusion)

    def whole(self) -> "NoisyDrift":
        """With the whole drift."""
        return NoisyDrift(self.drift.whole(), self.diffusion)

    def pace(self) -> "NoisyDrift":
        """The drift's; parameters of the noise are faster, since probes of bounded slope have little curvature."""
        still = jax.tree.map(lambda leaf: 0.0, eqx.filter(self, eqx.is_inexact_array))
        faster = _PACE * jnp.asarray(self.diffusion.form.unit() / _LOG)
        return eqx.tree_at(lambda g: (g.drift, g.diffusion.theta), still, (self.drift.pace(), faster))

    def sparse_pull(self) -> "NoisyDrift":
        """The drift's."""
        nothing = jax.tree.map(jnp.zeros_like, eqx.filter(self, eqx.is_inexact_array))
        return eqx.tree_at(lambda g: g.drift, nothing, self.drift.sparse_pull())

    def thinned(self, now: Bool[Array, ""]) -> "NoisyDrift":
        """With the drift thinned."""
        return NoisyDrift(self.drift.thinned(now), self.diffusion)

    @property
    def n_terms(self) -> Int[Array, ""]:
        """The drift's."""
        return self.drift.n_terms


def process_of(drift: AbstractDrift, diffusion: AbstractDiffusion) -> ItoProcess:
    """The process of a drift with this noise, or with its own where that is learned."""
    if isinstance(drift, NoisyDrift):
        return ItoProcess(drift.drift, drift.diffusion)
    return ItoProcess(drift, diffusion)


def is_learned(sigma: Any) -> bool:
    """Whether this sigma is to be learned; strings that say nothing are refused."""
    if isinstance(sigma, str) and sigma not in (LEARN, *KINDS):
        raise InputError(
            expected=f"sigma as numbers, a function of the state, {LEARN!r}, or one of {', '.join(KINDS)}",
            found=f"{sigma!r}",
            hint="sigma='learn' learns one number a coordinate",
        )
    return isinstance(sigma, str | ParametricSigma)


def first_noise(sigma: Any, snapshots: Snapshots, scaling: Scaling, seed: int) -> LearnedDiffusion:
    """Where learning begins: noise that would fill the spread of standardised snapshots within the mean gap.

    Rather too much than too little: from above every step is safe, from below a log scale hardly moves the cloud.
    """
    widths = [np.sqrt(w @ (x - w @ x) ** 2) for _, x, w in snapshots]
    size = np.mean(widths, axis=0) * np.sqrt(2.0 / np.mean(np.diff(snapshots.times)))
    return noise_of(sigma, scaling, np.maximum(size, 1e-6), seed)


def noise_of(sigma: Any, scaling: Scaling, size: Float[np.ndarray, " n_dims"], seed: int) -> LearnedDiffusion:
    """The noise to be learned with these standard deviations a square root of time, in standardised units."""
    mean, sd = (jnp.asarray(a, dtype=float) for a in (scaling.mean, scaling.sd))
    n_dims, log = len(scaling.sd), np.log(size)
    if isinstance(sigma, ParametricSigma):
        form: AbstractForm = FunctionForm(sigma.function, mean, sd, tuple(max(1.0, abs(p)) for p in sigma.start))
        return _checked(LearnedDiffusion(jnp.asarray(sigma.start, dtype=float), form))
    off = np.zeros(n_dims * (n_dims - 1) // 2)
    if sigma == "scalar":
        form, theta = ScalarForm(sd), np.mean(log + np.log(scaling.sd), keepdims=True)
    elif sigma == "full":
        form, theta = FullForm(n_dims), np.append(log, off)
    elif sigma == "multiplicative":
        far = np.sqrt((scaling.mean / scaling.sd) ** 2 + 1.0)
        form, theta = MultiplicativeForm(mean, sd), log - np.log(far)
    elif sigma in ("network", "network-full"):
        network = NetworkForm(n_dims, full=sigma == "network-full")
        own = np.append(log, off) if network.full else log
        form, theta = network, network.start(own, np.random.default_rng([seed, 9]))
    else:
        form, theta = DiagonalForm(n_dims), log
    return LearnedDiffusion(jnp.asarray(theta, dtype=float), form)


def mean_noise(several: Sequence[AbstractDiffusion]) -> AbstractDiffusion:
    """One noise for the members of an ensemble: learned parameters are averaged."""
    learned = [one for one in several if isinstance(one, LearnedDiffusion)]
    if not learned:
        return several[0]
    return LearnedDiffusion(jnp.mean(jnp.stack([one.theta for one in learned]), axis=0), learned[0].form)


def _checked(diffusion: LearnedDiffusion) -> LearnedDiffusion:
    """The noise of a user's function, or a refusal."""
    n_dims = len(diffusion.form.sd)  # pyright: ignore
    try:
        value = np.asarray(diffusion(jnp.zeros(n_dims)))
    except (TypeError, ValueError, IndexError, AttributeError, KeyError) as error:
        found = f"{type(error).__name__}: {str(error).splitlines()[0]}"
    else:
        if value.shape == (n_dims, n_dims) and np.all(np.isfinite(value)):
            return diffusion
        found = f"shape {value.shape}, finite at the mean of the data: {bool(np.all(np.isfinite(value)))}"
    raise InputError(
        expected=f"a jax function of a state and parameters that returns {n_dims} numbers or a matrix",
        found=found,
        hint="ParametricSigma(lambda x, p: jnp.exp(p[0]) * x, start=(0.0,))",
    )


def _triangle_units(n_dims: int) -> np.ndarray:
    return np.append(np.full(n_dims, _LOG), np.full(n_dims * (n_dims - 1) // 2, _ENTRY))


def _triangle(theta: Float[Array, " n"], n_dims: int) -> Float[Array, "n_dims n_dims"]:
    below = jnp.eye(n_dims).at[np.tril_indices(n_dims, -1)].set(theta[n_dims:])
    return jnp.exp(theta[:n_dims])[:, None] * below
