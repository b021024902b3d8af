"""Which choices train best? Fits variants of the adversarial preset, and of the paper's rivals, to the paper's systems.

    python -m experiments.preset_study --system syn3 --dim 2 --seeds 3 --json study.json [variant ...]
    python -m experiments.preset_study --system syn2 --seeds 1 legend legend-critic-5 legend-identity

Data and score are those of `experiments.table1`, reading B: 1200 points a snapshot, x0 known; the population error
(mean per-coordinate W1 between 20 000 points of the learned and of the true process), beside its own floor. All seeds
of a variant are one batched run.
"""

import argparse
import json
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np

from experiments.table1.methods import sigma_of
from experiments.table1.scoring import Case, Sizes
from itofit import FitWarning, FokkerPlanckProcess, KnownSystem, Legend, PotentialRNN, fit_together, known_system
from itofit.face import device_named

# The preset of docs/decisions/0003.
NETWORKS = {"adversary": "network", "drift_form": "skip", "n_nodes": 16, "hold_out": 0.1, "n_iter": 1500}
NETWORKS |= {"batch_size": 512, "betas": (0.5, 0.9)}

VARIANTS: dict[str, dict] = {
    "default": {},
    "warm": {"warm_start": "moments"},
    "initial": {"anchor": "initial"},
    "direct": {"discrepancy": "direct"},
    "detached": {"gradient": "detached"},
    "trapezoid": {"options": {"rule": "trapezoid"}},
    "networks": {"options": NETWORKS},
    "networks-growing": {"options": NETWORKS | {"drift_form": "growing"}},
    "skip": {"options": {"drift_form": "skip"}},
    "nodes-16": {"options": {"n_nodes": 16}},
    "nodes-all": {"options": {"n_nodes": None}},
    "batch-512": {"options": {"batch_size": 512}},
    "rate-2e-3": {"options": {"drift_rate": 2e-3}},
    "betas-.5": {"options": {"betas": (0.5, 0.9)}},
    "keep-all": {"options": {"gain": None}},
    "warm-keep-all": {"warm_start": "moments", "options": {"gain": None}},
    "average-.995": {"options": {"averaging": 0.995}},
    "long": {"n_iter": 4800},
    "members-3": {"n_members": 3},
}


RIVALS: dict[str, tuple[Any, dict]] = {
    "legend": (Legend, {}),
    "legend-critic-5": (Legend, {"critic_steps": 5}),
    "legend-critic-20": (Legend, {"critic_steps": 20}),
    "legend-rate-3e-4": (Legend, {"critic_steps": 5, "learning_rate": 3e-4}),
    "legend-rate-2e-3": (Legend, {"learning_rate": 2e-3}),
    "legend-rate-3e-3": (Legend, {"critic_steps": 5, "learning_rate": 3e-3}),
    "legend-spectral": (Legend, {"critic": "spectral-norm"}),
    "legend-identity": (Legend, {"critic_steps": 5, "encoder": "identity"}),
    "legend-identity-spectral": (Legend, {"critic_steps": 5, "encoder": "identity", "critic": "spectral-norm"}),
    "potential-rnn": (PotentialRNN, {}),
    "potential-rnn-short": (PotentialRNN, {"n_iter": 500}),
    "potential-rnn-batch-1024": (PotentialRNN, {"batch_size": 1024}),
    "potential-rnn-ramps-50": (PotentialRNN, {"n_ramps": 50}),
    "potential-rnn-ramps-500": (PotentialRNN, {"n_ramps": 500}),
    "potential-rnn-tau-.3": (PotentialRNN, {"tau": 0.3}),
    "potential-rnn-initial": (PotentialRNN, {"anchor": "initial"}),
    "potential-rnn-faithful": (PotentialRNN, {"mode": "faithful", "n_ramps": 300}),
}


def study(system: KnownSystem, variant: str, seeds: int, device: str, more: dict) -> dict:
    """Fits of one variant and their population errors."""
    cases = [Case(system, "B", seed, Sizes(), ("population",)) for seed in range(seeds)]
    ours = (FokkerPlanckProcess, {"solver": "adversarial", **VARIANTS.get(variant, {})})
    kind, choices = RIVALS.get(variant, ours)
    how = {"dt": system.dt, "device": device} | choices | more
    models = [kind(sigma_of(system), random_state=case.seed, **how) for case in cases]
    began = time.perf_counter()
    with warnings.catch_warnings(action="ignore", category=FitWarning):
        fit_together(models, [case.training for case in cases])
    seconds = time.perf_counter() - began
    scores = [case.score(model) for case, model in zip(cases, models, strict=True)]
    return {
        "population": [[score.value for score in some] for some in scores],
        "floor": np.mean([[score.floor.mean for score in some] for some in scores], axis=0).tolist(),
        "seconds": seconds,
        "outcome": [model.outcome_.name for model in models],
        "n_iter": models[0].n_iter_,
        "device": device_named(device).device_kind,
    }


def main() -> None:
    """Run the asked variants and print one line each."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("variants", nargs="*", default=["default"], help=f"of {', '.join([*VARIANTS, *RIVALS])}")
    parser.add_argument("--system", default="syn3")
    parser.add_argument("--dim", type=int, default=2)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--n-iter", type=int, help="iteration budget of every variant")
    parser.add_argument("--device", choices=("auto", "cpu", "gpu"), default="auto")
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    unknown = sorted(set(args.variants) - set(VARIANTS) - set(RIVALS))
    if unknown:
        parser.error(f"no variant {', '.join(unknown)}; there are {', '.join([*VARIANTS, *RIVALS])}")
    records = []
    for variant in args.variants:
        more = {"n_iter": args.n_iter} if args.n_iter else {}
        record = study(known_system(args.system, args.dim), variant, args.seeds, args.device, more)
        records.append({"system": args.system, "dim": args.dim, "variant": variant, **record})
        means = np.mean(np.asarray(record["population"], dtype=float), axis=0)
        shown = " ".join(f"{p:.3f}({f:.3f})" for p, f in zip(means, record["floor"], strict=True))
        ends = ", ".join(record["outcome"])
        print(
            f"{args.system} D={args.dim} {variant:<18} {shown}  {record['seconds']:.0f} s  {record['n_iter']}  {ends}",
            flush=True,
        )
        if args.json:
            args.json.write_text(json.dumps(records, indent=1))


if __name__ == "__main__":
    main()
