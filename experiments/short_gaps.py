"""Noise of gradient systems that are observed at three times close together.

    python -m experiments.short_gaps --seeds 3 --jobs 2 --json short_gaps.json

dX = -grad V dt + s dW from a broad start, V one of five potentials in two coordinates, by steps a
hundredth of a gap long. A gap is the time in which the drift moves a point by a fifth of the sd of
the start, in the root mean square over the start: the clouds hardly change, and noise and drift are
hard to tell apart. s^2 is such that noise moves a point by a tenth of that sd in a gap. By system:
the learned over the true variance of every seed, a mean over coordinates, and of the 95 % intervals
those that hold the truth. `-` is a fit without error bars.
"""

import argparse
import json
import time
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np

from experiments.grid import Record, in_processes
from itofit import FitWarning, FokkerPlanckProcess, Judged, Snapshots
from itofit.moments.solution import MomentsSolution

_POINTS = 1000
_SD = 1.0
_BY_DRIFT = 0.2
_BY_NOISE = 0.1
_STEPS = 100
Field = Callable[[np.ndarray], np.ndarray]


def _quadratic(x: np.ndarray) -> np.ndarray:
    """V = x1^2 + x2^2 / 2."""
    return x * np.array([2.0, 1.0])


def _styblinski_tang(x: np.ndarray) -> np.ndarray:
    """V = sum of x^4 - 16 x^2 + 5 x, halved, of 2.5 x: wells, two a coordinate."""
    y = 2.5 * x
    return 2.5 * (2.0 * y**3 - 16.0 * y + 2.5)


def _bohachevsky(x: np.ndarray) -> np.ndarray:
    """V = 10 (x1^2 + 2 x2^2 - .3 cos 3 pi x1 - .4 cos 4 pi x2): a bowl with dents."""
    first = 2.0 * x[:, 0] + 0.9 * np.pi * np.sin(3.0 * np.pi * x[:, 0])
    second = 4.0 * x[:, 1] + 1.6 * np.pi * np.sin(4.0 * np.pi * x[:, 1])
    return 10.0 * np.stack([first, second], axis=1)


def _plateau(x: np.ndarray) -> np.ndarray:
    """V = sum of cos pi x + x^4 / 2 - 3 x^2: waves on a plateau with walls."""
    return -np.pi * np.sin(np.pi * x) + 2.0 * x**3 - 6.0 * x


def _oakley_ohagan(x: np.ndarray) -> np.ndarray:
    """V = 5 sum of sin x + cos x + x^2 + x."""
    return 5.0 * (np.cos(x) - np.sin(x) + 2.0 * x + 1.0)


SLOPES: dict[str, Field] = {
    "quadratic": _quadratic,
    "styblinski-tang": _styblinski_tang,
    "bohachevsky": _bohachevsky,
    "plateau": _plateau,
    "oakley-ohagan": _oakley_ohagan,
}


def observed(name: str, seed: int) -> tuple[Snapshots, float]:
    """Fresh points at three times, and the variance of the noise by time."""
    rng = np.random.default_rng(seed)
    slope = SLOPES[name]
    probe = _SD * np.random.default_rng(0).standard_normal((10_000, 2))
    gap = _BY_DRIFT * _SD / np.sqrt(np.mean(np.sum(slope(probe) ** 2, axis=1)))
    variance = (_BY_NOISE * _SD) ** 2 / gap
    h = gap / _STEPS
    clouds = []
    for k in range(3):
        x = _SD * rng.standard_normal((_POINTS, 2))
        for _ in range(k * _STEPS):
            x = x - h * slope(x) + np.sqrt(h * variance) * rng.standard_normal(x.shape)
        clouds.append(x)
    return Snapshots.from_arrays(clouds, [0.0, gap, 2.0 * gap]), variance


def fitted(name: str, seed: int) -> Record:
    """What one fit with the defaults says of the noise."""
    snapshots, variance = observed(name, seed)
    began = time.perf_counter()
    model = FokkerPlanckProcess(solver=Judged(selection="none"), random_state=seed)
    with warnings.catch_warnings(action="ignore", category=FitWarning):
        model.fit(snapshots)
    record = {
        "system": name,
        "seed": seed,
        "ratio": (np.diagonal(model.covariance(np.zeros(2))) / variance).tolist(),
        "inside": None,
        "outcome": model.outcome_.name,
        "seconds": time.perf_counter() - began,
    }
    if isinstance(model.solution_, MomentsSolution):
        low, high = model.covariance_interval(np.zeros(2))
        inside = (np.diagonal(low) <= variance) & (variance <= np.diagonal(high))
        record["inside"] = [bool(one) for one in inside]
    return record


def line(name: str, records: list[Record]) -> str:
    """A row of the table."""
    ratios = " ".join(f"{np.mean(record['ratio']):>7.2f}" for record in records)
    held = [one for record in records if record["inside"] is not None for one in record["inside"]]
    share = f"{sum(held)} of {len(held)}" if held else "-"
    seconds = np.median([record["seconds"] for record in records])
    return f"{name:<18}{ratios:<26}{share:>10}{seconds:>8.1f}"


def main() -> None:
    """Fit all systems and print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--system", nargs="+", choices=list(SLOPES), default=list(SLOPES))
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    records = json.loads(args.json.read_text()) if args.json and args.json.exists() else []
    print(f"{'system':<18}{'learned / true, by seed':<26}{'inside':>10}{'fit s':>8}")
    for name in args.system:
        done = {record["seed"] for record in records if record["system"] == name}
        seeds = [seed for seed in range(args.seeds) if seed not in done]
        for record in in_processes([partial(fitted, name, seed) for seed in seeds], args.jobs):
            records.append(record)
            if args.json:
                args.json.write_text(json.dumps(records))
        print(line(name, [r for r in records if r["system"] == name]), flush=True)


if __name__ == "__main__":
    main()
