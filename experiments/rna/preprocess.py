"""From counts to expression in logs, as published for these cells (Hashimoto, Gifford and Jaakkola
2016):

    x = ln(1 + count (median z / z) / rpm)
    rpm = library size / 10^6,    z = fraction of genes with count 0

with library size and z of each cell and the median over the cells of its day. Zeros are then
imputed day by day, by non-negative factors of the genes whose law moves most, the markers among
them. exp(x) - 1 is in "count units": molecules a million, up to the factor median z / z.

On a subset of well-expressed genes z is small, so that its factor spans an order of magnitude where
on all genes it is near 1, and x reaches 12 where it should reach about 9.
"""

import numpy as np

from experiments.rna.counts import DAYS, MARKERS, Counts
from experiments.rna.nmf import completed
from itofit import InputError

N_GENES = 100
N_PERCENTILES = 50


def normalised(counts: np.ndarray) -> np.ndarray:
    """Expression in logs of the cells of one day."""
    rpm = counts.sum(axis=1) / 1e6
    z = np.mean(counts == 0, axis=1)
    if np.any(rpm == 0) or np.any(z == 0):
        raise InputError(
            expected="cells with some molecules, and with some genes of count 0",
            found=f"{int(np.sum((rpm == 0) | (z == 0)))} without",
            hint="drop those cells, or take more genes",
        )
    return np.log1p(counts * (np.median(z) / z / rpm)[:, None])


def to_counts(x: np.ndarray) -> np.ndarray:
    """From logs to count units; infinite where a forecast has run away."""
    with np.errstate(over="ignore"):
        return np.expm1(x)


def gene_scores(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """How far the law of each gene moves from one day to another: squared differences of quantiles,
    summed.
    """
    levels = np.linspace(0.0, 100.0, N_PERCENTILES)
    return np.sum(
        (np.percentile(x, levels, axis=0) - np.percentile(y, levels, axis=0)) ** 2, axis=0
    )


def companions(counts: Counts, first: int, last: int) -> list[int]:
    """The genes that are imputed together: the markers, then those of the largest scores that are
    not markers.
    """
    markers = counts.columns(MARKERS)
    scores = gene_scores(normalised(counts.of(first)), normalised(counts.of(last)))
    best = np.argsort(-scores, kind="stable")[:N_GENES].tolist()
    return markers + [gene for gene in best if gene not in markers]


def imputed_markers(counts: Counts, first: int, last: int) -> dict[int, np.ndarray]:
    """The ten markers of every day in logs, zeros imputed with genes scored between days `first`
    and `last`.
    """
    genes = companions(counts, first, last)
    return {
        day: _imputed(normalised(counts.of(day))[:, genes], day)[:, : len(MARKERS)] for day in DAYS
    }


def _imputed(x: np.ndarray, day: int) -> np.ndarray:
    """The full reconstruction; a gene is a row of the factorised matrix, as published."""
    return completed(x.T, x.T > 0, seed=day).T
