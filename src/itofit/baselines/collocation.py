"""Weak collocation regression: for every test function psi_m and every pair of neighbouring
snapshots

    E_{i+1} psi_m - E_i psi_m
        = integral over [t_i, t_{i+1}] of E_t[g . grad psi_m + 1/2 sum_k sigma_k^2 d_kk psi_m] dt

with Gaussian psi_m, a polynomial drift g_k = sum_b c_bk phi_b and a quadrature that uses the
snapshots alone. The rows are linear in c and sigma^2, and least squares solves them (Lu, Zeng,
Jiang, Zhu and Hu, Journal of Computational Physics 2024).
"""

import math
import time
import warnings
from typing import Any, Literal

import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from itofit.baselines.collocation_system import (
    Gaussians,
    linear_system,
    thresholded_least_squares,
    weak_rows,
)
from itofit.baselines.counts import is_count
from itofit.errors import FitWarning, InputError
from itofit.face import check_choices
from itofit.forecast import step_error_from_first
from itofit.problem import Stream, Streams
from itofit.process.drift import FeatureDrift
from itofit.process.ito import ItoProcess
from itofit.process.monomials import Monomials
from itofit.process.noise import diffusion_from_sigma
from itofit.process_face import ProcessFace
from itofit.run_folder import registered
from itofit.simulate.step_size import TOLERANCE, chosen_step, is_automatic
from itofit.snapshots.clouds import Snapshots
from itofit.snapshots.scaling import Scaling
from itofit.solution import Outcome
from itofit.solve.listeners import Watch

RULES = ("trapezoid", "simpson")
CENTRES = ("hypercube", "data")

_MOST_HALVINGS = 3
_VALUES = ("seed", "dt", "dt_error", "seconds")


@registered
class Collocation(ProcessFace):
    """Fit dX = g(X) dt + diag(sigma) dW with a polynomial g by linear least squares on weak rows.

    It needs snapshots that are dense relative to the dynamics: the integral over time uses nothing
    between two snapshots, so a gap as long as a relaxation time biases every coefficient. In
    exchange a fit is one linear solve.

    Parameters
    ----------
    sigma : float, array of shape (n_dims,) or "learn"
        The noise: a number, one number per coordinate, or learned.
    degree : int
        Largest total degree of the monomials of the drift.
    n_centres : int, optional
        Number of test functions; None takes a rule of thumb by dimension.
    width : float or array of shape (n_dims,), optional
        Width of the test functions, in the user's units; None takes the pooled sd.
    centre_range : float
        The hypercube of centres is [min, min + centre_range (max - min)] of the pooled points.
    centres : {"hypercube", "data"}
        A Latin hypercube, or points of the last snapshot.
    rule : {"trapezoid", "simpson"}
        Quadrature over time; "simpson" takes two equal steps where the times have them.
    threshold : float
        A monomial is dropped when its part of the rows' norm is below this; 0 drops none.
    dt : float or "auto"
        Longest Euler step of a forecast; "auto" chooses it from the data and checks it by step
        doubling.
    random_state : int, optional
        Seed of the centres and of forecasts; None draws a fresh one.

    Attributes
    ----------
    coefficients_ : array of shape (n_features, n_dims)
        Coefficients of the drift, in the user's units.
    dictionary_ : Monomials
        The monomials they belong to.
    sigma_ : array of shape (n_dims,)
        The noise, in the user's units.
    process_ : ItoProcess
        The fitted process, in the user's units.
    snapshots_, scaling_, dt_, dt_error_, outcome_, seconds_, seed_
        As of every method.

    Examples
    --------
    A cloud that moves to the right at speed 2 and keeps its shape:

    >>> import numpy as np
    >>> from itofit import Collocation, Snapshots
    >>> x = np.random.default_rng(0).normal(size=(200, 1))
    >>> snapshots = Snapshots.from_arrays([x, x + 0.1, x + 0.2], times=[0.0, 0.05, 0.1])
    >>> model = Collocation(sigma=0.0, degree=0, random_state=0).fit(snapshots)
    >>> model.coefficients_.round(2)
    array([[2.]])
    >>> model.predict(0.2).shape
    (200, 1)
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

    def _learn(self, snapshots: Snapshots, watch: Watch) -> None:
        watch.refuse_checkpoints(self.method)
        began = time.perf_counter()
        self._check_choices()
        self.seed_ = Streams.of(self.random_state).seed
        dt = chosen_step(self.dt, snapshots)
        scaling = Scaling.fit(snapshots)
        dictionary = Monomials.up_to(snapshots.n_dims, self.degree)
        self.coefficients_, self.sigma_ = self._solve(snapshots, scaling, dictionary)
        self.scaling_ = scaling
        self.dictionary_ = dictionary
        self.dt_ = dt
        solved = bool(np.all(np.isfinite(self.coefficients_)))
        self.outcome_ = Outcome.converged if solved else Outcome.non_finite
        self.standard_process_ = self._standard_process()
        self._settle_step(scaling.transform(snapshots))
        self.seconds_ = time.perf_counter() - began

    def _solve(
        self, snapshots: Snapshots, scaling: Scaling, dictionary: Monomials
    ) -> tuple[Float[np.ndarray, "n_features n_dims"], Float[np.ndarray, " n_dims"]]:
        """Coefficients and noise in the user's units; expectations are in standardised ones."""
        n_dims = snapshots.n_dims
        n_drift = n_dims * len(dictionary.terms)
        learned = isinstance(self.sigma, str) and self.sigma == "learn"
        sigma = None if learned else _vector("sigma", self.sigma, n_dims)
        standard = scaling.transform(snapshots)
        rng = self._streams.rng(Stream.centres)
        gaussians = self._gaussians(standard, scaling.sd, n_drift + n_dims, rng)
        rows = weak_rows(standard, gaussians, dictionary, self.rule)
        system = linear_system(rows, dictionary, scaling, sigma)
        solution = thresholded_least_squares(
            system.matrix, system.target, float(self.threshold), system.is_noise
        )
        coefficients = solution[:n_drift].reshape(n_dims, -1).T
        if sigma is None:
            sigma = _root(solution[n_drift:], snapshots.names)
        return coefficients, sigma

    def _gaussians(
        self, standard: Snapshots, sd: np.ndarray, n_unknowns: int, rng: np.random.Generator
    ) -> Gaussians:
        """Test functions in standardised units, enough of them for the unknowns."""
        n_dims = standard.n_dims
        width = self._standard_width(sd)
        rule_of_thumb = max(20 if n_dims == 1 else 100 * n_dims, 2 * n_unknowns)
        n_centres = rule_of_thumb if self.n_centres is None else self.n_centres
        if self.centres == "data":
            return Gaussians(_points_of_the_last(standard, n_centres, rng), width)
        pooled = np.concatenate(standard.clouds)
        low = pooled.min(axis=0)
        high = pooled.max(axis=0)
        unit = _latin_hypercube(n_centres, n_dims, rng)
        return Gaussians(low + self.centre_range * (high - low) * unit, width)

    def _standard_width(self, sd: np.ndarray) -> Float[np.ndarray, " n_dims"]:
        """The width of the test functions in units of `sd`."""
        if self.width is None:
            return np.ones(len(sd))
        width = _vector("width", self.width, len(sd)) / sd
        if np.any(width <= 0.0):
            raise InputError(
                expected="width above 0", found=f"{self.width}", hint="None for the pooled sd"
            )
        return width

    def _standard_process(self) -> ItoProcess:
        mean = self.scaling_.mean
        sd = self.scaling_.sd
        coefficients = self.dictionary_.change_of_units(mean, sd) @ self.coefficients_ / sd
        drift = FeatureDrift(self.dictionary_, jnp.asarray(coefficients, dtype=float))
        return ItoProcess(drift, diffusion_from_sigma(self.sigma_ / sd, len(sd)))

    def _step_error(self, standard: Snapshots) -> float:
        return step_error_from_first(self.standard_process_, standard, self.dt_, self._streams)

    def _notes(self) -> tuple[str, ...]:
        return self._remark()

    def _settle_step(self, standard: Snapshots) -> None:
        """Halve an automatic dt until a further halving moves no mean or sd by more than the
        house's tolerance.
        """
        self.dt_error_ = self._step_error(standard)
        for _ in range(_MOST_HALVINGS if is_automatic(self.dt) else 0):
            if self.dt_error_ <= TOLERANCE:
                break
            self.dt_ = self.dt_ / 2.0
            self.dt_error_ = self._step_error(standard)
        if not self.dt_error_ <= TOLERANCE:
            warnings.warn(
                f"with dt = {self.dt_:.3g} the fitted process is unstable or too coarse: halving "
                f"dt moves a mean or sd by {self.dt_error_:.2g} sd (wanted at most {TOLERANCE}); "
                "give a shorter dt, a lower degree or snapshots nearer to each other",
                FitWarning,
                stacklevel=5,
            )

    def _check_choices(self) -> None:
        check_choices(self, rule=RULES, centres=CENTRES)
        _check_count("degree", self.degree, least=0)
        if self.n_centres is not None:
            _check_count("n_centres", self.n_centres, least=1)
        if not (math.isfinite(self.centre_range) and self.centre_range > 0.0):
            raise InputError(
                expected="centre_range above 0", found=f"{self.centre_range!r}", hint="1.0"
            )
        if not (math.isfinite(self.threshold) and self.threshold >= 0.0):
            raise InputError(
                expected="threshold from 0 on",
                found=f"{self.threshold!r}",
                hint="0.0 keeps every term",
            )

    def _values(self) -> dict[str, Any]:
        values = {name: getattr(self, f"{name}_") for name in _VALUES}
        return values | {"outcome": self.outcome_.name}

    def _arrays(self) -> dict[str, np.ndarray]:
        return {
            "coefficients": self.coefficients_,
            "sigma": self.sigma_,
            "scaling.mean": self.scaling_.mean,
            "scaling.sd": self.scaling_.sd,
        }

    def _restore(self, values: dict[str, Any], arrays: dict[str, np.ndarray]) -> None:
        for name in _VALUES:
            setattr(self, f"{name}_", values[name])
        self.outcome_ = Outcome[values.get("outcome", "converged")]  # runs of before had none
        self.scaling_ = Scaling(arrays["scaling.mean"], arrays["scaling.sd"])
        self.dictionary_ = Monomials.up_to(self.snapshots_.n_dims, self.degree)
        self.coefficients_ = arrays["coefficients"]
        self.sigma_ = arrays["sigma"]
        self.standard_process_ = self._standard_process()


def _points_of_the_last(
    standard: Snapshots, size: int, rng: np.random.Generator
) -> Float[np.ndarray, "_ n_dims"]:
    """At most `size` points of the last snapshot, none of them twice."""
    points = standard.clouds[-1]
    weights = standard.weights[-1]
    size = min(size, int(np.count_nonzero(weights)))
    return points[rng.choice(len(points), size, replace=False, p=weights)]


def _latin_hypercube(
    size: int, n_dims: int, rng: np.random.Generator
) -> Float[np.ndarray, "size n_dims"]:
    """Points of the unit cube, one in each of `size` equal strata of every coordinate."""
    strata = rng.permuted(np.tile(np.arange(size)[:, None], n_dims), axis=0)
    return (strata + rng.uniform(size=(size, n_dims))) / size


def _root(
    squares: Float[np.ndarray, " n_dims"], names: tuple[str, ...]
) -> Float[np.ndarray, " n_dims"]:
    """Sigma from its square, which least squares may find below 0."""
    negative = np.asarray(names)[squares < 0.0]
    if len(negative):
        warnings.warn(
            f"least squares finds a negative sigma^2 in {', '.join(negative)}: taken as 0; "
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
    fits = vector.shape in ((), (n_dims,))
    if not fits or not np.all(np.isfinite(vector)) or np.any(vector < 0.0):
        raise InputError(
            expected=f"{name} as a number or {n_dims} numbers, finite and not negative",
            found=f"{value!r}",
            hint="sigma=1.0, or 'learn'" if name == "sigma" else "None for the pooled sd",
        )
    return np.broadcast_to(vector, (n_dims,)).copy()


def _check_count(name: str, value: Any, least: int) -> None:
    if not is_count(value, least):
        raise InputError(
            expected=f"{name} as a whole number from {least} on",
            found=f"{value!r}",
            hint=f"{least + 3}",
        )
