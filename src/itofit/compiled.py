"""Compiled programs kept on disk: what was compiled once on this machine is not compiled again.

    ITOFIT_CACHE=DIR     kept elsewhere            ITOFIT_CACHE=off     nothing is kept

They lie in the user's cache folder, which may be deleted at any time. A cache that jax has been
told of already is left as it is.
"""

import functools
import hashlib
import os
import platform
import sys
from pathlib import Path

import jax
from jax.experimental.compilation_cache import compilation_cache

_SWITCH = "ITOFIT_CACHE"
_OFF = "off"
# Programs kept at the most; some 50 kB each.
_MOST_FILES = 4000


@functools.cache
def keep_compiled() -> Path | None:
    """Keep what is compiled from now on; where, or None where nothing is kept.

    Returns
    -------
    Path or None
        The folder.
    """
    told = jax.config.values["jax_compilation_cache_dir"]
    if told is not None:
        return Path(told)
    folder = _folder()
    if folder is None or not _is_ready(folder):
        return None
    _forget_oldest(folder)
    jax.config.update("jax_compilation_cache_dir", str(folder))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
    # jax decides at its first program whether there is a cache: let it decide again.
    compilation_cache.reset_cache()
    return folder


def _folder() -> Path | None:
    """One for each version of jax and each kind of processor: programs are made for it."""
    wanted = os.environ.get(_SWITCH, "")
    if wanted.lower() == _OFF:
        return None
    name = f"compiled-{jax.__version__}-{_processor()}"
    return (Path(wanted) if wanted else _caches() / "itofit") / name


def _caches() -> Path:
    """Where this system keeps caches."""
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA", Path.home()))
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches"
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")


def _processor() -> str:
    """What tells kinds of processors apart, in a few letters."""
    words = [platform.machine(), platform.processor()]
    about = Path("/proc/cpuinfo")
    if about.is_file():
        lines = about.read_text(errors="replace").splitlines()
        telling = ("model name", "flags", "Features")
        words += [line for line in lines if line.startswith(telling)][:2]
    return hashlib.sha256("\n".join(words).encode()).hexdigest()[:8]


def _is_ready(folder: Path) -> bool:
    """Whether it is there, or can be made, and can be written to."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError:
        return False
    return os.access(folder, os.W_OK)


def _forget_oldest(folder: Path) -> None:
    """Half of the files, where they have become many."""
    try:
        files = sorted(folder.iterdir(), key=lambda file: file.stat().st_mtime)
    except OSError:
        return  # another process is clearing up
    for file in files[: len(files) // 2] if len(files) > _MOST_FILES else []:
        file.unlink(missing_ok=True)
