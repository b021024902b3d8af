"""itofit: fit Itô processes dX = g(X) dt + S(X) dW to clouds of points without identity."""

from itofit import datasets as datasets
from itofit.adversarial.solver import Adversarial as Adversarial
from itofit.baselines import Collocation as Collocation
from itofit.baselines import Continuation as Continuation
from itofit.baselines import Legend as Legend
from itofit.baselines import Midpoint as Midpoint
from itofit.baselines import Persistence as Persistence
from itofit.baselines import PotentialRNN as PotentialRNN
from itofit.bridge.solver import Bridge as Bridge
from itofit.errors import FitWarning as FitWarning
from itofit.errors import InputError as InputError
from itofit.estimator import FokkerPlanckProcess as FokkerPlanckProcess
from itofit.face import fit_together as fit_together
from itofit.judge.solver import Judged as Judged
from itofit.left_out import LeftOut as LeftOut
from itofit.left_out import leave_out as leave_out
from itofit.metrics import Scorecard as Scorecard
from itofit.moments.solver import Moments as Moments
from itofit.problem import Problem as Problem
from itofit.process import ItoProcess as ItoProcess
from itofit.process import ParametricSigma as ParametricSigma
from itofit.run_folder import load as load
from itofit.simulate import KnownSystem as KnownSystem
from itofit.simulate import known_system as known_system
from itofit.snapshots import CellSelection as CellSelection
from itofit.snapshots import PairedSnapshots as PairedSnapshots
from itofit.snapshots import Snapshots as Snapshots
from itofit.snapshots import from_anndata as from_anndata
from itofit.snapshots import read_snapshots as read_snapshots
from itofit.snapshots import split_rows as split_rows
from itofit.snapshots import write_snapshots as write_snapshots
from itofit.solution import Outcome as Outcome
from itofit.trust.compare import compare as compare
from itofit.version import VERSION as __version__  # noqa: F401
