import numpy as np
import pytest

from itofit.snapshots.clouds import Snapshots
from itofit.snapshots.scaling import Scaling


@pytest.fixture
def snapshots():
    rng = np.random.default_rng(0)
    clouds = [[5.0, -300.0] + [2.0, 100.0] * rng.normal(size=(n, 2)) for n in (50, 200)]
    return Snapshots.from_arrays(
        clouds, [0.0, 1.0], [rng.uniform(size=50), rng.uniform(size=200)], ["a", "b"]
    )


def test_every_snapshot_counts_the_same(snapshots):
    scaling = Scaling.fit(snapshots)
    pooled = np.concatenate(snapshots.clouds)
    w = np.concatenate([w / 2.0 for w in snapshots.weights])
    np.testing.assert_allclose(scaling.mean, w @ pooled, rtol=1e-12)
    np.testing.assert_allclose(scaling.sd, np.sqrt(w @ (pooled - w @ pooled) ** 2), rtol=1e-12)


def test_transformed_snapshots_have_mean_0_and_sd_1(snapshots):
    standard = Scaling.fit(snapshots).transform(snapshots)
    again = Scaling.fit(standard)
    np.testing.assert_allclose(again.mean, 0.0, atol=1e-12)
    np.testing.assert_allclose(again.sd, 1.0, rtol=1e-12)
    assert standard.names == ("a", "b")


def test_restore_and_inverse_undo_standardise(snapshots):
    scaling = Scaling.fit(snapshots)
    x = snapshots.clouds[0]
    z = scaling.standardise(x)
    np.testing.assert_allclose(scaling.restore(z), x, rtol=1e-12)
    np.testing.assert_allclose(scaling.inverse.standardise(z), x, rtol=1e-12)
    np.testing.assert_allclose(scaling.inverse.restore(x), z, rtol=1e-10)
    np.testing.assert_allclose(scaling.inverse.inverse.mean, scaling.mean, rtol=1e-12)


def test_identity_changes_nothing(snapshots):
    x = snapshots.clouds[0]
    np.testing.assert_array_equal(Scaling.identity(2).standardise(x), x)


@pytest.mark.parametrize("constant", [0.0, 0.1, -1e8])
def test_a_coordinate_that_does_not_vary_is_refused(refused, snapshots, constant):
    flat = snapshots.with_clouds(
        [np.column_stack([x[:, 0], np.full(len(x), constant)]) for x in snapshots.clouds]
    )
    with refused("zero variance in b", "drop that coordinate"):
        Scaling.fit(flat)


@pytest.mark.parametrize("unit", [1e-15, 1e15])
def test_units_scale_mean_and_sd(snapshots, unit):
    scaling = Scaling.fit(snapshots)
    other = Scaling.fit(snapshots.with_clouds([unit * x for x in snapshots.clouds]))
    np.testing.assert_allclose(other.mean, unit * scaling.mean, rtol=1e-12)
    np.testing.assert_allclose(other.sd, unit * scaling.sd, rtol=1e-12)
