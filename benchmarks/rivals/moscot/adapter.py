"""moscot (Klein et al. 2025): its temporal problem, and its interpolation between two snapshots.

Pairs drawn from the entropic transport plan between the snapshot before the time asked for and the
one after it, each moved along its straight line, as `compute_interpolated_distance` does before it
measures. That method gives the distance only, so the one beneath it is called, which has no public
name: the version is pinned. There is no process, and nothing beyond the last snapshot.
"""

import functools
from collections.abc import Callable

import numpy as np
from anndata import AnnData
from moscot.problems.time import TemporalProblem
from protocol import SAME_TIME, Given, Leg, Move, decline, serve

# moscot/problems/time/_lineage.py, TemporalProblem.solve: the defaults
EPSILON = 1e-3  # of the mean cost (scale_cost="mean")
TAU = 1.0  # balanced: nothing is known of growth
# Ours, and of memory alone: 256 rows of a plan, the default, take 15 GB for clouds of 3000 points.
MOST_ROWS = 256
MOST_ENTRIES = 2**26


def fit(given: Given) -> Move:
    """Every two neighbours have a plan of their own, solved when it is first asked for."""
    cells = _annotated(given)
    plan = functools.cache(lambda k: solved(cells, k))
    return lambda leg: interpolated(plan, given, leg)


def solved(cells: AnnData, k: int) -> TemporalProblem:
    """The transport plan from snapshot k to the next."""
    problem = TemporalProblem(cells).prepare(
        time_key="time",
        joint_attr={"attr": "obsm", "key": "X_points"},
        policy="explicit",
        subset=[(float(k), float(k + 1))],
    )
    return problem.solve(epsilon=EPSILON, tau_a=TAU, tau_b=TAU, scale_cost="mean")


def interpolated(plan: Callable[[int], TemporalProblem], given: Given, leg: Leg) -> np.ndarray:
    """Points on the straight lines between pairs."""
    k = leg.position
    if leg.end > given.times[-1] + SAME_TIME:
        decline("the interpolation of moscot does not reach beyond the last snapshot")
    if leg.end > given.times[k + 1] + SAME_TIME:
        decline("the interpolation of moscot begins at the snapshot before the time asked for")
    n_rows = min(MOST_ROWS, MOST_ENTRIES // (len(given.clouds[k]) * len(given.clouds[k + 1])))
    n_rows = max(n_rows, 2)
    seed = int(leg.rng.integers(2**31))
    try:
        return drawn(plan(k), given, leg, n_rows, seed)
    except IndexError:
        # It cannot draw a last row that is left alone: draw the same ones in other portions.
        return drawn(plan(k), given, leg, n_rows + 1, seed)


def drawn(problem: TemporalProblem, given: Given, leg: Leg, n_rows: int, seed: int) -> np.ndarray:
    """As many pairs as points are wanted, each moved; the plan in portions of `n_rows`."""
    k = leg.position
    before, after = given.times[k : k + 2]
    return problem._interpolate_gex_with_ot(
        number_cells=len(leg.points),
        source_data=given.clouds[k],
        target_data=given.clouds[k + 1],
        source=float(k),
        target=float(k + 1),
        interpolation_parameter=(leg.end - before) / (after - before),
        account_for_unbalancedness=False,
        batch_size=n_rows,
        seed=seed,
    )


def _annotated(given: Given) -> AnnData:
    """The snapshots as moscot wants them, their positions as times."""
    points = np.concatenate(given.clouds)
    cells = AnnData(np.zeros((len(points), 1)), obsm={"X_points": points})
    counts = [len(cloud) for cloud in given.clouds]
    cells.obs["time"] = np.repeat(np.arange(len(counts), dtype=float), counts)
    cells.obs["time"] = cells.obs["time"].astype("category")
    return cells


if __name__ == "__main__":
    serve(fit)
