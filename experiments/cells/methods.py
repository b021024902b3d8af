"""The methods of the comparison, with the choices each is fitted with; noise is learned by all that have some."""

from collections.abc import Callable

from itofit import Collocation, FokkerPlanckProcess, Legend, Midpoint, Persistence, PotentialRNN
from itofit.face import Face

# (step, seed, device) -> estimator
METHODS: dict[str, Callable[[float, int, str], Face]] = {
    "persistence": lambda dt, seed, device: Persistence(random_state=seed),
    "midpoint": lambda dt, seed, device: Midpoint(random_state=seed),
    # of degree 1: with its default of 3 it runs to infinity on every one of these data sets
    "collocation": lambda dt, seed, device: Collocation(degree=1, dt=dt, random_state=seed),
    "potential-rnn": lambda dt, seed, device: PotentialRNN(dt=dt, device=device, random_state=seed),
    "legend": lambda dt, seed, device: Legend(dt=dt, device=device, random_state=seed),
    "adversarial": lambda dt, seed, device: FokkerPlanckProcess(
        solver="adversarial", dt=dt, device=device, random_state=seed
    ),
    "moments": lambda dt, seed, device: FokkerPlanckProcess(solver="moments", dt=dt, device=device, random_state=seed),
    "moments-clock": lambda dt, seed, device: FokkerPlanckProcess(
        solver="moments", time_varying=True, dt=dt, device=device, random_state=seed
    ),
}
OURS = ("moments", "moments-clock", "adversarial")


def starts_of(method: str, between: bool) -> tuple[str, ...]:
    """The start a method was trained from and, where a snapshot is after, those held to it; trivial rows know none."""
    if method in ("persistence", "midpoint"):
        return ("-",)
    own = "initial" if method == "legend" else "previous"
    return (own, "between", "hedged") if between else (own,)
