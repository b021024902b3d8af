"""Dense snapshots: the seen clouds as a path, when that is right and when it is not."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from itofit import FitWarning, FokkerPlanckProcess, InputError, Snapshots
from itofit.process.diffusion import ConstantDiffusion
from itofit.process.features import affine
from itofit.process.noise import noise_of
from itofit.simulate.mesh import Mesh
from itofit.snapshots.scaling import Scaling
from itofit.solve.dense import dense_gaps
from itofit.solve.options import MomentsOptions
from itofit.solve.seen_path import SeenPath
from itofit.solve.task import Task
from itofit.weak.fixed_probes import CosineProbes, JoinedProbes, MomentProbes

# dX = (B + A X) dt + SIGMA dW: Gaussian at all times, drawn exactly.
A, B, SIGMA = -1.5, 1.5, 0.6
LINE = np.array([[B], [A]])
DENSE = np.linspace(0.0, 1.0, 17)


def law(t):
    """Mean and sd at time t from N(2, 1)."""
    decay = np.exp(A * t)
    return 2.0 * decay + B / A * (decay - 1.0), np.sqrt(decay**2 + SIGMA**2 * (decay**2 - 1.0) / (2.0 * A))


def line_data(times, n=600, seed=0):
    rng = np.random.default_rng(seed)
    clouds = [mean + sd * rng.standard_normal((n, 1)) for mean, sd in map(law, times)]
    return Snapshots.from_arrays(clouds, list(times))


def fitted(data, dt="auto", **options):
    chosen = {"dictionary": lambda x: jnp.stack([1.0, x[0]]), "n_draws": 2} | options
    return FokkerPlanckProcess(SIGMA, dt=dt, solver="moments", random_state=0, options=chosen).fit(data)


@pytest.fixture(scope="module")
def dense():
    return fitted(line_data(DENSE))


def test_dense_snapshots_need_no_simulation_and_say_so(dense):
    """Standard errors of the linear problem; 4 of them."""
    assert dense.path_ == "seen"
    assert np.all(dense.history_.phase == 3)
    found, error = dense.dictionary_coefficients()
    assert np.all(np.abs(found - LINE) < 4.0 * error)
    assert np.max(error) < 0.3


@pytest.mark.slow
def test_a_learned_noise_is_read_off_dense_snapshots_as_well(dense):
    """4 of its own standard errors; and the drift is as uncertain as it must be when sigma is unknown."""
    model = FokkerPlanckProcess(solver="moments", random_state=0, options=dense.options).fit(line_data(DENSE))
    assert model.path_ == "seen"
    a, std = model.covariance(np.zeros(1))[0, 0], model.covariance_std(np.zeros(1))[0, 0]
    assert abs(a - SIGMA**2) < 4.0 * std
    assert std < 0.5 * SIGMA**2
    assert np.all(model.drift_std(np.ones((1, 1))) > dense.drift_std(np.ones((1, 1))))
    with pytest.raises(InputError, match="the same everywhere"):
        FokkerPlanckProcess("multiplicative", solver="moments", options={"path": "seen"}).fit(line_data(DENSE))


@pytest.mark.parametrize("kind", ["scalar", "full"])
def test_residuals_on_the_seen_path_move_with_the_noise_as_differences_say(kind):
    rng = np.random.default_rng(0)
    clouds = [rng.standard_normal((80, 2)) * (1.0 + 0.1 * k) for k in range(3)]
    data = Snapshots.from_arrays(clouds, [0.0, 0.1, 0.2])
    noise = noise_of(kind, Scaling(np.zeros(2), np.asarray([1.0, 2.0])), np.asarray([0.5, 0.7]), seed=0)
    task = Task(data, noise, Mesh.refine(data.times, 0.05), MomentsOptions(share=0.5), 0)
    seen, n_noise = task.seen_path(affine(2), [0, 1]), noise.n_parameters
    v = np.append(0.1 * rng.standard_normal(6), 0.5 * np.arange(1.0, 1.0 + n_noise))
    whitening, columns, h = task.whitening(seen, v), np.asarray([1, *(6 + np.arange(n_noise))]), 0.05
    J = seen.jacobian(v, whitening, columns)
    for column, p in zip(J.T, columns, strict=True):
        step = h * (np.arange(len(v)) == p)
        slope = (whitening(seen(v + step)) - whitening(seen(v - step))) / (2.0 * h)
        # Entries of a are quadratic in exp(theta), theta moves by 0.005: relative error 1e-5; single precision 1e-4.
        np.testing.assert_allclose(column, slope, rtol=2e-3, atol=1e-3 * np.abs(column).max())


def test_the_misfit_of_dense_snapshots_is_about_one(dense):
    """Chi2 / dof has the sd sqrt(2 / dof); 4 of them, and Hotelling's rows / points on top."""
    evidence = dense.evidence_
    assert abs(evidence.misfit - 1.0) < 4.0 * np.sqrt(2.0 / evidence.n_free) + np.max(evidence.n_rows) / 600.0


def test_a_wider_gap_is_corrected_by_a_simulation():
    """Two gaps of a third of a relaxation time: the trapezoid alone would be off by more than the corrected fit is."""
    data = line_data([0.0, 0.25, 0.5], n=20_000)
    model = fitted(data)
    assert model.path_ == "corrected"
    found, error = model.dictionary_coefficients()
    assert np.all(np.abs(found - LINE) < 4.0 * error)
    with pytest.warns(FitWarning, match="chi-squared"):
        trapezoid, _ = fitted(data, path="seen").dictionary_coefficients()
    assert np.abs(trapezoid - LINE)[1, 0] > 2.0 * np.abs(found - LINE)[1, 0]


def test_far_snapshots_are_simulated():
    data = line_data([0.0, 3.0])
    assert dense_gaps(data) == []
    assert fitted(data).path_ == "simulated"


def test_a_step_the_user_chose_is_simulated_unless_the_path_is_dense():
    assert fitted(line_data([0.0, 0.25, 0.5]), dt=0.05).path_ == "simulated"


def test_a_path_that_cannot_be_is_refused():
    with pytest.raises(InputError, match="path"):
        fitted(line_data(DENSE), path="dreamt")
    with pytest.raises(InputError, match="anchor"):
        fitted(line_data(DENSE), path="seen", anchor="initial")


@pytest.mark.slow
def test_a_saved_dense_model_remembers_its_path(tmp_path):
    options = {"n_single": 2, "n_pair": 0}
    data = line_data(DENSE, n=200)
    model = FokkerPlanckProcess(SIGMA, solver="moments", random_state=0, options=options).fit(data)
    model.save(tmp_path / "run")
    loaded = FokkerPlanckProcess.load(tmp_path / "run")
    assert loaded.path_ == model.path_
    x = np.linspace(0.0, 2.0, 5)[:, None]
    np.testing.assert_allclose(loaded.drift(x), model.drift(x), rtol=1e-6)
    assert np.all(model.drift_std(x) > 0.0)
    np.testing.assert_allclose(loaded.drift_std(x), model.drift_std(x), rtol=1e-4)


def test_coefficients_are_those_of_the_users_dictionary(dense):
    found, _ = dense.dictionary_coefficients()
    x = np.linspace(0.0, 2.0, 5)
    np.testing.assert_allclose(dense.drift(x[:, None])[:, 0], found[0, 0] + found[1, 0] * x, rtol=1e-4)
    plain = FokkerPlanckProcess(SIGMA, solver="moments", random_state=0, options={"n_single": 2, "n_draws": 2})
    with pytest.raises(InputError, match="dictionary"):
        plain.fit(line_data(DENSE, n=100)).dictionary_coefficients()


# --- the linear residual


def plane():
    """Two unequal clouds of points in the plane with weights, correlated noise, and an affine drift."""
    rng = np.random.default_rng(3)
    clouds = [rng.standard_normal((n, 2)) + shift for n, shift in ((70, 0.0), (90, 0.4))]
    weights = [rng.uniform(0.5, 2.0, len(x)) for x in clouds]
    data = Snapshots.from_arrays(clouds, [0.0, 0.3], weights=weights)
    diffusion = ConstantDiffusion(jnp.asarray([[0.5, 0.0], [0.2, 0.4]]))
    task = Task(data, diffusion, Mesh.refine(data.times, 0.1), MomentsOptions(), 0)
    return data, diffusion, task.seen_path(affine(2), [0])


def generator(f, g, S, x):
    """Lf = g . grad f + 1/2 tr(S S' f'') by automatic differentiation."""
    bend = 0.5 * jnp.einsum("mij,ik,jk->m", jax.hessian(f)(x), S, S)
    return jax.jacfwd(f)(x) @ g(x) + bend


@pytest.mark.slow
def test_the_linear_residual_is_the_trapezoid():
    data, diffusion, seen = plane()
    v = np.random.default_rng(0).standard_normal(6)
    (probes,), (w0, w1), (x0, x1) = seen.probes, data.weights, data.clouds
    process, S = seen.process(v), diffusion(jnp.zeros(2))

    def mean(f, x, w):
        return w @ np.asarray(jax.vmap(f)(jnp.asarray(x, dtype=float)), dtype=np.float64)

    def change(x):
        return generator(probes, process.drift, S, x)

    wanted = mean(probes, x0, w0) - mean(probes, x1, w1) + 0.15 * (mean(change, x0, w0) + mean(change, x1, w1))
    # Single precision: 1e-6 of values of order ten.
    np.testing.assert_allclose(seen(v)[0], wanted, atol=1e-4)


def test_the_spread_of_the_seen_path_is_that_of_its_ends():
    data, _, seen = plane()
    v = np.random.default_rng(0).standard_normal(6)
    (spread,) = seen.spreads(v)
    r = spread.start_weights @ spread.flown - spread.target_weights @ spread.seen
    np.testing.assert_allclose(r, seen(v)[0], atol=1e-4)


def test_a_subset_stands_for_all_points_in_the_spread(monkeypatch):
    """With a quarter of the points the spread of the mean is the same, up to the sampling of a variance, 10 %."""
    data = line_data([0.0, 0.1], n=8000)
    task = Task(data, ConstantDiffusion(jnp.full((1, 1), SIGMA)), Mesh.refine(data.times, 0.1), MomentsOptions(), 0)
    seen = task.seen_path(affine(1), [0])

    def variance():
        (spread,) = seen.spreads(np.zeros(2))
        w, f = spread.start_weights, spread.flown
        return len(w), w**2 @ (f - w @ f) ** 2

    monkeypatch.setattr("itofit.solve.seen_path._FEWEST", 8000)
    count, whole = variance()
    monkeypatch.setattr("itofit.solve.seen_path._FEWEST", 2000)
    some, part = variance()
    assert (count, some) == (8000, 2000)
    np.testing.assert_allclose(part, whole, rtol=0.15)


def test_dropping_groups_drops_their_columns():
    _, _, seen = plane()
    assert isinstance(seen, SeenPath)
    marks = np.array([True, False, True])
    smaller, v = seen.only(marks), np.random.default_rng(1).standard_normal(4)
    padded = np.insert(v, 2, [0.0, 0.0])
    np.testing.assert_allclose(smaller(v)[0], seen(padded)[0])


# --- what the probes know of themselves


def all_probes():
    rng = np.random.default_rng(7)
    centre, width = jnp.asarray(rng.standard_normal(3), dtype=float), jnp.asarray([0.5, 1.0, 2.0])
    omega = jnp.asarray([[1.0, 0.0, 0.0], [0.5, 0.0, -1.0]])
    cosines = CosineProbes(centre, width, omega, jnp.asarray([0.3, 1.0]))
    return JoinedProbes((MomentProbes(centre, width, ((0, 0), (0, 2), (1, 2))), cosines))


def test_bends_are_second_derivatives():
    probes, x = all_probes(), jnp.asarray([0.2, -0.4, 1.0])
    factor = jnp.asarray(np.random.default_rng(2).standard_normal((3, 3)), dtype=float)
    wanted = generator(probes, jnp.zeros_like, factor, x)
    np.testing.assert_allclose(probes.bend(x, factor @ factor.T), wanted, rtol=1e-5, atol=1e-5)


def test_pairings_are_sums_of_gradients():
    probes, rng = all_probes(), np.random.default_rng(5)
    x, phi = (jnp.asarray(rng.standard_normal(shape), dtype=float) for shape in ((11, 3), (11, 4)))
    wanted = jnp.einsum("nmi,nf->mif", jax.vmap(jax.jacfwd(probes))(x), phi)
    np.testing.assert_allclose(probes.paired(x, phi), wanted, rtol=1e-4, atol=1e-4)


def test_supports_are_where_gradients_are():
    probes = all_probes()
    gradients = jax.vmap(jax.jacfwd(probes))(
        jnp.asarray(np.random.default_rng(5).standard_normal((20, 3)), dtype=float)
    )
    np.testing.assert_array_equal(probes.support(), np.any(np.asarray(gradients) != 0.0, axis=0))
