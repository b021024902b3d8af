"""The one exception for input that itofit refuses, and the one warning for results to doubt."""


class InputError(ValueError):
    """Input that cannot be used: says what was expected, what was found and what to try.

    Parameters
    ----------
    expected : str
        What itofit could have used.
    found : str
        What it was given instead.
    hint : str
        A remedy, short enough to try at once.

    Examples
    --------
    >>> from itofit import InputError, Snapshots
    >>> try:
    ...     Snapshots.from_arrays([[[0.0], [1.0]]], times=[0.0, 1.0])
    ... except InputError as refusal:
    ...     print(refusal)  # doctest: +NORMALIZE_WHITESPACE
    expected one time for each cloud, and at least one cloud; found 2 times for 1 clouds.
    Try: pass Snapshots.from_arrays([x0, x1, ...], times=[t0, t1, ...]).
    """

    def __init__(self, *, expected: str, found: str, hint: str):
        super().__init__(f"expected {expected}; found {found}. Try: {hint}.")

    def __reduce__(self):
        # Made of keywords alone, it would not come back from another process by itself.
        return _restored, (str(self),)


def _restored(message: str) -> InputError:
    error = InputError.__new__(InputError)
    error.args = (message,)
    return error


class FitWarning(UserWarning):
    """A result that exists but should be doubted; the message names the remedy.

    Examples
    --------
    A fit that warns can be made to stop instead:

    >>> import warnings
    >>> from itofit import FitWarning
    >>> with warnings.catch_warnings():
    ...     warnings.simplefilter("error", FitWarning)
    ...     # model.fit(snapshots)
    """
