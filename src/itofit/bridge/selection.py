"""Terms of a sparse drift, chosen on pinned samples by linear algebra alone.

A term outside the model gains in log evidence, at its best precision (Tipping and Faul, 2003),

    1/2 (r - 1 - log r),  r = q^2 / s,   s = phi' P phi,  q = phi' P u,  P = I - Phi C Phi' / s^2

The best comes in while it gains more than the log of the number of its kind, together with the
lower terms that divide it, since from far away x^3 looks like x. What has no evidence left goes.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float
from scipy.linalg import cho_solve

from itofit.bridge.regression import Sums, factored
from itofit.process.features import Group

_MOST_TERMS = 24
_SETTLING = 4
_LEAST = 1e-4
_MOST = 1e6
_WEAK = 1e-2
_CONSTANT = 1e-4


@dataclass(frozen=True, eq=False)
class Terms:
    """The possible terms of a drift, each one feature, and the gain each must bring."""

    groups: Sequence[Group]
    n_outputs: int

    @property
    def entry(self) -> Float[np.ndarray, " n_terms"]:
        """The log of the number of terms of the kind, over all outputs."""
        count = Counter(group.kind for group in self.groups)
        return np.log([max(2.0, count[group.kind] * self.n_outputs) for group in self.groups])

    @property
    def always(self) -> Bool[np.ndarray, " n_terms"]:
        """Those whose drift is constant, which are always there."""
        return np.asarray([group.kind == "constant" for group in self.groups])

    def divisors(self, term: int) -> list[int]:
        """Terms that divide this one."""
        own = Counter(self.groups[term].coordinates)
        return [
            k
            for k, group in enumerate(self.groups)
            if 0 < len(group.coordinates) < own.total() and not Counter(group.coordinates) - own
        ]


@dataclass(eq=False)
class _Model:
    """The terms of one output: their precisions, infinite outside the model."""

    sums: Sums
    output: int
    always: Bool[np.ndarray, " n_terms"]
    precision: Float[np.ndarray, " n_terms"]
    noise: float

    @property
    def alive(self) -> np.ndarray:
        return np.flatnonzero(np.isfinite(self.precision))

    def settle(self) -> None:
        """Updates of precisions and noise on the terms of the model."""
        for _ in range(_SETTLING):
            alive = self.alive
            w, C = self.posterior()
            gamma = np.clip(1.0 - self.precision[alive] * np.diag(C), 0.0, 1.0)
            updated = (gamma + 1e-9) / np.maximum(w**2, 1e-12)
            self.precision[alive] = np.clip(updated, _LEAST, _MOST)
            self.precision[self.always] = _CONSTANT
            G = self.sums.gram[np.ix_(alive, alive)]
            c = self.sums.cross[alive, self.output]
            total = self.sums.squares[self.output]
            about = total - 2.0 * w @ c + w @ G @ w
            free = max(self.sums.count - gamma.sum(), 0.1 * self.sums.count)
            self.noise = max(about / free, 1e-6 * total / self.sums.count, 1e-12)

    def posterior(self) -> tuple[np.ndarray, np.ndarray]:
        """Mean and covariance of the coefficients."""
        alive = self.alive
        G = self.sums.gram[np.ix_(alive, alive)] / self.noise
        factor = factored(G + np.diag(self.precision[alive]))
        C = cho_solve(factor, np.eye(len(alive)))
        return C @ self.sums.cross[alive, self.output] / self.noise, C

    def gains(self) -> tuple[np.ndarray, np.ndarray]:
        """What every term would gain, and its best precision."""
        alive = self.alive
        w, C = self.posterior()
        cross = self.sums.gram[:, alive] / self.noise
        q = self.sums.cross[:, self.output] / self.noise - cross @ w
        s = np.diag(self.sums.gram) / self.noise - np.sum((cross @ C) * cross, axis=1)
        s = np.maximum(s, 1e-9)
        ratio = np.maximum(q**2 / s, 1.0)
        gain = 0.5 * (ratio - 1.0 - np.log(ratio))
        return gain, s**2 / np.maximum(q**2 - s, 1e-9)

    def factors(self) -> np.ndarray:
        """Log Bayes factors of the terms in the model, each a coefficient."""
        w, C = self.posterior()
        variance = np.diag(C)
        return 0.5 * w**2 / variance + 0.5 * np.log(self.precision[self.alive] * variance)


def selected(sums: Sums, terms: Terms) -> Float[np.ndarray, "n_terms n_outputs"]:
    """Coefficients of the terms chosen, zero elsewhere."""
    n_terms = len(terms.groups)
    W = np.zeros((n_terms, terms.n_outputs))
    for output in range(terms.n_outputs):
        model = _grown(sums, terms, output)
        _pruned(model, terms)
        W[model.alive, output] = model.posterior()[0]
    return W


def _grown(sums: Sums, terms: Terms, output: int) -> _Model:
    precision = np.where(terms.always, _CONSTANT, np.inf)
    noise = max(sums.squares[output] / sums.count, 1e-12)
    model = _Model(sums, output, terms.always, precision, noise)
    model.settle()
    for _ in range(_MOST_TERMS):
        gain, best = model.gains()
        beyond = np.where(np.isfinite(model.precision), -np.inf, gain - terms.entry)
        term = int(np.argmax(beyond))
        if not beyond[term] > 0.0:
            break
        for lower in terms.divisors(term):
            if not np.isfinite(model.precision[lower]):
                model.precision[lower] = _WEAK
        model.precision[term] = np.clip(best[term], _LEAST, _MOST)
        model.settle()
    return model


def _pruned(model: _Model, terms: Terms) -> None:
    while True:
        alive = model.alive
        beyond = model.factors() - terms.entry[alive]
        beyond[terms.always[alive]] = np.inf
        worst = int(np.argmin(beyond))
        if not beyond[worst] < 0.0:
            return
        model.precision[alive[worst]] = np.inf
        model.settle()
