"""Arguments of public functions, checked before anything is done with them.

Each check returns the value, or raises BadInput with `what` (the argument, as the caller knows it), the reason and what
to give instead.
"""

from __future__ import annotations

import operator
from typing import Final

from storage.errors import BadInput

INT64_MAX: Final = 2**63 - 1
_SHOWN: Final = 80  # letters of a value in a message


def check_text(what: str, given: object) -> str:
    """A text that UTF-8 can hold: Python's may have halves of letters (lone surrogates) in them, no file can."""
    if not isinstance(given, str):
        raise BadInput(f"{what} is a text, not {shown(given)}; give a str")
    try:
        given.encode()
    except UnicodeEncodeError as e:
        raise BadInput(
            f"{what}: {shown(given)} has a lone surrogate, {given[e.start]!r}, which UTF-8 can't hold; decode the text "
            "with the encoding that it was written in"
        ) from None
    return given


def check_whole_number(what: str, given: object, *, at_least: int = 0, at_most: int = INT64_MAX) -> int:
    """NumPy's count too, truth values don't."""
    try:
        number = operator.index(given)  # type: ignore[arg-type]
    except TypeError:
        number = None
    if number is None or isinstance(given, bool):
        raise BadInput(f"{what} is a whole number, not {shown(given)}; give an int")
    if not at_least <= number <= at_most:
        raise BadInput(f"{what} = {shown(number)} lies outside of {at_least} to {at_most}; give a number between them")
    return number


def shown(given: object) -> str:
    """Like repr, cut short, in letters that every terminal and file can hold."""
    try:
        text = repr(given)
    except Exception:  # repr of foreign objects may fail, and of numbers with thousands of digits does
        text = f"<{type(given).__name__}>"
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"
