"""The phases of a moments fit by simulation, each from the result of the one before.

aim      own slopes alone; means and covariances only, residuals divided by a temperature that
         falls to 1
select   cosines as well; terms come in and leave as the evidence asks
         (`moments.forward_selection`, `moments.many_dimensions`)
polish   those terms alone; more noise draws; the full covariance; the bias of a step that is ours
         is taken off; until nothing moves
"""

from dataclasses import dataclass, replace

import numpy as np

from itofit.moments.adaptive_ridges import adapted, adaptive_ridges, frozen
from itofit.moments.forward_selection import own_slopes, select_forward
from itofit.moments.gauss_newton import (
    FIRST_DAMPING,
    SMALL_DECREASE,
    Fitted,
    Run,
    State,
    Update,
    step,
    stepped_back,
    without_excluded,
)
from itofit.moments.library import Library
from itofit.moments.many_dimensions import select_forward_many
from itofit.moments.probing import Probing
from itofit.moments.relevance import Prior
from itofit.moments.residuals import Residual
from itofit.process.features import MANY_DIMS, Dictionary
from itofit.solution import Outcome, Phase

_MOST_AIMS = 8
_MOST_POLISHES = 20
# After which steps of the polish the bias of the time step is measured again; how many steps are
# taken at the least.
_MEASURING = (1, 4)
_LEAST_STEPS = 7


@dataclass(frozen=True)
class Schedule:
    """What the steps of a polish do besides.

    - `n_updating`: how many of them update the precisions.
    - `pruning`: those that prune. `renewing`: those after which the covariance is renewed.
    """

    n_updating: int
    pruning: tuple[int, ...]
    renewing: tuple[int, ...]


# Terms, of which those of little evidence leave; features that all stay, under a prior that is
# known well enough: updated for long it gives way to whatever the snapshots ask for.
CHOOSING = Schedule(n_updating=8, pruning=(2, 5), renewing=(0, 1, 2, 3, 4, 5))
STAYING = Schedule(n_updating=2, pruning=(), renewing=(0, 1, 3, 5))


def simulate_and_fit(
    probing: Probing,
    library: Library,
    run: Run,
) -> Fitted:
    """The three phases; with the user's own dictionary nothing is selected."""
    n_dims = probing.snapshots.n_dims
    own_dictionary = probing.options.dictionary is not None
    few = n_dims <= MANY_DIMS
    if own_dictionary:
        prior = Prior.over(library.aim.groups, n_dims)
    else:
        prior = own_slopes(library.aim, n_dims)
    prior = prior.joined(Prior.fixed_at(probing.diffusion.n_parameters))
    residual, state = _aim(probing, library.aim, prior, run)
    if not own_dictionary:
        run.phase = Phase.select
        select = select_forward if few else select_forward_many
        residual, state = select(
            probing,
            library.aim,
            library.more,
            state,
            run,
        )
    ridges_adapt = few and not own_dictionary
    return polish(probing, residual.dictionary, state, run, ridges_adapt)


def _aim(
    probing: Probing,
    dictionary: Dictionary,
    prior: Prior,
    run: Run,
) -> tuple[Residual, State]:
    """Means and covariances under a falling temperature; the prior is weak and stays as it is."""
    run.phase = Phase.aim
    residual = probing.simulated(dictionary, 1, cosines=False)
    state = State(np.zeros(len(prior.group)), prior)
    run.keep(residual, state)
    whitening = probing.whitening(residual, None)
    for temperature in _ladder(whitening(residual(state.v))):
        state = replace(state, damping=FIRST_DAMPING)
        for _ in range(_MOST_AIMS):
            after, decrease = step(residual, whitening, state, run, temperature=temperature)
            state = after or state
            if run.spent or (run.rows and run.rows[-1].chi2 < 1.0):
                return residual, state  # fitted within the noise: going on would follow it
            if after is None or decrease < (SMALL_DECREASE if temperature == 1.0 else 0.1):
                break
    return residual, state


def polish(
    probing: Probing,
    dictionary: Dictionary,
    state: State,
    run: Run,
    ridges_adapt: bool,
    schedule: Schedule = CHOOSING,
) -> Fitted:
    """The selected groups with all noise draws and the full covariance, until no step gains."""
    run.phase = Phase.polish
    residual: Residual = probing.simulated(dictionary, probing.options.n_draws, cosines=True)
    state = stepped_back(residual, state)
    residual = probing.without_step_bias(residual, residual.process(state.v))
    state = replace(state, residuals=None)
    whitening = probing.whitening(residual, state.v)
    adaptive = adaptive_ridges(residual, state) if ridges_adapt else None
    if adaptive is not None and not run.spent:
        ridges, start = adaptive
        residual, state = frozen(
            ridges,
            adapted(
                ridges,
                whitening,
                start,
                run,
            ),
        )
    threshold = probing.threshold(residual.dictionary)
    outcome = Outcome.budget
    quiet = 0
    failed = 0
    for i in range(_MOST_POLISHES):
        if run.spent:
            break
        n_rounds = 3 if i < schedule.n_updating else 0
        update = Update(n_rounds, threshold if i in schedule.pruning else None)
        after, decrease = step(residual, whitening, state, run, update)
        state = after or replace(state, damping=FIRST_DAMPING)
        failed = failed + 1 if after is None else 0
        if failed > 1:
            outcome = Outcome.non_finite
            break
        quiet = quiet + 1 if decrease < SMALL_DECREASE else 0
        if i + 1 >= _LEAST_STEPS and quiet >= 2:
            outcome = Outcome.converged
            break
        if i in _MEASURING:
            residual = probing.without_step_bias(residual, residual.process(state.v))
            state = replace(state, residuals=None)
        if i in schedule.renewing:
            whitening = probing.whitening(residual, state.v)
    residual, state = without_excluded(residual, state)
    return Fitted(residual, state, outcome, whitening)


def _ladder(y: np.ndarray) -> list[float]:
    """Temperatures from the size of the residuals down to 1, by factors of 3."""
    size = float(np.sqrt(np.mean(y**2)))
    count = int(np.clip(np.ceil(np.log(max(size, 1.0)) / np.log(3.0)), 0, 12))
    return [size / 3.0**k for k in range(count)] + [1.0]
