"""Random streams: one a purpose, no two alike, and no seed that goes past them."""

import ast
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import NamedTuple

import jax
import numpy as np
import pytest
from scipy.stats import t as student

from itofit import FokkerPlanckProcess, Moments, known_system
from itofit.moments.library import library_for
from itofit.moments.options import MomentsOptions
from itofit.moments.probing import Probing
from itofit.problem import Problem, Stream, Streams
from itofit.process.features import Ridges
from itofit.snapshots.scaling import Scaling

SRC = Path(__file__).parent.parent / "src" / "itofit"
# Where all randomness must come from a `Streams`.
ROOMS = ("moments", "adversarial", "trust", "solve")
FILES = ("forecast.py", "solvers.py", "estimator.py", "face.py", "process_face.py")
INDICES = ((), (0,), (1,), (2,), (3,), (0, 0), (1, 2))
N_SEEDS = 50


class Handed(NamedTuple):
    """A generator by its name: of numpy or of jax, of which stream and index."""

    kind: str
    stream: Stream
    index: tuple[int, ...]


def numbers_of(name: Handed, seed: int) -> bytes:
    """The first numbers it gives."""
    if name.kind == "rng":
        return Streams(seed).rng(name.stream, *name.index).standard_normal(4).tobytes()
    key = Streams(seed).key(name.stream, *name.index)
    return np.asarray(jax.random.normal(key, (4,))).tobytes()


def all_numbers(seed: int) -> dict[Handed, bytes]:
    names = [Handed(*name) for name in product(("rng", "key"), Stream, INDICES)]
    return {name: numbers_of(name, seed) for name in names}


@pytest.mark.parametrize("seed", [0, 1, 2**31])
def test_no_two_streams_give_the_same_numbers(seed):
    numbers = all_numbers(seed)
    assert len(set(numbers.values())) == len(numbers) == 2 * len(Stream) * len(INDICES)


def test_seeds_differ_and_a_seed_comes_again():
    numbers = all_numbers(3)
    assert not set(numbers.values()) & set(all_numbers(4).values())
    assert numbers == all_numbers(3)


@pytest.fixture(scope="module")
def snapshots():
    return known_system("ou").observe(60, [0.0, 0.4, 1.0], key=jax.random.key(0))


def posed(snapshots, seed, sigma=0.7):
    scaling = Scaling.fit(snapshots)
    return Problem.pose(snapshots, sigma, 0.1, scaling=scaling, streams=Streams(seed))


@pytest.fixture(scope="module")
def handed_out(snapshots):
    """Every generator that a fit, its forecasts and its error bars ask for, by name."""
    seed = 5
    names = set()
    rng_of = Streams.rng
    key_of = Streams.key

    def rng(self, stream, *index):
        assert self.seed == seed
        names.add(Handed("rng", stream, index))
        return rng_of(self, stream, *index)

    def key(self, stream, *index):
        assert self.seed == seed
        names.add(Handed("key", stream, index))
        return key_of(self, stream, *index)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Streams, "rng", rng)
        patch.setattr(Streams, "key", key)
        posed(snapshots, seed, sigma="network")
        solver = Moments(path="simulated", n_single=2, n_pair=1, n_draws=2)
        model = FokkerPlanckProcess(0.7, dt=0.05, solver=solver, random_state=seed).fit(snapshots)
        model.forecast([0.2, 0.6, 1.5], n_samples=30, start="previous")
        model.sample_paths(5, [0.0, 0.5])
        model.predict_from([0.0, 0.0], start=0.0, to=0.5, n_paths=5)
        model.bands([0.2, 0.6], start="previous")
        model.drift_std(np.zeros(2))
        model.step_error([0.5])
    return {name: numbers_of(name, seed) for name in names}


def test_what_a_fit_draws_comes_from_streams_of_their_own(handed_out):
    purposes = {name.stream for name in handed_out}
    assert purposes == {
        Stream.noise_network,
        Stream.ridges,
        Stream.probes,
        Stream.transitions,
        Stream.resampling,
        Stream.step_check,
        Stream.forecast,
        Stream.sample_paths,
        Stream.predict_from,
        Stream.bands,
        Stream.drift_draws,
        Stream.particle_weights,
        Stream.step_error,
    }
    # Chains from two snapshots, and forecasts and bands that start there.
    assert {n.index for n in handed_out if n.stream is Stream.transitions} == {(0,), (1,)}
    assert len(set(handed_out.values())) == len(handed_out)


def largest_correlation(snapshots) -> float:
    """Between any slope drawn for a ridge and any first increment of a chain, over seeds."""
    options = MomentsOptions(n_single=4, n_pair=2)
    slopes = []
    increments = []
    for seed in range(N_SEEDS):
        problem = posed(snapshots, seed)
        library = library_for(problem, options)
        parts = [part for part in library.more.features.parts if isinstance(part, Ridges)]
        omega = np.concatenate([np.asarray(part.directions).ravel() for part in parts])
        slopes.append(omega[omega != 0.0])
        chains = Probing.of(problem, options).simulated(library.aim, 1, cosines=False).transitions
        increments.append(np.concatenate([np.asarray(c.noise[0])[0, :20].ravel() for c in chains]))
    rows = np.column_stack([slopes, increments])
    count = len(slopes[0])
    assert count == 2 * 4 + 2 * 2
    assert rows.shape[1] == count + 2 * 2 * 20
    return float(np.abs(np.corrcoef(rows.T)[:count, count:]).max())


def test_ridges_and_brownian_increments_are_not_correlated(snapshots, monkeypatch):
    """A correlation r of n independent normal pairs has t = r sqrt((n - 2) / (1 - r^2)) with n - 2
    degrees of freedom. The largest of 12 x 80 passes the bound once in a thousand times; one
    generator for all purposes passes it.
    """
    extreme = student.isf(0.5e-3 / (12 * 80), N_SEEDS - 2)
    bound = extreme / np.sqrt(N_SEEDS - 2 + extreme**2)
    assert bound < 0.65
    assert largest_correlation(snapshots) < bound
    monkeypatch.setattr(Streams, "rng", lambda self, *_: np.random.default_rng(self.seed))
    assert largest_correlation(snapshots) > bound


class Seeded(NamedTuple):
    """A call that makes a generator, and the function it is in."""

    file: str
    function: str
    call: str


def generators_made(path: Path) -> Iterator[Seeded]:
    """Calls of `default_rng` and `jax.random.key` in a file; docstrings are no code."""
    makers = ("np.random.default_rng", "jax.random.key", "jax.random.PRNGKey")

    def within(node: ast.AST, function: str) -> Iterator[Seeded]:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.Call) and ast.unparse(child.func) in makers:
                yield Seeded(path.name, function, ast.unparse(child))
            is_function = isinstance(child, ast.FunctionDef)
            yield from within(child, child.name if is_function else function)

    return within(ast.parse(path.read_text()), "")


def test_no_solver_and_no_question_has_a_seed_of_its_own():
    """But for the tree that a saved drift is filled into, whose numbers are thrown away."""
    paths = [path for room in ROOMS for path in sorted((SRC / room).rglob("*.py"))]
    paths += [SRC / name for name in FILES]
    assert len(paths) > 40
    made = [seeded for path in paths for seeded in generators_made(path)]
    assert made == [Seeded("solver.py", "restore", "jax.random.key(0)")]
