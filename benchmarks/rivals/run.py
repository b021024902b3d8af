"""Real rivals, each in an environment of its own: install one, ask one for a forecast.

    python -m benchmarks.rivals.run                     # which there are, and which are installed
    python -m benchmarks.rivals.run --install otcfm     # into .rivals/otcfm, from requirements.txt

    answer = ask(rival("otcfm"), given, [1.5], n=500, seed=0)        answer.clouds["previous"]

The environments lie in `.rivals`, or where the variable ITOFIT_RIVALS says. A rival is a folder
with `requirements.txt` and `adapter.py`, which is run as `python adapter.py QUESTION ANSWER`, two
npz files, and does the rest with `protocol.py`.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import venv
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from benchmarks.rivals.protocol import CANNOT, STARTS

from itofit import InputError, Snapshots

HERE = Path(__file__).resolve().parent
VARIABLE = "ITOFIT_RIVALS"
TAIL = 12  # lines of what a rival said before it failed


class Declined(Exception):
    """A rival says that its method cannot do what is asked; the message is its sentence."""


class RivalFailed(RuntimeError):
    """A rival ended without an answer; the message has the end of what it said."""


@dataclass(frozen=True, eq=False)
class Answer:
    """Clouds (k, n, n_dims) by start, and the seconds of fit and forecasts, imports left out."""

    clouds: dict[str, np.ndarray]
    seconds: float


@dataclass(frozen=True)
class Rival:
    """A program of others.

    - `folder`: has `adapter.py` and `requirements.txt`.
    - `python`: the interpreter of its environment.
    """

    name: str
    folder: Path
    python: Path

    @property
    def installed(self) -> bool:
        """Whether there is an environment; it is made as a whole or not at all."""
        return self.python.exists()


def names() -> list[str]:
    """Of all rivals."""
    return sorted(path.parent.name for path in HERE.glob("*/adapter.py"))


def rival(name: str) -> Rival:
    """A rival of this folder."""
    if name not in names():
        raise InputError(
            expected=f"a rival, one of {', '.join(names())}",
            found=repr(name),
            hint="python -m benchmarks.rivals.run to see which are installed",
        )
    place = Path(os.environ.get(VARIABLE) or HERE.parents[1] / ".rivals")
    return Rival(name, HERE / name, place.absolute() / name / "bin" / "python")


def ask(
    one: Rival,
    given: Snapshots,
    times: Sequence[float],
    *,
    n: int,
    seed: int,
    starts: Sequence[str] = STARTS[:1],
) -> Answer:
    """One fit, and forecasts of it from several starts.

    Raises
    ------
    InputError
        Where the rival is not installed, or cannot be asked this.
    Declined
        Where its method cannot do it.
    RivalFailed
        Where it ended in another way than with an answer.
    """
    _check(one, given, starts)
    with tempfile.TemporaryDirectory() as folder:
        question = Path(folder) / "question.npz"
        answer = Path(folder) / "answer.npz"
        np.savez(
            question,
            points=np.concatenate(given.clouds),
            times=np.repeat(given.times, [len(cloud) for cloud in given.clouds]),
            asked=np.asarray(times, dtype=float),
            n=n,
            seed=seed,
            starts=np.asarray(list(starts)),
        )
        _run(one, question, answer)
        with np.load(answer) as file:
            clouds = file["clouds"]
            seconds = float(file["seconds"])
    if not np.all(np.isfinite(clouds)):
        raise RivalFailed(f"{one.name} forecast points that are not finite")
    return Answer(dict(zip(starts, clouds, strict=True)), seconds)


def check_installed(one: Rival) -> None:
    """Refuse a rival without an environment."""
    if not one.installed:
        raise InputError(
            expected=f"an environment for {one.name}",
            found=f"no {one.python}",
            hint=f"python -m benchmarks.rivals.run --install {one.name}",
        )


def _check(one: Rival, given: Snapshots, starts: Sequence[str]) -> None:
    check_installed(one)
    if not set(starts) <= set(STARTS):
        raise InputError(
            expected=f"starts of {' and '.join(STARTS)}",
            found=", ".join(starts),
            hint="start='previous'",
        )
    if any(np.ptp(weights) > 1e-9 * np.max(weights) for weights in given.weights):
        raise InputError(
            expected="points that all count the same, as rivals take them",
            found="weights that differ",
            hint="draw points by their weights first",
        )


def _run(one: Rival, question: Path, answer: Path) -> None:
    words = [str(one.python), str(one.folder / "adapter.py"), str(question), str(answer)]
    alone = {"PYTHONPATH": str(HERE), "OMP_NUM_THREADS": "1", "PYTHONHASHSEED": "0"}
    done = subprocess.run(words, env=os.environ | alone, capture_output=True, text=True)
    said = done.stderr.strip().splitlines()
    if done.returncode == CANNOT and said:
        raise Declined(said[-1])
    if done.returncode != 0 or not answer.exists():
        tail = "\n".join(said[-TAIL:])
        raise RivalFailed(f"{one.name} ended with code {done.returncode}:\n{tail}")


def install(one: Rival) -> None:
    """Make the environment of a rival, anew where there is one."""
    place = one.python.parents[1]
    venv.create(place, with_pip=True, clear=True)
    requirements = one.folder / "requirements.txt"
    words = [str(one.python), "-m", "pip", "install", "--quiet", "-r", str(requirements)]
    if subprocess.run(words).returncode != 0:
        one.python.unlink()
        raise RivalFailed(f"{one.name} could not be installed: pip says why above")


def main() -> None:
    """Install rivals, or say which are."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.rivals.run")
    parser.add_argument("--install", nargs="+", metavar="NAME", choices=names(), default=[])
    for name in parser.parse_args().install:
        install(rival(name))
    for name in names():
        print(f"{name:10} {'installed' if rival(name).installed else 'not installed'}")


if __name__ == "__main__":
    sys.exit(main())
