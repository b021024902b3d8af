"""A drift written into the user's cells: what plotting reads, where it came from, and nothing else."""

import anndata
import jax.numpy as jnp
import numpy as np
import pytest

from itofit import Collocation, ItoProcess, Persistence
from itofit.process import FeatureDrift
from itofit.process.clock import Clock
from itofit.process.features import affine

pytestmark = pytest.mark.filterwarnings("ignore::itofit.errors.FitWarning")  # three small clouds, plainly fitted

N = 40


def cells():
    """Two coordinates that shrink towards 0 at rate 1, and an embedding that is a linear map of them."""
    rng = np.random.default_rng(0)
    t = np.repeat([0.0, 0.3, 0.6], N)
    points = (rng.normal(size=(len(t), 2)) + [3.0, -2.0]) * np.exp(-t)[:, None]
    adata = anndata.AnnData(rng.poisson(3.0, size=(len(t), 3)).astype(np.float32))
    adata.obs_names, adata.var_names = [f"c{i}" for i in range(len(t))], ["a", "b", "c"]
    adata.obs["day"] = t
    adata.obsm["X_pca"] = points
    adata.obsm["X_umap"] = points @ np.array([[0.0, 2.0], [-1.0, 0.0]])
    return adata


def fitted(**how):
    return Collocation(0.1, degree=1, dt=0.1, random_state=0).fit(cells(), time_key="day", **how)


def test_the_drift_is_written_under_the_names_that_plotting_reads():
    adata, model = cells(), fitted(rep="X_pca")
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


def test_a_drift_that_changes_with_time_is_that_of_each_cells_own():
    """A model whose drift is the time itself, in one coordinate: no fit is needed to see which time is read."""
    adata, model = cells(), fitted(rep="X_pca")
    clock = Clock.over(model.snapshots_.times)
    drift = FeatureDrift(affine(3, clock=2).features, jnp.zeros((4, 2)).at[3, 0].set(1.0), clock)
    model.standard_process_ = ItoProcess(drift, model.standard_process_.diffusion)
    adata.obs["day"] = [f"D{t:g}" for t in adata.obs["day"]]
    model.annotate(adata)
    by_day = adata.obsm["itofit_drift"][:, 0].reshape(3, N) / model.scaling_.sd[0]
    np.testing.assert_allclose(by_day, np.sqrt(3.0) * np.repeat([[-1.0], [0.0], [1.0]], N, axis=1), atol=1e-5)


def test_a_copy_leaves_the_cells_alone():
    adata = cells()
    made = fitted(rep="X_pca").annotate(adata, copy=True)
    assert "itofit_drift" in made.obsm
    assert "itofit_drift" not in adata.obsm
    assert "itofit_speed" not in adata.obs


def test_arrows_are_drawn_in_another_embedding():
    adata = cells()
    fitted(rep="X_pca").annotate(adata, basis="umap")
    wanted = adata.obsm["itofit_drift"] @ np.array([[0.0, 2.0], [-1.0, 0.0]])
    found = adata.obsm["itofit_drift_umap"]
    # a linear map is found up to the ridge of 1 %
    assert np.linalg.norm(found - wanted) < 0.05 * np.linalg.norm(wanted)


def test_components_of_a_fit_are_written_beside_their_drift(tmp_path):
    model = fitted(n_pcs=2)
    model.save(tmp_path / "run")
    adata = cells()
    Collocation.load(tmp_path / "run").annotate(adata)
    np.testing.assert_allclose(adata.obsm["itofit_drift"], model.drift(adata.obsm["X_itofit_pca"]), rtol=1e-5)
    assert "itofit_drift_itofit_pca" in adata.obsm
    adata.write_h5ad(tmp_path / "annotated.h5ad")


def test_cells_need_no_times_to_be_annotated():
    adata = cells()
    del adata.obs["day"]
    fitted(rep="X_pca").annotate(adata)
    assert "itofit_drift" in adata.obsm


def test_what_cannot_be_annotated_is_refused(refused):
    adata, model = cells(), fitted(rep="X_pca")
    with refused("basis to name an embedding", "'tsne', obsm has X_pca, X_umap"):
        model.annotate(adata, basis="tsne")
    assert "itofit_drift" not in adata.obsm
    del adata.obsm["X_pca"]
    with refused("'X_pca', obsm has X_umap"):
        model.annotate(adata)
    with refused("fitted to an AnnData", "fitted to arrays"):
        Collocation(0.1, degree=1).fit(cells().obsm["X_pca"], cells().obs["day"].to_numpy()).annotate(adata)
    assert not hasattr(Persistence(), "annotate")


@pytest.fixture
def command():
    from typer.testing import CliRunner

    from itofit.cli.main import app

    return lambda *words: CliRunner().invoke(app, [str(word) for word in words], catch_exceptions=False)


def test_the_command_line_goes_all_the_way(command, tmp_path):
    cells().write_h5ad(tmp_path / "cells.h5ad")
    run, how = tmp_path / "run", ("--time-key", "day", "--rep", "X_pca", "--method", "persistence")
    assert "t=0.3: 40" in command("fit", tmp_path / "cells.h5ad", *how, "--out", run).output
    fitted(rep="X_pca").save(run, overwrite=True)  # a process, of a degree that stays finite
    command("forecast", run, "--at", "0.45", "--out", tmp_path / "later.h5ad")
    later = anndata.read_h5ad(tmp_path / "later.h5ad")
    assert later.obs["day"].unique().tolist() == [0.45]
    assert later.obsm["X_pca"].shape == (N, 2)
    command("annotate", run, tmp_path / "cells.h5ad", "--basis", "umap", "--out", tmp_path / "drawn.h5ad")
    assert "itofit_drift_umap" in anndata.read_h5ad(tmp_path / "drawn.h5ad").obsm
    assert "at half size" in command("score", run, tmp_path / "cells.h5ad").output
    left = command("leave-out", tmp_path / "cells.h5ad", "--day", "0.3", "--rep", "X_pca", "--method", "midpoint")
    assert left.output.startswith("0.3 left out (interpolation)")


def test_components_are_asked_for_on_the_command_line(command, tmp_path):
    cells().write_h5ad(tmp_path / "cells.h5ad")
    how = ("--time-key", "day", "--n-pcs", "2", "--method", "persistence")
    command("fit", tmp_path / "cells.h5ad", *how, "--out", tmp_path / "run")
    command("forecast", tmp_path / "run", "--at", "0.5", "--out", tmp_path / "later.h5ad")
    later = anndata.read_h5ad(tmp_path / "later.h5ad")
    assert later.var_names.tolist() == ["a", "b", "c"]
    assert later.obsm["X_itofit_pca"].shape == (N, 2)
