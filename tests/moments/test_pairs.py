"""Pairs: transitions are tested, their slopes and covariance are right, and they tell what
marginals cannot.
"""

from dataclasses import replace
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
import pytest

from itofit import FokkerPlanckProcess, InputError, Moments, PairedSnapshots, Snapshots, split_rows
from itofit.moments.options import MomentsOptions
from itofit.moments.residuals import Simulated
from itofit.moments.squares import law_of_squares
from itofit.moments.whitening import Spread, Whitening, contributions_of
from itofit.process.features import affine
from itofit.process.noise import ConstantDiffusion, first_noise
from itofit.snapshots.scaling import Scaling

# A stationary population, dx = -RATE x dt + s dW with s^2 / (2 RATE) = 1, by Euler steps of DT,
# which the fits use too.
RATE = 0.8
DT = 0.05
TIMES = (0.0, 0.5, 1.0, 1.5)
NOISE = np.sqrt(2.0 * RATE)
FEW = Moments(n_single=4, n_draws=2)


def panel(n, seed):
    """Days x times of independent individuals."""
    rng = np.random.default_rng(seed)
    x = rng.standard_normal(n)
    columns = [x]
    for gap in np.diff(TIMES):
        for _ in range(round(gap / DT)):
            x = x - DT * RATE * x + np.sqrt(DT) * NOISE * rng.standard_normal(n)
        columns.append(x)
    return np.stack(columns, axis=1)


def paired(n=400, seed=0):
    return PairedSnapshots.from_panel(panel(n, seed), TIMES)


def fitted(data, solver=FEW):
    return FokkerPlanckProcess(dt=DT, solver=solver, random_state=0).fit(data)


def slope(model):
    return (model.drift(np.array([1.0])) - model.drift(np.array([-1.0])))[0] / 2.0


def plane(n=150, seed=3):
    """Two coordinates that turn about each other, at three times."""
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((n, 2))
    clouds = [x]
    for _ in range(2):
        x = x @ np.array([[0.8, 0.3], [-0.3, 0.8]]).T + 0.4 * rng.standard_normal(x.shape)
        clouds.append(x)
    return PairedSnapshots.from_arrays(clouds, (0.0, 0.3, 0.6))


class AtUnknowns(NamedTuple):
    residual: Simulated
    v: np.ndarray


@pytest.fixture(scope="module")
def plane_residual(probing_of):
    """A function: the residual of an affine drift and a learned diagonal noise, so many draws of
    each start point, and unknowns that are not the solution.
    """
    data = plane()
    diffusion = first_noise("learn", data, Scaling.identity(2), np.random.default_rng(0))
    probing = probing_of(data, diffusion, 0.1, MomentsOptions(n_single=2, n_pair=1))

    def simulated(n_draws):
        residual = probing.simulated(affine(2), n_draws, cosines=True)
        n_unknowns = residual.n_coefficients + diffusion.n_parameters
        return AtUnknowns(residual, 0.1 * np.random.default_rng(1).standard_normal(n_unknowns))

    return simulated


# The equation


def chain_ends(residual, transition, v):
    """The Euler chains of one transition in numpy, draw by draw, from its own noise."""
    drift = residual.drift(v)
    noise = residual.noise(v)
    W = np.asarray(drift.coefficients, dtype=float)
    S = np.asarray(noise(jnp.zeros(2)), dtype=float)
    count = transition.n_draws * len(transition.weights)
    x = np.concatenate(transition.starts)[:count].astype(float)
    z = np.concatenate(transition.noise, axis=1)[:, :count].astype(float)
    for k in range(transition.n_steps):
        h = float(transition.steps[k])
        x = x + h * (np.column_stack([np.ones(count), x]) @ W) + np.sqrt(h) * z[k] @ S.T
    return x.reshape(transition.n_draws, -1, 2)


def standard(x, like):
    return (x - like.mean(axis=0)) / like.std(axis=0)


def by_hand(start, target, ends):
    """r_jm by its definition, in the order of instruments and then of probes."""
    z = np.clip(standard(start, start), -3.0, 3.0)
    lines = [z[:, 0], z[:, 1]]
    bowls = [(z[:, a] ** 2 - 1) / np.sqrt(2) for a in range(2)]
    rows = []
    for j, h in enumerate([*lines, *bowls]):
        a = j % 2
        is_bowl = j >= 2

        def f(x, a=a, is_bowl=is_bowl):
            u = standard(x, target)
            if is_bowl:
                return np.column_stack([u, u[:, a] ** 2])
            waves = [np.cos(1.5 * u[:, a]), np.sin(1.5 * u[:, a])]
            return np.column_stack([u, u**2, u[:, 0] * u[:, 1], *waves])

        rows.append(h @ (np.mean([f(x) for x in ends], axis=0) - f(target)) / len(h))
    return np.concatenate(rows)


def test_the_residual_is_the_mean_over_individuals_of_instrument_times_surprise(plane_residual):
    residual, v = plane_residual(2)
    clouds = residual.snapshots.clouds
    for transition, rows in zip(residual.transitions, residual(v), strict=True):
        ends = chain_ends(residual, transition, v)
        want = by_hand(clouds[transition.start], clouds[transition.target], ends)
        # Single precision of sums over 150 individuals.
        np.testing.assert_allclose(rows[-len(want) :], want, atol=2e-5)


@pytest.mark.parametrize("backwards", [False, True])
def test_the_jacobian_is_the_slope_of_the_residual(backwards, monkeypatch, plane_residual):
    """Central differences of single precision values: h^2 and 1e-6 / h are below 2e-3 of slopes of
    order one.
    """
    monkeypatch.setattr(Simulated, "_adjoints_are_cheaper", lambda *_: backwards)
    residual, v = plane_residual(1)
    every = np.arange(len(v))
    step = 0.02
    slopes = residual.slopes(v, [np.eye(len(r)) for r in residual(v)], every)
    for p in every:
        move = step * (every == p)
        for rows, up, down in zip(slopes, residual(v + move), residual(v - move), strict=True):
            np.testing.assert_allclose(rows[:, p], (up - down) / (2 * step), atol=4e-3)


def test_folds_are_of_individuals(plane_residual):
    """The folds' residuals, each over a quarter of the individuals at both ends, have the whole one
    as their mean.
    """
    residual, v = plane_residual(1)
    folds = residual.folds()
    sizes = [[len(batch.weights) for batch in part.transitions] for part in folds]
    for n, whole in enumerate(residual(v)):
        mean = sum(size[n] * part(v)[n] for size, part in zip(sizes, folds, strict=True)) / 150
        np.testing.assert_allclose(mean, whole, atol=2e-5)


# The covariance

COUNT = 150


class Replicate(NamedTuple):
    """Residuals at the truth, what their covariance is made of, and the whitening."""

    r: list[np.ndarray]
    spreads: list[Spread]
    whitening: Whitening


@pytest.fixture(scope="module")
def replicates(probing_of):
    """COUNT populations of 200 in their own units, with chains of their own, at the truth."""
    noise = ConstantDiffusion(jnp.asarray([[NOISE]]))
    populations = []
    for seed in range(1000, 1000 + COUNT):
        probing = probing_of(paired(200, seed), noise, DT, FEW, seed)
        residual = probing.simulated(affine(1), 2, cosines=True)
        v = np.array([0.0, -RATE / probing.speed])
        spreads = residual.spreads(v)
        populations.append(Replicate(residual(v), spreads, Whitening.of(spreads)))
    return populations


def test_the_covariance_is_that_of_replicates(replicates):
    """Rows over their own sd, a probe at a time: mean 0, mean square 1, and no correlation between
    transitions.

    Over R = 150 replicates a mean square has the sd sqrt(2 / R) = 0.12 and more for tails, a
    correlation sqrt(1 / R). Of 32 rows a transition some are nearly the same, so that their mean
    square over all is uncertain by some 0.05.
    """
    scaled = []
    for n in range(len(TIMES) - 1):
        squares = [
            np.sum(a**2, axis=0)
            for replicate in replicates
            for _, a in contributions_of(replicate.spreads[n])
        ]
        rows = np.stack([replicate.r[n] for replicate in replicates])
        scaled.append(rows / np.sqrt(squares))
    assert all(np.max(np.abs(np.mean(r**2, axis=0) - 1.0)) < 4 * np.sqrt(2 / COUNT) for r in scaled)
    assert abs(np.mean([np.mean(r**2) for r in scaled]) - 1.0) < 0.15
    assert all(np.max(np.abs(np.mean(r, axis=0))) < 4 / np.sqrt(COUNT) for r in scaled)
    across = np.corrcoef(np.concatenate(scaled, axis=1).T)
    k = scaled[0].shape[1]
    assert np.max(np.abs(across[:k, k:])) < 4.5 / np.sqrt(COUNT)


def test_chi_squared_at_the_truth_is_that_of_its_rows(replicates):
    """Its mean against the law for estimated weights: 4 sd sqrt(2 K / R) of it, and 5 % for terms
    of higher order.
    """
    chi2 = np.asarray([np.sum(whitening(r) ** 2) for r, _, whitening in replicates])
    rows = [np.asarray([len(basis) for basis in whitening.bases]) for _, _, whitening in replicates]
    laws = [law_of_squares(s, whitening.bases) for _, s, whitening in replicates[:40]]
    want = np.mean([np.sum(k * law.mean) for k, law in zip(rows[:40], laws, strict=True)])
    count = np.mean([k.sum() for k in rows])
    assert abs(chi2.mean() - want) < 4 * np.sqrt(2 * count / COUNT) + 0.05 * count
    assert abs(chi2.mean() - count) < 0.2 * count


# What it is for


class Fits(NamedTuple):
    paired: FokkerPlanckProcess
    plain: FokkerPlanckProcess


@pytest.fixture(scope="module")
def fits():
    """The same clouds with pairs, and with rows forgotten."""
    data = paired(600, 4)
    return Fits(fitted(data), fitted(Snapshots.from_arrays(data.clouds, data.times)))


def test_pairs_tell_how_fast_a_stationary_population_forgets(fits):
    error = fits.paired.drift_std(np.array([[1.0], [-1.0]]))[:, 0]
    assert abs(slope(fits.paired) + RATE) < 4 * np.sqrt(np.mean(error**2))
    assert np.all(error < 0.2)
    low, high = fits.paired.covariance_interval(np.zeros(1), level=0.9999)
    assert low[0, 0] < NOISE**2 < high[0, 0]
    assert high[0, 0] / low[0, 0] < 2.0
    assert fits.paired.solution_.path == "simulated"
    assert not fits.paired.goodness_of_fit().rejects(0.001)


def test_the_conditional_mean_has_the_right_slope(fits):
    """exp(-RATE t) by Euler steps; its error is that of the rate times t exp(-RATE t), 0.45."""
    draws = fits.paired.predict_from(np.array([[-1.0], [1.0]]), 0.0, 1.0, n_paths=20_000).draws
    forgotten = float(draws[1].mean() - draws[0].mean()) / 2.0
    error = 0.45 * fits.paired.drift_std(np.array([1.0]))[0] + 0.005
    assert abs(forgotten - (1.0 - DT * RATE) ** 20) < 4 * error


def test_without_pairs_the_rate_is_not_known(fits):
    """The same clouds, rows forgotten: other answers, or answers with an error bar as large as they
    are.
    """
    intervals = [np.stack(model.covariance_interval(np.zeros(1))) for model in fits]
    with_pairs, without = (float(np.ptp(np.log(interval))) for interval in intervals)
    assert without > 1.0 > 2.0 * with_pairs
    assert abs(slope(fits.plain) - slope(fits.paired)) > 1e-3


def test_the_rest_works_as_for_others(fits):
    assert fits.paired.predict(1.0).shape == (600, 1)
    assert np.isfinite(fits.paired.bands([1.2, 2.0], start="previous").mean_std).all()
    assert "W1" in str(fits.paired.scorecard(Snapshots.from_panel(panel(100, 9), TIMES)))


# Pairs on the way


def test_a_saved_fit_has_its_pairs_again(fits, tmp_path):
    fits.paired.save(tmp_path / "run")
    back = FokkerPlanckProcess.load(tmp_path / "run").snapshots_
    before = fits.paired.snapshots_
    assert isinstance(back, PairedSnapshots)
    assert all(map(np.array_equal, back.clouds, before.clouds))
    assert all(map(np.array_equal, back.weights, before.weights))


def test_no_way_in_parts_the_pairs():
    values = np.arange(40.0)[:, None] + 100.0 * np.arange(3.0)
    whole = PairedSnapshots.from_arrays(list(values.T[:, :, None]), (2.0, 0.0, 1.0))
    rest, held = split_rows(whole, 0.3)
    parts = [
        whole,
        rest,
        held,
        whole.thinned(1, 4),
        Scaling.fit(whole).transform(whole),
        whole.select([0, 2]),
    ]
    for part in parts:
        assert isinstance(part, PairedSnapshots)
    for part in parts[:4]:
        first, second, third = (x[:, 0] % 100.0 for x in part.clouds)
        assert np.array_equal(first, second)
        assert np.array_equal(first, third)
        assert all(w.sum() == pytest.approx(1.0) for w in part.weights)
    assert not set(rest.clouds[0][:, 0]) & set(held.clouds[0][:, 0])


@pytest.mark.parametrize("solver", [replace(FEW, anchor="initial"), replace(FEW, path="observed")])
def test_only_chains_from_snapshot_to_snapshot(solver):
    with pytest.raises(InputError, match="chains from each snapshot to the next"):
        fitted(paired(50), solver)


def test_other_refusals():
    values = np.random.default_rng(0).standard_normal((30, 3, 17))
    many = PairedSnapshots.from_panel(values, (0.0, 1.0, 2.0))
    with pytest.raises(InputError, match="at most 16 coordinates"):
        fitted(many)
    with pytest.raises(InputError, match="same individuals"):
        PairedSnapshots.from_arrays([np.zeros((3, 1)), np.ones((4, 1))], (0.0, 1.0))
