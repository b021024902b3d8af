"""AnnData in: times as users write them, sparse, layered and backed cells, and refusals that show what is wrong."""

import anndata
import numpy as np
import pandas as pd
import pytest
import scipy.sparse

from itofit import Persistence, from_anndata, read_snapshots, write_snapshots
from itofit.snapshots.anndata_file import cell_times

N = 30
GENES = ["Mt1", "Mt2", "Tdh", "Gsn"]


def cells(days=None, kind=np.asarray):
    rng = np.random.default_rng(0)
    counts = rng.poisson(2.0, size=(N, 4)).astype(float)
    adata = anndata.AnnData(kind(counts))
    adata.var_names, adata.obs_names = GENES, [f"cell{i}" for i in range(N)]
    adata.obs["day"] = np.repeat([0.0, 2.0, 4.0], N // 3) if days is None else days
    adata.obsm["X_pca"] = rng.normal(size=(N, 3))
    adata.layers["imputed"] = kind(counts + 0.5)
    return adata


def same(found, points, days):
    assert found.times.tolist() == sorted(set(days))
    for t, cloud in zip(found.times, found.clouds, strict=True):
        seen = points[np.asarray(days) == t]
        np.testing.assert_allclose(cloud[np.lexsort(cloud.T)], seen[np.lexsort(seen.T)])


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
    "dates": (pd.to_datetime(np.repeat(["2024-01-01", "2024-01-03", "2024-01-05"], N // 3)), ("2024-01-01",)),
    "truth values": (np.arange(N) % 2 == 0, ("'False', 'True'",)),
    "missing": (np.where(np.arange(N) < 3, np.nan, DAYS), ("3 of 30 cells", "notna()")),
}


@pytest.mark.parametrize("name", BAD_TIMES)
def test_times_that_cannot_be_read_are_shown(name, refused):
    column, words = BAD_TIMES[name]
    with refused(*words):
        from_anndata(cells(column), "day", rep="X_pca")


def test_an_array_of_obsm_is_read():
    adata = cells()
    found = from_anndata(adata, "day", rep="X_pca")
    assert found.names == ("pca1", "pca2", "pca3")
    same(found, adata.obsm["X_pca"], adata.obs["day"].tolist())
    adata.obsm["umap"] = pd.DataFrame(adata.obsm["X_pca"][:, :2], index=adata.obs_names, columns=["u", "v"])
    assert from_anndata(adata, "day", rep="umap").names == ("u", "v")


@pytest.mark.parametrize("kind", [np.asarray, scipy.sparse.csr_matrix, scipy.sparse.csc_array])
@pytest.mark.parametrize("layer", [None, "imputed"])
@pytest.mark.parametrize("file", [False, True])
def test_genes_are_read_from_dense_sparse_layered_and_backed_cells(kind, layer, file, tmp_path):
    adata = cells(kind=kind)
    wanted = np.asarray(cells().X if layer is None else cells().layers[layer])[:, [2, 0]]
    if file:
        adata.write_h5ad(tmp_path / "cells.h5ad")
        found = read_snapshots(tmp_path / "cells.h5ad", "day", genes=["Tdh", "Mt1"], layer=layer)
    else:
        found = from_anndata(adata, "day", genes=["Tdh", "Mt1"], layer=layer)
    assert found.names == ("Tdh", "Mt1")
    same(found, wanted, adata.obs["day"].tolist())


def test_nothing_of_the_users_object_is_changed():
    adata, before = cells(kind=scipy.sparse.csr_matrix), cells(kind=scipy.sparse.csr_matrix)
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
        from_anndata(adata, "time", rep="X_pca")
    with refused("obsm has X_pca"):
        from_anndata(adata, "day")
    with refused("'X_umap', obsm has X_pca"):
        from_anndata(adata, "day", rep="X_umap")
    with refused("mt1 not among 4 genes"):
        from_anndata(adata, "day", genes=["mt1", "Mt2"])
    with refused("each once"):
        from_anndata(adata, "day", genes=["Mt1", "Mt1"])
    with refused("'raw', there are imputed"):
        from_anndata(adata, "day", genes=["Mt1"], layer="raw")
    with refused("rep='X_pca', genes='Mt1'"):
        from_anndata(adata, "day", rep="X_pca", genes=["Mt1"])
    with refused("time_key with an AnnData", "found t"):
        Persistence().fit(adata, adata.obs["day"])
    with refused("rep with an AnnData"):
        Persistence().fit(np.zeros((4, 2)), np.arange(4.0), rep="X_pca")


def test_files_that_are_none_are_refused(refused, tmp_path):
    (tmp_path / "cells.h5ad").write_bytes(b"not an hdf5 file")
    with refused("cells.h5ad to be a complete h5ad file"):
        read_snapshots(tmp_path / "cells.h5ad", "day", rep="X_pca")
    np.savez(tmp_path / "a.npz", x0=np.zeros((3, 2)), times=[0.0])
    with refused("rep with an .h5ad file"):
        read_snapshots(tmp_path / "a.npz", rep="X_pca")


def test_clouds_are_written_and_read_back(tmp_path):
    found = from_anndata(cells(), "day", rep="X_pca")
    write_snapshots(found, tmp_path / "out.h5ad")
    back = read_snapshots(tmp_path / "out.h5ad", "t", genes=list(found.names))
    assert back.names == found.names
    for a, b in zip(back.clouds, found.clouds, strict=True):
        np.testing.assert_allclose(a[np.lexsort(a.T)], b[np.lexsort(b.T)], rtol=1e-6)
    adata = anndata.read_h5ad(tmp_path / "out.h5ad")
    assert set(adata.obs) == {"t", "w"}
