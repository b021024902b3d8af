"""What is believed: a drift, a diffusion, and the Itô process they make."""

from itofit.process.drift import AbstractDrift as AbstractDrift
from itofit.process.drift import AutonomousDrift as AutonomousDrift
from itofit.process.drift import FeatureDrift as FeatureDrift
from itofit.process.drift import FunctionDrift as FunctionDrift
from itofit.process.drift import GradientDrift as GradientDrift
from itofit.process.drift import NetworkDrift as NetworkDrift
from itofit.process.ito import ItoProcess as ItoProcess
from itofit.process.ito import rescaled as rescaled
from itofit.process.monomials import Monomials as Monomials
from itofit.process.noise import AbstractDiffusion as AbstractDiffusion
from itofit.process.noise import ConstantDiffusion as ConstantDiffusion
from itofit.process.noise import FunctionDiffusion as FunctionDiffusion
from itofit.process.noise import LearnedDiffusion as LearnedDiffusion
from itofit.process.noise import ParametricSigma as ParametricSigma
from itofit.process.noise import diffusion_from_sigma as diffusion_from_sigma
