"""Leaving a time out: what is fitted does not see it, whatever form the data have."""

import anndata
import numpy as np
import pytest
from sklearn.base import clone

from itofit import Collocation, Midpoint, Persistence, Snapshots, leave_out

DAYS = [0.0, 1.0, 2.0, 4.0]
N = 60


def cells(shift=0.0):
    """A cloud that drifts by (1, -1) a day in six genes and in an array; day 2 moved by `shift`."""
    rng = np.random.default_rng(0)
    t = np.repeat(DAYS, N)
    points = rng.normal(size=(len(t), 2)) + np.outer(t, [1.0, -1.0]) + shift * (t == 2.0)[:, None]
    adata = anndata.AnnData(points @ rng.normal(size=(2, 6)) + 0.1 * rng.normal(size=(len(t), 6)))
    adata.obs_names = [f"c{i}" for i in range(len(t))]
    adata.var_names = [f"g{i}" for i in range(6)]
    adata.obs["day"] = [f"D{day:g}" for day in t]
    adata.obsm["X_pca"] = points
    return adata


def test_the_day_is_scored_beside_its_floor():
    left_out = leave_out(cells(), day=2, model=Midpoint())
    assert left_out.time == 2.0
    assert left_out.kind == "interpolation"
    assert left_out.model.snapshots_.times.tolist() == [0.0, 1.0, 4.0]
    assert left_out.held_out.counts == (N,)
    assert left_out.forecast.times.tolist() == [2.0]
    # straight lines at constant speed are the truth here
    assert left_out.scorecard.verdict(2.0) == "at the floor"
    assert str(left_out).startswith("2 left out (interpolation)\n")


@pytest.mark.parametrize(
    "selection", [{}, {"n_pcs": 2}, {"genes": ["g0", "g3"]}], ids=["X_pca", "components", "genes"]
)
def test_nothing_fitted_sees_the_day(selection):
    here, shifted = (
        leave_out(cells(shift), day="D2", model=Persistence(), **selection) for shift in (0.0, 5.0)
    )
    for a, b in zip(here.model.snapshots_.clouds, shifted.model.snapshots_.clouds, strict=True):
        np.testing.assert_array_equal(a, b)
    assert not np.allclose(
        here.held_out.clouds[0].mean(axis=0), shifted.held_out.clouds[0].mean(axis=0), atol=0.1
    )


@pytest.mark.filterwarnings("ignore::itofit.errors.FitWarning")
def test_scaling_and_process_are_those_of_the_other_days():
    model = Collocation(1.0, degree=1, dt=0.25, random_state=0)
    here, shifted = (leave_out(cells(shift), day=2, model=model) for shift in (0.0, 5.0))
    np.testing.assert_array_equal(here.model.scaling_.mean, shifted.model.scaling_.mean)
    np.testing.assert_array_equal(here.model.drift(np.zeros(2)), shifted.model.drift(np.zeros(2)))
    alone = clone(model).fit(here.model.snapshots_)
    np.testing.assert_array_equal(here.model.drift(np.zeros(2)), alone.drift(np.zeros(2)))


def test_the_last_day_is_an_extrapolation():
    left_out = leave_out(cells(), day="D4", model=Persistence())
    assert left_out.kind == "extrapolation"
    assert (
        left_out.scorecard.verdict(4.0) == "worse than persistence"
        or not left_out.scorecard.at(4.0)["W1"].at_floor
    )


def test_snapshots_will_do_as_well():
    rng = np.random.default_rng(0)
    snapshots = Snapshots.from_arrays([rng.normal(size=(30, 2)) + t for t in DAYS], DAYS)
    left_out = leave_out(snapshots, 1.0, model=Midpoint())
    assert left_out.model.snapshots_.times.tolist() == [0.0, 2.0, 4.0]


def test_a_model_given_is_left_as_it_was():
    model = Persistence()
    leave_out(cells(), day=1, model=model)
    assert not hasattr(model, "snapshots_")


def test_a_time_that_cannot_be_left_out_is_refused(refused):
    with refused("a time after the first, of three or more", "0 of 0, 1, 2, 4"):
        leave_out(cells(), day=0)
    with refused("3 of 0, 1, 2, 4"):
        leave_out(cells(), day="D3")
    with refused("a label with a number in it", "'early'"):
        leave_out(cells(), day="early")
    with refused("a label with a number in it", "'early'"):
        leave_out(Snapshots.from_arrays([np.zeros((2, 1))] * 3, [0.0, 1.0, 2.0]), "early")
    with refused("an AnnData, or Snapshots", "ndarray"):
        leave_out(np.zeros((4, 2)), day=1)
    with refused("obsm has X_pca"):
        leave_out(cells(), day=1, rep="X_umap")
