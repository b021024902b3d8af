"""Commands over the estimator face; refused input ends with one message and exit code 2."""

import json
import sys
import warnings
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, NoReturn

import jax
import typer

from itofit.cli.demo import run_demo
from itofit.cli.methods import Choices
from itofit.devices import device_named
from itofit.errors import FitWarning, InputError
from itofit.estimator import FokkerPlanckProcess
from itofit.face import Face
from itofit.forecast import AUTO
from itofit.left_out import leave_out
from itofit.problem import DRIFTS, FREE
from itofit.process.noise import KINDS, LEARN
from itofit.process_face import ProcessFace
from itofit.run_folder import METHODS, MODEL_FILE, load, read_run
from itofit.simulate.systems import SYSTEMS, known_system
from itofit.snapshots.anndata_file import cells_like, opened, write_cells
from itofit.snapshots.clouds import Snapshots
from itofit.snapshots.files import read_snapshots, write_snapshots
from itofit.solution import Outcome
from itofit.solvers import DEFAULT

app = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    help="Fit Itô processes to clouds of points at a few times, with no identity between times.",
)

_SIGMA_HELP = (
    f"Noise: learn (one number a coordinate), {', '.join(KINDS)}; or known: a number, or one per "
    "coordinate as 1,2,0.5."
)
_METHOD_HELP = f"One of {', '.join(METHODS)}."
_START_HELP = "auto, initial, previous, bridge or bridge_ot."
DataFile = Annotated[Path, typer.Argument(help="Snapshots: .npz, .csv, .parquet or .h5ad.")]
RunFolder = Annotated[Path, typer.Argument(help="A folder written by `itofit fit`.")]
TimeKey = Annotated[str | None, typer.Option(help="Column (or array) that holds the times.")]
Rep = Annotated[str | None, typer.Option(help="Of an .h5ad file: the array of obsm, e.g. X_pca.")]
Genes = Annotated[
    str | None, typer.Option(help="Of an .h5ad file, instead of --rep: genes, with commas between.")
]
Layer = Annotated[
    str | None, typer.Option(help="Of an .h5ad file: the layer to read --genes from.")
]
Pcs = Annotated[
    int | None,
    typer.Option(help="Of an .h5ad file: so many principal components of --genes, or of all."),
]


@app.command()
def fit(
    data: DataFile,
    out: Annotated[Path, typer.Option(help="Folder for the run.")],
    sigma: Annotated[str, typer.Option(help=_SIGMA_HELP)] = LEARN,
    dt: Annotated[str, typer.Option(help="Longest Euler step, or auto.")] = "auto",
    method: Annotated[str, typer.Option(help=_METHOD_HELP)] = DEFAULT,
    preset: Annotated[
        str, typer.Option(help="default; of the adversarial method also paper.")
    ] = "default",
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", help="An option of the method as NAME=VALUE; repeat for more."),
    ] = None,
    time_varying: Annotated[
        bool, typer.Option("--time-varying", help="Let the drift change with time.")
    ] = False,
    drift: Annotated[str, typer.Option(help=f"One of {', '.join(DRIFTS)}.")] = FREE,
    device: Annotated[str, typer.Option(help="auto, cpu or gpu.")] = "auto",
    seed: Annotated[int, typer.Option(help="Seed of everything random.")] = 0,
    time_key: TimeKey = None,
    rep: Rep = None,
    genes: Genes = None,
    layer: Layer = None,
    n_pcs: Pcs = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Continue the unfinished run in --out.")
    ] = False,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace the run in --out.")
    ] = False,
) -> None:
    """Fit a process to snapshots and save the run."""
    snapshots = read_snapshots(
        data, time_key, rep=rep, genes=_words(genes), layer=layer, n_pcs=n_pcs
    )
    place = OutFolder(out, resume, overwrite)
    place.check()
    model = Choices(
        method=method,
        sigma=sigma,
        dt=dt,
        preset=preset,
        time_varying=time_varying,
        drift=drift,
        device=device,
        seed=seed,
        settings=tuple(settings or ()),
    ).estimator()
    _say(f"{snapshots}")
    if isinstance(model, FokkerPlanckProcess):
        _fit_process(model, snapshots, place)
    else:
        _fit_other(model, snapshots, place)
    _say(f"saved {out}")


def _fit_process(model: FokkerPlanckProcess, snapshots: Snapshots, place: "OutFolder") -> None:
    device = device_named(model.device)
    _say(f"device {device} ({device.device_kind})")
    place.clear()
    model.fit(snapshots, checkpoint=place.path, resume=place.resume)
    model.save(place.path, overwrite=place.overwrite or place.resume)
    if model.outcome_ is not Outcome.interrupted:
        place.remove_checkpoints()
    _say(_summary(model))


def _fit_other(model: Face, snapshots: Snapshots, place: "OutFolder") -> None:
    if place.resume:
        raise InputError(
            expected=f"options that {model.method} knows",
            found="--resume",
            hint="leave them out for this method",
        )
    place.clear()
    model.fit(snapshots)
    model.save(place.path, overwrite=place.overwrite)
    _say(_short_summary(model))


@app.command()
def forecast(
    run: RunFolder,
    at: Annotated[list[float], typer.Option(help="A time to forecast; repeat for more.")],
    out: Annotated[Path, typer.Option(help="File for the clouds: .npz, .csv, .parquet or .h5ad.")],
    n_samples: Annotated[
        int | None, typer.Option(help="Points a time; default one per start point.")
    ] = None,
    start: Annotated[str, typer.Option(help=_START_HELP)] = AUTO,
) -> None:
    """Write the fitted process's clouds at any times from the first snapshot on."""
    clouds = load(run).forecast(at, n_samples, start)
    write_snapshots(clouds, out)
    _say(f"{clouds}\nsaved {out}")


@app.command()
def score(
    run: RunFolder,
    held_out: DataFile,
    system: Annotated[
        str | None, typer.Option(help="Known system whose truth gives the floor.")
    ] = None,
    start: Annotated[str, typer.Option(help=_START_HELP)] = AUTO,
    time_key: TimeKey = None,
    rep: Rep = None,
    genes: Genes = None,
    layer: Layer = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print records as JSON.")] = False,
) -> None:
    """Score a run against held-out snapshots, every distance beside its sampling floor."""
    model = load(run)
    space = model.snapshots_.space
    nothing_named = (rep, genes, layer) == (None, None, None)
    if space is not None and _is_h5ad(held_out) and nothing_named:
        space = replace(space, time_key=time_key or space.time_key)
        snapshots = cells_like(opened(held_out, backed=False), space)
    else:
        snapshots = read_snapshots(held_out, time_key, rep=rep, genes=_words(genes), layer=layer)
    truth = None if system is None else known_system(system, snapshots.n_dims)
    card = model.scorecard(snapshots, truth=truth, start=start)
    typer.echo(json.dumps(card.to_records(), indent=1) if as_json else str(card))


@app.command()
def annotate(
    run: RunFolder,
    cells: Annotated[Path, typer.Argument(help="An .h5ad file with the coordinates of the fit.")],
    out: Annotated[Path, typer.Option(help="File for the annotated cells: .h5ad.")],
    basis: Annotated[
        str | None, typer.Option(help="An embedding to draw arrows in as well, e.g. umap.")
    ] = None,
) -> None:
    """Write the fitted drift at every cell into a copy of an AnnData, for scanpy and scvelo."""
    model = load(run)
    if not isinstance(model, ProcessFace):
        raise InputError(
            expected="a run that has a drift",
            found=f"one of {model.method}",
            hint="--method moments",
        )
    adata = opened(cells, backed=False)
    model.annotate(adata, basis)
    write_cells(adata, out)
    _say(f"{adata.n_obs} cells: obsm['itofit_drift'], obs['itofit_speed']\nsaved {out}")


@app.command("leave-out")
def leave_out_time(
    data: DataFile,
    day: Annotated[str, typer.Option(help="The time to leave out: 2, or a label such as D2.")],
    time_key: TimeKey = None,
    rep: Rep = None,
    genes: Genes = None,
    layer: Layer = None,
    n_pcs: Pcs = None,
    method: Annotated[str, typer.Option(help=_METHOD_HELP)] = DEFAULT,
    start: Annotated[str, typer.Option(help=_START_HELP)] = "bridge",
    seed: Annotated[int, typer.Option(help="Seed of everything random.")] = 0,
    as_json: Annotated[bool, typer.Option("--json", help="Print records as JSON.")] = False,
) -> None:
    """Fit without one time, forecast it and score the forecast beside its floor."""
    model = Choices(method, seed=seed).estimator()
    if _is_h5ad(data):
        left_out = leave_out(
            opened(data, backed=False),
            day,
            model=model,
            start=start,
            time_key=time_key or "day",
            rep=rep,
            genes=_words(genes),
            layer=layer,
            n_pcs=n_pcs,
        )
    else:
        snapshots = read_snapshots(
            data, time_key, rep=rep, genes=_words(genes), layer=layer, n_pcs=n_pcs
        )
        left_out = leave_out(snapshots, day, model=model, start=start)
    if as_json:
        typer.echo(json.dumps(left_out.scorecard.to_records(), indent=1))
    else:
        typer.echo(str(left_out))


@app.command()
def info(
    run: RunFolder, as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False
) -> None:
    """Say what a run folder holds."""
    about = read_run(run).about
    model = load(run)
    snapshots = model.snapshots_
    if as_json:
        data = {"times": snapshots.times.tolist(), "counts": snapshots.counts}
        typer.echo(json.dumps({**about, **data}, indent=1))
        return
    typer.echo(f"{about['method']} on {snapshots}")
    if not isinstance(model, FokkerPlanckProcess):
        typer.echo(_short_summary(model))
        return
    typer.echo(_summary(model))
    reliability = model.reliability()
    if reliability:
        typer.echo(reliability)


@app.command()
def simulate(
    system: Annotated[str, typer.Argument(help=f"One of {', '.join(SYSTEMS)}.")],
    out: Annotated[Path, typer.Option(help="File for the training snapshots.")],
    dim: Annotated[int, typer.Option(help="Dimension, even.")] = 2,
    n: Annotated[int, typer.Option(help="Points a snapshot.")] = 1200,
    held_out: Annotated[
        Path | None, typer.Option(help="File for held-out snapshots at the test times.")
    ] = None,
    n_held_out: Annotated[int, typer.Option(help="Held-out points a snapshot.")] = 800,
    times: Annotated[
        list[float] | None, typer.Option(help="Training time; repeat. Default: the paper's.")
    ] = None,
    seed: Annotated[int, typer.Option(help="Seed.")] = 0,
) -> None:
    """Draw snapshots of a known system, and others held out at the paper's test times."""
    known = known_system(system, dim)
    k_train, k_test = jax.random.split(jax.random.key(seed))
    training = known.observe(n, times or known.train_times, key=k_train)
    write_snapshots(training, out)
    _say(f"{training}\nsaved {out}")
    if held_out is not None:
        test = known.observe(n_held_out, [0.0, *known.test_times], key=k_test)
        write_snapshots(test, held_out)
        _say(f"{test}\nsaved {held_out}")


@app.command()
def demo(
    out: Annotated[Path, typer.Option(help="Folder for run, data and picture.")] = Path("demo"),
) -> None:
    """Fit the paper's van der Pol oscillator (Syn-3), score it against its floors and draw it."""
    run_demo(out, say=_say)


def main() -> NoReturn:
    """Run the command line; refused input becomes one message and exit code 2."""
    try:
        with warnings.catch_warnings():
            warnings.showwarning = _warn
            app(standalone_mode=False)
    except InputError as refusal:
        _fail(str(refusal))
    except typer.Exit as done:
        sys.exit(done.exit_code)
    except (typer.Abort, KeyboardInterrupt):
        sys.stderr.write("itofit: stopped\n")
        sys.exit(130)
    except Exception as error:
        show = getattr(error, "show", None)
        if show is None:
            raise
        show()
        sys.exit(2)
    sys.exit(0)


def _fail(message: str) -> NoReturn:
    sys.stderr.write(f"itofit: {message}\n")
    sys.exit(2)


def _warn(message, category, *_args, **_kwargs) -> None:
    label = "warning" if issubclass(category, FitWarning) else category.__name__
    sys.stderr.write(f"itofit: {label}: {message}\n")


def _say(text: str) -> None:
    typer.echo(text)


def _summary(model: FokkerPlanckProcess) -> str:
    lines = [
        model.outcome_.value,
        *model.solution_.remarks(),
        f"{model.n_iter_} iterations in {model.seconds_:.0f} s on {model.device_}, "
        f"seed {model.seed_}; dt {model.dt_:.4g}, halving it moves a mean or sd by "
        f"{model.dt_error_:.2g} sd",
    ]
    return "\n".join(lines)


def _short_summary(model: Face) -> str:
    """How a fit of one of the other methods ended."""
    remark = f"{model.method}: {model.remark}\n" if model.remark else ""
    return f"{remark}{model.outcome_.value}\n{model.seconds_:.1f} s, seed {model.seed_}"


def _is_h5ad(file: Path) -> bool:
    return file.suffix.lower() == ".h5ad"


def _words(text: str | None) -> list[str] | None:
    return None if text is None else [word.strip() for word in text.split(",")]


@dataclass(frozen=True)
class OutFolder:
    """The folder of a run, and what may be done with one that is there."""

    path: Path
    resume: bool
    overwrite: bool

    def check(self) -> None:
        """Refuse a folder that holds a run, unless it may be continued or replaced."""
        unfinished = any(self.path.glob("checkpoint*.npz"))
        occupied = unfinished or (self.path / MODEL_FILE).exists()
        if not occupied or self.overwrite or (unfinished and self.resume):
            return
        raise InputError(
            expected="--out to name a folder without a run",
            found=f"an unfinished one in {self.path}" if unfinished else f"one in {self.path}",
            hint="--resume, or --overwrite" if unfinished else "another name, or --overwrite",
        )

    def clear(self) -> None:
        """Remove what an unfinished run has left, when a new one begins."""
        if self.overwrite and not self.resume:
            self.remove_checkpoints()
            (self.path / "log.jsonl").unlink(missing_ok=True)

    def remove_checkpoints(self) -> None:
        """Remove the states of runs."""
        for path in self.path.glob("checkpoint*.npz"):
            path.unlink()
