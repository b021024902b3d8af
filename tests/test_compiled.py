"""Compiled programs on disk: where they go, and that nothing breaks where they cannot."""

import os
import subprocess
import sys

import pytest

_PROGRAM = """
import jax
jax.numpy.zeros(3) + 1  # a program before the cache is asked for
from itofit.compiled import keep_compiled
print(keep_compiled())
jax.jit(lambda x: x * 3.0 + 1.0)(2.0)
"""


def _ran(**environment: str) -> str:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("JAX_")}
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", _PROGRAM],
        env=kept | environment,
        check=True,
        capture_output=True,
        text=True,
    )
    return done.stdout.strip()


def test_programs_are_kept_in_a_folder_of_its_own(tmp_path):
    place = _ran(ITOFIT_CACHE=str(tmp_path))
    assert place.startswith(str(tmp_path))
    assert any(file.is_file() for file in tmp_path.rglob("*"))


@pytest.mark.parametrize("switch", ["off", "/proc/nowhere"])
def test_nothing_is_kept_where_it_is_not_wanted_or_cannot_be(switch, tmp_path):
    assert _ran(ITOFIT_CACHE=switch, XDG_CACHE_HOME=str(tmp_path)) == "None"
    assert not list(tmp_path.iterdir())


def test_a_cache_that_jax_knows_of_is_left_as_it_is(tmp_path):
    own = tmp_path / "own"
    place = _ran(JAX_COMPILATION_CACHE_DIR=str(own), ITOFIT_CACHE=str(tmp_path / "other"))
    assert place == str(own)
    assert not (tmp_path / "other").exists()
