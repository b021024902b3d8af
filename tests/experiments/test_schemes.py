"""The comparison of schemes: its quadrature rules, its exact laws of Syn-1 and its fits without
sampling noise.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from experiments.schemes.fits import Fit, fitted, forecast_errors
from experiments.schemes.law import exact_law_errors, law_records, paired_errors
from experiments.schemes.linear import Linear, law_of, start_of
from experiments.schemes.quadrature import RULES, simpson_weights
from experiments.schemes.residuals import DATA, PROBES, GaussianNodes, gaussian_residual
from experiments.schemes.sampled import refined_paths, sampled_residuals
from experiments.schemes.steps import SCHEMES, coarsened, draw, simulate
from experiments.schemes.tables import law_table

from itofit import known_system

STEPS = np.full(20, 0.01)


def residual(syn1, rule, probe, steps=STEPS):
    """r(f) of Syn-1's true drift against the law of the Euler chain, and the nodes of the path."""
    linear = Linear.of(syn1)
    nodes = GaussianNodes.read(linear, "Euler", start_of(syn1), steps, rule)
    end = nodes.mean[-1], nodes.var[-1]
    return gaussian_residual(PROBES[probe], linear, nodes, end, RULES[rule](steps)), nodes


def test_importing_the_experiment_leaves_float32():
    assert jnp.ones(1).dtype == jnp.float32


def test_simpson_is_exact_for_cubics():
    steps = np.full(6, 0.25)
    t = np.concatenate([[0.0], np.cumsum(steps)])
    for power in range(4):
        assert simpson_weights(steps) @ t**power == pytest.approx(
            t[-1] ** (power + 1) / (power + 1), abs=1e-14
        )


@pytest.mark.parametrize("steps", [[0.1] * 3, [0.1, 0.2], []])
def test_simpson_refuses_odd_numbers_of_steps_and_unequal_ones(steps, refused):
    with refused("an even number of equal steps", "trapezoid"):
        simpson_weights(np.array(steps))


def test_the_exact_recursion_is_the_systems_own(syn1):
    mean, var = Linear.of(syn1).path("Euler", *start_of(syn1), STEPS)
    known_mean, known_cov = syn1.euler_moments(0.2)
    np.testing.assert_allclose(mean[-1], known_mean, atol=1e-13)
    np.testing.assert_allclose(var[-1], np.diag(known_cov), atol=1e-13)
    exact_mean, exact_cov = syn1.exact_moments(0.2)
    law_mean, law_var = law_of("continuous", syn1, 0.2)
    np.testing.assert_allclose(law_mean, exact_mean, atol=1e-12)
    np.testing.assert_allclose(law_var, np.diag(exact_cov), atol=1e-12)


@pytest.mark.parametrize("steps", [STEPS, np.tile([0.01, 0.03], 10)], ids=["equal", "unequal"])
@pytest.mark.parametrize("probe", ["x", "x^2"])
def test_the_chain_rule_is_exact_up_to_degree_2(syn1, probe, steps):
    assert np.abs(residual(syn1, "chain", probe, steps)[0]).max() < 1e-12


def test_the_trapezoid_rule_is_off_by_half_a_step_of_the_change_of_drift(syn1):
    r, nodes = residual(syn1, "trapezoid", "x")
    np.testing.assert_allclose(r, 0.5 * 0.01 * (nodes.drift[0] - nodes.drift[-1]), atol=1e-12)
    assert np.abs(r).min() > 0.01


def test_the_left_rule_is_off_by_the_squared_drift_for_a_square(syn1):
    r, nodes = residual(syn1, "left", "x^2")
    square = nodes.drift**2 + Linear.of(syn1).a ** 2 * nodes.var
    np.testing.assert_allclose(r, 0.01**2 * square[:-1].sum(0), atol=1e-12)


@pytest.mark.parametrize(("scheme", "ratio"), [("Euler", 2.0), ("Heun", 4.0)])
def test_weak_order(syn1, scheme, ratio):
    long, short = (exact_law_errors(syn1, scheme, dt) for dt in (0.0025, 0.00125))
    for moment in ("mean", "sd"):
        worst = np.abs(long[moment]).argmax()
        assert long[moment].flat[worst] / short[moment].flat[worst] == pytest.approx(
            ratio, rel=0.02
        )


@pytest.mark.parametrize(
    ("fit", "a", "mu"),
    [
        (Fit("discrete", "previous", "Euler", "trapezoid"), 4.0703, 3.0274),
        (Fit("discrete", "previous", "Euler", "Simpson"), 4.0708, 3.0276),
        (Fit("discrete", "previous", "Euler", "left"), 4.0, 3.0),
        (Fit("discrete", "previous", "Euler", "chain"), 4.0, 3.0),
        (Fit("discrete", "initial", "Euler", "trapezoid"), 4.0, 3.0612),
        # An Euler chain follows exp(-4 t) at its nodes with the rate (1 - exp(-4 h)) / h.
        (Fit("continuous", "previous", "Euler", "chain"), (1.0 - np.exp(-0.04)) / 0.01, 3.0),
    ],
)
def test_fitted_coefficients(syn1, fit, a, mu):
    fitted_a, fitted_mu = fitted(fit, syn1)
    assert fitted_a[0] == pytest.approx(a, abs=6e-5)
    assert fitted_mu[0] == pytest.approx(mu, abs=6e-5)


def test_a_fit_by_the_chain_rule_forecasts_the_mean(syn1):
    for data in DATA:
        fit = Fit(data, "previous", "Euler", "chain")
        assert np.abs(forecast_errors(fit, syn1, *fitted(fit, syn1))).max() < 1e-9


def test_two_cells_joined_are_one_brownian_path():
    w = jnp.array([[[1.0]], [[-0.5]]])
    area = jnp.array([[[0.2]], [[0.1]]])
    joined_w, joined_area = coarsened(w, area, 0.25, np.array([0, 2]))
    integral = 0.25 * (0.5 * 1.0 + 0.2) + 0.25 * (1.0 - 0.5 * 0.5 + 0.1)
    assert float(joined_w[0, 0, 0]) == pytest.approx(0.5)
    assert float(joined_area[0, 0, 0]) == pytest.approx(integral / 0.5 - 0.5 * 0.5, abs=1e-6)


def test_paired_errors_of_a_shifted_and_stretched_cloud():
    y = np.random.default_rng(0).normal(size=(1, 1000, 1))
    y = (y - y.mean()) / y.std()
    errors = paired_errors(1.1 * y + 0.3, y)
    assert errors["mean"] == pytest.approx(0.3)
    assert errors["sd"] == pytest.approx(0.1)
    # A shift of sd 0.1 over 1000 samples.
    assert errors["mean_se"] == pytest.approx(0.1 / np.sqrt(1000))


def test_sampled_residuals_of_the_chain_rule_vanish_up_to_degree_2():
    with jax.enable_x64(True):
        syn3 = known_system("syn3")
        refined = refined_paths(
            syn3, [("Euler", syn3.dt), ("Heun", syn3.dt)], 20, jax.random.key(0)
        )
        times = set()
        for (data, _, rule, probe, t), (r, _) in sampled_residuals(syn3, refined):
            times.add(t)
            if (data, rule) == ("discrete", "chain") and probe in ("x", "x^2"):
                # Not only on average: what is left once the noise of mean zero is taken off is zero
                # for each sample.
                assert np.abs(r).max() < 1e-12
    assert sorted(np.round(list(times), 9)) == [0.1, 0.2, 0.3, 0.5]


def test_a_step_of_shark_is_its_formula(syn1):
    x = jnp.array([0.5, -1.0])
    w = jnp.array([0.1, -0.2])
    area = jnp.array([0.02, 0.03])
    h = jnp.array(0.05)
    first = syn1.process.drift(x + area)
    second = syn1.process.drift(x + h * first * 5 / 6 + w * 5 / 6 + area)
    expected = x + h * (0.4 * first + 0.6 * second) + w
    np.testing.assert_allclose(
        SCHEMES["ShARK"].step(syn1.process, x, h, w, area), expected, rtol=1e-5
    )


def test_shark_agrees_with_heun(syn1):
    steps = jnp.full(10, 0.02)
    k0, k1 = jax.random.split(jax.random.key(0))
    start = syn1.sample_initial(2000, k0)
    noise = draw(k1, 2000, 2, steps)
    x, y = (
        np.asarray(simulate(SCHEMES[name], syn1.process, start, steps, *noise), dtype=np.float64)[
            -1:
        ]
        for name in ("ShARK", "Heun")
    )
    errors = paired_errors(x, y)
    # For a linear drift both have the same mean; ShARK adds (a h)^2 / 12 of a step's noise, < 3e-4
    # in sd.
    assert (np.abs(errors["mean"]) < 4.0 * errors["mean_se"] + 1e-5).all()
    assert (np.abs(errors["sd"]) < 4.0 * errors["sd_se"] + 3e-4).all()
    assert (errors["mean_se"] < 5e-3).all()


def test_tables_have_a_row_a_run(syn1):
    errors = exact_law_errors(syn1, "Heun", 0.02)
    table = law_table(law_records(syn1, "Heun", 0.02, errors, 0.5)).splitlines()
    assert len(table) == 2
    assert table[1].split()[:4] == ["Heun", "0.02", "500", "0.50"]
