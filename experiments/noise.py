"""Noise learned with the drift: how near to the truth, how sure of itself, and what it costs in
forecasts.

    python -m experiments.noise --seeds 5 --json noise.json
    python -m experiments.noise --system diffusion-paper syn1 --solver adversarial --seeds 5
    python -m experiments.noise --figure docs/figures/noise.png

Rows are systems with the kind of noise that is learned, the drift unknown as well. Data are those
of Table 1 (1200 points a snapshot, reading B). For every entry of a = S S' that is not zero: the
mean over seeds and its relative error, how often the 95 % interval of a fit holds the truth, and
the ends of the interval of seed 0. `population` is the mean per-coordinate W1 to the truth at the
test times over that of the same solver with sigma known, and the floor of both. Where S depends on
the state, a is read at one state. A file is continued where it exists.
"""

import argparse
import json
import warnings
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np

from experiments.grid import Record, in_processes
from experiments.table1.scoring import Case, Sizes
from itofit import FitWarning, FokkerPlanckProcess, KnownSystem, fit_together, known_system


class Row(NamedTuple):
    """The kind of noise that is learned, and the state at which a is read."""

    kind: str
    state: tuple[float, float] = (0.0, 0.0)


# By system.
ROWS = {
    "diffusion-paper": Row("diagonal"),
    "syn1": Row("diagonal"),
    "syn2": Row("diagonal"),
    "syn3": Row("diagonal"),
    "correlated": Row("full"),
    "multiplicative": Row("multiplicative", (1.5, 0.8)),
}


def true_sigma(system: KnownSystem) -> Any:
    """What an estimator that knows the noise is given."""
    diffusion = system.process.diffusion
    if not diffusion.constant:
        return diffusion
    return np.asarray(diffusion(jnp.zeros(system.n_dims)), dtype=float)


def fitted(
    system: KnownSystem, sigma: Any, cases: list[Case], solver: str
) -> list[FokkerPlanckProcess]:
    """One model a seed; those of the adversarial solver in one batch."""
    models = [
        FokkerPlanckProcess(sigma, dt=system.dt, solver=solver, random_state=case.seed)
        for case in cases
    ]
    data = [case.training for case in cases]
    with warnings.catch_warnings(action="ignore", category=FitWarning):
        if solver == "adversarial":
            return fit_together(models, data)
        return [model.fit(snapshots) for model, snapshots in zip(models, data, strict=True)]


def record_of(
    model: FokkerPlanckProcess, known: FokkerPlanckProcess, case: Case, state: tuple[float, float]
) -> Record:
    """What one seed says, as plain values."""
    x = np.asarray(state)
    record = {
        "seed": case.seed,
        "a": model.covariance(x).tolist(),
        "seconds": [model.seconds_, known.seconds_],
    }
    if model.solver_.name == "moments":
        low, high = model.covariance_interval(x)
        record |= {
            "low": low.tolist(),
            "high": high.tolist(),
            "reduced_chi2": model.solution_.evidence.reduced_chi2,
        }
    return record | {
        "population": [score.value for score in case.score(model)],
        "known": [score.value for score in case.score(known)],
        "floor": [case.floors[t, "population"].mean for t in case.times],
    }


def lines(
    name: str, kind: str, truth: np.ndarray, times: list[float], records: list[Record]
) -> list[str]:
    """One line for every entry of a that is not zero, and two for the forecasts."""
    a = np.asarray([r["a"] for r in records])
    texts = []
    for i, j in zip(*np.nonzero(np.tril(np.abs(truth) > 1e-9)), strict=True):
        value = a[:, i, j]
        true = truth[i, j]
        text = f"{name:<16}{kind:<15}a{i + 1}{j + 1}{true:>9.3f}"
        text += f"{value.mean():>9.3f}{value.std():>8.3f}"
        text += f"{100 * (value.mean() / true - 1.0):>8.1f} %"
        if "low" in records[0]:
            low, high = (np.asarray([r[key] for r in records])[:, i, j] for key in ("low", "high"))
            inside = int(np.sum((low <= true) & (true <= high)))
            text += f"{inside:>5} of {len(records)}   {low[0]:.3g} to {high[0]:.3g}"
        texts.append(text)
    learned, known, floor = (
        np.mean([r[key] for r in records], axis=0) for key in ("population", "known", "floor")
    )
    cells = [
        f"t = {t:g}: {p:.3f} / {k:.3f} = {p / k:.2f} ({f:.3f})"
        for t, p, k, f in zip(times, learned, known, floor, strict=True)
    ]
    seconds = np.median([r["seconds"] for r in records], axis=0)
    texts.append(f"{'':<16}population, learned / known (floor)   " + "   ".join(cells))
    texts.append(
        f"{'':<16}{len(records)} seeds, {seconds[0]:.1f} s a fit, "
        f"{seconds[1]:.1f} s with sigma known"
    )
    return texts


def fit_seed(name: str, seed: int) -> Record:
    """Both fits of the moments solver to the data of one seed."""
    return fit_seeds(name, [seed], "moments")[0]


def fit_seeds(name: str, seeds: list[int], solver: str) -> list[Record]:
    """Both fits for every seed."""
    system = known_system(name)
    row = ROWS[name]
    cases = [Case(system, "B", seed, Sizes(), ("population",)) for seed in seeds]
    learned = fitted(system, row.kind, cases, solver)
    known = fitted(system, true_sigma(system), cases, solver)
    return [
        record_of(model, rival, case, row.state)
        for model, rival, case in zip(learned, known, cases, strict=True)
    ]


def fit_missing(name: str, n_seeds: int, solver: str, n_jobs: int, records: list[Record]) -> None:
    """Add the records of the seeds that are missing."""
    done = {record["seed"] for record in records}
    seeds = [seed for seed in range(n_seeds) if seed not in done]
    if solver == "moments":
        records += in_processes([partial(fit_seed, name, seed) for seed in seeds], n_jobs)
    elif seeds:
        records += fit_seeds(name, seeds, solver)
    records.sort(key=lambda r: r["seed"])


def table(name: str, records: list[Record]) -> str:
    """The lines of one system."""
    system = known_system(name)
    row = ROWS[name]
    S = np.asarray(system.process.diffusion(jnp.asarray(row.state)), dtype=float)
    return "\n".join(lines(name, row.kind, S @ S.T, list(system.test_times), records))


def figure(path: Path) -> None:
    """The paper's experiment: sds of the forecast beside the closed form sqrt(Sigma_0 + a t), with
    its bands.
    """
    system = known_system("diffusion-paper")
    case = Case(system, "B", 0, Sizes(), ("population",))
    (model,) = fitted(system, "diagonal", [case], "moments")
    times = np.linspace(0.0, 6.0, 25)[1:]
    clouds = model.forecast(times, n_samples=20_000).clouds
    bands = model.bands(times, quantiles=(0.05, 0.95))
    fig, axes = plt.subplots(1, 2, figsize=(9.0, 3.4), sharex=True, constrained_layout=True)
    for d, axis in enumerate(axes):
        truth = np.sqrt([system.exact_moments(float(t))[1][d, d] for t in times])
        axis.plot(times, truth, color="black", lw=1.0, label=r"closed form $\sqrt{1 + a t}$")
        axis.plot(
            times,
            [x[:, d].std() for x in clouds],
            color="tab:blue",
            ls="--",
            label="learned, 20 000 points",
        )
        width = (bands.quantile[:, 1, d] - bands.quantile[:, 0, d]) / (2.0 * 1.6449)
        error = np.hypot(bands.quantile_std[:, 0, d], bands.quantile_std[:, 1, d]) / (2.0 * 1.6449)
        axis.fill_between(
            times,
            width - 2 * error,
            width + 2 * error,
            color="tab:blue",
            alpha=0.2,
            label="95 % band",
        )
        observed = [x[:, d].std() for x in case.training.clouds]
        axis.plot(
            case.training.times,
            observed,
            "o",
            color="tab:red",
            ms=4,
            label="training snapshots",
        )
        axis.set(xlabel="time", ylabel=f"sd of x{d + 1}", title=f"S = diag(1, 2): x{d + 1}")
    axes[0].legend(frameon=False, fontsize=8)
    fig.savefig(path, dpi=150)


def main() -> None:
    """Run the fits and print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--system", nargs="+", choices=list(ROWS), default=list(ROWS))
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--solver", choices=("moments", "adversarial"), default="moments")
    parser.add_argument(
        "--jobs", type=int, default=1, help="processes, each on one core (default 1, on all cores)"
    )
    parser.add_argument("--json", type=Path)
    parser.add_argument("--figure", type=Path, help="draw the paper's experiment instead")
    args = parser.parse_args()
    if args.figure:
        return figure(args.figure)
    by_name = json.loads(args.json.read_text()) if args.json and args.json.exists() else {}
    print(f"{args.solver}, {jax.devices()[0].platform}, 1200 points a snapshot, seeds from 0")
    print(
        f"{'system':<16}{'kind':<15}{'entry':<4}{'true':>6}{'learned':>9}{'sd':>8}{'error':>10}"
        "   in 95 %   seed 0"
    )
    for name in args.system:
        records = by_name.setdefault(f"{name}-{args.solver}", [])
        fit_missing(name, args.seeds, args.solver, args.jobs, records)
        print(table(name, records), flush=True)
        if args.json:
            args.json.write_text(json.dumps(by_name))
    return None


if __name__ == "__main__":
    main()
