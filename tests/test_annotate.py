"""A drift written into the user's cells: what plotting reads, where it came from, nothing else."""

import copy
import shlex

import anndata
import jax.numpy as jnp
import numpy as np
import pytest

from itofit import Collocation, ItoProcess, Persistence
from itofit.process import FeatureDrift
from itofit.process.clock import Clock
from itofit.process.features import affine

# Three small clouds, plainly fitted.
pytestmark = pytest.mark.filterwarnings("ignore::itofit.errors.FitWarning")

N = 40


def cells():
    """Two coordinates that shrink towards 0 at rate 1, and a linear map of them as embedding."""
    rng = np.random.default_rng(0)
    t = np.repeat([0.0, 0.3, 0.6], N)
    points = (rng.normal(size=(len(t), 2)) + [3.0, -2.0]) * np.exp(-t)[:, None]
    adata = anndata.AnnData(rng.poisson(3.0, size=(len(t), 3)).astype(np.float32))
    adata.obs_names = [f"c{i}" for i in range(len(t))]
    adata.var_names = ["a", "b", "c"]
    adata.obs["day"] = t
    adata.obsm["X_pca"] = points
    adata.obsm["X_umap"] = points @ np.array([[0.0, 2.0], [-1.0, 0.0]])
    return adata


def fitted(**selection):
    model = Collocation(0.1, degree=1, dt=0.1, random_state=0)
    return model.fit(cells(), time_key="day", **selection)


@pytest.fixture(scope="module")
def model():
    """Of the array `X_pca`; nobody changes it."""
    return fitted(rep="X_pca")


def test_the_drift_is_written_under_the_names_that_plotting_reads(model):
    adata = cells()
    assert model.annotate(adata) is None
    drift = model.drift(adata.obsm["X_pca"])
    np.testing.assert_array_equal(adata.obsm["itofit_drift"], drift)
    np.testing.assert_allclose(adata.obs["itofit_speed"], np.hypot(*drift.T))
    # scvelo reads obsm[vkey + "_" + basis] beside obsm["X_" + basis]
    np.testing.assert_array_equal(adata.obsm["itofit_drift_pca"], drift)
    assert adata.uns["itofit"]["method"] == "collocation"
    assert adata.uns["itofit"]["rep"] == "X_pca"
    assert set(adata.obs) == {"day", "itofit_speed"}
    assert set(adata.obsm) == {"X_pca", "X_umap", "itofit_drift", "itofit_drift_pca"}


def test_a_drift_that_changes_with_time_is_that_of_each_cells_own(model):
    """A model whose drift is the time itself, in one coordinate: which time is read is then seen
    without a fit.
    """
    adata = cells()
    model = copy.copy(model)
    clock = Clock.over(model.snapshots_.times)
    drift = FeatureDrift(affine(3, clock=2).features, jnp.zeros((4, 2)).at[3, 0].set(1.0), clock)
    model.standard_process_ = ItoProcess(drift, model.standard_process_.diffusion)
    adata.obs["day"] = [f"D{t:g}" for t in adata.obs["day"]]
    model.annotate(adata)
    by_day = adata.obsm["itofit_drift"][:, 0].reshape(3, N) / model.scaling_.sd[0]
    np.testing.assert_allclose(
        by_day, np.sqrt(3.0) * np.repeat([[-1.0], [0.0], [1.0]], N, axis=1), atol=1e-5
    )


def test_a_copy_leaves_the_cells_alone(model):
    adata = cells()
    made = model.annotate(adata, copy=True)
    assert "itofit_drift" in made.obsm
    assert "itofit_drift" not in adata.obsm
    assert "itofit_speed" not in adata.obs


def test_arrows_are_drawn_in_another_embedding(model):
    adata = cells()
    model.annotate(adata, basis="umap")
    expected = adata.obsm["itofit_drift"] @ np.array([[0.0, 2.0], [-1.0, 0.0]])
    arrows = adata.obsm["itofit_drift_umap"]
    # a linear map is found up to the ridge of 1 %
    assert np.linalg.norm(arrows - expected) < 0.05 * np.linalg.norm(expected)


def test_components_of_a_fit_are_written_beside_their_drift(tmp_path):
    model = fitted(n_pcs=2)
    model.save(tmp_path / "run")
    adata = cells()
    Collocation.load(tmp_path / "run").annotate(adata)
    np.testing.assert_allclose(
        adata.obsm["itofit_drift"], model.drift(adata.obsm["X_itofit_pca"]), rtol=1e-5
    )
    assert "itofit_drift_itofit_pca" in adata.obsm
    adata.write_h5ad(tmp_path / "annotated.h5ad")


def test_cells_need_no_times_to_be_annotated(model):
    adata = cells()
    del adata.obs["day"]
    model.annotate(adata)
    assert "itofit_drift" in adata.obsm


def test_what_cannot_be_annotated_is_refused(refused, model):
    adata = cells()
    with refused("basis to name an embedding", "'tsne', obsm has X_pca, X_umap"):
        model.annotate(adata, basis="tsne")
    assert "itofit_drift" not in adata.obsm
    del adata.obsm["X_pca"]
    with refused("'X_pca', obsm has X_umap"):
        model.annotate(adata)
    points = cells().obsm["X_pca"]
    without_cells = Collocation(0.1, degree=1).fit(points, cells().obs["day"].to_numpy())
    with refused("fitted to an AnnData", "fitted to arrays"):
        without_cells.annotate(adata)
    assert not hasattr(Persistence(), "annotate")


@pytest.fixture
def command():
    from typer.testing import CliRunner

    from itofit.cli.main import app

    return lambda line: CliRunner().invoke(app, shlex.split(line), catch_exceptions=False).output


def test_the_command_line_goes_all_the_way(command, model, tmp_path):
    file = tmp_path / "cells.h5ad"
    run = tmp_path / "run"
    cells().write_h5ad(file)
    options = "--time-key day --rep X_pca --method persistence"
    assert "t=0.3: 40" in command(f"fit {file} {options} --out {run}")
    model.save(run, overwrite=True)  # a process, of a degree that stays finite
    command(f"forecast {run} --at 0.45 --out {tmp_path}/later.h5ad")
    later = anndata.read_h5ad(tmp_path / "later.h5ad")
    assert later.obs["day"].unique().tolist() == [0.45]
    assert later.obsm["X_pca"].shape == (N, 2)
    command(f"annotate {run} {file} --basis umap --out {tmp_path}/drawn.h5ad")
    assert "itofit_drift_umap" in anndata.read_h5ad(tmp_path / "drawn.h5ad").obsm
    assert "at half size" in command(f"score {run} {file}")
    left_out = command(f"leave-out {file} --day 0.3 --rep X_pca --method midpoint")
    assert left_out.startswith("0.3 left out (interpolation)")


def test_components_are_asked_for_on_the_command_line(command, tmp_path):
    file = tmp_path / "cells.h5ad"
    run = tmp_path / "run"
    cells().write_h5ad(file)
    command(f"fit {file} --time-key day --n-pcs 2 --method persistence --out {run}")
    command(f"forecast {run} --at 0.5 --out {tmp_path}/later.h5ad")
    later = anndata.read_h5ad(tmp_path / "later.h5ad")
    assert later.var_names.tolist() == ["a", "b", "c"]
    assert later.obsm["X_itofit_pca"].shape == (N, 2)
