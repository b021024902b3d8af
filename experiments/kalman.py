"""The Kalman filter of intraday volume on 15-minute bins, beside rolling means and figures known
for the same split.

    python -m experiments.kalman --data DIR

DIR holds intraday_volume/volume_15min.npz: days x 26 bins of five stocks. All but the last 20 days
are fitted, the last 20 are foretold bin by bin (`dynamic`) and at the close before (`static`). MAPE
of logs: mean of |y_hat - y| / |y| over days and bins. The published implementation of the model
(convexfi/intradayModel, R) has .02922, .03101 and .01905 for ACN, ADBE and CVS.
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from experiments.volume.forecasts import mape
from itofit import InputError
from itofit.baselines import (
    dynamic_forecast,
    fit_kalman_volume,
    log_volume,
    rolling_mean,
    static_forecast,
)

FILE = Path("intraday_volume") / "volume_15min.npz"
N_TEST = 20
KNOWN = {"ACN": 0.02922, "ADBE": 0.03101, "CVS": 0.01905}


def errors(volume: np.ndarray) -> dict[str, float]:
    """MAPE of logs over the last days, by forecast, and the EM steps of the fit."""
    y = log_volume(volume)
    fit = fit_kalman_volume(y[:-N_TEST])
    test = y[-N_TEST:]
    forecasts = {
        "dynamic": dynamic_forecast(fit.parameters, y).mean,
        "static": static_forecast(fit.parameters, y).mean,
        "rolling-20": np.log(rolling_mean(volume, 20)),
        "rolling-all": np.log(rolling_mean(volume)),
    }
    by_forecast = {name: mape(forecast[-N_TEST:], test) for name, forecast in forecasts.items()}
    return {**by_forecast, "steps": fit.n_iterations}


def table(folder: Path) -> str:
    """One line a stock."""
    path = folder / FILE
    if not path.is_file():
        raise InputError(
            expected=f"{FILE} in --data", found=f"no file at {path}", hint="the folder of data sets"
        )
    with np.load(path) as arrays:
        stocks = {
            name.removesuffix("_volume"): arrays[name].astype(float)
            for name in arrays
            if name.endswith("_volume")
        }
    lines = [
        "| stock | dynamic (published) | static | rolling-20 | rolling-all | EM steps |",
        "|---|---|---|---|---|---|",
    ]
    for stock, volume in stocks.items():
        by_forecast = errors(volume)
        known = f" ({KNOWN[stock]:.5f})" if stock in KNOWN else ""
        cells = [
            f"{by_forecast['dynamic']:.5f}{known}",
            *(f"{by_forecast[name]:.4f}" for name in ("static", "rolling-20", "rolling-all")),
        ]
        lines.append(f"| {stock} | {' | '.join(cells)} | {by_forecast['steps']:.0f} |")
    return "\n".join(lines)


def main(argv: Sequence[str] | None = None) -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(
        prog="python -m experiments.kalman",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--data", type=Path, required=True, metavar="DIR")
    try:
        print(table(parser.parse_args(argv).data))
    except InputError as fault:
        parser.error(str(fault))
    return 0


if __name__ == "__main__":
    sys.exit(main())
