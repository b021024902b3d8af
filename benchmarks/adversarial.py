"""How long is one outer iteration of the adversarial solver, and how much memory does it take?

    python benchmarks/adversarial.py [--systems syn1 syn2 syn3] [--dims 2 10] [--methods ...] \\
        [--json out.json]
    python benchmarks/adversarial.py --scaling [--methods default pathwise]
    python benchmarks/adversarial.py --one syn1 2 pathwise [--set points=256 dt=0.02]

Rows, all on the same arrays (1200 points a snapshot, x0 known, dt = 0.01):

- `torch-batched`, `torch-stepwise`: an eager PyTorch loop of the published kind: full batch, 5
  critic steps, spectral norm on every layer, the path simulated without a graph, one backward pass
  per dimension for the Laplacian, the trapezoid over every step; all steps in one call per critic,
  or one call a step. Left out where torch is missing (`pip install -r
  benchmarks/requirements.txt`).
- `pathwise`, `detached`, `adjoint`, `direct`: ours with the same batch, steps and networks
  (`Adversarial.paper()`). The eager loop's gradient is that of `detached`; `pathwise` and `adjoint`
  do more work, `direct` does less.
- `stratified-pathwise`, `stratified-detached`: the same with 16 random quadrature nodes a probe.
- `default`: `Adversarial()` in its first stage; `default-polynomials`, `default-network`: in its
  last ones.

Every row runs in its own process, which imports one framework only. Seconds are the median over
repeated iterations after compilation and one warm-up. Peak memory is the largest resident size on a
CPU (imports and compilation included; `start MB` is that size when the data were ready) and the
allocator's peak on a GPU. Speed-ups compare rows of this run on the same device. Use a quiet
machine: torch's threads wait for each other, so other work slows them more than ours. Both use a
GPU if they see one; for a CPU set `JAX_PLATFORMS=cpu CUDA_VISIBLE_DEVICES=`.

`--scaling` varies one of N, D, J and dt around Syn-1. Its last column, the time with the fewest
points over the time of the row, estimates the part that does not grow with the points: on a GPU,
the latency of launches.
"""

import argparse
import contextlib
import json
import os
import platform
import re
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import cache
from importlib.metadata import version
from importlib.util import find_spec
from itertools import pairwise, product
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

# jax, itofit and torch are imported where they are used: the parent must stay small (a child's
# largest resident size is at least that of the process that started it) and must not take hold of a
# GPU.

TORCH = ("torch-batched", "torch-stepwise")
OURS = (
    "pathwise",
    "detached",
    "adjoint",
    "direct",
    "stratified-pathwise",
    "stratified-detached",
    "default",
    "default-polynomials",
    "default-network",
)
# A drift is dearer from stage to stage; `default` is in the first one, as `prepared` gives it.
STAGES = {"default-polynomials": 2, "default-network": 3}
N_CORES = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
METHODS = (*TORCH, *OURS)
ARRAYS = "arrays"
CRITIC_STEPS = 5
RATE = 1e-4
DRIFT_WIDTH = 32
CRITIC_WIDTH = 32
CRITIC_DEPTH = 3

SIZES = (256, 512, 1024, 2048, 4096)
VARIED = {"dim": (2, 10, 20), "targets": (1, 2, 4, 8), "dt": (0.04, 0.02, 0.01, 0.005)}
USUAL_SIZE = {"default": 512, "pathwise": 1024}


class Case(NamedTuple):
    """One row: a system, a method, and the set-up: J `targets` evenly spaced, a `batch` other than
    the solver's own.
    """

    system: str
    dim: int
    method: str
    points: int = 1200
    batch: int | None = None
    dt: float = 0.01
    targets: int | None = None
    seed: int = 0


def observe(case: Case):
    """Snapshots of a case and their mesh; made on the CPU, so that every child gets the same."""
    import jax

    from itofit.simulate import known_system
    from itofit.simulate.mesh import Mesh

    with jax.default_device(jax.devices("cpu")[0]):
        system = known_system(case.system, case.dim)
        times = system.train_times
        if case.targets is not None:
            times = np.linspace(times[0], times[-1], case.targets + 1).tolist()
        snapshots = system.observe(case.points, times, key=jax.random.key(1000 + case.seed))
    return snapshots, Mesh.refine(snapshots.times, case.dt)


def plain_arrays(case: Case, *_: Any) -> dict[str, Any]:
    """The same data as lists: clouds, steps, the node of every observed time, the noise scale."""
    from itofit.simulate import known_system

    snapshots, mesh = observe(case)
    sigma = float(known_system(case.system, case.dim).process.diffusion(np.zeros(case.dim))[0, 0])
    clouds = [x.tolist() for x in snapshots.clouds]
    return {
        "clouds": clouds,
        "steps": mesh.steps.tolist(),
        "observed": mesh.observed,
        "sigma": sigma,
    }


def solver_of(case: Case):
    """The solver of a row of ours."""
    from itofit import Adversarial

    solvers = {
        "pathwise": Adversarial.paper(),
        "detached": Adversarial.paper(gradient="detached"),
        "adjoint": Adversarial.paper(gradient="adjoint"),
        "direct": Adversarial.paper(discrepancy="direct"),
        "stratified-pathwise": Adversarial.paper(n_nodes=16),
        "stratified-detached": Adversarial.paper(gradient="detached", n_nodes=16),
    }
    solver = solvers.get(case.method, Adversarial())
    return solver if case.batch is None else replace(solver, batch_size=case.batch)


def measure_ours(case: Case, iterations: int, give_up: float) -> dict[str, Any]:
    """Compile and time `iterate` on a game built as the solver builds it."""
    import equinox as eqx
    import jax

    from itofit.adversarial.run import optimisers_for
    from itofit.adversarial.training import iterate, prepared
    from itofit.process import rescaled
    from itofit.simulate import known_system
    from itofit.snapshots.scaling import Scaling

    snapshots, mesh = observe(case)
    solver = solver_of(case)
    scaling = Scaling.fit(snapshots) if solver.standardise else Scaling.identity(case.dim)
    diffusion = rescaled(known_system(case.system, case.dim).process, scaling.inverse).diffusion
    standard = scaling.transform(snapshots)
    optimisers = optimisers_for(solver)
    k_init, k_run = jax.random.split(jax.random.key(case.seed))
    contest = prepared(standard, standard, None, diffusion, mesh, solver, key=k_init)
    game = contest.game
    players = at_stage(contest.run.players, optimisers, STAGES.get(case.method, 0))
    start_mb = resident_mb()
    began = time.perf_counter()
    compiled = eqx.filter_jit(iterate).lower(game, optimisers, players, k_run).compile()
    compile_seconds = time.perf_counter() - began
    keys = iter(jax.random.split(k_run, iterations + 1))

    def step() -> None:
        nonlocal players
        iteration = compiled(game, optimisers, players, next(keys))
        players = jax.block_until_ready(iteration).players

    seconds = repeat(step, iterations, give_up)
    device = jax.devices()[0]
    gpu = None
    if device.platform != "cpu":
        gpu = (device.device_kind, device.memory_stats()["peak_bytes_in_use"])
    return record(seconds, compile_seconds, start_mb, gpu)


def at_stage(players: Any, optimisers: Any, stage: int) -> Any:
    """The players with their learner in a stage, its optimiser's memory empty."""
    import equinox as eqx

    learner = players.learner.at_stage(stage)
    memory = optimisers.learner.init(eqx.filter(learner, eqx.is_inexact_array))
    return type(players)(learner, learner, players.adversary, memory)


def measure_torch(case: Case, iterations: int, give_up: float) -> dict[str, Any]:
    """Time the eager loop: k ascent steps of the critics on fresh paths, then one descent step of
    the drift.
    """
    import torch

    # In another process: jax's memory must not count here.
    data = run_child(case._replace(method=ARRAYS), iterations, 600.0)
    if "note" in data:
        raise RuntimeError(data["note"])
    steps = np.asarray(data["steps"])
    observed = data["observed"]
    sigma = data["sigma"]
    torch.set_num_threads(N_CORES)
    torch.manual_seed(case.seed)
    on_gpu = torch.cuda.is_available()
    device = torch.device("cuda" if on_gpu else "cpu")
    clouds = [torch.as_tensor(x, dtype=torch.float32, device=device) for x in data["clouds"]]
    drift = torch_network([case.dim, DRIFT_WIDTH, case.dim], spectral=False).to(device)
    sizes = [case.dim, *[CRITIC_WIDTH] * CRITIC_DEPTH, 1]
    critics = torch.nn.ModuleList(torch_network(sizes, spectral=True) for _ in clouds[1:]).to(
        device
    )
    of_drift = list(drift.parameters())
    of_critics = list(critics.parameters())
    descent = torch.optim.Adam(of_drift, lr=RATE)
    ascent = torch.optim.Adam(of_critics, lr=RATE)
    stepwise = case.method == "torch-stepwise"

    def gain():
        path = torch_path(drift, clouds[0], steps, sigma)
        total = 0.0
        for critic, target, end in zip(critics, clouds[1:], observed[1:], strict=True):
            transported = torch_integral(
                critic, drift, path[: end + 1], steps[:end], sigma, stepwise
            )
            total = total + critic(target).mean() - critic(clouds[0]).mean() - transported
        return total

    def step() -> None:
        for _ in range(CRITIC_STEPS):
            ascent.zero_grad()
            (-gain()).backward(inputs=of_critics)
            ascent.step()
        descent.zero_grad()
        gain().backward(inputs=of_drift)
        descent.step()
        if on_gpu:
            torch.cuda.synchronize()

    start_mb = resident_mb()
    seconds = repeat(step, iterations, give_up)
    gpu = (torch.cuda.get_device_name(), torch.cuda.max_memory_allocated()) if on_gpu else None
    return record(seconds, 0.0, start_mb, gpu)


def torch_network(sizes: Sequence[int], *, spectral: bool):
    """A tanh network with zero biases: every layer spectrally normalised, or Xavier weights."""
    import torch

    layers: list[Any] = []
    for n_in, n_out in pairwise(sizes):
        linear = torch.nn.Linear(n_in, n_out)
        torch.nn.init.zeros_(linear.bias)
        if not spectral:
            torch.nn.init.xavier_normal_(linear.weight)
        layers += [
            torch.nn.utils.parametrizations.spectral_norm(linear) if spectral else linear,
            torch.nn.Tanh(),
        ]
    return torch.nn.Sequential(*layers[:-1])


def torch_path(drift, start, steps: np.ndarray, sigma: float) -> list:
    """Every node of the Euler chain, outside the graph."""
    import torch

    path = [start]
    with torch.no_grad():
        for h in steps.tolist():
            path.append(path[-1] + h * drift(path[-1]) + sigma * h**0.5 * torch.randn_like(start))
    return path


def torch_generator(critic, drift, x, sigma: float):
    """L f at frozen samples: a gradient, and one backward pass through it per dimension for the
    Laplacian.
    """
    import torch

    y = x.detach().requires_grad_(True)
    slope = torch.autograd.grad(critic(y).sum(), y, create_graph=True)[0]
    laplacian = 0.0
    for i in range(x.shape[1]):
        laplacian = (
            laplacian + torch.autograd.grad(slope[:, i].sum(), y, create_graph=True)[0][:, i]
        )
    return (drift(x) * slope).sum(1) + 0.5 * sigma**2 * laplacian


def torch_integral(critic, drift, nodes: list, steps: np.ndarray, sigma: float, stepwise: bool):
    """The trapezoid rule for E[L f(X_k)]: one call a step, or all steps stacked in one call."""
    import torch

    weights = (0.5 * (np.append(steps, 0.0) + np.append(0.0, steps))).tolist()
    if stepwise:
        return sum(
            w * torch_generator(critic, drift, x, sigma).mean()
            for w, x in zip(weights, nodes, strict=True)
        )
    values = torch_generator(critic, drift, torch.cat(nodes), sigma).reshape(len(nodes), -1).mean(1)
    return torch.as_tensor(weights, device=values.device) @ values


def repeat(step: Callable[[], None], iterations: int, give_up: float) -> list[float]:
    """Seconds of every iteration after one to warm up; fewer if another would end after the time
    `give_up`.
    """
    step()
    seconds: list[float] = []
    while not seconds or (
        len(seconds) < iterations and time.perf_counter() + seconds[-1] < give_up
    ):
        began = time.perf_counter()
        step()
        seconds.append(time.perf_counter() - began)
    return seconds


def record(
    seconds: list[float], compile_seconds: float, start_mb: float, gpu: tuple[str, int] | None
) -> dict:
    """What a child found; `gpu` holds the name and the peak bytes where one was used."""
    return {
        "seconds": statistics.median(seconds),
        "all_seconds": seconds,
        "compile_seconds": compile_seconds,
        "start_mb": start_mb,
        "peak_mb": resident_mb() if gpu is None else gpu[1] / 1e6,
        "device": cpu_name() if gpu is None else gpu[0],
    }


def resident_mb() -> float:
    """Largest resident size of this process so far."""
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 1e6


def cpu_name() -> str:
    """The CPU's model, where the system says it."""
    file = Path("/proc/cpuinfo")
    names = re.findall(r"model name\s*: (.*)", file.read_text()) if file.exists() else []
    return names[0] if names else platform.machine()


@cache
def run_child(case: Case, iterations: int, limit: float) -> dict[str, Any]:
    """Measure one case in its own process; `note` says why there is no measurement."""
    row = case._asdict()
    words = [
        f"{name}={json.dumps(value)}" for name, value in row.items() if name in Case._field_defaults
    ]
    command = [
        sys.executable,
        str(Path(__file__).resolve()),
        "--one",
        case.system,
        str(case.dim),
        case.method,
    ]
    command += ["--set", *words, "--iterations", str(iterations), "--limit-seconds", str(limit)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=limit)
    except subprocess.TimeoutExpired:
        return row | {"note": "over limit"}
    if done.returncode < 0:
        return row | {"note": f"killed by signal {-done.returncode} (out of memory?)"}
    if done.returncode > 0:
        last_words = (done.stderr.strip().splitlines() or ["without a word"])[-1]
        return row | {"note": f"failed: {last_words}"}
    return row | json.loads(done.stdout.splitlines()[-1])


def compare(args: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Measure and print the table, eager loops first since the other rows refer to them."""
    methods = [name for name in METHODS if name in (args.methods or METHODS)]
    if find_spec("torch") is None and set(methods) & set(TORCH):
        print(
            "torch is not installed: its rows are left out "
            "(pip install -r benchmarks/requirements.txt)"
        )
        methods = [name for name in methods if name not in TORCH]
    columns = ("s/iter", "compile s", "start MB", "peak MB", "x batched", "x stepwise")
    print(f"{'system':<7}{'D':>3}  {'method':<20}" + "".join(f"{column:>11}" for column in columns))
    fields = ("seconds", "compile_seconds", "start_mb", "peak_mb", "x_batched", "x_stepwise")
    for system, dim in product(args.systems, args.dims):
        eager: dict[str, dict[str, Any]] = {}
        for method in methods:
            case = case_of(args, system, dim, method)
            row = run_child(case, args.iterations, args.limit_seconds)
            if method in TORCH and "seconds" in row:
                eager[method.replace("torch-", "x_")] = row
            ratios = {
                name: other["seconds"] / row["seconds"]
                for name, other in eager.items()
                if other["device"] == row.get("device")
            }
            row = {**row, **ratios}
            print(f"{system:<7}{dim:>3}  {method:<20}{shown(row, *fields)}", flush=True)
            yield row


def shown(row: dict[str, Any], *names: str) -> str:
    """These numbers of a row, or the reason why there are none."""
    if "note" in row:
        return f"  {row['note']}"
    numbers = [row.get(name) for name in names]
    texts = ["-" if x is None else f"{x:.0f}" if x >= 1000 else f"{x:.4g}" for x in numbers]
    return "".join(f"{text:>11}" for text in texts) + f"  {row['device']}"


class Varied(NamedTuple):
    """One row of the scaling: what is varied, its value, and how many points there are."""

    name: str
    value: float
    size: int


def scale(args: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Vary one of N, D, J and dt at a time; every setting is also run with the fewest points."""
    columns = ("varied", "value", "N", "s/iter", "compile s", "peak MB", "constant")
    print(f"{'method':<10}" + "".join(f"{column:>11}" for column in columns))

    def measured(method: str, varied: Varied) -> dict[str, Any]:
        case = case_of(args, "syn1", 2, method)._replace(points=varied.size)
        if method == "default":  # its batch is drawn from twice as many points
            case = case._replace(points=2 * varied.size, batch=varied.size)
        if varied.name != "N":
            case = case._replace(**{varied.name: varied.value})
        return run_child(case, args.iterations, args.limit_seconds)

    for method in [name for name in USUAL_SIZE if name in (args.methods or USUAL_SIZE)]:
        settings = [Varied("N", size, size) for size in SIZES]
        for name, values in VARIED.items():
            settings += [Varied(name, value, USUAL_SIZE[method]) for value in values]
        for varied in settings:
            least = measured(method, varied._replace(size=SIZES[0]))
            row = {
                **measured(method, varied),
                "varied": varied.name,
                "value": varied.value,
                "size": varied.size,
            }
            if "seconds" in row and "seconds" in least:
                row["constant"] = least["seconds"] / row["seconds"]
            numbers = shown(row, "seconds", "compile_seconds", "peak_mb", "constant")
            label = f"{method:<10}{varied.name:>11}{varied.value:>11g}{varied.size:>11}"
            print(f"{label}{numbers}", flush=True)
            yield row


def case_of(args: argparse.Namespace, system: str, dim: int, method: str) -> Case:
    """A case with what `--seed` and `--set` say."""
    given = {name: json.loads(value) for name, value in (word.split("=", 1) for word in args.set)}
    return Case(system, dim, method, seed=args.seed)._replace(**given)


def about(args: argparse.Namespace) -> dict[str, Any]:
    """What a reader of the numbers must know about the run."""
    packages = ("jax", "jaxlib", "equinox", "optax", "numpy", "torch")
    versions = {"python": platform.python_version()} | {
        name: version(name) for name in packages if find_spec(name)
    }
    settings = {name: getattr(args, name) for name in ("seed", "iterations", "limit_seconds")}
    machine = {"cpu": cpu_name(), "cpu_count": N_CORES, "load": os.getloadavg()[0]}
    return machine | settings | {"versions": versions}


def parse() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--systems", nargs="+", default=["syn1", "syn2", "syn3"])
    parser.add_argument("--dims", nargs="+", type=int, default=[2, 10])
    parser.add_argument("--methods", nargs="+", choices=METHODS)
    parser.add_argument("--iterations", type=int, default=5, help="timed iterations a row")
    parser.add_argument(
        "--limit-seconds", type=float, default=180.0, help="a row's process is killed after this"
    )
    parser.add_argument("--json", type=Path, help="written anew after every row")
    parser.add_argument("--scaling", action="store_true", help="Syn-1 with other N, D, J and dt")
    parser.add_argument(
        "--one",
        nargs=3,
        metavar=("SYSTEM", "DIM", "METHOD"),
        help="one row here, as a line of JSON",
    )
    settable = ", ".join(
        f"{name}={json.dumps(value)}" for name, value in Case._field_defaults.items()
    )
    parser.add_argument("--set", nargs="+", default=[], metavar="NAME=VALUE", help=settable)
    parser.add_argument("--seed", type=int, default=0)
    return parser.parse_args()


def main() -> None:
    """Measure one case here, or all asked for in children."""
    began = time.perf_counter()
    args = parse()
    if args.one:
        # If memory runs out it should be this process that ends, not a neighbour.
        with contextlib.suppress(OSError):
            Path("/proc/self/oom_score_adj").write_text("1000")
        case = case_of(args, args.one[0], int(args.one[1]), args.one[2])
        if case.method == ARRAYS:
            measure = plain_arrays
        else:
            measure = measure_torch if case.method in TORCH else measure_ours
        print(json.dumps(measure(case, args.iterations, began + 0.9 * args.limit_seconds)))
        return
    heading = about(args)
    rows = []
    print(*(f"{name}: {value}" for name, value in heading.items()), sep="\n", end="\n\n")
    for row in scale(args) if args.scaling else compare(args):
        rows.append(row)
        if args.json:
            devices = sorted({r["device"] for r in rows if "device" in r})
            args.json.write_text(
                json.dumps(heading | {"devices": devices, "rows": rows}, indent=1) + "\n"
            )


if __name__ == "__main__":
    main()
