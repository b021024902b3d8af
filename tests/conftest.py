"""What every test shares: shapes checked on every call, compiled programs, keys, refusals."""

import contextlib
import os
from pathlib import Path

import jax
import jaxtyping
import pytest

os.environ["MPLBACKEND"] = "Agg"

# Before anything imports itofit: every annotated call is then checked, shapes included. Two
# settings of beartype: an int is a float, as PEP 484 says; and `typing.Self`, which it cannot
# resolve on a single method, is not checked.
_SELF_IS_ANY = "beartype.FrozenDict({__import__('typing').Self: __import__('typing').Any})"
_SETTINGS = f"beartype.BeartypeConf(is_pep484_tower=True, hint_overrides={_SELF_IS_ANY})"
jaxtyping.install_import_hook("itofit", f"beartype.beartype(conf={_SETTINGS})")

# Most of the time of the suite is compilation, and most programs come again: in another file, in
# the other worker, in the next run.
_COMPILED = Path(__file__).parent.parent / ".jax_cache"
jax.config.update("jax_compilation_cache_dir", str(_COMPILED))
jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)


def pytest_configure(config):
    """Programs of the fast suite run once, and need not be optimised.

    The slow tests are fits as users make them; which terms a fit keeps may hang on the last digits.
    """
    if config.option.markexpr != "slow":
        os.environ["XLA_FLAGS"] = (
            os.environ.get("XLA_FLAGS", "") + " --xla_backend_optimization_level=0"
        )


@pytest.fixture(scope="module", autouse=True)
def forget_compiled():
    """Every compiled program holds maps of memory, of which a process may have 65 530."""
    yield
    jax.clear_caches()


@pytest.fixture
def getkey():
    """A function that gives a new jax key at every call, the same sequence in every test."""
    seeds = iter(range(2021, 1 << 30))
    return lambda: jax.random.key(next(seeds))


@pytest.fixture
def refused():
    """A context in which itofit must refuse its input in its usual form, with these words."""
    from itofit.errors import InputError

    @contextlib.contextmanager
    def context(*words: str):
        with pytest.raises(InputError) as caught:
            yield caught
        message = str(caught.value)
        assert message.startswith("expected ")
        assert "; found " in message
        assert ". Try: " in message
        for word in words:
            assert word in message

    return context


@pytest.fixture(scope="session")
def syn1():
    """Syn-1 of the paper: one object, so that pushes of one size compile once."""
    from itofit.simulate.systems import known_system

    return known_system("syn1")
