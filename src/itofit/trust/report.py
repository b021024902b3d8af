"""A few lines on how far to believe a fit, from everything this room can say."""

from typing import TYPE_CHECKING

import numpy as np

from itofit.process.noise import is_learned

if TYPE_CHECKING:
    from itofit.trust.methods import TrustMethods

# Points of the snapshots at which error bars are averaged, and dimensions up to which equations are printed.
_MOST_POINTS, _MOST_EQUATIONS = 500, 4
_SIGMAS = (0.9, 1.1)
_MOST_SIGMAS = 6


def short_report(model: "TrustMethods") -> list[str]:
    """What costs next to nothing: the test of the fit, and error bars where they are known already."""
    if model.evidence_ is None:
        return []
    test = model.goodness_of_fit()
    chi2, freedom = float(test.chi2.sum()), float(test.freedom.sum())
    line = f"fit: chi-squared {chi2:.0f} for {freedom:.0f} degrees of freedom, p = {test.p_value:.2g}"
    return [line] if model._drawn is None else [line, error_line(model)]


def report(model: "TrustMethods") -> str:
    """Everything, of a moments fit; of an ensemble its error bars alone."""
    if model.evidence_ is None:
        return error_line(model) if model._drawn is not None or model._member_draws() is not None else ""
    lines = [str(model.goodness_of_fit()), error_line(model), _sigma_line(model)]
    if model.standard_process_.drift.varies:
        return "\n".join(line for line in lines if line)
    lines[2:2] = [str(model.identifiability())]
    lines.append(_step_line(model))
    if model.snapshots_.n_dims <= _MOST_EQUATIONS:
        lines.append(_equation_lines(model))
    return "\n".join(line for line in lines if line)


def error_line(model: "TrustMethods") -> str:
    """Error bars of the drift in one number."""
    pooled, times, _ = model.snapshots_.to_rows()
    some = np.random.default_rng(0).choice(len(pooled), min(len(pooled), _MOST_POINTS), replace=False)
    x, t, sd = pooled[some], times[some], model.scaling_.sd
    error, size = (np.sqrt(np.mean((g / sd) ** 2)) for g in (model.drift_std(x, t), model.drift(x, t)))
    of = "over the members" if model.evidence_ is None else "at the data"
    return f"drift: standard error {100 * error / size:.0f} % of its size {of} (root mean squares)"


def _sigma_line(model: "TrustMethods") -> str:
    """What was learned of sigma; or what one 10 % smaller or larger would change, of a sigma that is one number."""
    if is_learned(model.sigma):
        return noise_line(model)
    if not isinstance(model.sigma, int | float) or model.sigma <= 0.0:
        return ""
    rows = model.sensitivity([factor * model.sigma for factor in _SIGMAS]).rows[-len(_SIGMAS) :]
    said = [
        f"{factor:g} sigma moves the drift by {100 * row.drift:.0f} % (p = {row.p_value:.2g})"
        for factor, row in zip(_SIGMAS, rows, strict=True)
    ]
    return "assumed sigma: " + ", ".join(said)


def noise_line(model: "TrustMethods") -> str:
    """Learned noise with its 95 % intervals, where it depends on the state at the mean of all snapshots."""
    x, diffusion = model.scaling_.mean, model.standard_process_.diffusion
    a, (low, high) = model.covariance(x), model.covariance_interval(x)
    sigma, low, high = (np.sqrt(np.diag(matrix)) for matrix in (a, low, high))
    said = [
        f"{name} {s:.3g} ({b:.3g} to {t:.3g})"
        for name, s, b, t in zip(model.snapshots_.names[:_MOST_SIGMAS], sigma, low, high, strict=False)
    ]
    said += ["..."] if len(sigma) > _MOST_SIGMAS else []
    where = "" if diffusion.constant else " at the mean of the data"
    return f"learned sigma{where}, with 95 % intervals: " + ", ".join(said)


def _step_line(model: "TrustMethods") -> str:
    found = model.step_error()
    worst = max(float(np.abs(found.mean).max()), float(np.abs(found.sd).max()))
    line = f"dt: forecasts up to t = {found.times[-1]:g} are off by {worst:.2g} sd"
    return (
        line
        if found.bound is None
        else f"{line}; the bound of Prop. 3 for the drift's error is {found.bound[-1]:.2g} sd"
    )


def _equation_lines(model: "TrustMethods") -> str:
    found = model.equations()
    if found.rejected():
        return f"no polynomial of degree {found.degree} explains the snapshots (p = {found.p_value:.2g})"
    return str(found)
