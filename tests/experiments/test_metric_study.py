"""The study of the paper's metric at a tiny size: it reads what training logged and says where
there is nothing.
"""

import json

import jax
import numpy as np
import pytest
from experiments.table1.scoring import DISTANCES

from experiments import metric_study
from itofit import Adversarial, FokkerPlanckProcess, known_system
from itofit.metrics import W1

pytestmark = pytest.mark.slow


def test_logged_critics_stand_beside_distances_of_the_same_clouds(tmp_path, monkeypatch, capsys):
    monkeypatch.setitem(DISTANCES, "critic", W1)
    data = known_system("ou").observe(60, [0.0, 0.3, 1.0], key=jax.random.key(0))
    solver = Adversarial.paper(n_iter=3, drift_width=4, probe_width=4, probe_depth=1)
    model = FokkerPlanckProcess(0.7, dt=0.1, solver=solver, random_state=0).fit(data)
    model.save(tmp_path / "syn2-printed-2-adversarial-paper-B-1")
    metric_study.main([str(tmp_path), "--n-points", "50", "--json", str(tmp_path / "out.json")])
    rows = json.loads((tmp_path / "out.json").read_text())
    assert [(r["system"], r["dim"], r["seed"], r["time"], r["n_iter"]) for r in rows] == [
        ("syn2-printed", 2, 1, 0.3, 3),
        ("syn2-printed", 2, 1, 1.0, 3),
    ]
    # A tenth of three iterations is the last one.
    np.testing.assert_allclose([r["logged"] for r in rows], model.history_.residuals[-1], rtol=1e-6)
    # A coordinate is a 1-Lipschitz map, so no coordinate has more than the whole.
    assert all(r["W1"] >= r["coordinate_W1"] > 0.0 for r in rows)
    assert "logged" in capsys.readouterr().out


def test_a_folder_without_such_runs_is_refused(tmp_path, capsys):
    with pytest.raises(SystemExit) as caught:
        metric_study.main([str(tmp_path)])
    assert caught.value.code == 2
    assert "experiments.table1 --runs" in capsys.readouterr().err
