"""The choices of the two solvers, and the presets of the adversarial one."""

import math
from dataclasses import dataclass, fields, replace
from typing import Any

from itofit.errors import InputError
from itofit.process.features import MANY_DIMS

CHOICES: dict[str, tuple[str, ...]] = {
    "anchor": ("initial", "previous"),
    "gradient": ("pathwise", "detached", "adjoint"),
    "discrepancy": ("weak", "direct"),
    "adversary": ("ridges", "network"),
    "rule": ("chain", "trapezoid"),
    "drift_form": ("growing", "skip", "plain"),
}


@dataclass(frozen=True)
class AdversarialOptions:
    """Options of Algorithm 1; the defaults are the preset `default` (docs/decisions/0008-ridges-and-growth.md).

    - `anchor`: simulate every interval from the snapshot before it (`previous`, Prop. 1) or all from the
      first (`initial`, Prop. 2).
    - `gradient`: of the drift: through the simulated path (`pathwise`, or `adjoint`, the same by a backward
      recursion), or at frozen sample positions (`detached`).
    - `discrepancy`: the weak form, or the difference of expectations at the end points (`direct`).
    - `adversary`: where a probe comes from. `ridges`: the best weighted sum of lines, bowls and random cosines, found
      exactly and drawn anew every iteration; `network`: a spectral-norm network trained by ascent, as in the paper.
    - `rule`: of the quadrature in time: `trapezoid` as printed, or `chain`: the same nodes and weights with the drift
      that carried the chain, which is exact to second order for the chain itself.
    - `drift_form`: `growing` begins with each coordinate by itself and takes in all affine terms, then polynomials or a
      network in their place, for as long as that pays; `skip` is a network with an affine skip, `plain` the paper's.
    - `gain`: what a growing drift took in stays if chi-squared fell by this much for each coordinate; None keeps all.
    - `n_nodes`: random quadrature nodes for each probe, or None for every step of the mesh.
    - `n_sketch`: random directions for the trace in the generator, or None for all of them.
    - `batch_size`: points drawn from each snapshot for one iteration, or None for all.
    - `critic_steps`, `fresh_paths`, `probe_rate`, `probe_width`, `probe_depth`, `power_iterations`: of the adversary
      `network`; with `fresh_paths` it simulates anew for every ascent step, as the paper prints it.
    - `power_iterations`: for the spectral norms after every ascent step; too few let the slope of a probe pass 1
      (`history_.slope` shows it).
    - `weight_decay`: shrinks the drift's weights by this share of the learning rate in every iteration.
    - `slope_penalty`: times the mean of |dg/dx|^2 over the snapshots, added to the loss: a smaller Lipschitz constant.
    - `averaging`: the drift that is kept is an exponential average of the iterates with this factor.
    - `n_iter`: budget of iterations, in equal parts for the levels of a growing drift.
    - `hold_out`: share of every snapshot kept back for the criterion; with 0 it is read on all rows.
    - `patience`: iterations without improvement of that criterion by 1 % before the run stops.
    """

    anchor: str = "previous"
    gradient: str = "pathwise"
    discrepancy: str = "weak"
    adversary: str = "ridges"
    rule: str = "chain"
    drift_form: str = "growing"
    gain: float | None = 10.0
    n_iter: int = 2400
    critic_steps: int = 3
    batch_size: int | None = 2048
    n_nodes: int | None = 64
    n_sketch: int | None = None
    fresh_paths: bool = False
    drift_rate: float = 1e-3
    probe_rate: float = 1e-3
    betas: tuple[float, float] = (0.9, 0.99)
    cosine_decay: bool = True
    averaging: float = 0.99
    weight_decay: float = 0.0
    slope_penalty: float = 0.0
    standardise: bool = True
    drift_width: int = 64
    drift_depth: int = 2
    probe_width: int = 32
    probe_depth: int = 3
    power_iterations: int = 5
    hold_out: float = 0.0
    patience: int = 1000
    eval_every: int = 50

    def __post_init__(self):
        object.__setattr__(self, "betas", tuple(self.betas))  # a list, as a file gives it, cannot be hashed
        for name, allowed in CHOICES.items():
            if getattr(self, name) not in allowed:
                raise InputError(
                    expected=f"{name} to be one of {', '.join(allowed)}",
                    found=f"{getattr(self, name)!r}",
                    hint=allowed[0],
                )
        if self.discrepancy == "direct" and self.gradient == "detached":
            raise InputError(
                expected="a gradient through the path when discrepancy='direct'",
                found="gradient='detached', under which the direct loss does not depend on the drift",
                hint="gradient='pathwise'",
            )
        for name in (
            "n_iter",
            "critic_steps",
            "batch_size",
            "n_nodes",
            "n_sketch",
            "eval_every",
            "patience",
            "power_iterations",
        ):
            value = getattr(self, name)
            if value is not None and (not isinstance(value, int) or isinstance(value, bool) or value < 1):
                raise InputError(
                    expected=f"{name} to be a whole number from 1 on", found=f"{value!r}", hint="leave it out"
                )
        for name in ("weight_decay", "slope_penalty"):
            if not getattr(self, name) >= 0.0:
                raise InputError(expected=f"{name} from 0 on", found=f"{getattr(self, name)!r}", hint="0.0")
        if self.gain is not None and not self.gain >= 0.0:
            raise InputError(expected="gain from 0 on, or None", found=f"{self.gain!r}", hint="leave it out")
        for name in ("drift_rate", "probe_rate"):
            if not getattr(self, name) > 0.0:
                raise InputError(expected=f"{name} above 0", found=f"{getattr(self, name)!r}", hint="1e-3")

    def override(self, **changes: Any) -> "AdversarialOptions":
        """The same options with some replaced; unknown names are refused."""
        return _replaced(self, changes)


PRESETS: dict[str, AdversarialOptions] = {
    "default": AdversarialOptions(),
    # The printed recipe: raw units, one network a side without a skip, Adam at 1e-4 with PyTorch's betas, full
    # batch, every step. It prints no number of ascent steps (the public code uses 5) and no number of iterations.
    "paper": AdversarialOptions(
        anchor="initial",
        adversary="network",
        rule="trapezoid",
        drift_form="plain",
        n_iter=10_000,
        critic_steps=5,
        batch_size=None,
        n_nodes=None,
        fresh_paths=True,
        drift_rate=1e-4,
        probe_rate=1e-4,
        betas=(0.9, 0.999),
        cosine_decay=False,
        averaging=0.0,
        standardise=False,
        drift_width=32,
        drift_depth=1,
        power_iterations=1,
        hold_out=0.1,
        patience=2000,
        eval_every=50,
    ),
}


PATHS = ("auto", "simulated", "seen")


@dataclass(frozen=True)
class MomentsOptions:
    """Options of the moments solver (docs/decisions/0005-moments-solver.md).

    - `anchor`: simulate every interval from the snapshot before it (`previous`) or all from the first (`initial`).
    - `path`: between snapshots, `"simulated"` chains, the `"seen"` clouds themselves (one linear problem, for snapshots
      dense in time), or `"auto"`: seen where that is accurate enough. Seen needs `anchor="previous"`.
    - `n_single`, `n_pair`, `n_all`: tanh features drawn of each coordinate, of each pair and of all, from which ridges
      of the drift begin; None: by dimension.
    - `polynomials`: whether products of two coordinates and cubes are features.
    - `n_draws`: how often each start point is simulated with fresh noise in the last phase.
    - `share`: of the points of a snapshot, as the largest number of residual directions.
    - `threshold`: log Bayes factor below which a group of features leaves; None takes the log of the number of
      groups times outputs: the odds of one in so many.
    - `n_iter`: budget of Gauss-Newton steps over all phases.
    - `dictionary`: a function of one state in the user's units that returns features, instead of all of the above.
    - `clock`: whether the features are functions of the time as well: a drift that changes with it.
    """

    anchor: str = "previous"
    path: str = "auto"
    n_single: int | None = None
    n_pair: int | None = None
    n_all: int | None = None
    polynomials: bool = True
    n_draws: int = 6
    share: float = 0.2
    threshold: float | None = None
    n_iter: int = 300
    dictionary: Any = None
    clock: bool = False

    def __post_init__(self):
        if self.anchor not in CHOICES["anchor"]:
            raise InputError(
                expected=f"anchor to be one of {', '.join(CHOICES['anchor'])}",
                found=f"{self.anchor!r}",
                hint="previous",
            )
        if self.path not in PATHS or (self.path == "seen" and self.anchor == "initial"):
            raise InputError(
                expected=f"path to be one of {', '.join(PATHS)}, and not seen with anchor='initial'",
                found=f"path={self.path!r}, anchor={self.anchor!r}",
                hint="path='auto'",
            )
        for name in ("n_draws", "n_iter"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise InputError(expected=f"{name} to be a whole number from 1 on", found=f"{value!r}", hint="6")
        for name in ("n_single", "n_pair", "n_all"):
            value = getattr(self, name)
            if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < 0):
                raise InputError(expected=f"{name} to be a whole number from 0 on", found=f"{value!r}", hint="16")
        if not isinstance(self.share, float) or not 0.0 < self.share <= 1.0:
            raise InputError(expected="share above 0 and at most 1", found=f"{self.share!r}", hint="0.2")
        if self.clock and (self.dictionary is not None or self.path == "seen"):
            raise InputError(
                expected="a drift that changes with time to have the solver's own features and a simulated path",
                found="a dictionary" if self.dictionary is not None else "path='seen'",
                hint="time_varying=False, or leave that out",
            )
        if self.threshold is not None and not isinstance(self.threshold, int | float):
            raise InputError(expected="threshold to be a number", found=f"{self.threshold!r}", hint="leave it out")

    def override(self, **changes: Any) -> "MomentsOptions":
        """The same options with some replaced; unknown names are refused."""
        return _replaced(self, changes)

    def features_for(self, n_dims: int) -> tuple[int, int, int]:
        """Tanh features of each coordinate, of each pair and of all coordinates."""
        pairs = max(1, n_dims * (n_dims - 1) // 2)
        chosen = (_within(96 // n_dims, 8, 32), _within(192 // pairs, 3, 64), 16 if n_dims > 2 else 0)
        if n_dims > MANY_DIMS:
            chosen = (0, 0, 0)
        given = (self.n_single, self.n_pair, self.n_all)
        return tuple(c if g is None else g for c, g in zip(chosen, given, strict=True))  # pyright: ignore

    def probes_for(self, n_dims: int) -> tuple[int, int, int]:
        """Cosines of each coordinate, of each pair and of all coordinates."""
        if n_dims > MANY_DIMS:
            return (6, 0, 0)
        pairs = max(1, n_dims * (n_dims - 1) // 2)
        return (24 if n_dims <= 2 else 16, _within(400 // pairs, 8, 48), 200 if n_dims > 2 else 0)

    def dense_probes_for(self, n_dims: int, n_gaps: int) -> tuple[int, int, int]:
        """The same for dense snapshots, of which there are many: fewer probes each."""
        single, pair, dense = self.probes_for(n_dims)
        few = max(0.25, min(1.0, 10.0 / n_gaps))
        return (max(6, int(few * single)), int(few * min(pair, 8 if n_dims > 2 else pair)), int(few * min(dense, 60)))

    def threshold_for(self, n_choices: int) -> float:
        """The log Bayes factor a group must have to stay, among so many groups and outputs."""
        return math.log(max(2, n_choices)) if self.threshold is None else self.threshold


def _replaced(options, changes: dict[str, Any]):
    known = {field.name for field in fields(options)}
    unknown = sorted(set(changes) - known)
    if unknown:
        raise InputError(
            expected=f"options among {', '.join(sorted(known))}",
            found=", ".join(unknown),
            hint="check the spelling",
        )
    return replace(options, **changes)


def _within(value: int, smallest: int, largest: int) -> int:
    return min(max(value, smallest), largest)
