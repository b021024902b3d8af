"""What the panel itself says of the task: how far the test days' level is off, and how days hold
together.

A Markov process of one coordinate has corr(x_0, x_22) as the product of the correlations from one
training bin to the next, where it is linear and Gaussian; a day's own level makes the panel's
larger.
"""

import numpy as np

from experiments.volume.data import N_TEST, TEST_BINS, TRAIN_BINS, Task


def description(task: Task) -> str:
    """A few lines on a panel that is observed whole (group A)."""
    dates = task.dates
    bins = [0, *TEST_BINS]
    shift = task.log[-N_TEST:, bins].mean(axis=0) - task.train[:, bins].mean(axis=0)
    sds = task.train[:, bins].std(axis=0)
    correlations = np.corrcoef(task.train[:, list(TRAIN_BINS)].T)
    chain = np.diagonal(correlations, 1)
    return "\n".join(
        [
            f"{task.stock}: {len(task.train)} training days, {dates[0]} to {dates[-N_TEST - 1]}; "
            f"{N_TEST} test days, {dates[-N_TEST]} to {dates[-1]}",
            "* mean log volume of test days less that of training days, "
            f"bins {', '.join(map(str, bins))}: {_listed(shift)}",
            f"* sd of log volume at these bins, training days: {_listed(sds)}",
            f"* correlations from one training bin to the next: {_listed(chain)}; "
            f"their product {chain.prod():.2f}; "
            f"from bin {TRAIN_BINS[0]} to bin {TRAIN_BINS[-1]}: {correlations[0, -1]:.2f}",
        ]
    )


def _listed(values) -> str:
    return ", ".join(f"{value:.2f}" for value in values)
