"""Casts texts to values, and values to texts, like Java. It works value by value, because such casts are rare.

Source: Java `casting/StringTo*CastRule.java`, `casting/*ToStringCastRule.java`, `utils/BinaryStringUtils.java`,
`utils/DateTimeUtils.java`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from datetime import date
from decimal import ROUND_HALF_UP, Context, Decimal
from itertools import pairwise
from typing import Any, Final

import numpy as np
import pyarrow as pa

from tidelake.errors import BadInput
from tidelake.storage.files.formats.arrow_conversion import list_offsets, times_from_parts
from tidelake.storage.model.types import (
    BINARY_ROOTS,
    STRING_ROOTS,
    TIMESTAMP_ROOTS,
    ArrayType,
    AtomicType,
    DataType,
    MapType,
    Root,
    RowType,
    arrow_type,
)
from tidelake.storage.model.types.partition_text import partition_text

EXACT: Final = Context(prec=2000)  # more digits than a DOUBLE or a reasonable text has


def rounded(number: Decimal, new: AtomicType) -> Decimal | None:
    """Round half up to the scale of `new`. None if the result has more digits than `new` allows."""
    unscaled = number.scaleb(new.scale, EXACT).to_integral_value(ROUND_HALF_UP, EXACT)
    return unscaled.scaleb(-new.scale, EXACT) if abs(unscaled) < 10**new.precision else None


# ---------------------------------------------------------------- into texts


def text_of(column: pa.Array, data_type: DataType) -> pa.Array | None:
    """Cast to STRING, as in SQL. None if Java has no such cast for the type."""
    match data_type:
        case ArrayType():
            inner = text_of(column.values, data_type.element)
            return None if inner is None else _joined(column, inner.to_pylist(), "[", "]")
        case MapType():
            keys, items = text_of(column.keys, data_type.key), text_of(column.items, data_type.value)
            if keys is None or items is None:
                return None
            pairs = zip(_or_null(keys.to_pylist()), _or_null(items.to_pylist()), strict=True)
            return _joined(column, [f"{key} -> {item}" for key, item in pairs], "{", "}")
        case RowType():
            parts = [text_of(column.field(i), f.type) for i, f in enumerate(data_type.fields)]
            texts = [_or_null(part.to_pylist()) for part in parts if part is not None]
            if len(texts) < len(parts):
                return None
            rows = zip(*texts, strict=True)
            return _where_valid(column, ["{" + ", ".join(row) + "}" for row in rows])
        case AtomicType():
            return _atoms_to_text(column, data_type)
    return None


def _atoms_to_text(column: pa.Array, data_type: AtomicType) -> pa.Array | None:
    if data_type.root in STRING_ROOTS:
        return column
    if data_type.root in BINARY_ROOTS:
        return pa.array([None if v is None else v.decode(errors="replace") for v in column.to_pylist()], pa.string())
    if data_type.root is Root.VARIANT:
        return None
    texts = [partition_text(value, data_type, legacy=False) if value.is_valid else None for value in column]
    return pa.array(texts, pa.string())


def _joined(column: pa.Array, inner: list[str | None], opening: str, closing: str) -> pa.Array:
    texts = _or_null(inner)
    return _where_valid(
        column, [opening + ", ".join(texts[start:end]) + closing for start, end in pairwise(list_offsets(column))]
    )


def _or_null(texts: list[str | None]) -> list[str]:
    return ["null" if text is None else text for text in texts]


def _where_valid(column: pa.Array, texts: list[str]) -> pa.Array:
    valid = column.is_valid().to_pylist()
    return pa.array([t if is_valid else None for t, is_valid in zip(texts, valid, strict=True)], pa.string())


# ---------------------------------------------------------------- out of texts


def from_text(column: pa.Array, new: AtomicType) -> pa.Array:
    """Cast texts to a type. Raises BadInput, with the text, if Java fails."""
    parse = _PARSERS[new.root]
    values = []
    for text in column.to_pylist():
        try:
            values.append(None if text is None else parse(text, new))
        except ValueError as problem:
            why = f" ({problem})" if str(problem) else ""
            raise BadInput(
                f"the text {text!r} can't be read as {new}, which the column's type was changed to{why}. "
                "Java fails, too; change the type back to read the rows (`tidelake table alter`, --set-type)"
            ) from None
    if new.root in TIMESTAMP_ROOTS:
        return _timestamps(values, arrow_type(new))
    if new.root in (Root.DATE, Root.TIME):
        return pa.array(values, pa.int32()).cast(arrow_type(new))
    return pa.array(values, arrow_type(new))


def _timestamps(parts: list[tuple[int, int] | None], target: pa.DataType) -> pa.Array:
    seconds = np.array([0 if part is None else part[0] for part in parts], np.int64)
    nanos = np.array([0 if part is None else part[1] for part in parts], np.int64)
    like = pa.array([None if part is None else True for part in parts], pa.bool_())
    return times_from_parts(seconds, nanos, target, like)


_TRUE: Final = frozenset({"t", "true", "y", "yes", "1"})
_FALSE: Final = frozenset({"f", "false", "n", "no", "0"})


def _boolean(text: str, _: AtomicType) -> bool:
    if text.lower() in _TRUE | _FALSE:
        return text.lower() in _TRUE
    raise ValueError


_INTEGER: Final = re.compile(r"([+-]?)([0-9]*)(?:\.[0-9]*)?")
_BITS: Final = {Root.TINYINT: 8, Root.SMALLINT: 16, Root.INT: 32, Root.BIGINT: 64}


def _integer(text: str, new: AtomicType) -> int:
    """Parse an integer. Digits after a decimal point are allowed and dropped; other characters are errors."""
    match = _INTEGER.fullmatch(text)
    if match is None or text in ("", "+", "-"):
        raise ValueError
    number = int(match[1] + (match[2] or "0"))
    if not -(1 << _BITS[new.root] - 1) <= number < 1 << _BITS[new.root] - 1:
        raise ValueError("it is too large")
    return number


_FLOAT: Final = re.compile(r"([+-]?)(?:(NaN)|(Infinity)|((?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)[fFdD]?)")
_HEX_FLOAT: Final = re.compile(r"([+-]?0[xX](?:[0-9a-fA-F]+\.?[0-9a-fA-F]*|\.[0-9a-fA-F]+)[pP][+-]?[0-9]+)[fFdD]?")


def _float(text: str, _: AtomicType) -> float:
    """Parse what `Double.parseDouble` accepts: blanks around the number, and a letter for the type after it."""
    trimmed = text.strip("".join(map(chr, range(33))))
    if match := _HEX_FLOAT.fullmatch(trimmed):
        return float.fromhex(match[1])
    match = _FLOAT.fullmatch(trimmed)
    if match is None:
        raise ValueError
    return float(match[1] + (match[2] or match[3] or match[4]))


_DECIMAL: Final = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]{1,10})?")


def _decimal(text: str, new: AtomicType) -> Decimal | None:
    if not _DECIMAL.fullmatch(text):
        raise ValueError
    number = Decimal(text)
    if number and number.adjusted() > new.precision:
        return None  # too many digits; this avoids expanding them
    return rounded(number, new) if number.adjusted() >= -new.scale - 2 else Decimal(0)


def _date(text: str, _: AtomicType) -> int:
    """Return days since 1970. A bare number is days. Month and day may be missing; a time of day is dropped."""
    if text.isdecimal():
        return _integer(text, AtomicType(Root.INT))
    head = text[: text.index(" ")] if text.find(" ") > 0 else text
    parts = [part.strip() for part in head.split("-", 2)]
    if not all(re.fullmatch(r"[0-9]+", part) for part in parts):
        raise ValueError
    year, month, day = map(int, (*parts, "1", "1")[:3])
    return _epoch_day(year, month, day)


def _epoch_day(year: int, month: int, day: int) -> int:
    if year > 9999:
        raise ValueError("the year is after 9999")
    # Python's calendar starts with the year 1. It repeats after 400 years.
    return (date(year + 400 if year < 400 else year, month, day) - date(1970, 1, 1)).days - (
        146_097 if year < 400 else 0
    )


_TIME: Final = re.compile(
    r"\s*([0-9]+)\s*(?::\s*([0-9]+)\s*(?::\s*([0-9]+)\s*(?:\.([^+-]*))?)?)?(?:([+-])\s*([0-9]+)\s*(?::\s*([0-9]+)\s*)?)?"
)


def _time(text: str, _: AtomicType) -> int:
    """Return milliseconds of the day.

    A bare number is milliseconds. An offset such as +02:00 is added or subtracted.
    """
    if text.isdecimal():
        return _integer(text, AtomicType(Root.INT))
    match = _TIME.fullmatch(text)
    if match is None:
        raise ValueError
    hour, minute, second = (int(match[i] or 0) for i in (1, 2, 3))
    sign = {"+": 1, "-": -1, None: 0}[match[5]]
    hour += sign * int(match[6] or 0)
    minute += sign * int(match[7] or 0)
    return hour * 3_600_000 + minute * 60_000 + second * 1000 + _milliseconds((match[4] or "").strip())


def _milliseconds(fraction: str) -> int:
    """Return the milliseconds of the digits after the point, rounded by the fourth digit."""
    digits = [int(c) if c in "0123456789" else 0 for c in fraction.ljust(3, "0")]
    rounds_up = len(fraction) > 3 and fraction[3] >= "5"
    return digits[0] * 100 + digits[1] * 10 + digits[2] + rounds_up


_TIMESTAMP: Final = re.compile(
    r"([0-9]{4})-([0-9]{1,2})-([0-9]{1,2})"
    r"(?: ([0-9]{1,2}):([0-9]{1,2}):([0-9]{1,2})(?:\.([0-9]{0,9}))?"
    r"|T([0-9]{1,2}):([0-9]{1,2})(?::([0-9]{1,2})(?:\.([0-9]{0,9}))?)?)?"
)
_UNIT_OF_NUMBER: Final = {0: 1, 3: 10**3, 6: 10**6, 9: 10**9}  # precision -> units per second of a bare number


def _timestamp(text: str, new: AtomicType) -> tuple[int, int]:
    """Return seconds since 1970, and nanoseconds."""
    if text.isdecimal() and new.root is Root.TIMESTAMP:
        per_second = _UNIT_OF_NUMBER.get(new.precision)
        if per_second is None:
            raise ValueError("a bare number is read only for precisions 0, 3, 6 and 9")
        seconds, rest = divmod(_integer(text, AtomicType(Root.BIGINT)), per_second)
        return seconds, rest * (10**9 // per_second)
    match = _TIMESTAMP.fullmatch(text)
    if match is None:
        raise ValueError
    hour, minute, second = (int(match[i] or match[i + 4] or 0) for i in (4, 5, 6))
    fraction = (match[7] or match[11] or "").ljust(9, "0")
    if minute > 59 or second > 59 or hour > 24 or (hour == 24 and (minute or second or int(fraction))):
        raise ValueError
    day = _epoch_day_of_month(int(match[1]), int(match[2]), int(match[3]))
    step = 10 ** (9 - new.precision)
    return day * 86_400 + hour * 3600 + minute * 60 + second, int(fraction) // step * step


def _epoch_day_of_month(year: int, month: int, day: int) -> int:
    """Return days since 1970, like java.time: a day up to 31 that the month doesn't have becomes its last day."""
    if not 1 <= day <= 31:
        raise ValueError
    first = _epoch_day(year, month, 1)
    following = _epoch_day(year + month // 12, month % 12 + 1, 1) if (year, month) != (9999, 12) else first + 31
    return min(first + day - 1, following - 1)


_PARSERS: Final[Mapping[Root, Callable[[str, AtomicType], Any]]] = {
    Root.BOOLEAN: _boolean,
    **dict.fromkeys(_BITS, _integer),
    Root.FLOAT: _float,
    Root.DOUBLE: _float,
    Root.DECIMAL: _decimal,
    Root.DATE: _date,
    Root.TIME: _time,
    **dict.fromkeys(TIMESTAMP_ROOTS, _timestamp),
}
