"""The command: `python -m experiments.schemes --help`."""

import argparse
import json
from collections.abc import Sequence
from pathlib import Path

import jax

from experiments import schemes
from experiments.schemes.fits import fit_records
from experiments.schemes.law import exact_law_errors, law_records, seconds_of, shark_law_errors
from experiments.schemes.records import Record, grouped
from experiments.schemes.residuals import exact_residuals
from experiments.schemes.sampled import monte_carlo
from experiments.schemes.steps import BATCH, available, runs
from experiments.schemes.tables import TABLES
from itofit import KnownSystem, known_system


def study(system: KnownSystem, n: int, seed: int) -> list[Record]:
    """All records of one system."""
    key = jax.random.key(seed)
    names = available()
    if system.linear is not None:
        errors = {}
        for i, (scheme, dt) in enumerate(runs(names)):
            if scheme == "ShARK":
                k = jax.random.fold_in(key, i)
                errors[scheme, dt] = shark_law_errors(system, dt, n, k)
            else:
                errors[scheme, dt] = exact_law_errors(system, scheme, dt)
        others = [*exact_residuals(system), *fit_records(system)]
    else:
        errors, others = monte_carlo(system, names, n, key)
    seconds = seconds_of(system, errors)
    laws = []
    for (scheme, dt), of_run in errors.items():
        ratio = seconds[scheme, dt] / seconds["Euler", system.dt]
        laws += law_records(system, scheme, dt, of_run, ratio)
    return laws + others


def main(argv: Sequence[str] | None = None) -> None:
    """Run the studies, print the tables, write the records."""
    parser = argparse.ArgumentParser(
        prog="python -m experiments.schemes",
        description=schemes.__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--system", nargs="+", choices=("syn1", "syn3"), default=["syn1", "syn3"])
    parser.add_argument("--n-particles", type=int, default=20_000, help=f"in batches of {BATCH}")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", type=Path)
    args = parser.parse_args(argv)
    if "ShARK" not in available():
        print("diffrax is not installed: ShARK is left out")
    records = []
    with jax.enable_x64(True):
        for name in args.system:
            fresh = study(known_system(name), args.n_particles, args.seed)
            records += [{**r, "n_particles": args.n_particles, "seed": args.seed} for r in fresh]
            for (part,), group in grouped(fresh, "part"):
                print(f"\n{name}, {part}\n{TABLES[part](group)}", flush=True)
    if args.json:
        args.json.write_text(json.dumps(records, indent=1))


if __name__ == "__main__":
    main()
