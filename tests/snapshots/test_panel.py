"""Panels of days x bins: read as clouds, read with their pairs, and what is refused."""

import numpy as np
import pytest

from itofit import InputError, PairedSnapshots, Snapshots


def panel(n_days=30, n_bins=4):
    return np.random.default_rng(0).normal(size=(n_days, n_bins)) + np.arange(n_bins)


def test_a_column_is_a_cloud_and_the_days_are_forgotten():
    values = panel()
    found = Snapshots.from_panel(values, [0.0, 0.1, 0.3, 0.2])
    assert found.times.tolist() == [0.0, 0.1, 0.2, 0.3]
    for cloud, column in zip(found.clouds, (0, 1, 3, 2), strict=True):
        np.testing.assert_array_equal(np.sort(cloud[:, 0]), np.sort(values[:, column]))
    rows = [[np.flatnonzero(values[:, c] == x)[0] for x in found.clouds[k][:, 0]] for k, c in enumerate((0, 1))]
    assert rows[0] != rows[1]


def test_several_coordinates_make_states():
    values = np.stack([panel(), -panel()], axis=2)
    found = Snapshots.from_panel(values, range(4), names=("a", "b"))
    assert found.n_dims == 2
    np.testing.assert_array_equal(found.clouds[2][:, 0], -found.clouds[2][:, 1])


def test_a_share_is_drawn_anew_for_every_snapshot():
    values = panel(40)
    found = Snapshots.from_panel(values, range(4), share=0.5)
    assert found.counts == (20,) * 4
    days = [{int(np.flatnonzero(values[:, k] == x)[0]) for x in found.clouds[k][:, 0]} for k in range(4)]
    assert days[0] != days[1]
    other = Snapshots.from_panel(values, range(4), share=0.5, random_state=1)
    assert not np.array_equal(np.sort(other.clouds[0], axis=0), np.sort(found.clouds[0], axis=0))


def test_pairs_are_kept_in_no_order():
    values = panel()
    found = PairedSnapshots.from_panel(values, [0.2, 0.0, 0.1, 0.3], names=["v"])
    together = np.concatenate(found.clouds, axis=1)[:, [2, 0, 1, 3]]
    assert not np.array_equal(together, values)
    np.testing.assert_array_equal(together[np.argsort(together[:, 0])], values[np.argsort(values[:, 0])])
    assert isinstance(found.select([0, 2]), PairedSnapshots)
    assert isinstance(found.with_clouds(found.clouds), PairedSnapshots)
    assert found.names == ("v",)


def test_what_is_missing_is_skipped_where_asked():
    values = panel()
    values[3, 2:], values[7, 1] = np.nan, np.nan
    assert Snapshots.from_panel(values, range(4), missing="skip").counts == (30, 29, 29, 29)
    assert PairedSnapshots.from_panel(values, range(4), missing="skip").counts == (28,) * 4


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (
            lambda v: np.where(np.arange(4) < 2, v, np.where(np.arange(30)[:, None] == 5, np.nan, v)),
            "half-day? row 5 has 2",
        ),
        (lambda v: np.where((np.arange(30)[:, None] == 5) & (np.arange(4) == 1), np.nan, v), "row 5 has 3 of 4 bins"),
        (lambda v: np.concatenate([v, v[4:5]]), "rows 4 and 30 are the same day"),
        (lambda v: [*v.tolist(), [1.0, 2.0]], "half-day with NaN"),
        (lambda v: np.where(np.arange(30)[:, None] == 2, np.inf, v), "row 2 (day), column 0 (bin)"),
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
    for bad in ({"share": 0.0}, {"share": 2}, {"missing": "drop"}):
        with pytest.raises(InputError):
            Snapshots.from_panel(panel(), range(4), **bad)
