"""What these snapshots cannot determine: directions of drift space along which the prior is all that is known.

With the prior precisions Lambda and the information H of a fixed, broad reference problem (`solve.reference`), the data
leave the covariance C = (H + Lambda)^-1. Drifts are measured by their mean square over the snapshots, M:

    determined share        1 - tr(M C) / tr(M Lambda^-1)
    undetermined fields     principal components of C in the metric M, the largest remaining variance first
    a named field w         the amount of it in a drift is w'M v / w'M w; 1 - (prior variance left) is determined

All of it is local, about the fitted drift, and concerns polynomials of low degree.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from itofit.snapshots.clouds import Snapshots
from itofit.snapshots.scaling import Scaling
from itofit.solve.reference import Reference

# Below this share of its prior variance a field is not determined, below the second only in part.
UNDETERMINED, PARTLY = 0.5, 0.75
_N_FIELDS = 3
_MOST_NAMED = 6
# The share of what a change of sigma moves by itself that may be left where the drift pays it back.
_HARDLY_SEEN = 0.05
_DEGREES = ("constant", "linear", "quadratic", "cubic")


class NamedField(NamedTuple):
    """A simple motion and the share of its prior variance that the data remove."""

    name: str
    determined: float


@dataclass(frozen=True, eq=False)
class Identifiability:
    """What snapshots determine of the drift; prints as sentences.

    - `determined`: the share of the prior's drift variance that the data remove; `by_degree`: for each degree.
    - `named`: translations, contractions, couplings and rotations. `sigma`: the share of the variance of log sigma,
      were it unknown; `sigma_known`: whether it was taken as known for all the rest.
    - `remaining`: standard deviations of the undetermined fields, in sds of the pooled data a unit of time, the largest
      first; `field` draws them.
    - `notes`: sentences about equilibrium and about further snapshots.
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

    def field(self, x: Any, which: int = 0) -> Float[np.ndarray, "n n_dims"]:
        """An undetermined field at rows of states, in the user's units; drifts along it fit about as well."""
        z = jnp.asarray(self.scaling.standardise(np.atleast_2d(np.asarray(x, dtype=np.float64))), dtype=float)
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
        whole = f"{100 * self.determined:.0f} % of the prior's drift variance is determined"
        degrees = ", ".join(f"{name} {100 * share:.0f} %" for name, share in self.by_degree.items())
        lines = [f"{whole} ({degrees})"]
        lines += [f"{name} is not determined" for name in self.undetermined()[:_MOST_NAMED]]
        more = len(self.undetermined()) - _MOST_NAMED
        lines += [f"nor are {more} more simple motions: see `named`"] if more > 0 else []
        partly = [field for field in self.named if UNDETERMINED <= field.determined < PARTLY]
        lines += [f"{field.name} is determined in part ({100 * field.determined:.0f} %)" for field in partly]
        return "\n".join([*lines, *self.notes])


def identifiability(
    problem: Reference, snapshots: Snapshots, scaling: Scaling, names: Sequence[str], *, sigma_known: bool
) -> Identifiability:
    """What standardised snapshots determine, by their reference problem."""
    count, n_dims = problem.n_coefficients, problem.n_dims
    covariance = problem.covariance(sigma_known)[:count, :count]
    prior = 1.0 / problem.precision[:count]
    metric = np.kron(problem.metric, np.eye(n_dims))
    degree = np.repeat([len(group.coordinates) for group in problem.dictionary.groups], n_dims)
    shares = {_DEGREES[d]: _share(metric, covariance, prior, degree == d) for d in range(1 + int(degree.max()))}
    centre, root = _centre_and_root(snapshots)
    fields = _named_fields(problem, centre, root, names, scaling)
    named = tuple(NamedField(name, determined_share(w, metric, covariance, prior)) for name, w in fields)
    sigma = _sigma_share(problem)
    remaining, coefficients = _largest(metric, covariance, problem)
    notes = [] if sigma_known or sigma is None else _equilibrium(problem, sigma)
    return Identifiability(
        determined=determined(problem, sigma_known=sigma_known),
        by_degree=shares,
        named=named,
        sigma=sigma,
        sigma_known=sigma_known,
        remaining=remaining,
        notes=tuple(notes),
        features=problem.dictionary.features,
        coefficients=coefficients,
        scaling=scaling,
    )


def determined(problem: Reference, *, sigma_known: bool) -> float:
    """The share of the prior's drift variance that the data remove."""
    count = problem.n_coefficients
    metric = np.kron(problem.metric, np.eye(problem.n_dims))
    everything = np.ones(count, dtype=bool)
    covariance = problem.covariance(sigma_known)[:count, :count]
    return _share(metric, covariance, 1.0 / problem.precision[:count], everything)


def third_snapshot(before: float, after: Mapping[float, float]) -> str:
    """What a third snapshot would add to two."""
    said = " or ".join(f"{100 * share:.0f} % with a third at t = {time:g}" for time, share in after.items())
    return f"two snapshots determine {100 * before:.0f} %; it would be {said}"


def determined_share(
    w: Float[np.ndarray, " n"],
    metric: Float[np.ndarray, "n n"],
    covariance: Float[np.ndarray, "n n"],
    prior: Float[np.ndarray, " n"],
) -> float:
    """The share of the prior variance of the amount of a field that the data remove."""
    amount = metric @ w
    return 1.0 - float(amount @ covariance @ amount) / float(amount @ (prior * amount))


def _share(metric, covariance, prior, members) -> float:
    inner = metric[np.ix_(members, members)]
    left = float(np.sum(inner * covariance[np.ix_(members, members)]))
    return 1.0 - left / float(np.sum(np.diag(inner) * prior[members]))


def _centre_and_root(snapshots: Snapshots) -> tuple[np.ndarray, np.ndarray]:
    """Mean and symmetric root of the covariance of the snapshots, each of them counting the same."""
    means = [w @ x for x, w in zip(snapshots.clouds, snapshots.weights, strict=True)]
    centre = np.mean(means, axis=0)
    second = [
        (x - centre).T @ (w[:, None] * (x - centre)) for x, w in zip(snapshots.clouds, snapshots.weights, strict=True)
    ]
    size, axes = np.linalg.eigh(np.mean(second, axis=0))
    return centre, (axes * np.sqrt(np.maximum(size, 1e-12))) @ axes.T


def _named_fields(
    problem: Reference, centre: np.ndarray, root: np.ndarray, names: Sequence[str], scaling: Scaling
) -> list[tuple[str, Float[np.ndarray, " n"]]]:
    """Simple affine motions: coefficients of z -> A (z - centre), or of a constant."""
    place = {group.coordinates: f for f, group in enumerate(problem.dictionary.groups)}
    n_dims, inverse = problem.n_dims, np.linalg.inv(root)
    middle = scaling.restore(centre[None])[0]
    about = f"about ({', '.join(f'{value:.3g}' for value in middle)})"

    def affine(A: np.ndarray, shift: np.ndarray) -> np.ndarray:
        found = np.zeros((problem.dictionary.n_features, n_dims))
        found[place[()]] = shift - A @ centre
        for a in range(n_dims):
            found[place[(a,)]] = A[:, a]
        return found.ravel()

    unit, still = np.eye(n_dims), np.zeros(n_dims)
    found = [(f"a push along {names[a]}", affine(np.zeros((n_dims, n_dims)), unit[a])) for a in range(n_dims)]
    found += [(f"a contraction of {names[a]}", affine(np.outer(unit[a], unit[a]), still)) for a in range(n_dims)]
    for a, b in combinations(range(n_dims), 2):
        one, other = np.outer(unit[a], unit[b]), np.outer(unit[b], unit[a])
        where = about if n_dims == 2 else f"of {names[a]} and {names[b]}"
        found.append((f"a shear of {names[a]} and {names[b]}", affine(root @ (one + other) @ inverse, still)))
        found.append((f"a rotation {where}", affine(root @ (one - other) @ inverse, still)))
    return found


def _largest(metric, covariance, problem: Reference) -> tuple[np.ndarray, np.ndarray]:
    """Standard deviation and coefficients of the fields along which most variance is left."""
    size, axes = np.linalg.eigh(metric)
    root = (axes * np.sqrt(np.maximum(size, 0.0))) @ axes.T
    left, along = np.linalg.eigh(root @ covariance @ root)
    found = []
    for variance, u in list(zip(left, along.T, strict=True))[: -1 - _N_FIELDS : -1]:
        found.append(problem.speed * (covariance @ root @ u) / np.sqrt(max(variance, 1e-300)))
    shape = (-1, problem.dictionary.n_features, problem.n_dims)
    deviations = problem.speed * np.sqrt(np.maximum(left[: -1 - _N_FIELDS : -1], 0.0))
    return deviations, np.stack(found).reshape(shape)


def _sigma_share(problem: Reference) -> float | None:
    """The determined share of log sigma, were it unknown; None where there is no noise."""
    if not np.any(problem.signal[:, -1]):
        return None
    return 1.0 - float(problem.covariance(sigma_known=False)[-1, -1] * problem.precision[-1])


def _equilibrium(problem: Reference, sigma: float) -> list[str]:
    """What is to be said of an unknown sigma.

    At equilibrium (a g, sqrt(a) sigma) have the same law for every a: along (2 g, 1), per unit of log sigma, nothing is
    seen.
    """
    seen = problem.signal @ np.append(2.0 * problem.fitted, 1.0)
    if float(seen @ seen) < _HARDLY_SEEN * float(problem.signal[:, -1] @ problem.signal[:, -1]):
        return ["the population is near equilibrium: sigma and the drift's scale cannot be told apart"]
    if sigma >= PARTLY:
        return []
    return [f"sigma is {'not determined' if sigma < UNDETERMINED else 'determined in part'} ({100 * sigma:.0f} %)"]
