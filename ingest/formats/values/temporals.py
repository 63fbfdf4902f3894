"""DATE, TIME and TIMESTAMP: one JSON value, a column of JSON values, a column of Avro.

All calculations use integers, as Python's datetime lacks some years and digits.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidelake.ingest.formats.connect_schema import JSON_VALUE, PER_SECOND, SemanticType, SourceType, adaptive_unit
from tidelake.ingest.formats.values.conversion import (
    INTEGER_KINDS,
    ArrowConverter,
    ColumnDecoder,
    Conversion,
    TypeRules,
    first_of,
    unflagged,
    unflagged_arrow,
)
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
from tidelake.storage.model.types import STRING, AtomicType, DataType, Root, arrow_type, nullable, timestamp_unit

_SENT_UNITS: Final = ("ms", "us", "ns")  # Debezium never counts seconds
UNIT_DIGITS: Final = {"s": 0, "ms": 3, "us": 6, "ns": 9}  # digits of a second's fraction

_DAY: Final = 86_400
_FRACTION_DIGITS: Final = 18  # the maximum in a text
_YEAR_0: Final = -719_528  # the first day of the year 0; earlier years have a sign
_DATE: Final = r"(?P<year>[+-]?\d{4,7})-(?P<month>\d\d)-(?P<day>\d\d)"
_CLOCK: Final = r"(?P<hour>\d\d):(?P<minute>\d\d)(?::(?P<second>\d\d)(?:\.(?P<fraction>\d{1,18}))?)?"
_ZONE: Final = r"(?P<zone>Z|[+-]\d\d(?::?\d\d(?::?\d\d)?)?)?"
_UTC: Final = r"(?:Z|[+-]00(?::?00)?)?"  # Debezium's IsoDate is 2017-09-15Z; a day in another zone has no exact meaning
_DATE_TEXT: Final = re.compile(_DATE + _UTC, re.ASCII)
_TIME_TEXT: Final = re.compile(_CLOCK + _ZONE, re.ASCII)
_TIMESTAMP_TEXT: Final = re.compile(f"{_DATE}(?:[T ]{_CLOCK}{_ZONE}|{_UTC})", re.ASCII)
# PostgreSQL's `infinity` and `-infinity`. Debezium sends these texts only for timestamps with time zone. For others it
# sends numbers, which are the same instants. Source: `PostgresValueConverter`, pgjdbc `PGStatement`.
_INFINITE_MS: Final = {"infinity": 9_223_372_036_825_200, "-infinity": -9_223_372_036_832_400}
_PLAUSIBLE_S: Final = (315_532_800, 4_102_444_800)  # 1980 to 2100: no two units give the same number such a time

# ---------------------------------------------------------------- DATE


def _date_decoder(conversion: Conversion) -> ValueDecoder:
    """Return a decoder of dates: days since 1970-01-01 (in Debezium's proleptic Gregorian calendar), or ISO text."""
    source, target = conversion.source, conversion.target

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


def _date_column_decoder(conversion: Conversion) -> ColumnDecoder | None:
    match conversion.source.semantic_type:
        case SemanticType.PLAIN if conversion.source.connect == JSON_VALUE.connect:
            return unflagged(str | None, _dates)
        case SemanticType.DATE:
            return unflagged(int | str | None, _dates)
        case _:
            return None


def _dates(values: Sequence[int | str | None]) -> pa.Array:
    first = first_of(values)
    if isinstance(first, str):
        texts = pa.array(values, pa.string())
        return (pc.replace_substring_regex(texts, "Z$", "") if first.endswith("Z") else texts).cast(pa.date32())
    return pa.array(values, pa.int32()).view(pa.date32())


def _date_arrow_converter(conversion: Conversion, kind: str) -> ArrowConverter | None:
    if kind not in INTEGER_KINDS or conversion.source.semantic_type is not SemanticType.DATE:
        return None
    return unflagged_arrow(lambda column: column.cast(pa.int32()).view(pa.date32()))


DATE_RULES: Final = TypeRules(_date_decoder, _date_column_decoder, _date_arrow_converter)


# ---------------------------------------------------------------- TIME


def _time_decoder(conversion: Conversion) -> ValueDecoder:
    """Return a decoder of times of day. Its results are milliseconds, for any precision of the column.

    The decoder refuses times outside of one day, which a MariaDB `time` may contain.

    With `rounds`, finer digits are cut.
    """
    source, target, rounds = conversion.source, conversion.target, conversion.rounds

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


def _time_column_decoder(conversion: Conversion) -> ColumnDecoder | None:
    source, rounds = conversion.source, conversion.rounds
    if source.semantic_type is not SemanticType.TIME:
        return None
    return unflagged(int | None, lambda values: _times(pa.array(values, pa.int64()), source.per_second, rounds))


def _time_arrow_converter(conversion: Conversion, kind: str) -> ArrowConverter | None:
    source, rounds = conversion.source, conversion.rounds
    if kind not in INTEGER_KINDS or source.semantic_type is not SemanticType.TIME:
        return None
    return unflagged_arrow(lambda column: _times(column, source.per_second, rounds))


TIME_RULES: Final = TypeRules(_time_decoder, _time_column_decoder, _time_arrow_converter)


def _times(counts: pa.Array, per_second: int, rounds: bool) -> pa.Array:
    if not per_second:
        raise BadValue("numbers of an unknown unit")
    bounds = pc.min_max(counts)
    if (bounds["min"].as_py() or 0) < 0 or (bounds["max"].as_py() or 0) >= _DAY * per_second:
        raise BadValue("a time outside one day")
    return _rescaled(counts, per_second, PER_SECOND["ms"], rounds).cast(pa.int32()).view(pa.time32("ms"))


# ---------------------------------------------------------------- TIMESTAMP


def _timestamp_decoder(conversion: Conversion) -> ValueDecoder:
    """Return a decoder of timestamps. Its results are counts since 1970 in the column's unit.

    A text without a zone is in UTC.

    With `rounds`, finer digits are cut. The result is rounded down, also before 1970.
    """
    source, target, rounds = conversion.source, conversion.target, conversion.rounds
    unit = timestamp_unit(target.precision)
    per_second = PER_SECOND[unit]

    def decode(raw: bytes) -> int:
        if kind_of(raw) is JsonKind.TEXT:
            text = read_text(raw)
            if text in _INFINITE_MS:
                return _infinite(text, raw, target)
            match = _TIMESTAMP_TEXT.fullmatch(text)
            days = None if match is None else _days(match)
            clock = None if match is None else _clock(match, per_second)
            if match is None or days is None or clock is None:
                raise wrong_kind_error(raw, "timestamp")
            if not rounds and _digits(match) > UNIT_DIGITS[unit]:
                fits = _timestamp_with(_digits(match), target)
                if fits != STRING and not _holds(fits, days):
                    fits = STRING
                if source.counts_as_the_column and fits != STRING and adaptive_unit(fits) != adaptive_unit(target):
                    raise _unit_change_error(raw, target, fits)
                raise _too_precise_error(raw, target, fits)
            return _check_int64((days * _DAY - _offset(match)) * per_second + clock, raw, target)
        if source.semantic_type is SemanticType.DATE:
            return _check_int64(_count(raw, source, SemanticType.DATE, target) * _DAY * per_second, raw, target)
        number = _count(raw, source, SemanticType.TIMESTAMP, target)
        if source.unit_is_assumed and (unit_of_year := _plausible_unit(number, source)):
            raise _implausible_error(raw, source, target, unit_of_year)
        count, finer = divmod(number * per_second, source.per_second)
        if finer and not rounds:
            raise _too_precise_error(raw, target, _timestamp_with(len(str(source.per_second)) - 1, target))
        return _check_int64(count, raw, target)

    return decode


def _infinite(text: str, raw: bytes, target: AtomicType) -> int:
    """Return the count for PostgreSQL's `infinity` or `-infinity`: the instant that Debezium sends in a timestamp."""
    per_second = PER_SECOND[timestamp_unit(target.precision)]
    return _check_int64(_INFINITE_MS[text] * per_second // PER_SECOND["ms"], raw, target)


def _plausible_unit(number: int, source: SourceType) -> str | None:
    """Return the unit in which the number is a time from 1980 to 2100, if it is another one than the source's."""
    low, high = _PLAUSIBLE_S
    units = [unit for unit in _SENT_UNITS if low * PER_SECOND[unit] <= number < high * PER_SECOND[unit]]
    return next((unit for unit in units if PER_SECOND[unit] != source.per_second), None)


def _implausible_error(raw: bytes, source: SourceType, target: AtomicType, unit: str) -> BadValue:
    assumed = next(name for name, per_second in PER_SECOND.items() if per_second == source.per_second)
    return BadValue(
        f"{shown(raw)} is {_year(raw, source.per_second)} in {assumed}, the unit that is assumed for {target}, and "
        f"{_year(raw, PER_SECOND[unit])} in {unit}. No schema declares the unit: declare it in source_types of the "
        f"table, 'timestamp {unit}' or 'timestamp {assumed}', or for all columns in time_precision_mode"
    )


def _year(raw: bytes, per_second: int) -> str:
    return timestamp_text(int(raw), per_second)[:-9].split(" ")[0]


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


def _holds(fits: DataType, days: int) -> bool:
    """Return whether 64 bits in the unit of a timestamp type hold this day and the days beside it."""
    per_second = PER_SECOND[timestamp_unit(getattr(fits, "precision", 0))]
    return abs(days) + 1 < (1 << 63) // (_DAY * per_second)


def _timestamp_with(digits: int, target: AtomicType) -> DataType:
    """Return the type of `target` with a precision of so many digits of a second. STRING for more than nine digits."""
    precision = next((precision for precision in (3, 6, 9) if digits <= precision), None)
    return STRING if precision is None else nullable(replace(target, precision=precision))


def _timestamp_column_decoder(conversion: Conversion) -> ColumnDecoder | None:
    match conversion.source.semantic_type:
        case SemanticType.PLAIN if conversion.source.connect == JSON_VALUE.connect:
            return unflagged(str | None, _timestamps_of_json(conversion))
        case SemanticType.TIMESTAMP:
            return unflagged(int | str | None, _timestamps_of_json(conversion))
        case _:
            return None


def _timestamps_of_json(conversion: Conversion) -> Callable[[Sequence[Any]], pa.Array]:
    of_counts, of_texts = _timestamps_of_counts(conversion), _timestamps_of_texts(conversion)
    in_memory = arrow_type(conversion.target)

    def to_array(values: Sequence[int | str | None]) -> pa.Array:
        first = first_of(values)
        if first is None:
            return pa.nulls(len(values), in_memory)
        return (
            of_texts(pa.array(values, pa.string()), first)
            if isinstance(first, str)
            else of_counts(pa.array(values, pa.int64()))
        )

    return to_array


def _timestamp_arrow_converter(conversion: Conversion, kind: str) -> ArrowConverter | None:
    if conversion.source.semantic_type is not SemanticType.TIMESTAMP:
        return None
    if kind in INTEGER_KINDS:
        return unflagged_arrow(_timestamps_of_counts(conversion))
    if kind != "string":
        return None
    of_texts = _timestamps_of_texts(conversion)

    def convert(texts: pa.Array) -> pa.Array:
        return of_texts(texts, next((text.as_py() for text in texts if text.is_valid), ""))

    return unflagged_arrow(convert)


TIMESTAMP_RULES: Final = TypeRules(_timestamp_decoder, _timestamp_column_decoder, _timestamp_arrow_converter)


def _timestamps_of_counts(conversion: Conversion) -> Callable[[pa.Array], pa.Array]:
    in_memory, rounds = arrow_type(conversion.target), conversion.rounds
    per_second, wanted = conversion.source.per_second, PER_SECOND[timestamp_unit(conversion.target.precision)]

    def convert(counts: pa.Array) -> pa.Array:
        if conversion.source.unit_is_assumed:
            _check_plausible(counts, conversion.source)
        return _rescaled(counts, per_second, wanted, rounds).view(in_memory)

    return convert


def _check_plausible(counts: pa.Array, source: SourceType) -> None:
    """Raise BadValue if the unit is unknown, or if a number is plausible only in another unit than the assumed one."""
    if source.unknown_unit:
        raise BadValue(source.unknown_unit)
    numbers = counts.fill_null(0).to_numpy()
    low, high = _PLAUSIBLE_S
    for unit in _SENT_UNITS:
        per_second = PER_SECOND[unit]
        if per_second != source.per_second and ((numbers >= low * per_second) & (numbers < high * per_second)).any():
            raise BadValue(f"numbers that are plausible in {unit} only")


def _timestamps_of_texts(conversion: Conversion) -> Callable[[pa.Array, str], pa.Array]:
    """Return a function that reads a column of texts. Its second argument is the first text in the column."""
    in_memory, unit = arrow_type(conversion.target), timestamp_unit(conversion.target.precision)

    def convert(texts: pa.Array, first: str) -> pa.Array:
        zone = "UTC" if first.endswith("Z") else None  # Arrow requires that all texts have a zone, or none has
        return texts.cast(pa.timestamp(unit, zone)).view(in_memory)

    return convert


# ---------------------------------------------------------------- parts of times


def _too_precise_error(raw: bytes, target: AtomicType, fits: DataType) -> TooNarrow:
    unit = "ms" if target.root is Root.TIME else timestamp_unit(target.precision)
    return TooNarrow(f"{shown(raw)} is finer than the {unit} of {target}", target, fits, can_round=True)


def _count(raw: bytes, source: SourceType, wanted: SemanticType, target: AtomicType) -> int:
    if kind_of(raw) is not JsonKind.NUMBER or not raw.lstrip(b"-").isdigit():
        raise wrong_kind_error(raw, str(target))
    if source.semantic_type is wanted and source.unknown_unit:
        raise BadValue(f"number {shown(raw)} can't become {target}: {source.unknown_unit}")
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


def _rescaled(counts: pa.Array, per_second: int, wanted: int, rounds: bool) -> pa.Array:
    """Return counts in another unit.

    per_second: the unit of `counts`.
    wanted: the new unit, per second.
    rounds: whether a count may be rounded down, also before 1970.

    Raises ValueError for a count that would have to be rounded without `rounds`, and for one that exceeds 64 bits.
    """
    if wanted >= per_second:
        return counts if wanted == per_second else pc.multiply_checked(counts, wanted // per_second)
    whole, finer = np.divmod(counts.fill_null(0).to_numpy(), per_second // wanted)
    if finer.any() and not rounds:
        raise BadValue("counts of a finer unit")
    return pc.if_else(counts.is_valid(), pa.array(whole), pa.scalar(None, pa.int64()))


# ---------------------------------------------------------------- as texts


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
