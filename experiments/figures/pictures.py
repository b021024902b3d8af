"""What every figure shares: the settings of a run, and the files of a picture and its numbers."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from matplotlib.figure import Figure

from itofit.devices import device_named
from itofit.plot import save_figure


@dataclass(frozen=True)
class Settings:
    """What the command says; `n_iter` is the budget of the adversarial fits, None for the figure's
    own.
    """

    seed: int = 0
    device: str = "auto"
    n_iter: int | None = None


class Picture(NamedTuple):
    """A figure, the settings it was made with and the numbers it shows."""

    figure: Figure
    settings: dict[str, Any]
    numbers: dict[str, Any]


def grid(
    n_rows: int,
    n_columns: int,
    width: float,
    height: float,
    *,
    sharex: bool | str = False,
    sharey: bool | str = False,
) -> tuple[Figure, Any]:
    """A figure of panels of one size, and its axes as an array of rows and columns."""
    figure = Figure(figsize=(width * n_columns, height * n_rows), layout="constrained")
    axes = figure.subplots(n_rows, n_columns, squeeze=False, sharex=sharex, sharey=sharey)
    return figure, axes


def write(picture: Picture, name: str, settings: Settings, out: Path) -> tuple[Path, Path]:
    """`name.png` and `name.json` in the folder `out`; returns where they are."""
    png = out / f"{name}.png"
    record = out / f"{name}.json"
    about = {
        "figure": name,
        "seed": settings.seed,
        "device": device_named(settings.device).device_kind,
        "settings": picture.settings,
        **picture.numbers,
    }
    text = json.dumps(about, indent=1, allow_nan=False)
    out.mkdir(parents=True, exist_ok=True)
    save_figure(picture.figure, png)
    record.write_text(text + "\n")
    return png, record
