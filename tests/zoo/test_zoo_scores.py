"""Scores and floors: the truth as a row reaches the floor of every known task."""

import zlib

import numpy as np
import pytest
from benchmarks.zoo import scores
from benchmarks.zoo.plan import REAL
from benchmarks.zoo.registry import TASKS
from benchmarks.zoo.scores import Floor, floor, question, scored
from benchmarks.zoo.task import Trial
from scipy.stats import ks_2samp

from itofit import Persistence, Snapshots
from itofit.metrics import W1
from itofit.metrics.floor import N_DRAWS

KNOWN = [name for name, task in TASKS.items() if task.family != REAL]
# In these a cloud that stays where it is cannot be told from the truth by W1 of 200 points.
HARDLY_MOVING = {"at_rest", "signal_3_of_20", "five_fates_30d", "toggle"}
N_TRUTHS = 10


class Given:
    """A row that answers with clouds that were there before."""

    def __init__(self, clouds):
        self._clouds = clouds

    def clouds(self, question, start):
        return list(self._clouds)


def truth_scores(name, trial):
    """W1 of rows that answer with fresh particles of the law, by a key of their own."""
    asked = question(trial, ("-",))
    rng = np.random.default_rng([zlib.crc32(name.encode()), 2021])
    particles = trial.fresh(rng, N_TRUTHS * asked.n)
    draws = particles.reshape(len(asked.times), N_TRUTHS, asked.n, -1)
    rows = [Given(draws[:, i]) for i in range(N_TRUTHS)]
    return [scored(trial, row, asked, "-", full=False).W1 for row in rows]


def excess_in_errors(values, below):
    """The mean excess over the floor in its standard errors: both are means of draws.

    Draws of the truth and draws of the floor are scored on one test cloud and have one law: this
    is Student's t with 19 degrees of freedom, nearly.
    """
    error = below.floor_sd * np.sqrt(1.0 / len(values) + 1.0 / N_DRAWS)
    return (np.mean(values) - below.floor) / error


def test_the_truth_reaches_the_floor_of_every_known_task(few_points):
    excess = {}
    for name in KNOWN:
        trial = TASKS[name].trial(0)
        excess[name] = excess_in_errors(truth_scores(name, trial), floor(trial))
    # |t| of 19 degrees of freedom is beyond 5 in 8e-5 of all cases: in one of 270 runs of 47 tasks
    assert {name: t for name, t in excess.items() if abs(t) > 5.0} == {}
    # four standard errors of a mean; the variance of that t is 19 / 17
    assert abs(np.mean(list(excess.values()))) < 4.0 * np.sqrt(19.0 / 17.0 / len(KNOWN))


def test_what_is_asked_for_has_the_law_of_fresh_particles():
    """Kolmogorov and Smirnov's test of every coordinate, at a level of 1e-3 for all of them."""
    p_values = {}
    for name in KNOWN:
        trial = TASKS[name].trial(0)
        fresh = trial.fresh(np.random.default_rng([zlib.crc32(name.encode()), 2022]), 2000)
        for k, cloud in enumerate(trial.asked.clouds):
            for i in range(trial.asked.n_dims):
                p_values[name, k, i] = ks_2samp(cloud[:, i], fresh[k, :, i]).pvalue
    level = 1e-3 / len(p_values)
    assert {place: p for place, p in p_values.items() if p < level} == {}


def test_a_cloud_that_stays_is_above_the_floor_where_the_law_moves(monkeypatch):
    monkeypatch.setattr(scores, "MOST_POINTS", 200)
    moving = set()
    for name in KNOWN:
        trial = TASKS[name].trial(0)
        asked = question(trial, ("-",))
        stays = Persistence(random_state=0).fit(trial.given)
        row = Given(stays.forecast(list(asked.times), n_samples=asked.n).clouds)
        below = floor(trial)
        if below.floor + 2.0 * below.floor_sd < scored(trial, row, asked, "-", full=False).W1:
            moving.add(name)
    assert set(KNOWN) - moving == HARDLY_MOVING
    assert {name for name in KNOWN if TASKS[name].still} <= HARDLY_MOVING


def test_forecast_and_floor_are_scored_on_one_cloud_at_one_size(few_points):
    sizes = []

    def fresh(rng, n):
        sizes.append(n)
        return rng.normal(size=(1, n, 2))

    cloud = np.random.default_rng(0).normal(size=(130, 2))
    given = Snapshots.from_arrays([cloud + 5.0], [0.0])
    trial = Trial(given, Snapshots.from_arrays([cloud], [1.0]), fresh)
    asked = question(trial, ("-",))
    assert asked.n == 100
    far = np.random.default_rng(1).normal(size=(100, 2)) + 9.0
    tested = trial.asked.clouds[0][:100]
    score = scored(trial, Given([far]), asked, "-", full=False)
    assert pytest.approx(W1(far, tested)) == score.W1
    assert floor(trial) == floor(trial)
    assert sizes == [N_DRAWS * 100] * 2


def test_of_data_forecast_and_floor_are_scored_on_halves(few_points):
    rng = np.random.default_rng(0)
    cloud = rng.normal(size=(80, 1))
    given = Snapshots.from_arrays([cloud + 5.0], [0.0])
    trial = Trial(given, Snapshots.from_arrays([cloud], [1.0]))
    asked = question(trial, ("-",), full=True)
    score = scored(trial, Given([trial.asked.clouds[0] + 4.0]), asked, "-", full=True)
    below = floor(trial)
    # two halves of 40 standard normal numbers: about sqrt(2 / 40) apart
    assert 0.1 < below.floor < 0.4
    assert pytest.approx(4.0, abs=3.0 * below.floor) == score.W1
    assert score.full == pytest.approx(4.0)


def test_several_times_have_the_mean_of_their_scores(few_points):
    clouds = [np.zeros((4, 1)), np.zeros((4, 1))]
    given = Snapshots.from_arrays([clouds[0]], [0.0])
    asked_clouds = Snapshots.from_arrays(clouds, [1.0, 2.0])
    trial = Trial(given, asked_clouds, lambda rng, n: np.ones((2, n, 1)))
    row = Given([np.full((4, 1), 3.0), np.full((4, 1), 5.0)])
    assert scored(trial, row, question(trial, ("-",)), "-", full=False).W1 == 4.0
    assert floor(trial) == Floor(1.0, 0.0)


def test_a_forecast_that_is_not_finite_is_refused():
    trial = TASKS["double_well"].trial(0)
    asked = question(trial, ("-",))
    with pytest.raises(FloatingPointError, match="not finite"):
        scored(trial, Given([np.full((asked.n, 1), np.nan)]), asked, "-", full=False)
