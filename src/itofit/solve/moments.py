"""The moments solver: many fixed probes at once, whitened, and Gauss-Newton for a drift linear in its coefficients.

    minimise over W   1/2 |y(W)|^2 + 1/2 sum_g lambda_g |W_g|^2,      y = L^-1 (E f(simulated) - E f(seen))

for g(x) = speed * W' phi(x), all f at once. The Euler chains are driven by fixed noise, so y is a deterministic
function whose Jacobian comes from `simulate.sensitivity`; L is from `solve.whitening` and lambda from
`solve.relevance`. Three phases, each from the result of the one before:

    aim      affine drift; means and covariances only, residuals divided by a temperature that falls to 1
    shape    the whole dictionary; cosines; the evidence finds which groups of features the data ask for
    polish   those groups alone; more noise draws; the full covariance until nothing moves
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from itofit.process.diffusion import AbstractDiffusion
from itofit.process.drift import FeatureDrift
from itofit.process.features import MANY_DIMS, Dictionary, joined
from itofit.process.ito import ItoProcess
from itofit.simulate.mesh import Mesh
from itofit.snapshots.clouds import Snapshots
from itofit.solve.dictionaries import Library
from itofit.solve.flights import Flight, flights_between, on_cores
from itofit.solve.listeners import Listener, Progress
from itofit.solve.options import MomentsOptions
from itofit.solve.outcome import Outcome
from itofit.solve.relevance import GONE, Posterior, Prior, pruned, relevances
from itofit.solve.whitening import Spread, Whitening
from itofit.weak.fixed_probes import (
    AbstractProbes,
    CosineProbes,
    JoinedProbes,
    MomentProbes,
    moment_pairs,
    random_frequencies,
)

# Smallest and first damping of a step, and how often it may be raised tenfold.
_DAMPING = (1e-8, 1e-2)
_MOST_TRIES = 10
_N_SHAPE, _N_POLISH = 7, 20
_MOST_PRODUCTS = 200
# Steps a fit usually takes, for the progress bar.
_USUAL = 35
_SMALL_DECREASE = 1e-3


@dataclass(frozen=True, eq=False)
class Residual:
    """y(W) of one phase and its Jacobian; coefficients are `(n_features, n_dims)` arrays, flattened."""

    snapshots: Snapshots
    diffusion: AbstractDiffusion
    flights: tuple[Flight, ...]
    probes: tuple[AbstractProbes, ...]
    dictionary: Dictionary
    speed: float
    seen: tuple[np.ndarray, ...]
    n_jacobian: int

    @classmethod
    def between(cls, snapshots, diffusion, flights, probes, dictionary, speed, n_jacobian) -> "Residual":
        """Read the probes on the target of every flight."""
        seen = tuple(
            probe_values(p, snapshots.clouds[flight.target]) for p, flight in zip(probes, flights, strict=True)
        )
        return cls(snapshots, diffusion, flights, probes, dictionary, speed, seen, n_jacobian)

    def process(self, v: np.ndarray) -> ItoProcess:
        """The process with these coefficients."""
        return ItoProcess(FeatureDrift(self.dictionary.features, self._coefficients(v)), self.diffusion)

    def _coefficients(self, v: np.ndarray) -> Float[Array, "n_features n_dims"]:
        return jnp.asarray(self.speed * v.reshape(-1, self.snapshots.n_dims), dtype=float)

    def __call__(self, v: np.ndarray) -> list[np.ndarray]:
        """The residual r_n of every flight: what is simulated minus what is seen."""
        process = self.process(v)

        def work(flight, probes, start, noise, weights):
            return _mean_of(probes, flight.end(process, start, noise), weights)

        found = self._by_flight(work, [flight.chains() for flight in self.flights])
        means = [self.snapshots.weights[f.target] @ seen for f, seen in zip(self.flights, self.seen, strict=True)]
        return [np.sum(pieces, axis=0) - mean for pieces, mean in zip(found, means, strict=True)]

    def spreads(self, v: np.ndarray | None) -> list[Spread]:
        """What the covariance is made of; with None, before anything can be simulated."""
        flown: list[np.ndarray | None] = [None] * len(self.flights)
        if v is not None:
            process = self.process(v)

            def work(flight, probes, start, noise, weights):
                return _values_of(probes, flight.end(process, start, noise))

            found = self._by_flight(work, [flight.chains() for flight in self.flights])
            flown = [_mean_of_draws(flight, pieces) for flight, pieces in zip(self.flights, found, strict=True)]
        return [
            Spread(f.start, f.target, f.weights, self.snapshots.weights[f.target], values, seen)
            for f, values, seen in zip(self.flights, flown, self.seen, strict=True)
        ]

    def jacobian(self, v: np.ndarray, whitening: Whitening) -> Float[np.ndarray, "n_rows n_coefficients"]:
        """The Jacobian dy / dv."""
        features, coefficients = self.dictionary.features, self._coefficients(v)
        directions = {f.target: jnp.asarray(V, dtype=float) for f, V in zip(self.flights, whitening.bases, strict=True)}

        def work(flight, probes, start, noise, weights):
            end, moved = flight.sensitivity(features, coefficients, self.diffusion, start, noise)
            return _slopes(probes, directions[flight.target], end, moved, weights)

        parts = [flight.parts(self.n_jacobian, self.dictionary.n_features) for flight in self.flights]
        rows = [np.sum(pieces, axis=0) for pieces in self._by_flight(work, parts)]
        return whitening.finish([self.speed * row.reshape(len(row), -1) for row in rows])

    def _by_flight(self, work, chunks) -> list[list[np.ndarray]]:
        """`work(flight, probes, *chunk)` for every chunk of every flight, in double precision from here on."""
        items = [
            (flight, probes, *chunk)
            for flight, probes, some in zip(self.flights, self.probes, chunks, strict=True)
            for chunk in some
        ]
        found = iter(on_cores(work, items))
        return [[np.asarray(next(found), dtype=np.float64) for _ in some] for some in chunks]


@dataclass(frozen=True, eq=False)
class State:
    """Where the iteration stands."""

    v: Float[np.ndarray, " n_coefficients"]
    prior: Prior
    damping: float = _DAMPING[1]


@dataclass(frozen=True, eq=False)
class GaussNewtonHistory:
    """What the moments solver logged, one value an iteration.

    - `phase`: 0 aim, 1 shape, 2 polish. `temperature`: by which residuals were divided.
    - `objective`: half the squared whitened residuals and the prior. `chi2`: squared residuals a row, at temperature 1.
    - `n_groups`: groups of features (times outputs) in the model.
    """

    phase: np.ndarray
    temperature: np.ndarray
    objective: np.ndarray
    chi2: np.ndarray
    n_groups: np.ndarray


@dataclass(frozen=True, eq=False)
class Evidence:
    """What the linear algebra at the solution says.

    - `coefficients`, `covariance`: of the features that were kept, `(n_features, n_dims)` and of its flattening,
      given the relevances; in standardised units of state per unit of time.
    - `chi2`, `n_rows`: squared whitened residuals and their number, by flight. `n_determined`: sum of gamma, the
      number of coefficients the data determine.
    - `alive`: which (group, output) is in the model, `(n_groups, n_dims)`.
    """

    coefficients: Float[np.ndarray, "n_features n_dims"]
    covariance: Float[np.ndarray, "n_coefficients n_coefficients"]
    chi2: Float[np.ndarray, " n_flights"]
    n_rows: np.ndarray
    n_determined: Float[np.ndarray, ""]
    alive: np.ndarray

    @property
    def misfit(self) -> float:
        """Chi-squared by degree of freedom: about 1 for a model that fits, less where snapshots share particles."""
        return float(np.sum(self.chi2)) / self.n_free

    @property
    def n_free(self) -> float:
        """Degrees of freedom: residuals minus the coefficients they determine."""
        return max(1.0, float(np.sum(self.n_rows)) - float(self.n_determined))


@dataclass(frozen=True, eq=False)
class MomentsFit:
    """A fitted process in the units the solver was given, and the story of the run."""

    process: ItoProcess
    outcome: Outcome
    history: GaussNewtonHistory
    n_iter: int
    seconds: float
    dictionary: Dictionary
    evidence: Evidence | None


@dataclass(eq=False)
class _Run:
    """The log of a run and the best it has so far; survives an interruption."""

    options: MomentsOptions
    listeners: Sequence[Listener]
    began: float = field(default_factory=time.perf_counter)
    rows: list[tuple[int, float, float, float, int]] = field(default_factory=list)
    residual: Residual | None = None
    state: State | None = None

    @property
    def spent(self) -> bool:
        return len(self.rows) >= self.options.n_iter

    def note(self, phase: int, temperature: float, objective: float, chi2: float, state: State) -> None:
        self.state = state
        self.rows.append((phase, temperature, objective, chi2, int(np.sum(state.prior.precision < GONE))))
        seconds = max(time.perf_counter() - self.began, 1e-9)
        progress = Progress(
            n_done=len(self.rows),
            n_total=max(len(self.rows), min(self.options.n_iter, _USUAL)),
            rate=len(self.rows) / seconds,
            loss=objective,
            residuals=(),
            criterion=chi2,
            best_criterion=min(row[3] for row in self.rows),
            slope=float("nan"),
        )
        for listener in self.listeners:
            listener(progress)

    def history(self) -> GaussNewtonHistory:
        columns = zip(*self.rows, strict=True) if self.rows else ((), (), (), (), ())
        return GaussNewtonHistory(*(np.asarray(column) for column in columns))


def fit_moments(
    snapshots: Snapshots,
    diffusion: AbstractDiffusion,
    mesh: Mesh,
    options: MomentsOptions,
    library: Library,
    *,
    seed: int,
    listeners: Sequence[Listener] = (),
) -> MomentsFit:
    """Fit to snapshots in standardised units."""
    run = _Run(options, listeners)
    try:
        task = _Task(snapshots, diffusion, mesh, options, seed)
        residual, state = _aim(task, library.aim, run)
        if library.more is not None:
            residual, state = _shape(task, residual.dictionary, library.more, state, run)
            richer = library.richer(residual.dictionary.groups)
            if richer is not None:
                residual, state = _shape(task, residual.dictionary, richer, state, run)
        residual, state, outcome, whitening = _polish(task, residual.dictionary, state, run)
        evidence = _evidence(residual, state, whitening)
    except KeyboardInterrupt:
        outcome, evidence = Outcome.interrupted, None
        if run.residual is None or run.state is None:
            raise
        residual, state = run.residual, run.state
    if not np.all(np.isfinite(state.v)) or not run.rows:
        outcome = Outcome.non_finite
    return MomentsFit(
        process=residual.process(state.v),
        outcome=outcome,
        history=run.history(),
        n_iter=len(run.rows),
        seconds=time.perf_counter() - run.began,
        dictionary=residual.dictionary,
        evidence=evidence,
    )


@dataclass(frozen=True, eq=False)
class _Task:
    snapshots: Snapshots
    diffusion: AbstractDiffusion
    mesh: Mesh
    options: MomentsOptions
    seed: int

    def residual(self, dictionary: Dictionary, n_draws: int, n_jacobian: int, *, cosines: bool) -> Residual:
        flights = flights_between(self.snapshots, self.mesh, self.options.anchor, n_draws, self.seed)
        probes = tuple(self._probes(flight.target, cosines) for flight in flights)
        speed = 3.0 / float(self.mesh.times[-1] - self.mesh.times[0])
        return Residual.between(self.snapshots, self.diffusion, flights, probes, dictionary, speed, n_jacobian)

    def threshold(self, dictionary: Dictionary) -> Float[np.ndarray, " n_groups"]:
        """The log Bayes factor every (group, output) must have, in the order of `Prior.over`."""
        n_dims, n_groups = self.snapshots.n_dims, len(dictionary.groups)
        kinds = [group.kind for group in dictionary.groups if group.kind != "constant"]
        return np.repeat([self.options.threshold_for(kind, n_dims, n_groups) for kind in kinds], n_dims)

    def _probes(self, target: int, cosines: bool) -> AbstractProbes:
        x, w = self.snapshots.clouds[target], self.snapshots.weights[target]
        mean = w @ x
        sd = np.sqrt(w @ (x - mean) ** 2)
        centre, width = (
            jnp.asarray(mean, dtype=float),
            jnp.asarray(np.maximum(sd, 1e-6 * sd.max() + 1e-12), dtype=float),
        )
        n_dims, rng = self.snapshots.n_dims, np.random.default_rng(self.seed)
        moments = MomentProbes(centre, width, moment_pairs(n_dims, _MOST_PRODUCTS, rng))
        if not cosines:
            return moments
        omega, phase = random_frequencies(n_dims, *self.options.probes_for(n_dims), rng)
        cosine = CosineProbes(centre, width, jnp.asarray(omega, dtype=float), jnp.asarray(phase, dtype=float))
        return JoinedProbes((moments, cosine))


def _aim(task: _Task, dictionary: Dictionary, run: _Run) -> tuple[Residual, State]:
    """Means and covariances under a falling temperature; the prior is weak and stays as it is."""
    residual = task.residual(dictionary, 1, 1200, cosines=False)
    n_dims = task.snapshots.n_dims
    state = State(np.zeros(dictionary.n_features * n_dims), Prior.over(dictionary.groups, n_dims))
    run.residual, run.state = residual, state
    whitening = Whitening.of(residual.spreads(None), task.options.share)
    for temperature in _ladder(whitening(residual(state.v))):
        state = replace(state, damping=_DAMPING[1])
        for _ in range(8):
            moved, decrease = _step(residual, whitening, state, temperature, 0, run)
            state = moved or state
            if run.spent or (run.rows and run.rows[-1][3] < 1.0):
                return residual, state  # fitted within the noise: going on would follow it
            if moved is None or decrease < (_SMALL_DECREASE if temperature == 1.0 else 0.1):
                break
    return residual, state


def _shape(task: _Task, known: Dictionary, more: Dictionary, state: State, run: _Run) -> tuple[Residual, State]:
    """Add features to those known, let the evidence weigh all groups, and keep those it asks for."""
    n_dims, dictionary = task.snapshots.n_dims, joined([known, more])
    residual = task.residual(dictionary, 2, 1200, cosines=True)
    v = np.concatenate([state.v, np.zeros(more.n_features * n_dims)])
    state = State(v, state.prior.joined(Prior.over(more.groups, n_dims)))
    run.residual, run.state = residual, state
    threshold = task.threshold(dictionary)
    for i in range(_N_SHAPE):
        if run.spent:
            break
        whitening = Whitening.of(residual.spreads(state.v), task.options.share)
        n_updates, last = 0 if i < 2 else 3, i == _N_SHAPE - 1
        moved, _ = _step(residual, whitening, state, 1.0, 1, run, n_updates, threshold if last else None)
        state = moved or replace(state, damping=_DAMPING[1])
    return _kept(residual, state)


def _polish(task: _Task, dictionary: Dictionary, state: State, run: _Run) -> tuple[Residual, State, Outcome, Whitening]:
    """The kept groups with all noise draws and the full covariance, until a step gains nothing."""
    n_jacobian = 10**9 if task.snapshots.n_dims <= MANY_DIMS else 1200
    residual = task.residual(dictionary, task.options.n_draws, n_jacobian, cosines=True)
    run.residual, run.state = residual, state
    threshold = task.threshold(dictionary)
    outcome, quiet = Outcome.budget, 0
    whitening = Whitening.of(residual.spreads(state.v), task.options.share)
    for i in range(_N_POLISH):
        if run.spent:
            break
        n_updates = 3 if i < 8 else 0
        moved, decrease = _step(residual, whitening, state, 1.0, 2, run, n_updates, threshold if i in (2, 5) else None)
        state = moved or replace(state, damping=_DAMPING[1])
        quiet = quiet + 1 if decrease < _SMALL_DECREASE else 0
        if i > 5 and quiet >= 2:
            outcome = Outcome.converged
            break
        if i < 6:
            whitening = Whitening.of(residual.spreads(state.v), task.options.share)
    residual, state = _kept(residual, state)
    return residual, state, outcome, whitening


def _step(
    residual: Residual,
    whitening: Whitening,
    state: State,
    temperature: float,
    phase: int,
    run: _Run,
    n_updates: int = 0,
    threshold: np.ndarray | None = None,
) -> tuple[State | None, float]:
    """One damped Gauss-Newton step, after evidence updates on the same linearisation.

    Returns the new state (None where something is not finite) and the share by which the objective fell.
    """
    v, prior, damping = state.v, state.prior, state.damping
    y, J = whitening(residual(v)) / temperature, residual.jacobian(v, whitening) / temperature
    if not (np.all(np.isfinite(y)) and np.all(np.isfinite(J))):
        return None, 0.0
    b = J @ v - y
    prior = relevances(J, b, prior, n_updates)
    if threshold is not None:
        prior = pruned(J, b, prior, threshold)
        alive = prior.alive
        if np.any(v[~alive] != 0.0):
            v = np.zeros_like(v)
            v[alive] = Posterior(J[:, alive], prior.diagonal[alive]).mean(b)
            y = whitening(residual(v)) / temperature
    alive, precision = prior.alive, prior.diagonal
    J = J[:, alive]
    before = _objective(y, v, precision)
    slope, curvature = J.T @ y + precision[alive] * v[alive], np.sum(J**2, axis=0) + precision[alive]
    for _ in range(_MOST_TRIES):
        step = Posterior(J, precision[alive] + damping * curvature).solve(slope)
        candidate = v.copy()
        candidate[alive] -= step
        if 0.5 * float(slope @ step) < 0.1 * _SMALL_DECREASE * max(before, 1.0) and damping <= _DAMPING[1]:
            break  # nothing to gain even if the model were exactly linear
        y_new = whitening(residual(candidate)) / temperature
        after = _objective(y_new, candidate, precision)
        if np.isfinite(after) and after < before:
            moved = State(candidate, prior, max(damping / 10.0, _DAMPING[0]))
            run.note(phase, temperature, after, float(np.mean(y_new**2)) * temperature**2, moved)
            return moved, (before - after) / max(before, 1.0)
        damping = max(10.0 * damping, 1e-4)
    stay = State(v, prior, _DAMPING[1])
    run.note(phase, temperature, before, float(np.mean(y**2)) * temperature**2, stay)
    return stay, 0.0


def _objective(y: np.ndarray, v: np.ndarray, precision: np.ndarray) -> float:
    with np.errstate(over="ignore", invalid="ignore"):
        return 0.5 * float(y @ y) + 0.5 * float(np.sum(precision * v**2))


def _ladder(y: np.ndarray) -> list[float]:
    """Temperatures from the size of the residuals down to 1, by factors of 3."""
    size = float(np.sqrt(np.mean(y**2)))
    count = int(np.clip(np.ceil(np.log(max(size, 1.0)) / np.log(3.0)), 0, 12))
    return [size / 3.0**k for k in range(count)] + [1.0]


def _kept(residual: Residual, state: State) -> tuple[Residual, State]:
    """The same state with the groups dropped that no output uses."""
    n_dims, prior = residual.snapshots.n_dims, state.prior
    groups = residual.dictionary.groups
    first = np.cumsum([0, *[group.size for group in groups]])[:-1]
    marks = np.any(prior.alive.reshape(-1, n_dims)[first], axis=1)
    if all(marks):
        return residual, state
    rows = np.repeat(marks, [group.size for group in groups])
    numbers = prior.group.reshape(-1, n_dims)[rows]
    names, renamed = np.unique(numbers[numbers >= 0], return_inverse=True)
    group = np.full(numbers.shape, -1)
    group[numbers >= 0] = renamed
    smaller = Prior(group.ravel(), prior.precision[names], prior.floor[names], prior.fixed)
    v = state.v.reshape(-1, n_dims)[rows].ravel()
    return replace(residual, dictionary=residual.dictionary.only(marks)), State(v, smaller, state.damping)


def _evidence(residual: Residual, state: State, whitening: Whitening) -> Evidence:
    y, J = whitening(residual(state.v)), residual.jacobian(state.v, whitening)
    alive = state.prior.alive
    posterior = Posterior(J[:, alive], state.prior.diagonal[alive])
    covariance = np.zeros((len(alive), len(alive)))
    covariance[np.ix_(alive, alive)] = posterior.covariance()
    counts = np.asarray([len(basis) for basis in whitening.bases])
    squares = np.add.reduceat(y**2, np.concatenate([[0], np.cumsum(counts)[:-1]]))
    n_dims = residual.snapshots.n_dims
    at = np.cumsum([0, *[g.size for g in residual.dictionary.groups]])[:-1]
    return Evidence(
        coefficients=residual.speed * state.v.reshape(-1, n_dims),
        covariance=residual.speed**2 * covariance,
        chi2=squares,
        n_rows=counts,
        n_determined=np.asarray(np.sum(posterior.determined())),
        alive=alive.reshape(-1, n_dims)[at],
    )


def _mean_of_draws(flight: Flight, pieces: list[np.ndarray]) -> Float[np.ndarray, "n_points n_probes"]:
    count = len(flight.weights)
    return np.concatenate(pieces)[: flight.n_draws * count].reshape(flight.n_draws, count, -1).mean(axis=0)


def probe_values(probes: AbstractProbes, points: np.ndarray) -> Float[np.ndarray, "n n_probes"]:
    """f_m at every row, in chunks of one size."""
    size = 1024
    found = []
    for at in range(0, len(points), size):
        chunk = np.zeros((size, points.shape[1]), dtype=np.float32)
        rows = points[at : at + size]
        chunk[: len(rows)] = rows
        found.append(np.asarray(_values_of(probes, jnp.asarray(chunk)))[: len(rows)])
    return np.concatenate(found).astype(np.float64)


@eqx.filter_jit
def _values_of(probes: AbstractProbes, points: Float[Array, "n n_dims"]) -> Float[Array, "n n_probes"]:
    return jax.vmap(probes)(points)


@eqx.filter_jit
def _mean_of(probes: AbstractProbes, points: Float[Array, "n n_dims"], weights: Float[Array, " n"]) -> Array:
    # A point that counts nothing may be anything.
    values = jnp.where(weights[:, None] > 0, jax.vmap(probes)(points), 0.0)
    return weights @ values


@eqx.filter_jit
def _slopes(probes: AbstractProbes, directions, ends, moved, weights) -> Float[Array, "n_rows n_features n_dims"]:
    """sum_i w_i V grad f(x_i)' dx_i / dW, ordered feature by feature, output by output."""
    n, n_dims = ends.shape
    gradients = jnp.einsum("rm,nmi->nir", directions, jax.vmap(jax.jacfwd(probes))(ends))
    total = jnp.einsum("nir,nip->rp", gradients * weights[:, None, None], moved.reshape(n, n_dims, -1))
    return jnp.swapaxes(total.reshape(len(directions), n_dims, -1), 1, 2)
