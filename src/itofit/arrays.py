"""Files of named arrays (npz): read without pickle, written whole or not at all."""

import zipfile
import zlib
from pathlib import Path

import numpy as np

from itofit.errors import InputError
from itofit.whole_file import whole_file

# What reading a truncated or damaged file may raise.
_BROKEN = (
    zipfile.BadZipFile,
    zlib.error,
    ValueError,
    OSError,
    EOFError,
    TypeError,
    KeyError,
    RuntimeError,
)


def read_arrays(path: Path, hint: str) -> dict[str, np.ndarray]:
    """Every array of an npz file, never unpickled; a broken file is refused, `hint` the remedy."""
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as arrays:
            return dict(arrays)
    except _BROKEN as error:
        raise InputError(
            expected=f"{path} to be a complete npz file of plain arrays",
            found=f"{type(error).__name__}: {error}",
            hint=hint,
        ) from None


def write_arrays(path: Path, arrays: dict[str, np.ndarray], *, compressed: bool = False) -> None:
    """Write an npz file that appears whole or not at all."""
    save = np.savez_compressed if compressed else np.savez
    with whole_file(path) as partial, partial.open("wb") as file:
        save(file, allow_pickle=False, **arrays)
