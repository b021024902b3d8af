"""Which choices train best? Fits variants of the adversarial preset to the paper's systems and prints their errors.

    python -m experiments.preset_study --system syn3 --dim 2 --seeds 1 --json study.json [variant ...]

The data are those of SCORING's reading B: 1200 points a snapshot, x0 known. The score is the population error
(mean per-coordinate W1 between 20 000 points of the learned and of the true process), beside its own floor.
"""

import argparse
import json
import time
import warnings
from pathlib import Path

import jax
import numpy as np

from itofit import FitWarning, FokkerPlanckProcess, KnownSystem, known_system
from itofit.forecast import push_forward
from itofit.metrics import population_error
from itofit.snapshots.clouds import Snapshot

VARIANTS: dict[str, dict] = {
    "default": {},
    "initial": {"anchor": "initial"},
    "previous": {"anchor": "previous"},
    "direct": {"discrepancy": "direct"},
    "detached": {"gradient": "detached"},
    "rate-3e-3": {"drift_rate": 3e-3, "probe_rate": 3e-3},
    "drift-3e-3": {"drift_rate": 3e-3},
    "probe-3e-3": {"probe_rate": 3e-3},
    "betas-.9": {"betas": (0.9, 0.999)},
    "rate-2e-3": {"drift_rate": 2e-3, "probe_rate": 2e-3},
    "critic-3": {"critic_steps": 3},
    "critic-5": {"critic_steps": 5},
    "no-average": {"averaging": 0.0},
    "narrow": {"drift_width": 32, "drift_depth": 1},
    "probe-32": {"probe_width": 32},
    "probe-64": {"probe_width": 64},
    "full-batch": {"batch_size": None},
    "full-batch-critic-5": {"batch_size": None, "critic_steps": 5},
    "full-batch-probe-64": {"batch_size": None, "critic_steps": 5, "probe_width": 64},
    "long": {"n_iter": 4000},
}


def study(system: KnownSystem, options: dict, seed: int) -> dict:
    """One fit and its population errors."""
    snapshots = system.observe(1200, system.train_times, key=jax.random.key(1000 + seed))
    sigma = float(system.process.diffusion(jax.numpy.zeros(system.n_dims))[0, 0])
    model = FokkerPlanckProcess(sigma, dt=system.dt, random_state=seed, options=options)
    began = time.perf_counter()
    with warnings.catch_warnings(action="ignore", category=FitWarning):
        model.fit(snapshots)
    seconds = time.perf_counter() - began

    def push(start, times):
        z = Snapshot(0.0, model.scaling_.standardise(start), np.full(len(start), 1.0 / len(start)))
        clouds = push_forward(model.standard_process_, z, times, model.dt_, key=jax.random.key(seed))
        return [model.scaling_.restore(c) for c in clouds]

    def truth(start, times):
        return [np.asarray(x) for x in system.push(jax.numpy.asarray(start, dtype=float), times, jax.random.key(5))]

    times, key = system.test_times, jax.random.key(77 + seed)
    return {
        "population": population_error(push, system, times, key=key),
        "floor": population_error(truth, system, times, key=key),
        "seconds": seconds,
        "outcome": model.outcome_.name,
        "n_iter": model.n_iter_,
        "criterion": float(np.nanmin(model.history_.criterion)),
        "device": model.device_,
    }


def main() -> None:
    """Run the asked variants and print one line each."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("variants", nargs="*", default=list(VARIANTS))
    parser.add_argument("--system", default="syn3")
    parser.add_argument("--dim", type=int, default=2)
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--n-iter", type=int, help="iteration budget of every variant")
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    records = []
    for variant in args.variants:
        for seed in range(args.seeds):
            options = VARIANTS[variant] | ({"n_iter": args.n_iter} if args.n_iter else {})
            record = study(known_system(args.system, args.dim), options, seed)
            records.append({"system": args.system, "dim": args.dim, "variant": variant, "seed": seed, **record})
            shown = " ".join(f"{p:.3f}({f:.3f})" for p, f in zip(record["population"], record["floor"], strict=True))
            print(
                f"{args.system} D={args.dim} {variant:<14} seed {seed}  {shown}  {record['seconds']:.0f} s "
                f"{record['outcome']} {record['n_iter']}",
                flush=True,
            )
            if args.json:
                args.json.write_text(json.dumps(records, indent=1))


if __name__ == "__main__":
    main()
