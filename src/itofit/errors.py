"""The one exception for input that itofit refuses, and the one warning for results to doubt."""


class InputError(ValueError):
    """Input that cannot be used: says what was expected, what was found and what to try."""

    def __init__(self, *, expected: str, found: str, hint: str):
        super().__init__(f"expected {expected}; found {found}. Try: {hint}.")


class FitWarning(UserWarning):
    """A result that exists but should be doubted; the message names the remedy."""
