"""Which coefficients the data ask for: Gaussian regression, one prior precision a group.

The precisions are chosen by the evidence. For residuals y(v) of unit covariance, linear near v,
y = J v - b, and the prior v_p ~ N(0, 1 / lambda_p):

    posterior mean        (J'J + Lambda)^-1 J' b,            covariance C = (J'J + Lambda)^-1
    determined fraction   gamma_p = 1 - lambda_p C_pp
    evidence update       lambda_g <- sum gamma_p / sum v_p^2,    over the coefficients of group g
    log Bayes factor      1/2 v_g' C_gg^-1 v_g + 1/2 log det(Lambda_g C_gg)
    gain of a candidate   1/2 (u - 1 - log u),       u = q^2 / s
                          q = j' P b,   s = j' P j,   P = I - J C J'

The log Bayes factor (Savage and Dickey's ratio) is the evidence for the model with group g over the
one without. A group whose factor is below a threshold leaves the model. All is done in the smaller
of the two spaces: with fewer residuals than coefficients, through I + J Lambda^-1 J'. With very
many coefficients a model is selected forwards from few instead: a column j outside it has its best
precision s^2 / (q^2 - s) in closed form (Tipping and Faul, 2003).
"""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Bool, Float, Int
from scipy.linalg import cho_factor, cho_solve, solve_triangular

from itofit.process.features import Group

# A group with this precision has left the model.
EXCLUDED = 1e8
# Instead of a group: coefficients with a fixed weak prior, and coefficients not in the model.
CONSTANT = -1
ABSENT = -2
_LARGEST = 1e7
_MOST_ROUNDS = 60

# Smallest precision of a group by kind, and the first one where that is not the number of features
# of the kind. For features of order 1 in units of 3 sd per time span, that number gives each kind a
# drift of order 1 to begin with.
_SMALLEST = {
    "linear": 1e-4,
    "monomial": 1e-4,
    "time": 1e-4,
    "ridge": 1.0,
    "wave": 1e-2,
    "user": 1e-4,
}
_FIRST = {"linear": 1e-2, "user": 1e-1}


@dataclass(frozen=True, eq=False)
class Prior:
    """Precisions of the coefficients.

    - `group`: for every coefficient (feature by feature, output by output) its group, or CONSTANT
      or ABSENT.
    - `precision`, `floor`: of every group; the constants have a fixed, small one.
    """

    group: Int[np.ndarray, " n_coefficients"]
    precision: Float[np.ndarray, " n_groups"]
    floor: Float[np.ndarray, " n_groups"]
    fixed: float = 1e-3

    @classmethod
    def over(
        cls,
        groups: Sequence[Group],
        n_outputs: int,
    ) -> "Prior":
        """One precision for every group of features and output."""
        members = []
        precision = []
        floor = []
        count = Counter()
        for group in groups:
            count[group.kind] += group.size
        for group in groups:
            if group.kind == "constant":
                members.append(np.full((group.size, n_outputs), CONSTANT))
                continue
            first = _FIRST.get(group.kind, float(count[group.kind]))
            numbers = len(precision) + np.arange(n_outputs)
            members.append(np.tile(numbers, (group.size, 1)))
            precision += [first] * n_outputs
            floor += [_SMALLEST[group.kind]] * n_outputs
        return cls(
            np.concatenate(members).ravel(),
            np.asarray(precision, dtype=float),
            np.asarray(floor, dtype=float),
        )

    @classmethod
    def fixed_at(cls, n: int) -> "Prior":
        """Coefficients of no group, under the fixed weak prior."""
        return cls(np.full(n, CONSTANT), np.zeros(0), np.zeros(0))

    @classmethod
    def absent(cls, n: int) -> "Prior":
        """Coefficients that are not in the model, and stay so."""
        return cls(np.full(n, ABSENT), np.zeros(0), np.zeros(0))

    @property
    def diagonal(self) -> Float[np.ndarray, " n_coefficients"]:
        """Lambda, coefficient by coefficient."""
        every = np.concatenate([self.precision, [EXCLUDED, self.fixed]])
        return every[self.group]

    @property
    def alive(self) -> Bool[np.ndarray, " n_coefficients"]:
        """Coefficients still in the model."""
        return self.diagonal < EXCLUDED

    def updated(
        self,
        gamma: np.ndarray,
        v: np.ndarray,
        factor: float = 5.0,
    ) -> "Prior":
        """One evidence update of the groups in the model; by a `factor` at most."""
        member = self.group >= 0
        count = len(self.precision)
        determined = np.bincount(self.group[member], gamma[member], count)
        size = np.bincount(self.group[member], v[member] ** 2, count)
        wanted = (determined + 1e-6) / np.maximum(size, 1e-14)
        near = np.clip(wanted, self.precision / factor, self.precision * factor)
        allowed = np.clip(near, self.floor, _LARGEST)
        precision = np.where(self.precision < EXCLUDED, allowed, self.precision)
        return replace(self, precision=precision)

    def joined(self, other: "Prior") -> "Prior":
        """The prior of these coefficients followed by those."""
        shifted = np.where(other.group >= 0, other.group + len(self.precision), other.group)
        return Prior(
            np.concatenate([self.group, shifted]),
            np.concatenate([self.precision, other.precision]),
            np.concatenate([self.floor, other.floor]),
            self.fixed,
        )

    def only(self, columns: Int[np.ndarray, " n_columns"]) -> "Prior":
        """The prior of these coefficients alone, groups numbered as before."""
        return replace(self, group=self.group[columns])

    def with_precisions(self, other: "Prior") -> "Prior":
        """The same groups with the precisions of another."""
        return replace(self, precision=other.precision)

    def including(
        self,
        groups: Sequence[int] | np.ndarray | slice,
        precision: np.ndarray,
    ) -> "Prior":
        """The prior of the model with these groups at these precisions."""
        chosen = self.precision.copy()
        chosen[groups] = np.clip(precision, self.floor[groups], _LARGEST)
        return replace(self, precision=chosen)

    def tied(self, pairs: Int[np.ndarray, "n_pairs 2"]) -> "Prior":
        """The prior in which the coefficients of a pair are one group, that of the first."""
        group = self.group.copy()
        precision = self.precision.copy()
        precision[group[pairs[:, 1]]] = EXCLUDED
        group[pairs[:, 1]] = group[pairs[:, 0]]
        return replace(self, group=group, precision=precision)

    def without(self, groups: Sequence[int]) -> "Prior":
        """The prior of the model without these groups."""
        precision = self.precision.copy()
        precision[list(groups)] = EXCLUDED
        return replace(self, precision=precision)


class Posterior:
    """The linear problem J v = b with unit noise under the prior precisions `diagonal`."""

    def __init__(
        self,
        jacobian: Float[np.ndarray, "n_rows n_coefficients"],
        diagonal: np.ndarray,
    ):
        self.scale = 1.0 / np.sqrt(diagonal)
        self.scaled = jacobian * self.scale
        self.dual = jacobian.shape[0] < jacobian.shape[1]
        inner = self.scaled @ self.scaled.T if self.dual else self.scaled.T @ self.scaled
        # Its smallest eigenvalue is 1, which rounding takes off where the largest is large enough.
        lost = len(inner) * np.finfo(float).eps * np.max(np.diag(inner), initial=0.0)
        inner[np.diag_indices_from(inner)] += 1.0 + lost
        self.factor = cho_factor(inner, lower=True, check_finite=False)

    def mean(self, b: Float[np.ndarray, " n_rows"]) -> Float[np.ndarray, " n_coefficients"]:
        """(J'J + Lambda)^-1 J' b."""
        if self.dual:
            return self.scale * (self.scaled.T @ cho_solve(self.factor, b))
        return self.scale * cho_solve(self.factor, self.scaled.T @ b)

    def solve(
        self, g: Float[np.ndarray, " n_coefficients"]
    ) -> Float[np.ndarray, " n_coefficients"]:
        """(J'J + Lambda)^-1 g."""
        u = self.scale * g
        if self.dual:
            return self.scale * (u - self.scaled.T @ cho_solve(self.factor, self.scaled @ u))
        return self.scale * cho_solve(self.factor, u)

    def half_log_det(self) -> float:
        """1/2 log det(I + Lambda^-1 J'J): what the evidence charges for the coefficients."""
        return float(np.sum(np.log(np.diag(self.factor[0]))))

    def determined(self) -> Float[np.ndarray, " n_coefficients"]:
        """gamma_p: the fraction of each coefficient's prior variance that the data remove."""
        if self.dual:
            return np.sum(self._half() ** 2, axis=0)
        return 1.0 - np.diag(self._inverse())

    def covariance(self) -> Float[np.ndarray, "n_coefficients n_coefficients"]:
        """C."""
        return self.scale[:, None] * self._inner() * self.scale

    def bayes_factors(
        self,
        b: np.ndarray,
        group: np.ndarray,
    ) -> dict[int, float]:
        """Log Bayes factor of every group."""
        u = self.mean(b) / self.scale
        block_of = self._blocks()
        factors = {}
        for g, members in _members(group):
            size, axes = np.linalg.eigh(block_of(members))
            size = np.maximum(size, 0.0) + 1e-12
            along = (axes.T @ u[members]) ** 2
            factors[g] = 0.5 * float(np.sum(along / size + np.log(size)))
        return factors

    def _blocks(self) -> Callable[[np.ndarray], np.ndarray]:
        """The block of Lambda^1/2 C Lambda^1/2 that belongs to some coefficients."""
        if not self.dual:
            inverse = self._inverse()
            return lambda members: inverse[np.ix_(members, members)]
        half = self._half()
        return lambda members: np.eye(len(members)) - half[:, members].T @ half[:, members]

    def _inner(self) -> np.ndarray:
        """Lambda^1/2 C Lambda^1/2."""
        if not self.dual:
            return self._inverse()
        return np.eye(len(self.scale)) - self._half().T @ self._half()

    def _half(self) -> np.ndarray:
        """H with H'H = I - (I + Lambda^-1/2 J'J Lambda^-1/2)^-1."""
        return solve_triangular(
            self.factor[0],
            self.scaled,
            lower=True,
            check_finite=False,
        )

    def _inverse(self) -> np.ndarray:
        return cho_solve(self.factor, np.eye(len(self.scale)))


def relevances(
    jacobian: np.ndarray,
    b: np.ndarray,
    prior: Prior,
    n_updates: int,
) -> Prior:
    """Evidence updates on one linearisation."""
    for _ in range(n_updates):
        alive = prior.alive
        posterior = Posterior(jacobian[:, alive], prior.diagonal[alive])
        v = np.zeros(len(alive))
        gamma = np.zeros(len(alive))
        v[alive] = posterior.mean(b)
        gamma[alive] = posterior.determined()
        prior = prior.updated(gamma, v)
    return prior


def pruned(
    jacobian: np.ndarray,
    b: np.ndarray,
    prior: Prior,
    threshold: Float[np.ndarray, " n_groups"],
) -> Prior:
    """Take out the groups of least evidence, until none is below its threshold.

    They go a quarter of those below it at a time.
    """
    while True:
        alive = prior.alive
        posterior = Posterior(jacobian[:, alive], prior.diagonal[alive])
        factors = posterior.bayes_factors(b, prior.group[alive])
        low = [g for g, value in factors.items() if value < threshold[g]]
        if not low:
            return prior
        lowest = sorted((factors[g] - threshold[g], g) for g in low)
        prior = prior.without([g for _, g in lowest[: max(1, len(low) // 4)]])
        prior = relevances(jacobian, b, prior, 1)


def selected_forward(
    jacobian: np.ndarray,
    b: np.ndarray,
    prior: Prior,
    threshold: Float[np.ndarray, " n_groups"],
    n_outputs: int,
) -> Prior:
    """Take columns in, the best of each output a round, while one gains more than its threshold.

    Every group is one coefficient, and columns are ordered feature by feature, output by output.
    """
    squares = np.sum(jacobian**2, axis=0)
    against = jacobian.T @ b
    limit = np.where(prior.group >= 0, threshold[np.maximum(prior.group, 0)], np.inf)
    products: dict[int, np.ndarray] = {}
    for _ in range(_MOST_ROUNDS):
        alive = np.flatnonzero(prior.alive)
        fresh = [p for p in alive.tolist() if p not in products]
        products |= dict(zip(fresh, jacobian[:, fresh].T @ jacobian, strict=True))
        cross = np.stack([products[p] for p in alive.tolist()])
        posterior = Posterior(jacobian[:, alive], prior.diagonal[alive])
        q = against - posterior.mean(b) @ cross
        known = np.sum(cross * (posterior.covariance() @ cross), axis=0)
        s = np.maximum(squares - known, 1e-12)
        gain = np.where(prior.alive, -np.inf, gain_of(q, s) - limit)
        # What stands after the last feature is the noise, which is always in.
        by_output = gain[: len(gain) // n_outputs * n_outputs].reshape(-1, n_outputs)
        best = np.argmax(by_output, axis=0) * n_outputs + np.arange(n_outputs)
        best = best[gain[best] > 0.0]
        if len(best) == 0:
            break
        prior = prior.including(prior.group[best], best_precision(q[best], s[best]))
        prior = relevances(jacobian, b, prior, 1)
    return prior


def gain_of(
    q: np.ndarray,
    s: np.ndarray,
) -> np.ndarray:
    """The gain in log evidence of a candidate at its best precision; none where q^2 < s."""
    u = np.maximum(q**2 / s, 1.0)
    return 0.5 * (u - 1.0 - np.log(u))


def best_precision(
    q: np.ndarray,
    s: np.ndarray,
) -> np.ndarray:
    """The precision of a candidate at which the evidence is largest."""
    return s**2 / np.maximum(q**2 - s, 1e-12)


def gain_of_two(
    q: Float[np.ndarray, " 2"],
    s: Float[np.ndarray, "2 2"],
) -> tuple[float, float]:
    """The gain of two candidates under one precision at its best, and that precision, on a grid."""
    size, axes = np.linalg.eigh(s)
    size = np.maximum(size, 1e-12)
    along = (axes.T @ q) ** 2
    grid = np.geomspace(1e-4, _LARGEST, 120)[:, None]
    gain = 0.5 * np.sum(np.log(grid / (grid + size)) + along / (grid + size), axis=1)
    best = int(np.argmax(gain))
    return max(float(gain[best]), 0.0), float(grid[best, 0])


def _members(group: np.ndarray) -> list[tuple[int, np.ndarray]]:
    """Positions of the members of every group."""
    order = np.argsort(group, kind="stable")
    numbers, first = np.unique(group[order], return_index=True)
    pairs = zip(numbers, np.split(order, first[1:]), strict=True)
    return [(int(g), members) for g, members in pairs if g >= 0]
