"""The data sets: clouds with their times in days, and the Euler step all methods are given."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from itofit import InputError, Snapshots


@dataclass(frozen=True)
class DataSet:
    """A file of clouds: `times` in days, `dt` for every method, and what must be known when its
    numbers are read.
    """

    file: str
    times: tuple[float, ...]
    dt: float
    remark: str = ""

    def read(self, folder: Path) -> Snapshots:
        """The clouds of the file below `folder`."""
        path = folder / self.file
        if not path.is_file():
            raise InputError(
                expected=f"{self.file} in --data",
                found=f"no file at {path}",
                hint="the folder of data sets",
            )
        with np.load(path) as arrays:
            if "X" in arrays:
                codes = arrays["t"]
                return Snapshots.from_rows(arrays["X"], np.asarray(self.times)[codes])
            return Snapshots.from_arrays(
                [arrays[f"t{i}"] for i in range(len(self.times))], self.times
            )


DATA = {
    "emt": DataSet("emt_a549/emt_3d.npz", (0.0, 1 / 3, 1.0, 3.0, 7.0), 0.07),
    "ipsc": DataSet("ipsc_bifurcation/ipsc_4d.npz", (0.0, 1.0, 1.5, 2.0, 2.5, 3.0, 4.0, 5.0), 0.05),
    "larry": DataSet(
        "larry_2d/mouse_hematopoiesis_2d.npz",
        (2.0, 4.0, 6.0),
        0.05,
        "embedding fitted on all days, the one left out too; mass grows fourfold and is ignored",
    ),
}
