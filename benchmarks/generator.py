"""What does L f of a probe cost, by which road? Ours, folx's forward Laplacian, jvp of jvp, and the
full Hessian.

    python benchmarks/generator.py [--points 2048] [--json out.json]

Each row is the median time of the value and of its gradient in the probe's weights, compiled, over
one batch of points through a 3 x 32 tanh probe with S = I. All roads are checked to agree before
they are timed. folx is left out where it is not installed (`pip install -r
benchmarks/requirements.txt`).
"""

import argparse
import json
import statistics
import time
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

from itofit.process.network import TanhNetwork, xavier_network
from itofit.weak.generator import ito_push, second_order


def by_push(network: TanhNetwork, x, drift):
    """Itô's formula layer by layer."""
    return ito_push(network, x, drift, jnp.eye(len(x)))[1][0]


def by_jvp(network: TanhNetwork, x, drift):
    """A second derivative along every axis."""
    return second_order(lambda y: network(y)[0], x, drift, jnp.eye(len(x)))[1]


def by_hessian(network: TanhNetwork, x, drift):
    """The whole Hessian, for its trace."""

    def f(y):
        return network(y)[0]

    return drift @ jax.grad(f)(x) + 0.5 * jnp.trace(jax.hessian(f)(x))


def by_folx(network: TanhNetwork, x, drift):
    """The forward Laplacian of folx, which also gives the gradient for the drift term."""
    import folx

    result = folx.forward_laplacian(lambda y: network(y)[0])(x)
    return drift @ result.jacobian.dense_array.reshape(-1) + 0.5 * result.laplacian


def median_seconds(function: Callable, *arguments, repeats: int = 15) -> float:
    """Median wall time after compilation."""
    jax.block_until_ready(function(*arguments))
    seconds = []
    for _ in range(repeats):
        began = time.perf_counter()
        jax.block_until_ready(function(*arguments))
        seconds.append(time.perf_counter() - began)
    return statistics.median(seconds)


def measure(n_dims: int, n_points: int) -> list[dict]:
    """One record a road."""
    keys = jax.random.split(jax.random.key(0), 3)
    network = xavier_network([n_dims, 32, 32, 32, 1], key=keys[0])
    x = jax.random.normal(keys[1], (n_points, n_dims))
    drift = jax.random.normal(keys[2], (n_points, n_dims))
    roads = {"push": by_push, "folx": by_folx, "jvp of jvp": by_jvp, "hessian": by_hessian}
    if find_spec("folx") is None:
        del roads["folx"]
    reference = None
    records = []
    for name, road in roads.items():
        values = jax.jit(jax.vmap(road, (None, 0, 0)))
        slope = jax.jit(
            jax.grad(lambda n, x, g, road=road: jax.vmap(road, (None, 0, 0))(n, x, g).mean())
        )
        reference = values(network, x, drift) if reference is None else reference
        np.testing.assert_allclose(values(network, x, drift), reference, rtol=1e-3, atol=1e-4)
        value_ms = 1e3 * median_seconds(values, network, x, drift)
        gradient_ms = 1e3 * median_seconds(slope, network, x, drift)
        records.append(
            {
                "road": name,
                "dim": n_dims,
                "points": n_points,
                "device": jax.devices()[0].device_kind,
                "value_ms": value_ms,
                "gradient_ms": gradient_ms,
            }
        )
        times = f"value {value_ms:8.2f} ms   gradient {gradient_ms:8.2f} ms"
        print(f"D={n_dims:<3} {name:<11} {times}", flush=True)
    return records


def main() -> None:
    """Measure at D = 2, 10 and 30."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--points", type=int, default=2048)
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    records = [record for n_dims in (2, 10, 30) for record in measure(n_dims, args.points)]
    if args.json:
        args.json.write_text(json.dumps(records, indent=1) + "\n")


if __name__ == "__main__":
    main()
