"""Do error bars hold? Fits fresh data again and again and counts how often the truth is covered.

    python -m experiments.coverage --system syn1 ou syn2 syn3 --repeats 100 --json coverage.json
    python -m experiments.coverage --method judged --repeats 50 --jobs 2
    python -m experiments.coverage --system ou --repeats 8 --members 5

The judged solver leaves no snapshot out here: its error bars are those of the polished process,
judging or not. A repeat whose process is another, without error bars, counts as `without`, and so
does one whose bands are refused.

Every repeat draws independent particles at the system's training times. Drift: at the 10, 30, 50,
70 and 90 % quantiles of every coordinate of every snapshot. Forecast: means of every coordinate at
the test times, against 200 000 points of the truth. Also how often chi-squared rejects the fit at
the 5 % level. A file is continued where it exists. With `--jobs` repeats run in so many processes
of one core each, and seconds are those of one core.
"""

import argparse
import json
import time
import warnings
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

from experiments.grid import Record, in_processes
from experiments.table1.methods import sigma_of
from itofit import (
    Adversarial,
    FitWarning,
    FokkerPlanckProcess,
    InputError,
    Judged,
    KnownSystem,
    Moments,
    Snapshots,
    fit_together,
    known_system,
)
from itofit.moments.solution import MomentsSolution

_LEVELS = (0.1, 0.3, 0.5, 0.7, 0.9)
_Z = 1.959964
# Keys of the data of repeat r, and of the truth's own points.
_FIRST_KEY = 1000
_TRUTH_KEY = 77
_TRUTH_POINTS = 200_000
_SOLVERS = {"moments": Moments(), "judged": Judged(selection="none")}


def true_means(system: KnownSystem) -> np.ndarray:
    """Means at the test times, `(n_times, n_dims)`."""
    clouds = system.observe(_TRUTH_POINTS, system.test_times, key=jax.random.key(_TRUTH_KEY)).clouds
    return np.stack([x.mean(axis=0) for x in clouds])


def repeat(name: str, method: str, n: int, seed: int, means: np.ndarray) -> Record:
    """One data set fitted, and what its error bars are worth."""
    system = known_system(name)
    solver = _SOLVERS[method]
    model = FokkerPlanckProcess(sigma_of(system), dt=system.dt, solver=solver, random_state=seed)
    began = time.perf_counter()
    with warnings.catch_warnings(action="ignore", category=FitWarning):
        model.fit(observed(system, n, seed))
    if not isinstance(model.solution_, MomentsSolution):
        return {"seed": seed, "drift": None}
    try:
        return judged(model, system, means, seed, time.perf_counter() - began)
    except InputError:  # bands are refused where draws of the drift leave the data
        return {"seed": seed, "drift": None}


def ensembles(
    name: str, n: int, seeds: list[int], means: np.ndarray, n_members: int
) -> Iterator[Record]:
    """Data sets fitted by ensembles of the adversarial solver, all in one batched run."""
    system = known_system(name)
    solver = Adversarial(n_members=n_members)
    models = [
        FokkerPlanckProcess(sigma_of(system), dt=system.dt, solver=solver, random_state=seed)
        for seed in seeds
    ]
    began = time.perf_counter()
    with warnings.catch_warnings(action="ignore", category=FitWarning):
        fit_together(models, [observed(system, n, seed) for seed in seeds])
    seconds = time.perf_counter() - began
    for model, seed in zip(models, seeds, strict=True):
        yield judged(model, system, means, seed, seconds)


def observed(system: KnownSystem, n: int, seed: int) -> Snapshots:
    """The data of a repeat."""
    return system.observe(
        n, system.train_times, key=jax.random.key(_FIRST_KEY + seed), shared_particles=False
    )


def judged(
    model: FokkerPlanckProcess, system: KnownSystem, means: np.ndarray, seed: int, seconds: float
) -> Record:
    """Errors of drift and forecast in their own standard errors, and the test of a moments fit."""
    began = time.perf_counter()
    x = np.concatenate([np.quantile(cloud, _LEVELS, axis=0) for cloud in model.snapshots_.clouds])
    truth = np.asarray(jax.vmap(system.process.drift)(jnp.asarray(x)))
    drift = (model.drift(x) - truth) / model.drift_std(x)
    bands = model.bands(system.test_times)
    return {
        "seed": seed,
        "drift": drift.tolist(),
        "forecast": ((bands.mean - means) / bands.mean_std).tolist(),
        "p": None if model.solver_.name == "adversarial" else model.goodness_of_fit().p_value,
        "seconds": [seconds, time.perf_counter() - began],
    }


HEAD = (
    f"{'system':<8}{'n':>6}{'repeats':>9}{'drift %':>8}{'z^2':>8}"
    f"{'forecast %':>12}  {'by time':<14}{'reject %':>9}{'fit s':>8}{'bars s':>7}{'without':>9}"
)


def summary(name: str, n: int, records: list[Record]) -> str:
    """One line of the table."""
    n_repeats = len(records)
    records = [r for r in records if r["drift"] is not None]
    if not records:
        return f"{name:<8}{n:>6}{n_repeats:>9}  none of them with error bars"
    drift, forecast = (np.asarray([r[key] for r in records]) for key in ("drift", "forecast"))
    covered = 100 * np.mean(np.abs(drift) < _Z)
    by_time = 100 * np.mean(np.abs(forecast) < _Z, axis=(0, 2))
    shown = " ".join(f"{percent:.0f}" for percent in by_time)
    rejected = 100 * np.mean([np.nan if r["p"] is None else r["p"] < 0.05 for r in records])
    fit, bars = np.median([r["seconds"] for r in records], axis=0)
    return (
        f"{name:<8}{n:>6}{n_repeats:>9}{covered:>8.0f}{np.mean(drift**2):>8.2f}"
        f"{np.mean(by_time):>12.0f}  {shown:<14}{rejected:>9.0f}{fit:>8.1f}{bars:>7.1f}"
        f"{n_repeats - len(records):>9}"
    )


def main() -> None:
    """Run the repeats and print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--system", nargs="+", default=["syn1", "ou", "syn2", "syn3"])
    parser.add_argument("--n", type=int, default=1200, help="points a snapshot")
    parser.add_argument("--repeats", type=int, default=100)
    parser.add_argument("--method", choices=list(_SOLVERS), default="moments")
    parser.add_argument("--members", type=int, help="ensembles of the adversarial solver instead")
    parser.add_argument(
        "--jobs", type=int, default=1, help="processes, each on one core (default 1, on all cores)"
    )
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    by_name = json.loads(args.json.read_text()) if args.json and args.json.exists() else {}
    print(HEAD)
    for name in args.system:
        kind = "" if args.method == "moments" else f"-{args.method}"
        kind = kind if args.members is None else f"-{args.members}"
        records = by_name.setdefault(f"{name}-{args.n}{kind}", [])
        means = true_means(known_system(name))
        done = {record["seed"] for record in records}
        seeds = [seed for seed in range(args.repeats) if seed not in done]
        if args.members is None:
            repeats = [partial(repeat, name, args.method, args.n, seed, means) for seed in seeds]
            fresh = in_processes(repeats, args.jobs)
        else:
            fresh = ensembles(name, args.n, seeds, means, args.members) if seeds else ()
        for record in fresh:
            records.append(record)
            if args.json:
                args.json.write_text(json.dumps(by_name))
        print(summary(name, args.n, records), flush=True)


if __name__ == "__main__":
    main()
