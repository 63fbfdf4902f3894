"""Types of option values. argparse shows their names and messages."""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable
from datetime import datetime
from typing import Final

_NUMBER_MAX: Final = 2**63 - 1  # for numbers of rows and snapshot ids


def positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text} is less than 1")
    if number > _NUMBER_MAX:
        raise argparse.ArgumentTypeError(f"{text} is more than {_NUMBER_MAX}")
    return number


def not_negative(text: str) -> int:
    return 0 if text == "0" else positive(text)


not_negative.__name__ = "whole number"
positive.__name__ = "whole number"  # argparse says: invalid whole number value: 'x'


def duration_s(text: str) -> float:
    seconds = float(text)
    if not 0 <= seconds < math.inf:
        raise argparse.ArgumentTypeError(f"{text} is not a number of seconds; use 0 or more")
    return seconds


duration_s.__name__ = "number of seconds"


def pair(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not equals or not key.strip():
        raise argparse.ArgumentTypeError(f"write KEY=VALUE, not {text!r}")
    return key.strip(), value


def names(text: str) -> tuple[str, ...]:
    names = tuple(name.strip() for name in text.split(","))
    if not all(names):
        raise argparse.ArgumentTypeError(f"{text!r} has an empty name")
    return names


def range_of(mode: str) -> Callable[[str], tuple[str, str, str]]:
    def parse(text: str) -> tuple[str, str, str]:
        first, comma, last = (part.strip() for part in text.partition(","))
        if not comma or not first or not last or "," in last:
            raise argparse.ArgumentTypeError(f"{text!r}: write A,B, as in 3,7")
        return mode, first, last

    return parse


def parse_subtask(text: str) -> tuple[int, int]:
    """Parse a share: `1/3` is (0, 3)."""
    number, slash, count = text.partition("/")
    if not (slash and number.isdecimal() and count.isdecimal() and 1 <= int(number) <= int(count)):
        raise argparse.ArgumentTypeError(f"{text!r}: write N/COUNT, as in 1/3, the first of three")
    return int(number) - 1, int(count)


_START_WORDS: Final = ("latest", "earliest", "latest-full", "compacted-full")


def start(text: str) -> str | int:
    """Parse the start of a read: a word, a mode with its value after a colon, a position, or a snapshot id."""
    if text in _START_WORDS or text.startswith(("from-", "{")):
        return text
    return positive(text)


start.__name__ = "start (latest, earliest, a snapshot id, …)"


def epoch_ms_of(text: str) -> int:
    """Convert an ISO time to epoch milliseconds. Without a zone it is local time."""
    try:
        time = datetime.fromisoformat(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{error}. Example: 2026-05-01T12:00:00Z") from None
    return int((time if time.tzinfo else time.astimezone()).timestamp() * 1000)
