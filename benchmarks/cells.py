"""A fit of made-up cells with the default: seconds, memory, and a day that was left out.

    python -m benchmarks.cells [--cells 2000] [--dims 15] [--seed 0]

Cells of five days split into three fates; the other coordinates have no part in it. They are turned
at random and stand in an AnnData as its principal components would. The third day is left out, and
its forecast is held against the floor and against straight lines. With `--again` the cells are
fitted with another seed as well: how the two drifts correlate in the three coordinates of stem and
fates, with one another and with the truth, and how much of the squared speed is there. (What the
other coordinates do is stationary: no snapshot knows how fast.)
"""

import argparse
import resource
import time

import anndata
import numpy as np
from benchmarks.zoo.families.fates import branching
from benchmarks.zoo.sde import Diffusion

from itofit import FokkerPlanckProcess, Midpoint, Snapshots
from itofit.metrics import W1

_DAYS = (0.0, 0.4, 0.8, 1.4, 2.0)
_LEFT_OUT = 2
# Points compared: exact transport is cubic in their number.
_COMPARED = 500
# Coordinates of stem and fates.
_N_MOVING = 3


def made_up(n_cells: int, n_dims: int, seed: int) -> list[np.ndarray]:
    """The cells of every day, and after them as many again of the day left out."""
    rng = np.random.default_rng([seed, 1])
    Q = turn(n_dims, seed)
    law = _law(n_dims)
    each = n_cells // (len(_DAYS) - 1)
    days = [law.sample(rng, each, _DAYS)[k] @ Q for k in range(len(_DAYS))]
    return [*days, law.sample(rng, each, _DAYS)[_LEFT_OUT] @ Q]


def _law(n_dims: int) -> Diffusion:
    return branching(n_fates=3, radius=2.0, n_dims=n_dims)


def turn(n_dims: int, seed: int) -> np.ndarray:
    """How the coordinates of the law are turned: x @ turn."""
    normal = np.random.default_rng(seed).standard_normal((n_dims, n_dims))
    return np.linalg.qr(normal)[0]


def as_anndata(clouds: list[np.ndarray], days: list[float]) -> anndata.AnnData:
    """Cells with their day and their coordinates."""
    X = np.concatenate(clouds).astype(np.float32)
    adata = anndata.AnnData(X)
    adata.obs["day"] = np.repeat(days, [len(cloud) for cloud in clouds])
    adata.obsm["X_pca"] = X
    return adata


def main() -> None:
    """Fit once, with compilation, and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--cells", type=int, default=2000)
    parser.add_argument("--dims", type=int, default=15)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--again", action="store_true")
    args = parser.parse_args()
    *clouds, again = made_up(args.cells, args.dims, args.seed)
    kept = [k for k in range(len(_DAYS)) if k != _LEFT_OUT]
    given = [clouds[k] for k in kept]
    days = [_DAYS[k] for k in kept]
    adata = as_anndata(given, days)
    began = time.perf_counter()
    model = FokkerPlanckProcess(random_state=args.seed).fit(adata, time_key="day", rep="X_pca")
    seconds = time.perf_counter() - began
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
    asked = [_DAYS[_LEFT_OUT]]
    lines = Midpoint(random_state=args.seed).fit(Snapshots.from_arrays(given, days))
    forecasts = {"itofit": model, "straight lines": lines}
    truth = clouds[_LEFT_OUT][:_COMPARED]
    n = len(truth)
    print(f"{seconds:.0f} s with compilation, peak {peak:.1f} GB, {model.outcome_.name}")
    for name, fitted in forecasts.items():
        cloud = fitted.forecast(asked, n_samples=n).clouds[0]
        print(f"W1 of the day left out, {name}: {W1(cloud, truth):.3f}")
    print(f"floor: {W1(again[:n], truth):.3f}")
    print(model.selection_)
    if args.again:
        other = FokkerPlanckProcess(random_state=args.seed + 1)
        other.fit(adata, time_key="day", rep="X_pca")
        print(agreement(model, other, np.concatenate(given), args))


def agreement(
    model: FokkerPlanckProcess,
    other: FokkerPlanckProcess,
    cells: np.ndarray,
    args: argparse.Namespace,
) -> str:
    """Of two fits: whether they agree where cells move, and whether they move there."""
    back = turn(args.dims, args.seed).T
    turned = [one.drift(cells) @ back for one in (model, other)]
    true = _law(args.dims).drift(cells @ back, 0.0)
    fitted, again = (drift[:, :_N_MOVING].ravel() for drift in turned)
    truth = true[:, :_N_MOVING].ravel()
    there = [np.sum(drift[:, :_N_MOVING] ** 2) / np.sum(drift**2) for drift in turned]
    return (
        f"drifts of two seeds, stem and fates: correlation {np.corrcoef(fitted, again)[0, 1]:.2f}, "
        f"with the truth {np.corrcoef(fitted, truth)[0, 1]:.2f} and "
        f"{np.corrcoef(again, truth)[0, 1]:.2f}; of the squared speed {there[0]:.2f} and "
        f"{there[1]:.2f} is there"
    )


if __name__ == "__main__":
    main()
