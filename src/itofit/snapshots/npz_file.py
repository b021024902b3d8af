"""npz: `X` with `t` (one time a row), or one array a time beside `times`.

Arrays `w` and `names` are optional.
"""

import re
from pathlib import Path

import numpy as np

from itofit.arrays import read_arrays, write_arrays
from itofit.errors import InputError
from itofit.snapshots.clouds import Snapshots


def read(path: Path, time_key: str | None = None) -> Snapshots:
    """Snapshots from either layout; never unpickles."""
    arrays = read_arrays(path, hint="save it again with numpy.savez, without object arrays")
    names = [str(n) for n in arrays.pop("names")] if "names" in arrays else None
    time_key = time_key or ("t" if "X" in arrays else "times")
    if time_key not in arrays:
        raise InputError(
            expected=f"an array of times named {time_key!r} in {path.name}",
            found=f"arrays {sorted(arrays)}",
            hint="save X with t (one time a row), or one array a time with times; --time-key "
            "names another",
        )
    times = arrays.pop(time_key)
    if "X" in arrays:
        return Snapshots.from_rows(arrays["X"], times, arrays.get("w"), names)
    clouds = [arrays[name] for name in sorted(arrays, key=_natural)]
    return Snapshots.from_arrays(clouds, times, names=names)


def write(snapshots: Snapshots, path: Path) -> None:
    """One row a point: `X`, `t`, `w` and `names`."""
    X, t, w = snapshots.to_rows()
    arrays = {"X": X, "t": t, "w": w, "names": np.asarray(snapshots.names)}
    write_arrays(path, arrays, compressed=True)


def _natural(name: str) -> list[tuple[bool, str | int]]:
    """Sort key that puts x2 before x10."""
    return [
        (part.isdigit(), int(part) if part.isdigit() else part)
        for part in re.split(r"(\d+)", name)
        if part
    ]
