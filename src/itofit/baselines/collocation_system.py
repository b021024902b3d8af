"""The linear system of weak collocation regression: for test functions
psi_m(x) = exp(-|(x - rho_m) / s|^2 / 2) and a quadrature with the rows D, W over the snapshots

    sum_n D_in E_n psi_m = sum_n W_in E_n[g . grad psi_m + 1/2 sum_k sigma_k^2 d_kk psi_m]

with g_k = sum_b c_bk phi_b: linear in the coefficients c and in sigma^2, and solved by least
squares.
"""

import warnings
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float
from scipy.spatial.distance import cdist

from itofit.errors import FitWarning, InputError
from itofit.process.monomials import Monomials
from itofit.snapshots.clouds import Snapshot, Snapshots
from itofit.snapshots.scaling import Scaling

_MOST_SWEEPS = 100
_CHUNK = 4_000_000  # entries of the largest array alive at once: 32 MB


class Gaussians(NamedTuple):
    """Test functions psi_m(x) = exp(-|(x - centres[m]) / width|^2 / 2): not normalised, which no
    row notices.
    """

    centres: Float[np.ndarray, "n_tests n_dims"]
    width: Float[np.ndarray, " n_dims"]


class Expectations(NamedTuple):
    """E psi_m, E[d_k psi_m phi_b] and E[d_kk psi_m] over one cloud."""

    value: Float[np.ndarray, " n_tests"]
    slope: Float[np.ndarray, "n_tests n_dims n_features"]
    curvature: Float[np.ndarray, "n_tests n_dims"]


class WeakRows(NamedTuple):
    """The rows change = sum_k drift[:, k] c_k + noise sigma^2 / 2, one per test function and
    quadrature row.
    """

    change: Float[np.ndarray, " n_rows"]
    drift: Float[np.ndarray, "n_rows n_dims n_features"]
    noise: Float[np.ndarray, "n_rows n_dims"]


class LinearSystem(NamedTuple):
    """Columns of the drift's coefficients, coordinate by coordinate, then of sigma^2 where it is
    unknown (`is_noise`).
    """

    matrix: Float[np.ndarray, "n_rows n_columns"]
    target: Float[np.ndarray, " n_rows"]
    is_noise: Bool[np.ndarray, " n_columns"]


class _Moments(NamedTuple):
    """E[psi_m p(x)] for the polynomials p = 1, x_k, x_k^2, phi_b and x_k phi_b."""

    mass: Float[np.ndarray, " n_tests"]
    x: Float[np.ndarray, "n_tests n_dims"]
    x_squared: Float[np.ndarray, "n_tests n_dims"]
    phi: Float[np.ndarray, "n_tests n_features"]
    x_phi: Float[np.ndarray, "n_tests n_dims n_features"]


def linear_system(
    rows: WeakRows,
    dictionary: Monomials,
    scaling: Scaling,
    sigma: Float[np.ndarray, " n_dims"] | None,
) -> LinearSystem:
    """The system in the user's units, from rows in those of `scaling`; with None for `sigma` its
    square is unknown.
    """
    sd = scaling.sd
    # Monomials of x, not of z: a drift that is sparse in the user's units is dense in any others.
    units = dictionary.change_of_units(scaling.mean, sd)
    blocks = [rows.drift[:, k] @ units / sd[k] for k in range(len(sd))]
    drift = np.concatenate(blocks, axis=1)
    noise = 0.5 * rows.noise / sd**2
    if sigma is not None:
        is_noise = np.zeros(drift.shape[1], dtype=bool)
        return LinearSystem(drift, rows.change - noise @ sigma**2, is_noise)
    matrix = np.concatenate([drift, noise], axis=1)
    is_noise = np.arange(matrix.shape[1]) >= drift.shape[1]
    return LinearSystem(matrix, rows.change, is_noise)


def weak_rows(
    snapshots: Snapshots, gaussians: Gaussians, dictionary: Monomials, rule: str
) -> WeakRows:
    """The weak rows of all test functions, stacked over time."""
    change, weights = quadrature_rows(snapshots.times, rule)
    at_times = [expectations(cloud, gaussians, dictionary) for cloud in snapshots]
    return WeakRows(
        _stacked(change, [at.value for at in at_times]),
        _stacked(weights, [at.slope for at in at_times]),
        _stacked(weights, [at.curvature for at in at_times]),
    )


def _stacked(
    coefficients: Float[np.ndarray, "n_rows n_times"], moments: list[np.ndarray]
) -> np.ndarray:
    """Every quadrature row of the moments at all times, one below the other."""
    over_time = np.stack(moments)
    combined = np.tensordot(coefficients, over_time, axes=1)
    return combined.reshape(-1, *over_time.shape[2:])


def quadrature_rows(
    times: Float[np.ndarray, " n_times"], rule: str
) -> tuple[Float[np.ndarray, "n_rows n_times"], Float[np.ndarray, "n_rows n_times"]]:
    """Rows D and W of the rules f(b) - f(a) = integral of f': D f(times) = W f'(times).

    `simpson` takes every pair of equal neighbouring steps, and the trapezoid for a step that is in
    no such pair.
    """
    h = np.diff(times)
    nodes = np.eye(len(times))
    equal = np.isclose(h[1:], h[:-1], rtol=1e-6, atol=0.0) & (rule == "simpson")
    covered = np.append(equal, False) | np.insert(equal, 0, False)
    change = []
    weights = []
    for i in np.flatnonzero(~covered):
        change.append(nodes[i + 1] - nodes[i])
        weights.append(h[i] / 2.0 * (nodes[i] + nodes[i + 1]))
    for i in np.flatnonzero(equal):
        step = (times[i + 2] - times[i]) / 2.0
        change.append(nodes[i + 2] - nodes[i])
        weights.append(step / 3.0 * (nodes[i] + 4.0 * nodes[i + 1] + nodes[i + 2]))
    return np.stack(change), np.stack(weights)


def expectations(cloud: Snapshot, gaussians: Gaussians, dictionary: Monomials) -> Expectations:
    """Expectations over one weighted cloud.

    The derivatives of a Gaussian are polynomials in x times itself, so that all three are moments
    E[psi_m p(x)]: matrix products, chunk by chunk.
    """
    rho = gaussians.centres
    s = gaussians.width
    moments = _moments(cloud, gaussians, dictionary)
    value = moments.mass[:, None]
    slope = rho[:, :, None] * moments.phi[:, None, :] - moments.x_phi
    spread = moments.x_squared - 2.0 * rho * moments.x + rho**2 * value
    curvature = spread / s**4 - value / s**2
    return Expectations(moments.mass, slope / s[:, None] ** 2, curvature)


def _moments(cloud: Snapshot, gaussians: Gaussians, dictionary: Monomials) -> _Moments:
    """E_p = E[psi_m p(x)] for each of the polynomials p."""
    rho = gaussians.centres
    s = gaussians.width
    n_tests = len(rho)
    n_dims = cloud.points.shape[1]
    n_features = len(dictionary.terms)
    E_1 = np.zeros(n_tests)
    E_x = np.zeros(rho.shape)
    E_xx = np.zeros(rho.shape)
    E_phi = np.zeros((n_tests, n_features))
    E_x_phi = np.zeros((n_tests, n_dims * n_features))
    for x, w in _chunks(cloud, n_tests + (n_dims + 1) * n_features):
        psi = np.exp(-0.5 * cdist(rho / s, x / s, "sqeuclidean")) * w
        phi = dictionary.rows(x)
        x_phi = x[:, :, None] * phi[:, None, :]
        E_1 += psi.sum(axis=1)
        E_x += psi @ x
        E_xx += psi @ x**2
        E_phi += psi @ phi
        E_x_phi += psi @ x_phi.reshape(len(x), -1)
    return _Moments(E_1, E_x, E_xx, E_phi, E_x_phi.reshape(n_tests, n_dims, n_features))


def _chunks(cloud: Snapshot, columns: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Points and weights, few enough rows at a time for an array with so many columns."""
    size = max(1, _CHUNK // columns)
    for begin in range(0, len(cloud.points), size):
        yield cloud.points[begin : begin + size], cloud.weights[begin : begin + size]


def thresholded_least_squares(
    A: Float[np.ndarray, "n_rows n_columns"],
    y: Float[np.ndarray, " n_rows"],
    threshold: float,
    protected: Bool[np.ndarray, " n_columns"],
) -> Float[np.ndarray, " n_columns"]:
    """Least squares, then again without the columns whose |c_j| |A_j| is below `threshold` |y|,
    until none is.

    `protected` columns are never dropped.
    """
    _check_rows(A)
    norms = np.linalg.norm(A, axis=0)
    scale = np.where(norms > 0.0, norms, 1.0)
    support = np.ones(A.shape[1], dtype=bool)
    solution, rank = _least_squares(A / scale, y, support)
    for _ in range(_MOST_SWEEPS):
        small = np.abs(solution) < threshold * np.linalg.norm(y)
        dropped = support & ~protected & small
        if not dropped.any():
            break
        support = support & ~dropped
        solution, rank = _least_squares(A / scale, y, support)
    if rank < support.sum():
        warnings.warn(
            f"the weak rows determine only {rank} of {support.sum()} unknowns: the smallest "
            "solution is taken; give more n_centres, more snapshots or a lower degree",
            FitWarning,
            stacklevel=6,
        )
    return solution / scale


def _check_rows(A: np.ndarray) -> None:
    n_rows, n_unknowns = A.shape
    if n_rows < n_unknowns:
        raise InputError(
            expected=f"at least as many weak rows as the {n_unknowns} unknowns",
            found=f"{n_rows}",
            hint="more n_centres, more snapshots or a lower degree",
        )


def _least_squares(A: np.ndarray, y: np.ndarray, support: np.ndarray) -> tuple[np.ndarray, int]:
    """The least-squares solution that is 0 outside `support`, and the rank inside it."""
    solution = np.zeros(A.shape[1])
    solution[support], _, rank, _ = np.linalg.lstsq(A[:, support], y)
    return solution, int(rank)
