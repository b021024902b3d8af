"""Distances between clouds, their sampling floors, and the scorecard."""

from itofit.metrics.critic import critic_distance as critic_distance
from itofit.metrics.distances import W1 as W1
from itofit.metrics.distances import W2 as W2
from itofit.metrics.distances import coordinate_W1 as coordinate_W1
from itofit.metrics.distances import sliced_W1 as sliced_W1
from itofit.metrics.floor import Floor as Floor
from itofit.metrics.floor import population_error as population_error
from itofit.metrics.floor import split_half_floor as split_half_floor
from itofit.metrics.floor import system_floor as system_floor
from itofit.metrics.kernels import energy_distance as energy_distance
from itofit.metrics.kernels import mmd as mmd
from itofit.metrics.scorecard import Score as Score
from itofit.metrics.scorecard import Scorecard as Scorecard
from itofit.transport.plans import transport_plan as transport_plan
