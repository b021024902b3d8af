"""AnnData in: times as users write them, sparse, layered and backed cells, and refusals."""

import anndata
import numpy as np
import pandas as pd
import pytest
import scipy.sparse
from sklearn.decomposition import PCA

from itofit import Persistence, Snapshots, from_anndata, read_snapshots, write_snapshots
from itofit.snapshots import CellSelection
from itofit.snapshots.anndata_file import cell_points, cell_times, cells_like

N = 30
GENES = ["Mt1", "Mt2", "Tdh", "Gsn"]


def cells(days=None, kind=np.asarray):
    rng = np.random.default_rng(0)
    counts = rng.poisson(2.0, size=(N, 4)).astype(float)
    adata = anndata.AnnData(kind(counts))
    adata.var_names = GENES
    adata.obs_names = [f"cell{i}" for i in range(N)]
    adata.obs["day"] = np.repeat([0.0, 2.0, 4.0], N // 3) if days is None else days
    adata.obsm["X_pca"] = rng.normal(size=(N, 3))
    adata.layers["imputed"] = kind(counts + 0.5)
    return adata


def same(snapshots, points, days):
    assert snapshots.times.tolist() == sorted(set(days))
    for t, cloud in zip(snapshots.times, snapshots.clouds, strict=True):
        observed = points[np.asarray(days) == t]
        np.testing.assert_allclose(cloud[np.lexsort(cloud.T)], observed[np.lexsort(observed.T)])


DAYS = np.repeat([0.0, 2.0, 4.5], N // 3)
TIMES = {
    "floats": DAYS,
    "integers": np.repeat([0, 2, 4], N // 3),
    "labels": np.repeat(["D0", "D2", "D4.5"], N // 3),
    "labels with words": np.repeat(["day 0", "Day 2 ", "day4.5"], N // 3),
    "labels with units": np.repeat(["0h", "2h", "4.5h"], N // 3),
    "numbers as text": np.repeat(["0", "2", "4.5"], N // 3),
    "categories of labels": pd.Categorical(np.repeat(["E0", "E2", "E4.5"], N // 3)),
    "categories of numbers": pd.Categorical(DAYS),
    "time differences": pd.to_timedelta(24 * DAYS, unit="h"),
}


@pytest.mark.parametrize("name", TIMES)
def test_times_as_users_write_them(name):
    wanted = np.repeat([0.0, 2.0, 4.0], N // 3) if name == "integers" else DAYS
    np.testing.assert_allclose(cell_times(cells(TIMES[name]), "day"), wanted)


BAD_TIMES = {
    "words": (np.repeat(["early", "mid", "D4"], N // 3), ("'early', 'mid'", "labels alike")),
    "two kinds of label": (np.repeat(["D0", "E2", "D4"], N // 3), ("'D0', 'D4', 'E2'",)),
    "dates": (
        pd.to_datetime(np.repeat(["2024-01-01", "2024-01-03", "2024-01-05"], N // 3)),
        ("2024-01-01",),
    ),
    "truth values": (np.arange(N) % 2 == 0, ("'False', 'True'",)),
    "missing": (np.where(np.arange(N) < 3, np.nan, DAYS), ("3 of 30 cells", "notna()")),
}


@pytest.mark.parametrize("name", BAD_TIMES)
def test_times_that_cannot_be_read_are_shown(name, refused):
    column, words = BAD_TIMES[name]
    with refused(*words):
        from_anndata(cells(column), time_key="day", rep="X_pca")


def test_an_array_of_obsm_is_read():
    adata = cells()
    snapshots = from_anndata(adata, time_key="day", rep="X_pca")
    assert snapshots.names == ("pca1", "pca2", "pca3")
    same(snapshots, adata.obsm["X_pca"], adata.obs["day"].tolist())
    adata.obsm["umap"] = pd.DataFrame(
        adata.obsm["X_pca"][:, :2], index=adata.obs_names, columns=["u", "v"]
    )
    assert from_anndata(adata, time_key="day", rep="umap").names == ("u", "v")


@pytest.mark.parametrize("kind", [np.asarray, scipy.sparse.csr_matrix, scipy.sparse.csc_array])
@pytest.mark.parametrize("layer", [None, "imputed"])
@pytest.mark.parametrize("file", [False, True])
def test_genes_are_read_from_dense_sparse_layered_and_backed_cells(kind, layer, file, tmp_path):
    adata = cells(kind=kind)
    wanted = np.asarray(cells().X if layer is None else cells().layers[layer])[:, [2, 0]]
    if file:
        path = tmp_path / "cells.h5ad"
        adata.write_h5ad(path)
        snapshots = read_snapshots(path, "day", genes=["Tdh", "Mt1"], layer=layer)
    else:
        snapshots = from_anndata(adata, time_key="day", genes=["Tdh", "Mt1"], layer=layer)
    assert snapshots.names == ("Tdh", "Mt1")
    same(snapshots, wanted, adata.obs["day"].tolist())


def test_nothing_of_the_users_object_is_changed():
    adata = cells(kind=scipy.sparse.csr_matrix)
    before = cells(kind=scipy.sparse.csr_matrix)
    Persistence().fit(adata, time_key="day", rep="X_pca")
    Persistence().fit(adata, time_key="day", genes=GENES)
    assert list(adata.obs) == list(before.obs)
    assert list(adata.obsm) == list(before.obsm)
    assert dict(adata.uns) == {}
    np.testing.assert_array_equal(adata.X.toarray(), before.X.toarray())


def test_every_method_fits_an_anndata():
    adata = cells(TIMES["labels"])
    model = Persistence().fit(adata, time_key="day", rep="X_pca")
    assert model.snapshots_.counts == (10, 10, 10)
    assert model.forecast([3.0]).names == ("pca1", "pca2", "pca3")


def test_what_is_not_there_is_named(refused):
    adata = cells()
    with refused("time_key", "None, with the columns day"):
        from_anndata(adata, rep="X_pca")
    with refused("'time'"):
        from_anndata(adata, time_key="time", rep="X_pca")
    with refused("obsm has X_pca"):
        from_anndata(adata, time_key="day")
    with refused("'X_umap', obsm has X_pca"):
        from_anndata(adata, time_key="day", rep="X_umap")
    with refused("mt1 not among 4 genes"):
        from_anndata(adata, time_key="day", genes=["mt1", "Mt2"])
    with refused("each once"):
        from_anndata(adata, time_key="day", genes=["Mt1", "Mt1"])
    with refused("'raw', there are imputed"):
        from_anndata(adata, time_key="day", genes=["Mt1"], layer="raw")
    with refused("rep='X_pca', genes='Mt1'"):
        from_anndata(adata, time_key="day", rep="X_pca", genes=["Mt1"])
    with refused("time_key with an AnnData", "found t"):
        Persistence().fit(adata, adata.obs["day"])
    with refused("rep with an AnnData"):
        Persistence().fit(np.zeros((4, 2)), np.arange(4.0), rep="X_pca")


def test_unknown_words_and_wrong_types_are_refused(refused, tmp_path):
    with refused("time_key, rep, genes, layer, n_pcs", "found basis, use_rep"):
        from_anndata(cells(), time_key="day", basis="umap", use_rep="X_pca")
    with refused("time_key, rep, genes, layer, n_pcs", "found use_rep"):
        np.savez(tmp_path / "a.npz", x0=np.zeros((3, 2)), times=[0.0])
        read_snapshots(tmp_path / "a.npz", use_rep="X_pca")
    with refused("time_key as text", "found 3"):
        CellSelection.of({"time_key": 3})
    with refused("rep as text"):
        CellSelection.of({"rep": ["X_pca"]})
    with refused("layer as text"):
        CellSelection.of({"layer": 1})
    with refused("genes as a list of names"):
        CellSelection.of({"genes": 3})
    with refused("n_pcs as a whole number", "found 2.5"):
        CellSelection.of({"n_pcs": 2.5})
    with refused("n_pcs as a whole number", "found True"):
        CellSelection.of({"n_pcs": True})


def test_a_selection_is_the_keywords_that_made_it():
    words = {"time_key": "day", "genes": ["Mt1", "Tdh"], "layer": None, "n_pcs": np.int64(2)}
    selection = CellSelection.of(words)
    assert selection == CellSelection(time_key="day", genes=("Mt1", "Tdh"), n_pcs=2)
    assert selection.named == {"time_key": "day", "genes": ("Mt1", "Tdh"), "n_pcs": 2}
    assert CellSelection.of({"genes": "Mt1"}).genes == ("Mt1",)
    same(from_anndata(cells(), **words | {"n_pcs": None}), cells().X[:, [0, 2]], cells().obs["day"])


def test_files_that_are_none_are_refused(refused, tmp_path):
    (tmp_path / "cells.h5ad").write_bytes(b"not an hdf5 file")
    with refused("cells.h5ad to be a complete h5ad file"):
        read_snapshots(tmp_path / "cells.h5ad", "day", rep="X_pca")
    np.savez(tmp_path / "a.npz", x0=np.zeros((3, 2)), times=[0.0])
    with refused("rep with an .h5ad file"):
        read_snapshots(tmp_path / "a.npz", rep="X_pca")


def test_clouds_are_written_and_read_back(tmp_path):
    snapshots = from_anndata(cells(), time_key="day", rep="X_pca")
    write_snapshots(snapshots, tmp_path / "out.h5ad")
    back = read_snapshots(tmp_path / "out.h5ad", "day", rep="X_pca")
    assert back.names == snapshots.names
    for a, b in zip(back.clouds, snapshots.clouds, strict=True):
        np.testing.assert_allclose(a[np.lexsort(a.T)], b[np.lexsort(b.T)], rtol=1e-6)
    adata = anndata.read_h5ad(tmp_path / "out.h5ad")
    assert set(adata.obs) == {"day"}


def grid(days=DAYS, kind=np.asarray):
    """Cells with these labels, and genes that lie on two components."""
    adata = cells(days, kind)
    rng = np.random.default_rng(1)
    table = rng.normal(size=(N, 2)) @ rng.normal(size=(2, 4)) + 5.0
    adata.X = kind(table)
    return adata


def test_principal_components_are_those_of_scikit_learn_and_lead_back():
    adata = grid()
    snapshots = from_anndata(adata, time_key="day", n_pcs=2)
    assert snapshots.names == ("PC1", "PC2")
    reference = PCA(2, svd_solver="full").fit(adata.X)
    table = np.asarray(adata.X)
    wanted = reference.transform(table)
    signs = np.sign(np.sum(cell_points(adata, snapshots.space) * wanted, axis=0))
    np.testing.assert_allclose(cell_points(adata, snapshots.space), signs * wanted, atol=1e-5)
    # the genes have two components, so that nothing is lost on the way back
    back = snapshots.to_anndata(adata)
    assert back.var_names.tolist() == GENES
    np.testing.assert_allclose(
        np.sort(np.asarray(back.X), axis=0), np.sort(table, axis=0), atol=1e-5
    )


def components(adata):
    """Two components of the genes, fitted on these cells."""
    return cell_points(adata, from_anndata(adata, time_key="day", n_pcs=2).space)


@pytest.mark.parametrize("kind", [scipy.sparse.csr_matrix, scipy.sparse.csc_array])
def test_components_of_sparse_cells_are_those_of_dense_ones(kind):
    dense = components(cells())
    sparse = components(cells(kind=kind))
    np.testing.assert_allclose(sparse, dense, atol=1e-5)


def test_components_see_the_cells_they_are_fitted_on_and_no_others():
    adata = grid()
    other = grid()
    other.X[DAYS == 2.0] += 7.0
    training = [a[DAYS != 2.0] for a in (adata, other)]
    first, second = (from_anndata(a, time_key="day", n_pcs=2).space for a in training)
    np.testing.assert_array_equal(first.axes.axes, second.axes.axes)
    held_out = cells_like(adata[DAYS == 2.0], first)
    assert held_out.times.tolist() == [2.0]
    assert held_out.names == ("PC1", "PC2")


def test_too_many_components_are_refused(refused):
    with refused("n_pcs as a whole number from 1 to 3", "found 4"):
        from_anndata(cells(), time_key="day", n_pcs=4)
    with refused("rep='X_pca'", "n_pcs=2"):
        from_anndata(cells(), time_key="day", rep="X_pca", n_pcs=2)


@pytest.mark.parametrize("name", TIMES)
def test_a_forecast_writes_its_times_as_the_cells_do(name):
    adata = cells(TIMES[name])
    model = Persistence().fit(adata, time_key="day", rep="X_pca")
    made = model.forecast([2.0, 3.0]).to_anndata(like=adata)
    assert set(made.obsm) == {"X_pca"}
    np.testing.assert_allclose(np.unique(cell_times(made, "day")), [2.0, 3.0])
    assert (made.obs["day"].dtype.name == "category") == (adata.obs["day"].dtype.name == "category")
    whole = anndata.concat([adata, made], join="outer")  # one column of one kind
    assert whole.n_obs == adata.n_obs + made.n_obs
    np.testing.assert_allclose(
        np.unique(cell_times(whole, "day")), np.unique(np.append(cell_times(adata, "day"), 3.0))
    )


def test_labels_keep_their_words():
    adata = cells(np.repeat(["day 0", "day 2", "day 4"], N // 3))
    model = Persistence().fit(adata, time_key="day", rep="X_pca")
    made = model.forecast([2.5]).to_anndata(like=adata)
    assert set(made.obs["day"]) == {"day 2.5"}


def test_a_forecast_says_what_made_it_and_can_be_written(tmp_path):
    adata = cells()
    model = Persistence(random_state=4).fit(
        adata, time_key="day", genes=["Tdh", "Mt1"], layer="imputed"
    )
    made = model.forecast([3.0], start="previous").to_anndata(like=adata)
    assert made.var_names.tolist() == ["Tdh", "Mt1"]
    assert set(made.layers) == {"imputed"}
    made.write_h5ad(tmp_path / "made.h5ad")
    origin = anndata.read_h5ad(tmp_path / "made.h5ad").uns["itofit"]
    assert origin["method"] == "persistence"
    assert origin["seed"] == 4
    assert origin["start"] == "previous"
    assert origin["fitted_times"].tolist() == [0.0, 2.0, 4.0]
    assert origin["fitted_counts"].tolist() == [10, 10, 10]


def test_weights_that_differ_are_written():
    snapshots = Snapshots.from_arrays(
        [np.arange(6.0).reshape(3, 2)] * 2, [0.0, 1.0], [[1.0, 1.0, 2.0], [1.0] * 3]
    )
    assert "w" in snapshots.to_anndata().obs
    assert "w" not in snapshots.select([1]).to_anndata().obs


def test_what_a_fit_knows_of_its_cells_is_saved_with_it(tmp_path):
    adata = grid(TIMES["categories of labels"])
    Persistence().fit(adata, time_key="day", n_pcs=2).save(tmp_path / "run")
    model = Persistence.load(tmp_path / "run")
    space = model.snapshots_.space
    np.testing.assert_allclose(cell_points(adata, space), components(adata))
    made = model.forecast([3.0]).to_anndata(like=adata)
    assert set(made.obs["day"]) == {"E3"}
    assert made.n_vars == 4
    np.testing.assert_allclose(
        made.X, made.obsm["X_itofit_pca"] @ made.varm["itofit_PCs"].T + space.axes.mean
    )


def test_clouds_without_cells_become_cells_too():
    snapshots = Snapshots.from_arrays(
        [np.zeros((2, 2)), np.ones((3, 2))], [0.0, 1.5], names=["a", "b"]
    )
    made = snapshots.to_anndata()
    assert made.var_names.tolist() == ["a", "b"]
    assert made.obs["t"].tolist() == [0.0, 0.0, 1.5, 1.5, 1.5]
