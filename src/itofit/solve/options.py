"""Checks of the options of a solver: each refuses one wrong value and says what to give."""

from typing import Any

from itofit.errors import InputError


def check_choice(name: str, value: Any, allowed: tuple[str, ...]) -> None:
    """Refuse a word that is none of those it may be."""
    if value not in allowed:
        raise InputError(
            expected=f"{name} to be one of {', '.join(allowed)}",
            found=f"{value!r}",
            hint=allowed[0],
        )


def check_count(name: str, value: Any, least: int, hint: str) -> None:
    """Refuse what is no whole number from `least` on."""
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise InputError(
            expected=f"{name} to be a whole number from {least} on", found=f"{value!r}", hint=hint
        )


def check_not_negative(name: str, value: Any, hint: str) -> None:
    """Refuse a number below 0, and NaN."""
    if not isinstance(value, int | float) or not value >= 0.0:
        raise InputError(expected=f"{name} from 0 on", found=f"{value!r}", hint=hint)


def check_positive(name: str, value: Any, hint: str) -> None:
    """Refuse a number that is not above 0, and NaN."""
    if not isinstance(value, int | float) or not value > 0.0:
        raise InputError(expected=f"{name} above 0", found=f"{value!r}", hint=hint)
