"""The files of Klein et al. from a server on this machine: fetched once, hashed, or refused."""

import bz2
import hashlib
import json
import socket
import sys
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer

import anndata
import numpy as np
import pytest
import scipy.sparse

from itofit import from_anndata
from itofit.datasets import klein2015
from itofit.datasets.klein2015 import _N_GENES, _SAMPLES, GEO, _folder, _load, _Sample

GENES = ["Gnai3", "Pbsn", "Cdc45", "H19", "Scml2", "Apoh", "Narf"]
DAYS = (0.0, 2.0, 4.0, 7.0)
CELLS = (5, 3, 4, 6)
SMALL = tuple(
    _Sample(f"GSM{i}", f"GSM{i}_d{day:g}.csv.bz2", day, n)
    for i, (day, n) in enumerate(zip(DAYS, CELLS, strict=True))
)


def table(sample, genes=GENES, quote=""):
    """Rows of a file as text, each a list, different in every file."""
    counts = np.random.default_rng(sample.n_cells).poisson(1.0, size=(len(genes), sample.n_cells))
    return [
        [f"{quote}{gene}{quote}", *map(str, row)]
        for gene, row in zip(genes, counts.tolist(), strict=True)
    ]


def packed(rows):
    return bz2.compress("".join(",".join(row) + "\n" for row in rows).encode())


class Handler(BaseHTTPRequestHandler):
    server: "Geo"

    def do_GET(self):
        geo = self.server
        geo.requests.append(self.path)
        if self.path not in geo.files:
            self.send_error(404)
            return
        content = geo.files[self.path]
        self.send_response(200)
        if geo.says_length:
            self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content[: len(content) - geo.missing_bytes])

    def log_message(self, *args):
        pass


class Geo(HTTPServer):
    """Serves files under `<accession>/suppl`, remembers requests, and can send too little."""

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server_port}/geo"
        self.requests = []
        self.missing_bytes = 0
        self.says_length = True
        self.files = {}
        for sample in SMALL:
            self.put(sample, table(sample))

    def put(self, sample, rows):
        self.files[f"/geo/{sample.accession}/suppl/{sample.file}"] = packed(rows)


@pytest.fixture(autouse=True)
def direct(monkeypatch):
    monkeypatch.setenv("no_proxy", "127.0.0.1")


@pytest.fixture
def geo():
    with Geo() as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def load(geo, folder):
    return _load(folder, geo.url, SMALL, len(GENES))


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def test_counts_days_and_names_come_back(geo, tmp_path):
    adata = load(geo, tmp_path)
    wanted = np.hstack([np.asarray(table(sample))[:, 1:].astype(float) for sample in SMALL]).T
    assert scipy.sparse.issparse(adata.X)
    assert adata.X.format == "csr"
    assert adata.X.dtype == np.float32
    assert adata.X.nnz == np.count_nonzero(wanted)
    np.testing.assert_array_equal(adata.X.toarray(), wanted)
    assert adata.obs["day"].dtype == np.float64
    assert adata.obs["day"].tolist() == [0.0] * 5 + [2.0] * 3 + [4.0] * 4 + [7.0] * 6
    assert list(adata.var_names) == GENES
    assert adata.obs_names.is_unique
    assert list(adata.obs_names[[0, 4, 5, 17]]) == ["d0_1", "d0_5", "d2_1", "d7_6"]


def test_it_fits_in_a_file_and_in_snapshots(geo, tmp_path):
    adata = load(geo, tmp_path)
    adata.write_h5ad(tmp_path / "cells.h5ad")
    back = anndata.read_h5ad(tmp_path / "cells.h5ad")
    assert back.uns["source"]["accession"] == "GSE65525"
    assert back.uns["source"]["sha256"] == adata.uns["source"]["sha256"]
    snapshots = from_anndata(back, time_key="day", genes=["H19", "Narf"])
    assert snapshots.times.tolist() == list(DAYS)
    assert [len(cloud) for cloud in snapshots.clouds] == list(CELLS)


def test_files_are_fetched_once(geo, tmp_path):
    first = load(geo, tmp_path)
    assert sorted(geo.requests) == sorted(geo.files)
    second = load(geo, tmp_path)
    assert len(geo.requests) == 4
    np.testing.assert_array_equal(first.X.toarray(), second.X.toarray())
    assert names(tmp_path) == sorted([sample.file for sample in SMALL] + ["hashes.json"])


def test_files_put_there_by_hand_need_no_server(tmp_path):
    for sample in SMALL:
        (tmp_path / sample.file).write_bytes(packed(table(sample)))
    assert _load(tmp_path, "no url at all", SMALL, len(GENES)).shape == (18, 7)


def test_only_the_missing_file_is_fetched(geo, tmp_path):
    load(geo, tmp_path)
    (tmp_path / SMALL[2].file).unlink()
    load(geo, tmp_path)
    assert len(geo.requests) == 5
    assert geo.requests[-1].endswith(SMALL[2].file)


def test_hashes_are_recorded_and_told(geo, tmp_path):
    source = load(geo, tmp_path).uns["source"]
    wanted = {
        path.rsplit("/")[-1]: hashlib.sha256(content).hexdigest()
        for path, content in geo.files.items()
    }
    assert json.loads((tmp_path / "hashes.json").read_text()) == wanted
    assert source == {
        "accession": "GSE65525",
        "files": [sample.file for sample in SMALL],
        "sha256": wanted,
    }


def test_a_changed_file_is_refused_until_it_is_fetched_again(geo, tmp_path, refused):
    load(geo, tmp_path)
    path = tmp_path / SMALL[1].file
    old = hashlib.sha256(path.read_bytes()).hexdigest()
    rows = table(SMALL[1])
    rows[0][1] = "9"
    path.write_bytes(packed(rows))
    new = hashlib.sha256(path.read_bytes()).hexdigest()
    with refused(str(path), f"sha256 {old}", f"found {new}", "delete it to fetch it again"):
        load(geo, tmp_path)
    path.unlink()
    load(geo, tmp_path)


def test_a_file_that_cannot_be_used_is_not_recorded(geo, tmp_path, refused):
    good = geo.files.copy()
    geo.put(SMALL[0], table(SMALL[0])[:-1])
    with refused(SMALL[0].file):
        load(geo, tmp_path)
    (tmp_path / SMALL[0].file).unlink()
    geo.files = good
    load(geo, tmp_path)


@pytest.mark.parametrize("content", ["not json", "[]", '{"a": 1}'])
def test_broken_records_are_refused(geo, tmp_path, refused, content):
    (tmp_path / "hashes.json").write_text(content)
    with refused(str(tmp_path / "hashes.json"), "delete it"):
        load(geo, tmp_path)


def test_a_download_that_ends_early_is_refused_and_leaves_nothing(geo, tmp_path, refused):
    geo.missing_bytes = 10
    size = len(geo.files[f"/geo/GSM0/suppl/{SMALL[0].file}"])
    url = f"{geo.url}/GSM0/suppl/{SMALL[0].file}"
    with refused(url, f"{size - 10} of {size} bytes", "by hand", str(tmp_path / SMALL[0].file)):
        load(geo, tmp_path)
    assert names(tmp_path) == []


def test_a_download_that_ends_early_without_a_word_is_seen_when_read(geo, tmp_path, refused):
    geo.missing_bytes = 10
    geo.says_length = False
    with refused(str(tmp_path / SMALL[0].file), "complete", "delete it"):
        load(geo, tmp_path)


def test_a_file_the_server_does_not_have_is_refused(geo, tmp_path, refused):
    del geo.files[f"/geo/GSM2/suppl/{SMALL[2].file}"]
    with refused(
        f"{geo.url}/GSM2/suppl/{SMALL[2].file}", "HTTP status 404", str(tmp_path / SMALL[2].file)
    ):
        load(geo, tmp_path)
    assert names(tmp_path) == [SMALL[0].file, SMALL[1].file]


def test_no_server_is_refused(tmp_path, refused):
    with socket.socket() as taken:  # bound, not listening: nobody else can answer at this port
        taken.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{taken.getsockname()[1]}"
        with refused(f"{url}/GSM0/suppl/{SMALL[0].file}", "refused", "by hand"):
            _load(tmp_path, url, SMALL, len(GENES))
    assert names(tmp_path) == []


def test_a_source_that_is_no_url_is_refused(tmp_path, refused):
    with refused("nowhere/GSM0/suppl", "unknown url type"):
        _load(tmp_path, "nowhere", SMALL, len(GENES))


def test_something_else_under_the_name_is_refused(geo, tmp_path, refused):
    geo.files[f"/geo/GSM1/suppl/{SMALL[1].file}"] = b"<html>log in first</html>"
    with refused(str(tmp_path / SMALL[1].file), "bz2"):
        load(geo, tmp_path)


def changed(row, column, text):
    def change(rows):
        rows[row][column] = text
        return rows

    return change


# What is done to the file of day 4, and what the message says besides its name.
WRONG = {
    "a gene too few": (lambda rows: rows[:-1], ("row 7 ", "one of 7 genes", "the end of the file")),
    "a gene too many": (lambda rows: [*rows, ["Cav2", "0", "0", "0", "0"]], ("row 8 ", "7 genes")),
    "a cell too few": (lambda rows: [row[:-1] for row in rows], ("row 1 ", "4 cells", "found 3")),
    "a cell too many in one row": (
        lambda rows: [*rows[:2], [*rows[2], "0"], *rows[3:]],
        ("row 3 ", "found 5"),
    ),
    "another gene": (changed(4, 0, "Sox2"), ("row 5 ", "'Scml2'", "'Sox2'")),
    "another order": (lambda rows: [rows[1], rows[0], *rows[2:]], ("row 1 ", "'Gnai3'", "'Pbsn'")),
    "a negative count": (changed(2, 3, "-1"), ("row 3 ", "non-negative", "-1 for cell 3")),
    "half a count": (changed(6, 1, "1.5"), ("row 7 ", "whole", "1.5 for cell 1")),
    "no number": (changed(0, 2, "many"), ("row 1 ", "whole", "'many'")),
    "no count": (changed(0, 2, ""), ("row 1 ", "whole")),
    "nan": (changed(1, 2, "nan"), ("row 2 ", "nan for cell 2")),
    "infinity": (changed(1, 4, "inf"), ("row 2 ", "inf for cell 4")),
    "nothing": (lambda rows: [], ("row 1 ", "one of 7 genes")),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_files_are_refused_with_their_row(geo, tmp_path, refused, name):
    change, words = WRONG[name]
    geo.put(SMALL[2], change(table(SMALL[2])))
    with refused(str(tmp_path / SMALL[2].file), *words):
        load(geo, tmp_path)
    assert "hashes.json" not in names(tmp_path)


def test_a_gene_named_twice_is_refused(geo, tmp_path, refused):
    twice = [*GENES[:5], "Pbsn", "Narf"]
    for sample in SMALL:
        geo.put(sample, table(sample, twice))
    with refused(SMALL[0].file, "row 6 ", "'Pbsn'"):
        load(geo, tmp_path)


def test_quotes_are_not_part_of_a_name(geo, tmp_path):
    geo.put(SMALL[3], table(SMALL[3], quote='"'))
    assert list(load(geo, tmp_path).var_names) == GENES


def test_the_real_files():
    assert _N_GENES == 24175
    assert [(sample.day, sample.n_cells) for sample in _SAMPLES] == [
        (0.0, 933),
        (2.0, 303),
        (4.0, 683),
        (7.0, 798),
    ]
    assert [f"{GEO}/{sample.accession}/suppl/{sample.file}" for sample in _SAMPLES] == [
        f"https://ftp.ncbi.nlm.nih.gov/geo/samples/GSM1599nnn/{name.split('_')[0]}/suppl/{name}"
        for name in (
            "GSM1599494_ES_d0_main.csv.bz2",
            "GSM1599497_ES_d2_LIFminus.csv.bz2",
            "GSM1599498_ES_d4_LIFminus.csv.bz2",
            "GSM1599499_ES_d7_LIFminus.csv.bz2",
        )
    ]


def test_users_are_given_the_real_structure(geo, tmp_path, refused):
    for sample in _SAMPLES:
        geo.put(sample, table(SMALL[0]))
    with refused(str(tmp_path / "new" / _SAMPLES[0].file), "933 cells", "found 5"):
        klein2015(tmp_path / "new", source=geo.url + "/")


def test_where_files_are_kept(tmp_path, monkeypatch, refused):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert _folder(None) == tmp_path / "xdg" / "itofit" / "klein2015"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    assert _folder(None) == tmp_path / "home" / ".cache" / "itofit" / "klein2015"
    assert _folder("~/mine") == tmp_path / "home" / "mine"
    assert _folder(None).is_dir()
    (tmp_path / "file").touch()
    with refused(str(tmp_path / "file"), "cache="):
        _folder(tmp_path / "file")


def test_without_anndata_nothing_is_fetched(geo, tmp_path, monkeypatch, refused):
    monkeypatch.setitem(sys.modules, "anndata", None)
    with refused("anndata", "not installed", "itofit[anndata]"):
        load(geo, tmp_path)
    assert geo.requests == []
