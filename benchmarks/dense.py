"""Dense snapshots: the moments solver against plain weak collocation, coefficient by coefficient.

    python -m benchmarks.dense [--system cubic-1d sombrero-2d cubic-5d] [--seeds 3] [--json FILE]

The systems and settings of Lu, Zeng, Jiang, Zhu and Hu (JCP 2024): centres, width and range of the
plain method are theirs. Both methods know sigma and get the same monomials. Every snapshot but
those of the sombrero holds particles of its own; there ten sets of particles take turns. The score
is the largest relative error over the coefficients that are not zero; seconds are of a second fit,
after compilation. Compare rows of one run on a quiet machine.
"""

import argparse
import json
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from sklearn.base import clone

from itofit import FitWarning, FokkerPlanckProcess, Moments, Snapshots
from itofit.baselines import Collocation
from itofit.process.monomials import Monomials

_STEP = 1e-3


@dataclass(frozen=True)
class System:
    """A polynomial drift with unit noise, observed at many times.

    - `collocation`: the plain method at its published settings.
    - `truth`: by (term, output) the coefficients that are not zero.
    """

    n_dims: int
    drift: Callable[[Any], Any]
    start: Callable[[Any, int], Any]
    times: tuple[float, ...]
    n: int
    n_sets: int
    collocation: Collocation
    truth: dict[tuple[tuple[int, ...], int], float]


def _cubic(n_dims: int, times: tuple[float, ...], n: int, collocation: Collocation) -> System:
    linear = {((k,), k): 1.0 for k in range(n_dims)}
    cubic = {((k, k, k), k): -1.0 for k in range(n_dims)}
    return System(
        n_dims=n_dims,
        drift=lambda x: x - x**3,
        start=lambda key, count: 0.1 * jax.random.normal(key, (count, n_dims)),
        times=times,
        n=n,
        n_sets=len(times),
        collocation=collocation,
        truth=linear | cubic,
    )


SYSTEMS = {
    "cubic-1d": _cubic(
        1,
        (0.2, 0.5, 1.0),
        10_000,
        Collocation(1.0, degree=3, n_centres=20, width=0.85, centre_range=3.0),
    ),
    "sombrero-2d": System(
        n_dims=2,
        drift=lambda x: 10.0 * x - 4.0 * x * jnp.sum(x**2),
        start=lambda key, count: jax.random.uniform(key, (count, 2), minval=1.0, maxval=2.0),
        times=tuple(np.round(np.arange(0.0, 15.05, 0.1), 10)),
        n=20_000,
        n_sets=10,
        collocation=Collocation(1.0, degree=4, n_centres=200, width=1.0, centre_range=0.6),
        truth={((0,), 0): 10.0, ((1,), 1): 10.0}
        | {((0, 0, 0), 0): -4.0, ((0, 1, 1), 0): -4.0, ((0, 0, 1), 1): -4.0, ((1, 1, 1), 1): -4.0},
    ),
    "cubic-5d": _cubic(
        5,
        (0.1, 0.2, 0.3, 0.5, 0.7, 0.9, 1.0),
        100_000,
        Collocation(1.0, degree=3, n_centres=500, width=0.75, centre_range=1.0),
    ),
}


def observe(system: System, seed: int) -> Snapshots:
    """The sets of particles take turns: set s is observed at the times s, s + n_sets, ..."""
    clouds: dict[float, np.ndarray] = {}
    for s in range(system.n_sets):
        key = jax.random.fold_in(jax.random.key(seed), s)
        x = system.start(jax.random.fold_in(key, 0), system.n)
        now = 0.0
        for i, t in enumerate(system.times[s :: system.n_sets]):
            n_steps = round((t - now) / _STEP)
            x = _propagated(system.drift, x, n_steps, jax.random.fold_in(key, i + 1))
            now = t
            clouds[t] = np.asarray(x)
    return Snapshots.from_arrays([clouds[t] for t in system.times], list(system.times))


def _propagated(drift, x, n_steps: int, key):
    @jax.jit
    def go(x, n_steps, key):
        def step(k, x):
            z = jax.random.normal(jax.random.fold_in(key, k), x.shape)
            return x + _STEP * jax.vmap(drift)(x) + np.sqrt(_STEP) * z

        return jax.lax.fori_loop(0, n_steps, step, x)

    return go(x, n_steps, key)


def plain(system: System, seed: int) -> Collocation:
    """The published form at the published settings."""
    return clone(system.collocation).set_params(random_state=seed)


def moments(system: System, seed: int) -> FokkerPlanckProcess:
    """Our solver with the same monomials."""
    solver = Moments(dictionary=monomials(system))
    return FokkerPlanckProcess(1.0, solver=solver, random_state=seed)


def monomials(system: System) -> Monomials:
    """The dictionary of both methods."""
    return Monomials.up_to(system.n_dims, system.collocation.degree)


def coefficients(model: Any) -> tuple[np.ndarray, np.ndarray | None]:
    """Coefficients of the monomials in the user's units, and standard errors where the model has
    them.
    """
    if isinstance(model, Collocation):
        return model.coefficients_, None
    return model.dictionary_coefficients()


def measure(name: str, seed: int) -> list[dict[str, Any]]:
    """Both methods on one data set, each fitted twice."""
    system = SYSTEMS[name]
    snapshots = observe(system, seed)
    terms = monomials(system).terms
    entries = tuple(np.transpose([(terms.index(term), k) for term, k in system.truth]))
    truth = np.array(list(system.truth.values()))
    records = []
    for method, make in (("collocation", plain), ("moments", moments)):
        model = make(system, seed).fit(snapshots)
        began = time.perf_counter()
        model = make(system, seed).fit(snapshots)
        seconds = time.perf_counter() - began
        values, standard_errors = coefficients(model)
        largest = None
        if standard_errors is not None:
            largest = float(np.max(standard_errors[entries] / np.abs(truth)))
        others = np.abs(np.asarray(values))
        others[entries] = 0.0
        records.append(
            {
                "system": name,
                "seed": seed,
                "method": method,
                "error": float(np.max(np.abs(values[entries] / truth - 1.0))),
                "relative_se": largest,
                "largest_zero": float(others.max()),
                "seconds": seconds,
                "path": model.solution_.path if method == "moments" else None,
                "device": str(jax.devices()[0]),
            }
        )
    return records


def shown(record: dict[str, Any]) -> str:
    """One line of the table."""
    name = f"{record['system']:12} {record['seed']} {record['method']:12}"
    se = "" if record["relative_se"] is None else f"  se {record['relative_se']:.4f}"
    zero = f"largest zero {record['largest_zero']:.4f}"
    return f"{name} error {record['error']:.4f}{se}  {zero}  {record['seconds']:.2f} s"


def main() -> None:
    """Measure and print a table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--system", nargs="+", choices=list(SYSTEMS), default=list(SYSTEMS))
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    warnings.simplefilter("ignore", FitWarning)
    records = []
    for name, seed in product(args.system, range(args.seeds)):
        for record in measure(name, seed):
            records.append(record)
            print(shown(record), flush=True)
            if args.json:
                args.json.write_text(json.dumps(records, indent=1))


if __name__ == "__main__":
    main()
