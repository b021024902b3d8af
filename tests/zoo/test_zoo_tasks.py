"""Every task: finite, the same for the same seed, and nothing asked for among what is given."""

import numpy as np
import pytest
from benchmarks.zoo.families import real
from benchmarks.zoo.plan import REAL
from benchmarks.zoo.registry import QUICK, TASKS, by_name
from benchmarks.zoo.task import FORECAST, INTERPOLATE, interior

KNOWN = [name for name, task in TASKS.items() if task.family != REAL]
# Real tasks of counts are tested with the experiment that reads them.
OF_FILES = [task.name for task in real.TASKS if not task.name.startswith("klein")]


def rows(clouds):
    return {point.tobytes() for cloud in clouds for point in np.asarray(cloud)}


def check(task, trial):
    """What is true of a trial of any task."""
    times = {float(time) for time in trial.given.times}
    asked = {float(time) for time in trial.asked.times}
    assert not times & asked
    assert min(times) < min(asked)
    if task.asks == INTERPOLATE:
        assert max(asked) < max(times)
    else:
        assert task.asks == FORECAST
        assert max(times) < min(asked)
    clouds = (*trial.given.clouds, *trial.asked.clouds)
    assert all(np.all(np.isfinite(cloud)) for cloud in clouds)
    assert not rows(trial.given.clouds) & rows(trial.asked.clouds)


def same(first, second):
    pairs = zip(first.clouds, second.clouds, strict=True)
    return all(np.array_equal(one, other) for one, other in pairs)


def test_there_are_forty_tasks_and_a_dozen_quick_ones():
    assert len(KNOWN) >= 40
    assert set(QUICK) <= set(KNOWN)
    assert 12 <= len(QUICK) <= 15


def test_a_name_comes_once():
    with pytest.raises(ValueError, match="two tasks are called ring"):
        by_name([TASKS["ring"], TASKS["ring"]])


@pytest.mark.parametrize("name", KNOWN)
def test_a_known_task_is_finite_and_of_its_seed(name):
    task = TASKS[name]
    trial = task.trial(3)
    check(task, trial)
    again = task.trial(3)
    assert same(trial.given, again.given)
    assert same(trial.asked, again.asked)
    other = task.trial(4)
    assert not rows(trial.asked.clouds) & rows(other.asked.clouds)


@pytest.mark.parametrize("name", KNOWN)
def test_fresh_particles_are_at_the_times_asked_for_and_of_their_key(name):
    trial = TASKS[name].trial(0)
    draws = [trial.fresh(np.random.default_rng(key), 7) for key in (1, 1, 2)]
    assert draws[0].shape == (len(trial.asked), 7, trial.given.n_dims)
    assert np.array_equal(draws[0], draws[1])
    assert not rows(draws[0]) & rows(draws[2])
    assert not rows(draws[0]) & rows(trial.asked.clouds)


def test_what_is_spoilt_is_given_and_never_asked_for():
    outlier = TASKS["one_outlier"].trial(0)
    far = [np.max(np.linalg.norm(cloud, axis=1)) for cloud in outlier.given.clouds]
    assert sorted(far)[-1] == 100.0
    assert sorted(far)[-2] < 4.5
    counts = TASKS["whole_numbers"].trial(0)
    assert all(np.array_equal(cloud, np.round(cloud)) for cloud in counts.given.clouds)
    assert not np.array_equal(counts.asked.clouds[0], np.round(counts.asked.clouds[0]))
    copies = TASKS["near_duplicates"].trial(0)
    assert all(len(np.unique(np.round(cloud, 4), axis=0)) < 300 for cloud in copies.given.clouds)
    assert len(np.unique(np.round(copies.asked.clouds[0], 4), axis=0)) == 800


def test_snapshots_have_the_sizes_they_are_known_for():
    assert sorted(TASKS["day_of_three"].trial(0).given.counts)[:2] == [3, 300]
    uneven = TASKS["uneven_sizes"].trial(0).given.counts
    assert (min(uneven), max(uneven)) == (60, 2000)


@pytest.mark.parametrize("position", [0, 2])
def test_an_end_is_no_interior_time(position):
    with pytest.raises(ValueError, match=f"no interior time at {position} of 3"):
        interior((0.0, 1.0, 2.0), position)


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """Small files with the layout of the real ones."""
    rng = np.random.default_rng(0)
    folder = tmp_path_factory.mktemp("data")

    def write(name, **arrays):
        (folder / name).parent.mkdir(exist_ok=True)
        np.savez(folder / name, **arrays)

    def clouds(n_times, n_dims):
        return {f"t{k}": rng.normal(size=(6 + k, n_dims)) for k in range(n_times)}

    write("embryoid_body/eb_100pcs.npz", **clouds(5, 100))
    write("emt_a549/emt_3d.npz", **clouds(5, 3))
    write("ipsc_bifurcation/ipsc_4d.npz", **clouds(8, 4))
    points = rng.normal(size=(9300, 2))
    codes = np.arange(9300) % 3
    write("larry_2d/mouse_hematopoiesis_2d.npz", X=points[:30], t=codes[:30])
    write("larry_fates/larry_fates.npz", X=points, day=2 + 2 * codes)
    write("lotka_volterra/lv.npz", Xs=rng.normal(size=(11, 5, 2)), dts=np.arange(11))
    write("lotka_volterra/lv_interp_val.npz", Xs=rng.normal(size=(9, 5, 2)), dts=np.arange(9) + 0.5)
    return folder


@pytest.mark.parametrize("name", OF_FILES)
def test_a_task_of_data_leaves_out_what_it_asks_for(name, data):
    trial = TASKS[name].trial(0, data)
    check(TASKS[name], trial)
    assert trial.fresh is None
    assert same(trial.given, TASKS[name].trial(1, data).given)


def test_published_components_have_unit_spread_over_all_times(data):
    trial = TASKS["eb5_2"].trial(0, data)
    together = np.concatenate([*trial.given.clouds, *trial.asked.clouds])
    np.testing.assert_allclose(together.mean(axis=0), 0.0, atol=1e-12)
    np.testing.assert_allclose(together.std(axis=0), 1.0)


def test_data_that_are_not_there_are_asked_for(tmp_path, refused):
    with refused("the folder of data that emt_1 is in", "--data DIR"):
        TASKS["emt_1"].trial(0)
    with refused("emt_a549/emt_3d.npz in --data", "no file at"):
        TASKS["emt_1"].trial(0, tmp_path)
