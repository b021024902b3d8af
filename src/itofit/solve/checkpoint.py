"""Trees of arrays as named arrays, and checkpoints of a run."""

import hashlib
import json
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import equinox as eqx
import jax
import numpy as np

from itofit.arrays import read_arrays, write_arrays
from itofit.errors import InputError

Tree = TypeVar("Tree")


def named_arrays(tree: Any, prefix: str) -> dict[str, np.ndarray]:
    """Every array of a tree under its path in the tree."""
    return {prefix + name: np.asarray(leaf) for name, leaf in _named(tree)}


def fill_tree(like: Tree, arrays: dict[str, np.ndarray], prefix: str) -> Tree:
    """`like` with the arrays of `named_arrays`; names, shapes and types must agree."""
    named = _named(like)
    missing = [name for name, leaf in named if not _fits(arrays.get(prefix + name), leaf)]
    if missing:
        raise InputError(
            expected="the arrays of this model",
            found=f"{len(missing)} of {len(named)} missing or of another shape or type, first "
            f"{prefix}{missing[0]}",
            hint="use the run folder as it was written, with the same float precision",
        )
    new = iter([jax.numpy.asarray(arrays[prefix + name]) for name, _ in named])
    dynamic, static = eqx.partition(like, eqx.is_array)
    return eqx.combine(jax.tree.map(lambda _: next(new), dynamic), static)


def fingerprint(*parts: Any) -> str:
    """A short digest of plain values and arrays: whether two runs ask for the same thing."""
    digest = hashlib.sha256()
    for part in parts:
        if isinstance(part, np.ndarray):
            digest.update(np.ascontiguousarray(part).tobytes())
        else:
            digest.update(json.dumps(part, sort_keys=True, default=repr).encode())
    return digest.hexdigest()[:16]


class Checkpoint:
    """A file that holds the newest state of one run, saved at most every `seconds`.

    `identity` is the fingerprint of data and options: a checkpoint of anything else is refused.
    """

    def __init__(self, path: str | Path, identity: str, seconds: float = 20.0):
        self.path = Path(path)
        self.identity = identity
        self.seconds = seconds
        self._saved_at = time.monotonic()

    def save(self, state: Any, force: bool = False) -> None:
        """Write the state, atomically."""
        if force or time.monotonic() - self._saved_at >= self.seconds:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            write_arrays(
                self.path, {"identity": np.asarray(self.identity), **named_arrays(state, "run")}
            )
            self._saved_at = time.monotonic()

    def restore(self, fresh: Tree) -> Tree:
        """The saved state, or `fresh` where nothing was saved yet."""
        if not self.path.exists():
            return fresh
        arrays = read_arrays(
            self.path,
            hint="start the run again in another folder; a truncated one cannot be repaired",
        )
        if str(arrays.get("identity", "")) != self.identity:
            raise InputError(
                expected="a checkpoint of the same data, options and seed",
                found=f"another one at {self.path}",
                hint="resume with the arguments of the first call, or choose another folder",
            )
        return fill_tree(fresh, arrays, "run")


@dataclass(frozen=True)
class CheckpointFolder:
    """Where the runs of a fit are saved as they go; with `resume` those found there continue."""

    folder: Path
    resume: bool = False

    @property
    def log(self) -> Path:
        """The file that progress is logged to."""
        return self.folder / "log.jsonl"

    def of(self, identity: str, refinement: int) -> Checkpoint:
        """The checkpoint of one run; an existing one is continued, or refused."""
        name = f"checkpoint-{refinement}.npz" if refinement else "checkpoint.npz"
        path = self.folder / name
        if path.exists() and not self.resume:
            raise InputError(
                expected=f"no unfinished run in {self.folder}",
                found=f"{path.name}",
                hint="resume=True (--resume), or another folder",
            )
        return Checkpoint(path, identity)


def _named(tree: Any) -> list[tuple[str, Any]]:
    leaves, _ = jax.tree_util.tree_flatten_with_path(eqx.filter(tree, eqx.is_array))
    return [(jax.tree_util.keystr(path), leaf) for path, leaf in leaves]


def _fits(found: np.ndarray | None, wanted: Any) -> bool:
    return found is not None and found.shape == wanted.shape and found.dtype == wanted.dtype
