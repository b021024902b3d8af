"""From a process to clouds: meshes, Euler-Maruyama and systems whose truth is known."""

from itofit.simulate.euler import euler_path as euler_path
from itofit.simulate.euler import euler_push as euler_push
from itofit.simulate.mesh import Mesh as Mesh
from itofit.simulate.systems import SYSTEMS as SYSTEMS
from itofit.simulate.systems import KnownSystem as KnownSystem
from itofit.simulate.systems import known_system as known_system
