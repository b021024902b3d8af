"""Time and peak memory of the moments solver against points, dimensions, features, steps and
snapshots.

    python -m benchmarks.moments --json moments.json [--profile] \\
        [--vary n d features steps snapshots system]

Every row is a process of its own on Syn-1 (D = 2 unless varied), whose drift is soon found;
`system` is Syn-2 and Syn-3 at their own times, whose terms must be selected. A row fits twice, the
first time with compilation, and reports seconds of both, Gauss-Newton steps and the peak of its
resident memory. `--profile` prints where the time of one warm fit goes. Compare rows of one run on
a quiet machine.
"""

import argparse
import cProfile
import json
import pstats
import resource
import subprocess
import sys
import time
import warnings
from pathlib import Path
from typing import Any

BASE: dict[str, Any] = {
    "system": "syn1",
    "n": 1200,
    "d": 2,
    "features": None,
    "steps": 200,
    "snapshots": 3,
}
VARIED: dict[str, list[Any]] = {
    "n": [300, 1200, 4800],
    "d": [2, 6, 10],
    "features": [16, 64, 256],
    "steps": [50, 200, 800],
    "snapshots": [3, 5, 9],
    "system": [{"system": name, "d": d} for name in ("syn2", "syn3") for d in (2, 10)],
}


def measure(row: dict[str, Any], profile: bool) -> dict[str, Any]:
    """Two fits of one configuration, in this process."""
    import jax
    import numpy as np
    from experiments.table1.methods import sigma_of

    from itofit import FitWarning, FokkerPlanckProcess, Moments, known_system

    warnings.simplefilter("ignore", FitWarning)
    system = known_system(row["system"], row["d"])
    times = system.train_times
    dt = system.dt
    if row["system"] == "syn1":
        times = [0.0, *np.geomspace(0.2, 2.0, row["snapshots"] - 1)]
        dt = 2.0 / row["steps"]
    training = system.observe(row["n"], times, key=jax.random.key(0))
    solver = Moments(n_pair=row["features"])
    model = FokkerPlanckProcess(sigma_of(system), dt=dt, solver=solver, random_state=0)
    seconds = []
    profiler = cProfile.Profile()
    for i in range(2):
        began = time.perf_counter()
        if i == 1 and profile:
            profiler.enable()
        model.fit(training)
        profiler.disable()
        seconds.append(time.perf_counter() - began)
    if profile:
        pstats.Stats(profiler, stream=sys.stderr).sort_stats("cumulative").print_stats("itofit", 20)
    return {
        **row,
        "cold_s": seconds[0],
        "warm_s": seconds[1],
        "n_iter": model.n_iter_,
        "outcome": model.outcome_.name,
        "peak_gb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6,
        "device": model.device_,
    }


def rows(vary: list[str]) -> list[dict[str, Any]]:
    """The base configuration with one thing changed at a time."""
    varied = []
    for name in vary:
        for value in VARIED[name]:
            change = value if isinstance(value, dict) else {name: value}
            varied.append({**BASE, **change, "varied": name})
    return varied


def main() -> None:
    """Measure every row in a process of its own and print a table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--vary", nargs="+", choices=list(VARIED), default=list(VARIED))
    parser.add_argument("--json", type=Path)
    parser.add_argument("--profile", action="store_true")
    parser.add_argument("--row", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.row is not None:
        print(json.dumps(measure(json.loads(args.row), args.profile)))
        return
    records = []
    for row in rows(args.vary):
        name = row["varied"]
        words = [sys.executable, "-m", "benchmarks.moments", "--row", json.dumps(row)]
        words += ["--profile"] if args.profile else []
        done = subprocess.run(words, stdout=subprocess.PIPE, text=True)
        if done.returncode:
            print(f"{name}={row[name]}: failed with {done.returncode}", flush=True)
            continue
        record = json.loads(done.stdout.splitlines()[-1])
        records.append(record)
        times = f"cold {record['cold_s']:6.1f} s  warm {record['warm_s']:6.1f} s"
        ending = f"{record['n_iter']} steps  peak {record['peak_gb']:.2f} GB  {record['outcome']}"
        print(f"{name:>9} {row[name]!s:>5}  D = {row['d']:>2}  {times}  {ending}", flush=True)
        if args.json:
            args.json.write_text(json.dumps(records, indent=1))


if __name__ == "__main__":
    main()
