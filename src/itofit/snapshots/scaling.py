"""Scaling: z = (x - mean) / sd, fitted on the training snapshots only."""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from itofit.errors import InputError
from itofit.snapshots.clouds import Snapshots

# The quantiles that bound the core of a coordinate, and how narrow it may be beside the whole.
_CORE = (0.005, 0.995)
_NARROW = 1e-3


@dataclass(frozen=True, eq=False)
class Scaling:
    """An affine change of units, one mean and one sd per coordinate."""

    mean: Float[np.ndarray, " n_dims"]
    sd: Float[np.ndarray, " n_dims"]

    @classmethod
    def fit(cls, snapshots: Snapshots) -> "Scaling":
        """Mean and sd of the pooled snapshots, each snapshot counting the same."""
        means = [w @ x for _, x, w in snapshots]
        mean = np.stack(means).mean(axis=0)
        variances = [w @ (x - mean) ** 2 for _, x, w in snapshots]
        sd = np.sqrt(np.stack(variances).mean(axis=0))
        flat = sd <= 1e-12 * np.abs(mean)
        if np.any(flat):
            raise InputError(
                expected="every coordinate to vary",
                found=f"zero variance in {', '.join(np.asarray(snapshots.names)[flat])}",
                hint="drop that coordinate",
            )
        return cls(mean, sd)

    @classmethod
    def fit_core(cls, snapshots: Snapshots) -> "Scaling":
        """The same of all but the outermost points of every coordinate, where that is a spread.

        A single far point, or heavy tails, would else make everything near look narrow.
        """
        whole = cls.fit(snapshots)
        pooled = np.concatenate(snapshots.clouds)
        low, high = np.quantile(pooled, _CORE, axis=0)
        core = [np.clip(x, low, high) for x in snapshots.clouds]
        means = [w @ x for x, w in zip(core, snapshots.weights, strict=True)]
        mean = np.stack(means).mean(axis=0)
        pairs = zip(core, snapshots.weights, strict=True)
        sd = np.sqrt(np.stack([w @ (x - mean) ** 2 for x, w in pairs]).mean(axis=0))
        return cls(mean, np.where(sd > _NARROW * whole.sd, sd, whole.sd))

    @classmethod
    def identity(cls, n_dims: int) -> "Scaling":
        """Raw units: mean 0 and sd 1."""
        return cls(np.zeros(n_dims), np.ones(n_dims))

    @property
    def area(self) -> float:
        """The geometric mean of sd^2: what a potential of standardised points is in units of."""
        return float(np.exp(2.0 * np.mean(np.log(self.sd))))

    @property
    def metric(self) -> Float[np.ndarray, " n_dims"]:
        """D for which -grad U of raw points is -D grad V of standardised ones, U = area V."""
        return self.area / self.sd**2

    @property
    def inverse(self) -> "Scaling":
        """The scaling that leads back: x = (z - (-mean / sd)) / (1 / sd)."""
        return Scaling(-self.mean / self.sd, 1.0 / self.sd)

    def standardise(self, x: Float[np.ndarray, "... n_dims"]) -> Float[np.ndarray, "... n_dims"]:
        """The points in standardised units, z = (x - mean) / sd."""
        return (x - self.mean) / self.sd

    def restore(self, z: Float[np.ndarray, "... n_dims"]) -> Float[np.ndarray, "... n_dims"]:
        """The points in raw units, x = mean + sd z."""
        return self.mean + self.sd * z

    def transform(self, snapshots: Snapshots) -> Snapshots:
        """The same snapshots in standardised units."""
        return snapshots.with_clouds([self.standardise(x) for x in snapshots.clouds])
