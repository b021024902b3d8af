"""What snapshots cannot determine, on systems of which it is known, and whether the advice for the
next one is good.

    python -m experiments.identifiability --out docs/figures
    python -m experiments.identifiability --next --repeats 20

The first prints the sentences and draws the least determined field of both curls. The second fits
`ou` to snapshots at 0 and 0.3, asks which further snapshot would reduce the variance of the mean at
t = 2 most, takes each of the candidates in turn and prints the variance of the forecast's means
over repeats beside what was said.
"""

import argparse
import warnings
from pathlib import Path
from typing import NamedTuple

import jax
import numpy as np

from experiments.table1.methods import sigma_of
from itofit import FitWarning, FokkerPlanckProcess, Snapshots, known_system
from itofit.trust.identifiability import Identifiability

_CANDIDATES = (0.1, 0.6, 2.0)
_FORECAST = 2.0
_FIRST = (0.0, 0.3)


class Panel(NamedTuple):
    """One picture: the name of a system, its fit and what that does not determine."""

    name: str
    model: FokkerPlanckProcess
    identifiability: Identifiability


def fitted(name: str, data: Snapshots, seed: int = 0) -> FokkerPlanckProcess:
    """The moments solver with the system's own sigma and step."""
    system = known_system(name)
    model = FokkerPlanckProcess(sigma_of(system), dt=system.dt, solver="moments", random_state=seed)
    with warnings.catch_warnings(action="ignore", category=FitWarning):
        return model.fit(data)


def sentences(out: Path | None, n: int) -> None:
    """Both curls, a stationary Ornstein-Uhlenbeck cloud in one and two dimensions, and two
    snapshots alone.
    """
    panels = []
    for name in ("curl", "curl-anisotropic"):
        system = known_system(name)
        data = system.observe(n, system.train_times, key=jax.random.key(5), shared_particles=False)
        model = fitted(name, data)
        panels.append(Panel(name, model, model.identifiability()))
        print(f"## {name}\n{panels[-1].identifiability}\n", flush=True)
    rng = np.random.default_rng(0)
    for n_dims in (1, 2):
        still = [rng.standard_normal((n, n_dims)) / np.sqrt(2.0) for _ in range(3)]
        data = Snapshots.from_arrays(still, [0.0, 0.5, 1.0])
        model = FokkerPlanckProcess(1.0, dt=0.02, solver="moments", random_state=0).fit(data)
        undetermined = model.identifiability(sigma_known=False)
        print(f"## stationary, D = {n_dims}, sigma unknown\n{undetermined}\n", flush=True)
    two = known_system("ou").observe(n, _FIRST, key=jax.random.key(5))
    print(f"## ou, two snapshots\n{fitted('ou', two).identifiability()}\n", flush=True)
    if out is not None:
        draw(panels, out)


def draw(panels: list[Panel], out: Path) -> None:
    """The least determined fields side by side."""
    import matplotlib.pyplot as plt

    from itofit.plot import save_figure, undetermined_field

    figure, axes = plt.subplots(
        1, len(panels), figsize=(5.2 * len(panels), 4.8), layout="constrained"
    )
    for ax, panel in zip(axes, panels, strict=True):
        undetermined_field(ax, panel.model, panel.identifiability)
        ax.set_xlabel(panel.name)
    out.mkdir(parents=True, exist_ok=True)
    save_figure(figure, out / "identifiability.png")


def try_advice(n: int, repeats: int) -> None:
    """Forecast variances with each candidate taken, beside the prediction from the first two
    snapshots.
    """
    system = known_system("ou")
    advices = []
    means = {time: [] for time in (None, *_CANDIDATES)}
    for seed in range(repeats):
        key = jax.random.key(2000 + seed)
        every = system.observe(n, sorted({*_FIRST, *_CANDIDATES}), key=key, shared_particles=False)
        for extra in means:
            chosen = [i for i, t in enumerate(every.times) if t in _FIRST or t == extra]
            model = fitted("ou", every.select(chosen), seed)
            # The start is the same in all of them, so that what differs is the drift.
            cloud = model.predict(_FORECAST, n_samples=4 * n)
            means[extra].append(cloud.mean(axis=0))
            if extra is None:
                advices.append(model.next_time(_CANDIDATES, _FORECAST))
        print(f"repeat {seed}: advised {advices[-1].best:g}", flush=True)
    sd = system.observe(20_000, [_FORECAST], key=jax.random.key(1)).clouds[0].std(axis=0)
    truth = system.observe(200_000, [_FORECAST], key=jax.random.key(2)).clouds[0].mean(axis=0)
    head = f"{'further snapshot':<18}{'said, median':>14}"
    print(f"\n{head}{'rms error of the mean at t = 2, in sds':>42}")
    for i, (time, forecast_means) in enumerate(means.items()):
        predicted = np.median(
            [advice.before if time is None else advice.after[i - 1] for advice in advices]
        )
        error = np.sqrt(np.mean(((np.asarray(forecast_means) - truth) / sd) ** 2))
        label = "none" if time is None else f"t = {time:g}"
        print(f"{label:<18}{predicted:>14.3f}{error:>42.3f}")


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--next", action="store_true", help="test the advice for the next snapshot")
    parser.add_argument("--n", type=int, default=1200, help="points a snapshot")
    parser.add_argument("--repeats", type=int, default=20)
    parser.add_argument("--out", type=Path, help="folder for the picture")
    args = parser.parse_args()
    if args.next:
        try_advice(args.n, args.repeats)
    else:
        sentences(args.out, args.n)


if __name__ == "__main__":
    main()
