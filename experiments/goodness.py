"""Does the test of a fit hold its level, and what does it notice? Fits fresh data again and again
and counts.

    python -m experiments.goodness --repeats 100 --json goodness.json

Every repeat draws independent particles. Size: the fitted drift is made of exactly the true terms,
all of which are kept, so a rejection is the test's own error. Power: something is wrong with the
model.

- `affine`: an affine drift fitted to Syn-3.
- `sigma x f`: the noise of Syn-1 taken f times too large.
- `moving`: dX = -2 (X - c(t)) dt + dW with c = (1.5 sin 2 pi t, 0), observed at t = 0, 0.25, 0.5,
  0.75, 1: the cloud goes right and comes back through where it was, which no autonomous drift can
  do.
- `slowing`: dX = -r(t) X dt + dW with r = 4 up to t = 0.5 and 1 after it, from N(0, I), same times:
  the cloud first narrows and then widens. Only its sd tells.

The last two are fitted with an affine drift and with the default dictionary, which has more to hide
behind. With `--default` sizes are also those of the default dictionary, whose terms are chosen by
the same data. A file is continued where it exists.
"""

import argparse
import json
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from experiments.grid import Record
from experiments.table1.methods import oracle_dictionary, sigma_of
from itofit import FitWarning, FokkerPlanckProcess, Moments, Snapshots, known_system

# Key of the data of repeat 0.
_FIRST_KEY = 5000
_MOST_REPEATS = {"size": 1000, "power": 40, "power, default": 5}
_TIMES = (0.0, 0.25, 0.5, 0.75, 1.0)
_DT = 0.01

Dictionary = Callable[[Array], Array]
Rate = Callable[[Array, Array], Array]


@dataclass(frozen=True)
class Case:
    """Data, and the model they are fitted with.

    `observe(n, seed)` draws the data; `dictionary` is None for the solver's own.
    """

    name: str
    observe: Callable[[int, int], Snapshots]
    sigma: float
    dictionary: Dictionary | None
    is_true: bool = False

    @property
    def kind(self) -> str:
        """Whether a rejection is wrong or right, and of power whether the fit is a long one."""
        if self.is_true:
            return "size"
        return "power, default" if self.dictionary is None else "power"


def affine(x: Array) -> Array:
    """[1, x]."""
    return jnp.concatenate([jnp.ones(1), x])


def true_terms(name: str) -> Dictionary:
    """The terms of a known system."""
    return affine if name == "ou" else oracle_dictionary(name, 2)


def of_system(
    label: str, name: str, dictionary: Dictionary | None, factor: float = 1.0, is_true: bool = False
) -> Case:
    """Data of a known system, fitted with `factor` times its noise."""
    system = known_system(name)

    def observe(n: int, seed: int) -> Snapshots:
        key = jax.random.key(_FIRST_KEY + seed)
        return system.observe(n, system.train_times, key=key, shared_particles=False)

    return Case(label, observe, factor * sigma_of(system), dictionary, is_true)


def of_drift_in_time(label: str, drift: Rate, dictionary: Dictionary | None) -> Case:
    """Data of dX = drift(X, t) dt + dW from N(0, I) in the plane."""

    def observe(n: int, seed: int) -> Snapshots:
        keys = jax.random.split(jax.random.key(_FIRST_KEY + seed), len(_TIMES))
        return Snapshots.from_arrays(
            [cloud(drift, n, t, k) for t, k in zip(_TIMES, keys, strict=True)], _TIMES
        )

    return Case(label, observe, 1.0, dictionary)


def cloud(drift: Rate, n: int, end: float, key: Array) -> np.ndarray:
    """Fresh particles at time `end`, by Euler steps."""
    first, rest = jax.random.split(key)
    start = jax.random.normal(first, (n, 2))
    times = jnp.arange(round(end / _DT)) * _DT

    def step(x, time_and_key):
        t, k = time_and_key
        noise = jnp.sqrt(_DT) * jax.random.normal(k, x.shape)
        return x + _DT * jax.vmap(drift, in_axes=(0, None))(x, t) + noise, None

    return np.asarray(jax.lax.scan(step, start, (times, jax.random.split(rest, len(times))))[0])


def moving(x: Array, t: Array) -> Array:
    """Pulled to a centre that goes right and comes back."""
    return -2.0 * (x - jnp.stack([1.5 * jnp.sin(2.0 * jnp.pi * t), jnp.zeros(())]))


def slowing(x: Array, t: Array) -> Array:
    """Pulled to the origin, four times less from half way on."""
    return -jnp.where(t < 0.5 - 1e-6, 4.0, 1.0) * x


def cases(default: bool) -> list[Case]:
    """The rows of the table."""
    names = ("syn1", "ou", "syn2", "syn3")
    rows = [
        of_system(f"{name}, true terms", name, true_terms(name), is_true=True) for name in names
    ]
    if default:
        rows += [of_system(f"{name}, default", name, None, is_true=True) for name in names]
    rows.append(of_system("syn3, affine", "syn3", affine))
    for factor in (0.8, 1.25, 0.9, 1.1):
        label = f"syn1, sigma x {factor:g}"
        rows.append(of_system(label, "syn1", true_terms("syn1"), factor))
    for form, dictionary in {"affine": affine, "default": None}.items():
        rows.append(of_drift_in_time(f"moving, {form}", moving, dictionary))
        rows.append(of_drift_in_time(f"slowing, {form}", slowing, dictionary))
    return rows


def repeat(case: Case, n: int, seed: int) -> Record:
    """One data set and its test."""
    solver = Moments()
    if case.dictionary is not None:
        # All terms stay, however weak: else a true one may be missing.
        solver = Moments(dictionary=case.dictionary, threshold=-np.inf)
    model = FokkerPlanckProcess(case.sigma, dt=_DT, solver=solver, random_state=seed)
    began = time.perf_counter()
    with warnings.catch_warnings(action="ignore", category=FitWarning):
        goodness = model.fit(case.observe(n, seed)).goodness_of_fit()
    return {
        "seed": seed,
        "p": goodness.p_value,
        "p_by_interval": goodness.p_values.tolist(),
        "chi2": float(goodness.chi2.sum()),
        "freedom": float(goodness.freedom.sum()),
        "seconds": time.perf_counter() - began,
    }


HEAD = (
    f"{'case':<20}{'n':>6}{'repeats':>9}{'at 5 %':>8}{'':>7}{'at 1 %':>8}{'at 20 %':>8}"
    f"  {'5 %, each':<13}{'chi2/free':>10}{'freedom':>9}{'s':>7}"
)


def summary(case: Case, n: int, records: list[Record]) -> str:
    """One line of the table."""
    p = np.asarray([r["p"] for r in records])
    each = np.asarray([r["p_by_interval"] for r in records])
    ratio = np.mean([r["chi2"] / r["freedom"] for r in records])
    freedom, seconds = (np.median([r[key] for r in records]) for key in ("freedom", "seconds"))
    rejected = {level: f"{100 * np.mean(p < level):.0f}" for level in (0.01, 0.05, 0.2)}
    by_interval = " ".join(f"{100 * part:.0f}" for part in np.mean(each < 0.05, axis=0))
    kind = "size" if case.is_true else "power"
    return (
        f"{case.name:<20}{n:>6}{len(records):>9}{rejected[0.05]:>8}{kind:>7}"
        f"{rejected[0.01]:>8}{rejected[0.2]:>8}  {by_interval:<13}{ratio:>10.3f}"
        f"{freedom:>9.0f}{seconds:>7.1f}"
    )


def main() -> None:
    """Run the repeats and print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--n", type=int, default=1200, help="points a snapshot")
    parser.add_argument(
        "--repeats", type=int, default=100, help="of the sizes; of powers at most 40"
    )
    parser.add_argument(
        "--default", action="store_true", help="sizes of the default dictionary, too"
    )
    parser.add_argument("--only", nargs="+", help="rows whose name begins like one of these")
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    by_name = json.loads(args.json.read_text()) if args.json and args.json.exists() else {}
    print(HEAD)
    for case in cases(args.default):
        if args.only and not case.name.startswith(tuple(args.only)):
            continue
        records = by_name.setdefault(f"{case.name}-{args.n}", [])
        for seed in range(len(records), min(args.repeats, _MOST_REPEATS[case.kind])):
            records.append(repeat(case, args.n, seed))
            if args.json:
                args.json.write_text(json.dumps(by_name))
        print(summary(case, args.n, records), flush=True)


if __name__ == "__main__":
    main()
