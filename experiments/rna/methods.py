"""The methods that are compared, none of which is told the noise, and what else is said of them."""

from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

from itofit import (
    Adversarial,
    FokkerPlanckProcess,
    Judged,
    Legend,
    Midpoint,
    Moments,
    Persistence,
    PotentialRNN,
)
from itofit.face import Face

# The paper's networks on this data: three hidden layers of 64, drift and test function alike.
THREE_LAYERS = Adversarial(drift_width=64, drift_depth=3, warm_start=None)
PAPER = Adversarial.paper(n_iter=2000, drift_width=64, drift_depth=3, probe_width=64, probe_depth=3)


class Settings(NamedTuple):
    """The step, the seed, the device, and a budget of iterations in place of the method's own."""

    dt: float
    seed: int
    device: str = "auto"
    n_iter: int | None = None


def _weak(
    settings: Settings, solver: Moments | Adversarial | Judged, time_varying: bool = False
) -> FokkerPlanckProcess:
    if settings.n_iter is not None and not isinstance(solver, Judged):
        solver = replace(solver, n_iter=settings.n_iter)
    return FokkerPlanckProcess(
        "learn",
        dt=settings.dt,
        solver=solver,
        time_varying=time_varying,
        device=settings.device,
        random_state=settings.seed,
    )


def _rival(kind: type[PotentialRNN] | type[Legend], settings: Settings) -> Face:
    model = kind("learn", dt=settings.dt, device=settings.device, random_state=settings.seed)
    return model if settings.n_iter is None else model.set_params(n_iter=settings.n_iter)


METHODS: dict[str, Callable[[Settings], Face]] = {
    "fpp": lambda settings: _weak(settings, THREE_LAYERS),
    "fpp-paper": lambda settings: _weak(settings, PAPER),
    "judged": lambda settings: _weak(settings, Judged()),
    "moments": lambda settings: _weak(settings, Moments()),
    "moments-clock": lambda settings: _weak(settings, Moments(), time_varying=True),
    "potential-rnn": lambda settings: _rival(PotentialRNN, settings),
    "legend": lambda settings: _rival(Legend, settings),
    "persistence": lambda settings: Persistence(random_state=settings.seed),
    "midpoint": lambda settings: Midpoint(random_state=settings.seed),
}

# Neither a seed nor a budget changes anything here: they are scored once.
WITHOUT_SEED = ("persistence", "midpoint")
REMARKS = {
    "fpp-paper": "the printed recipe, raw units",
    "potential-rnn": f"the paper's NN; {PotentialRNN.remark}",
    "legend": Legend.remark,
}


def budget_of(method: str, n_iter: int | None) -> int | None:
    """The budget as far as it concerns the method."""
    return None if method in WITHOUT_SEED else n_iter


def starts_of(method: str) -> tuple[str, ...]:
    """Where forecasts begin: on the first day as in the paper; and held to the training days beside
    the one wanted.
    """
    return ("initial",) if method in WITHOUT_SEED else ("initial", "bridge")
