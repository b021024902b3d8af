"""The grid on cells made here: what is kept, what is made again, and what is passed over."""

import json
from functools import partial
from typing import NamedTuple

import numpy as np
import pytest
from experiments.grid import Fit, Grid, Runs, in_processes, read_records

from itofit import InputError, Outcome, Persistence, Snapshots

DATA = Snapshots.from_arrays([np.zeros((3, 1)), np.ones((3, 1))], [0.0, 1.0])


class Cell(NamedTuple):
    """A fit of the test."""

    name: str
    seed: int


CELLS = [Cell("a", seed) for seed in range(3)]


def record(cell, value):
    return {**cell._asdict(), "value": value}


@pytest.fixture
def grid(tmp_path):
    runs = Runs(tmp_path / "runs", "notes.json")
    return Grid(Cell._fields, [], tmp_path / "out.json", runs)


@pytest.fixture
def calls():
    """The batches that were made."""
    return []


def maker(calls):
    def make(cells):
        calls.append([cell.seed for cell in cells])
        models = [Persistence(random_state=cell.seed).fit(DATA) for cell in cells]
        return [Fit(model, {"together": len(cells)}) for model in models]

    return make


def test_fits_that_are_kept_are_read_and_the_others_made_in_one_call(grid, calls, tmp_path):
    make = maker(calls)
    grid.fits(CELLS[1:2], make)
    fits = grid.fits(CELLS, make)
    assert calls == [[1], [0, 2]]
    assert list(fits) == CELLS
    assert [fit.notes["together"] for fit in fits.values()] == [2, 1, 2]
    assert [fit.model.seed_ for fit in fits.values()] == [0, 1, 2]
    assert sorted(path.name for path in (tmp_path / "runs").iterdir()) == ["a-0", "a-1", "a-2"]


def test_a_folder_without_its_notes_is_no_fit(grid, calls, tmp_path):
    grid.fits(CELLS[:1], maker(calls))
    (tmp_path / "runs" / "a-0" / "notes.json").unlink()
    grid.fits(CELLS[:1], maker(calls))
    assert len(calls) == 2


def test_fits_that_are_not_to_be_kept_leave_no_folder(grid, calls, tmp_path):
    for _ in range(2):
        grid.fits(CELLS[:1], maker(calls), keep=False)
    assert len(calls) == 2
    assert not (tmp_path / "runs").exists()


def test_cells_that_cannot_be_fitted_are_missing_and_counted(grid, calls, capsys):
    def fail(cells):
        raise InputError(expected="luck", found="none", hint="again")

    grid.fits(CELLS[:1], maker(calls))
    assert list(grid.fits(CELLS, fail)) == CELLS[:1]
    assert grid.n_failed == 2
    assert "not fitted: expected luck" in capsys.readouterr().err


def test_an_interrupted_fit_ends_the_grid_and_is_not_kept(grid, tmp_path):
    def interrupted(cells):
        model = Persistence().fit(DATA)
        model.outcome_ = Outcome.interrupted
        return [Fit(model, {})]

    with pytest.raises(KeyboardInterrupt):
        grid.fits(CELLS[:1], interrupted)
    assert not (tmp_path / "runs").exists()


def test_a_new_record_takes_the_place_of_the_old_one(grid, tmp_path):
    grid.add([record(CELLS[0], 1.0), record(CELLS[1], 2.0)])
    grid.add([record(CELLS[0], 3.0)])
    assert [r["value"] for r in grid.records] == [2.0, 3.0]
    assert grid.matching(CELLS[0]._asdict()) == [record(CELLS[0], 3.0)]
    assert read_records(tmp_path / "out.json", [*Cell._fields, "value"]) == grid.records
    assert json.loads((tmp_path / "out.json").read_text()) == grid.records


@pytest.mark.parametrize("n_jobs", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_calls_give_the_same_in_processes_and_here(n_jobs):
    results = in_processes([partial(pow, 2, k) for k in range(4)], n_jobs)
    assert sorted(results) == [1, 2, 4, 8]
