"""The column type that a table needs for a source column, by the type in `expected.json`."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import pyarrow as pa

POINT: Final = pa.struct([("x", pa.float64()), ("y", pa.float64()), ("wkb", pa.binary()), ("srid", pa.int32())])
EXACT_DIGITS_OF_DOUBLE: Final = 15

INTEGER: Final = r"(?:big|small|medium|tiny)?int(?:eger)?(?:\(\d+\))?(?: unsigned)?(?: zerofill)?"
UNSIGNED_BIGINT: Final = r"bigint(?:\(\d+\))? unsigned(?: zerofill)?"


@dataclass(frozen=True)
class Wire:
    """What of a connector's settings decides about columns. has_schema: whether the records say what values mean."""

    has_schema: bool
    sends_doubles: bool = False
    sends_interval_texts: bool = False
    sends_unsigned_decimals: bool = False


Column = Callable[[re.Match[str], Wire], pa.DataType]


def column_type(database_type: str, wire: Wire) -> pa.DataType:
    """Types that nothing is said of here (uuid, inet, enums, ranges, xml) are texts."""
    for pattern, column in _COLUMNS:
        if match := re.fullmatch(pattern, database_type):
            return column(match, wire)
    return pa.string()


def source_type(database_type: str, wire: Wire) -> str | None:
    """What records don't say about such a column's values, in words of `Target.source_types`."""
    if re.fullmatch(UNSIGNED_BIGINT, database_type) and not wire.sends_unsigned_decimals:
        return "bigint unsigned"
    if wire.has_schema:
        return None
    if database_type == "bit varying":
        return "bits varying"
    bits = re.fullmatch(r"bit(?: varying)?\((\d+)\)", database_type)
    return f"bits({bits[1]})" if bits and bits[0] != "bit(1)" else None


def _is(kind: pa.DataType) -> Column:
    return lambda match, wire: kind


def _integer(match: re.Match[str], wire: Wire) -> pa.DataType:
    signed, unsigned = {
        "tiny": (pa.int8(), pa.int16()),
        "small": (pa.int16(), pa.int32()),
        "medium": (pa.int32(), pa.int32()),
        "big": (pa.int64(), pa.decimal128(20, 0)),
    }.get(match[1] or "", (pa.int32(), pa.int64()))
    return unsigned if match[2] else signed


def _decimal(match: re.Match[str], wire: Wire) -> pa.DataType:
    """Doubles near the end of a decimal's range round out of it; a decimal without limits is a text."""
    if match[1] is None:
        return pa.float64() if wire.sends_doubles else pa.string()
    precision = int(match[1])
    if wire.sends_doubles and precision > EXACT_DIGITS_OF_DOUBLE:
        return pa.float64()
    return pa.decimal128(precision, int(match[2] or 0)) if precision <= 38 else pa.string()


def _timestamp(zone: str | None, digits_unless_said: int) -> Column:
    def column(match: re.Match[str], wire: Wire) -> pa.DataType:
        digits = digits_unless_said if match[1] is None else int(match[1])
        return pa.timestamp("s" if digits == 0 else "ms" if digits <= 3 else "us", zone)

    return column


def _time(match: re.Match[str], wire: Wire) -> pa.DataType:
    """Microseconds don't fit Paimon's TIME: texts where a schema says what they are, else integers."""
    if match[1] is not None and int(match[1]) <= 3:
        return pa.time32("ms")
    return pa.string() if wire.has_schema else pa.int64()


def _interval(match: re.Match[str], wire: Wire) -> pa.DataType:
    return pa.string() if wire.sends_interval_texts else pa.int64()


def _list(match: re.Match[str], wire: Wire) -> pa.DataType:
    return pa.list_(column_type(match[1], wire))


_COLUMNS: Final[tuple[tuple[str, Column], ...]] = (
    (r"(.+)\[\]", _list),
    (r"(big|small|medium|tiny)?int(?:eger)?(?:\(\d+\))?( unsigned)?(?: zerofill)?", _integer),
    (r"year(?:\(\d+\))?", _is(pa.int32())),
    (r"(?:numeric|decimal)(?:\((\d+)(?:,(-?\d+))?\))?(?: unsigned)?(?: zerofill)?", _decimal),
    (r"money", _is(pa.decimal128(19, 2))),
    (r"real|float(?:\(.*\))?(?: unsigned)?", _is(pa.float32())),
    (r"double.*", _is(pa.float64())),
    (r"boolean|bit\(1\)", _is(pa.bool_())),
    (r"date", _is(pa.date32())),
    (r"timestamp(?:\((\d)\))? without time zone", _timestamp(None, 6)),
    (r"timestamp(?:\((\d)\))? with time zone", _timestamp("UTC", 6)),
    (r"timestamp(?:\((\d)\))?", _timestamp("UTC", 0)),  # MySQL's
    (r"datetime(?:\((\d)\))?", _timestamp(None, 0)),
    (r"time(?:\((\d)\))? without time zone", _time),
    (r"time(?:\(\d\))?", _is(pa.int64())),  # MySQL's may be negative, or longer than a day
    (r"interval.*", _interval),
    (r"bytea|(?:var)?binary(?:\(.*\))?|(?:tiny|medium|long)?blob", _is(pa.binary())),
    (r"hstore", _is(pa.map_(pa.string(), pa.string()))),
    (r"set\(.*\)", _is(pa.list_(pa.string()))),
    (r"point", _is(POINT)),
)
