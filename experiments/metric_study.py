"""What can the paper's "Wasserstein error" be? The critics a training logs, beside distances of the
same clouds.

    python -m experiments.table1 --system syn1 syn2 syn3 --dim 2 6 10 --method adversarial \\
        --preset paper --n-iter 2000 --seeds 3 --runs fits --fit-only
    python -m experiments.metric_study fits

For every run with the preset `paper` in the folder and every training time after the first: what
its critic said at the end of training (the weak residual, mean of the last tenth of the
iterations), and four distances between the model, grown from its first snapshot, and the snapshot
itself. All in raw units, mean over the seeds.
"""

import argparse
import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from experiments.arguments import positive
from experiments.grid import Record
from experiments.table1.scoring import DISTANCES
from itofit import FokkerPlanckProcess

COLUMNS = ("logged", *DISTANCES)
_PAPER = "-adversarial-paper-B-"


def study(folder: Path, n_points: int) -> list[Record]:
    """One row a run and training time."""
    model = FokkerPlanckProcess.load(folder)
    place, seed = folder.name.split(_PAPER)
    system, dim = place.rsplit("-", 1)
    logged = model.history_.residuals
    last = np.mean(logged[-max(1, len(logged) // 10) :], axis=0)
    rows = []
    for critic, snapshot in zip(last, list(model.snapshots_)[1:], strict=True):
        grown = model.predict(snapshot.time, n_samples=n_points)
        order = np.random.default_rng(0).permutation(len(snapshot.points))
        observed = snapshot.points[order[:n_points]]
        rows.append(
            {
                "system": system,
                "dim": int(dim),
                "seed": int(seed),
                "time": snapshot.time,
                "n_iter": model.n_iter_,
                "logged": float(critic),
                **{name: metric(grown, observed) for name, metric in DISTANCES.items()},
            }
        )
    return rows


def table(rows: Sequence[Record]) -> str:
    """Means over seeds as text."""
    cells: dict[tuple, list[Record]] = {}
    for row in rows:
        cells.setdefault((row["system"], row["dim"], row["time"]), []).append(row)
    lines = [
        f"{'system':<7}{'D':>3}{'time':>6}{'seeds':>6}" + "".join(f"{name:>15}" for name in COLUMNS)
    ]
    for (system, dim, time), seeds in sorted(cells.items(), key=lambda item: item[0]):
        means = "".join(f"{np.mean([row[name] for row in seeds]):>15.3f}" for name in COLUMNS)
        lines.append(f"{system:<7}{dim:>3}{time:>6.2g}{len(seeds):>6}{means}")
    return "\n".join(lines)


def main(argv: Sequence[str] | None = None) -> None:
    """Read the runs and print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("runs", type=Path, help="the folder that `table1 --runs` filled")
    parser.add_argument(
        "--n-points", type=positive, default=800, help="points of each cloud (default 800)"
    )
    parser.add_argument("--json", type=Path)
    args = parser.parse_args(argv)
    folders = sorted(args.runs.glob(f"*{_PAPER}*"))
    if not folders:
        parser.error(
            f"no run of the preset paper in {args.runs}: make some with experiments.table1 --runs"
        )
    rows = [row for folder in folders for row in study(folder, args.n_points)]
    if args.json:
        args.json.write_text(json.dumps(rows, indent=1))
    print(table(rows))


if __name__ == "__main__":
    main()
