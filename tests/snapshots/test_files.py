import csv
import gc
import os

import numpy as np
import pytest

from itofit.errors import InputError
from itofit.snapshots import csv_file, npz_file, parquet_file
from itofit.snapshots.clouds import Snapshots
from itofit.snapshots.files import read_snapshots, write_snapshots

SUFFIXES = [".npz", ".csv", ".parquet"]


@pytest.fixture
def weighted():
    rng = np.random.default_rng(0)
    counts = (7, 12, 5)
    return Snapshots.from_arrays(
        [rng.normal(size=(n, 2)) for n in counts],
        [0.0, 0.1 + 0.2, 2.0],
        [rng.uniform(size=n) for n in counts],
        ["Krt8", "Mt1, log"],
    )


def assert_same(snapshots, wanted):
    assert snapshots.names == wanted.names
    np.testing.assert_array_equal(snapshots.times, wanted.times)
    for a, b in zip(snapshots, wanted, strict=True):
        np.testing.assert_array_equal(a.points, b.points)
        np.testing.assert_allclose(a.weights, b.weights, rtol=1e-15)


def table(path, columns):
    """A csv or parquet file of these columns."""
    if path.suffix == ".csv":
        with path.open("w", newline="") as file:
            csv.writer(file).writerows([list(columns), *zip(*columns.values(), strict=True)])
    else:
        import pyarrow
        import pyarrow.parquet

        pyarrow.parquet.write_table(pyarrow.table(columns), path)
    return path


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_round_trip_keeps_everything(tmp_path, weighted, suffix):
    write_snapshots(weighted, tmp_path / f"a{suffix}")
    assert_same(read_snapshots(tmp_path / f"a{suffix}"), weighted)
    # A path may be text, and a second write replaces.
    write_snapshots(weighted, str(tmp_path / f"a{suffix}"))
    assert_same(read_snapshots(str(tmp_path / f"a{suffix}")), weighted)
    assert os.listdir(tmp_path) == [f"a{suffix}"]


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_the_suffix_may_be_in_capitals(tmp_path, weighted, suffix):
    path = tmp_path / f"a{suffix.upper()}"
    write_snapshots(weighted, path)
    assert_same(read_snapshots(path), weighted)
    assert os.listdir(tmp_path) == [path.name]


def test_npz_of_rows_with_times(tmp_path):
    X = np.arange(8.0).reshape(4, 2)
    t = np.array([1.0, 0.0, 1.0, 0.0])
    np.savez(tmp_path / "a.npz", X=X, t=t)
    snapshots = read_snapshots(tmp_path / "a.npz")
    assert snapshots.names == ("x1", "x2")
    assert snapshots.times.tolist() == [0.0, 1.0]
    assert sorted(snapshots.clouds[0][:, 0].tolist()) == [2.0, 6.0]


def test_npz_of_one_array_a_time_is_in_natural_order(tmp_path):
    arrays = {f"x{i}": np.full((2, 1), float(i)) for i in (10, 2, 1, 0)}
    np.savez(
        tmp_path / "a.npz", times=np.array([0.0, 0.1, 0.2, 1.0]), names=np.array(["gene"]), **arrays
    )
    snapshots = read_snapshots(tmp_path / "a.npz")
    assert [x[0, 0] for x in snapshots.clouds] == [0.0, 1.0, 2.0, 10.0]
    assert snapshots.names == ("gene",)


def test_npz_time_key_in_both_layouts(tmp_path):
    X = np.arange(8.0).reshape(4, 2)
    np.savez(tmp_path / "rows.npz", X=X, day=np.array([0.0, 0.0, 4.0, 4.0]))
    np.savez(tmp_path / "arrays.npz", a=X, b=X, days=np.array([0.0, 4.0]))
    assert read_snapshots(tmp_path / "rows.npz", "day").times.tolist() == [0.0, 4.0]
    assert read_snapshots(tmp_path / "arrays.npz", time_key="days").counts == (4, 4)


def test_npz_without_times_is_refused(tmp_path, refused):
    np.savez(tmp_path / "a.npz", X=np.zeros((4, 2)), day=np.zeros(4))
    with refused("'t'", "day", "--time-key"):
        read_snapshots(tmp_path / "a.npz")


def test_npz_with_more_arrays_than_times_is_refused(tmp_path, refused):
    np.savez(tmp_path / "a.npz", x0=np.zeros((4, 2)), x1=np.zeros((4, 2)), times=np.zeros(1))
    with refused("1 times for 2 clouds"):
        read_snapshots(tmp_path / "a.npz")


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_table_with_another_time_column(tmp_path, suffix):
    columns = {"gene": [1.0, 2.0, 3.0, 4.0], "day": [0, 0, 4, 4], "t": [5.0, 6.0, 7.0, 8.0]}
    snapshots = read_snapshots(table(tmp_path / f"a{suffix}", columns), time_key="day")
    assert snapshots.names == ("gene", "t")
    assert snapshots.times.tolist() == [0.0, 4.0]
    snapshots = read_snapshots(
        table(tmp_path / f"b{suffix}", {"time": [0, 0, 4, 4], "gene": [1, 2, 3, 4]})
    )
    assert (snapshots.names, snapshots.times.tolist()) == (("gene",), [0.0, 4.0])


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_table_without_times_coordinates_or_numbers_is_refused(tmp_path, refused, suffix):
    with refused("'t'", "day"):
        read_snapshots(table(tmp_path / f"a{suffix}", {"gene": [1.0, 2.0], "day": [0.0, 0.0]}))
    with refused("at least one coordinate"):
        read_snapshots(table(tmp_path / f"b{suffix}", {"t": [0.0, 0.0]}))
    with refused("'gene'", "'high' in row 2"):
        read_snapshots(table(tmp_path / f"c{suffix}", {"t": [0.0, 0.0], "gene": ["1", "high"]}))
    with refused("numeric times", "'D0'"):
        read_snapshots(table(tmp_path / f"d{suffix}", {"t": ["D0", "D0"], "gene": [1.0, 2.0]}))
    with refused("finite points"):
        read_snapshots(
            table(tmp_path / f"e{suffix}", {"t": [0.0, 0.0], "gene": [1.0, float("nan")]})
        )


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_table_with_missing_values_is_refused(tmp_path, refused, suffix):
    with refused("'gene'", "row 2"):
        read_snapshots(table(tmp_path / f"a{suffix}", {"t": [0.0, 0.0], "gene": [1.0, None]}))
    with refused("time"):
        read_snapshots(table(tmp_path / f"b{suffix}", {"t": [0.0, None], "gene": [1.0, 2.0]}))


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("t,x\n0,1\n0,2,3\n", "3 values in row 2"),
        ("t,x\n0,1\n0\n", "1 values in row 2"),
        ("t,x\n", "no rows"),
        ("", "no rows"),
        ("t;x\n0;1\n0;2\n", "t;x"),
    ],
)
def test_csv_with_ragged_missing_or_joined_rows_is_refused(tmp_path, refused, text, word):
    (tmp_path / "a.csv").write_text(text)
    with refused(word):
        read_snapshots(tmp_path / "a.csv")


def test_csv_with_a_byte_order_mark_blank_lines_and_spaces(tmp_path):
    (tmp_path / "a.csv").write_text("\ufefft, gene\n0, 1\n\n0, 2\n", encoding="utf-8")
    assert read_snapshots(tmp_path / "a.csv").names == ("gene",)


def test_csv_that_is_not_utf8_is_refused(tmp_path, refused):
    (tmp_path / "a.csv").write_bytes("t,Größe\n0,1\n0,2\n".encode("latin-1"))
    with refused("a.csv"):
        read_snapshots(tmp_path / "a.csv")


def test_csv_with_one_name_for_two_columns_loses_neither(tmp_path):
    (tmp_path / "a.csv").write_text("t,x,x\n0,1,2\n0,3,4\n")
    try:
        snapshots = read_snapshots(tmp_path / "a.csv")
    except InputError:
        return
    assert snapshots.n_dims == 2


@pytest.mark.parametrize("keep", [0, 10, 200, -30, -1])
@pytest.mark.parametrize("suffix", [".npz", ".parquet"])
def test_truncated_files_are_refused(tmp_path, refused, weighted, suffix, keep):
    path = tmp_path / f"a{suffix}"
    write_snapshots(weighted, path)
    path.write_bytes(path.read_bytes()[:keep])
    with refused(path.name):
        read_snapshots(path)
    gc.collect()  # a file left open would warn here, and a warning is an error


@pytest.mark.parametrize("suffix", [".npz", ".parquet"])
def test_a_damaged_byte_is_refused_or_read_over(tmp_path, weighted, suffix):
    path = tmp_path / f"a{suffix}"
    write_snapshots(weighted, path)
    whole = path.read_bytes()
    rng = np.random.default_rng(0)
    for place in rng.choice(len(whole), 300, replace=False):
        damaged = bytearray(whole)
        damaged[place] ^= 0xFF
        path.write_bytes(bytes(damaged))
        try:
            read_snapshots(path)
        except InputError:
            continue
    gc.collect()


def test_an_npy_file_called_npz_is_refused(tmp_path, refused):
    with (tmp_path / "a.npz").open("wb") as file:
        np.save(file, np.zeros((3, 2)))
    with refused("a.npz"):
        read_snapshots(tmp_path / "a.npz")


class Trap:
    """Leaves a file behind when it is unpickled."""

    def __init__(self, path):
        self.path = str(path)

    def __reduce__(self):
        return (os.mkdir, (self.path,))


def test_object_arrays_are_refused_and_never_unpickled(tmp_path, refused):
    trap = np.array([Trap(tmp_path / "sprung")] * 2, dtype=object)
    np.savez(tmp_path / "a.npz", X=trap, t=np.zeros(2))
    with refused("a.npz", "without object arrays"):
        read_snapshots(tmp_path / "a.npz")
    assert not (tmp_path / "sprung").exists()


def test_missing_files_folders_and_unknown_suffixes_are_refused(tmp_path, refused, weighted):
    with refused("no file at", ".parquet"):
        read_snapshots(tmp_path / "none.npz")
    with refused("no file at"):
        read_snapshots(tmp_path)
    (tmp_path / "a.xlsx").write_bytes(b"")
    with refused("'a.xlsx'"):
        read_snapshots(tmp_path / "a.xlsx")
    with refused("'a.txt'"):
        write_snapshots(weighted, tmp_path / "a.txt")
    with refused("no folder at"):
        write_snapshots(weighted, tmp_path / "none" / "a.csv")


@pytest.mark.parametrize("module", [npz_file, csv_file, parquet_file])
def test_a_failed_write_leaves_the_old_file(tmp_path, monkeypatch, weighted, module):
    suffix = {npz_file: ".npz", csv_file: ".csv", parquet_file: ".parquet"}[module]
    path = tmp_path / f"a{suffix}"
    write_snapshots(weighted, path)
    before = path.read_bytes()

    def half(snapshots, target):
        target.write_bytes(before[:20])
        raise OSError("no space left on device")

    monkeypatch.setattr(module, "write", half)
    with pytest.raises(OSError, match="no space left"):
        write_snapshots(weighted.select([0]), path)
    assert path.read_bytes() == before
    assert os.listdir(tmp_path) == [path.name]


@pytest.mark.parametrize("names", [("t", "x"), ("x", "w"), ("time", "x"), ("x", "X"), ("x", "x")])
@pytest.mark.parametrize("suffix", SUFFIXES)
def test_no_name_of_a_coordinate_loses_data(tmp_path, weighted, suffix, names):
    named = Snapshots(weighted.times, weighted.clouds, weighted.weights, names)
    path = tmp_path / f"a{suffix}"
    try:
        write_snapshots(named, path)
    except InputError:
        assert not path.exists()
        return
    assert_same(read_snapshots(path), named)
