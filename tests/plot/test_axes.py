"""Panels draw the data they were given, on the axis they were given."""

import numpy as np
import pytest
from matplotlib.figure import Figure

from itofit import FokkerPlanckProcess
from itofit.plot import clouds, descent, drift_field, loss_history, marginals, save_figure, vector_field
from itofit.plot.axes import MODEL, TRUTH
from itofit.snapshots.clouds import Snapshot, Snapshots
from itofit.solve.evidence import GaussNewtonHistory
from itofit.solve.outcome import History


@pytest.fixture
def ax():
    return Figure().subplots()


def cloud(n, seed, weights=None):
    points = np.random.default_rng(seed).normal(size=(n, 3))
    return Snapshot(1.0, points, np.full(n, 1.0 / n) if weights is None else weights / weights.sum())


def rotation(states):
    return np.stack([states[:, 1], -states[:, 0], states[:, 2]], axis=1)


def test_clouds_show_observed_and_predicted_points(ax):
    observed, predicted = cloud(20, 0), cloud(30, 1)
    assert clouds(ax, observed, predicted, dims=(2, 0)) is ax
    red, blue = ax.collections
    np.testing.assert_array_equal(red.get_offsets(), observed.points[:, [2, 0]])
    np.testing.assert_array_equal(blue.get_offsets(), predicted.points[:, [2, 0]])
    assert (red.get_label(), blue.get_label()) == ("observed", "predicted")


def masses(ax):
    """Edges of the bins and mass in each, of every histogram drawn."""
    found = []
    for patch in ax.patches:
        x, y = patch.get_xy().T
        n = (len(x) - 1) // 4
        edges, heights = x[: 2 * n + 1 : 2], y[1 : 2 * n + 1 : 2]
        found.append((edges, heights * np.diff(edges)))
    return found


def test_marginals_are_densities_that_count_the_weights(ax):
    observed = cloud(400, 0)
    heavy = np.where(observed.points[:, 1] > 0.0, 3.0, 1.0)
    assert marginals(ax, observed, cloud(400, 0, heavy), 1, bins=16) is ax
    (edges, plain), (same, weighted) = masses(ax)
    np.testing.assert_array_equal(edges, same)
    assert plain.sum() == pytest.approx(1.0)
    assert weighted.sum() == pytest.approx(1.0)
    above = np.sum(observed.points[:, 1] > 0.0)
    expected, _ = np.histogram(observed.points[:, 1], edges, weights=heavy / heavy.sum())
    np.testing.assert_allclose(weighted, expected, atol=1e-12)
    assert heavy.sum() == 400 + 2 * above
    red, blue = (patch.get_facecolor()[:3] for patch in ax.patches)
    assert [round(255 * c) for c in red] == [int(TRUTH[i : i + 2], 16) for i in (1, 3, 5)]
    assert [round(255 * c) for c in blue] == [int(MODEL[i : i + 2], 16) for i in (1, 3, 5)]


def test_a_vector_field_shows_the_field_on_its_grid(ax):
    assert vector_field(ax, rotation, [-1.0, -2.0, 0.0], [1.0, 2.0, 4.0], n=5) is ax
    (arrows,) = ax.collections
    x, y = arrows.get_offsets().T
    assert set(np.round(x, 12)) == {-1.0, -0.5, 0.0, 0.5, 1.0}
    assert set(np.round(y, 12)) == {-2.0, -1.0, 0.0, 1.0, 2.0}
    np.testing.assert_allclose(arrows.U, y)
    np.testing.assert_allclose(arrows.V, -x)
    assert arrows.scale == pytest.approx(5 * np.sqrt(5.0))  # the longest arrow spans one of five cells


@pytest.mark.parametrize(("at", "held"), [(None, 2.0), ([0.0, 0.0, 7.0], 7.0)])
def test_other_coordinates_are_held(ax, at, held):
    vector_field(ax, rotation, [-1.0, -2.0, 0.0], [1.0, 2.0, 4.0], dims=(0, 2), at=at, n=3)
    (arrows,) = ax.collections
    x, z = arrows.get_offsets().T
    np.testing.assert_allclose(arrows.U, 0.0)  # the second coordinate, held in the middle
    np.testing.assert_allclose(arrows.V, z)
    seen = []
    vector_field(ax, lambda s: seen.append(s) or rotation(s), [-1, -2, 0], [1, 2, 4], at=at, n=3)
    np.testing.assert_array_equal(seen[0][:, 2], held)


def test_panels_with_the_same_fastest_speed_compare(tmp_path):
    figure = Figure()
    slow, fast = figure.subplots(1, 2)
    for ax, rate in ((slow, 0.0), (fast, 2.0)):
        vector_field(ax, lambda s, rate=rate: rate * rotation(s), [-1, -1, 0], [1, 1, 0], fastest=3.0)
    assert slow.collections[0].scale == fast.collections[0].scale
    assert slow.collections[0].get_clim() == fast.collections[0].get_clim()
    save_figure(figure, tmp_path / "field.png")
    assert [file.name for file in tmp_path.iterdir()] == ["field.png"]


def test_the_drift_of_a_model_stands_over_its_data(ax):
    class Rotation(FokkerPlanckProcess):
        def drift(self, x):
            return rotation(x)

    model = Rotation()
    model.snapshots_ = Snapshots.from_arrays([cloud(50, 0).points, cloud(50, 1).points], [0.0, 1.0])
    assert drift_field(ax, model, dims=(1, 2), n=4) is ax
    points, arrows = ax.collections
    assert len(points.get_offsets()) == 100
    np.testing.assert_allclose(arrows.V, arrows.get_offsets()[:, 1])
    np.testing.assert_allclose(arrows.U, -np.concatenate(model.snapshots_.clouds)[:, 0].mean())


def test_histories_are_drawn(ax):
    loss = np.array([3.0, 2.0, 1.0, 0.5])
    history = History(loss, loss[:, None], np.array([2, 4]), np.array([0.4, 0.1]), np.ones(2))
    assert loss_history(ax, history) is ax
    np.testing.assert_array_equal(ax.lines[0].get_xydata(), np.stack([[1, 2, 3, 4], loss], axis=1))
    np.testing.assert_array_equal(ax.lines[1].get_xydata(), [[2, 0.4], [4, 0.1]])


def test_the_descent_is_drawn_phase_by_phase(ax):
    fields = GaussNewtonHistory.__dataclass_fields__
    given = {"chi2": np.array([9.0, 3.0, 1.0]), "phase": np.array([0, 0, 1])}
    history = GaussNewtonHistory(**{name: given.get(name, np.zeros(3)) for name in fields})
    assert descent(ax, history) is ax
    assert [line.get_ydata().tolist() for line in ax.lines[1:]] == [[9.0, 3.0], [1.0]]


@pytest.mark.parametrize("dim", [-1, 3])
def test_a_coordinate_that_is_not_there_is_refused(ax, refused, dim):
    a, b = cloud(5, 0), cloud(5, 1)
    with refused("from 0 to 2", str(dim)):
        marginals(ax, a, b, dim)
    with refused("from 0 to 2", str(dim)):
        clouds(ax, a, b, (0, dim))
    with refused("from 0 to 2", str(dim)):
        vector_field(ax, rotation, [0, 0, 0], [1, 1, 1], dims=(dim, 0))
