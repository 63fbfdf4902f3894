"""JSON to DATE, TIME and TIMESTAMP. All calculations use integers, as Python's datetime lacks some years and digits."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Final

import numpy as np

from tidelake.ingest.formats.connect_schema import PER_SECOND, SemanticType, SourceType, adaptive_unit
from tidelake.ingest.formats.values.json_text import (
    BadValue,
    JsonKind,
    TooNarrow,
    ValueDecoder,
    kind_of,
    read_text,
    shown,
    wrong_kind_error,
)
from tidelake.storage.model.types import STRING, AtomicType, DataType, Root, nullable, timestamp_unit

UNIT_DIGITS: Final = {"s": 0, "ms": 3, "us": 6, "ns": 9}  # digits of a second's fraction

_DAY: Final = 86_400
_FRACTION_DIGITS: Final = 18  # the maximum in a text
_YEAR_0: Final = -719_528  # the first day of the year 0; earlier years have a sign
_DATE: Final = r"(?P<year>[+-]?\d{4,6})-(?P<month>\d\d)-(?P<day>\d\d)"
_CLOCK: Final = r"(?P<hour>\d\d):(?P<minute>\d\d)(?::(?P<second>\d\d)(?:\.(?P<fraction>\d{1,18}))?)?"
_ZONE: Final = r"(?P<zone>Z|[+-]\d\d(?::?\d\d(?::?\d\d)?)?)?"
_DATE_TEXT: Final = re.compile(_DATE, re.ASCII)
_TIME_TEXT: Final = re.compile(_CLOCK + _ZONE, re.ASCII)
_TIMESTAMP_TEXT: Final = re.compile(f"{_DATE}(?:[T ]{_CLOCK}{_ZONE})?", re.ASCII)


def date_decoder(source: SourceType, target: AtomicType) -> ValueDecoder:
    """Return a decoder of dates: days since 1970-01-01 (in Debezium's proleptic Gregorian calendar), or ISO text."""

    def decode(raw: bytes) -> int:
        if kind_of(raw) is JsonKind.TEXT:
            match = _DATE_TEXT.fullmatch(read_text(raw))
            days = None if match is None else _days(match)
        else:
            days = _days_of_number(raw, source, target)
        if days is None:
            raise wrong_kind_error(raw, "date")
        if not -(1 << 31) <= days < 1 << 31:
            raise BadValue(f"{shown(raw)} is out of the range of {target}")
        return days

    return decode


def _days_of_number(raw: bytes, source: SourceType, target: AtomicType) -> int:
    """Return the days since 1970-01-01 that a number encodes.

    A source whose `column_type` is declared may send a timestamp. If that has a time of day, TooNarrow is raised.
    """
    if source.semantic_type is not SemanticType.TIMESTAMP or source.column_type is None:
        return _count(raw, source, SemanticType.DATE, target)
    days, rest = divmod(_count(raw, source, SemanticType.TIMESTAMP, target), _DAY * source.per_second)
    if rest:
        precision = len(str(source.per_second)) - 1
        raise TooNarrow(f"{shown(raw)} has a time of day", target, AtomicType(Root.TIMESTAMP, precision=precision))
    return days


def time_decoder(source: SourceType, target: AtomicType, rounds: bool) -> ValueDecoder:
    """Return a decoder of times of day. Its results are milliseconds, for any precision of the column.

    The decoder refuses times outside of one day, which a MariaDB `time` may contain.

    rounds: whether finer digits are cut.
    """

    def decode(raw: bytes) -> int:
        if kind_of(raw) is JsonKind.TEXT:
            match = _TIME_TEXT.fullmatch(read_text(raw))
            clock = None if match is None else _clock(match, PER_SECOND["ms"])
            if match is None or clock is None:
                raise wrong_kind_error(raw, "time of day")
            if not rounds and _digits(match) > 3:
                raise _too_precise_error(raw, target, STRING)
            return (clock - _offset(match) * PER_SECOND["ms"]) % (_DAY * PER_SECOND["ms"])
        count = _count(raw, source, SemanticType.TIME, target)
        if not 0 <= count < _DAY * source.per_second:
            clock_text = interval_text(count, source.per_second)
            raise TooNarrow(f"{clock_text} ({shown(raw)}) is not a time within one day", target, STRING)
        milliseconds, finer = divmod(count * PER_SECOND["ms"], source.per_second)
        if finer and not rounds:
            raise _too_precise_error(raw, target, STRING)
        return milliseconds

    return decode


def _too_precise_error(raw: bytes, target: AtomicType, fits: DataType) -> TooNarrow:
    unit = "ms" if target.root is Root.TIME else timestamp_unit(target.precision)
    return TooNarrow(f"{shown(raw)} is finer than the {unit} of {target}", target, fits, can_round=True)


def _unit_change_error(raw: bytes, target: AtomicType, fits: DataType) -> BadValue:
    """Return the error for a text that is finer than a column which can't be widened automatically.

    No schema declares the unit of the column's numbers, so a wider column would read its numbers in another unit.
    """
    unit = adaptive_unit(target)
    return BadValue(
        f"{shown(raw)} is finer than the {timestamp_unit(target.precision)} of {target}. The column can't be widened "
        f"to {fits}: no schema declares the unit of numbers in this column, and they would be read in "
        f"{adaptive_unit(fits)} instead of {unit}. Declare the unit in source_types of the table, for example "
        f"'timestamp {unit}', or for all columns in time_precision_mode; or round the values (`inexact_values: round`)"
    )


def _timestamp_with(digits: int, target: AtomicType) -> DataType:
    """Return the type of `target` with a precision of so many digits of a second. STRING for more than nine digits."""
    precision = next((precision for precision in (3, 6, 9) if digits <= precision), None)
    return STRING if precision is None else nullable(replace(target, precision=precision))


def timestamp_decoder(source: SourceType, target: AtomicType, rounds: bool) -> ValueDecoder:
    """Return a decoder of timestamps. Its results are counts since 1970 in the column's unit.

    A text without a zone is in UTC.

    rounds: whether finer digits are cut. The result is rounded down, also before 1970.
    """
    unit = timestamp_unit(target.precision)
    per_second = PER_SECOND[unit]

    def decode(raw: bytes) -> int:
        if kind_of(raw) is JsonKind.TEXT:
            match = _TIMESTAMP_TEXT.fullmatch(read_text(raw))
            days = None if match is None else _days(match)
            clock = None if match is None else _clock(match, per_second)
            if match is None or days is None or clock is None:
                raise wrong_kind_error(raw, "timestamp")
            if not rounds and _digits(match) > UNIT_DIGITS[unit]:
                fits = _timestamp_with(_digits(match), target)
                if source.counts_as_the_column and fits != STRING and adaptive_unit(fits) != adaptive_unit(target):
                    raise _unit_change_error(raw, target, fits)
                raise _too_precise_error(raw, target, fits)
            return _check_int64((days * _DAY - _offset(match)) * per_second + clock, raw, target)
        if source.semantic_type is SemanticType.DATE:
            return _check_int64(_count(raw, source, SemanticType.DATE, target) * _DAY * per_second, raw, target)
        count, finer = divmod(_count(raw, source, SemanticType.TIMESTAMP, target) * per_second, source.per_second)
        if finer and not rounds:
            raise _too_precise_error(raw, target, _timestamp_with(len(str(source.per_second)) - 1, target))
        return _check_int64(count, raw, target)

    return decode


def _count(raw: bytes, source: SourceType, wanted: SemanticType, target: AtomicType) -> int:
    if kind_of(raw) is not JsonKind.NUMBER or not raw.lstrip(b"-").isdigit():
        raise wrong_kind_error(raw, str(target))
    if source.semantic_type is not wanted:
        raise BadValue(
            f"number {shown(raw)} of source type {source.name or source.connect} can't become {target}; if it counts "
            "days or a time, declare this in source_types, for example 'timestamp ms'"
        )
    return int(raw)


def _check_int64(value: int, raw: bytes, target: AtomicType) -> int:
    if -(1 << 63) <= value < 1 << 63:
        return value
    raise TooNarrow(f"{shown(raw)} is out of the range of {target}", target, STRING)


def _days(match: re.Match[str]) -> int | None:
    try:
        return int(np.datetime64("-".join(match.group("year", "month", "day")), "D").astype(np.int64))
    except ValueError:  # no such month, or no such day in it
        return None


def _clock(match: re.Match[str], per_second: int) -> int | None:
    """Return the units since midnight; 0 for a text without time of day, None for an impossible time of day."""
    hour, minute, second = (int(part or 0) for part in match.group("hour", "minute", "second"))
    if hour > 23 or minute > 59 or second > 59:
        return None
    fraction = int((match["fraction"] or "").ljust(_FRACTION_DIGITS, "0")) * per_second // 10**_FRACTION_DIGITS
    return (hour * 3600 + minute * 60 + second) * per_second + fraction


def _digits(match: re.Match[str]) -> int:
    """Return the number of digits in the fraction of a second, without trailing zeros."""
    return len((match["fraction"] or "").rstrip("0"))


def _offset(match: re.Match[str]) -> int:
    """Return the zone's offset in seconds east of UTC."""
    zone = match["zone"]
    if zone is None or zone == "Z":
        return 0
    digits = zone[1:].replace(":", "")
    seconds = sum(
        int(digits[i : i + 2]) * unit for i, unit in zip(range(0, len(digits), 2), (3600, 60, 1), strict=False)
    )
    return -seconds if zone[0] == "-" else seconds


def date_text(days: int) -> str:
    """Return the ISO date of a day, counted from 1970-01-01, for any year."""
    try:
        year, month, day = str(np.datetime64(days, "D")).rsplit("-", 2)
    except OverflowError:
        raise BadValue(f"day {days} is outside of the calendar") from None
    return f"{int(year):0{5 if days < _YEAR_0 else 4}d}-{month}-{day}"


def interval_text(count: int, per_second: int) -> str:
    """Return `[-]HH:MM:SS[.fraction]`, as MariaDB prints a time. It may have more than 24 hours."""
    seconds, fraction = divmod(abs(count), per_second)
    digits = f".{fraction:0{len(str(per_second)) - 1}d}".rstrip("0") if fraction else ""
    return f"{'-' if count < 0 else ''}{seconds // 3600:02d}:{seconds // 60 % 60:02d}:{seconds % 60:02d}{digits}"


def timestamp_text(count: int, per_second: int) -> str:
    """Return `YYYY-MM-DD HH:MM:SS[.fraction]`, as databases print a timestamp."""
    days, rest = divmod(count, _DAY * per_second)
    return f"{date_text(days)} {interval_text(rest, per_second)}"
