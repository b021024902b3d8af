"""The whole method in one file: from clouds of points without identity to a forecast, in plain JAX.

A process dX = g(X) dt + S dW is seen only as clouds: some points at t_0, other points at t_1, ...,
nobody followed. For every smooth function f (a "probe") its law obeys the weak form of the
Fokker-Planck equation,

    E f(X_t) - E f(X_0) = integral from 0 to t of E[L f(X_s)] ds,
    L f = g . grad f + 1/2 tr(S S' hess f),

so a drift g is right when no probe can find a difference between the two sides. Algorithm 1 of the
paper plays that as a game: for each observed time t_n a probe f_n with |grad f_n| <= 1 climbs the
difference r_n and the drift descends it.

This file does not use the package and is slower than it; it is the same mathematics by another
road, and the tests hold the two against each other. It works in raw units, because the clouds of
this system already have a spread near 1; data of another scale should be standardised first, or
tanh networks will see them as flat or as saturated.

    python examples/whole_method.py [--iterations 200]

takes one to two minutes on two CPU cores; the means come out right and the sd of x1 still too wide,
by about 0.25.
"""

import argparse

import jax
import jax.numpy as jnp
import numpy as np
import optax

DT = 0.01  # the Euler step, of the truth and of the model
# K_n: the snapshots are seen at t = 0.03, 0.07, 0.2 (and at 0), so there are J = 3 probes.
STEPS_TO = [3, 7, 20]
FORECAST = 30  # steps to the forecast: t = 0.3, half as far again as the last snapshot
S = jnp.eye(2)  # the noise is taken as known, as in the paper: sigma = 1
SPEED = 20.0  # the drift's unit: about 4 clouds' widths in the 0.2 time units that were observed


def van_der_pol(x):
    """The true drift, Syn-3 of the paper; the method never looks at it, it only makes the data."""
    return jnp.stack([10.0 * (x[1] - x[0] ** 3 / 3.0 + x[0]), 3.0 * (1.0 - x[0])])


# ---- networks ------------------------------------------------------------------------------------


def fresh(sizes, key, last=1.0):
    """A list of (W, b), one pair a layer: Xavier weights of shape (n_out, n_in) and zero biases."""
    shapes = list(zip(sizes[1:], sizes[:-1], strict=True))
    gains = [1.0] * (len(shapes) - 1) + [last]
    keys = jax.random.split(key, len(shapes))
    draws = [jax.random.normal(k, shape) for k, shape in zip(keys, shapes, strict=True)]
    return [
        (c * jnp.sqrt(2.0 / sum(W.shape)) * W, jnp.zeros(len(W)))
        for c, W in zip(gains, draws, strict=True)
    ]


def network(params, x):
    """One sample through tanh hidden layers and an affine last one: (n_in,) -> (n_out,)."""
    for W, b in params[:-1]:
        x = jnp.tanh(W @ x + b)
    W, b = params[-1]
    return W @ x + b


def normalise(params):
    """Divide every W by its largest singular value: no layer then lengthens a vector, nor does
    tanh: |grad f| <= 1.
    """
    return [(W / jnp.linalg.norm(W, ord=2), b) for W, b in params]


# ---- the weak form -------------------------------------------------------------------------------


def generator(f, x, g_x, S):
    """L f(x) = g(x) . grad f(x) + 1/2 tr(S S' hess f(x)) for one sample, word for word.

    It is the rate at which E f(X) changes: f is carried along by the drift and smoothed out by the
    noise.
    """
    return g_x @ jax.grad(f)(x) + 0.5 * jnp.trace(S @ S.T @ jax.hessian(f)(x))


def residual(params, drift, first, seen, path, dt, S):
    """r_n of Prop. 2 for one probe: `first` is the cloud at t_0, `seen` that at t_n, `path` the
    chain between them.
    """

    def f(x):
        return network(params, x)[0]

    # The paper's F_f(X): the average of L f over the points of one cloud.
    def mean_generator(cloud):
        return jnp.mean(jax.vmap(lambda x: generator(f, x, drift(x), S))(cloud))

    # (K_n + 1, N, D) -> (K_n + 1,), one average for every step of the chain.
    F = jax.vmap(mean_generator)(path)
    K = len(path) - 1
    # The trapezoid rule: both ends once, every step between them twice.
    integral = dt / 2.0 * (F[0] + F[K] + 2.0 * jnp.sum(F[1:K]))
    # Each mean has its own number of points, so snapshots of different size need no resampling.
    return jnp.mean(jax.vmap(f)(seen)) - jnp.mean(jax.vmap(f)(first)) - integral


def loss(probe_params_list, drift, clouds, paths, dt, S, steps_to):
    """The list of r_1 ... r_J.

    - probe_params_list: J probes, already normalised; drift: a function of one sample.
    - clouds: [x_0, x_1, ..., x_J], arrays (N_n, D); paths: (K + 1, N_0, D), the Euler chain from
      x_0.
    - steps_to: [K_1, ..., K_J], so that paths[K_n] is the model's cloud at t_n.
    """
    return [
        residual(params, drift, clouds[0], seen, paths[: K + 1], dt, S)
        for params, seen, K in zip(probe_params_list, clouds[1:], steps_to, strict=True)
    ]


def euler(drift, x_0, dt, S, n_steps, key):
    """X_{k+1} = X_k + g(X_k) dt + S sqrt(dt) Z_k for a cloud: (N, D) -> (n_steps + 1, N, D)."""

    def step(x, z):
        x = x + jax.vmap(drift)(x) * dt + z @ S.T * jnp.sqrt(dt)
        return x, x

    Z = jax.random.normal(key, (n_steps, *x_0.shape))
    later = jax.lax.scan(step, x_0, Z)[1]
    return jnp.concatenate([x_0[None], later])  # (1, N, D) and (n_steps, N, D)


# ---- Algorithm 1 ---------------------------------------------------------------------------------


def learned(params):
    """The model's drift as a function of one sample: a network in units of SPEED."""
    return lambda x: SPEED * network(params, x)


def draw(snapshots, size, key):
    """`size` random rows of each snapshot: what Algorithm 1 calls acquiring data sets."""
    keys = jax.random.split(key, len(snapshots))
    return [
        x[jax.random.choice(k, len(x), (size,), replace=False)]
        for x, k in zip(snapshots, keys, strict=True)
    ]


def train(snapshots, n_iterations, size, key, ascents=3):
    """Alternate `ascents` steps up for the probes and one step down for the drift; returns the
    drift's weights.
    """
    k_probe, k_drift, k_run = jax.random.split(key, 3)
    probes = [fresh([2, 32, 32, 32, 1], k) for k in jax.random.split(k_probe, len(STEPS_TO))]
    weights = fresh([2, 32, 2], k_drift, last=0.1)
    # Adam without momentum, since the other side of a game moves too; probes that learn faster than
    # the drift, so that they keep up with it; and for the drift a rate that falls to 0, so that it
    # comes to rest.
    up = optax.adam(5e-2, b1=0.0, b2=0.99)
    down = optax.adam(optax.cosine_decay_schedule(1e-2, n_iterations), b1=0.0, b2=0.99)

    def total(probes, weights, key):
        k_rows, k_noise = jax.random.split(key)
        clouds = draw(snapshots, size, k_rows)
        # The path is simulated inside the loss, so its gradient in the weights runs back through
        # every Euler step: moving the drift moves the points as well as the arrows on them.
        path = euler(learned(weights), clouds[0], DT, S, STEPS_TO[-1], k_noise)
        r = loss([normalise(p) for p in probes], learned(weights), clouds, path, DT, S, STEPS_TO)
        return sum(r), jnp.stack(r)

    @jax.jit
    def iterate(probes, weights, up_memory, down_memory, key):
        def ascend(i, state):  # lines 2 to 9: every probe looks for the difference it can see best
            probes, memory = state
            slope, _ = jax.grad(total, has_aux=True)(probes, weights, jax.random.fold_in(key, i))
            change, memory = up.update(jax.tree.map(jnp.negative, slope), memory)
            return optax.apply_updates(probes, change), memory

        probes, up_memory = jax.lax.fori_loop(0, ascents, ascend, (probes, up_memory))
        # Line 10: the drift takes one step against what the probes found.
        last_key = jax.random.fold_in(key, ascents)
        slope, r = jax.grad(total, argnums=1, has_aux=True)(probes, weights, last_key)
        change, down_memory = down.update(slope, down_memory)
        return probes, optax.apply_updates(weights, change), up_memory, down_memory, r

    state = (probes, weights, up.init(probes), down.init(weights))
    for i, k in enumerate(jax.random.split(k_run, n_iterations)):
        *state, r = iterate(*state, k)
        if i % max(1, n_iterations // 10) == 0:
            print(f"iteration {i:4d}   r_n = " + "  ".join(f"{v:+.3f}" for v in r))
    return state[1]


def main(argv=None):
    """Make the data, fit, forecast, and print the forecast beside the truth."""
    parser = argparse.ArgumentParser(description="Algorithm 1 on the van der Pol system")
    parser.add_argument("--iterations", type=int, default=200)
    parser.add_argument("--points", type=int, default=1200, help="points in each snapshot")
    parser.add_argument(
        "--batch", type=int, default=256, help="points drawn from each snapshot for one step"
    )
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args(argv)
    keys = jax.random.split(jax.random.key(options.seed), 7)
    k_start, k_data, k_rows, k_fit, k_new, k_truth, k_model = keys

    # One set of particles, seen at four times, as the paper does for this system; the rows are
    # shuffled at each time to make sure that nothing below can tell who is who.
    start = jax.random.normal(k_start, (options.points, 2))
    truth = euler(van_der_pol, start, DT, S, STEPS_TO[-1], k_data)
    keys = jax.random.split(k_rows, 1 + len(STEPS_TO))
    snapshots = [
        jax.random.permutation(k, truth[n]) for n, k in zip([0, *STEPS_TO], keys, strict=True)
    ]

    weights = train(snapshots, options.iterations, min(options.batch, options.points), k_fit)

    # The forecast starts from fresh points of the law at t = 0 and runs past the last snapshot.
    x_0 = jax.random.normal(k_new, (5000, 2))
    rows = {
        "last snapshot, t=0.20": snapshots[-1],
        "forecast,      t=0.30": euler(learned(weights), x_0, DT, S, FORECAST, k_model)[-1],
        "truth,         t=0.30": euler(van_der_pol, x_0, DT, S, FORECAST, k_truth)[-1],
    }
    print(f"\n{'':24s}{'mean x1':>9s}{'mean x2':>9s}{'sd x1':>9s}{'sd x2':>9s}")
    for name, cloud in rows.items():
        numbers = np.concatenate([cloud.mean(0), cloud.std(0)])
        print(f"{name:24s}" + "".join(f"{v:9.3f}" for v in numbers))


if __name__ == "__main__":
    main()
