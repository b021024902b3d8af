"""From words of the command line to an estimator: the method, its preset and its options."""

import json
from dataclasses import dataclass, fields
from typing import Any

from itofit.errors import InputError
from itofit.estimator import FokkerPlanckProcess
from itofit.face import Face
from itofit.problem import FREE
from itofit.process.noise import LEARN, is_learned
from itofit.run_folder import METHODS
from itofit.solvers import DEFAULT, SOLVERS

# Parameters of methods that have a word of their own on the command line, or none.
_OWN_WORDS = ("sigma", "dt", "device", "random_state", "verbose")


@dataclass(frozen=True)
class Choices:
    """What a command line may choose of a fit; every method knows a part of it.

    - `settings`: options of the method as NAME=VALUE, the solver's where the method is a solver.
    """

    method: str
    sigma: str = LEARN
    dt: str = "auto"
    preset: str = "default"
    time_varying: bool = False
    drift: str = FREE
    device: str = "auto"
    seed: int = 0
    settings: tuple[str, ...] = ()

    def estimator(self) -> Face:
        """The estimator that was asked for; a choice it does not know is refused."""
        check_method(self.method)
        if self.method in SOLVERS:
            return self._process()
        return self._other(METHODS[self.method])

    def _process(self) -> FokkerPlanckProcess:
        kind = SOLVERS[self.method]
        if self.preset not in kind.presets:
            raise InputError(
                expected=f"--preset of {self.method} to be one of {', '.join(kind.presets)}",
                found=self.preset,
                hint="default",
            )
        options = fields(kind)  # pyright: ignore[reportArgumentType]
        defaults = {option.name: option.default for option in options}
        settings = _settings(self.settings, self.method, defaults)
        return FokkerPlanckProcess(
            _noise(self.sigma),
            dt=_step(self.dt),
            solver=kind(**(kind.presets[self.preset] | settings)),
            time_varying=self.time_varying,
            drift=self.drift,
            device=self.device,
            random_state=self.seed,
            verbose=True,
        )

    def _other(self, kind: type[Face]) -> Face:
        known = kind().get_params()
        defaults = {name: value for name, value in known.items() if name not in _OWN_WORDS}
        chosen = _settings(self.settings, self.method, defaults)
        if self.sigma != LEARN:
            chosen["sigma"] = _noise(self.sigma)
        if self.dt != "auto":
            chosen["dt"] = _step(self.dt)
        if self.preset != "default":
            chosen["preset"] = self.preset
        if self.time_varying:
            chosen["time_varying"] = True
        if self.drift != FREE:
            chosen["drift"] = self.drift
        if self.device != "auto":
            chosen["device"] = self.device
        unknown = ["--" + name.replace("_", "-") for name in chosen if name not in known]
        if unknown:
            raise InputError(
                expected=f"options that {self.method} knows",
                found=", ".join(unknown),
                hint="leave them out for this method",
            )
        always = {"random_state": self.seed, "verbose": True}
        chosen |= {name: value for name, value in always.items() if name in known}
        return kind().set_params(**chosen)


def check_method(method: str) -> None:
    """Refuse a method that nobody knows."""
    if method not in METHODS:
        raise InputError(
            expected=f"--method to be one of {', '.join(METHODS)}", found=method, hint=DEFAULT
        )


def _settings(texts: tuple[str, ...], method: str, defaults: dict[str, Any]) -> dict[str, Any]:
    """NAME=VALUE by name; names and kinds of values are those of the defaults."""
    settings: dict[str, Any] = {}
    for text in texts:
        name, equals, written = text.partition("=")
        if not equals:
            raise InputError(
                expected="--set as NAME=VALUE", found=f"{text!r}", hint="--set n_iter=200"
            )
        if name not in defaults:
            raise InputError(
                expected=f"--set of {method} to name one of {', '.join(defaults) or 'no options'}",
                found=name,
                hint="check the spelling and --method",
            )
        value = _value(written)
        if not _is_like(value, defaults[name]):
            raise InputError(
                expected=f"--set {name} to be like its default",
                found=written,
                hint=f"--set {name}={json.dumps(defaults[name])}",
            )
        settings[name] = value
    return settings


def _value(text: str) -> Any:
    """A value as JSON has it, else the text itself."""
    try:
        value = json.loads(text)
    except json.JSONDecodeError:
        return None if text == "None" else text
    return tuple(value) if isinstance(value, list) else value


def _is_like(value: Any, default: Any) -> bool:
    """Whether a value may stand where this default does; None is left to the method."""
    if value is None:
        return True
    if isinstance(default, bool):
        return isinstance(value, bool)
    if isinstance(default, int | float):
        return isinstance(value, int | float) and not isinstance(value, bool)
    return isinstance(value, tuple) or not isinstance(default, tuple)


def _noise(text: str) -> Any:
    """The word for a noise to be learned, or the numbers of a known one."""
    if text[:1].isalpha() and is_learned(text):
        return text
    return _numbers(text, "--sigma")


def _step(text: str) -> Any:
    return text if text == "auto" else _numbers(text, "--dt")


def _numbers(text: str, option: str) -> Any:
    try:
        values = [float(part) for part in text.split(",")]
    except ValueError:
        raise InputError(
            expected=f"{option} as a number, or numbers with commas between",
            found=f"{text!r}",
            hint="1",
        ) from None
    return values[0] if len(values) == 1 else values
