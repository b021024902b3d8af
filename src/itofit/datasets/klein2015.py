"""Mouse embryonic stem cells 0, 2, 4 and 7 days after LIF was withdrawn.

Klein et al. 2015, Cell; GEO GSE65525.

Four csv files, compressed by bz2, without a header: one row a gene, its name, then its molecules
(UMI) in every cell.
"""

import bz2
import hashlib
import http.client
import json
import os
import shutil
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse
from jaxtyping import Float

from itofit.errors import InputError
from itofit.snapshots.anndata_file import anndata_module
from itofit.whole_file import whole_file

GEO = "https://ftp.ncbi.nlm.nih.gov/geo/samples/GSM1599nnn"


@dataclass(frozen=True)
class _Sample:
    """One file: the cells of one day."""

    accession: str
    file: str
    day: float
    n_cells: int


_SAMPLES = (
    _Sample("GSM1599494", "GSM1599494_ES_d0_main.csv.bz2", 0.0, 933),
    _Sample("GSM1599497", "GSM1599497_ES_d2_LIFminus.csv.bz2", 2.0, 303),
    _Sample("GSM1599498", "GSM1599498_ES_d4_LIFminus.csv.bz2", 4.0, 683),
    _Sample("GSM1599499", "GSM1599499_ES_d7_LIFminus.csv.bz2", 7.0, 798),
)
_N_GENES = 24175
_HASHES = "hashes.json"
_PATIENCE = 60.0  # seconds without a byte before a download is given up
_EXACT = 2**24  # float32 holds whole numbers up to here


def klein2015(cache: str | Path | None = None, *, source: str = GEO) -> Any:
    """Mouse embryonic stem cells on four days, as an AnnData (the extra `anndata`).

    Files that `cache` does not hold yet are downloaded; nothing else in itofit opens a connection.
    Their sha256 are recorded in `hashes.json` of that folder once they have been read whole, and
    compared ever after; they are in `uns["source"]` too.

    Parameters
    ----------
    cache : str or Path, optional
        The folder with the four files; without it `itofit/klein2015` in `$XDG_CACHE_HOME` or
        `~/.cache`.
    source : str, default GEO
        The URL under which `<GSM accession>/suppl/<file>` lies, say of a mirror.

    Returns
    -------
    AnnData
        Raw counts of 2717 cells and 24175 genes, the day of each cell in `obs["day"]`.

    Raises
    ------
    InputError
        Where a file cannot be fetched, is not what it should be, or has changed.

    Examples
    --------
    >>> from itofit.datasets import klein2015
    >>> adata = klein2015()  # doctest: +SKIP
    >>> adata.obs["day"].unique().tolist()  # doctest: +SKIP
    [0.0, 2.0, 4.0, 7.0]
    """
    return _load(_folder(cache), source, _SAMPLES, _N_GENES)


def _load(folder: Path, source: str, samples: tuple[_Sample, ...], n_genes: int) -> Any:
    anndata = anndata_module()
    recorded = _recorded(folder)
    hashes = {sample.file: _checked_hash(folder, source, sample, recorded) for sample in samples}
    genes = []
    tables = []
    for sample in samples:
        genes, table = _read(folder / sample.file, sample.n_cells, n_genes, genes)
        tables.append(table)
    # Not sooner: a file that cannot be used must not stand in the way of the right one.
    if recorded | hashes != recorded:
        _record(folder, recorded | hashes)
    days = [sample.day for sample in samples]
    counts = [sample.n_cells for sample in samples]
    made = anndata.AnnData(scipy.sparse.vstack(tables, format="csr"))
    names: list[str] = []
    for sample in samples:
        names += [f"d{sample.day:g}_{i + 1}" for i in range(sample.n_cells)]
    made.obs_names = names
    made.var_names = genes
    made.obs["day"] = np.repeat(days, counts)
    made.uns["source"] = {"accession": "GSE65525", "files": list(hashes), "sha256": hashes}
    return made


def _folder(cache: str | Path | None) -> Path:
    """The folder of the files, made if it is not there."""
    home = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache")
    folder = home / "itofit" / "klein2015" if cache is None else Path(cache)
    folder = folder.expanduser()
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(
            expected=f"a folder for the files at {folder}",
            found=f"{error}",
            hint="cache='a/folder/of/yours'",
        ) from None
    return folder


def _checked_hash(folder: Path, source: str, sample: _Sample, recorded: dict[str, str]) -> str:
    """The sha256 of a file, downloaded if it is missing, and the one recorded if any is."""
    path = folder / sample.file
    if not path.is_file():
        _download(f"{source.rstrip('/')}/{sample.accession}/suppl/{sample.file}", path)
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    known = recorded.get(sample.file, digest)
    if digest != known:
        raise InputError(
            expected=f"{path} as it was first read, with the sha256 {known}",
            found=f"{digest}: the file has changed",
            hint=f"delete it to fetch it again, and {_HASHES} beside it if the new one is refused "
            "as well",
        )
    return digest


def _download(url: str, path: Path) -> None:
    """The file of a URL, whole or not at all."""
    with whole_file(path) as partial:
        fault = _stream(url, partial)
        if fault is not None:
            raise InputError(
                expected=f"a file at {url}",
                found=fault,
                hint=f"again later, or download it by hand to {path}",
            )


def _stream(url: str, partial: Path) -> str | None:
    """Writes what a URL sends; says what went wrong, if anything did."""
    try:
        with urllib.request.urlopen(url, timeout=_PATIENCE) as reply, partial.open("wb") as file:
            promised = reply.headers["Content-Length"]
            shutil.copyfileobj(reply, file)
    except urllib.error.HTTPError as error:
        error.close()
        return f"HTTP status {error.code}, {error.reason}"
    except (OSError, http.client.HTTPException, ValueError) as error:
        return f"{type(error).__name__}: {error}"
    written = str(partial.stat().st_size)
    return None if promised in (None, written) else f"an end after {written} of {promised} bytes"


def _recorded(folder: Path) -> dict[str, str]:
    """The sha256 of files read before."""
    path = folder / _HASHES
    if not path.is_file():
        return {}
    try:
        hashes = json.loads(path.read_text(encoding="utf-8"))
    except ValueError:
        hashes = None
    if not isinstance(hashes, dict) or not all(isinstance(value, str) for value in hashes.values()):
        raise InputError(
            expected=f"{path} to hold names of files and their sha256",
            found="something else",
            hint="delete it; it is written again",
        )
    return hashes


def _record(folder: Path, hashes: dict[str, str]) -> None:
    with whole_file(folder / _HASHES) as partial:
        partial.write_text(json.dumps(hashes, indent=2) + "\n", encoding="utf-8")


def _read(
    path: Path, n_cells: int, n_genes: int, genes: list[str]
) -> tuple[list[str], scipy.sparse.csr_matrix]:
    """Names of the genes, the same as `genes` if there are any, and counts with one row a cell."""
    names: dict[str, None] = {}
    cells = []
    counts = []
    ends = [0]
    for row, line in enumerate(_lines(path)):
        if row == n_genes:
            raise _refusal(path, row, f"no row after {n_genes} genes", "more")
        name, values = _row(path, row, line, n_cells)
        if genes and name != genes[row]:
            raise _refusal(path, row, f"the gene {genes[row]!r}, as in the first file", repr(name))
        if name in names:
            raise _refusal(path, row, "a gene not named before", repr(name))
        names[name] = None
        cells.append(np.flatnonzero(values).astype(np.int32))
        counts.append(values[cells[-1]].astype(np.float32))
        ends.append(ends[-1] + len(cells[-1]))
    if len(names) < n_genes:
        raise _refusal(path, len(names), f"one of {n_genes} genes", "the end of the file")
    # a compressed row a gene: counts, the cells they are of, and where each gene ends
    arrays = (np.concatenate(counts), np.concatenate(cells), np.asarray(ends))
    by_gene = scipy.sparse.csr_matrix(arrays, shape=(n_genes, n_cells))
    return list(names), by_gene.T.tocsr()


def _lines(path: Path) -> Iterator[str]:
    try:
        with bz2.open(path, "rt", encoding="utf-8") as file:
            yield from file
    except (OSError, EOFError, UnicodeDecodeError) as error:
        raise InputError(
            expected=f"{path} to be a complete csv file, compressed by bz2",
            found=f"{error}",
            hint="delete it to fetch it again",
        ) from None


def _row(
    path: Path, row: int, line: str, n_cells: int
) -> tuple[str, Float[np.ndarray, " n_cells"]]:
    """The gene of a line and its count in every cell."""
    name, *fields = line.rstrip("\n").split(",")
    if len(fields) != n_cells:
        raise _refusal(path, row, f"{n_cells} cells", f"{len(fields)}")
    try:
        values = np.array(fields, dtype=np.float64)
    except ValueError as error:
        raise _refusal(path, row, "whole, non-negative counts", f"{error}") from None
    wrong = ~((values >= 0) & (values < _EXACT) & (values == np.floor(values)))
    if wrong.any():
        cell = int(np.argmax(wrong))
        raise _refusal(
            path, row, "whole, non-negative counts", f"{fields[cell]} for cell {cell + 1}"
        )
    return name.strip('"'), values


def _refusal(path: Path, row: int, expected: str, found: str) -> InputError:
    return InputError(
        expected=f"{expected} in row {row + 1} of {path}",
        found=found,
        hint="delete the file to fetch it again",
    )
