"""Scaling: z = (x - mean) / sd, fitted on the training snapshots only."""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from itofit.errors import InputError
from itofit.snapshots.clouds import Snapshots


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
    def identity(cls, n_dims: int) -> "Scaling":
        """Raw units: mean 0 and sd 1."""
        return cls(np.zeros(n_dims), np.ones(n_dims))

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
