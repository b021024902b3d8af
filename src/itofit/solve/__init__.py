"""Solvers: choose the drift for which the weak form holds between the observed snapshots."""

from itofit.solve.adversarial import fit_adversarial as fit_adversarial
from itofit.solve.checkpoint import Checkpoint as Checkpoint
from itofit.solve.listeners import MetricLog as MetricLog
from itofit.solve.listeners import ProgressBar as ProgressBar
from itofit.solve.options import PRESETS as PRESETS
from itofit.solve.options import AdversarialOptions as AdversarialOptions
from itofit.solve.outcome import Fit as Fit
from itofit.solve.outcome import History as History
from itofit.solve.outcome import Outcome as Outcome
