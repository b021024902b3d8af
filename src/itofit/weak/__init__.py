"""The mathematics of the paper: for every test function f,

E f(X_t) - E f(X_s) = integral of E[L f(X_u)] du
"""

from itofit.weak.generator import ito_push as ito_push
from itofit.weak.generator import second_order as second_order
from itofit.weak.probes import AbstractProbe as AbstractProbe
from itofit.weak.probes import CosineProbe as CosineProbe
from itofit.weak.probes import FunctionProbe as FunctionProbe
from itofit.weak.probes import NetworkProbe as NetworkProbe
from itofit.weak.probes import SpectralNetwork as SpectralNetwork
from itofit.weak.quadrature import stratified_nodes as stratified_nodes
from itofit.weak.quadrature import trapezoid_weights as trapezoid_weights
from itofit.weak.residual import Cloud as Cloud
from itofit.weak.residual import PathRead as PathRead
from itofit.weak.residual import direct_residual as direct_residual
from itofit.weak.residual import weak_residual as weak_residual
