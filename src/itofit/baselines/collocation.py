"""Weak collocation regression: for every test function psi_m and every pair of neighbouring snapshots

    E_{i+1} psi_m - E_i psi_m = integral over [t_i, t_{i+1}] of E_t[g . grad psi_m + 1/2 sum_k sigma_k^2 d_kk psi_m] dt

with psi_m(x) = exp(-|(x - rho_m) / s|^2 / 2), a polynomial drift g_k = sum_b c_bk phi_b and a quadrature that uses the
snapshots alone. The rows are linear in c and sigma^2, and least squares solves them (Lu, Zeng, Jiang, Zhu and Hu,
Journal of Computational Physics 2024).
"""

import math
import time
import warnings
from collections.abc import Iterator
from typing import Any, Literal, NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Bool, Float
from scipy.spatial.distance import cdist

from itofit.errors import FitWarning, InputError
from itofit.face import check_choices, seed_of
from itofit.process.diffusion import diffusion_from_sigma
from itofit.process.drift import FeatureDrift
from itofit.process.ito import ItoProcess
from itofit.process.monomials import Monomials
from itofit.process_face import ProcessFace
from itofit.snapshots.clouds import Snapshot, Snapshots
from itofit.snapshots.scaling import Scaling
from itofit.solve.outcome import Outcome
from itofit.solve.step_size import TOLERANCE, checked_step, first_step

RULES = ("trapezoid", "simpson")
CENTRES = ("hypercube", "data")

_MOST_SWEEPS = 100
_MOST_HALVINGS = 3
_CHUNK = 4_000_000  # entries of the largest array alive at once: 32 MB


class Collocation(ProcessFace):
    """Fit dX = g(X) dt + diag(sigma) dW with a polynomial g by linear least squares on weak rows.

    It needs snapshots that are dense relative to the dynamics: the integral over time sees nothing between two
    snapshots, so a gap as long as a relaxation time biases every coefficient. In exchange a fit is one linear solve.

    - `sigma`: the noise: a number, one number per coordinate, or `"learn"`.
    - `degree`: largest total degree of the monomials of the drift.
    - `n_centres`: number of test functions, or None for a rule of thumb by dimension.
    - `width`: of the test functions, in the user's units: a number, one per coordinate, or None for the pooled sd.
    - `centre_range`: the hypercube of centres is [min, min + centre_range (max - min)] of the pooled points.
    - `centres`: `"hypercube"` draws a Latin hypercube, `"data"` takes points of the last snapshot.
    - `rule`: `"trapezoid"`, or `"simpson"` over two equal steps where the times have them.
    - `threshold`: a monomial is dropped when its share of the rows' norm is below this; 0 keeps all of them.
    - `dt`: longest Euler step of a forecast, or `"auto"`: chosen from the data and checked by step doubling.
    - `random_state`: seed of the centres and of forecasts, or None for a fresh one.

    After `fit`, in the user's units: `coefficients_` (n_features, n_dims) of the monomials `dictionary_`, `sigma_`
    (n_dims,), `process_`; and `snapshots_`, `scaling_`, `dt_`, `dt_error_`, `seconds_`, `seed_`.
    """

    method = "collocation"

    def __init__(
        self,
        sigma: Any = "learn",
        *,
        degree: int = 3,
        n_centres: int | None = None,
        width: Any = None,
        centre_range: float = 1.0,
        centres: str = "hypercube",
        rule: str = "trapezoid",
        threshold: float = 0.0,
        dt: float | Literal["auto"] = "auto",
        random_state: int | np.integer | None = None,
    ):
        self.sigma = sigma
        self.degree = degree
        self.n_centres = n_centres
        self.width = width
        self.centre_range = centre_range
        self.centres = centres
        self.rule = rule
        self.threshold = threshold
        self.dt = dt
        self.random_state = random_state

    def _learn(self, snapshots: Snapshots, **how: Any) -> None:
        del how
        began, seed = time.perf_counter(), seed_of(self.random_state)
        self._check_choices()
        dt = first_step(snapshots) if self._automatic else checked_step(self.dt, snapshots)
        scaling, dictionary = Scaling.fit(snapshots), Monomials.up_to(snapshots.n_dims, self.degree)
        self.coefficients_, self.sigma_ = self._solve(snapshots, scaling, dictionary, seed)
        self.scaling_, self.dictionary_, self.seed_, self.dt_ = scaling, dictionary, seed, dt
        self.outcome_ = Outcome.converged if np.all(np.isfinite(self.coefficients_)) else Outcome.non_finite
        self.standard_process_ = self._standard_process()
        self._settle_step(scaling.transform(snapshots))
        self.seconds_ = time.perf_counter() - began

    def _solve(
        self, snapshots: Snapshots, scaling: Scaling, dictionary: Monomials, seed: int
    ) -> tuple[Float[np.ndarray, "n_features n_dims"], Float[np.ndarray, " n_dims"]]:
        """Coefficients and noise in the user's units; expectations are taken in standardised ones."""
        sd, n_dims = scaling.sd, snapshots.n_dims
        known = None if isinstance(self.sigma, str) and self.sigma == "learn" else _vector("sigma", self.sigma, n_dims)
        standard = scaling.transform(snapshots)
        tests = self._gaussians(standard, sd, n_dims * (len(dictionary.terms) + 1), np.random.default_rng(seed))
        rows = weak_rows(standard, tests, dictionary, self.rule)
        # Monomials of x, not of z: a drift that is sparse in the user's units is dense in any others.
        units = dictionary.change_of_units(scaling.mean, sd)
        A = np.concatenate([rows.drift[:, k] @ units / sd[k] for k in range(n_dims)], axis=1)
        n_drift = A.shape[1]
        y, curved = rows.change, 0.5 * rows.noise / sd**2
        if known is None:
            A = np.concatenate([A, curved], axis=1)
        else:
            y = y - curved @ known**2
        found = thresholded_least_squares(A, y, float(self.threshold), np.arange(A.shape[1]) >= n_drift)
        coefficients = found[:n_drift].reshape(n_dims, -1).T
        return coefficients, _root(found[n_drift:], snapshots.names) if known is None else known

    def _gaussians(self, standard: Snapshots, sd: np.ndarray, unknowns: int, rng: np.random.Generator) -> "Gaussians":
        n_dims = standard.n_dims
        width = np.ones(n_dims) if self.width is None else _vector("width", self.width, n_dims) / sd
        if np.any(width <= 0.0):
            raise InputError(expected="width above 0", found=f"{self.width}", hint="None for the pooled sd")
        rule_of_thumb = max(20 if n_dims == 1 else 100 * n_dims, 2 * unknowns)
        wanted = rule_of_thumb if self.n_centres is None else self.n_centres
        if self.centres == "data":
            points, weights = standard.clouds[-1], standard.weights[-1]
            size = min(wanted, int(np.count_nonzero(weights)))
            return Gaussians(points[rng.choice(len(points), size, replace=False, p=weights)], width)
        pooled = np.concatenate(standard.clouds)
        low, high = pooled.min(axis=0), pooled.max(axis=0)
        return Gaussians(low + self.centre_range * (high - low) * _latin_hypercube(wanted, n_dims, rng), width)

    def _standard_process(self) -> ItoProcess:
        mean, sd = self.scaling_.mean, self.scaling_.sd
        coefficients = self.dictionary_.change_of_units(mean, sd) @ self.coefficients_ / sd
        drift = FeatureDrift(self.dictionary_, jnp.asarray(coefficients, dtype=float))
        return ItoProcess(drift, diffusion_from_sigma(self.sigma_ / sd, len(sd)))

    def _settle_step(self, standard: Snapshots) -> None:
        """Halve an automatic dt until a further halving moves no mean or sd by more than the house's tolerance."""
        for halving in range(_MOST_HALVINGS + 1):
            self.dt_ = self.dt_ / 2.0 if halving else self.dt_
            self.dt_error_ = self._step_error(self.standard_process_, standard, self.dt_)
            if not self._automatic or self.dt_error_ <= TOLERANCE:
                break
        if not self.dt_error_ <= TOLERANCE:
            warnings.warn(
                f"with dt = {self.dt_:.3g} the fitted process is unstable or too coarse: halving dt moves a mean or sd "
                f"by {self.dt_error_:.2g} sd (wanted at most {TOLERANCE}); give a shorter dt, a lower degree or "
                "snapshots nearer to each other",
                FitWarning,
                stacklevel=5,
            )

    def _check_choices(self) -> None:
        check_choices(self, rule=RULES, centres=CENTRES)
        _check_count("degree", self.degree, least=0)
        if self.n_centres is not None:
            _check_count("n_centres", self.n_centres, least=1)
        if not (math.isfinite(self.centre_range) and self.centre_range > 0.0):
            raise InputError(expected="centre_range above 0", found=f"{self.centre_range!r}", hint="1.0")
        if not (math.isfinite(self.threshold) and self.threshold >= 0.0):
            raise InputError(expected="threshold from 0 on", found=f"{self.threshold!r}", hint="0.0 keeps every term")

    def _values(self) -> dict[str, Any]:
        return {
            "seed": self.seed_,
            "dt": self.dt_,
            "dt_error": self.dt_error_,
            "seconds": self.seconds_,
            "outcome": self.outcome_.name,
        }

    def _arrays(self) -> dict[str, np.ndarray]:
        scaling = {"scaling.mean": self.scaling_.mean, "scaling.sd": self.scaling_.sd}
        return {"coefficients": self.coefficients_, "sigma": self.sigma_, **scaling}

    def _restore(self, values: dict[str, Any], arrays: dict[str, np.ndarray]) -> None:
        for name in ("seed", "dt", "dt_error", "seconds"):
            setattr(self, f"{name}_", values[name])
        self.outcome_ = Outcome[values.get("outcome", "converged")]  # runs of before had none
        self.scaling_ = Scaling(arrays["scaling.mean"], arrays["scaling.sd"])
        self.dictionary_ = Monomials.up_to(self.snapshots_.n_dims, self.degree)
        self.coefficients_, self.sigma_ = arrays["coefficients"], arrays["sigma"]
        self.standard_process_ = self._standard_process()


class Gaussians(NamedTuple):
    """Test functions psi_m(x) = exp(-|(x - centres[m]) / width|^2 / 2): not normalised, which no row notices."""

    centres: Float[np.ndarray, "n_tests n_dims"]
    width: Float[np.ndarray, " n_dims"]


class WeakRows(NamedTuple):
    """The rows change = sum_k drift[:, k] c_k + noise sigma^2 / 2, one per test function and quadrature row."""

    change: Float[np.ndarray, " n_rows"]
    drift: Float[np.ndarray, "n_rows n_dims n_features"]
    noise: Float[np.ndarray, "n_rows n_dims"]


def weak_rows(snapshots: Snapshots, tests: Gaussians, dictionary: Monomials, rule: str) -> WeakRows:
    """The weak rows of all test functions, stacked over time."""
    change, weights = quadrature_rows(snapshots.times, rule)
    at_times = [expectations(cloud, tests, dictionary) for cloud in snapshots]
    value, slope, curvature = (np.stack(parts) for parts in zip(*at_times, strict=True))

    def stacked(coefficients: np.ndarray, moments: np.ndarray) -> np.ndarray:
        return np.tensordot(coefficients, moments, axes=1).reshape(-1, *moments.shape[2:])

    return WeakRows(stacked(change, value), stacked(weights, slope), stacked(weights, curvature))


def quadrature_rows(
    times: Float[np.ndarray, " n_times"], rule: str
) -> tuple[Float[np.ndarray, "n_rows n_times"], Float[np.ndarray, "n_rows n_times"]]:
    """Rows D and W of the rules f(b) - f(a) = integral of f': D f(times) = W f'(times).

    `simpson` takes every pair of equal neighbouring steps, and the trapezoid for a step that is in no such pair.
    """
    h, nodes = np.diff(times), np.eye(len(times))
    equal = np.isclose(h[1:], h[:-1], rtol=1e-6, atol=0.0) & (rule == "simpson")
    covered = np.append(equal, False) | np.insert(equal, 0, False)
    rows = [(nodes[i + 1] - nodes[i], h[i] / 2.0 * (nodes[i] + nodes[i + 1])) for i in np.flatnonzero(~covered)]
    for i in np.flatnonzero(equal):
        step = (times[i + 2] - times[i]) / 2.0
        rows.append((nodes[i + 2] - nodes[i], step / 3.0 * (nodes[i] + 4.0 * nodes[i + 1] + nodes[i + 2])))
    change, weights = zip(*rows, strict=True)
    return np.stack(change), np.stack(weights)


def expectations(
    cloud: Snapshot, tests: Gaussians, dictionary: Monomials
) -> tuple[
    Float[np.ndarray, " n_tests"],
    Float[np.ndarray, "n_tests n_dims n_features"],
    Float[np.ndarray, "n_tests n_dims"],
]:
    """E psi_m, E[d_k psi_m phi_b] and E[d_kk psi_m] over one weighted cloud.

    The derivatives of a Gaussian are polynomials in x times itself, so that all three are moments E[psi_m p(x)]:
    matrix products, chunk by chunk.
    """
    (rho, s), n_dims, n_features = tests, cloud.points.shape[1], len(dictionary.terms)
    value, first, second = np.zeros(len(rho)), np.zeros(rho.shape), np.zeros(rho.shape)
    plain, along = np.zeros((len(rho), n_features)), np.zeros((len(rho), n_dims * n_features))
    for x, w in _chunks(cloud, len(rho) + (n_dims + 1) * n_features):
        psi = np.exp(-0.5 * cdist(rho / s, x / s, "sqeuclidean")) * w
        phi = dictionary.rows(x)
        value += psi.sum(axis=1)
        first += psi @ x
        second += psi @ x**2
        plain += psi @ phi
        along += psi @ (x[:, :, None] * phi[:, None, :]).reshape(len(x), -1)
    slope = rho[:, :, None] * plain[:, None, :] - along.reshape(len(rho), n_dims, n_features)
    spread = second - 2.0 * rho * first + rho**2 * value[:, None]
    return value, slope / s[:, None] ** 2, spread / s**4 - value[:, None] / s**2


def thresholded_least_squares(
    A: Float[np.ndarray, "n_rows n_columns"],
    y: Float[np.ndarray, " n_rows"],
    threshold: float,
    kept: Bool[np.ndarray, " n_columns"],
) -> Float[np.ndarray, " n_columns"]:
    """Least squares, then again without the columns whose |c_j| |A_j| is below `threshold` |y|, until none is.

    Columns marked in `kept` are never dropped.
    """
    if len(A) < A.shape[1]:
        raise InputError(
            expected=f"at least as many weak rows as the {A.shape[1]} unknowns",
            found=f"{len(A)}",
            hint="more n_centres, more snapshots or a lower degree",
        )
    norms = np.linalg.norm(A, axis=0)
    scale, support = np.where(norms > 0.0, norms, 1.0), np.ones(A.shape[1], dtype=bool)
    found, rank = _least_squares(A / scale, y, support)
    for _ in range(_MOST_SWEEPS):
        small = support & ~kept & (np.abs(found) < threshold * np.linalg.norm(y))
        if not small.any():
            break
        support = support & ~small
        found, rank = _least_squares(A / scale, y, support)
    if rank < support.sum():
        warnings.warn(
            f"the weak rows determine only {rank} of {support.sum()} unknowns: the smallest solution is taken; give "
            "more n_centres, more snapshots or a lower degree",
            FitWarning,
            stacklevel=6,
        )
    return found / scale


def _least_squares(A: np.ndarray, y: np.ndarray, support: np.ndarray) -> tuple[np.ndarray, int]:
    """The least-squares solution that is 0 outside `support`, and the rank inside it."""
    found = np.zeros(A.shape[1])
    found[support], _, rank, _ = np.linalg.lstsq(A[:, support], y)
    return found, int(rank)


def _latin_hypercube(size: int, n_dims: int, rng: np.random.Generator) -> Float[np.ndarray, "size n_dims"]:
    """Points of the unit cube, one in each of `size` equal strata of every coordinate."""
    strata = rng.permuted(np.tile(np.arange(size)[:, None], n_dims), axis=0)
    return (strata + rng.uniform(size=(size, n_dims))) / size


def _chunks(cloud: Snapshot, columns: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    size = max(1, _CHUNK // columns)
    for begin in range(0, len(cloud.points), size):
        yield cloud.points[begin : begin + size], cloud.weights[begin : begin + size]


def _root(squares: Float[np.ndarray, " n_dims"], names: tuple[str, ...]) -> Float[np.ndarray, " n_dims"]:
    """Sigma from its square, which least squares may find below 0."""
    if np.any(squares < 0.0):
        warnings.warn(
            f"least squares finds a negative sigma^2 in {', '.join(np.asarray(names)[squares < 0.0])}: taken as 0; "
            "give sigma, or snapshots nearer to each other",
            FitWarning,
            stacklevel=6,
        )
    return np.sqrt(np.maximum(squares, 0.0))


def _vector(name: str, value: Any, n_dims: int) -> Float[np.ndarray, " n_dims"]:
    """One number per coordinate, finite and not negative, from a number or a vector."""
    try:
        vector = np.asarray(value, dtype=np.float64)
    except (TypeError, ValueError):
        vector = np.full(1, np.nan)
    if vector.shape not in ((), (n_dims,)) or not np.all(np.isfinite(vector)) or np.any(vector < 0.0):
        raise InputError(
            expected=f"{name} as a number or {n_dims} numbers, finite and not negative",
            found=f"{value!r}",
            hint="sigma=1.0, or 'learn'" if name == "sigma" else "None for the pooled sd",
        )
    return np.broadcast_to(vector, (n_dims,)).copy()


def _check_count(name: str, value: Any, least: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < least:
        raise InputError(expected=f"{name} as a whole number from {least} on", found=f"{value!r}", hint=f"{least + 3}")
