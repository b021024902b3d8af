"""Are the equations right? Fits the moments solver to the paper's own snapshots and reads the
equations of each fit.

    python -m experiments.equations --system syn1 syn3 --seeds 20 --json equations.json

The data are those of `experiments.table1`, reading B: 1200 particles, one set of them observed at
all times. With `--independent` every snapshot has particles of its own. Counted are the 95 %
intervals of true terms that hold the true coefficient, true terms that are missing, and terms that
are not in the true equations. Relative standard errors are those of true terms, by the true
coefficient. A file is continued where it exists.
"""

import argparse
import json
import time
import warnings
from pathlib import Path

import numpy as np

from experiments.grid import Record
from experiments.table1.methods import sigma_of
from experiments.table1.scoring import Case, Sizes
from itofit import FitWarning, FokkerPlanckProcess, Snapshots, known_system

Terms = dict[tuple[int, tuple[int, ...]], float]
# By block of two coordinates: the coefficient of every (equation, term).
TRUTH: dict[str, Terms] = {
    "syn1": {(0, ()): 12.0, (0, (0,)): -4.0, (1, ()): 12.0, (1, (1,)): -1.0},
    "syn3": {
        (0, (0,)): 10.0,
        (0, (1,)): 10.0,
        (0, (0, 0, 0)): -10.0 / 3.0,
        (1, ()): 3.0,
        (1, (0,)): -3.0,
    },
    "ou": {
        (0, ()): 0.5,
        (0, (0,)): -1.0,
        (0, (1,)): -0.5,
        (1, ()): -2.5,
        (1, (0,)): 0.5,
        (1, (1,)): -2.0,
    },
}


def true_terms(name: str, n_dims: int) -> Terms:
    """The true coefficients of all blocks."""
    return {
        (output + at, tuple(k + at for k in term)): value
        for at in range(0, n_dims, 2)
        for (output, term), value in TRUTH[name].items()
    }


def data_of(case: Case, independent: bool) -> Snapshots:
    """The snapshots of one seed."""
    if not independent:
        return case.training
    system = case.system
    return system.observe(
        case.sizes.n_train, system.train_times, key=case.key(0), shared_particles=False
    )


def repeat(name: str, n_dims: int, seed: int, independent: bool) -> Record:
    """One fit: errors of the true terms in their standard errors, and what is missing or false."""
    system = known_system(name, n_dims)
    truth = true_terms(name, n_dims)
    snapshots = data_of(Case(system, "B", seed, Sizes()), independent)
    model = FokkerPlanckProcess(sigma_of(system), dt=system.dt, solver="moments", random_state=seed)
    began = time.perf_counter()
    with warnings.catch_warnings(action="ignore", category=FitWarning):
        model.fit(snapshots)
    fitted = time.perf_counter()
    equations = model.equations()
    done = time.perf_counter()
    low, high = equations.interval(0.95)
    errors = equations.standard_errors
    # The row and column of every term that is present, by (equation, term).
    present = {
        (output, equations.terms[row]): (row, output)
        for row, output in np.argwhere(equations.present).tolist()
    }
    true = [(present[name], value) for name, value in truth.items() if name in present]
    return {
        "seed": seed,
        "covered": [bool(low[at] <= value <= high[at]) for at, value in true],
        "z": [float((equations.coefficients[at] - value) / errors[at]) for at, value in true],
        "relative": [float(errors[at] / abs(value)) for at, value in true],
        "missing": [str(name) for name in truth if name not in present],
        "false": [str(name) for name in present if name not in truth],
        "p": equations.p_value,
        "same_particles": equations.same_particles,
        "converged": equations.converged,
        "seconds": [fitted - began, done - fitted],
    }


HEAD = (
    f"{'system':<8}{'D':>3}{'seeds':>7}{'terms':>7}{'covered %':>11}{'z^2':>6}"
    f"{'rel. s.e. %, median':>21}{'largest':>9}{'missing':>9}{'false':>7}{'fits with':>11}"
    f"{'rejected':>10}{'shared':>8}{'fit s':>8}{'equations s':>13}"
)


def summary(name: str, n_dims: int, records: list[Record]) -> str:
    """One line of the table."""
    covered, z, relative = (
        np.concatenate([r[key] for r in records]) for key in ("covered", "z", "relative")
    )
    missing = sum(len(r["missing"]) for r in records)
    false = [len(r["false"]) for r in records]
    rejected = sum(r["p"] < 0.05 for r in records)
    shared = sum(r["same_particles"] for r in records)
    fit, equations = np.median([r["seconds"] for r in records], axis=0)
    return (
        f"{name:<8}{n_dims:>3}{len(records):>7}{len(covered):>7}"
        f"{100 * np.mean(covered):>11.1f}{np.mean(z**2):>6.2f}"
        f"{100 * np.median(relative):>21.1f}{100 * np.max(relative):>9.1f}"
        f"{missing:>9}{sum(false):>7}{np.count_nonzero(false):>11}"
        f"{rejected:>10}{shared:>8}{fit:>8.1f}{equations:>13.1f}"
    )


def main() -> None:
    """Run the seeds and print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--system", nargs="+", choices=sorted(TRUTH), default=["syn1", "syn3"])
    parser.add_argument("--dim", type=int, default=2)
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument(
        "--independent", action="store_true", help="particles of its own for every snapshot"
    )
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    by_name = json.loads(args.json.read_text()) if args.json and args.json.exists() else {}
    print(HEAD)
    for name in args.system:
        records = by_name.setdefault(f"{name}-{args.dim}{'-independent' * args.independent}", [])
        for seed in range(len(records), args.seeds):
            records.append(repeat(name, args.dim, seed, args.independent))
            if args.json:
                args.json.write_text(json.dumps(by_name))
        print(summary(name, args.dim, records[: args.seeds]), flush=True)


if __name__ == "__main__":
    main()
