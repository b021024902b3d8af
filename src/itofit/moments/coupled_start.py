"""Where a fit begins that comes from coupling: terms, their coefficients and a noise, nearly right.

a process in these terms  ->  unknowns v and their prior, for Gauss-Newton
"""

from dataclasses import replace

import numpy as np

from itofit.bridge.solution import PassLog
from itofit.bridge.solver import Bridge
from itofit.bridge.structures import sparse_for
from itofit.moments.gauss_newton import Fitted, Run, State
from itofit.moments.phases import polish
from itofit.moments.probing import Probing
from itofit.moments.relevance import EXCLUDED, Prior
from itofit.process.drift import AbstractLinearDrift
from itofit.process.features import Dictionary
from itofit.process.ito import ItoProcess

# The precision that terms of the start begin with.
_FIRST = 0.1


def state_at(
    process: ItoProcess, dictionary: Dictionary, speed: float, *, noise_is_held: bool = False
) -> State:
    """The unknowns of a process; groups whose coefficients are zero are not in the model.

    Nor is a noise that is held.
    """
    drift = process.drift
    assert isinstance(drift, AbstractLinearDrift)
    coefficients = np.asarray(drift.coefficients, dtype=np.float64) / speed
    first = np.cumsum([0, *(group.size for group in dictionary.groups)])[:-1]
    free = [group.kind != "constant" for group in dictionary.groups]
    inside = np.logical_or.reduceat(coefficients != 0.0, first)[free]
    prior = Prior.over(dictionary.groups, coefficients.shape[1])
    prior = replace(prior, precision=np.where(inside.ravel(), _FIRST, EXCLUDED))
    n_noise = process.diffusion.n_parameters
    v = np.concatenate([coefficients.ravel(), np.zeros(n_noise)])
    of_noise = Prior.absent(n_noise) if noise_is_held else Prior.fixed_at(n_noise)
    return State(v, prior.joined(of_noise))


def coupled_and_polished(probing: Probing, run: Run) -> Fitted:
    """The sparse structure of the bridge solver, and the phase `polish` from there."""
    problem = probing.problem
    bridge = Bridge()
    log = PassLog(bridge.n_passes, run.listeners)
    start = bridge.sparse(problem, bridge.smooth(problem, log), log).process
    dictionary = sparse_for(problem).dictionary
    state = state_at(start, dictionary, probing.speed)
    return polish(probing.with_noise(start.diffusion), dictionary, state, run, ridges_adapt=False)
