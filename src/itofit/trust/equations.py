"""The polynomial that moves the particles, in the user's units, with the few terms the snapshots ask for.

A drift g_o(x) = sum_b c_bo phi_b(x) of monomials in the user's units is one of monomials in standardised units,
phi(mean + sd z) = T' phi(z), so that residuals and slopes come from the moments solver as they are:

    W = T c / sd,        dy/dc_bo = sum_a T_ab (dy/dW_ao) / sd_o

Sparse in the user's units is not sparse in others, so the terms are chosen there. Round by round, from the polynomial
nearest to the fitted drift: residuals y and slopes J of every term where the round begins, b = J c - y, the terms of
`subset.best_subset`, and their generalised least squares c. A term stays if its squared z-score is above the price at
which `FALSE_TERMS` of all terms that are not there would.

Particles seen again and again. The covariance of the residuals is that of independent snapshots. If snapshot n holds
the descendants of the very particles of n - 1, r_n is a mean of martingale differences f(X_n) - E[f(X_n) | X_{n-1}],
whose covariance is read from two flights of each start point with different noise. Which of the two it is the
residuals say themselves: V is taken where it makes them `_SURE` more likely. The weights stay, and the coefficients
have the covariance C J'V J C, with C = (J'J)^-1; V = I for independent snapshots.

Standard errors are lengthened by nu / (nu - R + p), since the weights are estimates (`trust.posterior`).
"""

from dataclasses import dataclass, replace
from functools import cached_property
from math import comb, log

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int
from scipy.linalg import cho_factor, cho_solve
from scipy.stats import chi2, gamma

from itofit.errors import InputError
from itofit.process.drift import AbstractDrift
from itofit.process.features import MANY_DIMS, ClippedMonomials, Dictionary, Group
from itofit.process.ito import ItoProcess
from itofit.process.monomials import Monomials
from itofit.simulate.mesh import Mesh
from itofit.snapshots.scaling import Scaling
from itofit.solve.dense import HEUN_STEPS
from itofit.solve.flights import flights_between
from itofit.solve.residuals import Residual, Simulated
from itofit.solve.seen_path import Corrected, SeenPath
from itofit.solve.task import Task
from itofit.solve.whitening import Spread, Whitening
from itofit.trust.goodness import hotelling_moments, law_of_squares
from itofit.trust.printed import Equations
from itofit.trust.subset import best_subset

# Terms by chance alone, expected in a fit.
FALSE_TERMS = 0.02
HIGHEST_DEGREE, _MOST_COEFFICIENTS = 5, 3000
# Rounds, those of them that choose terms, and those with a covariance of their own.
_MOST_ROUNDS, _MOST_CHOICES, _FRESH = 12, 6, 3
# A step below this many standard errors is the last.
_SETTLED = 0.1
# By how much a step may miss what the linear problem promised, of the squared residuals, and how often it is halved.
_MAY_MISS, _MOST_HALVINGS = 0.25, 6
_SURE = log(100.0)


def checked_degree(degree: int, n_dims: int) -> int:
    """The degree, or a refusal of a wrong one and of too many terms."""
    if isinstance(degree, bool) or not isinstance(degree, int | np.integer) or not 1 <= degree <= HIGHEST_DEGREE:
        raise InputError(
            expected=f"degree to be a whole number from 1 to {HIGHEST_DEGREE}", found=f"{degree!r}", hint="degree=3"
        )
    count = n_dims * comb(n_dims + int(degree), int(degree))
    if count > _MOST_COEFFICIENTS:
        raise InputError(
            expected=f"at most {_MOST_COEFFICIENTS} coefficients to choose from",
            found=f"{count} for degree {degree} in {n_dims} dimensions",
            hint=f"degree={degree - 1}" if degree > 1 else "fewer coordinates",
        )
    return int(degree)


def find_equations(
    task: Task, drift: AbstractDrift, path: str, gaps: list[int], scaling: Scaling, degree: int
) -> Equations:
    """The equations behind the snapshots of `task`, from the fitted `drift` on.

    `path` and `gaps` are those of the fit, all in standardised units.
    """
    monomials = Monomials.up_to(task.snapshots.n_dims, checked_degree(degree, task.snapshots.n_dims))
    polynomial = Polynomial(task, _residual(task, monomials, path, gaps), monomials, scaling)
    solution = _solved(polynomial, polynomial.nearest(drift))
    return _equations(polynomial, solution, path)


@dataclass(frozen=True, eq=False)
class Linear:
    """The whitened residuals y and slopes J of every coefficient at c."""

    c: Float[np.ndarray, " n_coefficients"]
    y: Float[np.ndarray, " n_rows"]
    jacobian: Float[np.ndarray, "n_rows n_coefficients"]
    whitening: Whitening

    @property
    def b(self) -> Float[np.ndarray, " n_rows"]:
        """The right-hand side of J c = b."""
        return self.jacobian @ self.c - self.y


@dataclass(frozen=True, eq=False)
class Solution:
    """The terms `inside` of a linear problem, their coefficients `c` and C = (J'J)^-1 of those."""

    linear: Linear
    inside: Int[np.ndarray, " n_inside"]
    c: Float[np.ndarray, " n_coefficients"]
    C: Float[np.ndarray, "n_inside n_inside"]
    converged: bool

    @property
    def y(self) -> Float[np.ndarray, " n_rows"]:
        """The residuals at `c`."""
        return self.linear.jacobian @ self.c - self.linear.b


@dataclass(frozen=True, eq=False)
class Polynomial:
    """A drift c' phi(x) in the user's units, seen by the residuals of the solver."""

    task: Task
    residual: Residual
    monomials: Monomials
    scaling: Scaling

    @cached_property
    def units(self) -> Float[np.ndarray, "n_features n_features"]:
        """T."""
        return self.monomials.change_of_units(self.scaling.mean, self.scaling.sd)

    def v(self, c: Float[np.ndarray, " n_coefficients"]) -> Float[np.ndarray, " n_coefficients"]:
        """The unknowns of the solver."""
        return (self.units @ c.reshape(len(self.units), -1) / (self.task.speed * self.scaling.sd)).ravel()

    def linear(self, c: Float[np.ndarray, " n_coefficients"], whitening: Whitening | None = None) -> Linear:
        """The problem linearised at `c`, with the covariance that residuals have there if none is given."""
        v = self.v(c)
        whitening = self.task.whitening(self.residual, v) if whitening is None else whitening
        y, J = whitening(self.residual(v)), self.residual.jacobian(v, whitening, np.arange(len(v)))
        if not (np.all(np.isfinite(y)) and np.all(np.isfinite(J))):
            raise InputError(
                expected=f"a polynomial of degree {len(self.monomials.terms[-1])} that can be simulated",
                found="one that runs to infinity between two snapshots",
                hint="a lower degree",
            )
        by_term = J.reshape(len(y), len(self.units), -1)
        slopes = np.einsum("rao,ab->rbo", by_term, self.units) / (self.task.speed * self.scaling.sd)
        return Linear(c, y, slopes.reshape(len(y), -1), whitening)

    def squares(self, c: Float[np.ndarray, " n_coefficients"], whitening: Whitening) -> float:
        """Squared residuals at `c`, infinite where the drift cannot be simulated."""
        with np.errstate(over="ignore", invalid="ignore"):
            found = float(np.sum(whitening(self.residual(self.v(c))) ** 2))
        return found if np.isfinite(found) else np.inf

    def nearest(self, drift: AbstractDrift) -> Float[np.ndarray, " n_coefficients"]:
        """The polynomial nearest to a drift over the snapshots and the chains between them."""
        z = _visited(self.task, self.residual, drift)
        values, phi = np.asarray(_map(drift, jnp.asarray(z, dtype=float)), dtype=np.float64), self.monomials.rows(z)
        if not np.all(np.isfinite(values)):
            raise InputError(expected="a fit that ended", found="a drift that is not finite", hint="fit again")
        length = np.linalg.norm(phi, axis=0)
        W = np.linalg.lstsq(phi / length, values, rcond=None)[0] / length[:, None]
        return (np.linalg.solve(self.units, W) * self.scaling.sd).ravel()


def _residual(task: Task, monomials: Monomials, path: str, gaps: list[int]) -> Residual:
    low, high = (jnp.asarray(end, dtype=float) for end in task.box)
    groups = tuple(Group(1, "monomial" if term else "constant", term) for term in monomials.terms)
    dictionary = Dictionary(ClippedMonomials(monomials.terms, low, high), groups)
    if path == "simulated":
        return task.residual(dictionary, task.options.n_draws, cosines=True)
    seen = task.seen_path(dictionary, gaps)
    return seen if path == "seen" else task.corrected(seen, HEUN_STEPS)


def _visited(task: Task, residual: Residual, drift: AbstractDrift) -> Float[np.ndarray, "n n_dims"]:
    """Points of the snapshots, and of the chains on their way where these are simulated."""
    points = list(task.snapshots.clouds)
    if isinstance(residual, Simulated):
        process = ItoProcess(drift, task.diffusion)
        for flight in residual.flights:
            for quarter in (1, 2, 3):
                part = replace(flight, n_steps=max(1, quarter * flight.n_steps // 4))
                x = np.asarray(part.end(process, flight.starts[0], flight.noise[0]), dtype=np.float64)
                points.append(x[np.asarray(flight.chunk_weights[0]) > 0.0])
    found, (low, high) = np.concatenate(points), task.box
    return found[np.all((found >= low) & (found <= high), axis=1)]


@eqx.filter_jit
def _map(drift: AbstractDrift, x: Float[Array, "n n_dims"]) -> Float[Array, "n n_dims"]:
    return jax.vmap(drift)(x)


def _solved(polynomial: Polynomial, c: Float[np.ndarray, " n_coefficients"]) -> Solution:
    """Rounds of choice and step until neither changes anything."""
    inside, solution = np.zeros(0, dtype=int), None
    for i in range(_MOST_ROUNDS):
        # How many rows there are may go up and down with c for ever: the covariance is held, and at last the terms.
        held = None if solution is None or i < _FRESH else solution.linear.whitening
        linear, before = polynomial.linear(c, held), inside
        if i < _MOST_CHOICES:
            price = float(chi2.isf(FALSE_TERMS / len(c), 1)) * _lengthening(polynomial, len(linear.y), 0) ** 2
            inside = best_subset(linear.jacobian, linear.b, price, [] if i == 0 else [before])
        solution = _least_squares(linear, inside)
        step = (solution.c - c)[inside] / np.sqrt(np.diag(solution.C))
        if i > 0 and np.array_equal(before, inside) and np.all(np.abs(step) < _SETTLED):
            return solution
        c = _towards(polynomial, linear, solution)
    assert solution is not None
    return replace(solution, converged=False)


def _least_squares(linear: Linear, inside: Int[np.ndarray, " n_inside"]) -> Solution:
    J = linear.jacobian[:, inside]
    length = np.linalg.norm(J, axis=0)
    C = np.linalg.inv((J / length).T @ (J / length)) / np.outer(length, length)
    c = np.zeros(len(linear.c))
    c[inside] = C @ (J.T @ linear.b)
    return Solution(linear, inside, c, C, converged=True)


def _towards(polynomial: Polynomial, linear: Linear, solution: Solution) -> Float[np.ndarray, " n_coefficients"]:
    """The solution of the linear problem, or a point on the way to it where that is too far for a linear problem."""
    way, size = solution.c - linear.c, max(float(linear.y @ linear.y), float(len(linear.y)))
    for halvings in range(_MOST_HALVINGS):
        share = 0.5**halvings
        promised = linear.y + share * (solution.y - linear.y)
        found = polynomial.squares(linear.c + share * way, linear.whitening)
        if found < float(promised @ promised) + _MAY_MISS * size:
            return linear.c + share * way
    return linear.c + 0.5**_MOST_HALVINGS * way


def _lengthening(polynomial: Polynomial, n_rows: int, n_inside: int) -> float:
    """Nu / (nu - R + p)."""
    nu = sum(1.0 / float(np.sum(w**2)) for w in polynomial.task.snapshots.weights)
    return nu / max(nu - n_rows + n_inside, 0.5 * nu)


def _equations(polynomial: Polynomial, solution: Solution, path: str) -> Equations:
    linear, inside, n_dims = solution.linear, solution.inside, len(polynomial.scaling.mean)
    V = _shared(polynomial, solution, path)
    J, y = linear.jacobian[:, inside], solution.y
    half = J @ solution.C
    longer = _lengthening(polynomial, len(y), len(inside))
    covariance = longer**2 * (solution.C if V is None else half.T @ V @ half)
    errors = np.zeros(len(solution.c))
    errors[inside] = np.sqrt(np.diag(covariance))
    rows = np.unique(inside // n_dims)
    mean, variance = _moments_of_squares(polynomial, solution, V)
    return Equations(
        names=tuple(polynomial.task.snapshots.names),
        degree=len(polynomial.monomials.terms[-1]),
        terms=tuple(polynomial.monomials.terms[row] for row in rows),
        coefficients=solution.c.reshape(-1, n_dims)[rows],
        standard_errors=errors.reshape(-1, n_dims)[rows],
        covariance=covariance,
        chi2=float(y @ y),
        expected=mean,
        p_value=float(gamma.sf(float(y @ y), mean**2 / variance, scale=variance / mean)),
        same_particles=V is not None,
        converged=solution.converged,
    )


def _moments_of_squares(
    polynomial: Polynomial, solution: Solution, V: Float[np.ndarray, "n_rows n_rows"] | None
) -> tuple[float, float]:
    """Mean and variance of |y|^2 for a true equation (`trust.goodness`); for V in proportion to tr(PV) and tr(PVPV)."""
    linear = solution.linear
    J = linear.jacobian[:, solution.inside]
    hat = J @ solution.C @ J.T
    counts = np.asarray([len(basis) for basis in linear.whitening.bases])
    taken = np.add.reduceat(np.diag(hat), np.concatenate([[0], np.cumsum(counts)[:-1]]))
    free = np.maximum(counts - taken, 1.0)
    if polynomial.task.snapshots.n_dims > MANY_DIMS:  # every probe is kept there, and correlations are shrunk
        effective = [1.0 / float(np.sum(w**2)) for w in polynomial.task.snapshots.weights]
        points = np.asarray([effective[a] + effective[b] for a, b in polynomial.residual.ends])
        moments = hotelling_moments(free, points)
    else:
        law = law_of_squares(polynomial.residual.spreads(polynomial.v(linear.c)), linear.whitening.bases)
        moments = free * law.mean, free * law.variance
    mean, variance = (float(np.sum(x)) for x in moments)
    if V is None:
        return mean, variance
    PV = V - hat @ V
    rows = float(free.sum())
    return mean * float(np.trace(PV)) / rows, variance * float(np.sum(PV * PV.T)) / rows


def _shared(polynomial: Polynomial, solution: Solution, path: str) -> Float[np.ndarray, "n_rows n_rows"] | None:
    """V, if the residuals are clearly those of particles that are seen again in every snapshot."""
    weights = polynomial.task.snapshots.weights
    if polynomial.task.paired:  # their covariance is that of the same particles already
        return None
    if any(len(w) != len(weights[0]) or np.ptp(w) > 1e-9 * w[0] for w in weights):
        return None
    linear = solution.linear
    spreads = _noise_alone(polynomial, polynomial.v(linear.c), path)
    V = np.sum([a @ a.T for a in linear.whitening.influence(spreads).values()], axis=0)
    free = np.linalg.qr(linear.jacobian[:, solution.inside], mode="complete")[0][:, len(solution.inside) :]
    u, inside = free.T @ solution.y, free.T @ V @ free
    try:
        factor = cho_factor(inside, lower=True)
    except np.linalg.LinAlgError:  # without noise no two snapshots differ by chance
        return None
    gain = 0.5 * float(u @ u - u @ cho_solve(factor, u)) - float(np.sum(np.log(np.diag(factor[0]))))
    return V if gain > _SURE else None


def _noise_alone(polynomial: Polynomial, v: Float[np.ndarray, " n_coefficients"], path: str) -> list[Spread]:
    """What the noise along the way contributes, for each start point by two flights that differ in nothing else."""
    task, residual = polynomial.task, polynomial.residual
    if isinstance(residual, SeenPath):
        residual = task.corrected(residual, HEUN_STEPS)
    simulated, heun = (residual.simulated, True) if isinstance(residual, Corrected) else (residual, False)
    assert isinstance(simulated, Simulated)
    mesh = Mesh.cut(task.snapshots.times, HEUN_STEPS) if heun else task.mesh
    anchor = "previous" if heun else task.options.anchor
    flown = []
    for seed in (task.seed + 1, task.seed + 2):
        flights = flights_between(task.snapshots, mesh, anchor, 1, seed, heun=heun)
        chosen = tuple(flight for flight in flights if (flight.start, flight.target) in residual.ends)
        flown.append(replace(simulated, flights=chosen).spreads(v))
    # The chains of the residual have noise of their own.
    draws = 0.0 if path == "seen" else 1.0 / simulated.flights[0].n_draws
    size = np.sqrt(0.5 * (1.0 + draws))
    return [
        one._replace(flown=size * (one.flown - two.flown), seen=np.zeros_like(one.seen))
        for one, two in zip(*flown, strict=True)
    ]
