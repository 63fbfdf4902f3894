"""Parses texts as times, by a pattern of Java's `DateTimeFormatter`, or leniently without a pattern.

A pattern consists of letters for numbers (`y u M d H k h a m s S n`) and literal text. Letters for words and zones
(`MMM`, `E`, `z`, …) are refused. A day after the end of a month means its last day, as in Java's resolver.

Source: Java `partition/PartitionTimeExtractor.java`, the JDK's `DateTimeFormatterBuilder.java`.
"""

from __future__ import annotations

import calendar
import re
from collections.abc import Iterator, Mapping
from datetime import datetime, timedelta
from functools import cache
from typing import Final

from tidelake.errors import BadInput

_LENIENT: Final = re.compile(
    r"(?P<y>-?\d{1,10})-(?P<M>\d{1,2})-(?P<d>\d{1,2})"
    r"(?: (?P<H>\d{1,2}):(?P<m>\d{1,2}):(?P<s>\d{1,2})(?:\.(?P<S>\d{1,9}))?)?"
)
_RUN: Final = re.compile(r"'(?P<quoted>(?:[^']|'')*)'|(?P<letter>[A-Za-z])(?P=letter)*|(?P<literal>[^A-Za-z'])")
_YEARS: Final = "yu"
_RANGES: Final = {"M": (1, 12), "d": (1, 31), "H": (0, 24), "k": (1, 24), "h": (1, 12), "m": (0, 59), "s": (0, 59)}


def parse_leniently(text: str) -> datetime | None:
    """Parse texts such as `2024-5-1` and `2024-05-01 7:00:00.5`. Numbers may overflow: month 13 is the next January.

    Years outside of Python's calendar become its first or last moment. Returns None for any other text.
    """
    match = _LENIENT.fullmatch(text)
    if match is None:
        return None
    number = {name: int(value) for name, value in match.groupdict(default="0").items() if name != "S"}
    fraction = (match["S"] or "").ljust(9, "0")
    year, month = number["y"] + (number["M"] - 1) // 12, (number["M"] - 1) % 12 + 1
    more = timedelta(number["d"] - 1, number["s"], int(fraction[:6]), 0, number["m"], number["H"])
    return _within_the_calendar(year, month, more)


class TimeFormat:
    """A compiled time pattern.

    pattern: as in Java. Raises BadInput for an unsupported one.
    """

    def __init__(self, pattern: str) -> None:
        self._pattern = pattern
        self._regex = re.compile("".join(self._parts(pattern)), re.IGNORECASE)

    def parse(self, text: str) -> datetime | None:
        """Return the time; None for a text that doesn't match. A date without a time of day is its midnight."""
        match = self._regex.fullmatch(text)
        if match is None:
            return None
        number = {name: value for name, value in match.groupdict().items() if value is not None}
        if any(not low <= int(number[letter]) <= high for letter, (low, high) in _RANGES.items() if letter in number):
            return None
        return self._resolved(number)

    def _resolved(self, number: Mapping[str, str]) -> datetime | None:
        year = next((number[letter] for letter in _YEARS if letter in number), number.get("yy"))
        if year is None or "M" not in number or "d" not in number:
            return None
        full_year, month = int(year) + (2000 if "yy" in number else 0), int(number["M"])
        hour, minute = _hour(number), int(number.get("m", "0"))
        if hour is None and ("m" in number or "s" in number):
            return None
        second, fraction = int(number.get("s", "0")), number.get("S", "").ljust(9, "0")
        if hour == 24 and (minute or second or int(fraction)):
            return None
        nanos = int(number.get("n", fraction))
        days = calendar.monthrange(full_year if 1 <= full_year <= 9999 else 2000, month)[1]
        day = min(int(number["d"]), days)
        return _within_the_calendar(full_year, month, timedelta(day - 1, second, nanos // 1000, 0, minute, hour or 0))

    def _parts(self, pattern: str) -> Iterator[str]:
        at, seen = 0, set[str]()
        while at < len(pattern):
            match = _RUN.match(pattern, at)
            if match is None:
                raise self._refused(pattern[at])
            at = match.end()
            letter = match["letter"]
            if letter is None:
                literal = match["literal"]
                if literal is not None and literal in "[]{}#":
                    raise self._refused(literal)
                yield re.escape(literal if literal is not None else match["quoted"].replace("''", "'") or "'")
                continue
            if letter in seen:
                raise self._refused(letter)
            seen.add(letter)
            yield self._number(letter, len(match[0]))

    def _number(self, letter: str, width: int) -> str:
        if letter in _YEARS:
            if width == 2:
                return r"(?P<yy>\d{2})"
            return rf"(?P<{letter}>\d{{{width},19}})"
        if letter == "S":
            return rf"(?P<S>\d{{{width}}})"
        if letter == "n":
            return rf"(?P<n>\d{{{width},19}})"
        if letter == "a" and width == 1:
            return r"(?P<a>am|pm)"
        if letter in _RANGES and width <= 2:
            return rf"(?P<{letter}>\d{{{width}{',19' if width == 1 else ''}}})"
        raise self._refused(letter * width)

    def _refused(self, part: str) -> BadInput:
        return BadInput(
            f"time pattern {self._pattern!r}: {part!r} is not supported; write numbers (yyyy MM dd HH mm ss SSS) and "
            "literal text"
        )


@cache
def time_format(pattern: str) -> TimeFormat:
    return TimeFormat(pattern)


def _hour(number: Mapping[str, str]) -> int | None:
    if "H" in number:
        return int(number["H"])
    if "k" in number:
        return int(number["k"]) % 24
    if "h" in number and "a" in number:
        return int(number["h"]) % 12 + (12 if number["a"].lower() == "pm" else 0)
    return None


def _within_the_calendar(year: int, month: int, more: timedelta) -> datetime:
    try:
        return datetime(year, month, 1) + more
    except (ValueError, OverflowError):
        return datetime.min if year < 1 else datetime.max
