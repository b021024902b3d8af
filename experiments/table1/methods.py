"""The methods of the table: a name and how to fit it to the training snapshots of a known system.

`METHODS` are fitted seed by seed; those of `TOGETHER` take the data of all seeds and train them in
one batch.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial

import jax
import jax.numpy as jnp
from jax import Array
from sklearn.base import clone

from itofit import (
    Adversarial,
    Collocation,
    FokkerPlanckProcess,
    InputError,
    Judged,
    KnownSystem,
    Legend,
    Midpoint,
    Moments,
    Persistence,
    PotentialRNN,
    Snapshots,
    fit_together,
)
from itofit.face import Face


@dataclass(frozen=True)
class Setting:
    """What every method of a system is told.

    - `preset`: of the adversarial solver; no other method has one.
    - `n_iter`: a budget of iterations in place of the method's own, of methods that train.
    """

    system: KnownSystem
    preset: str = "default"
    device: str = "auto"
    n_iter: int | None = None


# Fit to the training snapshots of one seed, or of several in one batch.
Method = Callable[[Setting, Snapshots, int], Face]
Batch = Callable[[Setting, Sequence[Snapshots], Sequence[int]], Sequence[Face]]

# From rest, as the tables of docs/reproduction.md were made.
PRESETS: dict[str, Adversarial] = {
    "default": Adversarial(warm_start=None),
    "paper": Adversarial.paper(),
}


def sigma_of(system: KnownSystem) -> float:
    """The noise, which every method is told; isotropic in all of the paper's systems."""
    return float(system.process.diffusion(jnp.zeros(system.n_dims))[0, 0])


def oracle_dictionary(name: str, dim: int) -> Callable[[Array], Array]:
    """The functions that hold the true drift of the system `name`, for a fit that only has to find
    coefficients.

    Affine for Syn-1; affine and the cubes of the first coordinate of each block for Syn-3; affine
    and the blocks' responsibilities r for Syn-2, whose field is -(x - mu_2 - r (mu_1 - mu_2)) / 4.
    """
    first = jnp.array([12.0, 15.0])
    second = jnp.array([-15.0, -15.0])
    sd = 4.0

    def responsibility(block: Array) -> Array:
        to_second = jnp.sum((block - second) ** 2)
        to_first = jnp.sum((block - first) ** 2)
        return jax.nn.sigmoid((to_second - to_first) / (2.0 * sd**2))

    extra: dict[str, Callable[[Array], Array]] = {
        "syn1": lambda x: x[:0],
        "syn2": lambda x: jax.vmap(responsibility)(x.reshape(-1, 2)),
        "syn3": lambda x: x[::2] ** 3,
    }
    if name not in extra:
        raise NotImplementedError(f"no oracle dictionary for {name} at D = {dim}")
    return lambda x: jnp.concatenate([jnp.ones(1), x, extra[name](x)])


def fit_moments(setting: Setting, training: Snapshots, seed: int) -> Face:
    """The moments solver with its own dictionary."""
    return _fit_quickly(setting, training, seed, Moments())


def fit_judged(setting: Setting, training: Snapshots, seed: int) -> Face:
    """The default of the library: its process, which is the same with judging and without."""
    return _fit_quickly(setting, training, seed, Judged(selection="none"))


def fit_oracle(setting: Setting, training: Snapshots, seed: int) -> Face:
    """The moments solver with a dictionary that holds the true drift: how well this data can be
    used at all.
    """
    system = setting.system
    solver = Moments(dictionary=oracle_dictionary(system.name, system.n_dims))
    return _fit_quickly(setting, training, seed, solver)


def _fit_quickly(
    setting: Setting, training: Snapshots, seed: int, solver: Moments | Judged
) -> Face:
    if setting.preset != "default":
        raise InputError(
            expected=f"the preset default for the {solver.name} solver",
            found=setting.preset,
            hint="leave out --preset, or --method adversarial",
        )
    return _weak(setting, seed, solver).fit(training)


def fit_adversarial(
    setting: Setting,
    data: Sequence[Snapshots],
    seeds: Sequence[int],
    change: Callable[[Adversarial], Adversarial] = lambda solver: solver,
) -> Sequence[Face]:
    """Algorithm 1 of the paper; `change` makes a variant of it."""
    solver = change(PRESETS[setting.preset])
    if setting.n_iter is not None:
        solver = replace(solver, n_iter=setting.n_iter)
    return fit_together([_weak(setting, seed, solver) for seed in seeds], data)


def _weak(
    setting: Setting, seed: int, solver: Moments | Judged | Adversarial
) -> FokkerPlanckProcess:
    return FokkerPlanckProcess(
        sigma_of(setting.system),
        dt=setting.system.dt,
        solver=solver,
        device=setting.device,
        random_state=seed,
    )


def fit_rival(
    setting: Setting,
    data: Sequence[Snapshots],
    seeds: Sequence[int],
    rival: PotentialRNN | Legend,
) -> Sequence[Face]:
    """One of the paper's rivals, told what every method is told; it knows no preset."""
    return fit_together([_told(rival, setting, seed) for seed in seeds], data)


def _told(rival: PotentialRNN | Legend, setting: Setting, seed: int) -> Face:
    system = setting.system
    model = clone(rival).set_params(
        sigma=sigma_of(system), dt=system.dt, device=setting.device, random_state=seed
    )
    return model if setting.n_iter is None else model.set_params(n_iter=setting.n_iter)


def fit_collocation(setting: Setting, training: Snapshots, seed: int) -> Face:
    """Weak collocation regression."""
    system = setting.system
    return Collocation(sigma_of(system), dt=system.dt, random_state=seed).fit(training)


def fit_persistence(setting: Setting, training: Snapshots, seed: int) -> Face:
    """The last training snapshot."""
    del setting
    return Persistence(random_state=seed).fit(training)


def fit_midpoint(setting: Setting, training: Snapshots, seed: int) -> Face:
    """Displacement interpolation between the bracketing training snapshots."""
    del setting
    return Midpoint(random_state=seed).fit(training)


METHODS: dict[str, Method] = {
    "judged": fit_judged,
    "moments": fit_moments,
    "oracle": fit_oracle,
    "collocation": fit_collocation,
    "persistence": fit_persistence,
    "midpoint": fit_midpoint,
}

TOGETHER: dict[str, Batch] = {
    "adversarial": fit_adversarial,
    "adversarial-bridge": partial(fit_adversarial, change=partial(replace, warm_start="bridge")),
    "adversarial-warm": partial(fit_adversarial, change=partial(replace, warm_start="moments")),
    "adversarial-detached": partial(fit_adversarial, change=partial(replace, gradient="detached")),
    "direct": partial(fit_adversarial, change=partial(replace, discrepancy="direct")),
    "potential-rnn": partial(fit_rival, rival=PotentialRNN()),
    "potential-rnn-initial": partial(fit_rival, rival=PotentialRNN(anchor="initial")),
    "potential-rnn-faithful": partial(fit_rival, rival=PotentialRNN(mode="faithful", n_ramps=300)),
    "legend": partial(fit_rival, rival=Legend()),
}

# What the paper compares, ours, and the rows that keep everyone honest; the others are variants.
COMPARED = (
    "persistence",
    "midpoint",
    "collocation",
    "potential-rnn",
    "legend",
    "adversarial",
    "moments",
    "oracle",
)
