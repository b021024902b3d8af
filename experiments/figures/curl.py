"""A rotation and what snapshots say about it: dX = rate (y, -x) dt without noise, at rate 10.

A field u may be added to the drift without changing the law p_t when div(u p_t) = 0 at all times.
The rotation is such a u for the isotropic start N(0, 2 I): the law never moves, every rate fits,
and a fit keeps the rate it started with. From N(0, diag(2, 1)) the axes of the cloud turn with the
drift and every start must arrive at rate 10.

The adversarial solver starts from three rotations. A fourth fit of the isotropic system starts at
the truth and lets the weights decay: of all fields that fit, the smallest remains.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from matplotlib.figure import Figure

from experiments.figures.pictures import Picture, Settings, grid
from experiments.table1.scoring import Case, Sizes
from itofit import Adversarial, known_system
from itofit.adversarial.learners import learner_of
from itofit.adversarial.run import TrainedRun
from itofit.adversarial.training import play, prepared
from itofit.plot import vector_field
from itofit.plot.axes import MUTED
from itofit.process.drift import NetworkDrift
from itofit.process.noise import diffusion_from_sigma
from itofit.simulate.mesh import Mesh

SYSTEMS = {"curl": "isotropic start N(0, 2 I)", "curl-anisotropic": "start N(0, diag(2, 1))"}
TRUE_RATE = 10.0
STARTS = {"zero": 0.0, "truth": TRUE_RATE, "opposite": -TRUE_RATE}
DECAY = 5.0
N_POINTS = 4000
N_ITER = 1000
# An Euler step lengthens the radius by 1 + 50 dt^2, which the fit repays by a pull of 50 dt x
# inwards: here 1 % of the true speed, at a fifth of the steps of the system's own mesh.
DT = 0.0025

Field = Callable[[np.ndarray], np.ndarray]


class Reading(NamedTuple):
    """A field read on points, in units of the true rotation there (root mean squares).

    - `rate`: of the rotation (y, -x) nearest to it in least squares.
    - `ratio`: |g| / |g_true|.
    - `curl_free`: size of the symmetric part of the affine field nearest to it, offset included.
    - `remainder`: size of all that is not the rotation.
    """

    rate: float
    ratio: float
    curl_free: float
    remainder: float


class Start(NamedTuple):
    """A fit: its caption, the rate it starts with and the decay of its weights."""

    title: str
    rate: float
    decay: float


class Panel(NamedTuple):
    """One field with its caption."""

    title: str
    field: Field
    reading: Reading


def curl(settings: Settings) -> Picture:
    """Both systems from all starts."""
    n_iter = settings.n_iter or N_ITER
    lines: dict[str, list[Panel]] = {}
    behind: dict[str, np.ndarray] = {}
    numbers: dict[str, Any] = {}
    for name, label in SYSTEMS.items():
        case = Case(known_system(name), "B", settings.seed, Sizes(n_train=N_POINTS))
        points = np.concatenate(case.training.clouds)
        behind[label] = case.training.clouds[0][:250]
        lines[label] = [Panel("truth", rotation, read(rotation(points), points))]
        numbers[name] = {}
        for start in starts_of(name):
            run = adapted(case, start, n_iter)
            field = _rows(run.process.drift)
            reading = read(field(points), points)
            lines[label].append(Panel(start.title, field, reading))
            numbers[name][start.title] = {
                "start_rate": start.rate,
                "weight_decay": start.decay,
                **_rounded(reading),
                **about(run),
            }
    used = {
        "n_train": N_POINTS,
        "n_held_out": N_POINTS,
        "dt": DT,
        "n_iter": n_iter,
        "true_rate": TRUE_RATE,
    }
    return Picture(panels(lines, behind), used, numbers)


def starts_of(name: str) -> list[Start]:
    """Every fit of a system."""
    starts = [Start(f"from {title}", rate, 0.0) for title, rate in STARTS.items()]
    if name == "curl":
        starts.append(Start("from truth, decaying weights", TRUE_RATE, DECAY))
    return starts


def adapted(case: Case, start: Start, n_iter: int) -> TrainedRun:
    """The adversarial fit that starts from a rotation."""
    solver = Adversarial(n_iter=n_iter, patience=n_iter, weight_decay=start.decay, warm_start=None)
    training = case.training
    times = case.system.train_times
    contest = prepared(
        training,
        case.system.observe(N_POINTS, times, key=case.key(1)),
        learner_of(rotating(start.rate, span=times[-1] - times[0], seed=case.seed)),
        diffusion_from_sigma(0.0, 2),
        Mesh.refine(training.times, DT),
        solver,
        key=jax.random.key(case.seed),
    )
    return play([contest], solver)[0]


def rotating(rate: float, *, span: float, seed: int) -> NetworkDrift:
    """The rotation at a rate as a drift that can be trained: in the skip's matrix, the network's
    last layer at zero.
    """
    speed = 4.0 / span
    key = jax.random.fold_in(jax.random.key(seed), 1)
    drift = NetworkDrift.create(2, width=32, depth=1, speed=speed, last_gain=0.0, key=key)
    return eqx.tree_at(lambda d: d.matrix, drift, jnp.array([[0.0, rate], [-rate, 0.0]]) / speed)


def rotation(states: np.ndarray) -> np.ndarray:
    """The true field."""
    return TRUE_RATE * _turn(states)


def read(g: np.ndarray, points: np.ndarray) -> Reading:
    """What the values `g` of a field on `points` say."""
    turn = _turn(points)
    rate = float(np.sum(g * turn) / np.sum(turn * turn))
    affine = np.column_stack([points, np.ones(len(points))])
    matrix, offset = np.split(np.linalg.lstsq(affine, g, rcond=None)[0], [2])
    gradient = points @ (matrix + matrix.T) / 2.0 + offset
    unit = _size(rotation(points))
    return Reading(rate, _size(g) / unit, _size(gradient) / unit, _size(g - rate * turn) / unit)


def panels(lines: dict[str, list[Panel]], behind: dict[str, np.ndarray]) -> Figure:
    """One row a system over the points `behind` it, arrows to one scale everywhere."""
    figure, axes = grid(len(lines), max(len(line) for line in lines.values()), 2.25, 2.5)
    low = np.full(2, -3.0)
    high = np.full(2, 3.0)
    fastest = float(np.hypot(*rotation(high[None])[0]))
    for row, (label, line) in zip(axes, lines.items(), strict=True):
        for ax in row[len(line) :]:
            ax.set_visible(False)
        for ax, panel in zip(row, line, strict=False):
            ax.scatter(*behind[label].T, s=4, color=MUTED, alpha=0.3, linewidths=0)
            vector_field(ax, panel.field, low, high, n=11, fastest=fastest)
            reading = panel.reading
            ax.set_title(
                f"{panel.title}\nrate {reading.rate:.2f}, |g|/|g true| {reading.ratio:.2f}",
                fontsize=8,
            )
            ax.set(aspect="equal", xlim=(-3.7, 3.7), ylim=(-3.7, 3.7))
            ax.tick_params(labelsize=7)
        row[0].set_ylabel(label, fontsize=9)
    figure.suptitle(
        "a rotation at rate 10: an isotropic cloud does not determine it, an anisotropic one does",
        fontsize=10,
    )
    return figure


def about(run: TrainedRun) -> dict[str, Any]:
    """How a fit went; equal criteria say that the data cannot tell the fields apart."""
    return {
        "outcome": run.outcome.name,
        "n_iter": run.n_iter,
        "seconds": round(run.seconds, 1),
        "first_criterion": round(float(run.history.criterion[0]), 4),
        "criterion": round(float(run.history.criterion[-1]), 4),
    }


def _turn(states: np.ndarray) -> np.ndarray:
    return np.stack([states[:, 1], -states[:, 0]], axis=1)


def _size(values: np.ndarray) -> float:
    return float(np.sqrt(np.mean(np.sum(values**2, axis=1))))


def _rows(drift: Callable[[Any], Any]) -> Field:
    """A drift of one state as a function of rows of states."""
    return lambda states: np.asarray(
        jax.vmap(drift)(jnp.asarray(states, dtype=float)), dtype=np.float64
    )


def _rounded(reading: Reading) -> dict[str, float]:
    return {name: round(value, 4) for name, value in reading._asdict().items()}
