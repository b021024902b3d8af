"""The options of Algorithm 1, and their checks (docs/decisions/0008-ridges-and-growth.md)."""

from dataclasses import dataclass

from itofit.errors import InputError
from itofit.simulate.legs import ANCHORS
from itofit.solve.options import check_choice, check_count, check_not_negative, check_positive

CHOICES: dict[str, tuple[str, ...]] = {
    "anchor": ANCHORS,
    "gradient": ("pathwise", "detached", "adjoint"),
    "discrepancy": ("weak", "direct"),
    "adversary": ("ridges", "network"),
    "rule": ("chain", "trapezoid"),
    "drift_form": ("staged", "skip", "plain"),
}
_COUNTS = ("n_iter", "critic_steps", "eval_every", "patience", "power_iterations")
_COUNTS_OR_NONE = ("batch_size", "n_nodes", "n_sketch")


@dataclass(frozen=True)
class AdversarialOptions:
    """What Algorithm 1 can be told; `Adversarial` documents each."""

    anchor: str = "previous"
    gradient: str = "pathwise"
    discrepancy: str = "weak"
    adversary: str = "ridges"
    rule: str = "chain"
    drift_form: str = "staged"
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
        self._check_options()

    def _check_options(self) -> None:
        """Refuse a wrong value of any option."""
        # A list, as a file gives it, cannot be hashed.
        object.__setattr__(self, "betas", tuple(self.betas))
        for name, allowed in CHOICES.items():
            check_choice(name, getattr(self, name), allowed)
        if self.discrepancy == "direct" and self.gradient == "detached":
            raise InputError(
                expected="a gradient through the path when discrepancy='direct'",
                found="gradient='detached', under which the direct loss does not depend on the "
                "drift",
                hint="gradient='pathwise'",
            )
        for name in _COUNTS:
            check_count(name, getattr(self, name), 1, "leave it out")
        for name in _COUNTS_OR_NONE:
            if getattr(self, name) is not None:
                check_count(name, getattr(self, name), 1, "leave it out")
        for name in ("weight_decay", "slope_penalty"):
            check_not_negative(name, getattr(self, name), "0.0")
        if self.gain is not None:
            check_not_negative("gain", self.gain, "leave it out, or None")
        for name in ("drift_rate", "probe_rate"):
            check_positive(name, getattr(self, name), "1e-3")
