"""Parses the values of Spark's options, which are texts."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import TypeVar

from tidelake.errors import BadInput

T = TypeVar("T")
U = TypeVar("U")


def value_of(options: Mapping[str, str], key: str, parse: Callable[[str], T], default: U) -> T | U:
    """Return the parsed value of an option, or the default. Raises BadInput if `parse` raises ValueError."""
    if key not in options:
        return default
    try:
        return parse(options[key].strip())
    except (ValueError, OverflowError) as error:
        raise BadInput(f"option {key} = {options[key]!r}: {error}") from None


def whole_number(text: str) -> int:
    if not (text.isascii() and text.isdecimal() and int(text) > 0):
        raise ValueError("expected a whole number from 1 on")
    return int(text)


def parse_boolean(text: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise ValueError("expected true or false")
    return text.lower() == "true"


def split_names(text: str) -> frozenset[str]:
    """Return comma-separated names."""
    return frozenset(name.strip() for name in text.split(",") if name.strip())


def time(text: str) -> datetime | int:
    if text.isascii() and text.isdecimal():
        return int(text)
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        raise ValueError("expected epoch milliseconds, or a time such as 2026-01-31T12:00:00+00:00") from None
