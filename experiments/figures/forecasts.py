"""Figure 2 of the paper: what each solver forecasts at the test times, over the test clouds.

Each model is fitted to 1200 points a snapshot and grown from the test rows at t0; 800 test points a
time. The title of a panel gives the coordinate W1 to the test cloud and its floor, which is what
the true process scores.
"""

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from matplotlib.figure import Figure

from experiments.figures.pictures import Picture, Settings, grid
from experiments.table1.methods import sigma_of
from experiments.table1.scoring import Case, Sizes, carried
from itofit import (
    Adversarial,
    FitWarning,
    FokkerPlanckProcess,
    Moments,
    Scorecard,
    Snapshots,
    known_system,
)
from itofit.plot import clouds
from itofit.snapshots.clouds import Snapshot

SOLVERS = ("adversarial", "moments")


class Row(NamedTuple):
    """What a solver forecasts at the test times, and its scores."""

    clouds: Sequence[Snapshot | None]
    card: Scorecard


def forecasts(name: str, settings: Settings, sizes: Sizes | None = None) -> Picture:
    """Both solvers on one system at D = 2."""
    sizes = sizes or Sizes()
    case = Case(known_system(name), "B", settings.seed, sizes)
    held_out = with_start(case)
    solvers: dict[str, Moments | Adversarial] = {
        "adversarial": Adversarial(warm_start=None),
        "moments": Moments(),
    }
    rows: dict[str, Row] = {}
    numbers: list[dict[str, Any]] = []
    for label in SOLVERS:
        model = fitted(case, solvers[label], settings)
        card = model.scorecard(held_out, truth=case.system)
        rows[label] = Row(carried(model, case.times, held_out.at(case.start.time)), card)
        numbers.append(about(model) | {"scores": card.to_records()})
    title = f"{name}, D = 2: test clouds and forecasts from the test rows at t0"
    used = {
        "n_train": sizes.n_train,
        "n_test": sizes.n_test,
        "dt": case.system.dt,
        "n_iter": settings.n_iter,
    }
    return Picture(panels(case.tests, rows, title), used, {"fits": numbers})


def with_start(case: Case) -> Snapshots:
    """The test clouds and the test rows at t0, from which forecasts grow."""
    start = case.start
    tests = case.tests
    return Snapshots.from_arrays([start.points, *tests.clouds], [start.time, *tests.times.tolist()])


def fitted(case: Case, solver: Moments | Adversarial, settings: Settings) -> FokkerPlanckProcess:
    """The solver's fit to the training snapshots; a run that stops at its budget is no reason to
    warn here.
    """
    if settings.n_iter is not None and isinstance(solver, Adversarial):
        solver = replace(solver, n_iter=settings.n_iter)
    model = FokkerPlanckProcess(
        sigma_of(case.system),
        dt=case.system.dt,
        solver=solver,
        device=settings.device,
        random_state=settings.seed,
    )
    with warnings.catch_warnings(action="ignore", category=FitWarning):
        return model.fit(case.training)


def about(model: FokkerPlanckProcess) -> dict[str, Any]:
    """How a fit went, for the record."""
    return {
        "solver": model.solver_.name,
        "outcome": model.outcome_.name,
        "n_iter": model.n_iter_,
        "seconds": round(model.seconds_, 1),
    }


def panels(
    tests: Snapshots,
    rows: Mapping[str, Row],
    title: str,
    metric: str = "coordinate_W1",
) -> Figure:
    """One row a solver, one column a test time; the panels of a time share their axes."""
    figure, axes = grid(len(rows), len(tests), 2.9, 2.6, sharex="col", sharey="col")
    for line, (solver, row) in zip(axes, rows.items(), strict=True):
        for ax, observed, cloud in zip(line, tests, row.clouds, strict=True):
            score = row.card.at(observed.time)[metric]
            if cloud is not None:
                clouds(ax, observed, cloud)
            floor = f"{score.floor:.3f} ± {score.floor_sd:.3f}"
            title_of_panel = f"t = {observed.time:g}:  W1 {score.value:.3f}, floor {floor}"
            ax.set_title(title_of_panel, fontsize=8)
            ax.tick_params(labelsize=7)
        line[0].set_ylabel(f"{solver}\n{tests.names[1]}", fontsize=9)
    for ax in axes[-1]:
        ax.set_xlabel(tests.names[0], fontsize=9)
    _limit(axes, tests)
    axes[0][0].legend(frameon=False, fontsize=7, markerscale=2)
    figure.suptitle(f"{title}  (W1: mean over coordinates)", fontsize=10)
    return figure


def _limit(axes: Any, tests: Snapshots) -> None:
    """Axes from the test clouds: a few runaway points of a forecast must not shrink the rest."""
    for column, cloud in zip(np.asarray(axes).T, tests.clouds, strict=True):
        margin = 0.15 * np.ptp(cloud, axis=0)
        low = cloud.min(axis=0) - margin
        high = cloud.max(axis=0) + margin
        column[0].set_xlim(low[0], high[0])
        column[0].set_ylim(low[1], high[1])
