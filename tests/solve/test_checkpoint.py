"""Trees of arrays there and back, and checkpoints that know whose they are."""

import jax.numpy as jnp
import numpy as np
import pytest

from itofit.process.network import xavier_network
from itofit.solve.checkpoint import Checkpoint, fill_tree, fingerprint, named_arrays


@pytest.fixture
def network(getkey):
    return xavier_network([2, 5, 2], key=getkey())


def same(a, b):
    first = named_arrays(a, "")
    second = named_arrays(b, "")
    return first.keys() == second.keys() and all(np.array_equal(first[k], second[k]) for k in first)


def test_a_tree_there_and_back(network, getkey):
    arrays = named_arrays(network, "drift")
    other = xavier_network([2, 5, 2], key=getkey())
    assert not same(other, network)
    assert same(fill_tree(other, arrays, "drift"), network)


def test_a_tree_of_another_shape_or_type_is_refused(refused, network, getkey):
    arrays = named_arrays(network, "drift")
    with refused("another shape", "drift"):
        fill_tree(xavier_network([2, 6, 2], key=getkey()), arrays, "drift")
    with refused("missing"):
        fill_tree(network, arrays, "other")
    with refused("type"):
        fill_tree(network, {name: a.astype(np.float64) for name, a in arrays.items()}, "drift")


def test_a_fingerprint_tells_data_and_options_apart():
    x = np.arange(6.0).reshape(3, 2)
    first = fingerprint(x, {"rate": 0.1}, 3)
    assert first == fingerprint(x.copy(), {"rate": 0.1}, 3)
    others = [
        fingerprint(x + 1e-12, {"rate": 0.1}, 3),
        fingerprint(x, {"rate": 0.2}, 3),
        fingerprint(x, {"rate": 0.1}, 4),
    ]
    assert first not in others


def test_a_checkpoint_restores_what_it_saved(tmp_path, network, getkey):
    keeper = Checkpoint(tmp_path / "runs" / "checkpoint.npz", "me")
    fresh = xavier_network([2, 5, 2], key=getkey())
    assert same(keeper.restore(fresh), fresh)  # nothing saved yet
    keeper.save(network)
    assert not keeper.path.exists()  # too early
    keeper.save(network, force=True)
    assert same(keeper.restore(fresh), network)
    assert same(Checkpoint(keeper.path, "me").restore(fresh), network)


def test_a_checkpoint_is_saved_when_its_time_has_come(tmp_path, network):
    keeper = Checkpoint(tmp_path / "checkpoint.npz", "me", seconds=0.0)
    keeper.save(network)
    assert keeper.path.exists()


def test_a_checkpoint_of_another_run_is_refused(refused, tmp_path, network):
    Checkpoint(tmp_path / "checkpoint.npz", "me").save(network, force=True)
    with refused("the same data, options and seed"):
        Checkpoint(tmp_path / "checkpoint.npz", "you").restore(network)


def test_a_truncated_checkpoint_is_refused(refused, tmp_path, network):
    keeper = Checkpoint(tmp_path / "checkpoint.npz", "me")
    keeper.save(network, force=True)
    keeper.path.write_bytes(keeper.path.read_bytes()[:-1])
    with refused("checkpoint.npz", "truncated"):
        keeper.restore(network)


def test_integers_and_counters_keep_their_type(tmp_path):
    state = {"step": jnp.asarray(3), "loss": jnp.asarray([0.5])}
    keeper = Checkpoint(tmp_path / "checkpoint.npz", "me")
    keeper.save(state, force=True)
    restored = keeper.restore({"step": jnp.asarray(0), "loss": jnp.asarray([0.0])})
    assert restored["step"].dtype == state["step"].dtype
    assert int(restored["step"]) == 3
