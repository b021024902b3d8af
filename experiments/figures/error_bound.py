"""How far a wrong drift leads: Prop. 3 of the paper, measured.

    |g - g^| <= eps everywhere, g K-Lipschitz  =>  |X_T - X^_T| <= (eps / K) (exp(K T) - 1)

for paths driven by the same noise, so W1 between the two laws obeys it too. The Euler chains of n
steps dt obey (eps / K) ((1 + K dt)^n - 1), which is smaller. Here g(x) = -K x (stable) or +K x
(unstable, where a constant error makes the bound an equality), and g^ - g is a constant or a
sinusoid of size eps.

The last panel fits a network to few points of an Ornstein-Uhlenbeck system with a growing penalty
on the slope of the drift: the bound, taken with the learned K and the largest error of the drift on
the data, against the true error of the forecasts.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from experiments.figures.forecasts import about, fitted
from experiments.figures.pictures import Picture, Settings, grid
from experiments.table1.scoring import Case, Sizes
from itofit import Adversarial, FokkerPlanckProcess, known_system
from itofit.metrics import W1
from itofit.plot.axes import MODEL, MUTED, TRUTH

Field = Callable[[np.ndarray], np.ndarray]

EPS = 0.1
SIGMA = 0.5
N_POINTS = 300
K = 1.5
T = 2.0
N_STEPS = 200
KS = (0.25, 0.5, 1.0, 1.5, 2.0, 2.5, 3.0)
TS = (0.25, 0.5, 1.0, 1.5, 2.0, 2.5, 3.0)
STEPS = (2, 4, 8, 16, 32, 64, 128, 512)

SIGNS = {"unstable": 1.0, "stable": -1.0}
SHAPES: dict[str, Field] = {
    "constant": lambda x: np.broadcast_to([1.0, 0.0], x.shape),
    "sinusoid": lambda x: np.sin(3.0 * x[:, ::-1]) / np.sqrt(2.0),
}
COLOURS = {"unstable": TRUTH, "stable": MODEL}
DASHES = {"constant": "-", "sinusoid": ":"}

PENALTIES = (0.0, 0.3, 1.0, 3.0, 10.0, 100.0, 1000.0)
N_TRAIN = 300
N_ITER = 300


class Gap(NamedTuple):
    """Two clouds grown with the same noise, and what may be between them.

    - `coupled`, `largest`: mean and largest distance of two paths at T.
    - `W1`: between the clouds; at most `coupled`, which is the cost of one coupling.
    - `discrete_bound`, `bound`: of the Euler chain and of continuous time.
    """

    drift: str
    error: str
    K: float
    T: float
    dt: float
    coupled: float
    largest: float
    W1: float
    discrete_bound: float
    bound: float


class Penalised(NamedTuple):
    """A fit with a penalty on the slope of its drift, in the user's units.

    - `K`: largest singular value of dg/dx over the data; `eps`: largest |g - g_true| there.
    - `bound`: (eps / K) (exp(K T) - 1).
    - `population`, `floor`: the true error of the forecast at T (None where it is not finite), and
      that of the truth.
    """

    penalty: float
    K: float
    eps: float
    T: float
    bound: float
    population: float | None
    floor: float


def error_bound(settings: Settings) -> Picture:
    """The bound against K, T and dt; and what a penalty on the slope buys."""
    sweeps = {
        "K": [
            gap(drift, error, k, T, N_STEPS, settings.seed) for drift, error in cases() for k in KS
        ],
        "T": [
            gap(drift, error, K, t, round(N_STEPS * t / T), settings.seed)
            for drift, error in cases()
            for t in TS
        ],
        "dt": [
            gap(drift, error, K, T, n, settings.seed) for drift, error in cases() for n in STEPS
        ],
    }
    numbers: dict[str, Any] = {name: [g._asdict() for g in gaps] for name, gaps in sweeps.items()}
    fits, numbers["fits"] = penalised(settings)
    used = {
        "eps": EPS,
        "sigma": SIGMA,
        "n_points": N_POINTS,
        "K": K,
        "T": T,
        "n_steps": N_STEPS,
        "n_train": N_TRAIN,
        "n_iter": settings.n_iter or N_ITER,
    }
    return Picture(panels(sweeps, fits), used, numbers)


def cases() -> list[tuple[str, str]]:
    """Every drift with every error."""
    return [(drift, error) for drift in SIGNS for error in SHAPES]


def gap(
    drift: str, error: str, k: float, time: float, n_steps: int, seed: int, eps: float = EPS
) -> Gap:
    """Grow both clouds from N(0, I) with the same noise and measure."""

    def truth(x: np.ndarray) -> np.ndarray:
        return SIGNS[drift] * k * x

    rng = np.random.default_rng(seed)
    start = rng.normal(size=(N_POINTS, 2))
    x, y = coupled(truth, lambda x: truth(x) + eps * SHAPES[error](x), start, time, n_steps, rng)
    distance = np.linalg.norm(x - y, axis=1)
    return Gap(
        drift=drift,
        error=error,
        K=k,
        T=time,
        dt=time / n_steps,
        coupled=float(distance.mean()),
        largest=float(distance.max()),
        W1=W1(x, y),
        discrete_bound=discrete_bound(eps, k, time, n_steps),
        bound=bound(eps, k, time),
    )


def coupled(
    drift: Field,
    other: Field,
    start: np.ndarray,
    time: float,
    n_steps: int,
    rng: np.random.Generator,
) -> tuple[np.ndarray, np.ndarray]:
    """The ends of two Euler chains from the same start with the same noise."""
    h = time / n_steps
    x = start
    y = start
    for _ in range(n_steps):
        noise = SIGMA * np.sqrt(h) * rng.normal(size=start.shape)
        x = x + h * drift(x) + noise
        y = y + h * other(y) + noise
    return x, y


def bound(eps: float, k: float, time: float) -> float:
    """(eps / K) (exp(K T) - 1)."""
    return float(eps * np.expm1(k * time) / k)


def discrete_bound(eps: float, k: float, time: float, n_steps: int) -> float:
    """(eps / K) ((1 + K dt)^n - 1), which tends to `bound` with the number of Euler steps."""
    return float(eps * np.expm1(n_steps * np.log1p(k * time / n_steps)) / k)


def penalised(settings: Settings) -> tuple[list[Penalised], list[dict[str, Any]]]:
    """Fits of the Ornstein-Uhlenbeck system over the penalties: what is drawn, and the record of
    how each fit went.
    """
    case = Case(known_system("ou"), "B", settings.seed, Sizes(n_train=N_TRAIN), ("population",))
    budget = replace(settings, n_iter=settings.n_iter or N_ITER)
    fits = []
    records = []
    for penalty in PENALTIES:
        model = fitted(
            case, Adversarial(drift_form="skip", slope_penalty=penalty, warm_start=None), budget
        )
        fits.append(judged(model, case, penalty))
        records.append(fits[-1]._asdict() | about(model))
    return fits, records


def judged(model: FokkerPlanckProcess, case: Case, penalty: float) -> Penalised:
    """The bound of a fit at the last test time, and its true error there."""
    points = np.concatenate(case.training.clouds)
    truth = np.asarray(jax.vmap(case.system.process.drift)(jnp.asarray(points, dtype=float)))
    k = steepest(model.process_.drift, points)
    eps = float(np.max(np.linalg.norm(model.drift(points) - truth, axis=1)))
    score = case.score(model)[-1]
    return Penalised(
        penalty, k, eps, score.time, bound(eps, k, score.time), score.value, score.floor.mean
    )


def steepest(drift: Callable[[Any], Any], points: np.ndarray) -> float:
    """The largest singular value of dg/dx over the points: K as far as they show it."""
    slopes = np.asarray(_slopes(drift, jnp.asarray(points, dtype=float)))
    return float(np.max(np.linalg.norm(slopes, ord=2, axis=(1, 2))))


@eqx.filter_jit
def _slopes(drift: Callable[[Any], Any], points: jax.Array) -> jax.Array:
    return jax.vmap(jax.jacfwd(drift))(points)


def panels(sweeps: dict[str, list[Gap]], fits: list[Penalised]) -> Figure:
    """One panel a sweep, and one of the fits where there are some."""
    figure, axes = grid(1, len(sweeps) + bool(fits), 3.5, 3.6)
    for ax, (name, gaps) in zip(axes[0], sweeps.items(), strict=False):
        sweep_panel(ax, name, gaps)
    axes[0][0].set_ylabel("distance at T", fontsize=9)
    handles, labels = axes[0][0].get_legend_handles_labels()
    figure.legend(
        handles, labels, loc="outside lower center", ncols=len(labels), frameon=False, fontsize=8
    )
    if fits:
        penalty_panel(axes[0][-1], fits)
    figure.suptitle(
        f"an error of size {EPS:g} in the drift, grown along the path: measured and bounded",
        fontsize=10,
    )
    return figure


def sweep_panel(ax: Axes, name: str, gaps: list[Gap]) -> Axes:
    """Lines: mean distance of coupled paths; circles: W1 between the clouds; black: the bounds."""
    circles = {"marker": "o", "linestyle": "none", "markersize": 4, "fillstyle": "none"}
    for drift, error in cases():
        line = [g for g in gaps if (g.drift, g.error) == (drift, error)]
        x = [getattr(g, name) for g in line]
        colour = COLOURS[drift]
        ax.plot(
            x,
            [g.coupled for g in line],
            DASHES[error],
            color=colour,
            linewidth=1.5,
            label=f"{drift}, {error}",
        )
        ax.plot(x, [g.W1 for g in line], color=colour, **circles)
    ax.plot([], [], color=MUTED, label="W1 of the clouds", **circles)
    # The bounds are those of every case alike.
    limits = sorted({(getattr(g, name), g.bound, g.discrete_bound) for g in gaps})
    x, continuous, chain = zip(*limits, strict=True)
    ax.plot(x, continuous, "--", color="black", linewidth=1.2, label="bound")
    ax.plot(x, chain, "-.", color="black", linewidth=0.9, label="bound of the chain")
    ax.set_yscale("log")
    ax.set_xscale("log" if name == "dt" else "linear")
    held = {"K": K, "T": T, "dt": T / N_STEPS}
    ax.set_title(
        ", ".join(f"{other} = {value:g}" for other, value in held.items() if other != name),
        fontsize=9,
    )
    ax.set_xlabel(name, fontsize=9)
    ax.tick_params(which="both", labelsize=7)
    return ax


def penalty_panel(ax: Axes, fits: list[Penalised]) -> Axes:
    """The learned K, the bound it gives and the true error against the penalty, evenly spaced."""
    x = np.arange(len(fits))
    ax.plot(x, [f.K for f in fits], "s-", color=MUTED, markersize=4, label="K learned")
    ax.plot(x, [f.bound for f in fits], "--", color="black", label="bound at T")
    ax.plot(
        x,
        np.array([f.population for f in fits], dtype=float),
        "o-",
        color=MODEL,
        markersize=4,
        label="true error",
    )
    ax.plot(x, [f.floor for f in fits], ":", color=MODEL, label="its floor")
    ax.set_yscale("log")
    ax.set_xticks(x, [f"{f.penalty:g}" for f in fits])
    ax.set_xlabel("penalty on the slope of the drift", fontsize=9)
    ax.set_title(f"fitted Ornstein-Uhlenbeck, T = {fits[0].T:g}", fontsize=9)
    ax.tick_params(which="both", labelsize=7)
    ax.set_ylim(top=30.0 * max(f.bound for f in fits))
    ax.legend(loc="upper center", ncols=2, frameon=False, fontsize=7)
    return ax
