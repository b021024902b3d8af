"""What a user may say as sigma, and the diffusion it stands for.

known            a number (sigma I), a vector (diagonal), a matrix S, or a function of the state
to be learned    `LEARN` for one number a coordinate, one of `KINDS`, or a `ParametricSigma`
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from itofit.errors import InputError
from itofit.process.noise.diffusion import (
    AbstractDiffusion,
    ConstantDiffusion,
    FunctionDiffusion,
    LearnedDiffusion,
    rescaled_diffusion,
)
from itofit.process.noise.forms import (
    DiagonalForm,
    FullForm,
    FunctionForm,
    MultiplicativeForm,
    NetworkForm,
    ScalarForm,
)
from itofit.snapshots.clouds import Snapshots
from itofit.snapshots.scaling import Scaling

LEARN = "learn"
KINDS = ("scalar", "diagonal", "full", "multiplicative", "network", "network-full")


@dataclass(frozen=True)
class ParametricSigma:
    """A sigma of your own with parameters to learn.

    Parameters
    ----------
    function : callable
        `function(x, parameters)`, a jax function of one state in your units and of a vector of
        parameters. It returns S, a matrix, or a vector for its diagonal, in units of state per
        square root of time.
    start : tuple of float
        The parameters to begin with; better too much noise than too little.

    Examples
    --------
    Noise proportional to the state, with one factor for all coordinates:

    >>> import jax.numpy as jnp
    >>> from itofit import ParametricSigma
    >>> sigma = ParametricSigma(lambda x, p: jnp.exp(p[0]) * x, start=(0.0,))
    >>> [float(s) for s in sigma.function(jnp.array([1.0, 2.0]), jnp.zeros(1))]
    [1.0, 2.0]
    """

    function: Callable[[Any, Any], Any]
    start: tuple[float, ...]


def is_learned(sigma: Any) -> bool:
    """Whether this sigma is to be learned; strings that say nothing are refused."""
    if isinstance(sigma, str) and sigma not in (LEARN, *KINDS):
        kinds = ", ".join(KINDS)
        raise InputError(
            expected=f"sigma as numbers, a function of the state, {LEARN!r}, or one of {kinds}",
            found=f"{sigma!r}",
            hint="sigma='learn' learns one number a coordinate",
        )
    return isinstance(sigma, str | ParametricSigma)


def diffusion_from_sigma(sigma: Any, n_dims: int) -> AbstractDiffusion:
    """A known diffusion: scalar sigma = sigma I, vector = diagonal, matrix = S, or a function of
    the state.
    """
    if callable(sigma):
        function: Callable[..., Any] = sigma
        return FunctionDiffusion(function)
    try:
        value = np.asarray(sigma, dtype=np.float64)
    except (TypeError, ValueError):
        raise InputError(
            expected="sigma as a number, a vector, a matrix or a function of the state",
            found=f"{sigma!r}",
            hint="sigma=1.0",
        ) from None
    if not np.all(np.isfinite(value)) or (value.ndim < 2 and np.any(value < 0)):
        raise InputError(
            expected="sigma finite and not negative",
            found=f"{sigma}",
            hint="0 for a deterministic flow, else a positive scale",
        )
    shapes: dict[int, Any] = {0: (), 1: (n_dims,), 2: (n_dims, n_dims)}
    if value.shape != shapes.get(value.ndim):
        raise InputError(
            expected=f"sigma as a number, {n_dims} numbers (diagonal) or a {n_dims} x {n_dims} "
            "matrix",
            found=f"shape {value.shape}",
            hint="give one value per coordinate of the snapshots",
        )
    factor = value if value.ndim == 2 else np.diag(np.broadcast_to(value, (n_dims,)))
    return ConstantDiffusion(jnp.asarray(factor))


def standard_diffusion(sigma: Any, scaling: Scaling) -> AbstractDiffusion:
    """The known noise `sigma` in standardised units."""
    return rescaled_diffusion(diffusion_from_sigma(sigma, len(scaling.mean)), scaling.inverse)


def first_noise(
    sigma: Any, snapshots: Snapshots, scaling: Scaling, rng: np.random.Generator
) -> LearnedDiffusion:
    """Where learning begins: noise that would fill the spread of standardised snapshots within the
    mean gap.

    Rather too much than too little: from above every step is safe, from below a log scale hardly
    moves the cloud.
    """
    widths = [np.sqrt(w @ (x - w @ x) ** 2) for _, x, w in snapshots]
    size = np.mean(widths, axis=0) * np.sqrt(2.0 / np.mean(np.diff(snapshots.times)))
    return noise_of(sigma, scaling, np.maximum(size, 1e-6), rng)


def noise_of(
    sigma: Any, scaling: Scaling, size: Float[np.ndarray, " n_dims"], rng: np.random.Generator
) -> LearnedDiffusion:
    """The noise to be learned with these standard deviations a square root of time, in standardised
    units; only networks draw from `rng`.
    """
    mean = jnp.asarray(scaling.mean, dtype=float)
    sd = jnp.asarray(scaling.sd, dtype=float)
    n_dims = len(scaling.sd)
    if isinstance(sigma, ParametricSigma):
        parameter_sizes = tuple(max(1.0, abs(p)) for p in sigma.start)
        form = FunctionForm(sigma.function, mean, sd, parameter_sizes)
        return _checked(LearnedDiffusion(jnp.asarray(sigma.start, dtype=float), form), n_dims)
    log_size = np.log(size)
    triangle = np.append(log_size, np.zeros(n_dims * (n_dims - 1) // 2))
    if sigma == "scalar":
        form = ScalarForm(sd)
        theta = np.mean(log_size + np.log(scaling.sd), keepdims=True)
    elif sigma == "full":
        form = FullForm(n_dims)
        theta = triangle
    elif sigma == "multiplicative":
        form = MultiplicativeForm(mean, sd)
        distance = np.sqrt((scaling.mean / scaling.sd) ** 2 + 1.0)
        theta = log_size - np.log(distance)
    elif sigma in ("network", "network-full"):
        form = NetworkForm(n_dims, full=sigma == "network-full")
        theta = form.start(triangle if form.full else log_size, rng)
    else:
        form = DiagonalForm(n_dims)
        theta = log_size
    return LearnedDiffusion(jnp.asarray(theta, dtype=float), form)


def proportional_noise(diffusion: AbstractDiffusion, scaling: Scaling) -> LearnedDiffusion:
    """Noise in proportion to the state, of the size that this one has at the mean of the data."""
    there = np.asarray(diffusion(jnp.zeros(len(scaling.sd))), dtype=np.float64)
    size = np.sqrt(np.maximum(np.sum(there**2, axis=1), 1e-12))
    return noise_of("multiplicative", scaling, size, np.random.default_rng(0))


def mean_noise(members: Sequence[AbstractDiffusion]) -> AbstractDiffusion:
    """One noise for the members of an ensemble: learned parameters are averaged."""
    learned = [member for member in members if isinstance(member, LearnedDiffusion)]
    if not learned:
        return members[0]
    thetas = jnp.stack([member.theta for member in learned])
    return LearnedDiffusion(jnp.mean(thetas, axis=0), learned[0].form)


def _checked(diffusion: LearnedDiffusion, n_dims: int) -> LearnedDiffusion:
    """The noise of a user's function, or a refusal."""
    try:
        value = np.asarray(diffusion(jnp.zeros(n_dims)))
    except (TypeError, ValueError, IndexError, AttributeError, KeyError) as error:
        found = f"{type(error).__name__}: {str(error).splitlines()[0]}"
    else:
        is_finite = bool(np.all(np.isfinite(value)))
        if value.shape == (n_dims, n_dims) and is_finite:
            return diffusion
        found = f"shape {value.shape}, finite at the mean of the data: {is_finite}"
    raise InputError(
        expected=f"a jax function of a state and parameters that returns {n_dims} numbers or a "
        "matrix",
        found=found,
        hint="ParametricSigma(lambda x, p: jnp.exp(p[0]) * x, start=(0.0,))",
    )
