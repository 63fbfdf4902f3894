"""Suggests an existing name for a name that does not exist."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return `; did you mean 'orders'?` for the end of a message; "" if no known name is similar."""
    by_lower_case = {k.lower(): k for k in known}
    matches = get_close_matches(name.lower(), by_lower_case, n=1)
    return f"; did you mean {by_lower_case[matches[0]]!r}?" if matches else ""
