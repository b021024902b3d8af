"""Every kind of sigma: the noise S(x) of dX = g(X) dt + S(X) dW, known or to be learned.

- `diffusion`: S as a function of the state. `forms`: how a learned S depends on its parameters.
- `sigma`: what a user may say, and the diffusion it stands for.
"""

from itofit.process.noise.diffusion import AbstractDiffusion as AbstractDiffusion
from itofit.process.noise.diffusion import ConstantDiffusion as ConstantDiffusion
from itofit.process.noise.diffusion import FunctionDiffusion as FunctionDiffusion
from itofit.process.noise.diffusion import KnownDiffusion as KnownDiffusion
from itofit.process.noise.diffusion import LearnedDiffusion as LearnedDiffusion
from itofit.process.noise.diffusion import RescaledDiffusion as RescaledDiffusion
from itofit.process.noise.diffusion import ScaledDiffusion as ScaledDiffusion
from itofit.process.noise.diffusion import rescaled_diffusion as rescaled_diffusion
from itofit.process.noise.forms import LOG_UNIT as LOG_UNIT
from itofit.process.noise.forms import AbstractForm as AbstractForm
from itofit.process.noise.forms import DiagonalForm as DiagonalForm
from itofit.process.noise.forms import FullForm as FullForm
from itofit.process.noise.forms import FunctionForm as FunctionForm
from itofit.process.noise.forms import MultiplicativeForm as MultiplicativeForm
from itofit.process.noise.forms import NetworkForm as NetworkForm
from itofit.process.noise.forms import ScalarForm as ScalarForm
from itofit.process.noise.sigma import KINDS as KINDS
from itofit.process.noise.sigma import LEARN as LEARN
from itofit.process.noise.sigma import ParametricSigma as ParametricSigma
from itofit.process.noise.sigma import diffusion_from_sigma as diffusion_from_sigma
from itofit.process.noise.sigma import first_noise as first_noise
from itofit.process.noise.sigma import is_learned as is_learned
from itofit.process.noise.sigma import mean_noise as mean_noise
from itofit.process.noise.sigma import noise_of as noise_of
from itofit.process.noise.sigma import proportional_noise as proportional_noise
from itofit.process.noise.sigma import standard_diffusion as standard_diffusion
