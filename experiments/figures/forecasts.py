"""Figure 2 of the paper: what each solver forecasts at the test times, over the test clouds.

Each model is fitted to 1200 points a snapshot and grown from the test rows at t0; 800 test points a time. The title of
a panel gives the coordinate W1 to the test cloud and its floor, which is what the true process scores.
"""

import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from experiments.figures.pictures import Picture, Settings, grid
from experiments.table1.methods import sigma_of
from experiments.table1.scoring import Case, Sizes, carried
from itofit import FitWarning, FokkerPlanckProcess, Scorecard, Snapshots, known_system
from itofit.plot import clouds
from itofit.snapshots.clouds import Snapshot

SOLVERS = ("adversarial", "moments")


def forecasts(name: str, settings: Settings, sizes: Sizes | None = None) -> Picture:
    """Both solvers on one system at D = 2."""
    sizes = sizes or Sizes()
    case = Case(known_system(name), "B", settings.seed, sizes)
    held_out = with_start(case)
    rows: dict[str, tuple[Sequence[Snapshot | None], Scorecard]] = {}
    numbers: list[dict[str, Any]] = []
    for solver in SOLVERS:
        model = fitted(case, solver, settings)
        card = model.scorecard(held_out, truth=case.system)
        rows[solver] = carried(model, case.times, held_out.at(case.start.time)), card
        numbers.append(about(model) | {"scores": card.to_records()})
    figure = panels(case.tests, rows, title=f"{name}, D = 2: test clouds and forecasts from the test rows at t0")
    how = {"n_train": sizes.n_train, "n_test": sizes.n_test, "dt": case.system.dt, "n_iter": settings.n_iter}
    return Picture(figure, how, {"fits": numbers})


def with_start(case: Case) -> Snapshots:
    """The test clouds and the test rows at t0, from which forecasts grow."""
    start, tests = case.start, case.tests
    return Snapshots.from_arrays([start.points, *tests.clouds], [start.time, *tests.times.tolist()])


def fitted(case: Case, solver: str, settings: Settings, **options: Any) -> FokkerPlanckProcess:
    """The solver's fit to the training snapshots; a run that stops at its budget is no reason to warn here."""
    model = FokkerPlanckProcess(
        sigma_of(case.system),
        dt=case.system.dt,
        solver=solver,
        n_iter=settings.n_iter if solver == "adversarial" else None,
        options=options or None,
        device=settings.device,
        random_state=settings.seed,
    )
    with warnings.catch_warnings(action="ignore", category=FitWarning):
        return model.fit(case.training)


def about(model: FokkerPlanckProcess) -> dict[str, Any]:
    """How a fit went, for the record."""
    return {
        "solver": model.solver_,
        "outcome": model.outcome_.name,
        "n_iter": model.n_iter_,
        "seconds": round(model.seconds_, 1),
    }


def panels(
    tests: Snapshots,
    rows: Mapping[str, tuple[Sequence[Snapshot | None], Scorecard]],
    title: str,
    metric: str = "coordinate_W1",
) -> Figure:
    """One row a solver, one column a test time; the panels of a time share their axes."""
    figure, axes = grid(len(rows), len(tests), 2.9, 2.6, sharex="col", sharey="col")
    for line, (solver, (predicted, card)) in zip(axes, rows.items(), strict=True):
        for ax, observed, cloud in zip(line, tests, predicted, strict=True):
            score = card.at(observed.time)[metric]
            if cloud is not None:
                clouds(ax, observed, cloud)
            ax.set_title(
                f"t = {observed.time:g}:  W1 {score.value:.3f}, floor {score.floor:.3f} ± {score.floor_sd:.3f}",
                fontsize=8,
            )
            ax.tick_params(labelsize=7)
        line[0].set_ylabel(f"{solver}\n{tests.names[1]}", fontsize=9)
    for ax in axes[-1]:
        ax.set_xlabel(tests.names[0], fontsize=9)
    _limit(axes, tests)
    axes[0][0].legend(frameon=False, fontsize=7, markerscale=2)
    figure.suptitle(f"{title}  (W1: mean over coordinates)", fontsize=10)
    return figure


def _limit(axes: Any, tests: Snapshots) -> None:
    """Axes from the test clouds, so that a few runaway points of a forecast do not shrink the rest."""
    for column, cloud in zip(np.asarray(axes).T, tests.clouds, strict=True):
        margin = 0.15 * np.ptp(cloud, axis=0)
        low, high = cloud.min(axis=0) - margin, cloud.max(axis=0) + margin
        column[0].set_xlim(low[0], high[0])
        column[0].set_ylim(low[1], high[1])
