"""Random streams: one a purpose, no two alike, and no seed that goes past them."""

import ast
from itertools import product
from pathlib import Path

import jax
import numpy as np
import pytest

from itofit.problem import Problem, Stream, Streams
from itofit.simulate.systems import known_system
from itofit.snapshots.scaling import Scaling

SRC = Path(__file__).parent.parent / "src" / "itofit"
# Where all randomness must come from a `Streams`.
ROOMS = ("moments", "adversarial", "trust", "solve")
FILES = ("forecast.py", "solvers.py", "estimator.py", "face.py", "process_face.py")


def handed_out(streams: Streams) -> dict[tuple[str, int, tuple[int, ...]], bytes]:
    """The first numbers of every stream, without an index and with some."""
    numbers = {}
    for stream, index in product(Stream, [(), (0,), (1,), (2,), (1, 2)]):
        rng = streams.rng(stream, *index).standard_normal(4)
        key = np.asarray(jax.random.normal(streams.key(stream, *index), (4,)))
        numbers["rng", int(stream), index] = rng.tobytes()
        numbers["key", int(stream), index] = key.tobytes()
    return numbers


@pytest.mark.parametrize("seed", [0, 1, 2**31])
def test_no_two_streams_give_the_same_numbers(seed):
    numbers = handed_out(Streams(seed))
    assert len(set(numbers.values())) == len(numbers)


def test_seeds_differ_and_a_seed_comes_again():
    one, other = handed_out(Streams(3)), handed_out(Streams(4))
    assert not set(one.values()) & set(other.values())
    assert one == handed_out(Streams(3))


def test_what_a_fit_draws_comes_from_streams_of_their_own(monkeypatch):
    """Every generator that a residual, a library and a forecast ask for, by its first numbers."""
    from itofit.moments.library import library_for
    from itofit.moments.options import MomentsOptions
    from itofit.moments.probing import Probing

    drawn: dict[bytes, set[tuple[int, ...]]] = {}
    rng_of = Streams.rng

    def spy(self, stream, *index):
        first = rng_of(self, stream, *index).standard_normal(4).tobytes()
        drawn.setdefault(first, set()).add((int(stream), *index))
        return rng_of(self, stream, *index)

    monkeypatch.setattr(Streams, "rng", spy)
    snapshots = known_system("ou").observe(20, [0.0, 0.3, 1.0], key=jax.random.key(0))
    scaling = Scaling.fit(snapshots)
    problem = Problem.pose(snapshots, "network", 0.1, scaling=scaling, streams=Streams(7))
    library = library_for(problem, MomentsOptions())
    Probing(problem, MomentsOptions()).simulated(library.aim, 2, cosines=True)
    purposes = {stream for names in drawn.values() for stream, *_ in names}
    assert {Stream.noise_network, Stream.ridges, Stream.probes, Stream.transitions} <= purposes
    assert all(len(names) == 1 for names in drawn.values())


def test_ridges_and_brownian_increments_are_not_correlated():
    """Means of 8 products of independent normals over 400 seeds: sd 1 / sqrt(3200), 5 of them."""
    products = []
    for seed in range(400):
        slopes = Streams(seed).rng(Stream.ridges).standard_normal(8)
        for start in range(3):
            noise = Streams(seed).rng(Stream.transitions, start).standard_normal(8)
            products.append([start, float(np.mean(slopes * noise))])
    table = np.asarray(products)
    for start in range(3):
        mean = table[table[:, 0] == start, 1].mean()
        assert abs(mean) < 5.0 / np.sqrt(400 * 8)


def bare_seeds(path: Path) -> list[str]:
    """Calls of `default_rng` and `random.key` in a file."""
    calls = [node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Call)]
    names = ("np.random.default_rng", "jax.random.key", "jax.random.PRNGKey")
    return [
        f"{path.name}:{call.lineno}: {ast.unparse(call)}"
        for call in calls
        if ast.unparse(call.func) in names
    ]


def test_no_solver_and_no_question_has_a_seed_of_its_own():
    """But for the tree that a saved drift is filled into, whose numbers are thrown away."""
    paths = [path for room in ROOMS for path in sorted((SRC / room).rglob("*.py"))]
    paths += [SRC / name for name in FILES]
    calls = [call for path in paths for call in bare_seeds(path) if ">>>" not in call]
    assert [call.split(": ")[1] for call in calls] == ["jax.random.key(0)"], calls
