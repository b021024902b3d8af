"""The methods that are compared, none of which is told the noise, and what else is said of them."""

from collections.abc import Callable
from typing import Any, NamedTuple

from itofit import FokkerPlanckProcess, Legend, Midpoint, Persistence, PotentialRNN
from itofit.face import Face

# The paper's networks on this data: three hidden layers of 64, drift and test function alike.
DRIFT = {"drift_width": 64, "drift_depth": 3}
PROBE = {"probe_width": 64, "probe_depth": 3}
PAPER_ITERATIONS = 2000


class How(NamedTuple):
    """The step, the seed, the device, and a budget of iterations in place of the method's own."""

    dt: float
    seed: int
    device: str = "auto"
    n_iter: int | None = None


def _weak(how: How, n_iter: int | None = None, **choices: Any) -> FokkerPlanckProcess:
    budget = how.n_iter or n_iter
    return FokkerPlanckProcess("learn", dt=how.dt, n_iter=budget, device=how.device, random_state=how.seed, **choices)


def _rival(kind: type[PotentialRNN] | type[Legend], how: How) -> Face:
    budget = {} if how.n_iter is None else {"n_iter": how.n_iter}
    return kind("learn", dt=how.dt, device=how.device, random_state=how.seed, **budget)


METHODS: dict[str, Callable[[How], Face]] = {
    "fpp": lambda how: _weak(how, solver="adversarial", options=DRIFT),
    "fpp-paper": lambda how: _weak(how, PAPER_ITERATIONS, preset="paper", solver="adversarial", options=DRIFT | PROBE),
    "moments": lambda how: _weak(how, solver="moments"),
    "moments-clock": lambda how: _weak(how, solver="moments", time_varying=True),
    "potential-rnn": lambda how: _rival(PotentialRNN, how),
    "legend": lambda how: _rival(Legend, how),
    "persistence": lambda how: Persistence(random_state=how.seed),
    "midpoint": lambda how: Midpoint(random_state=how.seed),
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
    """Where forecasts begin: on the first day as in the paper; and held to the training days beside the one wanted."""
    return ("initial",) if method in WITHOUT_SEED else ("initial", "between")
