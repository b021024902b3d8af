"""The weak residual: zero at the truth, its orders, its symmetries, and what it cannot see."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from itofit.process import ConstantDiffusion, FunctionDrift, ItoProcess
from itofit.simulate import euler_path, known_system
from itofit.weak import (
    Cloud,
    CosineProbe,
    FunctionProbe,
    PathRead,
    direct_residual,
    trapezoid_weights,
    weak_residual,
)
from itofit.weak import residual as residual_module
from itofit.weak.residual import integral_of_generator


def even(points):
    return Cloud(points, jnp.full(len(points), 1.0 / len(points)))


def residual_terms(process, start, target, steps, probe, key):
    """The residual and its standard error, as a difference of independent means."""
    noise = jax.random.normal(key, (len(steps), *start.shape))
    path = euler_path(process, start, steps, noise)
    w = trapezoid_weights(steps)
    value = weak_residual(probe, even(target), even(start), PathRead.of(process, path), w)
    generator = jax.vmap(
        jax.vmap(lambda x: probe.generator(x, process.drift(x), process.diffusion(x)))
    )(path)
    from_start = jax.vmap(probe)(start) + w @ generator
    error = np.sqrt(np.var(jax.vmap(probe)(target)) / len(target) + np.var(from_start) / len(start))
    return float(value), float(error)


PROBES = {
    "cosine": CosineProbe(jnp.asarray([0.7, -0.4]), jnp.asarray(0.5)),
    "square": FunctionProbe(lambda x: x[0] ** 2 + x[0] * x[1]),
    "tanh": FunctionProbe(lambda x: jnp.tanh(x[0] - 0.3 * x[1])),
}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "probe"),
    [("ou", "cosine"), ("ou", "square"), ("ou", "tanh"), ("syn3", "cosine"), ("syn2", "cosine")],
)
def test_true_drift_has_residual_zero(name, probe, getkey):
    """Within 4 standard errors plus the O(dt) bias, both computed here, the bias by finer steps."""
    system = known_system(name)
    probe = PROBES[probe]
    start = system.sample_initial(20_000, getkey())
    time = system.train_times[1]
    target = system.push(system.sample_initial(20_000, getkey()), [time], getkey())[0]
    n = round(time / system.dt)
    value, error = residual_terms(
        system.process, start, target, jnp.full(n, system.dt), probe, getkey()
    )
    finer, fine_error = residual_terms(
        system.process, start, target, jnp.full(4 * n, system.dt / 4), probe, getkey()
    )
    bias = abs(value - finer) + error + fine_error
    assert abs(value) <= 4 * error + bias
    shift = 1.0 / time
    wrong = ItoProcess(
        FunctionDrift(lambda x: system.process.drift(x) + shift), system.process.diffusion
    )
    off, off_error = residual_terms(wrong, start, target, jnp.full(n, system.dt), probe, getkey())
    assert abs(off) > 4 * off_error + bias


def test_direct_minus_weak_is_a_martingale(getkey):
    """Dynkin: on the same path direct - weak = -sqrt(h) sum S' grad f . Z + O(h).

    So the weak form has less noise.
    """
    system = known_system("ou")
    start = system.sample_initial(20_000, getkey())
    h = 0.01
    n = 50
    noise = jax.random.normal(getkey(), (n, *start.shape))
    path = euler_path(system.process, start, jnp.full(n, h), noise)
    probe = PROBES["tanh"]
    read = PathRead.of(system.process, path)
    target = even(start)
    weak = weak_residual(probe, target, even(start), read, trapezoid_weights(jnp.full(n, h)))
    direct = direct_residual(probe, target, even(path[-1]))
    S = system.process.diffusion(start[0])
    slopes = jax.vmap(jax.vmap(jax.grad(probe)))(path[:-1]) @ S
    martingale = jnp.sqrt(h) * jnp.sum(slopes * noise, axis=(0, 2))
    error = float(jnp.std(martingale)) / np.sqrt(20_000)
    assert error > 0
    # What is left is Euler's O(h) bias: at most h times a few derivatives of order 1, far below the
    # martingale.
    assert abs(float(direct - weak + martingale.mean())) < 0.5 * h
    assert abs(float(direct - weak)) < 4 * error + 0.5 * h


def exact_residual(system, time, dt, moments):
    """The residual of f = x1^2 at the truth, with the given moments in place of samples."""
    times = np.linspace(0.0, time, round(time / dt) + 1)
    mean, var = np.array([[m[0], v[0, 0]] for m, v in map(moments, times)]).T
    rate = system.linear.matrix[0, 0]
    fixed = system.linear.fixed_point[0]
    value = mean**2 + var
    generator = -2 * rate * (value - fixed * mean) + 1.0
    weights = np.asarray(trapezoid_weights(jnp.diff(jnp.asarray(times))))
    return value[-1] - value[0] - float(weights @ generator)


def slope(dts, values):
    return np.polyfit(np.log(dts), np.log(np.abs(values)), 1)[0]


def test_trapezoid_bias_falls_as_dt_squared_on_exact_laws():
    with jax.enable_x64(True):
        system = known_system("syn1")
        dts = np.array([0.04, 0.02, 0.01, 0.005])
        values = [exact_residual(system, 0.2, dt, system.exact_moments) for dt in dts]
    # Second order with a third-order remainder: at rate 4 and dt <= 0.04 the slope is within 0.1
    # of 2.
    assert abs(slope(dts, values) - 2.0) < 0.1


def test_bias_falls_as_dt_on_euler_chains():
    """On the law of the Euler chain start and drift are exact but the end is not: first order."""
    with jax.enable_x64(True):
        dts = np.array([0.01, 0.005, 0.0025, 0.00125])
        values = []
        for dt in dts:
            chain = dataclasses.replace(known_system("syn1"), dt=float(dt))
            values.append(exact_residual(chain, 0.2, dt, chain.euler_moments))
    # First order with a second-order remainder of relative size rate * dt <= 0.04 at these steps.
    assert abs(slope(dts, values) - 1.0) < 0.1


def test_sampling_error_falls_as_root_n(getkey):
    """Over 40 repeats the spread of the residual at the truth scales as N^(-1/2)."""
    system = known_system("ou")
    probe = PROBES["cosine"]
    steps = jnp.full(30, 0.01)
    weights = trapezoid_weights(jnp.full(30, 0.01))

    def repeat(key, n):
        keys = jax.random.split(key, 4)
        start = system.sample_initial(n, keys[0])
        other = system.sample_initial(n, keys[1])
        paths = [
            euler_path(system.process, x, steps, jax.random.normal(k, (30, n, 2)))
            for x, k in zip((start, other), keys[2:], strict=True)
        ]
        read = PathRead.of(system.process, paths[0])
        return weak_residual(probe, even(paths[1][-1]), even(start), read, weights)

    repeats = jax.jit(jax.vmap(repeat, (0, None)), static_argnums=1)
    few, many = (np.std(repeats(jax.random.split(getkey(), 40), n)) for n in (100, 1600))
    # sd of an sd over 40 repeats is 11 %, of the log ratio 0.16; a factor 16 in N should give
    # log 4 = 1.39.
    assert abs(np.log(few / many) - np.log(4.0)) < 3 * 0.16


@pytest.fixture
def setting(getkey):
    system = known_system("syn3")
    start = system.sample_initial(300, getkey())
    target = system.sample_initial(200, getkey())
    noise = jax.random.normal(getkey(), (20, 300, 2))
    return system.process, start, target, jnp.full(20, 0.01), noise


def residual_of(process, start, target, steps, noise, probe):
    path = PathRead.of(process, euler_path(process, start, steps, noise))
    return weak_residual(probe, even(target), even(start), path, trapezoid_weights(steps))


def test_invariant_to_row_order(setting, getkey):
    process, start, target, steps, noise = setting
    i = jax.random.permutation(getkey(), 300)
    j = jax.random.permutation(getkey(), 200)
    before = residual_of(process, start, target, steps, noise, PROBES["cosine"])
    after = residual_of(process, start[i], target[j], steps, noise[:, i], PROBES["cosine"])
    # The same sums in another order: float32 round-off of means of values of order 10.
    np.testing.assert_allclose(before, after, atol=2e-5)


def test_invariant_to_rotation(setting):
    """Rotating data, noise, drift, diffusion and probe together changes nothing."""
    process, start, target, steps, noise = setting
    angle = 0.7
    R = jnp.asarray([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])
    adapted = ItoProcess(
        FunctionDrift(lambda x: R @ process.drift(R.T @ x)), ConstantDiffusion(R @ jnp.eye(2))
    )
    probe = PROBES["cosine"]
    rotated_probe = CosineProbe(R @ probe.omega, probe.phase)
    before = residual_of(process, start, target, steps, noise, probe)
    after = residual_of(adapted, start @ R.T, target @ R.T, steps, noise, rotated_probe)
    np.testing.assert_allclose(before, after, atol=5e-5)


def test_passes_do_not_change_the_value(setting, monkeypatch):
    """Cutting the nodes into blocks, padding included, is only a matter of memory."""
    process, start, _, steps, noise = setting
    path = PathRead.of(process, euler_path(process, start, steps, noise))
    weights = jnp.full(300, 1 / 300)
    w = trapezoid_weights(steps)
    whole = integral_of_generator(PROBES["tanh"], path, weights, w)
    monkeypatch.setattr(residual_module, "points_a_pass", lambda n_dims: 600)
    np.testing.assert_allclose(
        integral_of_generator(PROBES["tanh"], path, weights, w), whole, rtol=1e-4
    )


def test_weights_mean_repetition(setting):
    process, start, target, steps, noise = setting
    probe = PROBES["cosine"]
    path = PathRead.of(process, euler_path(process, start, steps, noise))
    w = trapezoid_weights(steps)
    repeated = jnp.concatenate([target, target[:50]])
    weights = jnp.concatenate([jnp.full(50, 2.0), jnp.ones(150)]) / 250.0
    a = weak_residual(probe, even(repeated), even(start), path, w)
    b = weak_residual(probe, Cloud(target, weights), even(start), path, w)
    np.testing.assert_allclose(a, b, atol=1e-5)


@pytest.mark.parametrize("rate", [0.0, 10.0])
def test_rotation_of_an_isotropic_cloud_is_invisible(rate, getkey):
    """div(u p) = 0: a rotation leaves the residual at zero, but not on an anisotropic cloud."""
    rotation = ItoProcess(
        FunctionDrift(lambda x: rate * jnp.stack([x[1], -x[0]])),
        ConstantDiffusion(jnp.zeros((2, 2))),
    )
    n = 20_000
    steps = jnp.full(100, 0.0005)

    def draw(cov):
        return jax.random.normal(getkey(), (n, 2)) * jnp.sqrt(jnp.asarray(cov))

    for cov, visible in [((2.0, 2.0), False), ((2.0, 0.5), rate > 0)]:
        start = draw(cov)
        value, error = residual_terms(rotation, start, draw(cov), steps, PROBES["square"], getkey())
        assert (abs(value) > 4 * error + 0.01) == visible
