"""What snapshots cannot determine: closed forms first, then systems of which it is known."""

import jax
import numpy as np
import pytest

from itofit import FokkerPlanckProcess, InputError, Snapshots, known_system
from itofit.moments.linearised import information_root_of
from itofit.moments.reference import Reference, reference_degree
from itofit.process.features import affine
from itofit.snapshots import Scaling
from itofit.trust.identifiability import identified
from itofit.trust.next_time import NextTime, left_over


def problem(information_root):
    """Affine drifts in two dimensions under a unit prior, seen by `information_root`; log sigma is
    seen by nothing.
    """
    slopes = np.column_stack([information_root, np.zeros(len(information_root))])
    return Reference(affine(2), 2, np.eye(3), 1.0, slopes[None], np.ones(7), np.zeros(6))


def read(reference, cloud, sigma_known):
    return identified(reference, cloud, Scaling.identity(2), ("a", "b"), sigma_known=sigma_known)


@pytest.fixture(scope="module")
def round_cloud():
    """Points at equal distances on the axes: mean 0 and covariance 1 without sampling noise."""
    points = np.sqrt(2.0) * np.asarray([[1.0, 0.0], [-1.0, 0.0], [0.0, 1.0], [0.0, -1.0]])
    return Snapshots.from_arrays([points, points], [0.0, 1.0])


def test_what_is_seen_is_determined_and_a_rotation_that_is_not_is_named(round_cloud):
    """Coefficients in the order 1, x0, x1 by output; all but x1 -> 0 minus x0 -> 1 are seen with s
    = 3: s^2/(1+s^2).
    """
    turn = np.zeros(6)
    turn[[4, 3]] = np.sqrt(0.5) * np.asarray([1.0, -1.0])
    rest = np.eye(6) - np.outer(turn, turn)
    answer = read(problem(3.0 * rest), round_cloud, sigma_known=True)
    assert answer.determined == pytest.approx(0.9 * 5 / 6)
    assert answer.undetermined() == ("a rotation about (0, 0)",)
    fractions = {field.name: field.determined for field in answer.named}
    assert fractions.pop("a rotation about (0, 0)") == pytest.approx(0.0, abs=1e-6)
    np.testing.assert_allclose(list(fractions.values()), 0.9)
    assert answer.sigma is None
    # The largest field left is the rotation itself, of unit size: perpendicular to the state.
    x = np.asarray([[2.0, 1.0], [-0.3, 0.8]])
    assert answer.remaining[0] == pytest.approx(1.0)
    np.testing.assert_allclose(np.sum(answer.field(x) * x, axis=1), 0.0, atol=1e-5)
    assert "a rotation about (0, 0) is not determined" in str(answer)
    assert answer.to_record()["determined"] == answer.determined


def test_sigma_that_the_drift_pays_back_is_an_equilibrium(round_cloud):
    """Along (2 g, 1) with g = -x nothing is seen; the sum of both is seen well."""
    slopes = np.zeros((6, 7))
    slopes[:6, :6] = 10.0 * np.eye(6)
    fitted = np.asarray([0.0, 0.0, -1.0, 0.0, 0.0, -1.0])
    slopes[:, 6] = -slopes[:, :6] @ (2.0 * fitted)
    blind = Reference(affine(2), 2, np.eye(3), 1.0, slopes[None], np.ones(7), fitted)
    unknown = read(blind, round_cloud, sigma_known=False)
    assert "near equilibrium" in str(unknown)
    known = read(blind, round_cloud, sigma_known=True)
    assert "equilibrium" not in str(known)
    assert known.determined > unknown.determined


def test_noise_in_the_jacobian_does_not_count_as_information():
    """J0'J0 within 4 standard errors: of a mean product over 4 folds and 400 rows, noise 2 a fold,
    see `information_root_of`.
    """
    rng = np.random.default_rng(0)
    rows = 400
    J0 = np.zeros((rows, 3))
    J0[:, 0] = 1.0
    folds = J0 + 2.0 * rng.standard_normal((4, rows, 3))
    mean = folds.mean(axis=0)
    G = information_root_of(folds)
    # Noise times noise, and signal times noise.
    error = np.sqrt(2.0 * 4 / 3 * rows) + 2.0 * np.sqrt(rows)
    np.testing.assert_allclose(G.T @ G, J0.T @ J0, atol=4 * error)
    assert (mean.T @ mean)[1, 1] > 300.0  # what would have been taken for information
    careful = information_root_of(folds, doubt=3.0)
    assert np.sum(careful[:, 0] ** 2) < np.sum(G[:, 0] ** 2)
    np.testing.assert_array_equal(information_root_of(folds[:1]), folds[0])


def test_degrees_stay_few():
    assert [reference_degree(n) for n in (1, 2, 4, 10, 16, 50)] == [3, 3, 3, 2, 1, 1]


def test_left_over_variance_is_that_of_a_linear_function():
    slopes = np.asarray([[1.0, 0.0], [1.0, 2.0]])
    covariance = np.diag([4.0, 1.0])
    assert left_over(slopes, covariance) == pytest.approx(np.sqrt((4.0 + 8.0) / 2))
    choice = NextTime(2.0, 100, np.asarray([0.5, 1.5]), 3.0, np.asarray([2.0, 1.0]))
    assert choice.best == 1.5
    assert str(choice).splitlines()[-1] == "take the next snapshot at t = 1.5"
    assert [row["after"] for row in choice.to_records()] == [2.0, 1.0]


@pytest.fixture(scope="module")
def pulled():
    """Two snapshots of an Ornstein-Uhlenbeck process."""
    data = known_system("ou").observe(300, [0.0, 0.5], key=jax.random.key(3))
    return FokkerPlanckProcess(0.7, dt=0.05, solver="moments", random_state=0).fit(data)


def turned(sds):
    """A cloud with these sds turned by 0.5 and by 1 without noise, other points every time."""
    rng = np.random.default_rng(0)
    clouds = []
    for angle in (0.0, 0.5, 1.0):
        c = np.cos(angle)
        s = np.sin(angle)
        clouds.append((rng.standard_normal((400, 2)) * sds) @ np.asarray([[c, s], [-s, c]]))
    data = Snapshots.from_arrays(clouds, [0.0, 0.25, 0.5])
    return FokkerPlanckProcess(0.0, dt=0.05, solver="moments", random_state=0).fit(data)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::itofit.FitWarning")
def test_a_rotation_is_seen_only_where_the_cloud_is_not_round():
    round_one = turned(np.asarray([1.0, 1.0])).identifiability()
    long_one = turned(np.asarray([3.0, 1.0])).identifiability()
    in_round, in_long = (
        next(field for field in answer.named if "rotation" in field.name)
        for answer in (round_one, long_one)
    )
    assert in_round.determined < 0.5
    assert in_long.determined > 0.9
    assert [name for name in round_one.undetermined() if "rotation" in name]
    assert round_one.determined < long_one.determined


def test_two_snapshots_say_what_a_third_would_add(pulled):
    note = pulled.identifiability().notes[-1]
    assert note.startswith("two snapshots determine")
    assert "with a third at t = 0.25" in note
    assert "t = 0.75" in note


def test_a_further_snapshot_leaves_less(pulled, tmp_path):
    choice = pulled.next_time([0.25, 1.0], forecast=1.0)
    assert np.all(choice.after <= choice.before)
    assert choice.after[1] < 0.8 * choice.before
    assert choice.best == 1.0  # there the forecast itself is seen
    pulled.save(tmp_path / "run")
    again = FokkerPlanckProcess.load(tmp_path / "run").next_time([0.25, 1.0], forecast=1.0)
    np.testing.assert_allclose(again.after, choice.after, rtol=1e-3)


@pytest.mark.slow
def test_at_equilibrium_sigma_and_the_scale_of_the_drift_cannot_be_told_apart():
    rng = np.random.default_rng(0)
    clouds = [rng.standard_normal((600, 1)) / np.sqrt(2) for _ in range(3)]
    still = Snapshots.from_arrays(clouds, [0.0, 0.5, 1.0])
    model = FokkerPlanckProcess(1.0, dt=0.05, solver="moments", random_state=0).fit(still)
    unknown = model.identifiability(sigma_known=False)
    assert "near equilibrium" in str(unknown)
    assert unknown.sigma < 0.5
    assert "equilibrium" not in str(model.identifiability())


def test_bad_candidates_are_refused(pulled):
    for wrong in ([], [0.5], [-1.0, 0.2]):
        with pytest.raises(InputError, match="candidates"):
            pulled.next_time(wrong, forecast=1.0)
    with pytest.raises(InputError, match="n_points"):
        pulled.next_time([1.0], forecast=1.0, n_points=0)
