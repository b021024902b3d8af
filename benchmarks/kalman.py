"""EM of the Kalman filter of volume: seconds for 300 steps on simulated days of 5-minute bins.

    python -m benchmarks.kalman [--days 747] [--bins 78] [--steps 300] [--missing 0.0] [--seed 0] \\
        [--json kalman.json]

A step is one pass of the filter, one of the smoother and new parameters. Every row is timed twice:
the first time with compilation, then without. On a GPU machine too it runs on the CPU.
"""

import argparse
import json
import os
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import jax
import numpy as np

from itofit.baselines import VolumeParameters, fit_kalman_volume
from itofit.baselines.kalman_volume import KalmanVolumeFit

ROWS: dict[str, Callable[..., KalmanVolumeFit]] = {
    "plain": partial(fit_kalman_volume, accelerate=False),
    "accelerated": partial(fit_kalman_volume, accelerate=True),
    "robust": partial(fit_kalman_volume, accelerate=False, robust=2.0),
}


def truth(n_bins: int) -> VolumeParameters:
    """Parameters of the size that a fit to a liquid stock finds, with the usual smile of a day."""
    smile = np.linspace(-1.0, 1.0, n_bins) ** 2
    return VolumeParameters(
        0.99, 0.8, 0.05, 0.04, 0.1, smile - smile.mean(), np.array([8.0, 0.0]), np.zeros((2, 2))
    )


def simulated(known: VolumeParameters, n_days: int, missing: float, seed: int) -> np.ndarray:
    """Days x bins of log volume by the model's own equations, some of it missing."""
    rng = np.random.default_rng(seed)
    n_bins = len(known.phi)
    eta = np.full(n_days, known.x0[0])
    mu = np.full(n_days * n_bins, known.x0[1])
    for day in range(1, n_days):
        eta[day] = known.a_eta * eta[day - 1] + np.sqrt(known.q_eta) * rng.normal()
    for k in range(1, len(mu)):
        mu[k] = known.a_mu * mu[k - 1] + np.sqrt(known.q_mu) * rng.normal()
    noise = np.sqrt(known.r) * rng.normal(size=(n_days, n_bins))
    y = eta[:, None] + mu.reshape(n_days, n_bins) + known.phi + noise
    return np.where(rng.uniform(size=y.shape) < missing, np.nan, y)


def timed(y: np.ndarray, n_steps: int, em: Callable[..., KalmanVolumeFit]) -> dict[str, Any]:
    """One row: seconds with and without compilation, and what was found."""
    seconds = []
    for _ in range(2):
        began = time.perf_counter()
        fit = em(y, n_iter=n_steps, tolerance=0.0)
        seconds.append(round(time.perf_counter() - began, 2))
    parameters = {
        name: round(getattr(fit.parameters, name), 4)
        for name in ("a_eta", "a_mu", "q_eta", "q_mu", "r")
    }
    return {
        "first_s": seconds[0],
        "second_s": seconds[1],
        "log_likelihood": round(fit.log_likelihoods[-1], 2),
        **parameters,
    }


def main() -> None:
    """Time every row and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--days", type=int, default=747)
    parser.add_argument("--bins", type=int, default=78)
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--missing", type=float, default=0.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    y = simulated(truth(args.bins), args.days, args.missing, args.seed)
    size = {name: getattr(args, name) for name in ("days", "bins", "steps", "missing", "seed")}
    rows = {name: timed(y, args.steps, em) for name, em in ROWS.items()}
    report = json.dumps(
        {**size, "cores": os.cpu_count(), "jax": jax.__version__, "rows": rows}, indent=2
    )
    print(report)
    if args.json:
        args.json.write_text(report + "\n")


if __name__ == "__main__":
    main()
