"""The polynomial that moves the particles, in the user's units, with the few terms it needs.

A drift g_o(x) = sum_b c_bo phi_b(x) of monomials in the user's units is one of monomials in
standardised units, phi(mean + sd z) = T' phi(z), so that residuals and slopes come from the moments
solver as they are:

    W = T c / sd,        dy/dc_bo = sum_a T_ab (dy/dW_ao) / sd_o

Sparse in the user's units is not sparse in others, so the terms are chosen there. Round by round,
from the polynomial nearest to the fitted drift: residuals y and slopes J of every term where the
round begins, b = J c - y, the terms of `subset.best_subset`, and their generalised least squares c.
A term stays if its squared z-score is above the price at which `FALSE_TERMS` of all terms that are
not there would.

Particles observed again and again. The covariance of the residuals is that of independent
snapshots. If snapshot n holds the descendants of the very particles of n - 1, r_n is a mean of
martingale differences f(X_n) - E[f(X_n) | X_{n-1}], whose covariance is read from two chains of
each start point with different noise. Which of the two it is the residuals say themselves: V is
taken where it makes them `_SURE` more likely. The weights stay, and the coefficients have the
covariance C J'V J C, with C = (J'J)^-1; V = I for independent snapshots.

Standard errors are lengthened by nu / (nu - R + p), since the weights are estimates
(`trust.posterior`).
"""

import functools
from dataclasses import dataclass, replace
from functools import cached_property
from math import comb, log

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int
from scipy.linalg import cho_factor, cho_solve
from scipy.stats import chi2

from itofit.devices import processor
from itofit.errors import InputError
from itofit.moments.observed_path import CorrectedPath, ObservedPath
from itofit.moments.options import MomentsOptions
from itofit.moments.probing import HEUN_STEPS, Probing
from itofit.moments.residuals import Residual, Simulated
from itofit.moments.solution import MomentsSolution
from itofit.moments.squares import law_at
from itofit.moments.transitions import BatchPlan, TransitionBatch, transition_batches
from itofit.moments.whitening import Spread, Whitening
from itofit.problem import Stream
from itofit.process.drift import AbstractDrift
from itofit.process.features import ClippedMonomials, Dictionary, Group
from itofit.process.ito import ItoProcess
from itofit.process.monomials import Monomials
from itofit.simulate.mesh import Mesh
from itofit.snapshots.scaling import Scaling
from itofit.solution import Solution
from itofit.trust.goodness import check_plain, tail_of
from itofit.trust.printed import Equations
from itofit.trust.subset import best_subset

# Terms by chance alone, expected in a fit.
FALSE_TERMS = 0.02
HIGHEST_DEGREE = 5
_MOST_COEFFICIENTS = 3000
# Rounds, those of them that choose terms, and those with a covariance of their own.
_MOST_ROUNDS = 12
_MOST_CHOICES = 6
_FRESH = 3
# A step below this many standard errors is the last.
_SETTLED = 0.1
# By which part of the squared residuals a step may miss what the linear problem promised, and how
# often it is halved.
_MAY_MISS = 0.25
_MOST_HALVINGS = 6
_SURE = log(100.0)


def checked_degree(degree: int, n_dims: int) -> int:
    """The degree, or a refusal of a wrong one and of too many terms."""
    is_whole = isinstance(degree, int | np.integer) and not isinstance(degree, bool)
    if not is_whole or not 1 <= degree <= HIGHEST_DEGREE:
        raise InputError(
            expected=f"degree to be a whole number from 1 to {HIGHEST_DEGREE}",
            found=f"{degree!r}",
            hint="degree=3",
        )
    count = n_dims * comb(n_dims + int(degree), int(degree))
    if count > _MOST_COEFFICIENTS:
        raise InputError(
            expected=f"at most {_MOST_COEFFICIENTS} coefficients to choose from",
            found=f"{count} for degree {degree} in {n_dims} dimensions",
            hint=f"degree={degree - 1}" if degree > 1 else "fewer coordinates",
        )
    return int(degree)


def equations(
    solution: Solution,
    degree: int = 3,
) -> Equations:
    """The drift as a polynomial in the user's units: the terms the snapshots ask for.

    Terms are chosen among all products of up to `degree` coordinates and fitted to the snapshots
    anew, beginning at the fitted drift, be it of the moments or the adversarial solver.
    """
    check_plain(solution, "equations")
    n_dims = solution.problem.snapshots.n_dims
    monomials = Monomials.up_to(n_dims, checked_degree(degree, n_dims))
    with jax.default_device(processor()):
        polynomial = _posed(solution, monomials)
        chosen = _solved(polynomial, polynomial.nearest(solution.process.drift))
        return _equations(polynomial, chosen)


def _posed(solution: Solution, monomials: Monomials) -> "Polynomial":
    """The residuals of a solution as functions of a polynomial; their features are others."""
    path = "simulated"
    gaps: list[int] = []
    if isinstance(solution, MomentsSolution):
        probing = solution.probing
        if solution.path != "simulated":
            path = solution.path
            gaps = solution.terms.evidence.gaps
    else:
        problem = solution.problem.with_noise(solution.process.diffusion)
        probing = Probing.of(problem, MomentsOptions())
    residual = _residual(probing, monomials, path, gaps)
    residual = probing.without_step_bias(residual, solution.process)
    return Polynomial(probing, residual, monomials, solution.problem.scaling)


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
class TermsChosen:
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
    """A drift c' phi(x) in the user's units, under the residuals of the solver."""

    probing: Probing
    residual: Residual
    monomials: Monomials
    scaling: Scaling

    @cached_property
    def units(self) -> Float[np.ndarray, "n_features n_features"]:
        """T."""
        return self.monomials.change_of_units(self.scaling.mean, self.scaling.sd)

    @property
    def speed(self) -> Float[np.ndarray, " n_dims"]:
        """The drift, in the user's units, of unknowns of size one."""
        return self.probing.speed * self.scaling.sd

    def v(self, c: Float[np.ndarray, " n_coefficients"]) -> Float[np.ndarray, " n_coefficients"]:
        """The unknowns of the solver."""
        W = self.units @ c.reshape(len(self.units), -1) / self.speed
        return W.ravel()

    def linear(
        self,
        c: Float[np.ndarray, " n_coefficients"],
        whitening: Whitening | None = None,
    ) -> Linear:
        """The problem linearised at `c`, with the covariance of the residuals there by default."""
        v = self.v(c)
        if whitening is None:
            whitening = self.probing.whitening(self.residual, v)
        y = whitening(self.residual(v))
        J = self.residual.jacobian(v, whitening, np.arange(len(v)))
        if not (np.all(np.isfinite(y)) and np.all(np.isfinite(J))):
            degree = len(self.monomials.terms[-1])
            raise InputError(
                expected=f"a polynomial of degree {degree} that can be simulated",
                found="one that runs to infinity between two snapshots",
                hint="a lower degree",
            )
        by_term = J.reshape(len(y), len(self.units), -1)
        slopes = np.einsum("rao,ab->rbo", by_term, self.units) / self.speed
        return Linear(
            c,
            y,
            slopes.reshape(len(y), -1),
            whitening,
        )

    def squares(
        self,
        c: Float[np.ndarray, " n_coefficients"],
        whitening: Whitening,
    ) -> float:
        """Squared residuals at `c`, infinite where the drift cannot be simulated."""
        with np.errstate(over="ignore", invalid="ignore"):
            y = whitening(self.residual(self.v(c)))
            squares = float(np.sum(y**2))
        return squares if np.isfinite(squares) else np.inf

    def nearest(self, drift: AbstractDrift) -> Float[np.ndarray, " n_coefficients"]:
        """The polynomial nearest to a drift over the snapshots and the chains between them."""
        z = _visited(self.probing, self.residual, drift)
        values = np.asarray(_drift_at(drift, jnp.asarray(z, dtype=float)), dtype=np.float64)
        phi = self.monomials.rows(z)
        if not np.all(np.isfinite(values)):
            raise InputError(
                expected="a fit that ended", found="a drift that is not finite", hint="fit again"
            )
        length = np.linalg.norm(phi, axis=0)
        W = np.linalg.lstsq(phi / length, values, rcond=None)[0] / length[:, None]
        return (np.linalg.solve(self.units, W) * self.scaling.sd).ravel()


def _residual(
    probing: Probing,
    monomials: Monomials,
    path: str,
    gaps: list[int],
) -> Residual:
    low, high = (jnp.asarray(end, dtype=float) for end in probing.box)
    groups = tuple(Group(1, "monomial" if term else "constant", term) for term in monomials.terms)
    dictionary = Dictionary(ClippedMonomials(monomials.terms, low, high), groups)
    return probing.on_path(path, dictionary, gaps)


def _visited(
    probing: Probing,
    residual: Residual,
    drift: AbstractDrift,
) -> Float[np.ndarray, "n n_dims"]:
    """Points of the snapshots, and of the chains on their way where these are simulated."""
    clouds = list(probing.snapshots.clouds)
    if isinstance(residual, Simulated):
        process = ItoProcess(drift, probing.diffusion)
        for transition in residual.transitions:
            clouds += _on_the_way(transition, process)
    points = np.concatenate(clouds)
    low, high = probing.box
    return points[np.all((points >= low) & (points <= high), axis=1)]


def _on_the_way(
    transition: TransitionBatch,
    process: ItoProcess,
) -> list[np.ndarray]:
    """The first chunk of a transition after each quarter of its steps but the last."""
    chunk = transition.chains()[0]
    counts = np.asarray(chunk.weights) > 0.0
    clouds = []
    for quarter in (1, 2, 3):
        part = replace(transition, n_steps=max(1, quarter * transition.n_steps // 4))
        x = np.asarray(part.end(process, chunk), dtype=np.float64)
        clouds.append(x[counts])
    return clouds


@eqx.filter_jit
def _drift_at(
    drift: AbstractDrift,
    x: Float[Array, "n n_dims"],
) -> Float[Array, "n n_dims"]:
    """The drift at rows of states."""
    return jax.vmap(drift)(x)


def _solved(
    polynomial: Polynomial,
    c: Float[np.ndarray, " n_coefficients"],
) -> TermsChosen:
    """Rounds of choice and step until neither changes anything."""
    inside = np.zeros(0, dtype=int)
    solution = None
    for i in range(_MOST_ROUNDS):
        # How many rows there are may go up and down with c for ever: the covariance is held, and at
        # last the terms.
        held = None if solution is None or i < _FRESH else solution.linear.whitening
        linear = polynomial.linear(c, held)
        before = inside
        if i < _MOST_CHOICES:
            hints = [] if i == 0 else [before]
            inside = best_subset(
                linear.jacobian,
                linear.b,
                _price(polynomial, linear),
                hints,
            )
        solution = _least_squares(linear, inside)
        step = (solution.c - c)[inside] / np.sqrt(np.diag(solution.C))
        if i > 0 and np.array_equal(before, inside) and np.all(np.abs(step) < _SETTLED):
            return solution
        c = _towards(polynomial, linear, solution)
    assert solution is not None
    return replace(solution, converged=False)


def _price(polynomial: Polynomial, linear: Linear) -> float:
    """The squared z-score that a term must have."""
    by_chance = float(chi2.isf(FALSE_TERMS / len(linear.c), 1))
    return by_chance * _lengthening(polynomial, len(linear.y), 0) ** 2


def _least_squares(
    linear: Linear,
    inside: Int[np.ndarray, " n_inside"],
) -> TermsChosen:
    J = linear.jacobian[:, inside]
    length = np.linalg.norm(J, axis=0)
    unit = J / length
    C = np.linalg.inv(unit.T @ unit) / np.outer(length, length)
    c = np.zeros(len(linear.c))
    c[inside] = C @ (J.T @ linear.b)
    return TermsChosen(linear, inside, c, C, converged=True)


def _towards(
    polynomial: Polynomial,
    linear: Linear,
    solution: TermsChosen,
) -> Float[np.ndarray, " n_coefficients"]:
    """The solution of the linear problem, or a point on the way where that is too far for it."""
    way = solution.c - linear.c
    size = max(float(linear.y @ linear.y), float(len(linear.y)))
    for halvings in range(_MOST_HALVINGS):
        fraction = 0.5**halvings
        candidate = linear.c + fraction * way
        promised = linear.y + fraction * (solution.y - linear.y)
        squares = polynomial.squares(candidate, linear.whitening)
        if squares < float(promised @ promised) + _MAY_MISS * size:
            return candidate
    return linear.c + 0.5**_MOST_HALVINGS * way


def _lengthening(
    polynomial: Polynomial,
    n_rows: int,
    n_inside: int,
) -> float:
    """Nu / (nu - R + p)."""
    nu = sum(1.0 / float(np.sum(w**2)) for w in polynomial.probing.snapshots.weights)
    return nu / max(nu - n_rows + n_inside, 0.5 * nu)


def _equations(polynomial: Polynomial, solution: TermsChosen) -> Equations:
    linear = solution.linear
    inside = solution.inside
    n_dims = len(polynomial.scaling.mean)
    V = _shared(polynomial, solution)
    J = linear.jacobian[:, inside]
    y = solution.y
    half = J @ solution.C
    longer = _lengthening(polynomial, len(y), len(inside))
    covariance = longer**2 * (solution.C if V is None else half.T @ V @ half)
    errors = np.zeros(len(solution.c))
    errors[inside] = np.sqrt(np.diag(covariance))
    rows = np.unique(inside // n_dims)
    terms = polynomial.monomials.terms
    mean, variance = _moments_of_squares(polynomial, solution, V)
    return Equations(
        names=tuple(polynomial.probing.snapshots.names),
        degree=len(terms[-1]),
        terms=tuple(terms[row] for row in rows),
        coefficients=solution.c.reshape(-1, n_dims)[rows],
        standard_errors=errors.reshape(-1, n_dims)[rows],
        covariance=covariance,
        chi2=float(y @ y),
        expected=mean,
        p_value=tail_of(float(y @ y), mean, variance),
        same_particles=V is not None,
        converged=solution.converged,
    )


def _moments_of_squares(
    polynomial: Polynomial,
    solution: TermsChosen,
    V: Float[np.ndarray, "n_rows n_rows"] | None,
) -> tuple[float, float]:
    """Mean and variance of |y|^2 for a true equation (`trust.goodness`).

    For V in proportion to tr(PV) and tr(PVPV).
    """
    J = solution.linear.jacobian[:, solution.inside]
    hat = J @ solution.C @ J.T
    counts = np.asarray([len(basis) for basis in solution.linear.whitening.bases])
    taken = np.add.reduceat(np.diag(hat), np.concatenate([[0], np.cumsum(counts)[:-1]]))
    free = np.maximum(counts - taken, 1.0)
    means, variances = _law_of_rows(polynomial, solution.linear, free)
    mean = float(np.sum(means))
    variance = float(np.sum(variances))
    if V is None:
        return mean, variance
    PV = V - hat @ V
    n_free = float(free.sum())
    return mean * float(np.trace(PV)) / n_free, variance * float(np.sum(PV * PV.T)) / n_free


def _law_of_rows(
    polynomial: Polynomial,
    linear: Linear,
    free: Float[np.ndarray, " n_transitions"],
) -> tuple[np.ndarray, np.ndarray]:
    """Mean and variance of the squares of every transition, with so many degrees of freedom."""
    spreads = polynomial.residual.spreads(polynomial.v(linear.c))
    law = law_at(spreads, linear.whitening)
    return free * law.mean, free * law.variance


def _shared(
    polynomial: Polynomial,
    solution: TermsChosen,
) -> Float[np.ndarray, "n_rows n_rows"] | None:
    """V, if the residuals are clearly those of particles observed again in every snapshot."""
    weights = polynomial.probing.snapshots.weights
    if polynomial.probing.paired:  # their covariance is that of the same particles already
        return None
    if any(len(w) != len(weights[0]) or np.ptp(w) > 1e-9 * w[0] for w in weights):
        return None
    linear = solution.linear
    spreads = _noise_alone(polynomial, polynomial.v(linear.c))
    influence = linear.whitening.influence(spreads)
    V = np.sum([a @ a.T for a in influence.values()], axis=0)
    axes, _ = np.linalg.qr(linear.jacobian[:, solution.inside], mode="complete")
    free = axes[:, len(solution.inside) :]
    u = free.T @ solution.y
    try:
        factor = cho_factor(free.T @ V @ free, lower=True)
    except np.linalg.LinAlgError:  # without noise no two snapshots differ by chance
        return None
    half_log_det = float(np.sum(np.log(np.diag(factor[0]))))
    gain = 0.5 * float(u @ u - u @ cho_solve(factor, u)) - half_log_det
    return V if gain > _SURE else None


def _noise_alone(
    polynomial: Polynomial,
    v: Float[np.ndarray, " n_coefficients"],
) -> list[Spread]:
    """What the noise along the way contributes, by two chains a start point of different noise."""
    probing = polynomial.probing
    residual = polynomial.residual
    on_clouds = isinstance(residual, ObservedPath)
    if isinstance(residual, ObservedPath):
        residual = probing.corrected(residual, HEUN_STEPS)
    first = _with_other_noise(probing, residual, 1).spreads(v)
    second = _with_other_noise(probing, residual, 2).spreads(v)
    # The chains of the residual have noise of their own.
    simulated = residual.simulated if isinstance(residual, CorrectedPath) else residual
    assert isinstance(simulated, Simulated)
    draws = 0.0 if on_clouds else 1.0 / simulated.transitions[0].n_draws
    size = np.sqrt(0.5 * (1.0 + draws))
    return [_difference(a, b, size) for a, b in zip(first, second, strict=True)]


def _difference(
    first: Spread,
    second: Spread,
    size: float,
) -> Spread:
    """What two propagations of the same start points differ by."""
    assert first.propagated is not None
    assert second.propagated is not None
    apart = size * (first.propagated - second.propagated)
    return first._replace(propagated=apart, observed=np.zeros_like(first.observed))


def _with_other_noise(
    probing: Probing,
    residual: Residual,
    k: int,
) -> Simulated:
    """The k-th of other chains, one a start point, under the same probes."""
    heun = isinstance(residual, CorrectedPath)
    simulated = residual.simulated if isinstance(residual, CorrectedPath) else residual
    assert isinstance(simulated, Simulated)
    rng_at = functools.partial(probing.problem.streams.rng, Stream.transitions_again, k)
    plan = BatchPlan(1, rng_at, heun=heun)
    mesh = Mesh.cut(probing.snapshots.times, HEUN_STEPS) if heun else probing.mesh
    anchor = "previous" if heun else probing.options.anchor
    transitions = transition_batches(probing.snapshots, mesh, anchor, plan)
    chosen = tuple(batch for batch in transitions if batch.ends in residual.ends)
    return replace(simulated, transitions=chosen)
