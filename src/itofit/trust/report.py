"""A few lines on how far to believe a fit, from everything this room can say."""

import jax
import jax.numpy as jnp
import numpy as np

from itofit.moments.solution import MomentsSolution
from itofit.problem import Stream
from itofit.process.far import grows_outward
from itofit.process.features import core_box
from itofit.process.noise import is_learned
from itofit.solution import Solution
from itofit.trust.equations import equations
from itofit.trust.goodness import goodness_of_fit, is_plain
from itofit.trust.identifiability import identifiability
from itofit.trust.noise import covariance_interval, covariances
from itofit.trust.posterior import drift_draws, has_error_bars, widened_by
from itofit.trust.sensitivity import sensitivity
from itofit.trust.steps import step_error

# Points at which error bars are averaged, and dimensions up to which equations are printed.
_MOST_POINTS = 500
_MOST_EQUATIONS = 4
_FACTORS = (0.9, 1.1)
_MOST_SIGMAS = 6


def short_report(solution: Solution) -> list[str]:
    """What costs next to nothing: the test of the fit, and error bars where they are known."""
    if not isinstance(solution, MomentsSolution) or solution.evidence is None:
        return []
    test = goodness_of_fit(solution)
    chi2 = float(test.chi2.sum())
    freedom = float(test.freedom.sum())
    line = "fit: cannot be judged, no degree of freedom is left"
    if test.can_judge:
        law = f"{freedom:.0f} degrees of freedom, p = {test.p_value:.2g}"
        line = f"fit: chi-squared {chi2:.0f} for {law}"
    return [line, error_line(solution)] if "drift_draws" in solution.answers else [line]


def report(solution: Solution) -> str:
    """Everything, of a moments fit; of others their error bars and how the drift goes on."""
    if not isinstance(solution, MomentsSolution) or solution.evidence is None:
        error = error_line(solution) if has_error_bars(solution) else ""
        return "\n".join(line for line in (error, far_line(solution)) if line)
    lines = [str(goodness_of_fit(solution)), error_line(solution), far_line(solution)]
    if is_plain(solution):
        lines.append(str(identifiability(solution)))
    lines.append(_sigma_line(solution))
    if not solution.process.drift.varies:
        lines.append(_step_line(solution))
    if is_plain(solution) and solution.problem.snapshots.n_dims <= _MOST_EQUATIONS:
        lines.append(_equation_lines(solution))
    return "\n".join(line for line in lines if line)


def far_line(solution: Solution) -> str:
    """Whether the drift leads away from the data; nothing of one that does not."""
    low, high = core_box(solution.problem.snapshots)
    if not grows_outward(solution.process.drift, low, high):
        return ""
    return (
        "far from the data: the drift is not bounded and leads away from them; what is forecast to "
        "come there may run away"
    )


def error_line(solution: Solution) -> str:
    """Error bars of the drift in one number."""
    problem = solution.problem
    pooled, times, _ = problem.snapshots.to_rows()
    rng = problem.streams.rng(Stream.shown_points)
    rows = rng.choice(len(pooled), min(len(pooled), _MOST_POINTS), replace=False)
    x = jnp.asarray(pooled[rows], dtype=float)
    t = jnp.asarray(times[rows], dtype=float)
    drift = solution.process.drift
    values = np.asarray(jax.vmap(lambda y, now: drift.at(now)(y))(x, t), dtype=np.float64)
    draws = drift_draws(solution)
    spread = draws.spread(pooled[rows], times[rows])
    error = np.sqrt(np.mean(spread**2))
    size = np.sqrt(np.mean(values**2))
    where = "at the data" if isinstance(solution, MomentsSolution) else "over the members"
    percent = f"{100 * error / size:.0f} %"
    line = f"drift: standard error {percent} of its size {where} (root mean squares)"
    return f"{line}; {widened_by(draws.widened)}" if draws.widened > 1.0 else line


def _sigma_line(solution: MomentsSolution) -> str:
    """What was learned of sigma; or what one 10 % smaller or larger would change, of one number."""
    sigma = solution.problem.sigma
    if is_learned(sigma):
        return noise_line(solution)
    if not isinstance(sigma, int | float) or sigma <= 0.0:
        return ""
    _, *rows = sensitivity(solution, [factor * sigma for factor in _FACTORS]).rows
    changes = []
    for factor, row in zip(_FACTORS, rows, strict=True):
        moves = f"{factor:g} sigma moves the drift by {100 * row.drift:.0f} %"
        changes.append(f"{moves} (p = {row.p_value:.2g})")
    return "assumed sigma: " + ", ".join(changes)


def noise_line(solution: MomentsSolution) -> str:
    """Learned noise with its 95 % intervals, where it depends on the state at the mean."""
    scaling = solution.problem.scaling
    diffusion = solution.process.diffusion
    z = jnp.zeros((1, len(scaling.sd)))
    fitted = covariances(diffusion, np.zeros((1, diffusion.n_parameters)), z)[0, 0]
    low, high = covariance_interval(solution, z, 0.95)
    a = scaling.sd[:, None] * fitted * scaling.sd
    sigma = np.sqrt(np.diag(a))
    lower = np.sqrt(np.diag(low[0]))
    upper = np.sqrt(np.diag(high[0]))
    names = solution.problem.observed.names[:_MOST_SIGMAS]
    sigmas = []
    for d, name in enumerate(names):
        sigmas.append(f"{name} {sigma[d]:.3g} ({lower[d]:.3g} to {upper[d]:.3g})")
    if len(sigma) > _MOST_SIGMAS:
        sigmas.append("...")
    where = "" if diffusion.constant else " at the mean of the data"
    return f"learned sigma{where}, with 95 % intervals: " + ", ".join(sigmas)


def _step_line(solution: MomentsSolution) -> str:
    error = step_error(solution)
    worst = max(float(np.abs(error.mean).max()), float(np.abs(error.sd).max()))
    line = f"dt: forecasts up to t = {error.times[-1]:g} are off by {worst:.2g} sd"
    if error.bound is None:
        return line
    return f"{line}; the bound of Prop. 3 for the drift's error is {error.bound[-1]:.2g} sd"


def _equation_lines(solution: MomentsSolution) -> str:
    polynomial = equations(solution)
    if polynomial.rejected():
        return (
            f"no polynomial of degree {polynomial.degree} explains the snapshots "
            f"(p = {polynomial.p_value:.2g})"
        )
    return str(polynomial)
