"""Do error bars hold? Fits the moments solver to fresh data again and again and counts how often the truth is covered.

    python -m experiments.coverage --system syn1 ou syn2 syn3 --repeats 100 --json coverage.json
    python -m experiments.coverage --system ou --repeats 8 --members 5

Every repeat draws independent particles at the system's training times. Drift: at the 10, 30, 50, 70 and 90 % quantiles
of every coordinate of every snapshot. Forecast: means of every coordinate at the test times, against 200 000 points of
the truth. Also how often chi-squared rejects the fit at the 5 % level. A file is continued where it exists. With
`--jobs` repeats run in so many processes of one core each, and seconds are those of one core.
"""

import argparse
import json
import time
import warnings
from collections.abc import Iterator
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

from experiments.parallel import made
from experiments.table1.methods import sigma_of
from itofit import FitWarning, FokkerPlanckProcess, KnownSystem, Snapshots, fit_together, known_system

_LEVELS = (0.1, 0.3, 0.5, 0.7, 0.9)
_Z = 1.959964
# Keys of the data of repeat r, and of the truth's own points.
_FIRST_KEY, _TRUTH_KEY = 1000, 77
_TRUTH_POINTS = 200_000


def true_means(system: KnownSystem) -> np.ndarray:
    """Means at the test times, `(n_times, n_dims)`."""
    clouds = system.observe(_TRUTH_POINTS, system.test_times, key=jax.random.key(_TRUTH_KEY)).clouds
    return np.stack([x.mean(axis=0) for x in clouds])


def repeat(name: str, n: int, seed: int, means: np.ndarray) -> dict:
    """One data set fitted by the moments solver, and what its error bars are worth."""
    system = known_system(name)
    model = FokkerPlanckProcess(sigma_of(system), dt=system.dt, solver="moments", random_state=seed)
    began = time.perf_counter()
    with warnings.catch_warnings(action="ignore", category=FitWarning):
        model.fit(observed(system, n, seed))
    return judged(model, system, means, seed, time.perf_counter() - began)


def ensembles(name: str, n: int, seeds: list[int], means: np.ndarray, n_members: int) -> Iterator[dict]:
    """Data sets fitted by ensembles of the adversarial solver, all in one batched run."""
    system = known_system(name)
    how = {"dt": system.dt, "solver": "adversarial", "n_members": n_members}
    models = [FokkerPlanckProcess(sigma_of(system), random_state=seed, **how) for seed in seeds]
    began = time.perf_counter()
    with warnings.catch_warnings(action="ignore", category=FitWarning):
        fit_together(models, [observed(system, n, seed) for seed in seeds])
    seconds = time.perf_counter() - began
    for model, seed in zip(models, seeds, strict=True):
        yield judged(model, system, means, seed, seconds)


def observed(system: KnownSystem, n: int, seed: int) -> Snapshots:
    """The data of a repeat."""
    return system.observe(n, system.train_times, key=jax.random.key(_FIRST_KEY + seed), shared_particles=False)


def judged(model: FokkerPlanckProcess, system: KnownSystem, means: np.ndarray, seed: int, seconds: float) -> dict:
    """Errors of drift and forecast in their own standard errors, and the test of a moments fit."""
    began = time.perf_counter()
    x = np.concatenate([np.quantile(cloud, _LEVELS, axis=0) for cloud in model.snapshots_.clouds])
    drift = (model.drift(x) - np.asarray(jax.vmap(system.process.drift)(jnp.asarray(x)))) / model.drift_std(x)
    bands = model.bands(system.test_times)
    return {
        "seed": seed,
        "drift": drift.tolist(),
        "forecast": ((bands.mean - means) / bands.mean_std).tolist(),
        "p": model.goodness_of_fit().p_value if model.solver_ == "moments" else None,
        "seconds": [seconds, time.perf_counter() - began],
    }


def summary(name: str, n: int, records: list[dict]) -> str:
    """One line of the table."""
    drift, forecast = (np.asarray([r[key] for r in records]) for key in ("drift", "forecast"))
    by_time = np.mean(np.abs(forecast) < _Z, axis=(0, 2))
    fit, bars = np.median([r["seconds"] for r in records], axis=0)
    shown = " ".join(f"{100 * part:.0f}" for part in by_time)
    rejected = np.mean([np.nan if r["p"] is None else r["p"] < 0.05 for r in records])
    return (
        f"{name:<8}{n:>6}{len(records):>9}{100 * np.mean(np.abs(drift) < _Z):>8.0f}{np.mean(drift**2):>8.2f}"
        f"{100 * np.mean(by_time):>12.0f}  {shown:<14}{100 * rejected:>9.0f}{fit:>8.1f}{bars:>7.1f}"
    )


def main() -> None:
    """Run the repeats and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--system", nargs="+", default=["syn1", "ou", "syn2", "syn3"])
    parser.add_argument("--n", type=int, default=1200, help="points a snapshot")
    parser.add_argument("--repeats", type=int, default=100)
    parser.add_argument("--members", type=int, help="ensembles of the adversarial solver instead")
    parser.add_argument("--jobs", type=int, default=1, help="processes, each on one core (default 1, on all cores)")
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    found = json.loads(args.json.read_text()) if args.json and args.json.exists() else {}
    head = f"{'system':<8}{'n':>6}{'repeats':>9}{'drift %':>8}{'z^2':>8}{'forecast %':>12}  {'by time':<14}"
    print(head + f"{'reject %':>9}{'fit s':>8}{'bars s':>7}")
    for name in args.system:
        kind = "" if args.members is None else f"-{args.members}"
        records, means = found.setdefault(f"{name}-{args.n}{kind}", []), true_means(known_system(name))
        done = {record["seed"] for record in records}
        seeds = [seed for seed in range(args.repeats) if seed not in done]
        fresh = made(repeat, [(name, args.n, seed, means) for seed in seeds], args.jobs)
        if args.members is not None:
            fresh = ensembles(name, args.n, seeds, means, args.members) if seeds else ()
        for record in fresh:
            records.append(record)
            if args.json:
                args.json.write_text(json.dumps(found))
        print(summary(name, args.n, records), flush=True)


if __name__ == "__main__":
    main()
