"""A hint for a name that does not exist: which one was probably meant."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """`; did you mean 'orders'?`, to be put at the end of a message; "" when nothing known looks alike."""
    by_lower_case = {k.lower(): k for k in known}
    matches = get_close_matches(name.lower(), by_lower_case, n=1)
    return f"; did you mean {by_lower_case[matches[0]]!r}?" if matches else ""
