"""Equations of motion with standard errors, as text, as LaTeX and as a plain Python function."""

import math
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from keyword import iskeyword
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Bool, Float
from scipy.stats import norm

from itofit.errors import InputError
from itofit.process.monomials import Monomials

# Names the Python function uses itself.
_TAKEN = {"np", "x", "drift", "nothing", "float"}
# Numbers from here to there are written without a power of ten.
_PLAIN = (1e-3, 1e5)
_ESCAPED = {
    "\\": r"\textbackslash{}",
    "^": r"\textasciicircum{}",
    "~": r"\textasciitilde{}",
    **{mark: f"\\{mark}" for mark in "{}$&#_%"},
}


@dataclass(frozen=True, eq=False)
class Equations:
    """The sparse polynomial drift dx/dt = sum over terms of coefficient * term, in the user's units.

    - `names`: of the coordinates. `terms`: as tuples of coordinates, `()` for 1 and `(0, 0, 1)` for x0^2 x1.
    - `coefficients`, `standard_errors`: one row a term, one column an equation, 0 where a term is absent.
    - `covariance`: of the coefficients that are present, row by row of `coefficients`.
    - `chi2`, `expected`, `p_value`: squared residuals, their mean for a true equation, and how often a true equation
      would do worse: a small one says that no polynomial of this degree explains the snapshots.
    - `same_particles`: whether the residuals say that all snapshots hold the same particles, for which standard errors
      are smaller. `converged`: whether the last step was small.
    """

    names: tuple[str, ...]
    degree: int
    terms: tuple[tuple[int, ...], ...]
    coefficients: Float[np.ndarray, "n_terms n_dims"]
    standard_errors: Float[np.ndarray, "n_terms n_dims"]
    covariance: Float[np.ndarray, "n_present n_present"]
    chi2: float
    expected: float
    p_value: float
    same_particles: bool
    converged: bool

    @property
    def present(self) -> Bool[np.ndarray, "n_terms n_dims"]:
        """Which term is in which equation."""
        return self.standard_errors > 0.0

    def __call__(self, x: Any) -> np.ndarray:
        """dx/dt at one state `(n_dims,)` or at rows of states `(n, n_dims)`."""
        x, n_dims = np.asarray(x, dtype=np.float64), len(self.names)
        if x.ndim not in (1, 2) or x.shape[-1] != n_dims:
            raise InputError(
                expected=f"states of shape ({n_dims},) or (n, {n_dims})",
                found=f"shape {x.shape}",
                hint="one row a state",
            )
        if not self.terms:
            return np.zeros_like(x)
        found = Monomials(self.terms).rows(np.atleast_2d(x)) @ self.coefficients
        return found[0] if x.ndim == 1 else found

    def interval(self, level: float = 0.95) -> tuple[np.ndarray, np.ndarray]:
        """Lower and upper ends about the coefficients; both 0 where a term is absent."""
        if not 0.0 < level < 1.0:
            raise InputError(expected="level between 0 and 1", found=f"{level}", hint="0.95")
        half = float(norm.ppf(0.5 + 0.5 * level)) * self.standard_errors
        return self.coefficients - half, self.coefficients + half

    def rejected(self, level: float = 0.05) -> bool:
        """Whether the snapshots contradict the equations at this level."""
        return self.p_value < level

    def to_records(self) -> list[dict[str, Any]]:
        """One plain dictionary a coefficient, for JSON."""
        return [
            {
                "coordinate": self.names[output],
                "term": _text(self.terms[row], self.names) or "1",
                "powers": [self.terms[row].count(k) for k in range(len(self.names))],
                "coefficient": float(self.coefficients[row, output]),
                "standard_error": float(self.standard_errors[row, output]),
                "p": self.p_value,
            }
            for output in range(len(self.names))
            for row in self._rows(output)
        ]

    def __str__(self) -> str:
        heads = [f"d{_plain(name)}/dt" for name in self.names]
        numbers = {at: _columns(_rounded(*pair)) for at, pair in self._pairs()}
        whole, fraction, error = (max((len(n[k]) for n in numbers.values()), default=0) for k in range(3))
        lines, width = [], max(map(len, heads))
        for output, head in enumerate(heads):
            rows = self._rows(output)
            lines += [] if rows else [f"{head:<{width}} =   0"]
            for place, row in enumerate(rows):
                left, right, spread = numbers[row, output]
                shown = f"{left:>{whole}}{right:<{fraction}} +- {spread:<{error}}"
                sign = "-" if self.coefficients[row, output] < 0.0 else "+" if place else " "
                begin = f"{'' if place else head:<{width}} {' ' if place else '='} {sign} "
                lines.append(f"{begin}{shown}  {_text(self.terms[row], self.names)}".rstrip())
        return "\n".join([*lines, *self._remarks()])

    def latex(self) -> str:
        """An `aligned` block for use in mathematics (amsmath)."""
        lines = []
        for output, name in enumerate(self.names):
            parts = []
            for place, row in enumerate(self._rows(output)):
                number = _rounded(self.coefficients[row, output], self.standard_errors[row, output])
                power = rf" \cdot 10^{{{number.exponent}}}" if number.exponent else ""
                sign = "- " if self.coefficients[row, output] < 0.0 else "+ " if place else ""
                term = _latex(self.terms[row], self.names)
                shown = rf"({number.value} \pm {number.error}){power}"
                parts.append(f"{sign}{shown}" + (rf"\, {term}" if term else ""))
            left = rf"\frac{{\mathrm{{d}} {_symbol(name)}}}{{\mathrm{{d}} t}}"
            lines.append(f"{left} &= {' '.join(parts) or '0'}")
        return "\n".join([r"\begin{aligned}", " \\\\\n".join(lines), r"\end{aligned}"])

    def python(self) -> str:
        """Source code of a function `drift(x)` of one state or of rows, which needs nothing but numpy."""
        symbols = _identifiers(self.names)
        lines = ["import numpy as np", "", "", "def drift(x):"]
        lines += ['    """dx/dt at one state or at rows of states."""', "    x = np.asarray(x, dtype=float)"]
        lines += [
            f"    {s} = x[..., {k}]  # {ascii(n)}" for k, (s, n) in enumerate(zip(symbols, self.names, strict=True))
        ]
        lines += ["    nothing = np.zeros(x.shape[:-1])", "    return np.stack(", "        ["]
        for output in range(len(self.names)):
            products = [
                " * ".join([repr(float(self.coefficients[row, output])), *_factors(self.terms[row], symbols)])
                for row in self._rows(output)
            ]
            lines.append(f"            {' + '.join(['nothing', *products])},")
        return "\n".join([*lines, "        ],", "        axis=-1,", "    )", ""])

    def _rows(self, output: int) -> list[int]:
        """The terms of one equation."""
        return np.flatnonzero(self.present[:, output]).tolist()

    def _pairs(self) -> Iterator[tuple[tuple[int, int], tuple[float, float]]]:
        for row, output in np.argwhere(self.present).tolist():
            yield (row, output), (float(self.coefficients[row, output]), float(self.standard_errors[row, output]))

    def _remarks(self) -> list[str]:
        verdict = "contradict" if self.rejected() else "do not contradict"
        found = [
            f"chi-squared {self.chi2:.1f}, {self.expected:.1f} expected, p = {self.p_value:.3f}: "
            f"the snapshots {verdict} a polynomial of degree {self.degree}"
        ]
        if self.same_particles:
            found.append("residuals are as small as for particles seen again and again; standard errors count on it")
        if not self.converged:
            found.append("the last step was not small: take these numbers for a first guess")
        return found


class Number(NamedTuple):
    """(value +- error) 10^exponent, the value without its sign, rounded to two digits of the error."""

    value: str
    error: str
    exponent: int


def _rounded(value: float, error: float) -> Number:
    size = max(abs(value), error)
    exponent = 0 if _PLAIN[0] <= size < _PLAIN[1] else math.floor(math.log10(size))
    value, error = abs(value) / 10.0**exponent, error / 10.0**exponent
    digits = 1 - math.floor(math.log10(float(f"{error:.1e}")))
    places = max(0, digits)
    return Number(f"{round(value, digits):.{places}f}", f"{round(error, digits):.{places}f}", exponent)


def _columns(number: Number) -> tuple[str, str, str]:
    """What stands before the point, from the point on, and in the error."""
    power = f"e{number.exponent}" if number.exponent else ""
    whole, point, fraction = number.value.partition(".")
    return whole, point + fraction + power, number.error + power


def _powers(term: tuple[int, ...]) -> list[tuple[int, int]]:
    return sorted(Counter(term).items())


def _text(term: tuple[int, ...], names: tuple[str, ...]) -> str:
    return " ".join(_plain(names[k]) + (f"^{power}" if power > 1 else "") for k, power in _powers(term))


def _latex(term: tuple[int, ...], names: tuple[str, ...]) -> str:
    return " ".join(_symbol(names[k]) + (f"^{{{power}}}" if power > 1 else "") for k, power in _powers(term))


def _factors(term: tuple[int, ...], symbols: list[str]) -> list[str]:
    return [symbols[k] if power == 1 else f"{symbols[k]}**{power}" for k, power in _powers(term)]


def _identifiers(names: tuple[str, ...]) -> list[str]:
    """The names where all of them can be names in Python, else x0, x1, ..."""
    usable = all(n.isascii() and n.isidentifier() and not iskeyword(n) and n not in _TAKEN for n in names)
    return list(names) if usable and len(set(names)) == len(names) else [f"x{k}" for k in range(len(names))]


def _plain(name: str) -> str:
    """The name as it is where it is one word, in brackets where it is not."""
    return name if re.fullmatch(r"\w+", name) else f"[{' '.join(name.split())}]"


def _symbol(name: str) -> str:
    """A letter with an index as such, any other name as escaped text."""
    if found := re.fullmatch(r"([A-Za-z])([0-9]*)", name):
        letter, index = found.groups()
        return f"{letter}_{{{index}}}" if index else letter
    return rf"\text{{{''.join(_ESCAPED.get(c, c) for c in ' '.join(name.split()))}}}"
