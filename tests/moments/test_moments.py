"""The moments solver: it recovers, says how well, repeats, stops, and takes data as they come."""

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from itofit import (
    Adversarial,
    FitWarning,
    FokkerPlanckProcess,
    InputError,
    Moments,
    Outcome,
    Snapshots,
    known_system,
)
from itofit.moments.options import MomentsOptions
from itofit.moments.whitening import Whitening
from itofit.process.features import affine, joined, polynomials, ridges
from itofit.process.noise import ConstantDiffusion
from itofit.solution import Phase

# dx = (B + A x) dt + SIGMA dW by Euler steps of DT, which the fits use too, so nothing but sampling
# stands between a fit and the truth.
A = -1.5
B = 1.5
SIGMA = 0.6
DT = 0.05
TIMES = (0.0, 0.2, 0.5, 1.0)
COUNTS = (150, 200, 240, 180)
FEW = Moments(n_single=4, n_pair=4, n_draws=2)
OWN = dataclasses.replace(FEW, dictionary=lambda x: jnp.stack([1.0, x[0]]))


def line_cloud(n, time, rng, sigma=SIGMA):
    """Independent points of the law at that time, started from N(2.5, 1)."""
    x = 2.5 + rng.standard_normal(n)
    for _ in range(round(time / DT)):
        x = x + DT * (B + A * x) + np.sqrt(DT) * sigma * rng.standard_normal(n)
    return x[:, None]


def line_data(seed, counts=COUNTS, sigma=SIGMA):
    rng = np.random.default_rng(seed)
    clouds = [line_cloud(n, t, rng, sigma) for n, t in zip(counts, TIMES, strict=True)]
    return Snapshots.from_arrays(clouds, TIMES)


def moments(solver=FEW, sigma=SIGMA, dt=DT, random_state=0):
    return FokkerPlanckProcess(sigma, dt=dt, solver=solver, random_state=random_state)


def own_coefficients(model):
    """Coefficients of the user's dictionary and their covariance in the user's units.

    The solver's features are f(x) / size and its states z = (x - mean) / sd, so that g_o(x) = sd_o
    sum_f W_fo f(x) / size_f.
    """
    evidence = model.solution_.evidence
    size = np.asarray(model.standard_process_.drift.features.size)
    factor = model.scaling_.sd[None, :] / size[:, None]
    return evidence.coefficients * factor, evidence.covariance * np.outer(factor, factor)


def standard_errors_off(model, truth):
    values, covariance = own_coefficients(model)
    return np.abs(values - truth) / np.sqrt(np.diag(covariance)).reshape(values.shape)


def same(a, b):
    leaves = [jax.tree.leaves(eqx.filter(m.standard_process_, eqx.is_array)) for m in (a, b)]
    return len(leaves[0]) == len(leaves[1]) and all(map(np.array_equal, *leaves))


LINE = np.array([[B], [A]])


@pytest.fixture(scope="module")
def data():
    return line_data(1)


@pytest.fixture(scope="module")
def model(data):
    return moments().fit(data)


@pytest.fixture(scope="module")
def own(data):
    return moments(OWN).fit(data)


PLANE = np.array([[1.0, -1.0], [-1.0, 2.0], [-1.5, -1.5]])  # rows: 1, x0, x1; columns: outputs


@pytest.fixture(scope="module")
def plane():
    """A spiral with couplings of many standard errors, fresh particles at every time."""
    rng = np.random.default_rng(2)
    clouds = []
    for t in (0.0, 0.3, 1.0):
        x = np.array([2.0, 0.0]) + rng.standard_normal((250, 2)) * [1.0, 0.5]
        for _ in range(round(t / DT)):
            x = (
                x
                + DT * (PLANE[0] + x @ PLANE[1:])
                + 0.5 * np.sqrt(DT) * rng.standard_normal(x.shape)
            )
        clouds.append(x)
    return Snapshots.from_arrays(clouds, [0.0, 0.3, 1.0])


# --- what it finds


def test_a_line_is_recovered_within_its_standard_errors(own):
    """Two normal numbers: 4 standard errors are passed with probability 1e-4."""
    assert own.outcome_ is Outcome.converged
    assert np.max(standard_errors_off(own, LINE)) < 4.0
    # The errors must not be so large that anything passes: 770 points tell a rate of 1.5 to better
    # than a fifth.
    assert np.sqrt(np.diag(own_coefficients(own)[1])).max() < 0.3


def test_standard_errors_are_calibrated():
    """Over 8 data sets the squared errors in standard errors have a mean of 1 with sd at most
    sqrt(2 / 8) = 0.5.

    (At most, since errors of slope and offset are correlated.) The bound is 4 of these above 1, and
    0.2 below. Over 60 data sets the mean was 1.7, so standard errors are too small by a quarter at
    this size (1.4 with four times the points); perhaps because moments are weighted by a covariance
    estimated from the same points.
    """
    squares = [
        standard_errors_off(moments(OWN).fit(line_data(100 + i)), LINE) ** 2 for i in range(8)
    ]
    assert 0.2 < np.mean(squares) < 1.0 + 4 * 0.5


def test_the_whole_dictionary_shrinks_to_a_line(model):
    """The evidence keeps the constant and x alone, and the drift is right where the data are.

    The sd of the drift under the posterior over the constant and x is the tolerance, 4 of them.
    """
    assert model.outcome_ is Outcome.converged
    assert model.solution_.evidence.alive.tolist() == [[True], [True]]
    x = np.linspace(0.3, 3.5, 9)[:, None]
    z = model.scaling_.standardise(x)
    phi = np.column_stack([np.ones(len(z)), z])
    covariance = model.solution_.evidence.covariance
    sd = model.scaling_.sd[0] * np.sqrt(np.einsum("nf,fg,ng->n", phi, covariance, phi))
    assert np.max(np.abs(model.drift(x)[:, 0] - (B + A * x[:, 0])) / sd) < 4.0


@pytest.mark.filterwarnings("ignore:halving dt")  # the data come from this very chain
def test_syn1_is_found_affine_and_diagonal():
    system = dataclasses.replace(known_system("syn1"), dt=DT)
    data = system.observe(400, [0.0, 0.2, 2.0], key=jax.random.key(1))
    model = moments(sigma=1.0).fit(data)
    parts = model.standard_process_.drift.features.parts
    assert [tuple(term) for part in parts for term in part.terms] == [(), (0,), (1,)]
    evidence = model.solution_.evidence
    assert evidence.alive.tolist() == [[True, True], [True, False], [False, True]]
    # Bands from the same covariance the fit reports; particles are shared here, which makes them
    # too wide, not narrow.
    rates = np.diag(evidence.coefficients[1:])
    sd = np.sqrt(np.diag(evidence.covariance)[[2, 5]])
    assert np.all(np.abs(rates - [-4.0, -1.0]) < 4.0 * sd)
    assert np.all(sd < [0.4, 0.2])


@pytest.mark.filterwarnings("ignore:halving dt")  # the data come from this very chain
@pytest.mark.parametrize("anchor", ["initial", "previous"])
def test_the_plane_is_recovered_from_either_anchor(plane, anchor):
    """All six coefficients of the oracle dictionary within 4 of their standard errors; true for all
    is 4e-4.

    Couplings are strong on purpose: the covariance is given the relevances, so it is too small for
    a coefficient of two or three standard errors that the evidence shrinks to zero (and for those
    that must make up for it).
    """
    oracle = dataclasses.replace(
        FEW, anchor=anchor, dictionary=lambda x: jnp.stack([1.0, x[0], x[1]])
    )
    model = moments(oracle, sigma=0.5).fit(plane)
    assert model.outcome_ is Outcome.converged
    assert np.all(model.solution_.evidence.alive)
    assert np.max(standard_errors_off(model, PLANE)) < 4.0
    assert np.sqrt(np.diag(own_coefficients(model)[1])).max() < 0.6


@pytest.mark.parametrize("anchor", ["initial", "previous"])
def test_chi_squared_of_the_true_drift_is_its_degrees_of_freedom(anchor, probing_of):
    """Over 30 independent data sets chi2 / rows is 1 with sd sqrt(2 / rows).

    The covariance is estimated from the same points: as in Hotelling's T2 that raises chi2 by about
    rows / points of a transition, here at most 8 / 150, so the upper bound is larger by that.
    """
    chi2 = 0.0
    rows = 0
    diffusion = ConstantDiffusion(jnp.full((1, 1), SIGMA))
    for seed in range(200, 230):
        probing = probing_of(line_data(seed), diffusion, DT, MomentsOptions(anchor=anchor), seed)
        residual = probing.simulated(affine(1), 2, cosines=True)
        v = LINE.ravel() / residual.speed
        y = Whitening.of(residual.spreads(v))(residual(v))
        chi2 = chi2 + float(y @ y)
        rows = rows + len(y)
    sd = np.sqrt(2.0 / rows)
    assert sd < 0.08
    assert 1.0 - 4.0 * sd < chi2 / rows < 1.0 + 8.0 / 150.0 + 4.0 * sd


def test_a_wrong_sigma_shows_in_chi_squared(data):
    with pytest.warns(FitWarning, match="chi-squared"):
        model = moments(OWN, sigma=1.5).fit(data)
    assert model.solution_.evidence.reduced_chi2 > 2.0


def test_the_reduced_chi2_of_a_good_fit_is_about_one(own):
    """Its sd is sqrt(2 / dof), with dof = rows - determined; 4 of them."""
    evidence = own.solution_.evidence
    determined = float(np.sum(evidence.n_determined))
    assert 0.0 < determined <= 2.0
    assert evidence.chi2.shape == evidence.n_rows.shape == (3,)
    dof = float(np.sum(evidence.n_rows)) - determined
    assert abs(evidence.reduced_chi2 - 1.0) < 4.0 * np.sqrt(2.0 / dof)


# --- the residual


def test_the_jacobian_is_the_slope_of_the_whitened_residual(probing_of):
    """Central differences of step e in single precision: errors of order e^2 and 1e-6 / e, hence 2
    % of the largest.
    """
    data = known_system("ou").observe(60, [0.0, 0.3, 1.0], key=jax.random.key(4))
    box = np.full(2, 3.0)
    drawn = ridges(2, [(0,), (0, 1)], 2, np.random.default_rng(0))
    dictionary = joined([affine(2), polynomials(2, -box, box), drawn])
    probing = probing_of(data, ConstantDiffusion(0.7 * jnp.eye(2)), 0.1)
    residual = probing.simulated(dictionary, 1, cosines=True)
    v = 0.05 * np.random.default_rng(1).standard_normal(2 * residual.dictionary.n_features)
    whitening = Whitening.of(residual.spreads(v), 1.0)
    J = residual.jacobian(v, whitening, np.arange(len(v)))
    assert J.shape == (sum(map(len, whitening.bases)), len(v))
    e = 3e-3
    for p in range(0, len(v), 3):
        shift = np.zeros(len(v))
        shift[p] = e
        slope = (whitening(residual(v + shift)) - whitening(residual(v - shift))) / (2.0 * e)
        np.testing.assert_allclose(J[:, p], slope, atol=0.02 * np.abs(J).max())


def test_speed_and_units_cancel(data, model):
    """Other units of state and time: x' = 1000 x - 7 and t' = 50 t give g' = 20 g; selection
    included.

    Rows stay where they are (on entry they are shuffled by their values), so that the same points
    meet the same noise and single precision is all that differs: a hundredth of a posterior sd.
    """
    clouds = [1000.0 * x - 7.0 for x in data.clouds]
    rescaled = dataclasses.replace(data.with_clouds(clouds), times=50.0 * data.times + 3.0)
    other = moments(sigma=1000.0 * SIGMA / np.sqrt(50.0), dt=50.0 * DT).fit(rescaled)
    x = np.linspace(0.0, 3.0, 5)[:, None]
    evidence = model.solution_.evidence
    sd = model.scaling_.sd[0] * np.sqrt(evidence.covariance[0, 0])
    apart = np.abs(other.drift(1000.0 * x - 7.0) / 20.0 - model.drift(x))
    assert np.max(apart) < 1e-2 * sd
    assert other.solution_.evidence.alive.tolist() == evidence.alive.tolist()


# --- data as they come


@pytest.mark.filterwarnings("ignore:chi-squared")
def test_weights_restore_a_law_that_was_thinned():
    """After the first time, points above the median of their cloud are observed a quarter as often
    and count four times.

    With weights the line is within 4 standard errors; without them it is not.
    """
    rng = np.random.default_rng(3)
    clouds = []
    weights = []
    for t in TIMES:
        x = line_cloud(330 if t else 250, t, rng)
        high = (x[:, 0] > np.median(x)) & (t > 0)
        keep = ~high | (rng.uniform(size=len(x)) < 0.25)
        clouds.append(x[keep])
        weights.append(np.where(high, 4.0, 1.0)[keep])
    weighted = moments(OWN).fit(Snapshots.from_arrays(clouds, TIMES, weights))
    assert np.max(standard_errors_off(weighted, LINE)) < 4.0
    plain = moments(OWN).fit(Snapshots.from_arrays(clouds, TIMES))
    assert np.max(standard_errors_off(plain, LINE)) > 4.0


def test_equal_weights_are_no_weights(data, own):
    """Whatever their size: weights are fractions.

    Integer weights are *not* repeated rows: a weight of 2 is one draw that counts double (variance
    w^2), two rows are two draws (see test_whitening).
    """
    twos = [np.full(len(x), 2.0) for x in data.clouds]
    doubled = Snapshots.from_arrays(data.clouds, data.times, twos)
    assert same(moments(OWN).fit(doubled), own)


def test_no_noise():
    """sigma = 0: a deterministic flow."""
    model = moments(OWN, sigma=0.0).fit(line_data(5, sigma=0.0))
    assert np.max(standard_errors_off(model, LINE)) < 4.0
    assert np.all(np.isfinite(model.predict(1.0)))


def test_sigma_as_a_function_of_the_state():
    """dx = (B + A x) dt + 0.4 (1 + x^2)^1/2 dW."""
    rng = np.random.default_rng(8)
    clouds = []
    for n, t in zip(COUNTS, TIMES, strict=True):
        x = 2.5 + rng.standard_normal(n)
        for _ in range(round(t / DT)):
            x = x + DT * (B + A * x) + 0.4 * np.sqrt(DT * (1.0 + x**2)) * rng.standard_normal(n)
        clouds.append(x[:, None])
    model = moments(OWN, sigma=lambda x: 0.4 * jnp.sqrt(1.0 + x**2))
    model.fit(Snapshots.from_arrays(clouds, TIMES))
    assert np.max(standard_errors_off(model, LINE)) < 4.0
    assert all(np.all(np.isfinite(x)) for x in model.forecast([0.5, 3.0]).clouds)


# --- a dictionary of one's own


def test_what_the_dictionary_does_not_need_is_dropped(data):
    def extra(x):
        return jnp.stack([1.0, x[0], jnp.sin(3.0 * x[0]), jnp.cos(5.0 * x[0])])

    model = moments(dataclasses.replace(FEW, dictionary=extra)).fit(data)
    assert model.solution_.evidence.alive.tolist() == [[True], [True]]
    assert model.standard_process_.drift.features.kept == (0, 1)


def test_a_function_is_not_saved(own, tmp_path):
    with pytest.raises(InputError):
        own.save(tmp_path / "run")
    assert not (tmp_path / "run" / "model.npz").exists()


@pytest.mark.parametrize(
    ("dictionary", "words"),
    [
        (lambda x: jnp.stack([1.0, 1.0 / (x[0] - x[0])]), "finite"),
        (lambda x: jnp.ones((2, 2)), "vector"),
        (lambda x: jnp.stack([1.0, x[0]]) if x[0] > 0 else jnp.ones(2), "jax function"),
        (lambda x: x @ jnp.ones(5), "jax function"),
        ("x0", "jax function"),
        (lambda x, y: x, "jax function"),
    ],
)
def test_bad_dictionaries_are_refused(data, refused, dictionary, words):
    with refused("dictionary", words):
        moments(Moments(dictionary=dictionary)).fit(data)


# --- runs


def test_same_seed_same_fit_and_row_order_does_not_matter(data, model):
    X, t, _ = data.to_rows()
    order = np.random.default_rng(0).permutation(len(X))
    again = moments().fit(X[order], t[order])
    assert same(model, again)
    assert not same(model, moments(random_state=1).fit(data))
    for name, value in vars(model.history_).items():
        np.testing.assert_array_equal(getattr(again.history_, name), value)


def test_a_saved_model_is_the_model(model, tmp_path):
    model.save(tmp_path / "run")
    loaded = FokkerPlanckProcess.load(tmp_path / "run")
    assert loaded.solver_ == model.solver_
    assert loaded.outcome_ is model.outcome_
    forecasts = [m.forecast([0.3, 2.0]).clouds for m in (model, loaded)]
    for a, b in zip(*forecasts, strict=True):
        np.testing.assert_array_equal(a, b)
    for record in ("history", "evidence"):
        restored = getattr(loaded.solution_, record)
        for name, value in vars(getattr(model.solution_, record)).items():
            np.testing.assert_array_equal(getattr(restored, name), value)
    assert loaded.solution_.evidence.reduced_chi2 == model.solution_.evidence.reduced_chi2


def test_history_is_complete(model):
    history = model.history_
    assert {len(column) for column in vars(history).values()} == {model.n_iter_}
    assert np.all(np.diff(history.phase) >= 0)
    assert set(history.phase.tolist()) == {Phase.aim, Phase.select, Phase.polish}
    assert np.all(history.temperature >= 1.0)
    assert np.all(history.temperature[history.phase > Phase.aim] == 1.0)
    assert history.n_groups[-1] == 1  # the constant is no group
    assert np.all(np.isfinite(history.objective))


def test_a_small_budget_ends_the_run(data):
    hurried = moments(dataclasses.replace(FEW, n_iter=3)).fit(data)
    assert hurried.outcome_ is Outcome.budget
    assert hurried.n_iter_ == len(hurried.history_.phase) == 3
    assert np.all(np.isfinite(hurried.predict(1.0)))


class StopAfter:
    """Presses Ctrl-C at a given iteration."""

    def __init__(self, count):
        self.count = count
        self.observed = []

    def __call__(self, progress):
        self.observed.append(progress)
        if len(self.observed) == self.count:
            raise KeyboardInterrupt


@pytest.mark.parametrize("count", [1, 5, 9])
def test_an_interrupted_run_keeps_what_it_has(data, model, count, tmp_path):
    listener = StopAfter(count)
    with pytest.warns(FitWarning, match="interrupted"):
        part = moments().fit(data, listeners=[listener])
    assert part.outcome_ is Outcome.interrupted
    assert part.n_iter_ == count == len(part.history_.phase)
    assert part.solution_.evidence is None
    assert [p.n_done for p in listener.observed] == list(range(1, count + 1))
    assert np.all(np.isfinite(part.predict(1.0)))
    part.save(tmp_path / "run")
    loaded = FokkerPlanckProcess.load(tmp_path / "run")
    np.testing.assert_array_equal(loaded.predict(1.0), part.predict(1.0))
    # The iteration began at the drift 0: what was kept is nearer to the end than that.
    x = np.linspace(0.5, 3.0, 6)[:, None]
    assert np.linalg.norm(part.drift(x) - model.drift(x)) < np.linalg.norm(model.drift(x))


# --- which options


@pytest.mark.parametrize(
    "option", ["gradient", "discrepancy", "batch_size", "drift_rate", "warm_start", "drift_width"]
)
def test_options_of_the_adversarial_solver_are_not_its_own(option):
    names = {kind: {f.name for f in dataclasses.fields(kind)} for kind in (Moments, Adversarial)}
    assert option in names[Adversarial] - names[Moments]
    with pytest.raises(TypeError, match=option):
        Moments(**{option: None})


def test_unknown_choices_are_refused(data, refused):
    with refused("solver"):
        moments("newton").fit(data)
    with pytest.raises(TypeError, match="n_pears"):
        Moments(n_pears=3)
    with refused("max_directions"):
        Moments(max_directions=0.0)
    with refused("n_iter"):
        Moments(n_iter=0)
    with refused("anchor"):
        Moments(anchor="middle")


@pytest.mark.slow
def test_a_warm_start_begins_at_the_moments_drift(data, model, tmp_path):
    """With a learning rate of nothing the correction stays zero."""
    fresh_solver = Adversarial(
        warm_start=None,
        drift_width=8,
        drift_depth=1,
        eval_every=1,
        drift_rate=1e-12,
        probe_rate=1e-12,
        n_iter=1,
        batch_size=32,
        gradient="detached",
    )
    two = data.select([0, 3])
    warm = moments(dataclasses.replace(fresh_solver, warm_start="moments")).fit(two)
    fresh = moments(fresh_solver).fit(two)
    assert warm.solver_.name == "adversarial"
    x = two.clouds[1]
    away = [np.sqrt(np.mean((m.drift(x) - model.drift(x)) ** 2)) for m in (warm, fresh)]
    # Two of four snapshots and the default dictionary instead of a small one: a fraction of the
    # drift apart.
    assert away[0] < 0.4 * np.sqrt(np.mean(model.drift(x) ** 2))
    assert away[1] > 2.0 * away[0]
    warm.save(tmp_path)
    again = FokkerPlanckProcess.load(tmp_path)
    np.testing.assert_allclose(again.drift(x), warm.drift(x), rtol=1e-6)
    assert len(again.members_) == 1
