"""The command: `python -m experiments.figures --help`."""

import argparse
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import jax

from experiments import figures
from experiments.arguments import positive, whole
from experiments.figures.curl import curl
from experiments.figures.error_bound import error_bound
from experiments.figures.forecasts import forecasts
from experiments.figures.pictures import Picture, Settings, write
from itofit import InputError
from itofit.devices import device_named

FIGURES: dict[str, Callable[[Settings], Picture]] = {
    "syn1": partial(forecasts, "syn1"),
    "syn2": partial(forecasts, "syn2"),
    "syn3": partial(forecasts, "syn3"),
    "curl": curl,
    "error-bound": error_bound,
}


def main(argv: Sequence[str] | None = None) -> int:
    """Make the asked figures, one after the other."""
    parser = _parser()
    args = parser.parse_args(argv)
    unknown = [name for name in args.names if name not in FIGURES]
    if unknown:
        parser.error(f"no figure {', '.join(unknown)}: the names are {', '.join(FIGURES)}")
    if args.out.exists() and not args.out.is_dir():
        parser.error(f"{args.out} is a file, not a folder")
    try:
        device = device_named(args.device)
    except InputError as fault:
        parser.error(str(fault))
    settings = Settings(args.seed, args.device, args.n_iter)
    for name in args.names:
        began = time.perf_counter()
        with jax.default_device(device):
            picture = FIGURES[name](settings)
        png, record = write(picture, name, settings, args.out)
        print(f"{png} and {record.name}: {time.perf_counter() - began:.0f} s", flush=True)
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m experiments.figures",
        description=figures.__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("names", nargs="+", metavar="name", help=", ".join(FIGURES))
    parser.add_argument("--out", type=Path, required=True, help="the folder to write into")
    parser.add_argument("--device", choices=("auto", "cpu", "gpu"), default="auto")
    parser.add_argument("--seed", type=whole, default=0, help="of data and fits (default 0)")
    parser.add_argument(
        "--n-iter", type=positive, help="budget of every adversarial fit; default: the figure's own"
    )
    return parser


if __name__ == "__main__":
    sys.exit(main())
