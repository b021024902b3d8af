"""Many dimensions: a fit of Syn-3 at D = 50 with its scorecard, seconds, memory and the terms that
were found.

    python -m benchmarks.many [--dim 50] [--points 2000] [--seed 0]

Five snapshots at t = 0, .05, .1, .15, .2; scored on held-out points at t = .1, inside, and t = .3,
beyond the last.
"""

import argparse
import resource
import time

import jax
import numpy as np

from itofit import FokkerPlanckProcess, known_system

TIMES = (0.0, 0.05, 0.1, 0.15, 0.2)


def true_drivers(dim: int) -> set[tuple[int, int]]:
    """(coordinate, output) of Syn-3: in every block the first drives both, the second the first."""
    return {pair for a in range(0, dim, 2) for pair in ((a, a), (a + 1, a), (a, a + 1))}


def drivers(model: FokkerPlanckProcess) -> set[tuple[int, int]]:
    """(coordinate, output) of the terms in the model."""
    terms = [term for part in model.standard_process_.drift.features.parts for term in part.terms]
    rows = zip(terms, model.solution_.evidence.alive, strict=True)
    return {(a, int(output)) for term, row in rows for a in term for output in np.flatnonzero(row)}


def main() -> None:
    """Fit once, with compilation, and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--dim", type=int, default=50)
    parser.add_argument("--points", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    system = known_system("syn3", args.dim)
    k_train, k_test = jax.random.split(jax.random.key(args.seed))
    training = system.observe(args.points, TIMES, key=k_train)
    held_out = system.observe(800, [0.0, 0.1, 0.3], key=k_test)
    began = time.perf_counter()
    model = FokkerPlanckProcess(
        1.0, dt=system.dt, solver="moments", random_state=args.seed, verbose=True
    ).fit(training)
    seconds = time.perf_counter() - began
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
    ending = f"{model.outcome_.name}, {model.device_}"
    print(f"{seconds:.0f} s with compilation, peak {peak:.1f} GB, {ending}")
    learned = drivers(model)
    truth = true_drivers(args.dim)
    n_true = len(learned & truth)
    n_false = len(learned - truth)
    print(f"drivers: {n_true} of {len(truth)} true ones found, {n_false} others")
    print(model.scorecard(held_out, truth=system))


if __name__ == "__main__":
    main()
