"""Systems whose truth is known: the paper's Syn-1, Syn-2 and Syn-3, Ornstein-Uhlenbeck, diffusion and curl.

Each is a product of independent two-dimensional blocks (the paper couples nothing at D = 6 and 10),
started from a centred normal law and observed through the Euler chain with the system's own step,
which is therefore the truth that scores refer to.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from itofit.errors import InputError
from itofit.process.diffusion import AbstractDiffusion, ConstantDiffusion, FunctionDiffusion
from itofit.process.drift import FunctionDrift
from itofit.process.ito import ItoProcess
from itofit.simulate.euler import euler_push
from itofit.simulate.mesh import Mesh
from itofit.snapshots.clouds import Snapshots

Drift = Callable[[Float[Array, " n_dims"]], Float[Array, " n_dims"]]


@dataclass(frozen=True, eq=False)
class LinearDynamics:
    """g(x) = -A (x - mu), for which mean and covariance are known at all times."""

    matrix: Float[np.ndarray, "n_dims n_dims"]
    fixed_point: Float[np.ndarray, " n_dims"]


@dataclass(frozen=True, eq=False)
class KnownSystem:
    """A process with its initial law N(0, initial_cov), its step and the times the paper uses.

    `shared_particles` says whether the paper observes one set of particles repeatedly.
    `linear` holds the coefficients where the moments have a closed form.
    """

    name: str
    process: ItoProcess
    initial_cov: Float[np.ndarray, "n_dims n_dims"]
    dt: float
    train_times: tuple[float, ...]
    test_times: tuple[float, ...]
    shared_particles: bool = True
    linear: LinearDynamics | None = field(default=None)

    @property
    def n_dims(self) -> int:
        """Dimension of the state."""
        return len(self.initial_cov)

    def sample_initial(self, n: int, key: PRNGKeyArray) -> Float[Array, "n n_dims"]:
        """`n` draws of the initial law."""
        factor = jnp.asarray(np.linalg.cholesky(self.initial_cov))
        return jax.random.normal(key, (n, self.n_dims)) @ factor.T

    def push(
        self, start: Float[Array, "n n_dims"], times: Sequence[float] | np.ndarray, key: PRNGKeyArray
    ) -> list[Float[Array, "n n_dims"]]:
        """The cloud grown from `start` (at time 0) at each of the increasing `times`."""
        clouds, x, now = [], start, 0.0
        for i, time in enumerate(times):
            if time > now:
                steps = jnp.asarray(Mesh.refine([now, time], self.dt).steps)
                x, now = _push(self.process, x, steps, jax.random.fold_in(key, i)), time
            clouds.append(x)
        return clouds

    def observe(
        self, n: int, times: Sequence[float] | np.ndarray, *, key: PRNGKeyArray, shared_particles: bool | None = None
    ) -> Snapshots:
        """Snapshots of `n` points: one set of particles seen repeatedly, or a fresh set for every time."""
        times = sorted(float(t) for t in times)
        if not times or times[0] < 0.0:
            raise InputError(
                expected="times from 0 on, where the initial law is known",
                found=f"t={times[0]:g}" if times else "no time",
                hint="drop the negative times",
            )
        shared = self.shared_particles if shared_particles is None else shared_particles
        if shared:
            k0, k1 = jax.random.split(key)
            clouds = self.push(self.sample_initial(n, k0), times, k1)
        else:
            keys = [jax.random.split(k) for k in jax.random.split(key, len(times))]
            clouds = [
                self.push(self.sample_initial(n, k0), [t], k1)[0] for t, (k0, k1) in zip(times, keys, strict=True)
            ]
        return Snapshots.from_arrays([np.asarray(x) for x in clouds], times)

    def euler_moments(self, time: float) -> tuple[np.ndarray, np.ndarray]:
        """Mean and covariance of the Euler chain at `time`, for linear dynamics."""
        linear = self._linear()
        mean, cov = np.zeros(self.n_dims), np.asarray(self.initial_cov)
        noise = np.asarray(self.process.diffusion(jnp.zeros(self.n_dims)), dtype=np.float64)
        for h in Mesh.refine([0.0, time], self.dt).steps if time > 0 else []:
            factor = np.eye(self.n_dims) - h * linear.matrix
            mean = linear.fixed_point + factor @ (mean - linear.fixed_point)
            cov = factor @ cov @ factor.T + h * noise @ noise.T
        return mean, cov

    def exact_moments(self, time: float) -> tuple[np.ndarray, np.ndarray]:
        """Mean and covariance in continuous time, for linear dynamics (Van Loan's block exponential)."""
        from scipy.linalg import expm

        linear = self._linear()
        d = self.n_dims
        noise = np.asarray(self.process.diffusion(jnp.zeros(d)), dtype=np.float64)
        blocks = np.zeros((2 * d, 2 * d))
        blocks[:d, :d], blocks[:d, d:], blocks[d:, d:] = linear.matrix, noise @ noise.T, -linear.matrix.T
        exponential = expm(blocks * time)
        flow = exponential[d:, d:].T
        mean = linear.fixed_point - flow @ linear.fixed_point
        return mean, flow @ self.initial_cov @ flow.T + flow @ exponential[:d, d:]

    def _linear(self) -> LinearDynamics:
        if self.linear is None:
            raise InputError(
                expected="a system with linear drift",
                found=f"{self.name}",
                hint="compare with a simulation instead",
            )
        return self.linear


@eqx.filter_jit
def _push(process, start, steps, key):
    return euler_push(process, start, steps, key)


def in_blocks(block: Drift) -> Drift:
    """Apply a two-dimensional drift to every consecutive pair of coordinates."""

    def drift(x: Float[Array, " n_dims"]) -> Float[Array, " n_dims"]:
        return jax.vmap(block)(x.reshape(-1, 2)).reshape(x.shape)

    return drift


def van_der_pol(x: Float[Array, " 2"]) -> Float[Array, " 2"]:
    """The block of Syn-3."""
    return jnp.stack([10.0 * (x[1] - x[0] ** 3 / 3.0 + x[0]), 3.0 * (1.0 - x[0])])


def two_wells(responsibility: str) -> Drift:
    """The block of Syn-2: pulled towards mu_1 and mu_2 in proportion to two Gaussian responsibilities.

    `gaussian2d` uses two-dimensional Gaussians of sd 4; `printed` is the paper's formula, whose N_1
    holds x^1 twice and N_2 holds x^2 twice; `score_scaled` has the rate sigma^2 / (2 sigma_k^2) = 1/2
    at which the stationary law is exactly the mixture of the two Gaussians.
    """
    first, second, sd = jnp.array([12.0, 15.0]), jnp.array([-15.0, -15.0]), 4.0
    rate = 0.5 if responsibility == "score_scaled" else 1.0 / sd

    def drift(x: Float[Array, " 2"]) -> Float[Array, " 2"]:
        u, v = (x[0], x[1]) if responsibility == "printed" else (x, x)
        log_odds = (jnp.sum((v - second) ** 2) - jnp.sum((u - first) ** 2)) / (2.0 * sd**2)
        share = jax.nn.sigmoid(log_odds)
        return -rate * (share * (x - first) + (1.0 - share) * (x - second))

    return drift


def _blocks(n_dims: int, matrix: Sequence[Sequence[float]]) -> np.ndarray:
    return np.kron(np.eye(n_dims // 2), np.asarray(matrix, dtype=np.float64))


def _linear_system(name, n_dims, matrix, fixed_point, sigma, cov, train, test, shared=True, dt=0.01) -> KnownSystem:
    A, mu = _blocks(n_dims, matrix), np.tile(np.asarray(fixed_point, dtype=np.float64), n_dims // 2)
    A_array, mu_array = jnp.asarray(A), jnp.asarray(mu)
    return KnownSystem(
        name=name,
        process=_process(lambda x: -A_array @ (x - mu_array), sigma, n_dims),
        initial_cov=_blocks(n_dims, cov),
        dt=dt,
        train_times=train,
        test_times=test,
        shared_particles=shared,
        linear=LinearDynamics(A, mu),
    )


def _block_system(name, n_dims, block, train, test, *, sigma, shared=True) -> KnownSystem:
    return KnownSystem(
        name=name,
        process=_process(in_blocks(block), sigma, n_dims),
        initial_cov=np.eye(n_dims),
        dt=0.01,
        train_times=train,
        test_times=test,
        shared_particles=shared,
    )


def _process(drift: Drift, sigma: Any, n_dims: int) -> ItoProcess:
    """With sigma I, or S of every block as a matrix or as a function of the block."""
    if callable(sigma):
        one: Callable[..., Any] = sigma
        diffusion: AbstractDiffusion = FunctionDiffusion(lambda x: jax.vmap(one)(x.reshape(-1, 2)).reshape(x.shape))
        return ItoProcess(FunctionDrift(drift), diffusion)
    factor = sigma * np.eye(n_dims) if np.ndim(sigma) == 0 else _blocks(n_dims, sigma)
    return ItoProcess(FunctionDrift(drift), ConstantDiffusion(jnp.asarray(factor, dtype=float)))


_IDENTITY = [[1.0, 0.0], [0.0, 1.0]]
_CURL = [[0.0, -10.0], [10.0, 0.0]]
# An Euler step of a rotation at rate 10 lengthens the radius by 1 + 50 dt^2: a short step keeps the law.
_CURL_DT = 0.0005
_CURL_TIMES = (0.0, 0.05, 0.10, 0.15)
_WELL_TIMES = ((0.0, 0.1, 0.4, 0.8), (0.3, 0.5, 1.0))

SYSTEMS: dict[str, Callable[[int], KnownSystem]] = {
    "syn1": lambda d: _linear_system(
        "syn1", d, [[4.0, 0.0], [0.0, 1.0]], [3.0, 12.0], 1.0, _IDENTITY, (0.0, 0.2, 2.0), (0.1, 0.5, 5.0)
    ),
    "syn2": lambda d: _block_system("syn2", d, two_wells("gaussian2d"), *_WELL_TIMES, sigma=4.0, shared=False),
    "syn2-printed": lambda d: _block_system(
        "syn2-printed", d, two_wells("printed"), *_WELL_TIMES, sigma=4.0, shared=False
    ),
    "syn2-score": lambda d: _block_system(
        "syn2-score", d, two_wells("score_scaled"), *_WELL_TIMES, sigma=4.0, shared=False
    ),
    "syn3": lambda d: _block_system("syn3", d, van_der_pol, (0.0, 0.03, 0.07, 0.2), (0.1, 0.3, 0.5), sigma=1.0),
    "ou": lambda d: _linear_system(
        "ou",
        d,
        [[1.0, 0.5], [-0.5, 2.0]],
        [1.0, -1.0],
        0.7,
        _IDENTITY,
        (0.0, 0.3, 1.0),
        (0.6, 2.0),
        shared=False,
    ),
    "diffusion": lambda d: _linear_system(
        "diffusion",
        d,
        [[0.0, 0.0], [0.0, 0.0]],
        [0.0, 0.0],
        1.0,
        _IDENTITY,
        (0.0, 0.5, 2.0),
        (1.0, 3.0),
        shared=False,
    ),
    "diffusion-paper": lambda d: _linear_system(
        "diffusion-paper",
        d,
        [[0.0, 0.0], [0.0, 0.0]],
        [0.0, 0.0],
        [[1.0, 0.0], [0.0, 2.0]],
        _IDENTITY,
        (0.0, 0.5, 2.0, 5.0),
        (0.1, 0.3, 0.5, 3.0),
    ),
    "correlated": lambda d: _linear_system(
        "correlated",
        d,
        [[1.0, 0.0], [0.0, 2.0]],
        [1.0, -1.0],
        [[1.0, 0.0], [0.56, 0.8 * 0.51**0.5]],
        [[0.04, 0.0], [0.0, 0.04]],
        (0.0, 0.1, 0.3, 1.0, 2.0),
        (0.2, 0.6, 3.0),
        shared=False,
    ),
    "multiplicative": lambda d: _block_system(
        "multiplicative",
        d,
        lambda x: jnp.array([3.0, 2.0]) * (jnp.array([2.0, 1.0]) - x),
        (0.0, 0.2, 0.5, 1.0),
        (0.1, 0.8, 2.0),
        sigma=lambda x: jnp.array([0.5, 0.8]) * x,
        shared=False,
    ),
    "curl": lambda d: _linear_system(
        "curl",
        d,
        _CURL,
        [0.0, 0.0],
        0.0,
        [[2.0, 0.0], [0.0, 2.0]],
        _CURL_TIMES,
        (0.075, 0.2),
        False,
        _CURL_DT,
    ),
    "curl-anisotropic": lambda d: _linear_system(
        "curl-anisotropic",
        d,
        _CURL,
        [0.0, 0.0],
        0.0,
        [[2.0, 0.0], [0.0, 1.0]],
        _CURL_TIMES,
        (0.075, 0.2),
        False,
        _CURL_DT,
    ),
}


def known_system(name: str, n_dims: int = 2) -> KnownSystem:
    """The known system of that name, at any even dimension."""
    if name not in SYSTEMS:
        raise InputError(
            expected=f"one of {', '.join(SYSTEMS)}", found=f"{name!r}", hint="syn3 is the paper's oscillator"
        )
    if n_dims < 2 or n_dims % 2:
        raise InputError(
            expected="an even dimension, since the systems are made of two-dimensional blocks",
            found=f"{n_dims}",
            hint="--dim 2, 6 or 10 as in the paper",
        )
    return SYSTEMS[name](n_dims)
