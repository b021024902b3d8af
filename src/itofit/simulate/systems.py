"""Systems whose truth is known.

The paper's Syn-1, Syn-2 and Syn-3, Ornstein-Uhlenbeck, diffusion, correlated and multiplicative
noise, and curl. Each is a product of independent two-dimensional blocks (the paper couples nothing
at D = 6 and 10), started from a centred normal law and observed through the Euler chain with the
system's own step, which is therefore the truth that scores refer to.
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
from itofit.process.drift import FunctionDrift
from itofit.process.ito import ItoProcess
from itofit.process.noise import ConstantDiffusion, FunctionDiffusion
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

    Make one with `known_system`.

    Parameters
    ----------
    name : str
        The name of the system.
    process : ItoProcess
        The true drift and diffusion.
    initial_cov : array of shape (n_dims, n_dims)
        The covariance of the centred normal law at time 0.
    dt : float
        The longest step of the Euler chain, which is the truth that scores refer to.
    train_times : tuple of float
        The times at which the paper observes the system.
    test_times : tuple of float
        The times at which the paper scores a fit.
    shared_particles : bool, default True
        Whether the paper observes one set of particles repeatedly.
    linear : LinearDynamics, optional
        The coefficients where the moments have a closed form.

    Examples
    --------
    >>> import jax
    >>> from itofit import known_system
    >>> system = known_system("ou")
    >>> system.observe(50, system.train_times, key=jax.random.key(0))
    Snapshots(3 times, 2 dims; t=0: 50, t=0.3: 50, t=1: 50)
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
        """Dimension of the state.

        Examples
        --------
        >>> from itofit import known_system
        >>> known_system("syn1", n_dims=6).n_dims
        6
        """
        return len(self.initial_cov)

    def sample_initial(self, n: int, key: PRNGKeyArray) -> Float[Array, "n n_dims"]:
        """Draws of the initial law.

        Parameters
        ----------
        n : int
            The number of points.
        key : PRNGKeyArray
            A jax key.

        Returns
        -------
        jax array of shape (n, n_dims)
            Independent points.

        Examples
        --------
        >>> import jax
        >>> from itofit import known_system
        >>> known_system("syn1").sample_initial(5, jax.random.key(0)).shape
        (5, 2)
        """
        factor = jnp.asarray(np.linalg.cholesky(self.initial_cov))
        return jax.random.normal(key, (n, self.n_dims)) @ factor.T

    def push(
        self,
        start: Float[Array, "n n_dims"],
        times: Sequence[float] | np.ndarray,
        key: PRNGKeyArray,
    ) -> list[Float[Array, "n n_dims"]]:
        """Clouds of the Euler chain from a start at time 0.

        Parameters
        ----------
        start : jax array of shape (n, n_dims)
            The points at time 0.
        times : sequence of float
            Increasing times from 0 on.
        key : PRNGKeyArray
            A jax key for the noise.

        Returns
        -------
        list of jax arrays of shape (n, n_dims)
            The cloud at each of the times, row for row the same particles.

        Examples
        --------
        >>> import jax
        >>> import jax.numpy as jnp
        >>> from itofit import known_system
        >>> clouds = known_system("syn1").push(jnp.zeros((5, 2)), [0.1, 0.2], jax.random.key(0))
        >>> [cloud.shape for cloud in clouds]
        [(5, 2), (5, 2)]
        """
        clouds = []
        x = start
        now = 0.0
        for i, time in enumerate(times):
            if time > now:
                steps = jnp.asarray(Mesh.refine([now, time], self.dt).steps)
                x = _push(self.process, x, steps, jax.random.fold_in(key, i))
                now = time
            clouds.append(x)
        return clouds

    def observe(
        self,
        n: int,
        times: Sequence[float] | np.ndarray,
        *,
        key: PRNGKeyArray,
        shared_particles: bool | None = None,
    ) -> Snapshots:
        """Snapshots of the system.

        Parameters
        ----------
        n : int
            The number of points of each snapshot.
        times : sequence of float
            Times from 0 on, in any order.
        key : PRNGKeyArray
            A jax key for the start and the noise.
        shared_particles : bool, optional
            Whether one set of particles is observed repeatedly, or a fresh set at every time;
            without it, as in the paper.

        Returns
        -------
        Snapshots
            Shuffled, so that shared particles cannot be followed either.

        Raises
        ------
        InputError
            Where there is no time, or one before 0.

        Examples
        --------
        >>> import jax
        >>> from itofit import known_system
        >>> known_system("syn3").observe(20, [0.0, 0.05], key=jax.random.key(0))
        Snapshots(2 times, 2 dims; t=0: 20, t=0.05: 20)
        """
        times = sorted(float(t) for t in times)
        if not times or times[0] < 0.0:
            raise InputError(
                expected="times from 0 on, where the initial law is known",
                found=f"t={times[0]:g}" if times else "no time",
                hint="drop the negative times",
            )
        shared = self.shared_particles if shared_particles is None else shared_particles
        if shared:
            clouds = self._simulated(n, times, key)
        else:
            keys = jax.random.split(key, len(times))
            clouds = [self._simulated(n, [t], k)[0] for t, k in zip(times, keys, strict=True)]
        return Snapshots.from_arrays([np.asarray(x) for x in clouds], times)

    def _simulated(
        self, n: int, times: Sequence[float], key: PRNGKeyArray
    ) -> list[Float[Array, "n n_dims"]]:
        k_start, k_noise = jax.random.split(key)
        return self.push(self.sample_initial(n, k_start), times, k_noise)

    def euler_moments(self, time: float) -> tuple[np.ndarray, np.ndarray]:
        """Mean and covariance of the Euler chain, for linear dynamics.

        Parameters
        ----------
        time : float
            A time from 0 on.

        Returns
        -------
        mean : array of shape (n_dims,)
            The mean at that time.
        covariance : array of shape (n_dims, n_dims)
            The covariance at that time.

        Raises
        ------
        InputError
            Where the drift is not linear.

        Examples
        --------
        >>> from itofit import known_system
        >>> mean, covariance = known_system("syn1").euler_moments(20.0)
        >>> mean.round(3).tolist()
        [3.0, 12.0]
        """
        linear = self._linear()
        mean = np.zeros(self.n_dims)
        cov = np.asarray(self.initial_cov)
        noise = np.asarray(self.process.diffusion(jnp.zeros(self.n_dims)), dtype=np.float64)
        for h in Mesh.refine([0.0, time], self.dt).steps if time > 0 else []:
            factor = np.eye(self.n_dims) - h * linear.matrix
            mean = linear.fixed_point + factor @ (mean - linear.fixed_point)
            cov = factor @ cov @ factor.T + h * noise @ noise.T
        return mean, cov

    def exact_moments(self, time: float) -> tuple[np.ndarray, np.ndarray]:
        """Mean and covariance in continuous time, for linear dynamics (Van Loan's exponential).

        Parameters
        ----------
        time : float
            A time from 0 on.

        Returns
        -------
        mean : array of shape (n_dims,)
            The mean at that time.
        covariance : array of shape (n_dims, n_dims)
            The covariance at that time.

        Raises
        ------
        InputError
            Where the drift is not linear.

        Examples
        --------
        >>> from itofit import known_system
        >>> mean, covariance = known_system("syn1").exact_moments(20.0)
        >>> covariance.diagonal().round(3).tolist()
        [0.125, 0.5]
        """
        from scipy.linalg import expm

        linear = self._linear()
        d = self.n_dims
        noise = np.asarray(self.process.diffusion(jnp.zeros(d)), dtype=np.float64)
        blocks = np.zeros((2 * d, 2 * d))
        blocks[:d, :d] = linear.matrix
        blocks[:d, d:] = noise @ noise.T
        blocks[d:, d:] = -linear.matrix.T
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


def two_wells(reading: str) -> Drift:
    """The block of Syn-2: pulled towards mu_1 and mu_2 as two Gaussians are responsible for x.

    The reading `gaussian2d` uses two-dimensional Gaussians of sd 4; `printed` is the paper's
    formula, whose N_1 holds x^1 twice and N_2 holds x^2 twice; `score_scaled` has the rate
    sigma^2 / (2 sigma_k^2) = 1/2 at which the stationary law is exactly the mixture of the two
    Gaussians.
    """
    first = jnp.array([12.0, 15.0])
    second = jnp.array([-15.0, -15.0])
    sd = 4.0
    rate = 0.5 if reading == "score_scaled" else 1.0 / sd

    def drift(x: Float[Array, " 2"]) -> Float[Array, " 2"]:
        u = x[0] if reading == "printed" else x
        v = x[1] if reading == "printed" else x
        log_odds = (jnp.sum((v - second) ** 2) - jnp.sum((u - first) ** 2)) / (2.0 * sd**2)
        responsibility = jax.nn.sigmoid(log_odds)
        pull = responsibility * (x - first) + (1.0 - responsibility) * (x - second)
        return -rate * pull

    return drift


def _blocks(n_dims: int, matrix: Sequence[Sequence[float]]) -> np.ndarray:
    return np.kron(np.eye(n_dims // 2), np.asarray(matrix, dtype=np.float64))


_IDENTITY = [[1.0, 0.0], [0.0, 1.0]]
_ZERO = [[0.0, 0.0], [0.0, 0.0]]


def _linear_system(
    name: str,
    n_dims: int,
    matrix: Sequence[Sequence[float]],
    fixed_point: Sequence[float],
    *,
    sigma: Any,
    train: tuple[float, ...],
    test: tuple[float, ...],
    cov: Sequence[Sequence[float]] = _IDENTITY,
    shared: bool = False,
    dt: float = 0.01,
) -> KnownSystem:
    A = _blocks(n_dims, matrix)
    mu = np.tile(np.asarray(fixed_point, dtype=np.float64), n_dims // 2)
    A_array = jnp.asarray(A)
    mu_array = jnp.asarray(mu)
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


def _block_system(
    name: str,
    n_dims: int,
    block: Drift,
    *,
    sigma: Any,
    train: tuple[float, ...],
    test: tuple[float, ...],
    shared: bool = False,
) -> KnownSystem:
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
        block_sigma: Callable[..., Any] = sigma
        return ItoProcess(FunctionDrift(drift), FunctionDiffusion(in_blocks(block_sigma)))
    factor = sigma * np.eye(n_dims) if np.ndim(sigma) == 0 else _blocks(n_dims, sigma)
    return ItoProcess(FunctionDrift(drift), ConstantDiffusion(jnp.asarray(factor, dtype=float)))


def _two_wells_system(name: str, n_dims: int, reading: str) -> KnownSystem:
    return _block_system(
        name,
        n_dims,
        two_wells(reading),
        sigma=4.0,
        train=(0.0, 0.1, 0.4, 0.8),
        test=(0.3, 0.5, 1.0),
    )


def _curl_system(name: str, n_dims: int, cov: Sequence[Sequence[float]]) -> KnownSystem:
    return _linear_system(
        name,
        n_dims,
        matrix=[[0.0, -10.0], [10.0, 0.0]],
        fixed_point=[0.0, 0.0],
        sigma=0.0,
        train=(0.0, 0.05, 0.10, 0.15),
        test=(0.075, 0.2),
        cov=cov,
        # An Euler step of a rotation at rate 10 lengthens the radius by 1 + 50 dt^2: a short step
        # keeps the law.
        dt=0.0005,
    )


SYSTEMS: dict[str, Callable[[int], KnownSystem]] = {
    "syn1": lambda d: _linear_system(
        "syn1",
        d,
        matrix=[[4.0, 0.0], [0.0, 1.0]],
        fixed_point=[3.0, 12.0],
        sigma=1.0,
        train=(0.0, 0.2, 2.0),
        test=(0.1, 0.5, 5.0),
        shared=True,
    ),
    "syn2": lambda d: _two_wells_system("syn2", d, "gaussian2d"),
    "syn2-printed": lambda d: _two_wells_system("syn2-printed", d, "printed"),
    "syn2-score": lambda d: _two_wells_system("syn2-score", d, "score_scaled"),
    "syn3": lambda d: _block_system(
        "syn3",
        d,
        van_der_pol,
        sigma=1.0,
        train=(0.0, 0.03, 0.07, 0.2),
        test=(0.1, 0.3, 0.5),
        shared=True,
    ),
    "ou": lambda d: _linear_system(
        "ou",
        d,
        matrix=[[1.0, 0.5], [-0.5, 2.0]],
        fixed_point=[1.0, -1.0],
        sigma=0.7,
        train=(0.0, 0.3, 1.0),
        test=(0.6, 2.0),
    ),
    "diffusion": lambda d: _linear_system(
        "diffusion",
        d,
        matrix=_ZERO,
        fixed_point=[0.0, 0.0],
        sigma=1.0,
        train=(0.0, 0.5, 2.0),
        test=(1.0, 3.0),
    ),
    "diffusion-paper": lambda d: _linear_system(
        "diffusion-paper",
        d,
        matrix=_ZERO,
        fixed_point=[0.0, 0.0],
        sigma=[[1.0, 0.0], [0.0, 2.0]],
        train=(0.0, 0.5, 2.0, 5.0),
        test=(0.1, 0.3, 0.5, 3.0),
        shared=True,
    ),
    "correlated": lambda d: _linear_system(
        "correlated",
        d,
        matrix=[[1.0, 0.0], [0.0, 2.0]],
        fixed_point=[1.0, -1.0],
        sigma=[[1.0, 0.0], [0.56, 0.8 * 0.51**0.5]],
        train=(0.0, 0.1, 0.3, 1.0, 2.0),
        test=(0.2, 0.6, 3.0),
        cov=[[0.04, 0.0], [0.0, 0.04]],
    ),
    "multiplicative": lambda d: _block_system(
        "multiplicative",
        d,
        lambda x: jnp.array([3.0, 2.0]) * (jnp.array([2.0, 1.0]) - x),
        sigma=lambda x: jnp.array([0.5, 0.8]) * x,
        train=(0.0, 0.2, 0.5, 1.0),
        test=(0.1, 0.8, 2.0),
    ),
    "curl": lambda d: _curl_system("curl", d, cov=[[2.0, 0.0], [0.0, 2.0]]),
    "curl-anisotropic": lambda d: _curl_system("curl-anisotropic", d, cov=[[2.0, 0.0], [0.0, 1.0]]),
}


def known_system(name: str, n_dims: int = 2) -> KnownSystem:
    """A system whose truth is known.

    Parameters
    ----------
    name : str
        "syn1", "syn2", "syn2-printed", "syn2-score" and "syn3" of the paper, "ou", "diffusion",
        "diffusion-paper", "correlated", "multiplicative", "curl" or "curl-anisotropic".
    n_dims : int, default 2
        An even dimension: the systems are made of independent two-dimensional blocks.

    Returns
    -------
    KnownSystem
        With its process, its initial law and the times the paper uses.

    Raises
    ------
    InputError
        Where the name is unknown or the dimension odd.

    Examples
    --------
    >>> from itofit import known_system
    >>> known_system("syn3").train_times
    (0.0, 0.03, 0.07, 0.2)
    """
    if name not in SYSTEMS:
        raise InputError(
            expected=f"one of {', '.join(SYSTEMS)}",
            found=f"{name!r}",
            hint="syn3 is the paper's oscillator",
        )
    if n_dims < 2 or n_dims % 2:
        raise InputError(
            expected="an even dimension, since the systems are made of two-dimensional blocks",
            found=f"{n_dims}",
            hint="--dim 2, 6 or 10 as in the paper",
        )
    return SYSTEMS[name](n_dims)
