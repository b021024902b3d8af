"""Which choices train best? Fits variants of the adversarial preset, and of the paper's rivals, to
the paper's systems.

    python -m experiments.preset_study --system syn3 --dim 2 --seeds 3 --json study.json [name ...]
    python -m experiments.preset_study --system syn2 --seeds 1 legend legend-critic-5

Data and score are those of `experiments.table1`, reading B: 1200 points a snapshot, x0 known; the
population error (mean per-coordinate W1 between 20 000 points of the learned and of the true
process), beside its own floor. All seeds of a variant are one batched run.
"""

import argparse
import json
import time
import warnings
from dataclasses import replace
from pathlib import Path

import numpy as np
from sklearn.base import clone

from experiments.grid import Record
from experiments.table1.methods import sigma_of
from experiments.table1.scoring import Case, Sizes
from itofit import (
    Adversarial,
    FitWarning,
    FokkerPlanckProcess,
    KnownSystem,
    Legend,
    PotentialRNN,
    fit_together,
    known_system,
)
from itofit.devices import device_named
from itofit.face import Face

# Variants begin at rest, so that each differs from this one by what it is about alone.
REST = Adversarial(warm_start=None)
# The preset of docs/decisions/0003.
NETWORKS = replace(
    REST,
    adversary="network",
    drift_form="skip",
    n_nodes=16,
    hold_out=0.1,
    n_iter=1500,
    batch_size=512,
    betas=(0.5, 0.9),
)

SOLVERS: dict[str, Adversarial] = {
    "default": REST,
    "bridge": Adversarial(),
    "warm": Adversarial(warm_start="moments"),
    "initial": replace(REST, anchor="initial"),
    "direct": replace(REST, discrepancy="direct"),
    "detached": replace(REST, gradient="detached"),
    "trapezoid": replace(REST, rule="trapezoid"),
    "networks": NETWORKS,
    "networks-staged": replace(NETWORKS, drift_form="staged"),
    "skip": replace(REST, drift_form="skip"),
    "nodes-16": replace(REST, n_nodes=16),
    "nodes-all": replace(REST, n_nodes=None),
    "batch-512": replace(REST, batch_size=512),
    "rate-2e-3": replace(REST, drift_rate=2e-3),
    "betas-.5": replace(REST, betas=(0.5, 0.9)),
    "keep-all": replace(REST, gain=None),
    "warm-keep-all": Adversarial(warm_start="moments", gain=None),
    "average-.995": replace(REST, averaging=0.995),
    "long": replace(REST, n_iter=4800),
    "members-3": replace(REST, n_members=3),
}

RIVALS: dict[str, Legend | PotentialRNN] = {
    "legend": Legend(),
    "legend-critic-5": Legend(critic_steps=5),
    "legend-critic-20": Legend(critic_steps=20),
    "legend-rate-3e-4": Legend(critic_steps=5, learning_rate=3e-4),
    "legend-rate-2e-3": Legend(learning_rate=2e-3),
    "legend-rate-3e-3": Legend(critic_steps=5, learning_rate=3e-3),
    "legend-spectral": Legend(critic="spectral-norm"),
    "legend-identity": Legend(critic_steps=5, encoder="identity"),
    "legend-identity-spectral": Legend(critic_steps=5, encoder="identity", critic="spectral-norm"),
    "potential-rnn": PotentialRNN(),
    "potential-rnn-short": PotentialRNN(n_iter=500),
    "potential-rnn-batch-1024": PotentialRNN(batch_size=1024),
    "potential-rnn-ramps-50": PotentialRNN(n_ramps=50),
    "potential-rnn-ramps-500": PotentialRNN(n_ramps=500),
    "potential-rnn-tau-.3": PotentialRNN(tau=0.3),
    "potential-rnn-initial": PotentialRNN(anchor="initial"),
    "potential-rnn-faithful": PotentialRNN(mode="faithful", n_ramps=300),
}
VARIANTS = (*SOLVERS, *RIVALS)


def model_of(variant: str, system: KnownSystem, seed: int, device: str, n_iter: int | None) -> Face:
    """A model of the variant; `n_iter` is a budget in place of its own."""
    if variant in RIVALS:
        model = clone(RIVALS[variant])
        model.set_params(sigma=sigma_of(system), dt=system.dt, device=device, random_state=seed)
        return model if n_iter is None else model.set_params(n_iter=n_iter)
    solver = SOLVERS[variant]
    if n_iter is not None:
        solver = replace(solver, n_iter=n_iter)
    return FokkerPlanckProcess(
        sigma_of(system), dt=system.dt, solver=solver, device=device, random_state=seed
    )


def study(
    system: KnownSystem, variant: str, n_seeds: int, device: str, n_iter: int | None
) -> Record:
    """Fits of one variant and their population errors."""
    cases = [Case(system, "B", seed, Sizes(), ("population",)) for seed in range(n_seeds)]
    models = [model_of(variant, system, case.seed, device, n_iter) for case in cases]
    began = time.perf_counter()
    with warnings.catch_warnings(action="ignore", category=FitWarning):
        fit_together(models, [case.training for case in cases])
    seconds = time.perf_counter() - began
    scores = [case.score(model) for case, model in zip(cases, models, strict=True)]
    floors = [[score.floor.mean for score in of_seed] for of_seed in scores]
    return {
        "population": [[score.value for score in of_seed] for of_seed in scores],
        "floor": np.mean(floors, axis=0).tolist(),
        "seconds": seconds,
        "outcome": [model.outcome_.name for model in models],
        "n_iter": models[0].n_iter_,
        "device": device_named(device).device_kind,
    }


def main() -> None:
    """Run the asked variants and print one line each."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "variants", nargs="*", default=["default"], help=f"of {', '.join(VARIANTS)}"
    )
    parser.add_argument("--system", default="syn3")
    parser.add_argument("--dim", type=int, default=2)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--n-iter", type=int, help="iteration budget of every variant")
    parser.add_argument("--device", choices=("auto", "cpu", "gpu"), default="auto")
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    unknown = sorted(set(args.variants) - set(VARIANTS))
    if unknown:
        parser.error(f"no variant {', '.join(unknown)}; there are {', '.join(VARIANTS)}")
    system = known_system(args.system, args.dim)
    records = []
    for variant in args.variants:
        record = study(system, variant, args.seeds, args.device, args.n_iter)
        records.append({"system": args.system, "dim": args.dim, "variant": variant, **record})
        means = np.mean(np.asarray(record["population"], dtype=float), axis=0)
        shown = " ".join(f"{p:.3f}({f:.3f})" for p, f in zip(means, record["floor"], strict=True))
        ends = ", ".join(record["outcome"])
        print(
            f"{args.system} D={args.dim} {variant:<18} {shown}  "
            f"{record['seconds']:.0f} s  {record['n_iter']}  {ends}",
            flush=True,
        )
        if args.json:
            args.json.write_text(json.dumps(records, indent=1))


if __name__ == "__main__":
    main()
