"""Files of named arrays: there and back, whole or not at all, and never code."""

import gc

import numpy as np
import pytest

from itofit.arrays import read_arrays, write_arrays
from itofit.errors import InputError

compressed = pytest.mark.parametrize("compressed", [False, True])


@compressed
def test_arrays_there_and_back(tmp_path, compressed):
    arrays = {"a": np.arange(3), "b.c['d']": np.eye(2), "text": np.asarray("words")}
    write_arrays(tmp_path / "a.npz", arrays, compressed=compressed)
    back = read_arrays(tmp_path / "a.npz", hint="-")
    assert back.keys() == arrays.keys()
    for name, array in arrays.items():
        assert back[name].dtype == array.dtype
        np.testing.assert_array_equal(back[name], array)
    assert [p.name for p in tmp_path.iterdir()] == ["a.npz"]


def test_objects_are_neither_written_nor_read(refused, tmp_path):
    with pytest.raises(ValueError, match="Object arrays cannot be saved"):
        write_arrays(tmp_path / "a.npz", {"a": np.array([{}], dtype=object)})
    assert list(tmp_path.iterdir()) == []
    np.savez(tmp_path / "b.npz", a=np.array([{}], dtype=object))
    with refused("b.npz", "Try: another file."):
        read_arrays(tmp_path / "b.npz", hint="another file")


def test_a_failed_write_leaves_the_old_file(monkeypatch, tmp_path):
    write_arrays(tmp_path / "a.npz", {"a": np.arange(3)})

    def half(file, **arrays):
        file.write(b"half")
        raise OSError("no space left on device")

    monkeypatch.setattr(np, "savez", half)
    with pytest.raises(OSError, match="no space"):
        write_arrays(tmp_path / "a.npz", {"a": np.arange(5)})
    assert read_arrays(tmp_path / "a.npz", hint="-")["a"].tolist() == [0, 1, 2]
    assert [p.name for p in tmp_path.iterdir()] == ["a.npz"]


@compressed
@pytest.mark.parametrize("keep", [0, 50, -1])
def test_truncated_files_are_refused(refused, tmp_path, compressed, keep):
    path = tmp_path / "a.npz"
    write_arrays(path, {"a": np.arange(300)}, compressed=compressed)
    path.write_bytes(path.read_bytes()[:keep])
    with refused("a.npz", "Try: fit again."):
        read_arrays(path, hint="fit again")
    gc.collect()  # a file left open would warn here, and a warning is an error


@compressed
def test_a_damaged_byte_is_refused_or_read_over(tmp_path, compressed):
    path = tmp_path / "a.npz"
    write_arrays(
        path,
        {"a": np.random.default_rng(0).normal(size=20), "b": np.asarray("x")},
        compressed=compressed,
    )
    whole = path.read_bytes()
    for place in range(0, len(whole), 3):
        damaged = bytearray(whole)
        damaged[place] ^= 0xFF
        path.write_bytes(bytes(damaged))
        try:
            read_arrays(path, hint="-")
        except InputError:
            continue
    gc.collect()


def test_other_files_are_refused(refused, tmp_path):
    with (tmp_path / "a.npz").open("wb") as file:
        np.save(file, np.zeros((3, 2)))
    (tmp_path / "b.npz").write_text("words")
    for name in ("a.npz", "b.npz", "none.npz"):
        with refused(name):
            read_arrays(tmp_path / name, hint="-")
