"""Panels of days x bins: read as clouds, read with their pairs, and what is refused."""

import numpy as np
import pytest

from itofit import InputError, PairedSnapshots, Snapshots


def panel(n_days=30, n_bins=4):
    return np.random.default_rng(0).normal(size=(n_days, n_bins)) + np.arange(n_bins)


def days_of(snapshots, values, column):
    """The row of the panel that each point of a snapshot came from."""
    return [int(np.flatnonzero(values[:, column] == x)[0]) for x in snapshots.clouds[column][:, 0]]


def test_a_column_is_a_cloud_and_the_days_are_forgotten():
    values = panel()
    snapshots = Snapshots.from_panel(values, [0.0, 0.1, 0.3, 0.2])
    assert snapshots.times.tolist() == [0.0, 0.1, 0.2, 0.3]
    for cloud, column in zip(snapshots.clouds, (0, 1, 3, 2), strict=True):
        np.testing.assert_array_equal(np.sort(cloud[:, 0]), np.sort(values[:, column]))
    assert days_of(snapshots, values, 0) != days_of(snapshots, values, 1)


def test_several_coordinates_make_states():
    values = np.stack([panel(), -panel()], axis=2)
    snapshots = Snapshots.from_panel(values, range(4), names=("a", "b"))
    assert snapshots.n_dims == 2
    np.testing.assert_array_equal(snapshots.clouds[2][:, 0], -snapshots.clouds[2][:, 1])


def test_a_fraction_is_drawn_anew_for_every_snapshot():
    values = panel(40)
    snapshots = Snapshots.from_panel(values, range(4), fraction=0.5)
    assert snapshots.counts == (20,) * 4
    assert set(days_of(snapshots, values, 0)) != set(days_of(snapshots, values, 1))
    other = Snapshots.from_panel(values, range(4), fraction=0.5, random_state=1)
    assert set(days_of(other, values, 0)) != set(days_of(snapshots, values, 0))


def test_pairs_stay_together_in_no_order():
    values = panel()
    snapshots = PairedSnapshots.from_panel(values, [0.2, 0.0, 0.1, 0.3], names=["v"])
    together = np.concatenate(snapshots.clouds, axis=1)[:, [2, 0, 1, 3]]
    assert not np.array_equal(together, values)
    np.testing.assert_array_equal(
        together[np.argsort(together[:, 0])], values[np.argsort(values[:, 0])]
    )
    assert isinstance(snapshots.select([0, 2]), PairedSnapshots)
    assert isinstance(snapshots.with_clouds(snapshots.clouds), PairedSnapshots)
    assert snapshots.names == ("v",)


def test_what_is_missing_is_skipped_where_asked():
    values = panel()
    values[3, 2:] = np.nan
    values[7, 1] = np.nan
    assert Snapshots.from_panel(values, range(4), missing="skip").counts == (30, 29, 29, 29)
    assert PairedSnapshots.from_panel(values, range(4), missing="skip").counts == (28,) * 4


def with_entry(values, place, entry):
    changed = values.copy()
    changed[place] = entry
    return changed


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (lambda v: with_entry(v, (5, slice(2, None)), np.nan), "half-day? row 5 has 2"),
        (lambda v: with_entry(v, (5, 1), np.nan), "row 5 has 3 of 4 bins"),
        (lambda v: np.concatenate([v, v[4:5]]), "rows 4 and 30 are the same day"),
        (lambda v: [*v.tolist(), [1.0, 2.0]], "half-day with NaN"),
        (lambda v: with_entry(v, 2, np.inf), "row 2 (day), column 0 (bin)"),
        (lambda v: v[:, :3], "one time for each of 3 columns"),
        (lambda v: v.ravel(), "days x bins"),
    ],
)
@pytest.mark.parametrize("kind", [Snapshots, PairedSnapshots])
def test_bad_panels_are_named(kind, spoil, words):
    with pytest.raises(InputError) as fault:
        kind.from_panel(spoil(panel()), range(4))
    assert words in str(fault.value)


def test_labels_show_a_day_that_is_there_twice():
    days = [f"2024-01-{d:02d}" for d in (*range(1, 30), 3)]
    with pytest.raises(InputError, match=r"rows 2 and 29 are the same day \(2024-01-03\)"):
        Snapshots.from_panel(panel(), range(4), days=days)
    with pytest.raises(InputError, match="one label for each"):
        Snapshots.from_panel(panel(), range(4), days=days[:5])
    for bad in ({"fraction": 0.0}, {"fraction": 2}, {"missing": "drop"}):
        with pytest.raises(InputError):
            Snapshots.from_panel(panel(), range(4), **bad)
