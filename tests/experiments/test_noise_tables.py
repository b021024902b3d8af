"""The tables of learned noise and of Lotka-Volterra, on records and files made here."""

import numpy as np
import pytest
from experiments.lotka_volterra import Data, persistence, table, truth
from experiments.noise import ROWS, lines, true_sigma

from itofit import known_system
from itofit.process.noise import is_learned


def record(seed, a):
    a = np.asarray(a)
    ends = {"low": (a - 0.3).tolist(), "high": (a + 0.3).tolist()}
    scores = {"population": [0.02, 0.06], "known": [0.02, 0.03], "floor": [0.01, 0.01]}
    return {"seed": seed, "a": a.tolist(), "seconds": [3.0, 2.0], **ends, **scores}


def test_every_entry_that_is_not_zero_has_its_line():
    records = [record(0, [[1.1, 0.5], [0.5, 2.0]]), record(1, [[0.7, 0.6], [0.6, 2.4]])]
    truth = np.asarray([[1.0, 0.5], [0.5, 2.0]])
    texts = lines("system", "full", truth, [0.1, 3.0], records)
    first = "system full a11 1.000 0.900 0.200 -10.0 % 2 of 2 0.8 to 1.4"
    assert texts[0].split() == first.split()
    assert [line.split()[2] for line in texts[:3]] == ["a11", "a21", "a22"]
    assert "1 of 2" in texts[2]  # 2.4 - 0.3 is above 2
    assert "t = 3: 0.060 / 0.030 = 2.00 (0.010)" in texts[3]
    assert len(lines("system", "diagonal", np.eye(2), [0.1, 3.0], records)) == 4


@pytest.mark.parametrize("name", ROWS)
def test_rows_are_systems_with_a_noise_to_learn_and_a_truth_to_give(name):
    assert is_learned(ROWS[name].kind)
    sigma = true_sigma(known_system(name))
    assert callable(sigma) == (name == "multiplicative")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """The shape of the benchmark: clouds of the known equations at whole times and in between."""
    path = tmp_path_factory.mktemp("lv")
    rng = np.random.default_rng(0)
    start = np.asarray([5.0, 4.0]) + 0.03 * rng.standard_normal((40, 2))
    whole = [start]
    x = start
    between = []
    for k in range(1, 9):
        for _ in range(50):
            product = x[:, 0] * x[:, 1]
            drift = np.stack([x[:, 0] - 0.4 * product, 0.1 * product - 0.4 * x[:, 1]], axis=1)
            x = x + 0.01 * drift + 0.1 * 0.02 * x * rng.standard_normal(x.shape)
        (between if k % 2 else whole).append(x)
    np.savez(path / "lv.npz", Xs=np.stack(whole), dts=np.arange(5.0))
    np.savez(path / "lv_interp_val.npz", Xs=np.stack(between[:-1]), dts=np.arange(3.0) + 0.5)
    return path


def test_the_true_equations_are_at_the_floor_and_persistence_is_not(folder):
    data = Data(folder)
    assert data.training.times.tolist() == [0.0, 1.0, 2.0, 3.0]
    floor = truth(data, np.random.default_rng(1), step=0.01)
    still = persistence(data)
    assert np.all(np.asarray(floor) < 0.15)
    assert np.all(np.asarray(still) > 3.0 * np.asarray(floor))


def test_the_table_has_the_rows_of_others_beside_ours(folder):
    record_of_fit = {
        "seed": 0,
        "scores": (0.2, 0.05),
        "by_equations": (0.1, 0.04),
        "sigma": [[0.02, 0.02], [0.01, 0.01], [0.03, 0.03]],
        "equations": "dx/dt = x",
        "reduced_chi2": 1.1,
        "seconds": 7.0,
    }
    text = table(Data(folder), [record_of_fit])
    assert "itofit, mean of 1 seeds" in text
    assert "[SnapMMD, told the equations]" in text
    assert "transport midpoint" in text
    assert "sigma between (0.0100, 0.0100) and (0.0300, 0.0300)" in text
    assert text.endswith("dx/dt = x")
