"""The methods of the comparison, with the choices each is fitted with; noise is learned by all that
have some.
"""

from collections.abc import Callable

from itofit import Collocation, FokkerPlanckProcess, Legend, Midpoint, Persistence, PotentialRNN
from itofit.face import Face


def _ours(dt: float, seed: int, device: str, solver: str, time_varying: bool = False) -> Face:
    return FokkerPlanckProcess(
        dt=dt, solver=solver, time_varying=time_varying, device=device, random_state=seed
    )


# (step, seed, device) -> estimator
METHODS: dict[str, Callable[[float, int, str], Face]] = {
    "persistence": lambda dt, seed, device: Persistence(random_state=seed),
    "midpoint": lambda dt, seed, device: Midpoint(random_state=seed),
    # of degree 1: with its default of 3 it runs to infinity on every one of these data sets
    "collocation": lambda dt, seed, device: Collocation(degree=1, dt=dt, random_state=seed),
    "potential-rnn": lambda dt, seed, device: PotentialRNN(dt=dt, device=device, random_state=seed),
    "legend": lambda dt, seed, device: Legend(dt=dt, device=device, random_state=seed),
    "adversarial": lambda dt, seed, device: _ours(dt, seed, device, "adversarial"),
    "moments": lambda dt, seed, device: _ours(dt, seed, device, "moments"),
    "moments-clock": lambda dt, seed, device: _ours(dt, seed, device, "moments", True),
}
OURS = ("moments", "moments-clock", "adversarial")


def starts_of(method: str, has_later: bool) -> tuple[str, ...]:
    """The start a method was trained from and, where a snapshot is after, those held to it; trivial
    rows know none.
    """
    if method in ("persistence", "midpoint"):
        return ("-",)
    own = "initial" if method == "legend" else "previous"
    return (own, "bridge", "bridge_ot") if has_later else (own,)
