"""Panels draw the data they were given, on the axis they were given."""

import numpy as np
import pytest
from matplotlib.figure import Figure

from itofit import FokkerPlanckProcess
from itofit.plot import (
    clouds,
    descent,
    drift_field,
    loss_history,
    marginals,
    save_figure,
    vector_field,
)
from itofit.plot.axes import MODEL, TRUTH
from itofit.snapshots.clouds import Snapshot, Snapshots
from itofit.solution import GaussNewtonHistory, Phase, TrainingHistory


@pytest.fixture
def ax():
    return Figure().subplots()


def cloud(n, seed, weights=None):
    points = np.random.default_rng(seed).normal(size=(n, 3))
    return Snapshot(
        1.0, points, np.full(n, 1.0 / n) if weights is None else weights / weights.sum()
    )


def rotation(states):
    return np.stack([states[:, 1], -states[:, 0], states[:, 2]], axis=1)


def test_clouds_show_observed_and_predicted_points(ax):
    observed = cloud(20, 0)
    predicted = cloud(30, 1)
    assert clouds(ax, observed, predicted, dims=(2, 0)) is ax
    red, blue = ax.collections
    np.testing.assert_array_equal(red.get_offsets(), observed.points[:, [2, 0]])
    np.testing.assert_array_equal(blue.get_offsets(), predicted.points[:, [2, 0]])
    assert (red.get_label(), blue.get_label()) == ("observed", "predicted")


def masses(ax):
    """Edges of the bins and mass in each, of every histogram drawn."""
    histograms = []
    for patch in ax.patches:
        x, y = patch.get_xy().T
        n = (len(x) - 1) // 4
        edges = x[: 2 * n + 1 : 2]
        heights = y[1 : 2 * n + 1 : 2]
        histograms.append((edges, heights * np.diff(edges)))
    return histograms


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
    # The longest arrow spans one of five cells.
    assert arrows.scale == pytest.approx(5 * np.sqrt(5.0))


@pytest.mark.parametrize(("at", "held"), [(None, 2.0), ([0.0, 0.0, 7.0], 7.0)])
def test_other_coordinates_are_held(ax, at, held):
    vector_field(ax, rotation, [-1.0, -2.0, 0.0], [1.0, 2.0, 4.0], dims=(0, 2), at=at, n=3)
    (arrows,) = ax.collections
    x, z = arrows.get_offsets().T
    np.testing.assert_allclose(arrows.U, 0.0)  # the second coordinate, held in the middle
    np.testing.assert_allclose(arrows.V, z)
    grids = []
    vector_field(ax, lambda s: grids.append(s) or rotation(s), [-1, -2, 0], [1, 2, 4], at=at, n=3)
    np.testing.assert_array_equal(grids[0][:, 2], held)


def test_panels_with_the_same_fastest_speed_compare(tmp_path):
    figure = Figure()
    slow, fast = figure.subplots(1, 2)
    for ax, rate in ((slow, 0.0), (fast, 2.0)):
        vector_field(
            ax, lambda s, rate=rate: rate * rotation(s), [-1, -1, 0], [1, 1, 0], fastest=3.0
        )
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
    history = TrainingHistory(
        loss=loss,
        residuals=loss[:, None],
        evaluated_at=np.array([2, 4]),
        criterion=np.array([0.4, 0.1]),
        slope=np.ones(2),
    )
    assert loss_history(ax, history) is ax
    np.testing.assert_array_equal(ax.lines[0].get_xydata(), np.stack([[1, 2, 3, 4], loss], axis=1))
    np.testing.assert_array_equal(ax.lines[1].get_xydata(), [[2, 0.4], [4, 0.1]])


def descended(phases, chi2):
    """A history with these phases and these values of chi-squared, one a step."""
    zeros = np.zeros(len(phases))
    return GaussNewtonHistory(
        phase=np.asarray(phases, dtype=int),
        temperature=zeros,
        objective=zeros,
        chi2=np.asarray(chi2, dtype=float),
        n_groups=zeros,
    )


def curves(ax):
    """What is drawn of a descent, by label, beside the line at 1."""
    return {line.get_label(): line.get_xydata().tolist() for line in ax.lines[1:]}


def test_the_descent_is_drawn_phase_by_phase(ax):
    assert descent(ax, descended([0, 0, 1], [9.0, 3.0, 1.0])) is ax
    assert list(curves(ax).values()) == [[[1.0, 9.0], [2.0, 3.0]], [[3.0, 1.0]]]


@pytest.mark.parametrize(
    "phases",
    [[phase] for phase in Phase]
    + [[Phase.aim, Phase.select, Phase.polish], [Phase.observed_path, Phase.polish], list(Phase)],
    ids=lambda phases: "-".join(phase.name for phase in phases),
)
def test_every_phase_of_a_history_has_its_curve(ax, phases):
    chi2 = np.arange(1.0, 2 * len(phases) + 1.0)
    descent(ax, descended(np.repeat(phases, 2), chi2))
    assert set(curves(ax)) == {phase.label for phase in phases}
    assert len({phase.label for phase in Phase}) == len(Phase)
    labels = [text.get_text() for text in ax.get_legend().get_texts()]
    assert set(labels) == set(curves(ax))
    drawn = [height for curve in curves(ax).values() for _, height in curve]
    assert sorted(drawn) == chi2.tolist()


def test_the_fit_of_the_readme_is_drawn(ax):
    """Its history in short: it aims, selects and polishes, and ends within the noise."""
    phases = [0, 0, 0, 1, 1, 1, 2, 2]
    chi2 = [415.9, 56.2, 1.18, 1.17, 1.23, 0.67, 0.72, 0.76]
    descent(ax, descended(phases, chi2))
    assert curves(ax)["means and covariances"][0] == [1.0, 415.9]
    assert curves(ax)["polish"][-1] == [8.0, 0.76]


@pytest.mark.parametrize("dim", [-1, 3])
def test_a_coordinate_that_is_not_there_is_refused(ax, refused, dim):
    a = cloud(5, 0)
    b = cloud(5, 1)
    with refused("from 0 to 2", str(dim)):
        marginals(ax, a, b, dim)
    with refused("from 0 to 2", str(dim)):
        clouds(ax, a, b, (0, dim))
    with refused("from 0 to 2", str(dim)):
        vector_field(ax, rotation, [0, 0, 0], [1, 1, 1], dims=(dim, 0))
