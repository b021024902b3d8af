"""Methods to compare with, behind the same face."""

from itofit.baselines.collocation import Collocation as Collocation
from itofit.baselines.continuation import Continuation as Continuation
from itofit.baselines.kalman_forecast import VolumeForecast as VolumeForecast
from itofit.baselines.kalman_forecast import dynamic_forecast as dynamic_forecast
from itofit.baselines.kalman_forecast import matched_forecast as matched_forecast
from itofit.baselines.kalman_forecast import static_forecast as static_forecast
from itofit.baselines.kalman_volume import KalmanVolumeFit as KalmanVolumeFit
from itofit.baselines.kalman_volume import VolumeParameters as VolumeParameters
from itofit.baselines.kalman_volume import filter_volume as filter_volume
from itofit.baselines.kalman_volume import fit_kalman_volume as fit_kalman_volume
from itofit.baselines.kalman_volume import smooth_volume as smooth_volume
from itofit.baselines.legend import Legend as Legend
from itofit.baselines.midpoint import Midpoint as Midpoint
from itofit.baselines.persistence import Persistence as Persistence
from itofit.baselines.potential_rnn import PotentialRNN as PotentialRNN
from itofit.baselines.rolling_mean import rolling_mean as rolling_mean
from itofit.snapshots.panel import log_volume as log_volume
