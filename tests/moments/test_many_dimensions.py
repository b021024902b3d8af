"""Many dimensions: what comes in, what is screened, and the cheaper roads to the same Jacobian."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from itofit import FitWarning, FokkerPlanckProcess, Moments, Snapshots
from itofit.moments.forward_selection import own_slopes
from itofit.moments.gauss_newton import State
from itofit.moments.many_dimensions import screened
from itofit.moments.residuals import Simulated
from itofit.process.features import affine, joined, monomials
from itofit.process.noise import ConstantDiffusion

N_DIMS = 18
SIGMA = 0.5


def drift(x):
    """Every coordinate decays; 3 is driven by 1, 7 by the square of 4, and 5 by the product of 0
    and 2.
    """
    g = (-x).at[3].add(4.0 * x[1])
    return g.at[7].add(2.0 * x[4] ** 2).at[5].add(2.0 * x[0] * x[2])


@pytest.fixture(scope="module")
def data():
    """Independent particles at every time, Euler steps of 0.05."""

    @jax.jit
    def pushed(key, n_steps):
        k0, k1 = jax.random.split(key)
        x = jax.random.normal(k0, (1000, N_DIMS)) + jnp.linspace(0.5, 1.5, N_DIMS)

        def step(k, x):
            noise = jax.random.normal(jax.random.fold_in(k1, k), x.shape)
            return x + 0.05 * jax.vmap(drift)(x) + SIGMA * np.sqrt(0.05) * noise

        return jax.lax.fori_loop(0, n_steps, step, x)

    steps = (0, 2, 4, 6, 8)
    clouds = [np.asarray(pushed(jax.random.key(i), n)) for i, n in enumerate(steps)]
    return Snapshots.from_arrays(clouds, [0.05 * n for n in steps])


@pytest.fixture(scope="module")
def model(data):
    solver = Moments(n_draws=2)
    return FokkerPlanckProcess(SIGMA, dt=0.05, solver=solver, random_state=0).fit(data)


def terms(model):
    """(term, output) of everything in the model."""
    parts = model.standard_process_.drift.features.parts
    in_model = [term for part in parts for term in part.terms]
    alive = zip(in_model, model.solution_.evidence.alive, strict=True)
    return {(term, int(output)) for term, row in alive for output in np.flatnonzero(row)}


@pytest.mark.slow
def test_what_drives_what_is_found(model):
    """Strong effects against the sampling noise of 1000 points, and the own slopes of most
    coordinates.

    The square and the product belong to coordinates with means of about one, where they look like a
    slope or a cube.
    """
    drivers = {(a, output) for term, output in terms(model) for a in term}
    assert {(1, 3), (4, 7)} <= drivers
    assert drivers & {(0, 5), (2, 5)}
    assert sum((a, a) in drivers for a in range(N_DIMS)) >= N_DIMS - 4


@pytest.mark.slow
def test_little_else_comes_in(model):
    """Of some 3500 candidates, each admitted at odds of one in their number: a handful at most."""
    true = {(a, a) for a in range(N_DIMS)} | {(1, 3), (4, 7), (0, 5), (2, 5)}
    assert len({(a, output) for term, output in terms(model) for a in term} - true) <= 4


@pytest.mark.slow
def test_the_drift_is_about_right(model, data):
    """At the data, root mean squared over points and coordinates, against the drift's own size."""
    x = np.concatenate(data.clouds)[::10]
    wanted = np.asarray(jax.vmap(drift)(jnp.asarray(x)))
    off = model.drift(x) - wanted
    assert np.sqrt(np.mean(off**2)) < 0.5 * np.sqrt(np.mean(wanted**2))


@pytest.fixture(scope="module")
def probing(data, probing_of):
    return probing_of(data, ConstantDiffusion(SIGMA * jnp.eye(N_DIMS)), 0.05)


@pytest.fixture(scope="module")
def residual(probing):
    return probing.simulated(affine(N_DIMS), 1, cosines=True)


def test_own_slopes_are_all_that_is_alive_at_first():
    dictionary = joined([affine(3), monomials([(0, 0), (1, 2)], -np.ones(3), np.ones(3))])
    alive = own_slopes(dictionary, 3).alive.reshape(-1, 3)
    wanted = np.concatenate([np.ones((1, 3)), np.eye(3), np.zeros((2, 3))]).astype(bool)
    np.testing.assert_array_equal(alive, wanted)


def test_the_product_is_screened_in(probing, residual):
    prior = own_slopes(residual.dictionary, N_DIMS)
    v = np.zeros(len(prior.group))
    products = screened(probing, residual, State(v, prior), probing.whitening(residual, v))
    assert products is not None
    assert (0, 2) in [group.coordinates for group in products.groups]
    assert len(products.groups) <= 64


def test_three_roads_lead_to_one_jacobian(probing, residual, monkeypatch):
    """Sensitivities, adjoints, and sensitivities probe by probe; single precision, 1e-4 of the
    largest entry.
    """
    v = 0.1 * np.random.default_rng(0).standard_normal(N_DIMS * residual.dictionary.n_features)
    whitening = probing.whitening(residual, v)
    assert whitening.by_probe
    columns = np.arange(0, len(v), 7)
    by_probe = residual.jacobian(v, whitening, columns)
    scale = 1e-4 * np.abs(by_probe).max()
    for backwards in (False, True):
        monkeypatch.setattr(Simulated, "_adjoints_are_cheaper", lambda *_, chosen=backwards: chosen)
        other = whitening.finish(residual.slopes(v, whitening.bases, columns))
        np.testing.assert_allclose(other, by_probe, atol=scale)


def test_adjoints_are_taken_where_they_cost_less(data, probing_of):
    noise = ConstantDiffusion(SIGMA * jnp.eye(N_DIMS))
    short, long = (
        probing_of(data, noise, dt).simulated(affine(N_DIMS), 1, cosines=False)
        for dt in (0.1, 0.001)
    )
    assert short._adjoints_are_cheaper(5)
    assert not long._adjoints_are_cheaper(500)


def test_the_way_back_is_the_transposed_map(probing):
    residual = probing.simulated(affine(N_DIMS), 1, cosines=False)
    whitening = probing.whitening(residual, np.zeros(N_DIMS * residual.dictionary.n_features))
    rng = np.random.default_rng(0)
    r = [rng.standard_normal(basis.shape[1]) for basis in whitening.bases]
    y = rng.standard_normal(sum(map(len, whitening.bases)))
    there = y @ whitening(r)
    back = sum(a @ b for a, b in zip(whitening.back(y), r, strict=True))
    np.testing.assert_allclose(there, back, rtol=1e-9)


@pytest.mark.slow
def test_tanh_features_asked_for_in_many_dimensions_do_not_adapt():
    """They come in groups there, somewhere in the dictionary; a threshold below any evidence keeps
    them to the end.
    """
    rng = np.random.default_rng(0)
    clouds = [
        rng.standard_normal((60, 17)) + np.tanh(3.0 * rng.standard_normal((60, 17))) * t
        for t in (0.0, 0.1)
    ]
    solver = Moments(n_single=2, n_draws=1, threshold=-50.0, n_iter=3)
    model = FokkerPlanckProcess(0.3, dt=0.1, solver=solver, random_state=0)
    with pytest.warns(FitWarning):
        model.fit(Snapshots.from_arrays(clouds, [0.0, 0.1]))
    assert np.all(np.isfinite(model.predict(0.1)))
