"""What these snapshots cannot determine: drifts along which the prior is all that is known.

With the prior precisions Lambda and the information H of a fixed, broad reference problem
(`moments.reference`), the data leave the covariance C = (H + Lambda)^-1. Drifts are measured by
their mean square over the snapshots, M:

    determined fraction     1 - tr(M C) / tr(M Lambda^-1)
    undetermined fields     principal components of C in the metric M, the largest remaining
                            variance first
    a named field w         the amount of it in a drift is w'M v / w'M w;
                            1 - (prior variance left) is determined

All of it is local, about the fitted drift, and concerns polynomials of low degree.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Bool, Float

from itofit.devices import processor
from itofit.forecast import start_before
from itofit.moments.probing import Probing
from itofit.moments.reference import Reference, reference
from itofit.moments.solution import MomentsSolution
from itofit.process.noise import is_learned
from itofit.snapshots.clouds import Snapshot, Snapshots
from itofit.snapshots.scaling import Scaling
from itofit.solution import Solution
from itofit.trust.goodness import check_plain, ended
from itofit.ways import forecaster_of

# Below this fraction of its prior variance a field is not determined, below the second in part.
UNDETERMINED = 0.5
PARTLY = 0.75
_N_FIELDS = 3
_MOST_NAMED = 6
# What may be left of the effect of a change of sigma where the drift pays it back, as a fraction.
_HARDLY_VISIBLE = 0.05
_DEGREES = ("constant", "linear", "quadratic", "cubic")


class NamedField(NamedTuple):
    """A simple motion and the fraction of its prior variance that the data remove."""

    name: str
    determined: float


@dataclass(frozen=True, eq=False)
class Identifiability:
    """What snapshots determine of the drift; prints as sentences.

    Parameters
    ----------
    determined : float
        The fraction of the prior's drift variance that the data remove.
    by_degree : dict of str to float
        The same for each degree.
    named : tuple of NamedField
        The same for translations, contractions, couplings and rotations.
    sigma : float or None
        The same of log sigma, were it unknown; None where there is no noise.
    sigma_known : bool
        Whether sigma was taken as known for all the rest.
    remaining : array of shape (n_fields,)
        Standard deviations of the undetermined fields, in sds of the pooled data a unit of time,
        the largest first; `field` draws them.
    notes : tuple of str
        Sentences about equilibrium and about further snapshots.
    features : AbstractFeatures
        The functions that the undetermined fields are made of.
    coefficients : array of shape (n_fields, n_features, n_dims)
        Of these functions.
    scaling : Scaling
        The units that the fields are in.

    Examples
    --------
    >>> import numpy as np
    >>> from itofit.snapshots import Scaling
    >>> from itofit.trust.identifiability import Identifiability, NamedField
    >>> answer = Identifiability(
    ...     determined=0.8, by_degree={"constant": 0.9, "linear": 0.7},
    ...     named=(NamedField("a push along x", 0.9), NamedField("a contraction of x", 0.4)),
    ...     sigma=0.7, sigma_known=True, remaining=np.array([0.3]), notes=(),
    ...     features=lambda z: z, coefficients=np.ones((1, 1, 1)), scaling=Scaling.identity(1),
    ... )
    >>> print(answer)
    80 % of the prior's drift variance is determined (constant 90 %, linear 70 %)
    a contraction of x is not determined
    >>> answer.field([[2.0]]).tolist()
    [[2.0]]
    """

    determined: float
    by_degree: dict[str, float]
    named: tuple[NamedField, ...]
    sigma: float | None
    sigma_known: bool
    remaining: Float[np.ndarray, " n_fields"]
    notes: tuple[str, ...]
    features: Any
    coefficients: Float[np.ndarray, "n_fields n_features n_dims"]
    scaling: Scaling

    def field(
        self,
        x: Any,
        which: int = 0,
    ) -> Float[np.ndarray, "n n_dims"]:
        """An undetermined field at rows of states: drifts along it fit about as well.

        Parameters
        ----------
        x : array of shape (n, n_dims)
            Rows of states, in the user's units.
        which : int
            0 for the largest, 1 for the next.

        Returns
        -------
        array of shape (n, n_dims)
            In the user's units of state per unit of time.
        """
        states = np.atleast_2d(np.asarray(x, dtype=np.float64))
        z = jnp.asarray(self.scaling.standardise(states), dtype=float)
        phi = np.asarray(jax.vmap(self.features)(z), dtype=np.float64)
        return self.scaling.sd * (phi @ self.coefficients[which])

    def undetermined(self) -> tuple[str, ...]:
        """Names of the simple motions that the data do not determine."""
        return tuple(field.name for field in self.named if field.determined < UNDETERMINED)

    def to_record(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        return {
            "determined": self.determined,
            "by_degree": self.by_degree,
            "named": {field.name: field.determined for field in self.named},
            "sigma": self.sigma,
            "sigma_known": self.sigma_known,
            "remaining": self.remaining.tolist(),
            "notes": list(self.notes),
        }

    def __str__(self) -> str:
        whole = f"{_percent(self.determined)} of the prior's drift variance is determined"
        degrees = [f"{name} {_percent(part)}" for name, part in self.by_degree.items()]
        lines = [f"{whole} ({', '.join(degrees)})"]
        names = self.undetermined()
        lines += [f"{name} is not determined" for name in names[:_MOST_NAMED]]
        if len(names) > _MOST_NAMED:
            n_more = len(names) - _MOST_NAMED
            lines.append(f"nor are {n_more} more simple motions: see `named`")
        for field in self.named:
            if UNDETERMINED <= field.determined < PARTLY:
                lines.append(f"{field.name} is determined in part ({_percent(field.determined)})")
        return "\n".join([*lines, *self.notes])


def _percent(fraction: float) -> str:
    return f"{100 * fraction:.0f} %"


@dataclass(frozen=True, eq=False)
class DriftVariance:
    """What the data leave of the prior of a drift's coefficients.

    - `metric`: M. `covariance`: C. `prior`: the diagonal of Lambda^-1.
    """

    metric: Float[np.ndarray, "n n"]
    covariance: Float[np.ndarray, "n n"]
    prior: Float[np.ndarray, " n"]

    @classmethod
    def of(
        cls,
        problem: Reference,
        *,
        sigma_known: bool,
    ) -> "DriftVariance":
        """Of the reference problem, all its coefficients."""
        count = problem.n_coefficients
        return cls(
            metric=np.kron(problem.metric, np.eye(problem.n_dims)),
            covariance=problem.covariance(sigma_known)[:count, :count],
            prior=1.0 / problem.precision[:count],
        )

    def determined_fraction(self, members: Bool[np.ndarray, " n"]) -> float:
        """The fraction of the prior's drift variance in these coefficients that the data remove."""
        inner = self.metric[np.ix_(members, members)]
        left = float(np.sum(inner * self.covariance[np.ix_(members, members)]))
        return 1.0 - left / float(np.sum(np.diag(inner) * self.prior[members]))


def identified(
    problem: Reference,
    snapshots: Snapshots,
    scaling: Scaling,
    names: Sequence[str],
    *,
    sigma_known: bool,
) -> Identifiability:
    """What standardised snapshots determine, by their reference problem."""
    variance = DriftVariance.of(problem, sigma_known=sigma_known)
    groups = problem.dictionary.groups
    degree = np.repeat([len(group.coordinates) for group in groups], problem.n_dims)
    by_degree = {}
    for d in range(1 + int(degree.max())):
        by_degree[_DEGREES[d]] = variance.determined_fraction(degree == d)
    named = []
    for name, w in _named_fields(problem, snapshots, names, scaling):
        fraction = determined_fraction(w, variance.metric, variance.covariance, variance.prior)
        named.append(NamedField(name, fraction))
    sigma = _sigma_fraction(problem)
    remaining, coefficients = _largest(variance, problem)
    notes = [] if sigma_known or sigma is None else _equilibrium(problem, sigma)
    return Identifiability(
        determined=determined(problem, sigma_known=sigma_known),
        by_degree=by_degree,
        named=tuple(named),
        sigma=sigma,
        sigma_known=sigma_known,
        remaining=remaining,
        notes=tuple(notes),
        features=problem.dictionary.features,
        coefficients=coefficients,
        scaling=scaling,
    )


def identifiability(
    solution: Solution,
    *,
    sigma_known: bool | None = None,
) -> Identifiability:
    """What the snapshots do not determine of the drift, whatever the fit chose; of a moments fit.

    With `sigma_known=False`, the default where it was learned, sigma is an unknown beside the
    drift.
    """
    moments = ended(solution)
    check_plain(solution, "identifiability")
    problem = solution.problem
    if sigma_known is None:
        sigma_known = not is_learned(problem.sigma)
    with jax.default_device(processor()):
        known = reference(moments.probing, moments.terms)
        answer = identified(
            known,
            problem.snapshots,
            problem.scaling,
            problem.observed.names,
            sigma_known=sigma_known,
        )
        if len(problem.snapshots) > 2:
            return answer
        note = _third_snapshot_note(moments, known, answer)
    return replace(answer, notes=(*answer.notes, note))


def _third_snapshot_note(
    solution: MomentsSolution,
    known: Reference,
    answer: Identifiability,
) -> str:
    """What a third snapshot between or after the two would determine."""
    snapshots = solution.problem.snapshots
    first, last = (float(time) for time in snapshots.times)
    n_points = int(np.mean(snapshots.counts))
    fractions = {}
    for time in (0.5 * (first + last), last + 0.5 * (last - first)):
        more = with_snapshot_at(solution, known, time, n_points)
        fractions[time] = determined(more, sigma_known=answer.sigma_known)
    return third_snapshot(answer.determined, fractions)


def with_snapshot_at(
    solution: MomentsSolution,
    known: Reference,
    time: float,
    n_points: int,
) -> Reference:
    """The reference problem with one more snapshot, as the fitted process predicts it."""
    before = start_before(solution.problem.snapshots, time, "previous")
    way = probing_between(solution, before, time, n_points, "previous")
    more = replace(solution.terms, path="simulated")
    return known.joined(reference(way, more, like=known))


def probing_between(
    solution: MomentsSolution,
    first: Snapshot,
    time: float,
    n_points: int,
    start: str,
) -> Probing:
    """From a standardised snapshot to the cloud that the fitted process predicts for that time."""
    forecast = forecaster_of(solution).clouds(np.asarray([time]), n_points, start)
    cloud = solution.problem.scaling.standardise(forecast.clouds[0])
    snapshots = Snapshots.from_arrays(
        [first.points, cloud], [first.time, time], [first.weights, None]
    )
    problem = solution.probing.problem.between(snapshots)
    return Probing.of(problem, solution.solver)


def determined(
    problem: Reference,
    *,
    sigma_known: bool,
) -> float:
    """The fraction of the prior's drift variance that the data remove."""
    everything = np.ones(problem.n_coefficients, dtype=bool)
    variance = DriftVariance.of(problem, sigma_known=sigma_known)
    return variance.determined_fraction(everything)


def third_snapshot(
    before: float,
    after: Mapping[float, float],
) -> str:
    """What a third snapshot would add to two."""
    choices = [
        f"{_percent(fraction)} with a third at t = {time:g}" for time, fraction in after.items()
    ]
    return f"two snapshots determine {_percent(before)}; it would be {' or '.join(choices)}"


def determined_fraction(
    w: Float[np.ndarray, " n"],
    metric: Float[np.ndarray, "n n"],
    covariance: Float[np.ndarray, "n n"],
    prior: Float[np.ndarray, " n"],
) -> float:
    """The fraction of the prior variance of the amount of a field that the data remove."""
    amount = metric @ w
    return 1.0 - float(amount @ covariance @ amount) / float(amount @ (prior * amount))


def _centre_and_root(snapshots: Snapshots) -> tuple[np.ndarray, np.ndarray]:
    """Mean and symmetric root of the covariance of the snapshots, each counting the same."""
    centre = np.mean([w @ x for _, x, w in snapshots], axis=0)
    second = []
    for _, points, weights in snapshots:
        apart = points - centre
        second.append(apart.T @ (weights[:, None] * apart))
    size, axes = np.linalg.eigh(np.mean(second, axis=0))
    return centre, (axes * np.sqrt(np.maximum(size, 1e-12))) @ axes.T


def _named_fields(
    problem: Reference,
    snapshots: Snapshots,
    names: Sequence[str],
    scaling: Scaling,
) -> Iterator[tuple[str, Float[np.ndarray, " n"]]]:
    """Simple affine motions: coefficients of z -> A (z - centre), or of a constant."""
    centre, root = _centre_and_root(snapshots)
    inverse = np.linalg.inv(root)
    n_dims = problem.n_dims
    unit = np.eye(n_dims)
    still = np.zeros(n_dims)
    for a in range(n_dims):
        push = _affine(
            problem,
            np.zeros((n_dims, n_dims)),
            unit[a],
            centre,
        )
        yield f"a push along {names[a]}", push
    for a in range(n_dims):
        contraction = _affine(
            problem,
            np.outer(unit[a], unit[a]),
            still,
            centre,
        )
        yield f"a contraction of {names[a]}", contraction
    middle = scaling.restore(centre[None])[0]
    about = f"about ({', '.join(f'{value:.3g}' for value in middle)})"
    for a, b in combinations(range(n_dims), 2):
        there = np.outer(unit[a], unit[b])
        back = np.outer(unit[b], unit[a])
        shear = _affine(
            problem,
            root @ (there + back) @ inverse,
            still,
            centre,
        )
        yield f"a shear of {names[a]} and {names[b]}", shear
        where = about if n_dims == 2 else f"of {names[a]} and {names[b]}"
        rotation = _affine(
            problem,
            root @ (there - back) @ inverse,
            still,
            centre,
        )
        yield f"a rotation {where}", rotation


def _affine(
    problem: Reference,
    A: np.ndarray,
    shift: np.ndarray,
    centre: np.ndarray,
) -> Float[np.ndarray, " n"]:
    """Coefficients of z -> A (z - centre) + shift."""
    position = {group.coordinates: f for f, group in enumerate(problem.dictionary.groups)}
    coefficients = np.zeros((problem.dictionary.n_features, problem.n_dims))
    coefficients[position[()]] = shift - A @ centre
    for a in range(problem.n_dims):
        coefficients[position[(a,)]] = A[:, a]
    return coefficients.ravel()


def _largest(
    variance: DriftVariance,
    problem: Reference,
) -> tuple[np.ndarray, np.ndarray]:
    """Standard deviation and coefficients of the fields along which most variance is left."""
    size, axes = np.linalg.eigh(variance.metric)
    root = (axes * np.sqrt(np.maximum(size, 0.0))) @ axes.T
    left, along = np.linalg.eigh(root @ variance.covariance @ root)
    largest = slice(None, -1 - _N_FIELDS, -1)
    fields = []
    for remaining, u in zip(left[largest], along.T[largest], strict=True):
        field = problem.speed * (variance.covariance @ root @ u)
        fields.append(field / np.sqrt(max(remaining, 1e-300)))
    deviations = problem.speed * np.sqrt(np.maximum(left[largest], 0.0))
    shape = (-1, problem.dictionary.n_features, problem.n_dims)
    return deviations, np.stack(fields).reshape(shape)


def _sigma_fraction(problem: Reference) -> float | None:
    """The determined fraction of log sigma, were it unknown; None where there is no noise."""
    if not np.any(problem.information_root[:, -1]):
        return None
    left = problem.covariance(sigma_known=False)[-1, -1]
    return 1.0 - float(left * problem.precision[-1])


def _equilibrium(
    problem: Reference,
    sigma: float,
) -> list[str]:
    """What is to be noted of an unknown sigma.

    At equilibrium (a g, sqrt(a) sigma) have the same law for every a: along (2 g, 1), per unit of
    log sigma, nothing shows.
    """
    G = problem.information_root
    together = G @ np.append(2.0 * problem.fitted, 1.0)
    alone = G[:, -1]
    if float(together @ together) < _HARDLY_VISIBLE * float(alone @ alone):
        return [
            "the population is near equilibrium: sigma and the drift's scale cannot be told apart"
        ]
    if sigma >= PARTLY:
        return []
    verdict = "not determined" if sigma < UNDETERMINED else "determined in part"
    return [f"sigma is {verdict} ({_percent(sigma)})"]
