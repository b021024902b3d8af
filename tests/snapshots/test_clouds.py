import numpy as np
import pytest

from itofit.snapshots.clouds import Snapshots


def clouds(*counts, n_dims=2, seed=0):
    rng = np.random.default_rng(seed)
    return [rng.normal(size=(n, n_dims)) for n in counts]


def as_rows(snapshots):
    return [a.tobytes() for a in (snapshots.times, *snapshots.clouds, *snapshots.weights)]


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_a_point_that_is_not_finite_is_refused(refused, value):
    x, y = clouds(5, 6)
    y[3, 1] = value
    with refused("t=1", "1 of 6 rows with NaN or inf"):
        Snapshots.from_arrays([x, y], [0.0, 1.0])


def test_repeated_times_are_refused(refused):
    with refused("each time once", "2 repeated"):
        Snapshots.from_arrays(clouds(5, 5, 5), [0.0, 2.0, 2.0])


def test_clouds_of_different_dimension_are_refused(refused):
    (x,) = clouds(5, n_dims=2)
    (y,) = clouds(5, n_dims=3)
    with refused("t=0: 2", "t=1: 3"):
        Snapshots.from_arrays([x, y], [0.0, 1.0])


@pytest.mark.parametrize("n", [0, 1])
def test_fewer_than_two_points_are_refused(refused, n):
    with refused("at least 2 points at t=1", f"found {n}."):
        Snapshots.from_arrays(clouds(5, n), [0.0, 1.0])


def test_rows_with_one_point_at_a_time_are_refused(refused):
    with refused("at least 2 points at t=3"):
        Snapshots.from_rows(np.zeros((3, 2)), [0.0, 0.0, 3.0])


@pytest.mark.parametrize("shape", [(4,), (2, 2, 2), (4, 0)])
def test_points_that_are_not_a_table_are_refused(refused, shape):
    with refused("(n_samples, n_dims)", str(shape)):
        Snapshots.from_arrays([np.zeros(shape)], [0.0])


def test_times_that_are_text_are_refused_and_shown(refused):
    X = np.zeros((4, 2))
    with refused("numeric times", "'D0'", "'D4'"):
        Snapshots.from_rows(X, ["D0", "D0", "D4", "D4"])
    with refused("numeric times", "'day 7'"):
        Snapshots.from_arrays([X, X], np.array(["0", "day 7"]))


def test_times_that_are_text_of_numbers_are_read():
    snapshots = Snapshots.from_rows(np.arange(8.0).reshape(4, 2), ["4.5", "0", "4.5", "0"])
    assert snapshots.times.tolist() == [0.0, 4.5]


def test_dates_are_refused_rather_than_read_as_nanoseconds(refused):
    days = np.array(
        ["2020-01-01", "2020-01-01", "2020-01-02", "2020-01-02"], dtype="datetime64[ns]"
    )
    with refused("numeric times"):
        Snapshots.from_rows(np.zeros((4, 2)), days)


@pytest.mark.parametrize("times", [[0.0], [0.0, 1.0, 2.0]])
def test_another_number_of_times_than_clouds_is_refused(refused, times):
    with refused("one time for each cloud", f"{len(times)} times for 2 clouds"):
        Snapshots.from_arrays(clouds(5, 5), times)


def test_no_clouds_are_refused(refused):
    with refused("at least one cloud"):
        Snapshots.from_arrays([], [])


def test_another_number_of_rows_than_times_is_refused(refused):
    with refused("(5, 2)", "(4,)"):
        Snapshots.from_rows(np.zeros((5, 2)), np.zeros(4))


@pytest.mark.parametrize("time", [np.nan, np.inf])
def test_a_time_that_is_not_finite_is_refused(refused, time):
    with refused("finite time"):
        Snapshots.from_arrays(clouds(5, 5), [0.0, time])
    with refused("finite time", "1 missing or infinite"):
        Snapshots.from_rows(np.zeros((3, 2)), [0.0, 0.0, time])


@pytest.mark.parametrize(
    "weights",
    [
        [1.0, 1.0],
        [1.0, 1.0, -0.5],
        [1.0, np.nan, 1.0],
        [1.0, np.inf, 1.0],
        [0.0, 0.0, 0.0],
        [[1.0, 1.0, 1.0]],
        ["a", "b", "c"],
    ],
)
def test_bad_weights_are_refused(refused, weights):
    with refused("weights"):
        Snapshots.from_arrays(clouds(3), [0.0], [weights])


def test_another_number_of_weights_than_clouds_or_rows_is_refused(refused):
    with refused("each of 2 snapshots", "found 1"):
        Snapshots.from_arrays(clouds(3, 3), [0.0, 1.0], [np.ones(3)])
    with refused("each of 4 rows", "(3,)"):
        Snapshots.from_rows(np.zeros((4, 2)), [0.0, 0.0, 1.0, 1.0], np.ones(3))


def test_text_among_the_points_is_refused(refused):
    with refused("numeric points"):
        Snapshots.from_arrays([[["a", 1.0], [2.0, 3.0]]], [0.0])


def test_another_number_of_names_is_refused(refused):
    with refused("2 names", "found 3"):
        Snapshots.from_arrays(clouds(3), [0.0], names=["a", "b", "c"])


def test_unsorted_times_are_sorted_with_their_clouds_and_weights():
    x, y, z = clouds(4, 5, 6)
    w = np.arange(1.0, 6.0)
    snapshots = Snapshots.from_arrays([x, y, z], [3.0, 1.0, 2.0], [np.ones(4), w, np.ones(6)])
    assert snapshots.times.tolist() == [1.0, 2.0, 3.0]
    assert snapshots.counts == (5, 6, 4)
    order = np.argsort(snapshots.clouds[0][:, 0])
    np.testing.assert_array_equal(snapshots.clouds[0][order], y[np.argsort(y[:, 0])])
    np.testing.assert_allclose(
        snapshots.weights[0][order], (w / 15.0)[np.argsort(y[:, 0])], rtol=1e-15
    )


def test_weights_are_normalised_and_default_to_equal():
    x, y = clouds(4, 5)
    snapshots = Snapshots.from_arrays([x, y], [0.0, 1.0], [[2.0, 2.0, 4.0, 0.0], np.full(5, 7.0)])
    assert sorted(snapshots.weights[0].tolist()) == [0.0, 0.25, 0.25, 0.5]
    np.testing.assert_allclose(snapshots.weights[1], 0.2, rtol=1e-15)
    np.testing.assert_array_equal(Snapshots.from_arrays([x], [0.0]).weights[0], np.full(4, 0.25))


def test_effective_count_is_the_square_of_the_sum_over_the_sum_of_squares():
    w = np.array([1.0, 2.0, 3.0, 0.0])
    snapshots = Snapshots.from_arrays(clouds(4, 7), [0.0, 1.0], [w, np.full(7, 3.0)])
    np.testing.assert_allclose(snapshots.effective_counts, (36.0 / 14.0, 7.0), rtol=1e-14)


@pytest.mark.parametrize("weighted", [False, True])
def test_the_order_of_rows_does_not_change_a_bit(weighted):
    rng = np.random.default_rng(1)
    X = rng.normal(size=(500, 3))
    t = rng.choice([0.0, 0.5, 2.0], size=500)
    X[:20] = X[20:40]  # some points twice
    w = rng.uniform(size=500) if weighted else None
    first = Snapshots.from_rows(X, t, w)
    for _ in range(10):
        order = rng.permutation(500)
        again = Snapshots.from_rows(X[order], t[order], None if w is None else w[order])
        assert as_rows(again) == as_rows(first)


@pytest.mark.parametrize("weighted", [False, True])
def test_rows_there_and_back_do_not_change_a_bit(weighted):
    rng = np.random.default_rng(2)
    weights = [rng.uniform(size=n) for n in (10, 49, 103)] if weighted else None
    first = Snapshots.from_arrays(clouds(10, 49, 103), [0.0, 1.0, 2.0], weights)
    X, t, w = first.to_rows()
    assert as_rows(Snapshots.from_rows(X, t, w)) == as_rows(first)


def rowwise_correlation(x, y):
    return np.corrcoef(x[:, 0], y[:, 0])[0, 1]


def test_identity_is_destroyed():
    n = 2000
    (x,) = clouds(n)
    assert rowwise_correlation(x, x + 1.0) > 0.999
    snapshots = Snapshots.from_arrays([x, x + 1.0, 2.0 * x], [0.0, 1.0, 2.0])
    # The correlation of independent rows has a standard error of 1 / sqrt(n); four of them.
    for i, j in [(0, 1), (0, 2), (1, 2)]:
        assert abs(rowwise_correlation(snapshots.clouds[i], snapshots.clouds[j])) < 4.0 / np.sqrt(n)
    # The order handed in is lost as well.
    assert abs(rowwise_correlation(snapshots.clouds[0], x)) < 4.0 / np.sqrt(n)


def test_identity_is_destroyed_between_separate_snapshots():
    n = 2000
    (x,) = clouds(n)
    early = Snapshots.from_arrays([x], [0.0])
    late = Snapshots.from_arrays([x + 1.0], [1.0])
    # As above: four standard errors of a correlation.
    assert abs(rowwise_correlation(early.clouds[0], late.clouds[0])) < 4.0 / np.sqrt(n)


def test_later_changes_of_the_input_do_not_reach_the_snapshots():
    (x,) = clouds(5)
    w = np.ones(5)
    snapshots = Snapshots.from_arrays([x], [0.0], [w])
    before = as_rows(snapshots)
    x[:] = 0.0
    w[:] = 9.0
    assert as_rows(snapshots) == before


def test_index_and_at():
    snapshots = Snapshots.from_arrays(clouds(4, 5, 6), [0.0, 0.1 + 0.2, 2.0], names=["a", "b"])
    assert snapshots.index(0.3) == 1
    assert snapshots.index(0.31) is None
    assert len(snapshots.at(2.0).points) == 6
    assert [s.time for s in snapshots] == snapshots.times.tolist()


def test_at_refuses_a_time_without_a_snapshot(refused):
    snapshots = Snapshots.from_arrays(clouds(4, 5), [0.0, 2.0])
    with refused("one of the times 0, 2", "found 1."):
        snapshots.at(1.0)


@pytest.mark.parametrize(
    "times",
    [
        pytest.param([0.0, 1e-9, 2e-9], id="nanoseconds in seconds"),
        pytest.param([1.6e9, 1.6e9 + 1.0, 1.6e9 + 2.0], id="seconds since 1970"),
    ],
)
def test_every_time_finds_its_own_snapshot_in_any_unit(times):
    snapshots = Snapshots.from_arrays(clouds(4, 5, 6), times)
    assert [snapshots.index(t) for t in times] == [0, 1, 2]
    assert [len(snapshots.at(t).points) for t in times] == [4, 5, 6]


def test_select_and_with_clouds_keep_the_rest():
    snapshots = Snapshots.from_arrays(clouds(4, 5, 6), [0.0, 1.0, 2.0], names=["a", "b"])
    part = snapshots.select([0, 2])
    assert (part.times.tolist(), part.counts, part.names) == ([0.0, 2.0], (4, 6), ("a", "b"))
    shifted = snapshots.with_clouds([x + 1.0 for x in snapshots.clouds])
    np.testing.assert_array_equal(shifted.clouds[1], snapshots.clouds[1] + 1.0)
    assert shifted.weights is snapshots.weights


def test_repr_tells_times_and_counts():
    assert (
        repr(Snapshots.from_arrays(clouds(4, 5), [0.0, 2.5]))
        == "Snapshots(2 times, 2 dims; t=0: 4, t=2.5: 5)"
    )
