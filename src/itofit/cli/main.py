"""Commands over the estimator face. Refused input ends with one message on stderr and exit code 2."""

import json
import sys
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, NoReturn

import jax
import typer

from itofit.baselines import Collocation, Legend, Midpoint, Persistence, PotentialRNN
from itofit.cli.demo import run_demo
from itofit.errors import FitWarning, InputError
from itofit.estimator import FokkerPlanckProcess
from itofit.face import MODEL_FILE, Face, device_named, read_run
from itofit.left_out import leave_out
from itofit.process.noise import KINDS, LEARN, is_learned
from itofit.process_face import ProcessFace
from itofit.simulate.systems import SYSTEMS, known_system
from itofit.snapshots.anndata_file import cells_like, opened, write_cells
from itofit.snapshots.files import read_snapshots, write_snapshots
from itofit.solve.outcome import Outcome

app = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    help="Fit Itô processes to clouds of points at a few times, with no identity between times.",
)

METHODS: dict[str, type[Face]] = {
    name: face
    for face in (FokkerPlanckProcess, PotentialRNN, Legend, Collocation, Persistence, Midpoint)
    for name in (face.method, *face.aliases)
}

_SIGMA_HELP = (
    f"Noise: learn (one number a coordinate), {', '.join(KINDS)}; or known: a number, or one per coordinate as 1,2,0.5."
)
DataFile = Annotated[Path, typer.Argument(help="Snapshots: .npz, .csv, .parquet or .h5ad.")]
RunFolder = Annotated[Path, typer.Argument(help="A folder written by `itofit fit`.")]
TimeKey = Annotated[str | None, typer.Option(help="Column (or array) that holds the times.")]
Rep = Annotated[str | None, typer.Option(help="Of an .h5ad file: the array of obsm, e.g. X_pca.")]
Genes = Annotated[str | None, typer.Option(help="Of an .h5ad file, instead of --rep: genes, with commas between.")]
Layer = Annotated[str | None, typer.Option(help="Of an .h5ad file: the layer to read --genes from.")]
Pcs = Annotated[int | None, typer.Option(help="Of an .h5ad file: so many principal components of --genes, or of all.")]


@app.command()
def fit(
    data: DataFile,
    out: Annotated[Path, typer.Option(help="Folder for the run.")],
    sigma: Annotated[str, typer.Option(help=_SIGMA_HELP)] = LEARN,
    dt: Annotated[str, typer.Option(help="Longest Euler step, or auto.")] = "auto",
    method: Annotated[str, typer.Option(help=f"auto, or one of {', '.join(METHODS)}.")] = "auto",
    preset: Annotated[str, typer.Option(help="default or paper.")] = "default",
    time_varying: Annotated[bool, typer.Option("--time-varying", help="Let the drift change with time.")] = False,
    anchor: Annotated[str | None, typer.Option(help="initial or previous; the preset decides if left out.")] = None,
    gradient: Annotated[str | None, typer.Option(help="pathwise, detached or adjoint.")] = None,
    discrepancy: Annotated[str | None, typer.Option(help="weak or direct.")] = None,
    n_iter: Annotated[int | None, typer.Option(help="Iteration budget.")] = None,
    members: Annotated[int | None, typer.Option(help="Train an ensemble of so many; its mean is the model.")] = None,
    warm_start: Annotated[str | None, typer.Option(help="moments: learn a correction to that solver's drift.")] = None,
    device: Annotated[str, typer.Option(help="auto, cpu or gpu.")] = "auto",
    seed: Annotated[int, typer.Option(help="Seed of everything random.")] = 0,
    time_key: TimeKey = None,
    rep: Rep = None,
    genes: Genes = None,
    layer: Layer = None,
    n_pcs: Pcs = None,
    resume: Annotated[bool, typer.Option("--resume", help="Continue the unfinished run in --out.")] = False,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace the run in --out.")] = False,
) -> None:
    """Fit a process to snapshots and save the run."""
    snapshots = read_snapshots(data, time_key, rep=rep, genes=_words(genes), layer=layer, n_pcs=n_pcs)
    _check_out(out, resume, overwrite)
    _check_method(method)
    noise, step = _noise(sigma), dt if dt == "auto" else _numbers(dt, "--dt")
    choices = {
        "sigma": noise,
        "dt": step,
        "preset": preset,
        "time_varying": time_varying,
        "anchor": anchor,
        "gradient": gradient,
        "discrepancy": discrepancy,
        "n_iter": n_iter,
        "n_members": members,
        "warm_start": warm_start,
        "device": device,
        "random_state": seed,
    }
    _say(f"{snapshots}")
    if method != "auto" and METHODS[method] is not FokkerPlanckProcess:
        other = _of_method(METHODS[method], choices, resume)
        _clear(out, resume, overwrite)
        other.fit(snapshots)
        other.save(out, overwrite=overwrite)
        _say(f"{_short_summary(other)}\nsaved {out}")
        return
    model = FokkerPlanckProcess(**choices, solver=method, verbose=True)
    _say(f"device {device_named(device)} ({jax.devices()[0].device_kind})")
    _clear(out, resume, overwrite)
    model.fit(snapshots, checkpoint=out, resume=resume)
    model.save(out, overwrite=overwrite or resume)
    if model.outcome_ is not Outcome.interrupted:
        _remove_checkpoints(out)
    _say(_summary(model))
    _say(f"saved {out}")


@app.command()
def forecast(
    run: RunFolder,
    at: Annotated[list[float], typer.Option(help="A time to forecast; repeat for more.")],
    out: Annotated[Path, typer.Option(help="File for the clouds: .npz, .csv, .parquet or .h5ad.")],
    n_samples: Annotated[int | None, typer.Option(help="Points a time; default one per start point.")] = None,
    start: Annotated[str, typer.Option(help="initial, previous, between or hedged.")] = "initial",
) -> None:
    """Write the fitted process's clouds at any times from the first snapshot on."""
    clouds = load_run(run).forecast(at, n_samples, start)
    write_snapshots(clouds, out)
    _say(f"{clouds}\nsaved {out}")


@app.command()
def score(
    run: RunFolder,
    held_out: DataFile,
    system: Annotated[str | None, typer.Option(help="Known system whose truth gives the floor.")] = None,
    start: Annotated[str, typer.Option(help="initial, previous, between or hedged.")] = "initial",
    time_key: TimeKey = None,
    rep: Rep = None,
    genes: Genes = None,
    layer: Layer = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print records as JSON.")] = False,
) -> None:
    """Score a run against held-out snapshots, every distance beside its sampling floor."""
    model = load_run(run)
    space = model.snapshots_.space
    if space is not None and held_out.suffix.lower() == ".h5ad" and (rep, genes, layer) == (None, None, None):
        snapshots = cells_like(opened(held_out, backed=False), replace(space, time_key=time_key or space.time_key))
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
    basis: Annotated[str | None, typer.Option(help="An embedding to draw arrows in as well, e.g. umap.")] = None,
) -> None:
    """Write the fitted drift at every cell into a copy of an AnnData, for scanpy's and scvelo's plots."""
    model = load_run(run)
    if not isinstance(model, ProcessFace):
        raise InputError(expected="a run that has a drift", found=f"one of {model.method}", hint="--method moments")
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
    method: Annotated[str, typer.Option(help=f"auto, or one of {', '.join(METHODS)}.")] = "auto",
    start: Annotated[str, typer.Option(help="initial, previous, between or hedged.")] = "between",
    seed: Annotated[int, typer.Option(help="Seed of everything random.")] = 0,
    as_json: Annotated[bool, typer.Option("--json", help="Print records as JSON.")] = False,
) -> None:
    """Fit without one time, forecast it and score the forecast beside its floor."""
    model = _fresh(method, seed)
    if data.suffix.lower() == ".h5ad":
        key = time_key or "day"
        how = {"time_key": key, "rep": rep, "genes": _words(genes), "layer": layer, "n_pcs": n_pcs}
        found = leave_out(opened(data, backed=False), day, **how, model=model, start=start)
    else:
        snapshots = read_snapshots(data, time_key, rep=rep, genes=_words(genes), layer=layer, n_pcs=n_pcs)
        found = leave_out(snapshots, day, model=model, start=start)
    typer.echo(json.dumps(found.scorecard.to_records(), indent=1) if as_json else str(found))


@app.command()
def info(run: RunFolder, as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False) -> None:
    """Say what a run folder holds."""
    about, _ = read_run(run)
    model = load_run(run)
    if as_json:
        typer.echo(
            json.dumps({**about, "times": model.snapshots_.times.tolist(), "counts": model.snapshots_.counts}, indent=1)
        )
        return
    typer.echo(f"{about['method']} on {model.snapshots_}")
    if not isinstance(model, FokkerPlanckProcess):
        typer.echo(_short_summary(model))
    else:
        typer.echo(_summary(model))
        said = model.reliability()
        if said:
            typer.echo(said)


@app.command()
def simulate(
    system: Annotated[str, typer.Argument(help=f"One of {', '.join(SYSTEMS)}.")],
    out: Annotated[Path, typer.Option(help="File for the training snapshots.")],
    dim: Annotated[int, typer.Option(help="Dimension, even.")] = 2,
    n: Annotated[int, typer.Option(help="Points a snapshot.")] = 1200,
    held_out: Annotated[Path | None, typer.Option(help="File for held-out snapshots at the test times.")] = None,
    n_held_out: Annotated[int, typer.Option(help="Held-out points a snapshot.")] = 800,
    times: Annotated[list[float] | None, typer.Option(help="Training time; repeat. Default: the paper's.")] = None,
    seed: Annotated[int, typer.Option(help="Seed.")] = 0,
) -> None:
    """Draw snapshots of a known system: training particles, and others held out at the paper's test times."""
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


def load_run(path: Path) -> Face:
    """The fitted model in a run folder, whatever its method."""
    about, _ = read_run(path)
    if about["method"] not in METHODS:
        raise InputError(
            expected=f"a run of one of {', '.join(METHODS)}", found=about["method"], hint="a newer itofit may know it"
        )
    return METHODS[about["method"]].load(path)


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


_PATHS = {
    "simulated": "",
    "seen": "snapshots are dense in time: the observed clouds were the path, without simulation\n",
    "corrected": "snapshots are dense in time: the observed clouds were the path, each gap corrected by a simulation\n",
}


def _summary(model: FokkerPlanckProcess) -> str:
    return (
        f"{model.outcome_.value}\n{_PATHS[model.path_]}"
        f"{model.n_iter_} iterations in {model.seconds_:.0f} s on {model.device_}, seed {model.seed_}; "
        f"dt {model.dt_:.4g}, halving it moves a mean or sd by {model.dt_error_:.2g} sd"
    )


def _check_method(method: str) -> None:
    if method not in ("auto", *METHODS):
        raise InputError(expected=f"--method to be auto or one of {', '.join(METHODS)}", found=method, hint="auto")


def _fresh(method: str, seed: int) -> Face:
    """An estimator of this method with its own choices."""
    _check_method(method)
    if method == "auto" or METHODS[method] is FokkerPlanckProcess:
        return FokkerPlanckProcess(solver=method, random_state=seed, verbose=True)
    return _of_method(METHODS[method], {"random_state": seed}, resume=False)


def _of_method(kind: type[Face], choices: dict[str, Any], resume: bool) -> Face:
    """One of the other methods; a choice it does not know is refused, not passed over."""
    model = kind()
    known = model.get_params()
    usual = {
        "sigma": LEARN,
        "dt": "auto",
        "preset": "default",
        "time_varying": False,
        "device": "auto",
        "random_state": choices["random_state"],
    }
    asked = {name: value for name, value in choices.items() if value != usual.get(name)}
    unknown = [_FLAGS.get(name, "--" + name.replace("_", "-")) for name in asked if name not in known]
    unknown += ["--resume"] if resume else []
    if unknown:
        raise InputError(
            expected=f"options that {kind.method} knows",
            found=", ".join(unknown),
            hint="leave them out for this method",
        )
    given = {"random_state": choices["random_state"], "verbose": True} | asked
    return model.set_params(**{name: value for name, value in given.items() if name in known})


_FLAGS = {"n_members": "--members"}


def _short_summary(model: Face) -> str:
    """How a fit of one of the other methods ended."""
    remark = f"{model.method}: {model.remark}\n" if model.remark else ""
    return f"{remark}{model.outcome_.value}\n{model.seconds_:.1f} s, seed {model.seed_}"


def _noise(text: str) -> Any:
    """The word for a noise to be learned, or the numbers of a known one; a word that says nothing is refused."""
    return text if text[:1].isalpha() and is_learned(text) else _numbers(text, "--sigma")


def _words(text: str | None) -> list[str] | None:
    return None if text is None else [word.strip() for word in text.split(",")]


def _numbers(text: str, option: str) -> Any:
    try:
        values = [float(part) for part in text.split(",")]
    except ValueError:
        raise InputError(
            expected=f"{option} as a number, or numbers with commas between", found=f"{text!r}", hint="1"
        ) from None
    return values[0] if len(values) == 1 else values


def _check_out(out: Path, resume: bool, overwrite: bool) -> None:
    unfinished = any(out.glob("checkpoint*.npz"))
    occupied = unfinished or (out / MODEL_FILE).exists()
    if occupied and not overwrite and not (unfinished and resume):
        raise InputError(
            expected="--out to name a folder without a run",
            found=f"an unfinished one in {out}" if unfinished else f"one in {out}",
            hint="--resume, or --overwrite" if unfinished else "another name, or --overwrite",
        )


def _clear(out: Path, resume: bool, overwrite: bool) -> None:
    """Remove what an unfinished run has left, when a new one begins."""
    if overwrite and not resume:
        _remove_checkpoints(out)
        (out / "log.jsonl").unlink(missing_ok=True)


def _remove_checkpoints(out: Path) -> None:
    for path in out.glob("checkpoint*.npz"):
        path.unlink()
