"""Methods to compare with, each one file, behind the same face."""

from itofit.baselines.collocation import Collocation as Collocation
from itofit.baselines.legend import Legend as Legend
from itofit.baselines.midpoint import Midpoint as Midpoint
from itofit.baselines.persistence import Persistence as Persistence
from itofit.baselines.potential_rnn import PotentialRNN as PotentialRNN
