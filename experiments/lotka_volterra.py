"""Lotka-Volterra without being told the equations or the noise: the benchmark of SnapMMD (Shen et
al., 2025).

    python -m experiments.lotka_volterra --data ../shared/data/lotka_volterra --seeds 10

DIR holds `lv.npz` (11 snapshots of 200 points) and `lv_interp_val.npz` (the mid-times). The first
ten snapshots are fitted, the last is forecast and the mid-times are interpolated, every simulation
from the observed first snapshot, 200 points. Scores are exact W2, which the benchmark calls EMD.
The data are one set: seeds vary features and noise alone. Two models come out of a fit: its drift,
and the equations that `equations(2)` finds, simulated with the noise learned. `floor` is the score
of the known equations (1, .4, .1, .4; sigma .02) over 20 draws, `persistence` the last snapshot
before. Rows in brackets are the figures printed with that benchmark.
"""

import argparse
import json
import time
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import NamedTuple

import jax
import numpy as np

from experiments.grid import Record, in_processes
from itofit import FitWarning, FokkerPlanckProcess, Midpoint, Snapshots
from itofit.metrics import W2

# A drift or a diffusion of rows of states.
Field = Callable[[np.ndarray], np.ndarray]

# Steps a gap.
_STEPS = 100


class Scores(NamedTuple):
    """W2 of the forecast, and the mean W2 of the interpolations; None where there is none."""

    forecast: float | None
    between: float | None


_PRINTED = {
    "[SnapMMD, told the equations]": Scores(0.220, 0.060),
    "[SBIRR, told the equations]": Scores(0.788, 0.096),
    "[SBIRR, from the last snapshot]": Scores(0.424, None),
    "[PRESCIENT]": Scores(3.283, None),
    "[PI-SDE]": Scores(4.046, 0.155),
    "[scNODE]": Scores(2.827, None),
    "[JKOnet*]": Scores(29.67, None),
    "[OT-CFM]": Scores(None, 0.300),
    "[SB-CFM]": Scores(None, 0.320),
    "[SF2M]": Scores(None, 0.241),
    "[DMSB]": Scores(None, 0.819),
}


class Data:
    """The benchmark's snapshots."""

    def __init__(self, folder: Path):
        with np.load(folder / "lv.npz") as file:
            self.times = file["dts"].astype(float)
            clouds = file["Xs"].astype(float)
        with np.load(folder / "lv_interp_val.npz") as file:
            self.between = file["dts"].astype(float)
            self.middle = file["Xs"].astype(float)
        self.clouds = clouds
        self.training = Snapshots.from_arrays(
            list(clouds[:-1]), self.times[:-1].tolist(), names=["x", "y"]
        )

    def scores(self, forecast: np.ndarray, middle: list[np.ndarray]) -> Scores:
        """The scores of clouds at the last time and at the mid-times."""
        between = [W2(a, b) for a, b in zip(middle, self.middle, strict=True)]
        return Scores(W2(forecast, self.clouds[-1]), float(np.mean(between)))


def fit(folder: Path, seed: int, kind: str, n_steps: int) -> Record:
    """One fit with its own features and noise."""
    data = Data(folder)
    dt = float(data.times[1] - data.times[0]) / n_steps
    model = FokkerPlanckProcess(kind, dt=dt, solver="moments", random_state=seed)
    began = time.perf_counter()
    with warnings.catch_warnings(action="ignore", category=FitWarning):
        model.fit(data.training)
    seconds = time.perf_counter() - began
    forecast = model.forecast([data.times[-1]]).clouds[0]
    middle = list(model.forecast(data.between).clouds)
    a = np.diag(model.covariance(np.ones(2)))
    low, high = (np.diag(end) for end in model.covariance_interval(np.ones(2)))
    equations = model.equations(2)
    clouds = grown(data, equations, model.diffusion, dt, np.random.default_rng(seed))
    return {
        "seed": seed,
        "scores": data.scores(forecast, middle),
        "by_equations": data.scores(clouds[-1], clouds[:-1]),
        "sigma": [np.sqrt(v).tolist() for v in (a, low, high)],
        "equations": str(equations),
        "reduced_chi2": model.solution_.evidence.reduced_chi2,
        "seconds": seconds,
    }


def grown(
    data: Data, drift: Field, diffusion: Field, step: float, rng: np.random.Generator
) -> list[np.ndarray]:
    """The first snapshot carried to the mid-times and to the last one by Euler's steps."""
    x = data.clouds[0].copy()
    now = float(data.times[0])
    clouds = []
    for end in np.append(data.between, data.times[-1]):
        count = max(1, round((end - now) / step))
        h = (end - now) / count
        for _ in range(count):
            kick = np.einsum("nij,nj->ni", diffusion(x), rng.standard_normal(x.shape))
            x = x + h * drift(x) + np.sqrt(h) * kick
        clouds.append(x)
        now = float(end)
    return clouds


def truth(data: Data, rng: np.random.Generator, step: float = 0.002) -> Scores:
    """The score of one draw of the known equations."""

    def drift(x: np.ndarray) -> np.ndarray:
        product = x[:, 0] * x[:, 1]
        return np.stack([x[:, 0] - 0.4 * product, 0.1 * product - 0.4 * x[:, 1]], axis=1)

    clouds = grown(data, drift, lambda x: 0.02 * x[:, :, None] * np.eye(2), step, rng)
    return data.scores(clouds[-1], clouds[:-1])


def persistence(data: Data) -> Scores:
    """The last snapshot before."""
    at = np.searchsorted(data.times, data.between, side="right") - 1
    return data.scores(data.clouds[-2], [data.clouds[i] for i in at])


def midpoint(data: Data) -> float:
    """Displacement interpolation between the snapshots on either side."""
    middle = Midpoint(random_state=0).fit(data.training).forecast(data.between).clouds
    return float(np.mean([W2(a, b) for a, b in zip(middle, data.middle, strict=True)]))


def table(data: Data, records: list[Record]) -> str:
    """All rows, ours first."""
    seconds = np.median([r["seconds"] for r in records])
    floors = [truth(data, np.random.default_rng(seed)) for seed in range(20)]
    rows = [
        f"{'W2':<34}{'forecast':>14}{'interpolation':>14}",
        _mean_line(f"itofit, mean of {len(records)} seeds", [r["scores"] for r in records])
        + f"   {seconds:.0f} s a fit",
        _range_line([r["scores"] for r in records]),
        _mean_line("itofit, the equations it found", [r["by_equations"] for r in records]),
        _range_line([r["by_equations"] for r in records]),
        _mean_line("floor: the true equations", floors),
        _line("persistence", persistence(data)),
        _line("transport midpoint", Scores(None, midpoint(data))),
        *(_line(name, printed) for name, printed in _PRINTED.items()),
        "",
        _noise_line(records),
        records[0]["equations"],
    ]
    return "\n".join(rows)


def _line(name: str, scores: Scores) -> str:
    shown = ["" if value is None else f"{value:.3f}" for value in scores]
    return f"{name:<34}" + "".join(f"{text:>14}" for text in shown)


def _mean_line(name: str, scores: list[Scores]) -> str:
    return _line(name, Scores(*np.mean(scores, axis=0)))


def _range_line(scores: list[Scores]) -> str:
    low = np.min(scores, axis=0)
    high = np.max(scores, axis=0)
    forecast, between = (f"{low[i]:.3f} to {high[i]:.3f}" for i in range(2))
    return f"{'  range':<32}{forecast:>16}  {between}"


def _noise_line(records: list[Record]) -> str:
    """The noise learned, its interval of the first seed, and how well the snapshots are met."""
    sigma = np.mean([r["sigma"][0] for r in records], axis=0)
    chi2 = np.mean([r["reduced_chi2"] for r in records])
    first = records[0]
    ends = [", ".join(f"{value:.4f}" for value in end) for end in first["sigma"][1:]]
    return (
        f"sigma learned {sigma[0]:.4f}, {sigma[1]:.4f}; chi-squared by degree of freedom "
        f"{chi2:.2f}; seed {first['seed']}: sigma between ({ends[0]}) and ({ends[1]})"
    )


def main() -> None:
    """Fit all seeds and print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--data", type=Path, required=True, help="folder with lv.npz and lv_interp_val.npz"
    )
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--kind", default="multiplicative", help="of the noise that is learned")
    parser.add_argument("--steps", type=int, default=_STEPS, help="Euler steps a gap")
    parser.add_argument(
        "--jobs", type=int, default=1, help="processes, each on one core (default 1, on all cores)"
    )
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    data = Data(args.data)
    fits = [partial(fit, args.data, seed, args.kind, args.steps) for seed in range(args.seeds)]
    records = sorted(in_processes(fits, args.jobs), key=lambda r: r["seed"])
    if args.json:
        args.json.write_text(json.dumps(records))
    print(f"noise {args.kind}, {args.steps} steps a gap, {jax.devices()[0].platform}")
    print(table(data, records))


if __name__ == "__main__":
    main()
