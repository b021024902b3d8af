"""A fit of made-up cells with the default: seconds, memory, and a day that was left out.

    python -m benchmarks.cells [--cells 2000] [--dims 15] [--seed 0]

Cells of five days split into three fates; the other coordinates have no part in it. They are turned
at random and stand in an AnnData as its principal components would. The third day is left out, and
its forecast is held against the floor and against straight lines.
"""

import argparse
import resource
import time

import anndata
import numpy as np
from benchmarks.zoo.families.fates import branching

from itofit import FokkerPlanckProcess, Midpoint, Snapshots
from itofit.metrics import W1

_DAYS = (0.0, 0.4, 0.8, 1.4, 2.0)
_LEFT_OUT = 2
# Points compared: exact transport is cubic in their number.
_COMPARED = 500


def made_up(n_cells: int, n_dims: int, seed: int) -> list[np.ndarray]:
    """The cells of every day, and after them as many again of the day left out."""
    rng = np.random.default_rng(seed)
    turn = np.linalg.qr(rng.standard_normal((n_dims, n_dims)))[0]
    law = branching(n_fates=3, radius=2.0, n_dims=n_dims)
    each = n_cells // (len(_DAYS) - 1)
    days = [law.sample(rng, each, _DAYS)[k] @ turn for k in range(len(_DAYS))]
    return [*days, law.sample(rng, each, _DAYS)[_LEFT_OUT] @ turn]


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


if __name__ == "__main__":
    main()
