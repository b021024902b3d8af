"""All tasks by name, families in order.

TASKS["double_well"].trial(seed=0)        QUICK: a dozen that are small and unlike each other
"""

from collections.abc import Iterable

from benchmarks.zoo.families import (
    awkward,
    changing,
    chaos,
    cycles,
    disturbed,
    fates,
    flows,
    gradient,
    linear,
    populations,
    real,
    shapes,
)
from benchmarks.zoo.task import Task

_SYNTHETIC = (
    gradient,
    cycles,
    chaos,
    fates,
    populations,
    linear,
    flows,
    changing,
    disturbed,
    shapes,
    awkward,
)


def by_name(tasks: Iterable[Task]) -> dict[str, Task]:
    """Tasks in their order; a name must not come twice."""
    named: dict[str, Task] = {}
    for task in tasks:
        if task.name in named:
            raise ValueError(f"two tasks are called {task.name}")
        named[task.name] = task
    return named


TASKS: dict[str, Task] = by_name(
    [*(task for family in _SYNTHETIC for task in family.TASKS), *real.TASKS]
)

QUICK: tuple[str, ...] = (
    "double_well",
    "ring",
    "far_bowl_5d",
    "fitzhugh_nagumo",
    "three_gene_loop",
    "two_fates",
    "lotka_volterra",
    "linear_5d",
    "rotation_with_shear",
    "switch_in_time",
    "measurement_noise",
    "thirty_points",
    "at_rest",
)
