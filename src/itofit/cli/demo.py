"""`itofit demo`: the whole way on Syn-3 of the paper, from data to scorecard and picture."""

import time
from collections.abc import Callable
from pathlib import Path

import jax

from itofit.estimator import FokkerPlanckProcess
from itofit.plot import forecast_figure, save_figure
from itofit.simulate.systems import known_system
from itofit.snapshots.files import write_snapshots


def run_demo(out: Path, say: Callable[[str], None]) -> None:
    """Simulate, fit, score, save and draw."""
    began = time.perf_counter()
    system = known_system("syn3")
    k_train, k_test = jax.random.split(jax.random.key(0))
    training = system.observe(1200, system.train_times, key=k_train)
    held_out = system.observe(800, [0.0, *system.test_times], key=k_test)
    say(f"Syn-3, a noisy van der Pol oscillator. Training: {training}")
    say(
        "Nobody is followed: rows are shuffled at every time. "
        f"Device: {jax.devices()[0].device_kind}."
    )
    model = FokkerPlanckProcess(
        1.0, dt=system.dt, solver="moments", random_state=0, verbose=True
    ).fit(training)
    say(f"{model.outcome_.value} ({model.n_iter_} Gauss-Newton steps, {model.seconds_:.0f} s)\n")
    say(
        "Forecasts from the held-out start cloud. t = 0.1 lies between snapshots, 0.3 and 0.5 "
        "beyond the last (0.2):"
    )
    say(str(model.scorecard(held_out, truth=system)))
    out.mkdir(parents=True, exist_ok=True)
    model.save(out / "run", overwrite=True)
    write_snapshots(training, out / "train.npz")
    write_snapshots(held_out, out / "held_out.npz")
    later = held_out.select(range(1, len(held_out)))
    save_figure(
        forecast_figure(model, later, "Syn-3: observed (red) and predicted (blue)"),
        out / "syn3.png",
    )
    seconds = time.perf_counter() - began
    say(
        f"\nsaved {out}/run, {out}/train.npz, {out}/held_out.npz and {out}/syn3.png; "
        f"{seconds:.0f} s in all"
    )
