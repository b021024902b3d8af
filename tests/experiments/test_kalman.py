"""The check of the Kalman filter on a panel made here: a table, errors by hand, and refusals."""

import numpy as np
import pytest

from experiments import kalman


def write(folder, **arrays):
    (folder / "intraday_volume").mkdir()
    np.savez(folder / kalman.FILE, **arrays)


def test_the_table_has_every_stock_and_errors_of_logs(tmp_path, capsys):
    rng = np.random.default_rng(0)
    volume = np.exp(8.0 + 0.1 * rng.normal(size=(60, 4)) + 0.3 * rng.normal(size=(60, 1)))
    write(tmp_path, ACN_volume=volume, ZZZ_volume=volume * 2.0, bins=np.arange(4))
    assert kalman.main(["--data", str(tmp_path)]) == 0
    text = capsys.readouterr().out
    assert "(0.02922)" in text
    assert "| ZZZ | " in text
    errors = kalman.errors(volume)
    y = np.log(volume)
    expanding = np.stack([volume[:t].mean(axis=0) for t in range(40, 60)])
    assert errors["rolling-all"] == pytest.approx(
        np.mean(np.abs(np.log(expanding) - y[40:]) / y[40:])
    )
    # a level of its own for every day, which the day before does not know: only the filter that
    # sees the day does
    assert errors["dynamic"] < 0.8 * errors["static"]


def test_no_file_ends_with_code_2(tmp_path):
    with pytest.raises(SystemExit) as end:
        kalman.main(["--data", str(tmp_path)])
    assert end.value.code == 2
