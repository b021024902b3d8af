"""Equations of motion with standard errors, as text, as LaTeX and as a plain Python function."""

import math
import re
from collections import Counter
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
    """The sparse polynomial drift dx/dt = sum of coefficient * term; prints as equations.

    All is in the user's units.

    Parameters
    ----------
    names : tuple of str
        Of the coordinates.
    degree : int
        Highest degree that a term could have.
    terms : tuple of tuples of int
        As coordinates: `()` for 1 and `(0, 0, 1)` for x0^2 x1.
    coefficients : array of shape (n_terms, n_dims)
        One row a term, one column an equation, 0 where a term is absent.
    standard_errors : array of shape (n_terms, n_dims)
        Of the coefficients, 0 where a term is absent.
    covariance : array of shape (n_present, n_present)
        Of the coefficients that are present, row by row of `coefficients`.
    chi2 : float
        Squared residuals.
    expected : float
        Their mean for a true equation.
    p_value : float
        How often a true equation would do worse: a small one says that no polynomial of this degree
        explains the snapshots.
    same_particles : bool
        Whether the residuals say that all snapshots hold the same particles, for which standard
        errors are smaller.
    converged : bool
        Whether the last step was small.

    Examples
    --------
    >>> import numpy as np
    >>> from itofit.trust.printed import Equations
    >>> decay = Equations(
    ...     names=("x",), degree=2, terms=((0,),), coefficients=np.array([[-1.5]]),
    ...     standard_errors=np.array([[0.12]]), covariance=np.array([[0.0144]]), chi2=20.0,
    ...     expected=21.0, p_value=0.5, same_particles=False, converged=True,
    ... )
    >>> print(str(decay).splitlines()[0])
    dx/dt = - 1.50 +- 0.12  x
    >>> decay([2.0])
    array([-3.])
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
        """dx/dt at states.

        Parameters
        ----------
        x : array of shape (n_dims,) or (n, n_dims)
            One state, or rows of states.

        Returns
        -------
        array of the shape of x
            In units of state per unit of time.
        """
        x = np.asarray(x, dtype=np.float64)
        n_dims = len(self.names)
        if x.ndim not in (1, 2) or x.shape[-1] != n_dims:
            raise InputError(
                expected=f"states of shape ({n_dims},) or (n, {n_dims})",
                found=f"shape {x.shape}",
                hint="one row a state",
            )
        if not self.terms:
            return np.zeros_like(x)
        rates = Monomials(self.terms).rows(np.atleast_2d(x)) @ self.coefficients
        return rates[0] if x.ndim == 1 else rates

    def interval(self, level: float = 0.95) -> tuple[np.ndarray, np.ndarray]:
        """Lower and upper ends about the coefficients; both 0 where a term is absent.

        Parameters
        ----------
        level : float
            Coverage.

        Returns
        -------
        low, high : arrays
            Of the shape of `coefficients`.
        """
        if not 0.0 < level < 1.0:
            raise InputError(expected="level between 0 and 1", found=f"{level}", hint="0.95")
        half = float(norm.ppf(0.5 + 0.5 * level)) * self.standard_errors
        return self.coefficients - half, self.coefficients + half

    def rejected(self, level: float = 0.05) -> bool:
        """Whether the snapshots contradict the equations at this level.

        Parameters
        ----------
        level : float
            Of the test.

        Returns
        -------
        bool
            Whether p is below it.
        """
        return self.p_value < level

    def to_records(self) -> list[dict[str, Any]]:
        """One plain dictionary a coefficient, for JSON."""
        records = []
        for output in range(len(self.names)):
            records += [self._record(row, output) for row in self._rows(output)]
        return records

    def _record(
        self,
        row: int,
        output: int,
    ) -> dict[str, Any]:
        term = self.terms[row]
        return {
            "coordinate": self.names[output],
            "term": _text(term, self.names) or "1",
            "powers": [term.count(k) for k in range(len(self.names))],
            "coefficient": float(self.coefficients[row, output]),
            "standard_error": float(self.standard_errors[row, output]),
            "p": self.p_value,
        }

    def __str__(self) -> str:
        heads = [f"d{_plain(name)}/dt" for name in self.names]
        width = max(map(len, heads))
        present = [(row, output) for row, output in np.argwhere(self.present).tolist()]
        numbers = {(row, output): _columns(self._number(row, output)) for row, output in present}
        widths = Widths(
            whole=max((len(number.whole) for number in numbers.values()), default=0),
            fraction=max((len(number.fraction) for number in numbers.values()), default=0),
            error=max((len(number.error) for number in numbers.values()), default=0),
        )
        lines = []
        for output, head in enumerate(heads):
            rows = self._rows(output)
            lines += [] if rows else [f"{head:<{width}} =   0"]
            for place, row in enumerate(rows):
                begin = f"{head:<{width}} =" if place == 0 else " " * (width + 2)
                sign = self._sign(row, output, " " if place == 0 else "+")
                shown = _aligned(numbers[row, output], widths)
                term = _text(self.terms[row], self.names)
                lines.append(f"{begin} {sign} {shown}  {term}".rstrip())
        return "\n".join([*lines, *self._remarks()])

    def latex(self) -> str:
        """An `aligned` block for use in mathematics (amsmath)."""
        lines = []
        for output, name in enumerate(self.names):
            summands = []
            for place, row in enumerate(self._rows(output)):
                sign = self._sign(row, output, "" if place == 0 else "+")
                summand = self._latex_summand(row, output)
                summands.append(f"{sign} {summand}" if sign else summand)
            left = rf"\frac{{\mathrm{{d}} {_symbol(name)}}}{{\mathrm{{d}} t}}"
            lines.append(f"{left} &= {' '.join(summands) or '0'}")
        return "\n".join([r"\begin{aligned}", " \\\\\n".join(lines), r"\end{aligned}"])

    def python(self) -> str:
        """Source code of a function `drift(x)` of one state or of rows, which needs only numpy."""
        symbols = _identifiers(self.names)
        lines = [
            "import numpy as np",
            "",
            "",
            "def drift(x):",
            '    """dx/dt at one state or at rows of states."""',
            "    x = np.asarray(x, dtype=float)",
        ]
        for k, (symbol, name) in enumerate(zip(symbols, self.names, strict=True)):
            lines.append(f"    {symbol} = x[..., {k}]  # {ascii(name)}")
        lines += ["    nothing = np.zeros(x.shape[:-1])", "    return np.stack(", "        ["]
        for output in range(len(self.names)):
            summands = ["nothing"]
            for row in self._rows(output):
                number = repr(float(self.coefficients[row, output]))
                summands.append(" * ".join([number, *_factors(self.terms[row], symbols)]))
            lines.append(f"            {' + '.join(summands)},")
        return "\n".join([*lines, "        ],", "        axis=-1,", "    )", ""])

    def _rows(self, output: int) -> list[int]:
        """The terms of one equation."""
        return np.flatnonzero(self.present[:, output]).tolist()

    def _number(
        self,
        row: int,
        output: int,
    ) -> "Number":
        value = float(self.coefficients[row, output])
        return _rounded(value, float(self.standard_errors[row, output]))

    def _sign(
        self,
        row: int,
        output: int,
        positive: str,
    ) -> str:
        return "-" if self.coefficients[row, output] < 0.0 else positive

    def _latex_summand(
        self,
        row: int,
        output: int,
    ) -> str:
        """One term and its coefficient without its sign."""
        number = self._number(row, output)
        power = rf" \cdot 10^{{{number.exponent}}}" if number.exponent else ""
        shown = rf"({number.value} \pm {number.error}){power}"
        term = _latex(self.terms[row], self.names)
        return rf"{shown}\, {term}" if term else shown

    def _remarks(self) -> list[str]:
        verdict = "contradict" if self.rejected() else "do not contradict"
        remarks = [
            f"chi-squared {self.chi2:.1f}, {self.expected:.1f} expected, p = {self.p_value:.3f}: "
            f"the snapshots {verdict} a polynomial of degree {self.degree}"
        ]
        if self.same_particles:
            remarks.append(
                "residuals are as small as for particles observed again and again; standard errors "
                "count on it"
            )
        if not self.converged:
            remarks.append("the last step was not small: take these numbers for a first guess")
        return remarks


class Number(NamedTuple):
    """(value +- error) 10^exponent, without its sign, rounded to two digits of the error."""

    value: str
    error: str
    exponent: int


def _rounded(value: float, error: float) -> Number:
    size = max(abs(value), error)
    exponent = 0 if _PLAIN[0] <= size < _PLAIN[1] else math.floor(math.log10(size))
    value = abs(value) / 10.0**exponent
    error = error / 10.0**exponent
    digits = 1 - math.floor(math.log10(float(f"{error:.1e}")))
    places = max(0, digits)
    return Number(
        value=f"{round(value, digits):.{places}f}",
        error=f"{round(error, digits):.{places}f}",
        exponent=exponent,
    )


class Columns(NamedTuple):
    """What stands before the point, from the point on, and in the error."""

    whole: str
    fraction: str
    error: str


class Widths(NamedTuple):
    """How many characters the columns of all numbers have."""

    whole: int
    fraction: int
    error: int


def _columns(number: Number) -> Columns:
    power = f"e{number.exponent}" if number.exponent else ""
    whole, point, fraction = number.value.partition(".")
    return Columns(whole, point + fraction + power, number.error + power)


def _aligned(number: Columns, width: Widths) -> str:
    value = f"{number.whole:>{width.whole}}{number.fraction:<{width.fraction}}"
    return f"{value} +- {number.error:<{width.error}}"


def _powers(term: tuple[int, ...]) -> list[tuple[int, int]]:
    return sorted(Counter(term).items())


def _text(
    term: tuple[int, ...],
    names: tuple[str, ...],
) -> str:
    factors = []
    for k, power in _powers(term):
        exponent = f"^{power}" if power > 1 else ""
        factors.append(_plain(names[k]) + exponent)
    return " ".join(factors)


def _latex(
    term: tuple[int, ...],
    names: tuple[str, ...],
) -> str:
    factors = []
    for k, power in _powers(term):
        exponent = f"^{{{power}}}" if power > 1 else ""
        factors.append(_symbol(names[k]) + exponent)
    return " ".join(factors)


def _factors(
    term: tuple[int, ...],
    symbols: list[str],
) -> list[str]:
    return [symbols[k] if power == 1 else f"{symbols[k]}**{power}" for k, power in _powers(term)]


def _identifiers(names: tuple[str, ...]) -> list[str]:
    """The names where all of them can be names in Python, else x0, x1, ..."""
    if all(_is_usable(name) for name in names) and len(set(names)) == len(names):
        return list(names)
    return [f"x{k}" for k in range(len(names))]


def _is_usable(name: str) -> bool:
    """Whether a name can be one in the Python function."""
    is_name = name.isascii() and name.isidentifier()
    return is_name and not iskeyword(name) and name not in _TAKEN


def _plain(name: str) -> str:
    """The name as it is where it is one word, in brackets where it is not."""
    return name if re.fullmatch(r"\w+", name) else f"[{' '.join(name.split())}]"


def _symbol(name: str) -> str:
    """A letter with an index as such, any other name as escaped text."""
    if match := re.fullmatch(r"([A-Za-z])([0-9]*)", name):
        letter, index = match.groups()
        return f"{letter}_{{{index}}}" if index else letter
    escaped = "".join(_ESCAPED.get(c, c) for c in " ".join(name.split()))
    return rf"\text{{{escaped}}}"
