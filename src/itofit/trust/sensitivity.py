"""What the drift and the forecast owe to the sigma that was assumed.

For every other sigma the drift is fitted anew and compared with the fitted one, over the points of all snapshots and by
the forecasts of both from the first snapshot with the same noise,

    change of the drift  =  rms |g' - g| / rms |g|,        change of a mean or sd  =  (F' - F) / sd

in coordinates divided by their sds. Chi-squared at each sigma says which of them the snapshots exclude.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from itofit.errors import InputError
from itofit.forecast import push_forward
from itofit.process.diffusion import AbstractDiffusion, diffusion_from_sigma
from itofit.process.drift import FunctionDrift
from itofit.process.ito import ItoProcess, rescaled
from itofit.process.noise import is_learned
from itofit.snapshots.clouds import Snapshot, Snapshots
from itofit.snapshots.scaling import Scaling
from itofit.solve.evidence import Evidence
from itofit.trust.goodness import SquaresLaw, goodness_of_fit

_MOST_TIMES = 4


class Refit(NamedTuple):
    """A process in standardised units that was fitted with some sigma, and what the linear algebra says there."""

    process: ItoProcess
    evidence: Evidence


@dataclass(frozen=True, eq=False)
class Assumed:
    """What one sigma leads to; everything is infinite where its chains run to infinity.

    - `drift`: change of the drift, in units of its size. `mean`, `sd`: change of the forecast, in sds.
    - `misfit`, `p_value`: chi-squared by degree of freedom, and how often a true model would do worse.
    """

    sigma: Any
    drift: float
    mean: Float[np.ndarray, "n_times n_dims"]
    sd: Float[np.ndarray, "n_times n_dims"]
    misfit: float
    p_value: float


@dataclass(frozen=True, eq=False)
class Sensitivity:
    """What each sigma leads to, the fitted one first; prints as a table.

    `full` says that every fit began anew; else they have the terms of the first.
    """

    times: np.ndarray
    names: tuple[str, ...]
    rows: tuple[Assumed, ...]
    full: bool

    def excluded(self, level: float = 0.05) -> list[Any]:
        """The sigmas with which the snapshots contradict the fit at this level."""
        return [row.sigma for row in self.rows if row.p_value < level]

    def to_records(self) -> list[dict[str, Any]]:
        """One plain dictionary a sigma, time and coordinate, for JSON."""
        return [
            {
                "sigma": label,
                "drift": row.drift,
                "misfit": row.misfit,
                "p": row.p_value,
                "time": float(time),
                "coordinate": name,
                "mean": float(row.mean[t, d]),
                "sd": float(row.sd[t, d]),
            }
            for label, row in zip(self._labels(), self.rows, strict=True)
            for t, time in enumerate(self.times)
            for d, name in enumerate(self.names)
        ]

    def __str__(self) -> str:
        labels = [f"{label} (fitted)" if i == 0 else label for i, label in enumerate(self._labels())]
        width = 2 + max(map(len, labels))
        times = "".join(f"{f't = {time:.3g}':>18}" for time in self.times)
        lines = [f"{'sigma':<{width}}{'drift':>8}{'chi2/free':>11}{'p':>8}{times}"]
        lines += [" " * (width + 27) + f"{'mean':>10}{'sd':>8}" * len(self.times)]
        for label, row in zip(labels, self.rows, strict=True):
            changes = zip(np.abs(row.mean).max(axis=1), np.abs(row.sd).max(axis=1), strict=True)
            shown = "".join(f"{mean:>10.3f}{sd:>8.3f}" for mean, sd in changes)
            lines.append(f"{label:<{width}}{row.drift:>8.3f}{row.misfit:>11.2f}{row.p_value:>8.3f}{shown}")
        terms = "of terms chosen anew" if self.full else "of the same terms"
        return "\n".join(
            [
                *lines,
                "changes: of the drift in units of its size; of means and sds in sds, the largest over coordinates",
                f"a small p: with this sigma no drift {terms} explains the snapshots",
            ]
        )

    def _labels(self) -> list[str]:
        return [_label(row.sigma) for row in self.rows]


def sigmas(given: Any) -> list[Any]:
    """The sigmas one by one, or a refusal."""
    if callable(given) or isinstance(given, str) or not isinstance(given, Iterable):
        raise InputError(expected="sigmas to try, one after the other", found=f"{given!r}", hint="sigma=[0.8, 1.25]")
    return list(given)


def telling_times(snapshots: Snapshots) -> Float[np.ndarray, " n_times"]:
    """Up to four of the times after the first snapshot, the last among them, and half a span beyond it."""
    later = snapshots.times[1:]
    rows = np.unique(np.linspace(0, len(later) - 1, min(len(later), _MOST_TIMES)).round().astype(int))
    return np.append(later[rows], later[-1] + 0.5 * (later[-1] - snapshots.times[0]))


def standard_diffusion(sigma: Any, scaling: Scaling) -> AbstractDiffusion:
    """The noise `sigma` in standardised units."""
    raw = diffusion_from_sigma(sigma, len(scaling.mean))
    return rescaled(ItoProcess(FunctionDrift(jnp.zeros_like), raw), scaling.inverse).diffusion


def sigma_sensitivity(
    fitted: tuple[Any, Refit],
    others: Sequence[tuple[Any, Refit | None]],
    snapshots: Snapshots,
    start: Snapshot,
    times: Float[np.ndarray, " n_times"],
    dt: float,
    *,
    full: bool,
    law: SquaresLaw | None,
    key: PRNGKeyArray,
) -> Sensitivity:
    """Each of the `others` beside the fit, on standardised snapshots, forecasts from `start`, one `law` for all."""

    def moments_of(process: ItoProcess) -> tuple[np.ndarray, np.ndarray]:
        return _moments(push_forward(process, start, times, dt, key=key), start.weights)

    share = np.concatenate(snapshots.weights) / len(snapshots)
    process = fitted[1].process
    g, (mean, sd) = _values(process, snapshots), moments_of(process)
    spread = np.maximum(sd, 1e-12)

    def assumed(sigma: Any, refit: Refit | None) -> Assumed:
        if refit is None:
            nowhere = np.full(mean.shape, np.inf)
            return Assumed(sigma, np.inf, nowhere, nowhere, np.inf, 0.0)
        change = _size(_values(refit.process, snapshots) - g, share) / max(_size(g, share), 1e-12)
        test = goodness_of_fit(refit.evidence, snapshots.times, law)
        other_mean, other_sd = moments_of(refit.process)
        moved, widened = _or_infinite((other_mean - mean) / spread), _or_infinite((other_sd - sd) / spread)
        return Assumed(sigma, change, moved, widened, float(test.chi2.sum() / test.freedom.sum()), test.p_value)

    rows = tuple(assumed(*one) for one in (fitted, *others))
    return Sensitivity(times, tuple(snapshots.names), rows, full)


def _moments(clouds: Sequence[np.ndarray], w: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Means and sds, both `(n_times, n_dims)`."""
    with np.errstate(over="ignore", invalid="ignore"):
        means = [w @ x for x in clouds]
        sds = [np.sqrt(w @ (x - m) ** 2) for x, m in zip(clouds, means, strict=True)]
    return np.stack(means), np.stack(sds)


def _or_infinite(values: np.ndarray) -> np.ndarray:
    return np.where(np.isfinite(values), values, np.inf)


def _size(g: np.ndarray, share: np.ndarray) -> float:
    return float(np.sqrt(share @ np.sum(g**2, axis=1)))


def _values(process: ItoProcess, snapshots: Snapshots) -> Float[np.ndarray, "n n_dims"]:
    """The drift at the points of every snapshot, at its time."""
    found = [_map(process.at(float(s.time)).drift, jnp.asarray(s.points, dtype=float)) for s in snapshots]
    return np.concatenate(found).astype(np.float64)


@eqx.filter_jit
def _map(drift: Callable[[Array], Array], x: Float[Array, "n n_dims"]) -> Float[Array, "n n_dims"]:
    return jax.vmap(drift)(x)


def _label(sigma: Any) -> str:
    if is_learned(sigma):
        return "learned"
    if callable(sigma):
        return getattr(sigma, "__name__", "function")
    value = np.asarray(sigma, dtype=float)
    if value.ndim == 0:
        return f"{float(value):.4g}"
    rows = [" ".join(f"{entry:.3g}" for entry in row) for row in np.atleast_2d(value)]
    return f"({'; '.join(rows)})"
